// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"io"

	"google.golang.org/grpc"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

const uploadPart = 1 << 20 // bytes of a file in one message

// ended is the error of a stream that must not have ended yet.
func ended(err error, what string) error {
	if err == io.EOF {
		return newError("STREAM_INCOMPLETE", "%s", what)
	}
	return err
}

// FileReader reads a file of a sandbox. A lost connection is taken up where it was, if the file has not changed.
type FileReader struct {
	files   Files
	ctx     context.Context
	cancel  context.CancelFunc
	request *hutchv1.DownloadFileRequest
	stream  *incoming[hutchv1.DownloadFileResponse]
	info    *hutchv1.FileInfo
	rest    []byte // that came and was not read
	resumes int
}

// Open reads a file, or a part of it, as a stream. It ends with its Close or its context. Options: [WithOffset],
// [WithLength], [WithExpectedVersion], [WithMaxSize].
func (f Files) Open(ctx context.Context, path string, options ...CallOption) (*FileReader, error) {
	request := &hutchv1.DownloadFileRequest{SandboxId: f.sandbox.id, Path: path}
	if err := applyOptions(options, request); err != nil {
		return nil, err
	}
	if err := f.check("path", path).result(); err != nil {
		return nil, err
	}
	reader := &FileReader{files: f, request: request}
	reader.ctx, reader.cancel = context.WithCancel(ctx)
	if err := reader.open(); err != nil {
		reader.cancel()
		return nil, err
	}
	return reader, nil
}

func (r *FileReader) open() (err error) {
	r.stream, err = openIncoming(r.ctx, r.files.sandbox.client, true,
		func(ctx context.Context) (receiver[hutchv1.DownloadFileResponse], error) {
			return r.files.stubs().DownloadFile(ctx, r.request)
		})
	if err != nil {
		return err
	}
	message, err := r.stream.next()
	if err != nil || message.GetFile() == nil {
		return newError("STREAM_INCOMPLETE", "the daemon did not tell about the file")
	}
	if r.info == nil {
		r.info = message.GetFile()
	}
	return nil
}

// Info is about the file as it was when it was opened.
func (r *FileReader) Info() *hutchv1.FileInfo { return r.info }

