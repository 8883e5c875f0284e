// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

func sendStarted(stream execStream) {
	started := &hutchv1.ExecStarted{SandboxId: "one-shot"}
	_ = stream.Send(&hutchv1.ExecResponse{Item: &hutchv1.ExecResponse_Started{Started: started}})
}

func sendOutput(stream execStream, which hutchv1.OutputStream, text string) {
	chunk := &hutchv1.OutputChunk{Stream: which, Data: []byte(text)}
	_ = stream.Send(&hutchv1.ExecResponse{Item: &hutchv1.ExecResponse_Output{Output: chunk}})
}

func sendExit(stream execStream, code int32) {
	_ = stream.Send(&hutchv1.ExecResponse{Item: &hutchv1.ExecResponse_Exit{Exit: &hutchv1.ExecExit{ExitCode: code}}})
}

const (
	onStdout = hutchv1.OutputStream_OUTPUT_STREAM_STDOUT
	onStderr = hutchv1.OutputStream_OUTPUT_STREAM_STDERR
)

// runner is one for a fake daemon whose commands do what the function says.
func runner(t *testing.T, daemon *fakeDaemon) *RemoteRunner {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "hutchd.sock")
	daemon.serve(t, "unix", socket)
	made, err := NewRemoteRunner(testContext(t), "unix:"+socket)
	check(t, err)
	t.Cleanup(func() { made.Close() })
	return made
}

func TestRemoteRunnerGivesOutputAndExitCode(t *testing.T) {
	leavesNothing(t)
	daemon := &fakeDaemon{exec: func(request *hutchv1.ExecRequest, stream execStream) error {
		sendStarted(stream)
		sendOutput(stream, onStdout, request.GetArgv()[0]+" "+request.GetProfile())
		sendOutput(stream, onStderr, "err")
		sendExit(stream, 3)
		return nil
	}}
	var stdout, stderr bytes.Buffer
	code, err := runner(t, daemon).Exec(testContext(t), []string{"true"}, &stdout, &stderr, WithProfile("strict"))
	check(t, err)
	if code != 3 || stdout.String() != "true strict" || stderr.String() != "err" {
		t.Errorf("got %d, %q and %q", code, &stdout, &stderr)
	}
}

func TestRemoteRunnerRefusesAnEmptyArgvBeforeAnyCall(t *testing.T) {
	proves(t, "REMOTE-002")
	daemon := &fakeDaemon{}
	remote := runner(t, daemon)
	for _, argv := range [][]string{nil, {}, {""}} {
		code, err := remote.Exec(testContext(t), argv, nil, nil)
		failure := expectReason(t, err, "ARGV_EMPTY")
		if code != -1 || failure.Violations[0].Field != "argv" || !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("got %d and %+v", code, failure)
		}
	}
	if len(daemon.calls) != 0 {
		t.Error("the daemon was called")
	}
}

func TestRemoteRunnerTakesAMissingExitCodeForAnError(t *testing.T) {
	proves(t, "REMOTE-002")
	for name, answer := range map[string]func(execStream){
		"nothing":      func(execStream) {},
		"started only": sendStarted,
		"output only":  func(stream execStream) { sendStarted(stream); sendOutput(stream, onStdout, "out") },
	} {
		daemon := &fakeDaemon{exec: func(_ *hutchv1.ExecRequest, stream execStream) error {
			answer(stream)
			return nil
		}}
		code, err := runner(t, daemon).Exec(testContext(t), []string{"true"}, nil, nil)
		if code == 0 || !errors.Is(err, ErrStreamIncomplete) {
			t.Errorf("%s: got %d, %v", name, code, err)
		}
	}
}

func TestRemoteRunnerStopsAtTheExitCode(t *testing.T) {
	proves(t, "REMOTE-002")
	left := make(chan struct{})
	daemon := &fakeDaemon{exec: func(_ *hutchv1.ExecRequest, stream execStream) error {
		defer close(left)
		sendStarted(stream)
		sendExit(stream, 0)
		sendOutput(stream, onStdout, "too late")
		<-stream.Context().Done() // the client has gone
		return nil
	}}
	var stdout bytes.Buffer
	code, err := runner(t, daemon).Exec(testContext(t), []string{"true"}, &stdout, nil)
	check(t, err)
	if code != 0 || stdout.Len() != 0 {
		t.Errorf("got %d and %q", code, &stdout)
	}
	<-left
}

