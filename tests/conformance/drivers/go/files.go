// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"slices"

	hutch "github.com/hutch-sandbox/hutch/clients/go"
	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

// fileArgs are those of all commands about files. Those that are absent are not given to the library.
type fileArgs struct {
	SandboxID       string `json:"sandbox_id"`
	Path            string
	Source          string
	Target          string
	Data            content
	UploadID        *string `json:"upload_id"`
	Mode            *uint32
	CreateParents   bool `json:"create_parents"`
	Overwrite       bool
	ExpectedVersion *string  `json:"expected_version"`
	SizeBytes       *uint64  `json:"size_bytes"`
	SHA256          *content `json:"sha256"`
	ResumeOffset    *uint64  `json:"resume_offset"`
	MaxSizeBytes    *uint64  `json:"max_size_bytes"`
	Offset          *uint64
	Length          *uint64
	Compression     *string
	Include         []string
	Exclude         []string
	IgnoreFile      *string `json:"ignore_file"`
	FollowSymlink   bool    `json:"follow_symlink"`
	Depth           *uint32
	Glob            *string
	Recursive       bool
	IgnoreMissing   bool `json:"ignore_missing"`
	Count           int
}

func (a *fileArgs) options() []hutch.CallOption {
	mode := func(mode uint32) hutch.CallOption { return hutch.WithMode(fs.FileMode(mode)) }
	digest := func(digest content) hutch.CallOption { return hutch.WithSHA256(digest) }
	compression := func(name string) hutch.CallOption {
		return hutch.WithCompression(enum[hutchv1.ArchiveCompression](name, hutchv1.ArchiveCompression_value))
	}
	return slices.Concat(
		option(a.Mode, mode), flag(a.CreateParents, hutch.WithParents), flag(a.Overwrite, hutch.WithOverwrite),
		option(a.ExpectedVersion, hutch.WithExpectedVersion), option(a.SizeBytes, hutch.WithSize),
		option(a.SHA256, digest), option(a.ResumeOffset, hutch.WithResumeOffset),
		option(a.MaxSizeBytes, hutch.WithMaxSize), option(a.Offset, hutch.WithOffset),
		option(a.Length, hutch.WithLength), option(a.Compression, compression),
		flag(len(a.Include) > 0, func() hutch.CallOption { return hutch.WithInclude(a.Include...) }),
		flag(len(a.Exclude) > 0, func() hutch.CallOption { return hutch.WithExclude(a.Exclude...) }),
		option(a.IgnoreFile, hutch.WithIgnoreFile), flag(a.FollowSymlink, hutch.WithFollowSymlink),
		option(a.Depth, hutch.WithDepth), option(a.Glob, hutch.WithGlob), flag(a.Recursive, hutch.WithRecursive),
		flag(a.IgnoreMissing, hutch.WithIgnoreMissing),
	)
}

// files gives the arguments, and what they are about.
func files(c *call) (fileArgs, hutch.Files) {
	args := parse[fileArgs](c)
	return args, c.client.Sandbox(args.SandboxID).Files()
}

func readFile(ctx context.Context, c *call) (any, error) {
	args, files := files(c)
	data, file, err := files.Read(ctx, args.Path, args.options()...)
	if err != nil {
		return nil, err
	}
	return object{"file": asJSON(file), "data": told(data)}, nil
}

func writeFile(ctx context.Context, c *call) (any, error) {
	args, files := files(c)
	return answer("file")(files.Write(ctx, args.Path, args.Data, args.options()...))
}

func uploadFile(ctx context.Context, c *call) (any, error) {
	args, files := files(c)
	options := append(args.options(), option(args.UploadID, hutch.WithUploadID)...)
	return answer("file")(files.Upload(ctx, args.Path, stream(args.Data), options...))
}

// stream has bytes be read once: the library would send again what can be read again.
func stream(data []byte) io.Reader { return io.MultiReader(bytes.NewReader(data)) }

func statUpload(ctx context.Context, c *call) (any, error) {
	args, files := files(c)
	return answer("file")(files.UploadStat(ctx, *args.UploadID))
}

func downloadFile(ctx context.Context, c *call) (any, error) {
	args, files := files(c)
	reader, err := files.Open(ctx, args.Path, args.options()...)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	data, err := io.ReadAll(reader)
	if err != nil {
		return nil, err
	}
	return object{"file": asJSON(reader.Info()), "data": told(data)}, nil
}

func uploadArchive(ctx context.Context, c *call) (any, error) {
	args, files := files(c)
	response, err := files.UploadArchive(ctx, args.Path, stream(args.Data), args.options()...)
	return object{"entries": response.GetEntries()}, err
}

func downloadArchive(ctx context.Context, c *call) (any, error) {
	args, files := files(c)
	reader, err := files.OpenArchive(ctx, args.Path, args.options()...)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	data, err := io.ReadAll(reader)
	if err != nil {
		return nil, err
	}
	return object{"data": told(data)}, nil
}

func statFile(ctx context.Context, c *call) (any, error) {
	args, files := files(c)
	return answer("file")(files.Stat(ctx, args.Path, args.options()...))
}

func listFiles(ctx context.Context, c *call) (any, error) {
	args, files := files(c)
	listing := files.List(ctx, args.Path, args.options()...)
	found := []*hutchv1.FileInfo{}
	for file, err := range listing.All() {
		if err != nil {
			return nil, err
		}
		found = append(found, file)
	}
	return object{"files": allAsJSON(found), "changed": listing.Changed()}, nil
}

func makeDirectory(ctx context.Context, c *call) (any, error) {
	args, files := files(c)
	return answer("file")(files.MakeDirectory(ctx, args.Path, args.options()...))
}

func moveFile(ctx context.Context, c *call) (any, error) {
	args, files := files(c)
	return answer("file")(files.Move(ctx, args.Source, args.Target, args.options()...))
}

func removeFile(ctx context.Context, c *call) (any, error) {
	args, files := files(c)
	removed, err := files.Remove(ctx, args.Path, args.options()...)
	return object{"removed": removed}, err
}

func watchFiles(ctx context.Context, c *call) (any, error) {
	args, files := files(c)
	watch, err := files.Watch(ctx, args.Path, args.options()...)
	if err != nil {
		return nil, err
	}
	defer watch.Close()
	c.note()
	changes := []*hutchv1.FileChange{}
	for change, err := range watch.All() {
		if err != nil {
			return nil, err
		}
		if !change.Overflow {
			changes = append(changes, change.FileChange)
		}
		if len(changes) == args.Count {
			break
		}
	}
	return object{"changes": allAsJSON(changes)}, nil
}

func listChanges(ctx context.Context, c *call) (any, error) {
	args, files := files(c)
	differences := files.Changes(ctx, args.Path)
	found := []*hutchv1.ImageChange{}
	for difference, err := range differences.All() {
		if err != nil {
			return nil, err
		}
		found = append(found, difference)
	}
	return object{"differences": allAsJSON(found), "incomplete": differences.Incomplete()}, nil
}
