// SPDX-License-Identifier: Apache-2.0

package hutchotel_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	hutch "github.com/hutch-sandbox/hutch/clients/go"
	"github.com/hutch-sandbox/hutch/clients/go/hutchotel"
	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

// daemon answers one method, and keeps what came with it.
type daemon struct {
	hutchv1.UnimplementedAgentSandboxServiceServer
	traceparents []string
}

func (d *daemon) GetSandbox(
	ctx context.Context, request *hutchv1.GetSandboxRequest,
) (*hutchv1.GetSandboxResponse, error) {
	came, _ := metadata.FromIncomingContext(ctx)
	d.traceparents = came.Get("traceparent")
	return &hutchv1.GetSandboxResponse{Sandbox: &hutchv1.Sandbox{Id: request.GetSandboxId()}}, nil
}

func TestACallIsASpanBelowTheCallers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "hutchd.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served, server := &daemon{}, grpc.NewServer()
	hutchv1.RegisterAgentSandboxServiceServer(server, served)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	exporter := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	ctx, parent := provider.Tracer("test").Start(ctx, "parent")
	client, err := hutch.Connect(ctx, hutch.WithAddress("unix:"+socket), hutch.WithTracer(hutchotel.NewTracer(provider)))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Get(ctx, "demo"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Sandbox("demo").Stop(ctx); err == nil {
		t.Fatal("the daemon serves more than it should")
	}

	spans := exporter.GetSpans()
	if len(spans) != 2 {
		t.Fatalf("there are %d spans", len(spans))
	}
	got, failed := spans[0], spans[1]
	if got.Name != "hutch.AgentSandboxService/GetSandbox" || got.SpanKind != trace.SpanKindClient ||
		got.InstrumentationScope.Name != "hutch-client" || got.Parent.SpanID() != parent.SpanContext().SpanID() {
		t.Errorf("got %+v", got)
	}
	want := attribute.String("sandbox.id", "demo")
	if len(got.Attributes) != 1 || got.Attributes[0] != want {
		t.Errorf("its attributes are %v", got.Attributes)
	}
	if failed.Status.Code != codes.Error || failed.Status.Description != "METHOD_UNIMPLEMENTED" {
		t.Errorf("the one that failed has %v", failed.Status)
	}
	sent := "00-" + got.SpanContext.TraceID().String() + "-" + got.SpanContext.SpanID().String() + "-01"
	if len(served.traceparents) != 1 || served.traceparents[0] != sent {
		t.Errorf("sent %q, want %s", served.traceparents, sent)
	}
}