func TestRemoteRunnerDoesNotRepeatWhatHasBegun(t *testing.T) {
	proves(t, "RETRY-006")
	daemon := &fakeDaemon{exec: func(_ *hutchv1.ExecRequest, stream execStream) error {
		sendStarted(stream)
		return newError("DRAINING", "going").GRPCStatus().Err()
	}}
	_, err := runner(t, daemon).Exec(testContext(t), []string{"true"}, nil, nil)
	expectReason(t, err, "DRAINING")
	if n := daemon.count("Exec"); n != 1 {
		t.Errorf("it was tried %d times", n)
	}
}

func TestRemoteRunnerNeverSendsATokenInClearText(t *testing.T) {
	clearEnvironment(t)
	_, err := NewRemoteRunner(testContext(t), "127.0.0.1:1", WithInsecure(), WithToken("secret"))
	expectReason(t, err, "TOKEN_IN_CLEAR_TEXT")
}

func TestRemoteRunnerIsClosedWhileItRuns(t *testing.T) {
	proves(t, "REMOTE-003")
	leavesNothing(t)
	daemon := &fakeDaemon{exec: func(_ *hutchv1.ExecRequest, stream execStream) error {
		sendStarted(stream)
		for stream.Context().Err() == nil {
			sendOutput(stream, onStdout, "more")
			time.Sleep(100 * time.Microsecond)
		}
		return nil
	}}
	for round := range 20 {
		remote := runner(t, daemon)
		var running sync.WaitGroup
		for range 4 {
			running.Add(1)
			go func() {
				defer running.Done()
				_, err := remote.Exec(testContext(t), []string{"true"}, &bytes.Buffer{}, nil)
				if !errors.Is(err, ErrCancelled) {
					t.Errorf("it ended with %v", err)
				}
			}()
		}
		time.Sleep(time.Duration(round) * 500 * time.Microsecond)
		for range 2 {
			running.Add(1)
			go func() {
				defer running.Done()
				check(t, remote.Close())
			}()
		}
		running.Wait()
	}
}

func TestAStreamIsClosedWhileItIsRead(t *testing.T) {
	proves(t, "REMOTE-003")
	daemon := &fakeDaemon{exec: func(_ *hutchv1.ExecRequest, stream execStream) error {
		sendStarted(stream)
		<-stream.Context().Done()
		return nil
	}}
	client := daemon.connected(t)
	for range 20 {
		once, err := client.StartOnce(testContext(t), []string{"true"})
		check(t, err)
		go once.Close()
		if _, err := once.Wait(nil, nil); !errors.Is(err, ErrCancelled) {
			t.Fatalf("it ended with %v", err)
		}
	}
}

func TestAOneShotThatIsLeftBeforeItsSandboxIsThereIsRemoved(t *testing.T) {
	daemon := &fakeDaemon{create: func(ctx context.Context) { <-ctx.Done() }}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err := daemon.connected(t).Run(ctx, []string{"true"})
	expectReason(t, err, "DEADLINE_EXCEEDED")
	if len(daemon.deleted) != 1 || !strings.HasPrefix(daemon.deleted[0], "once-") {
		t.Errorf("deleted %v", daemon.deleted)
	}
}

func TestExecOnceCollectsHeadAndTail(t *testing.T) {
	proves(t, "SIZE-001")
	half := bytes.Repeat([]byte("x"), 1<<20)
	daemon := &fakeDaemon{exec: func(_ *hutchv1.ExecRequest, stream execStream) error {
		sendStarted(stream)
		sendOutput(stream, onStdout, "first")
		for range 20 {
			sendOutput(stream, onStdout, string(half))
		}
		sendOutput(stream, onStdout, "last")
		sendOutput(stream, onStderr, "err")
		sendExit(stream, 0)
		return nil
	}}
	result, err := daemon.connected(t).ExecOnce(testContext(t), []string{"true"})
	check(t, err)
	if len(result.Stdout) != outputLimit-3 || !result.Truncated || !result.OK() || string(result.Stderr) != "err" ||
		!bytes.HasPrefix(result.Stdout, []byte("first")) || !bytes.HasSuffix(result.Stdout, []byte("last")) {
		t.Errorf("got %d bytes, %v, %q", len(result.Stdout), result.Truncated, result.Stderr)
	}
}
