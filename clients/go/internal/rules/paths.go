// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"unicode/utf8"
)

const (
	pathMost      = 4096
	componentMost = 255

	// DefaultWorkspace is where the workspace of a sandbox is, unless its spec says otherwise.
	DefaultWorkspace = "/workspace"
)

// PathUse is what a path is for.
type PathUse int

// The uses of paths.
const (
	UseAny      PathUse = iota
	UseAbsolute         // a field that asks for an absolute path
	UseRemove           // removing, and moving away
)

// PathContext is what a path is read in.
type PathContext struct {
	WorkingDirectory string // "": the workspace
	Workspace        string // "": DefaultWorkspace
	Use              PathUse
}

// Path is a path inside a sandbox as the rule reads it.
type Path struct {
	Text      string // absolute
	Directory bool   // it must be one
}

// ResolvePath is the rule of section 2. It looks at no file system.
func ResolvePath(path string, context PathContext) (Path, *Refusal) {
	workspace := context.Workspace
	if workspace == "" {
		workspace = DefaultWorkspace
	}
	folder := context.WorkingDirectory
	if folder == "" {
		folder = workspace
	}
	if refusal := checkGiven(path, context.Use); refusal != nil {
		return Path{}, refusal
	}

	given := strings.Split(path, "/")
	names := given
	if path[0] != '/' {
		names = append(strings.Split(folder, "/"), given...)
	}
	resolved := join(names)
	if len(resolved) > pathMost {
		return Path{}, refuse("PATH_TOO_LONG", "the path has more than 4096 bytes below its working directory")
	}
	if context.Use == UseRemove && contains(resolved, join(strings.Split(workspace, "/"))) {
		return Path{}, refuse("PATH_PROTECTED", "the root, the workspace and what contains it cannot be removed")
	}

	last := given[len(given)-1]
	return Path{Text: resolved, Directory: last == "" || last == "."}, nil
}

// checkGiven checks what can be told of the path alone.
func checkGiven(path string, use PathUse) *Refusal {
	switch {
	case path == "":
		return refuse("PATH_EMPTY", "the path is empty")
	case len(path) > pathMost:
		return refuse("PATH_TOO_LONG", "the path has more than 4096 bytes")
	case !utf8.ValidString(path):
		return refuse("PATH_NOT_UTF8", "the path is not valid UTF-8")
	case hasControl(path):
		return refuse("PATH_CONTROL_CHARACTER", "the path contains a control character")
	case use == UseAbsolute && path[0] != '/':
		return refuse("PATH_NOT_ABSOLUTE", "the path must begin with '/'")
	}

	names := strings.Split(path, "/")
	if names[0] == "~" {
		return refuse("PATH_TILDE", "'~' is not expanded: write the path out, or './~'")
	}
	for _, name := range names {
		if name == ".." {
			return refuse("PATH_DOTDOT", "'..' is not allowed in a path")
		}
	}
	for _, name := range names {
		if len(name) > componentMost {
			return refuse("PATH_COMPONENT_TOO_LONG", "a component of the path has more than 255 bytes")
		}
	}
	return nil
}

// join makes an absolute path of the names, without those that mean nothing.
func join(names []string) string {
	var path strings.Builder
	for _, name := range names {
		if name != "" && name != "." {
			path.WriteString("/" + name)
		}
	}
	if path.Len() == 0 {
		return "/"
	}
	return path.String()
}

// contains tells whether the path is the workspace, or a folder that the workspace is in.
func contains(path, workspace string) bool {
	return path == "/" || path == workspace || strings.HasPrefix(workspace, path+"/")
}
