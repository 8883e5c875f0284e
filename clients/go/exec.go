// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"io"
	"iter"
	"sync/atomic"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

// Result is how a command ended, with what it printed.
type Result struct {
	Stdout []byte
	Stderr []byte
	// ExitCode is the command's own; 128 + n after signal n, 124 after a timeout, 127 or 126 when it could not be
	// started; -1 when it is not known.
	ExitCode int
	// Truncated tells that output is missing in the middle: there was more than is collected.
	Truncated bool
	// Exec has all about it. Of [Client.ExecOnce] it has only what is known.
	Exec *hutchv1.Exec
}

// OK tells whether the command ended with 0.
func (r *Result) OK() bool { return r.ExitCode == 0 }

// Output is stdout, then stderr, as text.
func (r *Result) Output() string { return string(r.Stdout) + string(r.Stderr) }

// exitCode is that of a result, or -1.
func exitCode(result *hutchv1.ExecResult) int {
	if result == nil || result.ExitCode == nil {
		return -1
	}
	return int(result.GetExitCode())
}

// Run runs a command to its end and collects what it prints, up to 16 MiB. A command that fails is no error. When the
// context ends the command is killed; without a deadline it has 60 s, and what [WithExecTimeout] gives it beside.
// Options: [WithInput], [WithRequestID], [With] an ExecSpec and those of commands, but no terminal and no stdin stream.
func (s *Sandbox) Run(ctx context.Context, argv []string, options ...CallOption) (*Result, error) {
	request := &hutchv1.RunCommandRequest{SandboxId: s.id, Spec: &hutchv1.ExecSpec{Argv: argv}}
	if err := applyOptions(options, request, request.Spec); err != nil {
		return nil, err
	}
	if err := s.checkExec("", "", request.GetRequestId(), request.GetSpec()); err != nil {
		return nil, err
	}
	response, err := s.client.execs.RunCommand(ctx, request)
	if err != nil {
		return nil, err
	}
	return &Result{
		Stdout:    response.GetStdout(),
		Stderr:    response.GetStderr(),
		ExitCode:  exitCode(response.GetExec().GetResult()),
		Truncated: response.GetStdoutSummary().GetTruncated() || response.GetStderrSummary().GetTruncated(),
		Exec:      response.GetExec(),
	}, nil
}

func (s *Sandbox) checkExec(above, id, requestID string, spec *hutchv1.ExecSpec) error {
	check := checks{above: above}
	check.id("sandbox_id", s.id)
	check.newID("exec_id", id)
	check.requestID(requestID)
	check.execSpec(spec)
	return check.result()
}

// Exec is a handle on a command of a sandbox: one that runs, ran or will run.
type Exec struct {
	sandbox *Sandbox
	id      string
	known   atomic.Pointer[hutchv1.Exec]
}

// CreateExec starts a command that goes on without the client. Options: [WithID], [WithRequestID], [With] an ExecSpec
// and those of commands.
func (s *Sandbox) CreateExec(ctx context.Context, argv []string, options ...CallOption) (*Exec, error) {
	request := &hutchv1.CreateExecRequest{SandboxId: s.id, Spec: &hutchv1.ExecSpec{Argv: argv}}
	if err := applyOptions(options, request, request.Spec); err != nil {
		return nil, err
	}
	if err := s.checkExec("", request.GetExecId(), request.GetRequestId(), request.GetSpec()); err != nil {
		return nil, err
	}
	response, err := s.client.execs.CreateExec(ctx, request)
	if err != nil {
		return nil, err
	}
	exec := s.Exec(response.GetExec().GetId())
	exec.known.Store(response.GetExec())
	return exec, nil
}

// Exec is a handle by id, without asking the daemon.
func (s *Sandbox) Exec(id string) *Exec { return &Exec{sandbox: s, id: id} }

// Execs goes through the sandbox's commands, oldest first. Options: [WithStates].
func (s *Sandbox) Execs(ctx context.Context, options ...CallOption) iter.Seq2[*hutchv1.Exec, error] {
	request := &hutchv1.ListExecsRequest{SandboxId: s.id}
	return pages(s.prepare(options, request), func(token string) ([]*hutchv1.Exec, string, error) {
		request.PageToken = token
		response, err := s.client.execs.ListExecs(ctx, request)
		return response.GetExecs(), response.GetNextPageToken(), err
	})
}

// ID is the command's id within its sandbox.
func (e *Exec) ID() string { return e.id }

// Sandbox is where the command runs.
func (e *Exec) Sandbox() *Sandbox { return e.sandbox }

// Info is the command as it was last told; nil when it never was. [Exec.Get] asks anew.
func (e *Exec) Info() *hutchv1.Exec { return e.known.Load() }

// told keeps what the daemon has told.
func (e *Exec) told(exec *hutchv1.Exec, err error) (*hutchv1.Exec, error) {
	if err != nil {
		return nil, err
	}
	e.known.Store(exec)
	return exec, nil
}

func (e *Exec) check() error {
	check := checks{}
	check.id("sandbox_id", e.sandbox.id)
	check.id("exec_id", e.id)
	return check.result()
}

// Get asks for the command as it is.
func (e *Exec) Get(ctx context.Context) (*hutchv1.Exec, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	response, err := e.sandbox.client.execs.GetExec(ctx, &hutchv1.GetExecRequest{SandboxId: e.sandbox.id, ExecId: e.id})
	return e.told(response.GetExec(), err)
}

