// SPDX-License-Identifier: Apache-2.0

package hutch

import "context"

// Tracer makes spans of calls. It is an interface so that this module needs no library for tracing;
// the module hutchotel has one for OpenTelemetry.
type Tracer interface {
	// Start begins a span named "hutch.<Service>/<Method>". What inject gets goes into the metadata of the call:
	// traceparent and tracestate.
	Start(ctx context.Context, name string, inject func(key, value string)) (context.Context, Span)
}

// Span is a call that is traced.
type Span interface {
	// SetAttribute tells a fact: "sandbox.id". Values are string or int64.
	SetAttribute(key string, value any)
	// End ends it, with what the call failed with or nil.
	End(err error)
}
