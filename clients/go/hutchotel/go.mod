// SPDX-License-Identifier: Apache-2.0

// Spans of the Go client for OpenTelemetry: a module of its own, so that the client needs none of it.
module github.com/hutch-sandbox/hutch/clients/go/hutchotel

go 1.23.0

require (
	github.com/hutch-sandbox/hutch/clients/go v0.1.0
	go.opentelemetry.io/otel v1.37.0
	go.opentelemetry.io/otel/sdk v1.37.0
	go.opentelemetry.io/otel/trace v1.37.0
	google.golang.org/grpc v1.75.1
)

require (
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	go.opentelemetry.io/auto/sdk v1.1.0 // indirect
	go.opentelemetry.io/otel/metric v1.37.0 // indirect
	golang.org/x/net v0.41.0 // indirect
	golang.org/x/sys v0.33.0 // indirect
	golang.org/x/text v0.26.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250707201910-8d1bb00bc6a7 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/hutch-sandbox/hutch/clients/go => ../
