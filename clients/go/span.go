// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"path"
	"strings"
	"sync"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

// callSpan is the span of a call; without a tracer all its functions do nothing.
type callSpan struct {
	span  Span
	mutex sync.Mutex // sending and receiving go on at once
	ended bool
}

func (c *Client) startSpan(ctx context.Context, method string, request any) (context.Context, *callSpan) {
	if c.tracer == nil {
		return ctx, &callSpan{ended: true}
	}
	var pairs []string
	ctx, span := c.tracer.Start(ctx, "hutch."+strings.TrimPrefix(method, servicePrefix), func(key, value string) {
		pairs = append(pairs, key, value)
	})
	started := &callSpan{span: span}
	started.describe(request)
	return metadata.AppendToOutgoingContext(ctx, pairs...), started
}

// attributes are the facts of a span, and the fields of messages that tell them (OTEL-003).
var attributes = map[protoreflect.Name]string{
	"sandbox_id": "sandbox.id",
	"exec_id":    "sandbox.exec.id",
	"request_id": "sandbox.request_id",
	"path":       "sandbox.file.path",
	"image":      "sandbox.image",
	"runtime":    "sandbox.runtime",
	"exit_code":  "sandbox.exit_code",
	"size_bytes": "sandbox.file.size",
	"entries":    "sandbox.file.count",
}

// describe takes the facts out of a message, and of the messages in it.
func (s *callSpan) describe(message any) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if found, ok := message.(proto.Message); ok && !s.ended {
		s.describeMessage(found.ProtoReflect())
	}
}

func (s *callSpan) describeMessage(message protoreflect.Message) {
	switch thing := message.Interface().(type) {
	case *hutchv1.Sandbox:
		s.span.SetAttribute("sandbox.id", thing.GetId())
	case *hutchv1.Exec:
		s.span.SetAttribute("sandbox.exec.id", thing.GetId())
	}
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		key, known := attributes[field.Name()]
		switch {
		case field.Name() == "argv" && value.List().Len() > 0:
			s.span.SetAttribute("sandbox.command.executable", path.Base(value.List().Get(0).String()))
		case field.IsList() || field.IsMap():
		case field.Kind() == protoreflect.MessageKind:
			s.describeMessage(value.Message())
		case known && field.Kind() == protoreflect.StringKind:
			s.span.SetAttribute(key, value.String())
		case known && field.Kind() == protoreflect.Uint64Kind:
			s.span.SetAttribute(key, int64(value.Uint()))
		case known:
			s.span.SetAttribute(key, value.Int())
		}
		return true
	})
}

func (s *callSpan) end(reply any, err error) {
	if err == nil {
		s.describe(reply)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.ended {
		s.ended = true
		s.span.End(err)
	}
}
