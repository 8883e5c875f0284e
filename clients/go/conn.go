// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
)

const (
	maxResponse = 17 << 20 // of the daemon's messages
	maxRequest  = 4 << 20  // of ours, unless it says otherwise

	keepaliveTime    = 5 * time.Minute // gRPC's servers take pings no more often
	keepaliveTimeout = 20 * time.Second
	handshakeTime    = time.Second // that a connection has after it was dialled, until a try is given up
)

// dial makes the connection. It is not used before the first call.
func (c *Client) dial(s *settings) error {
	if s.serverName == "" {
		s.serverName = c.place.host()
	}
	transport, err := s.credentials(c.place)
	if err != nil {
		return err
	}
	c.conn, err = grpc.NewClient("passthrough:///hutchd",
		grpc.WithTransportCredentials(transport),
		grpc.WithAuthority(s.serverName),
		grpc.WithContextDialer(c.dialer.dial),
		grpc.WithUserAgent(s.userAgent),
		grpc.WithDisableRetry(), // the rules for retries are our own
		grpc.WithDisableServiceConfig(),
		grpc.WithStatsHandler(sentMarker{}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse), grpc.MaxCallSendMsgSize(int(^uint32(0)>>1))),
		grpc.WithUnaryInterceptor(c.interceptUnary),
		grpc.WithStreamInterceptor(c.interceptStream),
	)
	if err != nil {
		return newError("ADDRESS_MALFORMED", "%v", err)
	}
	return nil
}

// credentials are those of CONN-003.
func (s *settings) credentials(place endpoint) (credentials.TransportCredentials, error) {
	if (s.certificateFile == "") != (s.keyFile == "") {
		return nil, newError("FIELD_CONFLICT", "a certificate and its key go together")
	}
	if place.network == "unix" {
		return insecure.NewCredentials(), nil
	}
	if s.insecure {
		if (s.token != "" || s.tokenSource != nil) && !s.tokenInClearText {
			return nil, newError("TOKEN_IN_CLEAR_TEXT", "the token would be sent in clear text: use TLS")
		}
		return insecure.NewCredentials(), nil
	}

	config := &tls.Config{ServerName: s.serverName, MinVersion: tls.VersionTLS12}
	if s.caFile != "" {
		data, err := os.ReadFile(s.caFile)
		if err != nil {
			return nil, newError("FIELD_INVALID", "the CA: %v", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, newError("FIELD_INVALID", "there is no certificate in %s", s.caFile)
		}
	}
	if s.certificateFile != "" {
		pair, err := tls.LoadX509KeyPair(s.certificateFile, s.keyFile)
		if err != nil {
			return nil, newError("FIELD_INVALID", "the client's certificate: %v", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config), nil
}

// dialer connects to one place, and tells how it went.
type dialer struct {
	place endpoint
	mutex sync.Mutex
	next  *dialled
}

// dialled is a try to connect. Its error is there when done is closed.
type dialled struct {
	done chan struct{}
	err  error
}

func newDialer(place endpoint) *dialer {
	return &dialer{place: place, next: &dialled{done: make(chan struct{})}}
}

func (d *dialer) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, d.place.network, d.place.address)

	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.next.err = err
	close(d.next.done)
	d.next = &dialled{done: make(chan struct{})}
	return conn, err
}

func (d *dialer) coming() *dialled {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.next
}

// reconnect has gRPC connect now, where it would wait, so that a try of a call is a try to connect, too.
func (c *Client) reconnect(ctx context.Context) {
	if c.conn.GetState() != connectivity.TransientFailure {
		return
	}
	try := c.dialer.coming()
	c.conn.ResetConnectBackoff()
	select {
	case <-try.done:
	case <-ctx.Done():
	}
	if ctx.Err() != nil || try.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	c.conn.WaitForStateChange(ctx, connectivity.TransientFailure)
}

// sentMarker notes that a try of a call has reached a connection: the daemon may have seen it.
type sentMarker struct{}

func (sentMarker) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (sentMarker) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (sentMarker) HandleConn(context.Context, stats.ConnStats)                       {}

func (sentMarker) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if _, isHeader := event.(*stats.OutHeader); !isHeader {
		return
	}
	if try, found := ctx.Value(tryKey{}).(*tryState); found {
		try.sent.Store(true)
	}
}
