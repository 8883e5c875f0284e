// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
	"github.com/hutch-sandbox/hutch/clients/go/internal/rules"
)

const (
	defaultTimeout   = 60 * time.Second
	defaultKillGrace = 5 * time.Second
	servicePrefix    = "/hutch.v1."
)

// clock is what retries need of the world. Tests have one of their own.
type clock interface {
	now() time.Time
	sleep(ctx context.Context, pause time.Duration) error
	random() uint32
}

type systemClock struct{}

func (systemClock) now() time.Time { return time.Now() }

func (systemClock) sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (systemClock) random() uint32 {
	var bytes [4]byte
	_, _ = rand.Read(bytes[:])
	return binary.NativeEndian.Uint32(bytes[:])
}

// newRequestID makes one that nobody else makes.
func newRequestID() string {
	var bytes [18]byte
	_, _ = rand.Read(bytes[:])
	return base64.RawURLEncoding.EncodeToString(bytes[:])
}

type tryKey struct{}

// tryState is what becomes of one try of a call.
type tryState struct {
	sent     atomic.Bool
	answered bool
}

// retry tries a call as section 9 says. Each try gets a context of its own, and tells in its state when an answer came.
func (c *Client) retry(ctx context.Context, safe bool, try func(context.Context, *tryState) error) error {
	for tries := 1; ; tries++ {
		state := &tryState{}
		err := c.failure(try(context.WithValue(ctx, tryKey{}, state), state))
		if err == nil {
			return nil
		}

		how := rules.Try{
			Unavailable: errors.Is(err, ErrUnavailable),
			Sent:        state.sent.Load(),
			Safe:        safe,
			Answered:    state.answered,
		}
		left := rules.Forever
		if deadline, found := ctx.Deadline(); found {
			left = deadline.Sub(c.clock.now())
		}
		pause, again := rules.DefaultRetry.Pause(tries, c.clock.random(), left)
		if !how.Again() || !again || c.clock.sleep(ctx, pause) != nil {
			return err
		}
		c.reconnect(ctx)
	}
}

// failure makes an error of this package of what gRPC fails with. That the client itself has closed the connection is
// no fault of it.
func (c *Client) failure(err error) error {
	err = toError(err)
	if c.closed.Load() && isLost(err) {
		return newError("CALL_CANCELLED", "the client was closed")
	}
	return err
}

// isSafe tells whether a method may be repeated: it only reads, or its request has an id.
func isSafe(method string, request proto.Message) bool {
	name := method[strings.LastIndex(method, "/")+1:]
	for _, prefix := range []string{"Get", "List", "Watch", "Read", "Download", "Stat", "Ping"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return request.ProtoReflect().Descriptor().Fields().ByName("request_id") != nil
}

// withRequestID is RETRY-005. A message of the caller's is left as it is.
func withRequestID(message any) any {
	request, ok := message.(proto.Message)
	if !ok {
		return message
	}
	from := request.ProtoReflect()
	field := from.Descriptor().Fields().ByName("request_id")
	if field == nil || from.Get(field).String() != "" {
		return message
	}
	to := from.New()
	from.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		to.Set(field, value)
		return true
	})
	to.Set(field, protoreflect.ValueOfString(newRequestID()))
	return to.Interface()
}

// timeoutFor is DEADLINE-001. A command that may run for some time is given that beside it.
func (c *Client) timeoutFor(request any) time.Duration {
	run, ok := request.(*hutchv1.RunCommandRequest)
	if !ok || run.GetSpec().GetTimeout().AsDuration() == 0 {
		return c.timeout
	}
	grace := defaultKillGrace
	if run.GetSpec().GetKillGrace() != nil {
		grace = run.GetSpec().GetKillGrace().AsDuration()
	}
	return c.timeout + run.GetSpec().GetTimeout().AsDuration() + grace
}

func (c *Client) interceptUnary(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) (err error) {
	if !strings.HasPrefix(method, servicePrefix) {
		return c.failure(invoke(ctx, method, request, reply, conn, options...))
	}

	if _, found := ctx.Deadline(); !found {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeoutFor(request))
		defer cancel()
	}
	request = withRequestID(request)
	ctx, span := c.startSpan(ctx, method, request)
	defer func() { span.end(reply, err) }()

	message := request.(proto.Message)
	if err := c.checkSize(ctx, message); err != nil {
		return err
	}
	return c.retry(ctx, isSafe(method, message), func(ctx context.Context, _ *tryState) error {
		ctx, err := c.withToken(ctx)
		if err != nil {
			return err
		}
		return invoke(ctx, method, request, reply, conn, options...)
	})
}

// withToken is CONN-007.
func (c *Client) withToken(ctx context.Context) (context.Context, error) {
	if c.tokenSource == nil {
		return ctx, nil
	}
	token, err := c.tokenSource(ctx)
	if err != nil {
		failure := newError("CREDENTIALS_MISSING", "there is no token: %v", err)
		failure.cause = err
		return nil, failure
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), nil
}