// Read reads the next bytes.
func (r *FileReader) Read(buffer []byte) (int, error) {
	for len(r.rest) == 0 {
		message, err := r.stream.next()
		if isLost(err) && r.resumes < resumesMost {
			r.resumes++
			r.stream.close()
			r.request.ExpectedVersion = r.info.GetVersion()
			if err := r.open(); err != nil {
				return 0, err
			}
			continue
		}
		if err != nil {
			return 0, err
		}
		r.resumes = 0
		r.take(message.GetData())
	}
	n := copy(buffer, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// take keeps what came, and notes where to go on.
func (r *FileReader) take(data []byte) {
	r.rest = data
	r.request.Offset += uint64(len(data))
	if r.request.Length != nil {
		left := r.request.GetLength() - uint64(len(data))
		r.request.Length = &left
	}
}

// WriteTo writes all that is left.
func (r *FileReader) WriteTo(to io.Writer) (int64, error) {
	written := int64(0)
	for {
		n, err := to.Write(r.rest)
		written += int64(n)
		r.rest = r.rest[n:]
		if err != nil {
			return written, err
		}
		if _, err := r.Read(nil); err == io.EOF {
			return written, nil
		} else if err != nil {
			return written, err
		}
	}
}

// Close ends the reading. It may be called at any time, and more than once.
func (r *FileReader) Close() error {
	r.cancel()
	return nil
}

// Upload writes a file from a stream: all of it or nothing. Options: [WithMode], [WithParents], [WithOverwrite],
// [WithSize], [WithSHA256], [WithUploadID], [WithResumeOffset], [WithMaxSize], [WithRequestID].
//
// It is tried again as other calls are while nothing was read from the source, and later if that is an [io.Seeker].
func (f Files) Upload(ctx context.Context, path string, source io.Reader,
	options ...CallOption) (*hutchv1.FileInfo, error) {
	header := &hutchv1.UploadFileHeader{SandboxId: f.sandbox.id, Path: path}
	if err := applyOptions(options, header); err != nil {
		return nil, err
	}
	check := f.checkBelow("header.", "path", path)
	check.mode("mode", header.Mode)
	check.requestID(header.GetRequestId())
	if err := check.result(); err != nil {
		return nil, err
	}
	if header.GetRequestId() == "" {
		header.RequestId = newRequestID()
	}

	response, err := upload(ctx, f.sandbox.client, source, f.stubs().UploadFile,
		&hutchv1.UploadFileRequest{Item: &hutchv1.UploadFileRequest_Header{Header: header}},
		func(data []byte) *hutchv1.UploadFileRequest {
			return &hutchv1.UploadFileRequest{Item: &hutchv1.UploadFileRequest_Data{Data: data}}
		})
	return response.GetFile(), err
}

// opener is a stub of a call that sends a stream.
type opener[Request, Response any] func(context.Context, ...grpc.CallOption) (grpc.ClientStreamingClient[Request,
	Response], error)

// upload sends a header and then all of the source.
func upload[Request, Response any](ctx context.Context, c *Client, source io.Reader, open opener[Request, Response],
	header *Request, part func([]byte) *Request,
) (response *Response, err error) {
	from := newUploadSource(source)
	err = c.retry(ctx, true, func(ctx context.Context, state *tryState) error {
		ctx, cancel := context.WithCancel(ctx) // an upload that is left leaves nothing behind
		defer cancel()
		defer func() { state.answered = !from.rewind() }()

		stream, err := open(ctx)
		if err == nil {
			err = stream.Send(header)
		}
		for buffer := make([]byte, uploadPart); err == nil; {
			var n int
			n, err = io.ReadFull(from, buffer)
			if n > 0 {
				if refused := stream.Send(part(buffer[:n])); refused != nil {
					err = refused
				}
			}
		}
		if from.err != nil {
			return newError("CALL_CANCELLED", "the source cannot be read: %v", from.err)
		}
		if err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		response, err = stream.CloseAndRecv()
		return err
	})
	if from.err != nil {
		return nil, from.err
	}
	return response, err
}

// uploadSource is a reader that may be read again from where it was.
type uploadSource struct {
	io.Reader
	seeker io.Seeker // nil: it cannot go back
	start  int64
	begun  bool
	err    error // of the reader itself
}

func newUploadSource(source io.Reader) *uploadSource {
	from := &uploadSource{Reader: source}
	if seeker, ok := source.(io.Seeker); ok {
		if start, err := seeker.Seek(0, io.SeekCurrent); err == nil {
			from.seeker, from.start = seeker, start
		}
	}
	return from
}

func (u *uploadSource) Read(buffer []byte) (int, error) {
	u.begun = true
	n, err := u.Reader.Read(buffer)
	if err != nil && err != io.EOF {
		u.err = err
	}
	return n, err
}

// rewind goes back to where it was. false: it cannot, and is not to be read again.
func (u *uploadSource) rewind() bool {
	if !u.begun {
		return true
	}
	if u.seeker == nil || u.err != nil {
		return false
	}
	_, err := u.seeker.Seek(u.start, io.SeekStart)
	return err == nil
}

// UploadArchive unpacks a tar stream into a folder. Options: [WithCompression], [WithParents], [WithOverwrite],
// [WithMaxSize], [WithRequestID]. It is tried again as [Files.Upload] is.
func (f Files) UploadArchive(ctx context.Context, path string, source io.Reader,
	options ...CallOption) (*hutchv1.UploadArchiveResponse, error) {
	header := &hutchv1.UploadArchiveHeader{SandboxId: f.sandbox.id, Path: path}
	if err := applyOptions(options, header); err != nil {
		return nil, err
	}
	check := f.checkBelow("header.", "path", path)
	check.requestID(header.GetRequestId())
	if err := check.result(); err != nil {
		return nil, err
	}
	if header.GetRequestId() == "" {
		header.RequestId = newRequestID()
	}

	return upload(ctx, f.sandbox.client, source, f.stubs().UploadArchive,
		&hutchv1.UploadArchiveRequest{Item: &hutchv1.UploadArchiveRequest_Header{Header: header}},
		func(data []byte) *hutchv1.UploadArchiveRequest {
			return &hutchv1.UploadArchiveRequest{Item: &hutchv1.UploadArchiveRequest_Data{Data: data}}
		})
}

// archiveReader reads an archive. One that breaks cannot be taken up.
type archiveReader struct {
	stream *incoming[hutchv1.DownloadArchiveResponse]
	rest   []byte
}

// OpenArchive reads a folder, or a file, as a tar stream. It ends with its Close or its context. Options:
// [WithCompression], [WithInclude], [WithExclude], [WithIgnoreFile], [WithMaxSize].
func (f Files) OpenArchive(ctx context.Context, path string, options ...CallOption) (io.ReadCloser, error) {
	request := &hutchv1.DownloadArchiveRequest{SandboxId: f.sandbox.id, Path: path}
	if err := applyOptions(options, request); err != nil {
		return nil, err
	}
	if err := f.check("path", path).result(); err != nil {
		return nil, err
	}
	stream, err := openIncoming(ctx, f.sandbox.client, true,
		func(ctx context.Context) (receiver[hutchv1.DownloadArchiveResponse], error) {
			return f.stubs().DownloadArchive(ctx, request)
		})
	if err != nil {
		return nil, err
	}
	return &archiveReader{stream: stream}, nil
}

func (r *archiveReader) Read(buffer []byte) (int, error) {
	for len(r.rest) == 0 {
		message, err := r.stream.next()
		if err != nil {
			return 0, err
		}
		r.rest = message.GetData()
	}
	n := copy(buffer, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *archiveReader) Close() error {
	r.stream.close()
	return nil
}
