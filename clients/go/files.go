// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"iter"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
	"github.com/hutch-sandbox/hutch/clients/go/internal/rules"
)

// Files moves files in and out of a sandbox and looks after them inside. Paths are absolute, or relative to the
// sandbox's working directory; what the rules do not allow in one is refused before a call is made.
type Files struct {
	sandbox *Sandbox
}

// Files is for the sandbox's files.
func (s *Sandbox) Files() Files { return Files{s} }

func (f Files) stubs() hutchv1.FileServiceClient { return f.sandbox.client.files }

// check begins the checks of a request about a path.
func (f Files) check(field, path string) *checks {
	return f.checkBelow("", field, path)
}

// checkBelow is for a path in a message within the request.
func (f Files) checkBelow(above, field, path string) *checks {
	check := &checks{above: above}
	check.id("sandbox_id", f.sandbox.id)
	check.path(field, path)
	return check
}

// checkRemoved is for a path that is removed or moved away. Where the workspace is, is known of a sandbox that was told
// of; otherwise the daemon has to look.
func (f Files) checkRemoved(field, path string) *checks {
	check := &checks{}
	check.id("sandbox_id", f.sandbox.id)
	context := rules.PathContext{WorkingDirectory: "/", Workspace: "/", Use: rules.UseRemove}
	if known := f.sandbox.Info(); known != nil {
		context.Workspace = known.GetSpec().GetWorkspace().GetTarget()
		context.WorkingDirectory = known.GetSpec().GetWorkingDirectory()
	} else if path != "" && path[0] != '/' {
		context.Use = rules.UseAny
	}
	_, refusal := rules.ResolvePath(path, context)
	check.note(field, refusal)
	return check
}

// Read reads a file of up to 3 MiB. Options: [WithOffset], [WithLength], [WithExpectedVersion].
func (f Files) Read(ctx context.Context, path string, options ...CallOption) ([]byte, *hutchv1.FileInfo, error) {
	request := &hutchv1.ReadFileRequest{SandboxId: f.sandbox.id, Path: path}
	if err := applyOptions(options, request); err != nil {
		return nil, nil, err
	}
	if err := f.check("path", path).result(); err != nil {
		return nil, nil, err
	}
	response, err := f.stubs().ReadFile(ctx, request)
	return response.GetData(), response.GetFile(), err
}

// Write writes a file of up to 3 MiB: all of it or nothing. Options: [WithMode], [WithParents], [WithOverwrite],
// [WithExpectedVersion], [WithRequestID].
func (f Files) Write(ctx context.Context, path string, data []byte, options ...CallOption) (*hutchv1.FileInfo, error) {
	request := &hutchv1.WriteFileRequest{SandboxId: f.sandbox.id, Path: path, Data: data}
	if err := applyOptions(options, request); err != nil {
		return nil, err
	}
	check := f.check("path", path)
	check.mode("mode", request.Mode)
	check.requestID(request.GetRequestId())
	if err := check.result(); err != nil {
		return nil, err
	}
	response, err := f.stubs().WriteFile(ctx, request)
	return response.GetFile(), err
}

// Stat tells about a file, folder or other thing. Options: [WithFollowSymlink].
func (f Files) Stat(ctx context.Context, path string, options ...CallOption) (*hutchv1.FileInfo, error) {
	request := &hutchv1.StatFileRequest{SandboxId: f.sandbox.id, Path: path}
	if err := applyOptions(options, request); err != nil {
		return nil, err
	}
	if err := f.check("path", path).result(); err != nil {
		return nil, err
	}
	response, err := f.stubs().StatFile(ctx, request)
	return response.GetFile(), err
}

// UploadStat tells how far a broken upload has come: its size.
func (f Files) UploadStat(ctx context.Context, uploadID string) (*hutchv1.FileInfo, error) {
	check := checks{}
	check.id("sandbox_id", f.sandbox.id)
	check.required("upload_id", uploadID)
	if err := check.result(); err != nil {
		return nil, err
	}
	response, err := f.stubs().StatFile(ctx, &hutchv1.StatFileRequest{SandboxId: f.sandbox.id, UploadId: uploadID})
	return response.GetFile(), err
}

// Listing is a folder that is being listed.
type Listing struct {
	files   iter.Seq2[*hutchv1.FileInfo, error]
	changed bool
}

// All gives the entries, in byte order of their paths. The error, if there is one, comes last.
func (l *Listing) All() iter.Seq2[*hutchv1.FileInfo, error] { return l.files }

// Changed tells, after the last entry, that the folder changed meanwhile: entries may be missing, or have come twice.
func (l *Listing) Changed() bool { return l.changed }

// List lists a folder. Options: [WithDepth], [WithGlob].
func (f Files) List(ctx context.Context, path string, options ...CallOption) *Listing {
	request := &hutchv1.ListFilesRequest{SandboxId: f.sandbox.id, Path: path}
	err := applyOptions(options, request)
	if err == nil {
		err = f.check("path", path).result()
	}
	listing := &Listing{}
	listing.files = pages(err, func(token string) ([]*hutchv1.FileInfo, string, error) {
		request.PageToken = token
		response, err := f.stubs().ListFiles(ctx, request)
		listing.changed = listing.changed || response.GetChanged()
		return response.GetFiles(), response.GetNextPageToken(), err
	})
	return listing
}