// checkSize is SIZE-003. The daemon is asked for its limit when the one it has by default does not do.
func (c *Client) checkSize(ctx context.Context, message proto.Message) error {
	size := uint64(proto.Size(message))
	if size <= maxRequest {
		return nil
	}
	limit := uint64(maxRequest)
	if limits, err := c.limits(ctx); err == nil && limits.GetMaxRequestBytes() == 0 {
		return nil
	} else if err == nil {
		limit = limits.GetMaxRequestBytes()
	}
	if size <= limit {
		return nil
	}
	failure := newError("MESSAGE_TOO_LARGE", "the message has %d bytes, and the daemon takes %d", size, limit)
	failure.Metadata["limit"], failure.Metadata["value"] = "max_request_bytes", strconv.FormatUint(limit, 10)
	return failure
}

// limits asks the daemon for its limits once.
func (c *Client) limits(ctx context.Context) (*hutchv1.ServerLimits, error) {
	if known := c.knownLimits.Load(); known != nil {
		return known, nil
	}
	info, err := c.Info(ctx)
	if err != nil {
		return nil, err
	}
	c.knownLimits.Store(info.GetLimits())
	return info.GetLimits(), nil
}

func (c *Client) interceptStream(ctx context.Context, description *grpc.StreamDesc, conn *grpc.ClientConn,
	method string,
	open grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if !strings.HasPrefix(method, servicePrefix) {
		stream, err := open(ctx, description, conn, method, options...)
		return stream, c.failure(err)
	}
	ctx, span := c.startSpan(ctx, method, nil)
	ctx, err := c.withToken(ctx)
	if err != nil {
		span.end(nil, err)
		return nil, err
	}
	stream, err := open(ctx, description, conn, method, options...)
	if err != nil {
		err = c.failure(err)
		span.end(nil, err)
		return nil, err
	}
	context.AfterFunc(ctx, func() { span.end(nil, toError(ctx.Err())) }) // one that is left before its end
	return &clientStream{ClientStream: stream, client: c, span: span, single: !description.ServerStreams}, nil
}

// clientStream is a stream with our errors, sizes and request ids.
type clientStream struct {
	grpc.ClientStream
	client *Client
	span   *callSpan
	single bool // one answer ends it
}

func (s *clientStream) SendMsg(message any) error {
	message = withRequestID(message)
	s.span.describe(message)
	if err := s.client.checkSize(s.Context(), message.(proto.Message)); err != nil {
		return err
	}
	if err := s.ClientStream.SendMsg(message); err != io.EOF {
		return s.client.failure(err)
	}
	return io.EOF // why, receiving tells
}

func (s *clientStream) CloseSend() error { return s.client.failure(s.ClientStream.CloseSend()) }

func (s *clientStream) Header() (metadata.MD, error) {
	header, err := s.ClientStream.Header()
	return header, s.client.failure(err)
}

func (s *clientStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	switch {
	case err == io.EOF:
		s.span.end(nil, nil)
		return io.EOF
	case err != nil:
		err = s.client.failure(err)
		s.span.end(nil, err)
	case s.single:
		s.span.end(message, nil)
	default:
		s.span.describe(message)
	}
	return err
}

// receiver is a stream of the daemon's answers.
type receiver[T any] interface {
	Recv() (*T, error)
}

// incoming is an answer that comes as a stream. Closing it may race with reading it.
type incoming[T any] struct {
	stream receiver[T]
	first  *T
	cancel context.CancelFunc
}

// openIncoming opens a stream and waits for its first answer; until that has come it may be tried again.
func openIncoming[T any](ctx context.Context, c *Client, safe bool,
	open func(context.Context) (receiver[T], error),
) (*incoming[T], error) {
	var opened *incoming[T]
	err := c.retry(ctx, safe, func(ctx context.Context, _ *tryState) error {
		ctx, cancel := context.WithCancel(ctx)
		stream, first, err := openFirst(ctx, open)
		if err != nil {
			cancel()
			return err
		}
		opened = &incoming[T]{stream, first, cancel}
		return nil
	})
	return opened, err
}

func openFirst[T any](ctx context.Context, open func(context.Context) (receiver[T], error)) (receiver[T], *T, error) {
	stream, err := open(ctx)
	if err != nil {
		return nil, nil, err
	}
	first, err := stream.Recv()
	return stream, first, ended(err, "the daemon ended the stream without an answer")
}

// next gives the answers one by one, and io.EOF after the last.
func (i *incoming[T]) next() (*T, error) {
	if first := i.first; first != nil {
		i.first = nil
		return first, nil
	}
	return i.stream.Recv()
}

func (i *incoming[T]) close() { i.cancel() }

// isLost tells whether a stream that had begun may be taken up where it was.
func isLost(err error) bool {
	failure := (*Error)(nil)
	return errors.As(err, &failure) && failure.Code == codes.Unavailable
}