// Cancel ends the command and all it has started. It returns when that is accepted. Options: [WithGrace].
func (e *Exec) Cancel(ctx context.Context, options ...CallOption) (*hutchv1.Exec, error) {
	request := &hutchv1.CancelExecRequest{SandboxId: e.sandbox.id, ExecId: e.id}
	if err := applyOptions(options, request); err != nil {
		return nil, err
	}
	if err := e.check(); err != nil {
		return nil, err
	}
	response, err := e.sandbox.client.execs.CancelExec(ctx, request)
	return e.told(response.GetExec(), err)
}

// Wait waits for the command's end, as long as the context lets it.
func (e *Exec) Wait(ctx context.Context) (*hutchv1.Exec, error) {
	output, err := e.Output(ctx, WithFollow(), WithTailLines(0))
	if err != nil {
		return nil, err
	}
	defer output.Close()
	return e.told(output.CopyTo(nil, nil))
}

// OutputReader reads what a command has printed. A lost connection is taken up where it was.
type OutputReader struct {
	exec    *Exec
	ctx     context.Context
	cancel  context.CancelFunc
	request *hutchv1.ReadExecOutputRequest
	stream  *incoming[hutchv1.ReadExecOutputResponse]
	resumes int
	ended   *hutchv1.Exec
}

// Output reads what the command has printed so far, or, [WithFollow], until it ends. Options: [WithFollow],
// [WithOffsets], [WithStreams], [WithTailLines].
func (e *Exec) Output(ctx context.Context, options ...CallOption) (*OutputReader, error) {
	request := &hutchv1.ReadExecOutputRequest{SandboxId: e.sandbox.id, ExecId: e.id}
	if err := applyOptions(options, request); err != nil {
		return nil, err
	}
	if err := e.check(); err != nil {
		return nil, err
	}
	reader := &OutputReader{exec: e, request: request}
	reader.ctx, reader.cancel = context.WithCancel(ctx)
	if err := reader.open(); err != nil {
		reader.cancel()
		return nil, err
	}
	return reader, nil
}

func (r *OutputReader) open() (err error) {
	r.stream, err = openIncoming(r.ctx, r.exec.sandbox.client, true,
		func(ctx context.Context) (receiver[hutchv1.ReadExecOutputResponse], error) {
			return r.exec.sandbox.client.execs.ReadExecOutput(ctx, r.request)
		})
	return err
}

// Chunks gives the output piece by piece. A jump of a stream's offset tells that what lies between was dropped. The
// error, if there is one, comes last.
func (r *OutputReader) Chunks() iter.Seq2[*hutchv1.OutputChunk, error] { return chunks(r.next) }

// chunks goes through output until io.EOF.
func chunks(next func() (*hutchv1.OutputChunk, error)) iter.Seq2[*hutchv1.OutputChunk, error] {
	return func(yield func(*hutchv1.OutputChunk, error) bool) {
		for {
			chunk, err := next()
			if err == io.EOF || !yield(chunk, err) || err != nil {
				return
			}
		}
	}
}

func (r *OutputReader) next() (*hutchv1.OutputChunk, error) {
	for r.ended == nil {
		message, err := r.stream.next()
		switch {
		case err == io.EOF:
			return nil, newError("STREAM_INCOMPLETE", "the output ended without telling how the command did")
		case isLost(err) && r.resumes < resumesMost && r.canResume():
			r.resumes++
			r.stream.close()
			if err := r.open(); err != nil {
				return nil, err
			}
			continue
		case err != nil:
			return nil, err
		}
		r.resumes = 0
		if chunk := message.GetOutput(); chunk != nil {
			r.note(chunk)
			return chunk, nil
		}
		r.ended = message.GetExec()
	}
	return nil, io.EOF
}

const resumesMost = 6 // in a row that brought nothing

// note keeps where to go on.
func (r *OutputReader) note(chunk *hutchv1.OutputChunk) {
	end := chunk.GetOffset() + uint64(len(chunk.GetData()))
	if chunk.GetStream() == hutchv1.OutputStream_OUTPUT_STREAM_STDERR {
		r.request.StderrOffset = end
	} else {
		r.request.StdoutOffset = end
	}
}

// canResume tells whether it is known where to go on. Lines before the end are others when more has come; of those only
// none at all is the same.
func (r *OutputReader) canResume() bool {
	return r.request.TailLines == nil || r.request.GetTailLines() == 0
}

// CopyTo copies the output to two writers, nil for none, and gives the command as it was after the last of it.
func (r *OutputReader) CopyTo(stdout, stderr io.Writer) (*hutchv1.Exec, error) {
	if err := copyChunks(r.Chunks(), stdout, stderr); err != nil {
		return nil, err
	}
	return r.ended, nil
}

func copyChunks(chunks iter.Seq2[*hutchv1.OutputChunk, error], stdout, stderr io.Writer) error {
	for chunk, err := range chunks {
		if err != nil {
			return err
		}
		to := stdout
		if chunk.GetStream() == hutchv1.OutputStream_OUTPUT_STREAM_STDERR {
			to = stderr
		}
		if to == nil {
			continue
		}
		if _, err := to.Write(chunk.GetData()); err != nil {
			return err
		}
	}
	return nil
}

// Exec is the command as it was after the last output; nil before that was read.
func (r *OutputReader) Exec() *hutchv1.Exec { return r.ended }

// Close ends the reading. It may be called at any time, and more than once.
func (r *OutputReader) Close() error {
	r.cancel()
	return nil
}
