// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

// Client talks to one daemon.
type Client struct {
	conn        *grpc.ClientConn
	place       endpoint
	dialer      *dialer
	clock       clock
	timeout     time.Duration
	tokenSource func(context.Context) (string, error) // nil: there is no token
	tracer      Tracer
	closed      atomic.Bool
	knownLimits atomic.Pointer[hutchv1.ServerLimits]

	sandboxes   hutchv1.AgentSandboxServiceClient
	execs       hutchv1.ExecServiceClient
	sandboxExec hutchv1.SandboxExecServiceClient
	files       hutchv1.FileServiceClient
	images      hutchv1.ImageServiceClient
	system      hutchv1.SystemServiceClient
}

// Connect makes a client. Without an address or context it is for the daemon that `hutch` would talk to: that of
// HUTCH_ADDRESS, of HUTCH_SOCKET, of HUTCH_CONTEXT or the current context, else the one of this user on this machine.
// It connects with the first call; here a daemon is started if [WithStartDaemon] says so and none listens.
func Connect(ctx context.Context, options ...Option) (*Client, error) {
	s := &settings{timeout: defaultTimeout, userAgent: "hutch-go/" + Version}
	for _, option := range options {
		option(s)
	}
	place, err := s.find()
	if err != nil {
		return nil, err
	}

	c := &Client{place: place, dialer: newDialer(place), clock: systemClock{}, timeout: s.timeout, tracer: s.tracer}
	if place.network == "tcp" {
		c.tokenSource = s.tokenSource
		if token := s.token; token != "" {
			c.tokenSource = func(context.Context) (string, error) { return token, nil }
		}
	}
	if err := c.dial(s); err != nil {
		return nil, err
	}
	if s.startDaemon && place.network == "unix" {
		if err := startDaemon(ctx, place.address); err != nil {
			_ = c.conn.Close()
			return nil, err
		}
	}

	c.sandboxes = hutchv1.NewAgentSandboxServiceClient(c.conn)
	c.execs = hutchv1.NewExecServiceClient(c.conn)
	c.sandboxExec = hutchv1.NewSandboxExecServiceClient(c.conn)
	c.files = hutchv1.NewFileServiceClient(c.conn)
	c.images = hutchv1.NewImageServiceClient(c.conn)
	c.system = hutchv1.NewSystemServiceClient(c.conn)
	return c, nil
}

// startDaemon is CONN-008.
func startDaemon(ctx context.Context, socket string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err == nil {
		return conn.Close()
	}
	if !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ECONNREFUSED) {
		return newError("DAEMON_UNREACHABLE", "%v", err)
	}

	var words bytes.Buffer
	command := exec.CommandContext(ctx, "hutch", "daemon", "start")
	command.Env = append(os.Environ(), "HUTCH_SOCKET="+socket)
	command.Stderr = &words
	if err := command.Run(); err != nil {
		said := strings.TrimSpace(words.String())
		if said == "" {
			said = err.Error()
		}
		failure := newError("DAEMON_UNREACHABLE", "no daemon listens on %s, and none could be started: %s", socket, said)
		failure.cause = err
		return failure
	}
	return nil
}

// Close ends what is under way with [ErrCancelled]. It may be called at any time, and more than once.
func (c *Client) Close() error {
	c.closed.Store(true)
	_ = c.conn.Close() // that it is closed already is no error here
	return nil
}

// Address tells which daemon it is for.
func (c *Client) Address() string { return c.place.String() }

// Conn is what the stubs of package hutchv1 need: for methods that this package has no function for. Its calls have the
// client's deadlines, retries, request ids and errors.
func (c *Client) Conn() grpc.ClientConnInterface { return c.conn }

// Ping asks the daemon for an answer.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.system.Ping(ctx, &hutchv1.PingRequest{})
	return err
}

// Info tells what the daemon is, what it can do and which limits are in force.
func (c *Client) Info(ctx context.Context) (*hutchv1.GetInfoResponse, error) {
	return c.system.GetInfo(ctx, &hutchv1.GetInfoRequest{})
}
