// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"time"
)

// Option is how a client is made.
type Option func(*settings)

// settings are what options say. A text that is empty was not given.
type settings struct {
	address          string
	contextName      string
	startDaemon      bool
	insecure         bool
	caFile           string
	certificateFile  string
	keyFile          string
	serverName       string
	token            string
	tokenSource      func(context.Context) (string, error)
	tokenInClearText bool
	timeout          time.Duration
	userAgent        string
	tracer           Tracer
}

// WithAddress names the daemon: "unix:/path", "host:port", "dns:host:port" or "[::1]:port".
func WithAddress(address string) Option { return func(s *settings) { s.address = address } }

// WithContextName takes the daemon from the contexts file, as `hutch --context` does.
func WithContextName(name string) Option { return func(s *settings) { s.contextName = name } }

// WithStartDaemon has [Connect] start a daemon for this user, by `hutch daemon start`, when nobody listens on the
// socket. It stays when the client is closed.
func WithStartDaemon() Option { return func(s *settings) { s.startDaemon = true } }

// WithInsecure has a TCP connection be in clear text. Without it TCP is TLS.
func WithInsecure() Option { return func(s *settings) { s.insecure = true } }

// WithCAFile names the file with the CA that has signed the daemon's certificate. Without it those of the system are
// trusted.
func WithCAFile(path string) Option { return func(s *settings) { s.caFile = path } }

// WithCertificate names the client's own certificate and its key.
func WithCertificate(certificateFile, keyFile string) Option {
	return func(s *settings) { s.certificateFile, s.keyFile = certificateFile, keyFile }
}

// WithServerName is what the daemon's certificate must be for, instead of the address's host.
func WithServerName(name string) Option { return func(s *settings) { s.serverName = name } }

// WithToken is the bearer token of each call over TCP.
func WithToken(token string) Option { return func(s *settings) { s.token = token } }

// WithTokenSource is asked for the bearer token of each call over TCP, and must be safe to call from any goroutine.
func WithTokenSource(source func(context.Context) (string, error)) Option {
	return func(s *settings) { s.tokenSource = source }
}

// WithTokenInClearText allows a token to go over TCP without TLS, where everybody between can read it.
func WithTokenInClearText() Option { return func(s *settings) { s.tokenInClearText = true } }

// WithTimeout is the deadline of calls whose context has none: 60 s. Streams have none.
func WithTimeout(timeout time.Duration) Option { return func(s *settings) { s.timeout = timeout } }

// WithUserAgent is told to the daemon instead of "hutch-go" and the version.
func WithUserAgent(userAgent string) Option { return func(s *settings) { s.userAgent = userAgent } }

// WithTracer has a span made of each call. The module hutchotel has a tracer for OpenTelemetry.
func WithTracer(tracer Tracer) Option { return func(s *settings) { s.tracer = tracer } }
