// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

func withFakeClock(client *Client) *fakeClock {
	clock := &fakeClock{}
	client.clock = clock
	return clock
}

func TestACallIsTriedSixTimesWithGrowingPauses(t *testing.T) {
	proves(t, "RETRY-001", "RETRY-003")
	leavesNothing(t)
	daemon := &fakeDaemon{failures: 100}
	client := daemon.connected(t)
	clock := withFakeClock(client)
	expectReason(t, client.Ping(testContext(t)), "DAEMON_UNREACHABLE")
	if n := daemon.count("Ping"); n != 6 {
		t.Errorf("it was tried %d times", n)
	}
	want := []time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}
	if !slices.Equal(clock.pauses, want) {
		t.Errorf("the pauses were %v", clock.pauses)
	}
}

func TestACallThatSucceedsAfterAWhileIsNoError(t *testing.T) {
	for _, broken := range []bool{false, true} {
		daemon := &fakeDaemon{failures: 5, broken: broken}
		client := daemon.connected(t)
		withFakeClock(client)
		check(t, client.Ping(testContext(t)))
		if n := daemon.count("Ping"); n != 6 {
			t.Errorf("it was tried %d times", n)
		}
	}
}

func TestTriesHaveTheSameRequestIDAndCallsHaveOthers(t *testing.T) {
	proves(t, "RETRY-005")
	daemon := &fakeDaemon{failures: 2}
	client := daemon.connected(t)
	withFakeClock(client)
	for range 2 {
		_, err := client.Create(testContext(t))
		check(t, err)
	}
	_, err := client.Create(testContext(t), WithRequestID("mine"))
	check(t, err)
	ids := daemon.requestIDs
	if len(ids) != 5 || ids[0] == "" || ids[0] != ids[1] || ids[1] != ids[2] || ids[3] == ids[0] || ids[4] != "mine" {
		t.Errorf("the request ids were %q", ids)
	}
}

func TestAMessageOfTheCallersIsLeftAsItIs(t *testing.T) {
	daemon := &fakeDaemon{}
	client := daemon.connected(t)
	request := &hutchv1.CreateSandboxRequest{SandboxId: "demo"}
	_, err := hutchv1.NewAgentSandboxServiceClient(client.Conn()).CreateSandbox(testContext(t), request)
	check(t, err)
	if request.GetRequestId() != "" || daemon.requestIDs[0] == "" {
		t.Errorf("sent with %q, and left with %q", daemon.requestIDs[0], request.GetRequestId())
	}
}

func TestWhatMayHaveBeenDoneIsNotRepeated(t *testing.T) {
	proves(t, "RETRY-003")
	for _, broken := range []bool{false, true} {
		daemon := &fakeDaemon{failures: 1, broken: broken}
		client := daemon.connected(t)
		withFakeClock(client)
		_, err := client.Sandbox("demo").Stop(testContext(t))
		expectReason(t, err, "DAEMON_UNREACHABLE")
		if n := daemon.count("StopSandbox"); n != 1 {
			t.Errorf("it was tried %d times", n)
		}
	}
}

func TestWhatWasCertainlyNotSentIsRepeated(t *testing.T) {
	proves(t, "RETRY-003")
	socket := filepath.Join(t.TempDir(), "hutchd.sock")
	client := connectTo(t, WithAddress("unix:"+socket))
	clock := withFakeClock(client)
	_, err := client.Sandbox("demo").Stop(testContext(t))
	expectReason(t, err, "DAEMON_UNREACHABLE")
	if len(clock.pauses) != 5 {
		t.Errorf("the pauses were %v", clock.pauses)
	}

	(&fakeDaemon{}).serve(t, "unix", socket)
	_, err = client.Sandbox("demo").Stop(testContext(t))
	check(t, err)
}

func TestNoPauseOutlastsTheDeadline(t *testing.T) {
	proves(t, "RETRY-004", "DEADLINE-002")
	daemon := &fakeDaemon{failures: 100}
	client := daemon.connected(t)
	clock := withFakeClock(client)
	ctx := testContext(t)
	deadline, _ := ctx.Deadline()
	clock.start = deadline.Add(-3 * time.Second)
	expectReason(t, client.Ping(ctx), "DAEMON_UNREACHABLE")
	if len(clock.pauses) != 3 { // 0, 0.5 s and 1 s: another of 2 s would be too late
		t.Errorf("the pauses were %v", clock.pauses)
	}
	if slices.Contains(daemon.deadlines, false) {
		t.Error("the deadline was not sent")
	}
}

func TestCallsHaveADeadlineAndStreamsHaveNone(t *testing.T) {
	proves(t, "DEADLINE-001")
	daemon := &fakeDaemon{watch: func(_ *hutchv1.WatchEventsRequest, stream watchStream) error {
		return stream.Send(started(1))
	}}
	client := daemon.connected(t)
	if client.timeoutFor(&hutchv1.PingRequest{}) != 60*time.Second || waitTimeout != 180*time.Second {
		t.Error("the deadlines are others")
	}
	check(t, client.Ping(context.Background()))
	watch, err := client.Watch(context.Background())
	check(t, err)
	watch.Close()
	if !slices.Equal(daemon.deadlines, []bool{true, false}) {
		t.Errorf("deadlines: %v", daemon.deadlines)
	}
}

