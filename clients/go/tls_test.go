// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// authority signs certificates for a test, and has them in files.
type authority struct {
	t      *testing.T
	folder string
	key    *ecdsa.PrivateKey
	cert   *x509.Certificate
	file   string
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{t: t, folder: t.TempDir()}
	a.file, _ = a.make(name, true, "")
	return a
}

// make makes a certificate and its key. An authority's own signs itself.
func (a *authority) make(name string, isAuthority bool, host string) (certificateFile, keyFile string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: isAuthority, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if host != "" {
		template.DNSNames = []string{host}
	}
	parent, signer := a.cert, a.key
	if isAuthority {
		template.KeyUsage = x509.KeyUsageCertSign
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	check(a.t, err)
	if isAuthority {
		a.key = key
		a.cert, err = x509.ParseCertificate(der)
		check(a.t, err)
	}
	keyBytes, err := x509.MarshalPKCS8PrivateKey(key)
	check(a.t, err)
	certificateFile, keyFile = filepath.Join(a.folder, name+".pem"), filepath.Join(a.folder, name+".key")
	check(a.t, os.WriteFile(certificateFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	check(a.t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyBytes}), 0o600))
	return certificateFile, keyFile
}

// serveTLS serves with a certificate for "box"; with clients, only those whose certificates that authority signed.
func serveTLS(t *testing.T, daemon *fakeDaemon, signer *authority, clients *authority) string {
	pair, err := tls.LoadX509KeyPair(signer.make("server", false, "box"))
	check(t, err)
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	if clients != nil {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		config.ClientCAs.AddCert(clients.cert)
	}
	return daemon.serve(t, "tcp", "127.0.0.1:0", grpc.Creds(credentials.NewTLS(config)))
}

func TestTCPIsTLS(t *testing.T) {
	proves(t, "CONN-003")
	clearEnvironment(t)
	ours, others := newAuthority(t, "ours"), newAuthority(t, "others")
	address := serveTLS(t, &fakeDaemon{}, ours, nil)
	ping := func(options ...Option) error {
		client := connectTo(t, append([]Option{WithAddress(address)}, options...)...)
		withFakeClock(client)
		return client.Ping(testContext(t))
	}
	check(t, ping(WithCAFile(ours.file), WithServerName("box")))
	for name, options := range map[string][]Option{
		"another name":      {WithCAFile(ours.file)},
		"another authority": {WithCAFile(others.file), WithServerName("box")},
		"the system's":      {WithServerName("box")},
		"in clear text":     {WithInsecure()},
	} {
		if err := ping(options...); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	clear := (&fakeDaemon{}).serve(t, "tcp", "127.0.0.1:0")
	client := connectTo(t, WithAddress(clear), WithCAFile(ours.file))
	withFakeClock(client)
	if err := client.Ping(testContext(t)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("TLS with who speaks none: got %v", err)
	}
}

func TestAClientHasACertificate(t *testing.T) {
	clearEnvironment(t)
	ours := newAuthority(t, "ours")
	address := serveTLS(t, &fakeDaemon{}, ours, ours)
	certificate, key := ours.make("client", false, "")
	options := []Option{WithAddress(address), WithCAFile(ours.file), WithServerName("box")}
	check(t, connectTo(t, append(options, WithCertificate(certificate, key))...).Ping(testContext(t)))

	without := connectTo(t, options...)
	withFakeClock(without)
	if err := without.Ping(testContext(t)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without one: got %v", err)
	}
	for name, option := range map[string]Option{
		"FIELD_CONFLICT": WithCertificate(certificate, ""),
		"FIELD_INVALID":  WithCertificate(certificate, ours.file),
	} {
		_, err := Connect(testContext(t), append(options, option)...)
		expectReason(t, err, name)
	}
	_, err := Connect(testContext(t), WithAddress(address), WithCAFile(key))
	expectReason(t, err, "FIELD_INVALID")
	_, err = Connect(testContext(t), WithAddress(address), WithCAFile("/nowhere"))
	expectReason(t, err, "FIELD_INVALID")
}

func authorizations(daemon *fakeDaemon) []string {
	daemon.mutex.Lock()
	defer daemon.mutex.Unlock()
	var found []string
	for _, metadata := range daemon.metadata {
		found = append(found, strings.Join(metadata.Get("authorization"), "|"))
	}
	return found
}

func TestATokenIsSentOverTLSAndNeverInClearText(t *testing.T) {
	proves(t, "AUTH-004", "CONN-007")
	clearEnvironment(t)
	source := func(context.Context) (string, error) { return "from the source", nil }
	daemon, ours := &fakeDaemon{}, newAuthority(t, "ours")
	address := serveTLS(t, daemon, ours, nil)
	for want, option := range map[string]Option{"Bearer secret": WithToken("secret"),
		"Bearer from the source": WithTokenSource(source)} {
		daemon.metadata = nil
		client := connectTo(t, WithAddress(address), WithCAFile(ours.file), WithServerName("box"), option)
		check(t, client.Ping(testContext(t)))
		if got := authorizations(daemon); len(got) != 1 || got[0] != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}

	clear := &fakeDaemon{}
	clearAddress := clear.serve(t, "tcp", "127.0.0.1:0")
	for _, option := range []Option{WithToken("secret"), WithTokenSource(source)} {
		_, err := Connect(testContext(t), WithAddress(clearAddress), WithInsecure(), option)
		expectReason(t, err, "TOKEN_IN_CLEAR_TEXT")
		if !errors.Is(err, ErrTokenInClearText) || !errors.Is(err, ErrFailedPrecondition) {
			t.Errorf("it is %v", err)
		}
	}
	clear.listener.mutex.Lock()
	if len(clear.listener.open) != 0 {
		t.Error("it has connected")
	}
	clear.listener.mutex.Unlock()
	check(t, connectTo(t, WithAddress(clearAddress), WithInsecure(), WithToken("secret"),
		WithTokenInClearText()).Ping(testContext(t)))

	local := &fakeDaemon{}
	check(t, local.connected(t, WithToken("secret")).Ping(testContext(t)))
	if got := authorizations(local); got[0] != "" {
		t.Errorf("over a Unix socket it sent %q", got)
	}
}

func TestATokenThatCannotBeHadIsTold(t *testing.T) {
	clearEnvironment(t)
	missing := errors.New("the vault is closed")
	daemon := &fakeDaemon{}
	address := daemon.serve(t, "tcp", "127.0.0.1:0")
	client := connectTo(t, WithAddress(address), WithInsecure(), WithTokenInClearText(),
		WithTokenSource(func(context.Context) (string, error) { return "", missing }))
	err := client.Ping(testContext(t))
	expectReason(t, err, "CREDENTIALS_MISSING")
	if !errors.Is(err, missing) || !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("it is %v", err)
	}
	_, err = client.Watch(testContext(t))
	expectReason(t, err, "CREDENTIALS_MISSING")
}

func TestTheUserAgentTellsWhoCalls(t *testing.T) {
	proves(t, "CONN-009")
	daemon := &fakeDaemon{}
	check(t, daemon.connected(t).Ping(testContext(t)))
	if agent := daemon.metadata[0].Get("user-agent"); len(agent) != 1 || !strings.HasPrefix(agent[0],
		"hutch-go/"+Version) {
		t.Errorf("it is %q", agent)
	}
}
