// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

// TestTheExamplesNeedNoCgroups runs them with the daemon of an ordinary user, who has no cgroup: it enforces no limit
// of memory and CPU.
func TestTheExamplesNeedNoCgroups(t *testing.T) {
	if noDaemon != "" {
		t.Skip(noDaemon)
	}
	t.Setenv("HUTCH_ADDRESS", "")   // so that it is put back
	uid := 56400 + os.Getpid()%1000 // nobody's, and not that of a test that runs at the same time
	folder, err := os.MkdirTemp("", "hutch-test-")
	check(t, err)
	defer os.RemoveAll(folder)
	check(t, os.Chmod(folder, 0o755))
	check(t, os.Chown(folder, uid, uid))
	stop, err := startTestDaemon(folder, &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)})
	check(t, err)
	defer func() { check(t, stop()) }()

	_, err = connectTo(t).Create(testContext(t), WithLimits(&hutchv1.ResourceLimits{CpuMillis: proto.Uint32(1000)}))
	expectReason(t, err, "LIMIT_NOT_ENFORCEABLE")
	examples := exec.CommandContext(testContext(t), os.Args[0], "-test.run=^Example", "-test.v")
	said, err := examples.CombinedOutput()
	if err != nil || !strings.Contains(string(said), "PASS: ExampleClient_Create") {
		t.Errorf("%v\n%s", err, said)
	}
}

func TestASandboxLives(t *testing.T) {
	proves(t, "LIFE-013")
	leavesNothing(t)
	client, ctx := realClient(t), testContext(t)
	info, err := client.Info(ctx)
	check(t, err)
	if info.GetVersion() == "" {
		t.Error("the daemon has no version")
	}
	sandbox, err := client.Create(ctx, WithID("go-life"), WithLabels(map[string]string{"of": "go-life"}),
		With(&hutchv1.SandboxSpec{Limits: &hutchv1.ResourceLimits{MaxProcesses: proto.Uint32(32)}}))
	check(t, err)
	defer sandbox.Close()

	states := func(state hutchv1.SandboxState, accepted *hutchv1.Sandbox, err error) {
		t.Helper()
		check(t, err)
		found, err := sandbox.Wait(ctx, state)
		check(t, err)
		if found.GetState() != state || sandbox.Info() != found {
			t.Errorf("it is %v", found.GetState())
		}
	}
	states(ready, sandbox.Info(), nil)
	if sandbox.Info().GetEffective().GetLimits().GetMaxProcesses() != 32 {
		t.Errorf("the limits are %v", sandbox.Info().GetEffective())
	}
	accepted, err := sandbox.Pause(ctx)
	states(paused, accepted, err)
	accepted, err = sandbox.Unpause(ctx)
	states(ready, accepted, err)
	accepted, err = sandbox.Stop(ctx, WithGrace(0))
	states(stopped, accepted, err)
	_, err = sandbox.Wait(ctx, ready)
	if failure := expectReason(t, err, "SANDBOX_WRONG_STATE"); failure.Metadata["state"] != "STOPPED" {
		t.Errorf("the state is told as %v", failure.Metadata)
	}
	accepted, err = sandbox.Resume(ctx)
	states(ready, accepted, err)

	updated, err := sandbox.Update(ctx, WithLabels(map[string]string{"now": "this"}), WithIdleTTL(time.Hour),
		With(&hutchv1.SandboxSpec{IdleAction: hutchv1.IdleAction_IDLE_ACTION_DELETE}))
	check(t, err)
	if updated.GetSpec().GetIdleAction() != hutchv1.IdleAction_IDLE_ACTION_DELETE {
		t.Errorf("it is %v", updated.GetSpec())
	}
	_, err = sandbox.Update(ctx, WithImage("other"))
	expectReason(t, err, "FIELD_MASK_INVALID")
	if len(updated.GetSpec().GetLabels()) != 1 || updated.GetSpec().GetIdleTtl().AsDuration() != time.Hour {
		t.Errorf("it is %v", updated.GetSpec())
	}
	found := 0
	for listed, err := range client.List(ctx, WithSelector("now=this"), WithStates(ready)) {
		check(t, err)
		found++
		if listed.ID() != "go-life" {
			t.Errorf("listed %s", listed.ID())
		}
	}
	ids, err := client.DeleteAll(ctx, "now=this")
	check(t, err)
	if found != 1 || len(ids) != 1 {
		t.Errorf("found %d, deleted %v", found, ids)
	}
	states(deleted, nil, nil)
	_, err = client.Get(ctx, "go-nobody")
	expectReason(t, err, "SANDBOX_NOT_FOUND")
}

