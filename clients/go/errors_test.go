// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

func TestAnErrorGoesThroughAStatusWithAllItHas(t *testing.T) {
	made := newError("FIELD_INVALID", "no")
	made.Metadata["limit"] = "x"
	made.Violations = []Violation{{"spec.env", "FIELD_INVALID", "no"}, {"spec.labels", "LABEL_MALFORMED", "no"}}
	var read *Error
	if !errors.As(fmt.Errorf("wrapped: %w", toError(made.GRPCStatus().Err())), &read) {
		t.Fatal("it is lost")
	}
	if read.Code != codes.InvalidArgument || read.Reason != made.Reason || read.Message != made.Message ||
		read.Metadata["limit"] != "x" || !slices.Equal(read.Violations, made.Violations) {
		t.Errorf("got %+v", read)
	}
}

func TestKindsOfErrors(t *testing.T) {
	proves(t, "ERR-002")
	err := error(newError("SANDBOX_NOT_FOUND", "no"))
	if !errors.Is(err, ErrNotFound) || errors.Is(err, ErrAlreadyExists) || errors.Is(err, ErrStreamIncomplete) {
		t.Error("a kind is wrong")
	}
	unknown := toError(status.Error(codes.FailedPrecondition, "of a later daemon"))
	if !errors.Is(unknown, ErrFailedPrecondition) || ReasonOf(unknown) != "" {
		t.Errorf("one without a reason is %v", unknown)
	}
	if ReasonOf(errors.New("other")) != "" || ReasonOf(nil) != "" {
		t.Error("there is a reason")
	}
	for err, kind := range map[error]error{context.Canceled: ErrCancelled, context.DeadlineExceeded: ErrDeadlineExceeded} {
		if read := toError(err); !errors.Is(read, kind) || !errors.Is(read, err) || ReasonOf(read) == "" {
			t.Errorf("%v is %v", err, read)
		}
	}
	if text := err.Error(); text != "hutch: NOT_FOUND: SANDBOX_NOT_FOUND: no" {
		t.Errorf("it reads %s", text)
	}
}

func TestAMethodThatIsNotServedIsTold(t *testing.T) {
	daemon := &fakeDaemon{}
	_, err := daemon.connected(t).Sandbox("demo").CreateSnapshot(testContext(t), "")
	expectReason(t, err, "METHOD_UNIMPLEMENTED")
	if !errors.Is(err, ErrUnimplemented) {
		t.Errorf("it is %v", err)
	}
}

