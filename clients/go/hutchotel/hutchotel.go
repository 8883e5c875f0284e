// SPDX-License-Identifier: Apache-2.0

// Package hutchotel makes spans of a client's calls by OpenTelemetry:
//
//	client, err := hutch.Connect(ctx, hutch.WithTracer(hutchotel.NewTracer(nil)))
package hutchotel

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	hutch "github.com/hutch-sandbox/hutch/clients/go"
)

// name is that of what makes the spans.
const name = "hutch-client"

type tracer struct {
	tracer trace.Tracer
}

// NewTracer makes a tracer of a provider, nil for the global one.
func NewTracer(provider trace.TracerProvider) hutch.Tracer {
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return tracer{provider.Tracer(name, trace.WithInstrumentationVersion(hutch.Version))}
}

func (t tracer) Start(ctx context.Context, name string, inject func(key, value string)) (context.Context, hutch.Span) {
	ctx, started := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient))
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	for key, value := range carrier {
		inject(key, value)
	}
	return ctx, span{started}
}

type span struct {
	trace.Span
}

func (s span) SetAttribute(key string, value any) {
	switch value := value.(type) {
	case string:
		s.SetAttributes(attribute.String(key, value))
	case int64:
		s.SetAttributes(attribute.Int64(key, value))
	}
}

func (s span) End(err error) {
	if err != nil {
		s.SetStatus(codes.Error, hutch.ReasonOf(err))
	}
	s.Span.End()
}
