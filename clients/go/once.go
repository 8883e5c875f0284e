// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
	"github.com/hutch-sandbox/hutch/clients/go/internal/rules"
)

const (
	onceIdle    = 60 * time.Second // after which the daemon removes the sandbox of a client that is gone
	outputLimit = 16 << 20         // that is collected, of both streams together

	removeTimeout = 5 * time.Second
)

// Run runs a command in a sandbox of its own, which is deleted whatever happens, also when the client is gone. What it
// prints is collected up to 16 MiB. Options: those of [Client.Create] and of [Sandbox.Run]; what both have, such as
// [WithEnv], goes to the command.
func (c *Client) Run(ctx context.Context, argv []string, options ...CallOption) (*Result, error) {
	create := &hutchv1.CreateSandboxRequest{SandboxId: newOnceID(), Spec: &hutchv1.SandboxSpec{
		IdleTtl:    durationpb.New(onceIdle),
		IdleAction: hutchv1.IdleAction_IDLE_ACTION_DELETE,
	}}
	run := &hutchv1.RunCommandRequest{Spec: &hutchv1.ExecSpec{Argv: argv}}
	if err := applyOptions(options, run, run.Spec, create.Spec); err != nil {
		return nil, err
	}
	check := checks{}
	check.requestID(run.GetRequestId())
	check.execSpec(run.GetSpec())
	if err := check.result(); err != nil {
		return nil, err
	}

	sandbox, err := c.create(ctx, create)
	if err != nil {
		c.removeUnanswered(create.GetSandboxId(), err)
		return nil, err
	}
	result, err := sandbox.Run(ctx, nil, With(run))
	if failed := sandbox.Close(); err == nil {
		err = failed
	}
	return result, err
}

// newOnceID makes the id of a one-shot's sandbox. The client has to know it before the daemon answers.
func newOnceID() string {
	var bytes [16]byte
	_, _ = rand.Read(bytes[:])
	return "once-" + hex.EncodeToString(bytes[:])
}

// removeUnanswered deletes a sandbox of which nobody knows whether it was made: the caller did not wait for the answer.
// The daemon would find it idle otherwise.
func (c *Client) removeUnanswered(id string, err error) {
	if !errors.Is(err, ErrCancelled) && !errors.Is(err, ErrDeadlineExceeded) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	_, _ = c.Sandbox(id).Delete(ctx)
}

// RunShell runs a script by /bin/sh, as [Client.Run] does.
func (c *Client) RunShell(ctx context.Context, script string, options ...CallOption) (*Result, error) {
	return c.Run(ctx, []string{"/bin/sh", "-c", script}, options...)
}

// RunPython runs Python code by python3, as [Client.Run] does.
func (c *Client) RunPython(ctx context.Context, code string, options ...CallOption) (*Result, error) {
	return c.Run(ctx, []string{"python3", "-c", code}, options...)
}

// Once is a command in a sandbox that the daemon makes for it alone, by SandboxExecService. The command and its sandbox
// are gone when the stream is.
type Once struct {
	stream *incoming[hutchv1.ExecResponse]
	start  *hutchv1.ExecStarted
	exit   *hutchv1.ExecExit
}

// StartOnce runs a command in a sandbox of a profile, in one call, and gives what it prints as it comes. Options:
// [With] an ExecRequest, [WithProfile], [WithImage], [WithEnv], [WithWorkingDirectory], [WithInput],
// [WithExecTimeout], [WithLimits], [WithEgress], [WithLabels], [WithRequestID].
func (c *Client) StartOnce(ctx context.Context, argv []string, options ...CallOption) (*Once, error) {
	request := &hutchv1.ExecRequest{Argv: argv}
	if err := applyOptions(options, request); err != nil {
		return nil, err
	}
	check := checks{}
	check.argv("argv", request.GetArgv())
	check.env("env", request.GetEnv())
	check.labels("labels", request.GetLabels())
	check.directory("working_directory", request.GetWorkingDirectory(), rules.UseAny)
	check.requestID(request.GetRequestId())
	if err := check.result(); err != nil {
		return nil, err
	}
	if request.GetRequestId() == "" {
		request.RequestId = newRequestID()
	}

	stream, err := openIncoming(ctx, c, true,
		func(ctx context.Context) (receiver[hutchv1.ExecResponse], error) {
			return c.sandboxExec.Exec(ctx, request)
		})
	if err != nil {
		return nil, err
	}
	message, err := stream.next()
	if err != nil || message.GetStarted() == nil {
		stream.close()
		return nil, newError("STREAM_INCOMPLETE", "the daemon did not tell that the command has started")
	}
	return &Once{stream: stream, start: message.GetStarted()}, nil
}

// Started is what took effect: the sandbox, its limits and what was clamped.
func (o *Once) Started() *hutchv1.ExecStarted { return o.start }

// Chunks gives the output piece by piece as it comes, until the command has ended. The error, if there is one, comes
// last: a stream that ends without an exit is [ErrStreamIncomplete].
func (o *Once) Chunks() iter.Seq2[*hutchv1.OutputChunk, error] { return chunks(o.next) }

func (o *Once) next() (*hutchv1.OutputChunk, error) {
	for o.exit == nil {
		message, err := o.stream.next()
		if err != nil {
			return nil, ended(err, "the stream ended without an exit code")
		}
		if chunk := message.GetOutput(); chunk != nil {
			return chunk, nil
		}
		o.exit = message.GetExit()
	}
	o.stream.close() // nothing is read after the exit
	return nil, io.EOF
}

// Wait copies the rest of the output to two writers, nil for none, and gives how the command ended.
func (o *Once) Wait(stdout, stderr io.Writer) (*hutchv1.ExecExit, error) {
	if err := copyChunks(o.Chunks(), stdout, stderr); err != nil {
		return nil, err
	}
	return o.exit, nil
}

// Exit is how the command ended; nil before all output was read.
func (o *Once) Exit() *hutchv1.ExecExit { return o.exit }

// Close ends the command, if it has not ended. It may be called at any time, and more than once.
func (o *Once) Close() error {
	o.stream.close()
	return nil
}

// ExecOnce runs a command by [Client.StartOnce] to its end, and collects up to 16 MiB of what it prints.
func (c *Client) ExecOnce(ctx context.Context, argv []string, options ...CallOption) (*Result, error) {
	once, err := c.StartOnce(ctx, argv, options...)
	if err != nil {
		return nil, err
	}
	defer once.Close()
	stdout, stderr := rules.NewCollector(outputLimit), rules.NewCollector(outputLimit)
	exit, err := once.Wait(stdout, stderr)
	if err != nil {
		return nil, err
	}

	stdoutLimit, stderrLimit := rules.ShareLimit(outputLimit, stdout.Total(), stderr.Total())
	return &Result{
		Stdout:    stdout.BytesWithin(stdoutLimit),
		Stderr:    stderr.BytesWithin(stderrLimit),
		ExitCode:  int(exit.GetExitCode()),
		Truncated: stdout.Total() > stdoutLimit || stderr.Total() > stderrLimit,
		Exec:      &hutchv1.Exec{SandboxId: once.Started().GetSandboxId(), Result: exit.GetResult()},
	}, nil
}
