// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"io"
	"iter"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

const stdinPart = 1 << 20 // bytes of stdin in one message

// Process is a command that the client is attached to: what it prints comes as it is printed, and what it reads is
// sent.
type Process struct {
	exec   *Exec
	stream *incoming[hutchv1.AttachExecResponse]
	ended  *hutchv1.Exec

	// Of a command that was started here and goes with the process.
	owned  atomic.Bool // until it has ended or was cancelled, or its connection is lost
	forget func() bool // the end of the context

	mutex sync.Mutex // of sending
	send  grpc.BidiStreamingClient[hutchv1.AttachExecRequest, hutchv1.AttachExecResponse]
}

// Start starts a command and attaches to it. It is cancelled when the context ends, or [Process.Close] is called,
// before its end; when the connection is lost or the program ends it goes on, unless it is [WithBound]. For one that
// goes on in any case see [Sandbox.CreateExec]. Options: [WithID], [WithRequestID], [WithBound], [WithStdin],
// [WithTerminal], [With] an ExecSpec and those of commands.
func (s *Sandbox) Start(ctx context.Context, argv []string, options ...CallOption) (*Process, error) {
	request := &hutchv1.CreateExecRequest{SandboxId: s.id, Spec: &hutchv1.ExecSpec{Argv: argv}}
	if err := applyOptions(options, request, request.Spec); err != nil {
		return nil, err
	}
	if err := s.checkExec("create.", request.GetExecId(), request.GetRequestId(), request.GetSpec()); err != nil {
		return nil, err
	}
	if request.GetRequestId() == "" {
		request.RequestId = newRequestID()
	}
	p, err := s.attach(ctx, &hutchv1.AttachExecRequest{Item: &hutchv1.AttachExecRequest_Create{Create: request}})
	if err != nil {
		return nil, err
	}
	p.owned.Store(true)
	p.forget = context.AfterFunc(ctx, func() { _ = p.cancel() })
	return p, nil
}

// cancel ends the command, if it is to go with the process.
func (p *Process) cancel() error {
	if !p.owned.CompareAndSwap(true, false) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.exec.sandbox.client.timeout)
	defer cancel()
	_, err := p.exec.Cancel(ctx)
	return err
}

// release lets the command go on without the process.
func (p *Process) release() {
	if p.owned.CompareAndSwap(true, false) {
		p.forget()
	}
}

// Attach attaches to the command; it goes on when the process is closed. Options: [WithOffsets].
func (e *Exec) Attach(ctx context.Context, options ...CallOption) (*Process, error) {
	target := &hutchv1.AttachTarget{SandboxId: e.sandbox.id, ExecId: e.id}
	if err := applyOptions(options, target); err != nil {
		return nil, err
	}
	if err := e.check(); err != nil {
		return nil, err
	}
	return e.sandbox.attach(ctx, &hutchv1.AttachExecRequest{Item: &hutchv1.AttachExecRequest_Attach{Attach: target}})
}

func (s *Sandbox) attach(ctx context.Context, first *hutchv1.AttachExecRequest) (*Process, error) {
	p := &Process{}
	var err error
	p.stream, err = openIncoming(ctx, s.client, true,
		func(ctx context.Context) (receiver[hutchv1.AttachExecResponse], error) {
			stream, err := s.client.execs.AttachExec(ctx)
			if err != nil {
				return nil, err
			}
			if err := stream.Send(first); err != nil && err != io.EOF {
				return nil, err
			}
			p.send = stream
			return stream, nil
		})
	if err != nil {
		return nil, err
	}

	message, err := p.stream.next()
	if err != nil || message.GetAttached() == nil {
		p.stream.close()
		return nil, newError("STREAM_INCOMPLETE", "the daemon did not attach to the command")
	}
	p.exec = s.Exec(message.GetAttached().GetId())
	p.exec.known.Store(message.GetAttached())
	return p, nil
}

// Exec is a handle on the command.
func (p *Process) Exec() *Exec { return p.exec }

// Chunks gives the output piece by piece as it comes, until the command has ended. A jump of a stream's offset tells
// that what lies between was dropped. The error, if there is one, comes last.
func (p *Process) Chunks() iter.Seq2[*hutchv1.OutputChunk, error] { return chunks(p.next) }

func (p *Process) next() (*hutchv1.OutputChunk, error) {
	for p.ended == nil {
		message, err := p.stream.next()
		if isLost(err) {
			p.release()
		}
		if err != nil {
			return nil, ended(err, "the stream ended without telling how the command did")
		}
		if chunk := message.GetOutput(); chunk != nil {
			return chunk, nil
		}
		p.ended = message.GetEnded()
	}
	p.release()
	p.stream.close()
	return nil, io.EOF
}

// Wait copies the rest of the output to two writers, nil for none, and gives the command as it is after its end.
func (p *Process) Wait(stdout, stderr io.Writer) (*hutchv1.Exec, error) {
	if err := copyChunks(p.Chunks(), stdout, stderr); err != nil {
		return nil, err
	}
	return p.ended, nil
}

// Ended is the command as it is after its end; nil before all output was read.
func (p *Process) Ended() *hutchv1.Exec { return p.ended }

func (p *Process) sendItem(request *hutchv1.AttachExecRequest) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if err := p.send.Send(request); err != io.EOF {
		return err
	}
	return nil // the command has ended: it goes nowhere, and reading tells
}

// Write sends bytes to the command's stdin, which [WithStdin] gives it. It waits while the command does not read. What
// is written after its end goes nowhere and is no error.
func (p *Process) Write(data []byte) (int, error) {
	written := 0
	for len(data) > 0 {
		part := data[:min(len(data), stdinPart)]
		if err := p.sendItem(&hutchv1.AttachExecRequest{Item: &hutchv1.AttachExecRequest_Stdin{Stdin: part}}); err != nil {
			return written, err
		}
		written += len(part)
		data = data[len(part):]
	}
	return written, nil
}

// CloseStdin tells the command that no more will come.
func (p *Process) CloseStdin() error {
	end := &hutchv1.AttachExecRequest_StdinClose{StdinClose: &hutchv1.StdinClose{}}
	return p.sendItem(&hutchv1.AttachExecRequest{Item: end})
}

// Resize tells the command's terminal its new size.
func (p *Process) Resize(rows, columns uint32) error {
	size := &hutchv1.TerminalSize{Rows: rows, Columns: columns}
	return p.sendItem(&hutchv1.AttachExecRequest{Item: &hutchv1.AttachExecRequest_Resize{Resize: size}})
}

// Signal sends a signal, 1 to 64, to the command's main process.
func (p *Process) Signal(signal uint32) error {
	return p.sendItem(&hutchv1.AttachExecRequest{Item: &hutchv1.AttachExecRequest_Signal{Signal: signal}})
}

// Close ends the connection and, of a command that [Sandbox.Start] has started and that has not ended, the command.
// It may be called at any time, and more than once.
func (p *Process) Close() error {
	err := p.cancel()
	p.stream.close()
	return err
}