// MakeDirectory makes a folder. Options: [WithMode], [WithParents], [WithRequestID].
func (f Files) MakeDirectory(ctx context.Context, path string, options ...CallOption) (*hutchv1.FileInfo, error) {
	request := &hutchv1.MakeDirectoryRequest{SandboxId: f.sandbox.id, Path: path}
	if err := applyOptions(options, request); err != nil {
		return nil, err
	}
	check := f.check("path", path)
	check.mode("mode", request.Mode)
	check.requestID(request.GetRequestId())
	if err := check.result(); err != nil {
		return nil, err
	}
	response, err := f.stubs().MakeDirectory(ctx, request)
	return response.GetFile(), err
}

// Move renames a file or folder; target is the new path itself. Options: [WithOverwrite], [WithParents],
// [WithRequestID].
func (f Files) Move(ctx context.Context, source, target string, options ...CallOption) (*hutchv1.FileInfo, error) {
	request := &hutchv1.MoveFileRequest{SandboxId: f.sandbox.id, Source: source, Target: target}
	if err := applyOptions(options, request); err != nil {
		return nil, err
	}
	check := f.checkRemoved("source", source)
	check.path("target", target)
	check.requestID(request.GetRequestId())
	if err := check.result(); err != nil {
		return nil, err
	}
	response, err := f.stubs().MoveFile(ctx, request)
	return response.GetFile(), err
}

// Remove removes a file or folder, and tells how many things that were. Options: [WithRecursive], [WithIgnoreMissing],
// [WithRequestID].
func (f Files) Remove(ctx context.Context, path string, options ...CallOption) (uint64, error) {
	request := &hutchv1.RemoveFileRequest{SandboxId: f.sandbox.id, Path: path}
	if err := applyOptions(options, request); err != nil {
		return 0, err
	}
	check := f.checkRemoved("path", path)
	check.requestID(request.GetRequestId())
	if err := check.result(); err != nil {
		return 0, err
	}
	response, err := f.stubs().RemoveFile(ctx, request)
	return response.GetRemoved(), err
}

// Differences is how a sandbox's files are compared with its image.
type Differences struct {
	changes    iter.Seq2[*hutchv1.ImageChange, error]
	incomplete bool
}

// All gives the differences, a folder before what is in it. The error, if there is one, comes last.
func (d *Differences) All() iter.Seq2[*hutchv1.ImageChange, error] { return d.changes }

// Incomplete tells, after the last difference, that something was left out: what the sandbox's user may not read, or
// lies too deep.
func (d *Differences) Incomplete() bool { return d.incomplete }

// Changes lists in which files of its own, at the path and below, the sandbox differs from its image.
func (f Files) Changes(ctx context.Context, path string) *Differences {
	request := &hutchv1.ListChangesRequest{SandboxId: f.sandbox.id, Path: path}
	differences := &Differences{}
	err := f.check("path", path).result()
	differences.changes = pages(err, func(token string) ([]*hutchv1.ImageChange, string, error) {
		request.PageToken = token
		response, err := f.stubs().ListChanges(ctx, request)
		differences.incomplete = differences.incomplete || response.GetIncomplete()
		return response.GetChanges(), response.GetNextPageToken(), err
	})
	return differences
}

// FileWatch tells what changes below a folder.
type FileWatch struct {
	stream *incoming[hutchv1.WatchFilesResponse]
}

// FileChange is what a watch of files tells.
type FileChange struct {
	*hutchv1.FileChange      // nil when changes were lost
	Overflow            bool // changes came too fast and some were lost: look at the folder anew
}

// Watch watches a folder; what happens after it has returned is told. It ends with its Close or its context; a lost
// connection ends it too, since nobody knows what happened meanwhile. Options: [WithRecursive].
func (f Files) Watch(ctx context.Context, path string, options ...CallOption) (*FileWatch, error) {
	request := &hutchv1.WatchFilesRequest{SandboxId: f.sandbox.id, Path: path}
	if err := applyOptions(options, request); err != nil {
		return nil, err
	}
	if err := f.check("path", path).result(); err != nil {
		return nil, err
	}
	stream, err := openIncoming(ctx, f.sandbox.client, true,
		func(ctx context.Context) (receiver[hutchv1.WatchFilesResponse], error) {
			return f.stubs().WatchFiles(ctx, request)
		})
	if err != nil {
		return nil, err
	}
	return &FileWatch{stream}, nil
}

// All gives the changes as they come. The error comes last.
func (w *FileWatch) All() iter.Seq2[*FileChange, error] {
	return func(yield func(*FileChange, error) bool) {
		for {
			message, err := w.stream.next()
			if err != nil {
				yield(nil, ended(err, "the daemon ended the watch"))
				return
			}
			change := &FileChange{message.GetChange(), message.GetOverflow() != nil}
			if (change.Overflow || change.FileChange != nil) && !yield(change, nil) {
				return
			}
		}
	}
}

// Close ends the watch. It may be called at any time, and more than once.
func (w *FileWatch) Close() error {
	w.stream.close()
	return nil
}