func TestACommandIsRun(t *testing.T) {
	proves(t, "EXEC-003")
	sandbox, ctx := realSandbox(t), testContext(t)
	result, err := sandbox.Run(ctx, []string{"sh", "-c", "cat; echo $A $PWD >&2; exit 3"},
		WithInput([]byte("in")), WithEnv(map[string]string{"A": "1"}), WithWorkingDirectory("/tmp"))
	check(t, err)
	if string(result.Stdout) != "in" || string(result.Stderr) != "1 /tmp\n" || result.ExitCode != 3 || result.OK() ||
		result.Truncated || result.Output() != "in1 /tmp\n" {
		t.Errorf("got %+v", result)
	}
	result, err = sandbox.Run(ctx, []string{"sleep", "100"}, WithExecTimeout(100*time.Millisecond), WithKillGrace(0))
	check(t, err)
	if result.ExitCode != 124 || result.Exec.GetState() != hutchv1.ExecState_EXEC_STATE_TIMED_OUT {
		t.Errorf("got %+v", result)
	}
	result, err = sandbox.Run(ctx, []string{"nowhere"})
	check(t, err)
	if result.ExitCode != 127 {
		t.Errorf("got %+v", result)
	}
	result, err = sandbox.Run(ctx, []string{"sh", "-c", "seq 1000"}, WithOutputLimit(10))
	check(t, err)
	if !result.Truncated || len(result.Stdout) != 10 {
		t.Errorf("got %+v", result)
	}
}

func TestAProcessIsTalkedTo(t *testing.T) {
	leavesNothing(t)
	sandbox, ctx := realSandbox(t), testContext(t)
	process, err := sandbox.Start(ctx, []string{"cat"}, WithStdin())
	check(t, err)
	var got bytes.Buffer
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(process, io.LimitReader(zeros{}, 3<<20))
		done <- errors.Join(err, process.CloseStdin())
	}()
	ended, err := process.Wait(&got, nil)
	check(t, err)
	check(t, <-done)
	if got.Len() != 3<<20 || ended.GetResult().GetExitCode() != 0 {
		t.Errorf("got %d bytes, %v", got.Len(), ended)
	}
	if _, err := process.Write([]byte("nobody reads")); err != nil {
		t.Errorf("after the end: %v", err)
	}

	terminal, err := sandbox.Start(ctx, []string{"sh", "-c",
		"trap 'stty size; exit' WINCH; stty size; while :; do sleep 0.1; done"}, WithTerminal(10, 20))
	check(t, err)
	var text strings.Builder
	for chunk, err := range terminal.Chunks() {
		check(t, err)
		text.Write(chunk.GetData())
		if strings.Contains(text.String(), "10 20") {
			check(t, terminal.Resize(30, 40))
		}
	}
	if !strings.HasSuffix(strings.TrimSpace(text.String()), "30 40") {
		t.Errorf("got %q", text.String())
	}
}

type zeros struct{}

func (zeros) Read(buffer []byte) (int, error) {
	clear(buffer)
	return len(buffer), nil
}

func TestAProcessEndsWithItsContext(t *testing.T) {
	leavesNothing(t)
	sandbox := realSandbox(t)
	ctx, cancel := context.WithCancel(testContext(t))
	process, err := sandbox.Start(ctx, []string{"sleep", "1000"}, WithKillGrace(0))
	check(t, err)
	cancel()
	if _, err := process.Wait(nil, nil); !errors.Is(err, ErrCancelled) {
		t.Errorf("it ended with %v", err)
	}
	closed, err := sandbox.Start(testContext(t), []string{"sleep", "1000"}, WithKillGrace(0))
	check(t, err)
	check(t, closed.Close())
	check(t, closed.Close())
	for _, ended := range []*Process{process, closed} {
		exec, err := ended.Exec().Wait(testContext(t))
		check(t, err)
		if exec.GetState() != hutchv1.ExecState_EXEC_STATE_CANCELLED {
			t.Errorf("it is %v", exec)
		}
	}
}

