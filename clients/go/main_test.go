// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

// noDaemon is why there is no daemon to test with.
var noDaemon string

// TestMain has a daemon for tests and examples, with a state folder of its own, and leaves nothing of it: they run in a
// process below this one, however that ends. Sandboxes need root: others run what needs none.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("HUTCH_TEST_DAEMON") != "" {
		os.Exit(m.Run())
	}
	if os.Geteuid() != 0 {
		noDaemon = "sandboxes need root"
		_ = flag.Set("test.run", "^Test") // examples cannot be skipped
		os.Exit(m.Run())
	}
	os.Exit(runWithDaemon())
}

// runWithDaemon runs this program again with a daemon, and gives its exit status.
func runWithDaemon() int {
	folder, err := os.MkdirTemp("", "hutch-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	stop, err := startTestDaemon(folder, nil)
	if err != nil {
		panic(err)
	}
	tests := exec.Command(os.Args[0], os.Args[1:]...)
	tests.Stdout, tests.Stderr = os.Stdout, os.Stderr
	tests.Env = append(os.Environ(), "HUTCH_TEST_DAEMON=yes")
	_ = tests.Run() // its status tells
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return tests.ProcessState.ExitCode()
}

// startTestDaemon starts a daemon in a folder that is there, as a user; nil: as who runs this. HUTCH_ADDRESS names it.
func startTestDaemon(folder string, user *syscall.Credential) (stop func() error, err error) {
	build := os.Getenv("HUTCH_BUILD")
	if build == "" {
		build = "../../build/gcc"
	}
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(folder, "hutchd.sock")
	config := filepath.Join(folder, "config.yaml")
	if err := os.WriteFile(config, []byte("{}\n"), 0o644); err != nil {
		return nil, err
	}
	state := filepath.Join(folder, "state")
	daemon := exec.Command(filepath.Join(build, "hutchd"), "--socket", socket, "--state", state, "--config", config)
	daemon.Stdout, daemon.Stderr = log, log
	daemon.Env = []string{"PATH=" + os.Getenv("PATH")}
	daemon.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	if err := daemon.Start(); err != nil {
		return nil, err
	}
	os.Setenv("HUTCH_ADDRESS", "unix:"+socket)

	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(end) {
			_ = daemon.Process.Kill()
			said, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("the daemon does not serve: %s", said)
		}
	}
	return func() error { return endTestDaemon(daemon) }, nil
}

// endTestDaemon deletes what tests have left, and ends the daemon.
func endTestDaemon(daemon *exec.Cmd) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := Connect(ctx)
	if err != nil {
		return err
	}
	for sandbox, err := range client.List(ctx) {
		if err != nil {
			return err
		}
		if _, err := sandbox.Delete(ctx); err != nil {
			return err
		}
		if _, err := sandbox.Wait(ctx, hutchv1.SandboxState_SANDBOX_STATE_DELETED); err != nil {
			return err
		}
	}
	_ = client.Close()
	if err := daemon.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return daemon.Wait()
}

// realClient is one of the daemon.
func realClient(t *testing.T, options ...Option) *Client {
	t.Helper()
	if noDaemon != "" {
		t.Skip(noDaemon)
	}
	return connectTo(t, options...)
}

// realSandbox is one that goes with the test.
func realSandbox(t *testing.T, options ...CallOption) *Sandbox {
	t.Helper()
	sandbox, err := realClient(t).Create(testContext(t), options...)
	check(t, err)
	t.Cleanup(func() { check(t, sandbox.Close()) })
	return sandbox
}