func TestACallGivesUpAtItsDeadline(t *testing.T) {
	hanging := make(chan struct{})
	daemon := &fakeDaemon{output: func(_ *hutchv1.ReadExecOutputRequest, stream outputStream) error {
		<-stream.Context().Done()
		close(hanging)
		return nil
	}}
	client := daemon.connected(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := client.Sandbox("demo").Exec("exec").Output(ctx)
	expectReason(t, err, "DEADLINE_EXCEEDED")
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrDeadlineExceeded) {
		t.Errorf("it is %v", err)
	}
	if daemon.count("ReadExecOutput") > 0 { // a slow host may not have got so far
		<-hanging
	}
}

func TestAMessageThatIsTooLargeIsNotSent(t *testing.T) {
	proves(t, "SIZE-001", "SIZE-003")
	daemon := &fakeDaemon{}
	client := daemon.connected(t)
	_, err := client.Sandbox("demo").Files().Write(testContext(t), "file", make([]byte, 5<<20))
	failure := expectReason(t, err, "MESSAGE_TOO_LARGE")
	if failure.Metadata["limit"] != "max_request_bytes" || failure.Metadata["value"] != "4194304" {
		t.Errorf("metadata: %v", failure.Metadata)
	}
	if daemon.count("WriteFile") != 0 {
		t.Error("it was sent")
	}
}

// ---- Streams that go on ----

func started(cursor uint64) *hutchv1.WatchEventsResponse {
	item := &hutchv1.WatchEventsResponse_Started{Started: &hutchv1.WatchStarted{Cursor: cursor}}
	return &hutchv1.WatchEventsResponse{Item: item}
}

func event(cursor uint64) *hutchv1.WatchEventsResponse {
	return &hutchv1.WatchEventsResponse{Item: &hutchv1.WatchEventsResponse_Event{Event: &hutchv1.Event{Cursor: cursor}}}
}

func outputOf(chunk *hutchv1.OutputChunk) *hutchv1.ReadExecOutputResponse {
	return &hutchv1.ReadExecOutputResponse{Item: &hutchv1.ReadExecOutputResponse_Output{Output: chunk}}
}

func TestAWatchGoesOnWithoutLossOrDoubles(t *testing.T) {
	proves(t, "EVENT-003", "RETRY-006")
	leavesNothing(t)
	daemon := &fakeDaemon{}
	var after []uint64
	daemon.watch = func(request *hutchv1.WatchEventsRequest, stream watchStream) error {
		after = append(after, request.GetAfterCursor())
		_ = stream.Send(started(request.GetAfterCursor()))
		first := request.GetAfterCursor() + 1
		for cursor := first; cursor < first+3; cursor++ {
			_ = stream.Send(event(cursor))
		}
		if len(after) == 2 {
			lagged := newError("WATCHER_LAGGED", "too slow")
			lagged.Metadata["cursor"] = "6"
			return lagged.GRPCStatus().Err()
		}
		return newError("DRAINING", "going").GRPCStatus().Err()
	}
	client := daemon.connected(t)
	withFakeClock(client)
	watch, err := client.Watch(testContext(t), WithAfterCursor(0))
	check(t, err)
	var cursors []uint64
	for change, err := range watch.All() {
		check(t, err)
		cursors = append(cursors, change.Event.GetCursor())
		if len(cursors) == 9 {
			break
		}
	}
	check(t, watch.Close())
	if !slices.Equal(cursors, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}) || watch.Cursor() != 9 {
		t.Errorf("the cursors were %v, and the last is %d", cursors, watch.Cursor())
	}
}

func TestAWatchEndsWithItsClose(t *testing.T) {
	daemon := &fakeDaemon{watch: func(_ *hutchv1.WatchEventsRequest, stream watchStream) error {
		_ = stream.Send(started(1))
		<-stream.Context().Done()
		return nil
	}}
	client := daemon.connected(t)
	watch, err := client.Watch(testContext(t))
	check(t, err)
	time.AfterFunc(20*time.Millisecond, func() { watch.Close() })
	for _, err := range watch.All() {
		if !errors.Is(err, ErrCancelled) || !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	}
}

func TestOutputGoesOnWhereItWas(t *testing.T) {
	proves(t, "RETRY-006")
	text := "0123456789"
	daemon := &fakeDaemon{}
	daemon.output = func(request *hutchv1.ReadExecOutputRequest, stream outputStream) error {
		from := request.GetStdoutOffset()
		if from == uint64(len(text)) {
			end := &hutchv1.ReadExecOutputResponse_Exec{Exec: &hutchv1.Exec{Id: "exec"}}
			return stream.Send(&hutchv1.ReadExecOutputResponse{Item: end})
		}
		_ = stream.Send(outputOf(&hutchv1.OutputChunk{Stream: onStdout, Offset: from, Data: []byte(text[from : from+2])}))
		return newError("DRAINING", "going").GRPCStatus().Err()
	}
	client := daemon.connected(t)
	withFakeClock(client)
	reader, err := client.Sandbox("demo").Exec("exec").Output(testContext(t))
	check(t, err)
	var got strings.Builder
	exec, err := reader.CopyTo(&got, nil)
	check(t, err)
	if got.String() != text || exec.GetId() != "exec" {
		t.Errorf("got %q and %v", got.String(), exec)
	}
}

