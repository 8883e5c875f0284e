// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

// patience is how long anything may take.
const patience = 90 * time.Second

// proves says that a test checks rules of spec/behavior.md, for the conformance table.
func proves(t *testing.T, rules ...string) {
	t.Helper()
	folder := os.Getenv("HUTCH_CONFORMANCE_DIR")
	if folder == "" {
		return
	}
	t.Cleanup(func() {
		file, err := os.OpenFile(filepath.Join(folder, "go-client.tsv"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Error(err)
			return
		}
		defer file.Close()
		verdict := map[bool]string{true: "fail", false: "pass"}[t.Failed()]
		for _, rule := range rules {
			fmt.Fprintf(file, "%s\t%s\tclient/%s\n", rule, verdict, t.Name())
		}
	})
}

// testContext ends when a test has taken too long.
func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// expectReason expects an error for that reason.
func expectReason(t *testing.T, err error, reason string) *Error {
	t.Helper()
	failure := (*Error)(nil)
	if !errors.As(err, &failure) || failure.Reason != reason {
		t.Fatalf("got %v, want %s", err, reason)
	}
	return failure
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// leavesNothing expects that all goroutines of a test have ended with it.
func leavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		end := time.Now().Add(patience)
		for runtime.NumGoroutine() > before {
			if time.Now().After(end) {
				stacks := make([]byte, 1<<20)
				t.Errorf("there were %d goroutines, and now:\n%s", before, stacks[:runtime.Stack(stacks, true)])
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// What a stream is to its server.
type (
	watchStream    = grpc.ServerStreamingServer[hutchv1.WatchEventsResponse]
	outputStream   = grpc.ServerStreamingServer[hutchv1.ReadExecOutputResponse]
	downloadStream = grpc.ServerStreamingServer[hutchv1.DownloadFileResponse]
	execStream     = grpc.ServerStreamingServer[hutchv1.ExecResponse]
	uploadStream   = grpc.ClientStreamingServer[hutchv1.UploadFileRequest, hutchv1.UploadFileResponse]
)

// fakeDaemon serves what a test has it serve. It counts the calls, and keeps what came with them.
type fakeDaemon struct {
	hutchv1.UnimplementedAgentSandboxServiceServer
	hutchv1.UnimplementedSystemServiceServer
	hutchv1.UnimplementedExecServiceServer
	hutchv1.UnimplementedSandboxExecServiceServer
	hutchv1.UnimplementedFileServiceServer

	mutex      sync.Mutex
	calls      []string // the last components of methods
	metadata   []metadata.MD
	requestIDs []string
	deadlines  []bool
	failures   int  // calls that fail with UNAVAILABLE, before others succeed
	broken     bool // so that their connection is lost instead

	create   func(context.Context)
	deleted  []string
	exec     func(*hutchv1.ExecRequest, execStream) error
	watch    func(*hutchv1.WatchEventsRequest, watchStream) error
	output   func(*hutchv1.ReadExecOutputRequest, outputStream) error
	download func(*hutchv1.DownloadFileRequest, downloadStream) error
	upload   func(uploadStream) error

	listener *connections
}

// connections are those that a fake daemon has accepted.
type connections struct {
	net.Listener
	mutex sync.Mutex
	open  []net.Conn
}

func (c *connections) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		c.open = append(c.open, conn)
	}
	return conn, err
}

// cut ends all of them at once.
func (c *connections) cut() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, conn := range c.open {
		_ = conn.Close()
	}
	c.open = nil
}

// serve serves on an address, with what else the server needs.
func (d *fakeDaemon) serve(t *testing.T, network, address string, options ...grpc.ServerOption) string {
	t.Helper()
	listener, err := net.Listen(network, address)
	check(t, err)
	accepting := &connections{Listener: listener}
	d.listener = accepting
	options = append(options, grpc.UnaryInterceptor(d.interceptUnary), grpc.StreamInterceptor(d.interceptStream))
	server := grpc.NewServer(options...)
	hutchv1.RegisterAgentSandboxServiceServer(server, d)
	hutchv1.RegisterSystemServiceServer(server, d)
	hutchv1.RegisterExecServiceServer(server, d)
	hutchv1.RegisterSandboxExecServiceServer(server, d)
	hutchv1.RegisterFileServiceServer(server, d)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(accepting)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return listener.Addr().String()
}

// connected is a client of a fake daemon on a Unix socket.
func (d *fakeDaemon) connected(t *testing.T, options ...Option) *Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "hutchd.sock")
	d.serve(t, "unix", socket)
	return connectTo(t, append([]Option{WithAddress("unix:" + socket)}, options...)...)
}

