// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"io"
)

// RemoteRunner runs commands on another machine's daemon, each in a sandbox of its own, by SandboxExecService alone. It
// may be used by any number of goroutines, and closed while they run: they end with [ErrCancelled].
type RemoteRunner struct {
	client *Client
}

// NewRemoteRunner makes one for an address, as [Connect] does: TCP is TLS, and a token is not sent in clear text unless
// the options say so explicitly.
func NewRemoteRunner(ctx context.Context, address string, options ...Option) (*RemoteRunner, error) {
	client, err := Connect(ctx, append([]Option{WithAddress(address)}, options...)...)
	if err != nil {
		return nil, err
	}
	return &RemoteRunner{client}, nil
}

// Exec runs a command, copies what it prints to two writers as it comes, nil for none, and gives its exit code. An
// empty argv is refused before any call; nothing is read after the exit code; a stream that ends without one is
// [ErrStreamIncomplete]. When the context ends, the command is killed. Options: those of [Client.StartOnce].
func (r *RemoteRunner) Exec(ctx context.Context, argv []string, stdout, stderr io.Writer,
	options ...CallOption) (int, error) {
	once, err := r.client.StartOnce(ctx, argv, options...)
	if err != nil {
		return -1, err
	}
	defer once.Close()
	exit, err := once.Wait(stdout, stderr)
	if err != nil {
		return -1, err
	}
	return int(exit.GetExitCode()), nil
}

// Close ends what runs. It may be called at any time, and more than once.
func (r *RemoteRunner) Close() error { return r.client.Close() }