func TestWhatBreaksTheRulesIsRefusedBeforeACall(t *testing.T) {
	proves(t, "SECRET-001", "PATH-012", "PATH-013")
	daemon := &fakeDaemon{}
	client := daemon.connected(t)
	ctx := testContext(t)
	demo := client.Sandbox("demo")
	files := demo.Files()
	second := func(_ any, err error) error { return err }

	for want, err := range map[string]error{
		"sandbox_id ID_MALFORMED":         second(client.Create(ctx, WithID("a"))),
		"request_id REQUEST_ID_MALFORMED": second(client.Create(ctx, WithRequestID(" "))),
		"spec.labels[a b] LABEL_MALFORMED": second(client.Create(ctx,
			WithLabels(map[string]string{"a b": ""}))),
		"spec.env[A] NAME_MALFORMED": second(client.Create(ctx,
			WithEnv(map[string]string{"A": "secret://../x"}))),
		"spec.working_directory PATH_NOT_ABSOLUTE": second(client.Create(ctx, WithWorkingDirectory("a"))),
		"sandbox_id FIELD_REQUIRED":                second(client.Get(ctx, "")),
		"selector SELECTOR_EMPTY":                  second(client.DeleteAll(ctx, " ")),
		"spec.argv ARGV_EMPTY":                     second(demo.Run(ctx, nil)),
		"spec.argv[1] ARGV_MALFORMED":              second(demo.Run(ctx, []string{"a", "\x00"})),
		"create.spec.unset_env[0] ENV_NAME_MALFORMED": second(demo.Start(ctx, []string{"a"},
			WithUnsetEnv("="))),
		"timeout DURATION_OUT_OF_RANGE": second(demo.Run(ctx, []string{"a"},
			WithExecTimeout(-1))),
		"exec_id FIELD_REQUIRED": second(demo.Exec("").Get(ctx)),
		"path PATH_DOTDOT":       second(files.Stat(ctx, "a/../b")),
		"path PATH_EMPTY":        second(files.Remove(ctx, "", WithRecursive())),
		"path PATH_PROTECTED":    second(files.Remove(ctx, "/./", WithRecursive())),
		"source PATH_PROTECTED":  second(files.Move(ctx, "/", "/b")),
		"mode FIELD_INVALID": second(files.MakeDirectory(ctx, "a",
			WithMode(0o4755))),
		"sandbox_ids[0] ID_MALFORMED": second(client.Watch(ctx, WithSandboxes("x"))),
		"include_usage FIELD_INVALID": second(demo.Stop(ctx, WithUsage())),
		"states FIELD_INVALID":        second(client.Get(ctx, "demo", WithStates(ready))),
		"name NAME_MALFORMED":         client.DeleteSnapshot(ctx, "A"),
		"argv ARGV_EMPTY":             second(client.StartOnce(ctx, nil)),
		"env[=] ENV_NAME_MALFORMED": second(client.StartOnce(ctx, []string{"a"},
			WithEnv(map[string]string{"=": ""}))),
		"ExecSpec FIELD_INVALID": second(client.Create(ctx, With(&hutchv1.ExecSpec{}))),
		"spec.env[B] ENV_VALUE_MALFORMED": second(client.Run(ctx, []string{"a"},
			WithEnv(map[string]string{"B": "\x00"}))),
		"spec.labels LABELS_TOO_MANY": second(client.Create(ctx, WithLabels(manyLabels()))),
		"spec.labels[hutch/x] LABEL_RESERVED": second(demo.Update(ctx,
			WithLabels(map[string]string{"hutch/x": ""}))),
		"spec.env[" + strings.Repeat("n", 64) + "] ENV_NAME_MALFORMED": second(demo.Run(ctx, []string{"a"},
			WithEnv(map[string]string{strings.Repeat("n", 300): ""}))),
	} {
		var failure *Error
		if !errors.As(err, &failure) || len(failure.Violations) == 0 ||
			failure.Violations[0].Field+" "+failure.Violations[0].Reason != want ||
			failure.Reason != failure.Violations[0].Reason {
			t.Errorf("want %s, got %v", want, err)
		}
	}
	if len(daemon.calls) != 0 {
		t.Errorf("the daemon was called: %v", daemon.calls)
	}
}

func manyLabels() map[string]string {
	labels := map[string]string{}
	for i := range 65 {
		labels[fmt.Sprint("label", i)] = ""
	}
	return labels
}

func TestAllViolationsAreToldAtOnce(t *testing.T) {
	labels := map[string]string{"!": "", "?": "!"}
	_, err := (&fakeDaemon{}).connected(t).Create(testContext(t), WithID("a"), WithLabels(labels))
	failure := expectReason(t, err, "ID_MALFORMED")
	if len(failure.Violations) != 4 || !strings.HasSuffix(failure.Message, "(and 3 more)") {
		t.Errorf("got %+v", failure)
	}
}

func TestAnUpdateNamesWhatItsOptionsSet(t *testing.T) {
	request := &hutchv1.UpdateSandboxRequest{Spec: &hutchv1.SandboxSpec{}}
	if merged := With(&hutchv1.SandboxSpec{Image: "host"}); !slices.Equal(merged.fields, []string{"image"}) {
		t.Errorf("a message sets %v", merged.fields)
	}
	options := []CallOption{WithLabels(nil), WithIdleTTL(time.Hour)}
	check(t, applyOptions(options, request.Spec))
	if options[0].name != "labels" || options[1].name != "idle_ttl" ||
		request.GetSpec().GetIdleTtl().AsDuration() != time.Hour {
		t.Errorf("got %v", request)
	}
}