func TestABoundProcessEndsWithItsClient(t *testing.T) {
	sandbox := realSandbox(t)
	other := realClient(t)
	bound, err := other.Sandbox(sandbox.ID()).Start(testContext(t), []string{"sleep", "1000"}, WithKillGrace(0),
		WithBound())
	check(t, err)
	check(t, other.Close())
	exec, err := sandbox.Exec(bound.Exec().ID()).Wait(testContext(t))
	check(t, err)
	if exec.GetState() != hutchv1.ExecState_EXEC_STATE_CANCELLED {
		t.Errorf("it is %v", exec)
	}
}

func TestACommandGoesOnWithoutTheClient(t *testing.T) {
	sandbox, ctx := realSandbox(t), testContext(t)
	exec, err := sandbox.CreateExec(ctx, []string{"sh", "-c", "echo one; read line; echo $line"},
		WithID("go-detached"), WithStdin())
	check(t, err)
	process, err := exec.Attach(ctx)
	check(t, err)
	_, err = io.WriteString(process, "two\n")
	check(t, err)
	ended, err := exec.Wait(ctx)
	check(t, err)
	check(t, process.Close())
	if ended.GetResult().GetExitCode() != 0 {
		t.Errorf("it is %v", ended)
	}

	reader, err := exec.Output(ctx, WithOffsets(4, 0), WithStreams(hutchv1.OutputStream_OUTPUT_STREAM_STDOUT))
	check(t, err)
	defer reader.Close()
	var got strings.Builder
	_, err = reader.CopyTo(&got, nil)
	check(t, err)
	if got.String() != "two\n" || reader.Exec().GetId() != "go-detached" {
		t.Errorf("got %q", got.String())
	}
	running, err := sandbox.CreateExec(ctx, []string{"sleep", "1000"})
	check(t, err)
	_, err = running.Cancel(ctx, WithGrace(0))
	check(t, err)
	_, err = running.Wait(ctx)
	check(t, err)
	states := map[hutchv1.ExecState]int{}
	for listed, err := range sandbox.Execs(ctx) {
		check(t, err)
		states[listed.GetState()]++
	}
	if states[hutchv1.ExecState_EXEC_STATE_EXITED] != 1 || states[hutchv1.ExecState_EXEC_STATE_CANCELLED] != 1 {
		t.Errorf("listed %v", states)
	}
}

func TestFilesComeAndGo(t *testing.T) {
	leavesNothing(t)
	sandbox, ctx := realSandbox(t), testContext(t)
	files := sandbox.Files()
	watch, err := files.Watch(ctx, "/workspace", WithRecursive())
	check(t, err)
	defer watch.Close()
	written, err := files.Write(ctx, "a/b.txt", []byte("hello"), WithParents(), WithMode(0o600))
	check(t, err)
	if written.GetPath() != "/workspace/a/b.txt" || written.GetMode() != 0o600 {
		t.Errorf("wrote %v", written)
	}
	for change, err := range watch.All() {
		check(t, err)
		if change.GetPath() == "/workspace/a/b.txt" {
			break
		}
	}
	_, err = files.Write(ctx, "a/b.txt", []byte("again"))
	if expectReason(t, err, "FILE_EXISTS"); !errors.Is(err, ErrAlreadyExists) {
		t.Errorf("it is %v", err)
	}
	data, info, err := files.Read(ctx, "a/b.txt", WithOffset(1), WithLength(3), WithExpectedVersion(written.GetVersion()))
	check(t, err)
	if string(data) != "ell" || info.GetSizeBytes() != 5 {
		t.Errorf("read %q of %v", data, info)
	}

	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	digest := sha256.Sum256(large)
	_, err = files.Upload(ctx, "large", bytes.NewReader(large), WithSize(uint64(len(large))), WithSHA256(digest[:]))
	check(t, err)
	reader, err := files.Open(ctx, "large", WithOffset(16))
	check(t, err)
	defer reader.Close()
	hash := sha256.New()
	hash.Write(large[:16])
	n, err := io.Copy(hash, reader)
	check(t, err)
	if n != int64(len(large)-16) || !bytes.Equal(hash.Sum(nil), digest[:]) ||
		reader.Info().GetSizeBytes() != uint64(len(large)) {
		t.Errorf("%d bytes of %v came", n, reader.Info())
	}

	_, err = files.Move(ctx, "large", "c/large", WithParents())
	check(t, err)
	var names []string
	listing := files.List(ctx, ".", WithDepth(2))
	for file, err := range listing.All() {
		check(t, err)
		names = append(names, file.GetPath())
	}
	if strings.Join(names, " ") != "/workspace/a /workspace/a/b.txt /workspace/c /workspace/c/large" || listing.Changed() {
		t.Errorf("listed %v", names)
	}
	removed, err := files.Remove(ctx, "c", WithRecursive())
	check(t, err)
	if removed != 2 {
		t.Errorf("removed %d", removed)
	}
	_, err = files.Remove(ctx, "../workspace", WithRecursive())
	expectReason(t, err, "PATH_DOTDOT")
	_, err = files.Remove(ctx, "/workspace/", WithRecursive())
	expectReason(t, err, "PATH_PROTECTED")
	_, err = files.Stat(ctx, "c")
	expectReason(t, err, "FILE_NOT_FOUND")

	changes := files.Changes(ctx, "/workspace")
	var changed []string
	for change, err := range changes.All() {
		check(t, err)
		changed = append(changed, change.GetPath())
	}
	if strings.Join(changed, " ") != "/workspace/a /workspace/a/b.txt" || changes.Incomplete() {
		t.Errorf("changed %v", changed)
	}
}

