// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

// spans are what a tracer was told.
type spans struct {
	mutex sync.Mutex
	all   []*span
}

type span struct {
	of         *spans
	name       string
	attributes map[string]any
	ended      int
	err        error
}

func (s *spans) Start(ctx context.Context, name string, inject func(key, value string)) (context.Context, Span) {
	inject("traceparent", "00-11111111111111111111111111111111-2222222222222222-01")
	s.mutex.Lock()
	defer s.mutex.Unlock()
	made := &span{of: s, name: name, attributes: map[string]any{}}
	s.all = append(s.all, made)
	return ctx, made
}

func (s *span) SetAttribute(key string, value any) {
	s.of.mutex.Lock()
	defer s.of.mutex.Unlock()
	s.attributes[key] = value
}

func (s *span) End(err error) {
	s.of.mutex.Lock()
	defer s.of.mutex.Unlock()
	s.ended++
	s.err = err
}

func TestCallsAreTraced(t *testing.T) {
	proves(t, "OTEL-001", "OTEL-002", "OTEL-003")
	daemon := &fakeDaemon{
		exec: func(_ *hutchv1.ExecRequest, stream execStream) error {
			sendStarted(stream)
			sendExit(stream, 7)
			return nil
		},
		watch: func(_ *hutchv1.WatchEventsRequest, stream watchStream) error {
			_ = stream.Send(started(1))
			<-stream.Context().Done()
			return nil
		},
	}
	told := &spans{}
	client := daemon.connected(t, WithTracer(told))
	ctx := testContext(t)
	_, err := client.Create(ctx, WithID("demo"), WithImage("host"), WithRequestID("mine"),
		WithEnv(map[string]string{"A": "secret"}))
	check(t, err)
	_, err = client.ExecOnce(ctx, []string{"/bin/echo", "argument"}, WithRequestID("once"))
	check(t, err)
	_, err = client.Sandbox("demo").Files().Stat(ctx, "some/file")
	expectReason(t, err, "METHOD_UNIMPLEMENTED")
	watch, err := client.Watch(ctx)
	check(t, err)
	check(t, watch.Close())

	for i, want := range []span{
		{name: "hutch.AgentSandboxService/CreateSandbox", attributes: map[string]any{
			"sandbox.id": "demo", "sandbox.image": "host", "sandbox.request_id": "mine",
		}},
		{name: "hutch.SandboxExecService/Exec", attributes: map[string]any{
			"sandbox.command.executable": "echo", "sandbox.request_id": "once", "sandbox.id": "one-shot",
			"sandbox.exit_code": int64(7),
		}},
		{name: "hutch.FileService/StatFile", attributes: map[string]any{"sandbox.id": "demo",
			"sandbox.file.path": "some/file"}, err: err},
		{name: "hutch.AgentSandboxService/WatchEvents", attributes: map[string]any{}},
	} {
		got := told.all[i]
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // streams end a moment after they are left
			told.mutex.Lock()
			ended := got.ended
			told.mutex.Unlock()
			if ended > 0 || time.Now().After(end) {
				break
			}
		}
		told.mutex.Lock()
		if got.name != want.name || !maps.Equal(got.attributes, want.attributes) || got.ended != 1 {
			t.Errorf("got %s with %v, ended %d times", got.name, got.attributes, got.ended)
		}
		told.mutex.Unlock()
	}
	if told.all[2].err == nil || told.all[0].err != nil {
		t.Error("errors are not told")
	}
	for _, metadata := range daemon.metadata {
		if len(metadata.Get("traceparent")) != 1 {
			t.Errorf("sent %v", metadata)
		}
	}
}