func TestOutputWithoutAnEndIsIncomplete(t *testing.T) {
	proves(t, "EXEC-013")
	daemon := &fakeDaemon{output: func(_ *hutchv1.ReadExecOutputRequest, stream outputStream) error {
		return stream.Send(outputOf(&hutchv1.OutputChunk{Data: []byte("x")}))
	}}
	reader, err := daemon.connected(t).Sandbox("demo").Exec("exec").Output(testContext(t))
	check(t, err)
	_, err = reader.CopyTo(nil, nil)
	if !errors.Is(err, ErrStreamIncomplete) {
		t.Errorf("got %v", err)
	}
}

func TestADownloadGoesOnWhereItWas(t *testing.T) {
	text := "0123456789"
	daemon := &fakeDaemon{}
	var versions []string
	daemon.download = func(request *hutchv1.DownloadFileRequest, stream downloadStream) error {
		versions = append(versions, request.GetExpectedVersion())
		info := &hutchv1.DownloadFileResponse_File{File: &hutchv1.FileInfo{Version: "v1"}}
		_ = stream.Send(&hutchv1.DownloadFileResponse{Item: info})
		from, end := request.GetOffset(), request.GetOffset()+request.GetLength()
		if from == end {
			return nil
		}
		data := &hutchv1.DownloadFileResponse_Data{Data: []byte(text[from : from+1])}
		_ = stream.Send(&hutchv1.DownloadFileResponse{Item: data})
		return newError("DRAINING", "going").GRPCStatus().Err()
	}
	client := daemon.connected(t)
	withFakeClock(client)
	reader, err := client.Sandbox("demo").Files().Open(testContext(t), "file", WithOffset(2), WithLength(5))
	check(t, err)
	defer reader.Close()
	got, err := io.ReadAll(reader)
	check(t, err)
	if string(got) != text[2:7] || versions[0] != "" || versions[1] != "v1" {
		t.Errorf("got %q by versions %q", got, versions)
	}
}

func TestAnUploadIsRepeatedOnlyWhenItsSourceCanBe(t *testing.T) {
	daemon := &fakeDaemon{}
	var ids []string
	daemon.upload = func(stream uploadStream) error {
		var got []byte
		for {
			message, err := stream.Recv()
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			if header := message.GetHeader(); header != nil {
				ids = append(ids, header.GetRequestId())
			}
			got = append(got, message.GetData()...)
		}
		if len(ids) == 1 {
			return newError("DRAINING", "going").GRPCStatus().Err()
		}
		return stream.SendAndClose(&hutchv1.UploadFileResponse{File: &hutchv1.FileInfo{SizeBytes: uint64(len(got))}})
	}
	client := daemon.connected(t)
	withFakeClock(client)
	files := client.Sandbox("demo").Files()
	file, err := files.Upload(testContext(t), "file", strings.NewReader("hello"))
	check(t, err)
	if file.GetSizeBytes() != 5 || len(ids) != 2 || ids[0] == "" || ids[0] != ids[1] {
		t.Errorf("got %v by %q", file, ids)
	}

	ids = nil
	_, err = files.Upload(testContext(t), "file", io.MultiReader(strings.NewReader("hello")))
	expectReason(t, err, "DRAINING")
	if len(ids) != 1 {
		t.Errorf("it was tried %d times", len(ids))
	}
}

func TestTheErrorOfASourceIsPassedOn(t *testing.T) {
	daemon := &fakeDaemon{upload: func(stream uploadStream) error {
		for {
			if _, err := stream.Recv(); err != nil {
				return err
			}
		}
	}}
	broken := errors.New("broken")
	source := readerFunc(func([]byte) (int, error) { return 0, broken })
	_, err := daemon.connected(t).Sandbox("demo").Files().Upload(testContext(t), "file", source)
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(buffer []byte) (int, error) { return f(buffer) }

func TestRunCommandIsGivenTheTimeOfItsCommand(t *testing.T) {
	proves(t, "EXEC-014", "DEADLINE-004")
	client := &Client{timeout: time.Minute}
	request := &hutchv1.RunCommandRequest{Spec: &hutchv1.ExecSpec{}}
	check(t, applyOptions([]CallOption{WithExecTimeout(10 * time.Minute)}, request, request.Spec))
	if got := client.timeoutFor(request); got != 11*time.Minute+defaultKillGrace {
		t.Errorf("got %v", got)
	}
	if request.GetSpec().GetTimeout().AsDuration() != 10*time.Minute {
		t.Error("the timeout is not the exec's")
	}
}