func TestArchivesComeAndGo(t *testing.T) {
	sandbox, ctx := realSandbox(t), testContext(t)
	var packed bytes.Buffer
	writer := tar.NewWriter(&packed)
	check(t, writer.WriteHeader(&tar.Header{Name: "in/side", Mode: 0o644, Size: 2}))
	_, err := writer.Write([]byte("hi"))
	check(t, err)
	check(t, writer.Close())
	response, err := sandbox.Files().UploadArchive(ctx, "new", &packed, WithParents())
	check(t, err)
	if response.GetEntries() == 0 {
		t.Errorf("unpacked %v", response)
	}
	reader, err := sandbox.Files().OpenArchive(ctx, "new", WithExclude("nothing"))
	check(t, err)
	defer reader.Close()
	found := false
	for archive := tar.NewReader(reader); ; {
		header, err := archive.Next()
		if err == io.EOF {
			break
		}
		check(t, err)
		found = found || strings.HasSuffix(header.Name, "in/side")
	}
	if !found {
		t.Error("it did not come back")
	}
}

func TestEventsAreTold(t *testing.T) {
	client, ctx := realClient(t), testContext(t)
	watch, err := client.Watch(ctx, WithSelector("of=go-events"), WithSnapshot())
	check(t, err)
	defer watch.Close()
	sandbox, err := client.Create(ctx, WithLabels(map[string]string{"of": "go-events"}))
	check(t, err)
	check(t, sandbox.Close())
	sequence := uint64(0)
	for change, err := range watch.All() {
		check(t, err)
		sequence++
		if change.Event.GetSequence() != sequence || change.Event.GetSandboxId() != sandbox.ID() {
			t.Fatalf("got %v", change.Event)
		}
		if change.Event.GetSandboxState().GetToState() == deleted {
			break
		}
	}
}

func TestOneShotsLeaveNothing(t *testing.T) {
	leavesNothing(t)
	client, ctx := realClient(t), testContext(t)
	labels := WithLabels(map[string]string{"of": "go-once"})
	for _, run := range []func() (*Result, error){
		func() (*Result, error) { return client.Run(ctx, []string{"echo", "hi"}, labels) },
		func() (*Result, error) { return client.RunShell(ctx, "echo hi", labels) },
		func() (*Result, error) { return client.RunPython(ctx, "print('hi')", labels) },
	} {
		result, err := run()
		check(t, err)
		if result.Output() != "hi\n" || !result.OK() {
			t.Errorf("got %+v", result)
		}
	}
	hurried, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_, err := client.RunShell(hurried, "sleep 1000", labels)
	if !errors.Is(err, ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	for sandbox, err := range client.List(ctx, WithSelector("of=go-once")) {
		check(t, err)
		if state := sandbox.Info().GetState(); state != deleting {
			t.Errorf("%s is left, %v", sandbox.ID(), state)
		}
	}
}

func TestWhatIsNotServedIsTold(t *testing.T) {
	client, ctx := realClient(t), testContext(t)
	for _, err := range client.Images(ctx) {
		expectReason(t, err, "METHOD_UNIMPLEMENTED")
	}
	_, err := client.ImportImage(ctx, "name", strings.NewReader("x"))
	expectReason(t, err, "METHOD_UNIMPLEMENTED")
	_, err = client.PullImage(ctx, "name", nil)
	expectReason(t, err, "METHOD_UNIMPLEMENTED")
}