func connectTo(t *testing.T, options ...Option) *Client {
	t.Helper()
	client, err := Connect(context.Background(), options...)
	check(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

func (d *fakeDaemon) count(method string) int {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	n := 0
	for _, called := range d.calls {
		if called == method {
			n++
		}
	}
	return n
}

// arrived notes a call. true: it is to fail.
func (d *fakeDaemon) arrived(ctx context.Context, method string, request any) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.calls = append(d.calls, method[strings.LastIndex(method, "/")+1:])
	came, _ := metadata.FromIncomingContext(ctx)
	d.metadata = append(d.metadata, came)
	_, limited := ctx.Deadline()
	d.deadlines = append(d.deadlines, limited)
	if with, ok := request.(interface{ GetRequestId() string }); ok {
		d.requestIDs = append(d.requestIDs, with.GetRequestId())
	}
	d.failures--
	return d.failures >= 0
}

func (d *fakeDaemon) fail() error {
	if d.broken {
		d.listener.cut()
	}
	return status.Error(codes.Unavailable, "not now")
}

func (d *fakeDaemon) interceptUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	if d.arrived(ctx, info.FullMethod, request) {
		return nil, d.fail()
	}
	return handler(ctx, request)
}

func (d *fakeDaemon) interceptStream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	if d.arrived(stream.Context(), info.FullMethod, nil) {
		return d.fail()
	}
	return handler(server, stream)
}

func (d *fakeDaemon) Ping(context.Context, *hutchv1.PingRequest) (*hutchv1.PingResponse, error) {
	return &hutchv1.PingResponse{}, nil
}

func (d *fakeDaemon) GetInfo(context.Context, *hutchv1.GetInfoRequest) (*hutchv1.GetInfoResponse, error) {
	return &hutchv1.GetInfoResponse{Limits: &hutchv1.ServerLimits{MaxRequestBytes: 4 << 20}}, nil
}

func (d *fakeDaemon) CreateSandbox(ctx context.Context,
	request *hutchv1.CreateSandboxRequest) (*hutchv1.CreateSandboxResponse, error) {
	if d.create != nil {
		d.create(ctx)
	}
	return &hutchv1.CreateSandboxResponse{Sandbox: &hutchv1.Sandbox{Id: request.GetSandboxId()}}, nil
}

func (d *fakeDaemon) StopSandbox(_ context.Context,
	request *hutchv1.StopSandboxRequest) (*hutchv1.StopSandboxResponse, error) {
	return &hutchv1.StopSandboxResponse{Sandbox: &hutchv1.Sandbox{Id: request.GetSandboxId()}}, nil
}

func (d *fakeDaemon) DeleteSandbox(_ context.Context,
	request *hutchv1.DeleteSandboxRequest) (*hutchv1.DeleteSandboxResponse, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.deleted = append(d.deleted, request.GetSandboxId())
	return &hutchv1.DeleteSandboxResponse{Sandbox: &hutchv1.Sandbox{Id: request.GetSandboxId()}}, nil
}

func (d *fakeDaemon) Exec(request *hutchv1.ExecRequest, stream execStream) error {
	return d.exec(request, stream)
}

func (d *fakeDaemon) WatchEvents(request *hutchv1.WatchEventsRequest,
	stream watchStream) error {
	return d.watch(request, stream)
}

func (d *fakeDaemon) ReadExecOutput(request *hutchv1.ReadExecOutputRequest,
	stream outputStream) error {
	return d.output(request, stream)
}

func (d *fakeDaemon) DownloadFile(request *hutchv1.DownloadFileRequest,
	stream downloadStream) error {
	return d.download(request, stream)
}

func (d *fakeDaemon) UploadFile(stream uploadStream) error {
	return d.upload(stream)
}

// fakeClock makes no pauses, and keeps those that were asked for.
type fakeClock struct {
	mutex  sync.Mutex
	start  time.Time // where it stands, but for the pauses; zero: it goes as others do
	passed time.Duration
	pauses []time.Duration
}

func (c *fakeClock) now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.start.IsZero() {
		return time.Now().Add(c.passed)
	}
	return c.start.Add(c.passed)
}

func (c *fakeClock) sleep(ctx context.Context, pause time.Duration) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.passed += pause
	c.pauses = append(c.pauses, pause)
	return ctx.Err()
}

func (c *fakeClock) random() uint32 { return 1 << 31 }
