// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// clearEnvironment has a test begin with no settings but a home of its own.
func clearEnvironment(t *testing.T) (home string) {
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "HUTCH_") || strings.HasPrefix(name, "XDG_") {
			t.Setenv(name, "") // so that it is put back
			os.Unsetenv(name)
		}
	}
	home = t.TempDir()
	t.Setenv("HOME", home)
	return home
}

func writeContexts(t *testing.T, home, text string, mode os.FileMode) {
	t.Helper()
	check(t, os.MkdirAll(home+"/.config/hutch", 0o755))
	path := home + "/.config/hutch/contexts.json"
	check(t, os.WriteFile(path, []byte(text), mode))
	check(t, os.Chmod(path, mode))
}

const twoContexts = `{"current": "here", "contexts": {
	"here": {"address": "unix:/here.sock"},
	"prod": {"address": "prod.example.com:7443", "ca_file": "/ca", "certificate_file": "/cert", "key_file": "/key",
		"server_name": "box", "token": "t"}}}`

func TestTheDaemonIsTheFirstThatIsNamed(t *testing.T) {
	proves(t, "CONN-001")
	home := clearEnvironment(t)
	find := func(options ...Option) string {
		t.Helper()
		s := &settings{}
		for _, option := range options {
			option(s)
		}
		place, err := s.find()
		if err != nil {
			return ReasonOf(err)
		}
		return place.String()
	}
	expect := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}

	if os.Geteuid() == 0 {
		expect(find(), "unix:/run/hutch/hutchd.sock")
	} else {
		t.Setenv("XDG_RUNTIME_DIR", "/nonexistent")
		expect(find(), "unix:/nonexistent/hutch/hutchd.sock")
	}
	writeContexts(t, home, twoContexts, 0o600)
	expect(find(), "unix:/here.sock")
	t.Setenv("HUTCH_CONTEXT", "prod")
	expect(find(), "prod.example.com:7443")
	t.Setenv("HUTCH_SOCKET", "/s.sock")
	expect(find(), "unix:/s.sock")
	t.Setenv("HUTCH_ADDRESS", "env.example.com:1")
	expect(find(), "env.example.com:1")
	expect(find(WithContextName("here")), "unix:/here.sock")
	expect(find(WithAddress("[::1]:2")), "[::1]:2")
	expect(find(WithAddress("[::1]:2"), WithContextName("here")), "FIELD_CONFLICT")
	expect(find(WithContextName("other")), "CONTEXT_NOT_FOUND")
	t.Setenv("HUTCH_ADDRESS", "")
	t.Setenv("HUTCH_SOCKET", "")
	expect(find(), "prod.example.com:7443")
}

// asUser has a test go on as a user who is not root, with folders in the place of /run/user and /tmp.
func asUser(t *testing.T) (own, session, roots string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	clearEnvironment(t)
	t.Setenv("HOME", "/nonexistent")
	const user = 12345
	folder, err := os.MkdirTemp("", "hutch-test-")
	check(t, err)
	check(t, os.Chmod(folder, 0o755))
	sessions, shared := sessionsFolder, sharedFolder
	sessionsFolder, sharedFolder, roots = folder+"/sessions", folder+"/shared", folder+"/roots"
	for _, name := range []string{sessionsFolder, sharedFolder, roots} {
		check(t, os.Mkdir(name, 0o755))
	}
	check(t, os.Chmod(sessionsFolder, 0o777|os.ModeSticky))
	check(t, os.Chmod(sharedFolder, 0o777|os.ModeSticky))
	check(t, syscall.Seteuid(user))
	t.Cleanup(func() {
		check(t, syscall.Seteuid(0))
		sessionsFolder, sharedFolder = sessions, shared
		check(t, os.RemoveAll(folder))
	})
	return fmt.Sprintf("%s/hutch-%d", sharedFolder, user), fmt.Sprintf("%s/%d", sessionsFolder, user), roots
}

func TestAUserWithoutARuntimeFolderHasASocket(t *testing.T) {
	proves(t, "CONN-001")
	own, session, roots := asUser(t)
	expect := func(want string) {
		t.Helper()
		if place, err := (&settings{}).find(); err != nil || place.String() != want {
			t.Errorf("got %v, %v, want %s", place, err, want)
		}
	}
	for _, value := range []string{"", "relative", roots} { // that one is somebody else's, as after su
		t.Setenv("XDG_RUNTIME_DIR", value)
		expect("unix:" + own + "/hutchd.sock")
	}
	info, err := os.Lstat(own)
	check(t, err)
	if info.Mode() != os.ModeDir|0o700 {
		t.Errorf("its mode is %v", info.Mode())
	}
	t.Setenv("XDG_RUNTIME_DIR", own)
	expect("unix:" + own + "/hutch/hutchd.sock")
	os.Unsetenv("XDG_RUNTIME_DIR")
	check(t, os.Mkdir(session, 0o700))
	expect("unix:" + session + "/hutch/hutchd.sock")
	check(t, os.Chmod(session, 0o722))
	expect("unix:" + own + "/hutchd.sock")
}

func TestADaemonInAFolderOfSomebodyElsesIsNotConnectedTo(t *testing.T) {
	proves(t, "CONN-010")
	own, session, _ := asUser(t)
	refused := func(words string) {
		t.Helper()
		_, err := Connect(testContext(t))
		if failure := expectReason(t, err, "FILE_PERMISSION"); !strings.Contains(failure.Message, words) {
			t.Errorf("it says %s", failure.Message)
		}
	}
	check(t, os.Mkdir(own, 0o700))
	for _, mode := range []os.FileMode{0o710, 0o701, 0o720, 0o702} {
		check(t, os.Chmod(own, mode))
		refused("have it removed")
	}
	check(t, os.Remove(own))
	check(t, os.Symlink(filepath.Dir(session), own))
	refused("have it removed")
	check(t, os.Remove(own))
	check(t, os.WriteFile(own, nil, 0o600))
	refused("have it removed")
	check(t, os.Remove(own))
	check(t, syscall.Seteuid(0))
	check(t, os.Mkdir(own, 0o700))
	check(t, syscall.Seteuid(12345))
	refused("owner 0, mode 0700")
	sharedFolder = "/nonexistent"
	refused("set XDG_RUNTIME_DIR")
}

func TestAddresses(t *testing.T) {
	proves(t, "CONN-002")
	for given, want := range map[string]string{
		"unix:/a/b.sock":    "unix:/a/b.sock",
		"host:1":            "host:1",
		"dns:host:443":      "host:443",
		"dns:///host:443":   "host:443",
		"[::1]:65535":       "[::1]:65535",
		"127.0.0.1:7443":    "127.0.0.1:7443",
		"unix:relative":     "",
		"unix:":             "",
		"host":              "",
		"host:":             "",
		":443":              "",
		"host:0":            "",
		"host:65536":        "",
		"host:name":         "",
		"::1:443":           "",
		"https://host:443":  "",
		"http://host":       "",
		"tcp:host:443":      "",
		"ho st:443":         "",
		"":                  "",
		"host:443/":         "",
		"dns:":              "",
		"passthrough:///h:": "",
	} {
		place, err := parseAddress(given)
		switch {
		case want == "" && ReasonOf(err) != "ADDRESS_MALFORMED":
			t.Errorf("%q: got %v, %v", given, place, err)
		case want != "" && (err != nil || place.String() != want):
			t.Errorf("%q: got %v, %v", given, place, err)
		}
	}
}

func TestTheEnvironmentFillsInWhatTheCallerLeavesOpen(t *testing.T) {
	proves(t, "CONN-004", "CONN-005")
	home := clearEnvironment(t)
	writeContexts(t, home, twoContexts, 0o600)
	t.Setenv("HUTCH_TOKEN", "env-token")
	t.Setenv("HUTCH_CA_FILE", "/env-ca")
	t.Setenv("HUTCH_CERTIFICATE_FILE", "/env-cert")
	t.Setenv("HUTCH_KEY_FILE", "/env-key")

	found := &settings{address: "host:1", caFile: "/mine"}
	_, err := found.find()
	check(t, err)
	if found.token != "env-token" || found.caFile != "/mine" || found.certificateFile != "/env-cert" ||
		found.keyFile != "/env-key" {
		t.Errorf("got %+v", found)
	}
	found = &settings{address: "host:1", tokenSource: func(context.Context) (string, error) { return "", nil }}
	_, err = found.find()
	check(t, err)
	if found.token != "" {
		t.Error("the token of the environment comes before the caller's")
	}
	found = &settings{contextName: "prod", serverName: "mine"}
	_, err = found.find()
	check(t, err)
	if found.token != "t" || found.caFile != "/ca" || found.certificateFile != "/cert" || found.serverName != "mine" {
		t.Errorf("got %+v", found)
	}
	found = &settings{contextName: "here"}
	_, err = found.find()
	check(t, err)
	if found.token != "" || found.caFile != "" {
		t.Errorf("a context's daemon got %+v", found)
	}
	found = &settings{contextName: "prod", insecure: true}
	_, err = found.find()
	expectReason(t, err, "FIELD_CONFLICT")
}

func TestAContextsFileIsRefused(t *testing.T) {
	proves(t, "CONN-006")
	home := clearEnvironment(t)
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602, 0o644} {
		writeContexts(t, home, twoContexts, mode)
		_, err := (&settings{}).find()
		expectReason(t, err, "CONTEXTS_FILE_EXPOSED")
		_, err = (&settings{address: "host:1"}).find() // it is not read then
		check(t, err)
	}
	for _, text := range []string{
		``, `[]`, `{`, `null`, `{"other": "x"}`, `{"current": 1}`, `{"current": null}`, `{"Current": "a"}`,
		`{"current": "a", "current": "b"}`, `{"contexts": []}`, `{"contexts": {"a": "b"}}`, `{} {}`,
		`{"contexts": {"a": {}}}`, `{"contexts": {"a": {"address": "h:1", "port": "2"}}}`,
		`{"contexts": {"a": {"address": "h:1", "address": "h:2"}}}`, `{"contexts": {"a": {"Address": "h:1"}}}`,
		`{"contexts": {"A B": {"address": "h:1"}}}`, `{"contexts": {"a": {"address": "h:1", "key_file": "/k"}}}`,
		`{"contexts": {"a": {"address": "h:1", "certificate_file": "/c"}}}`,
		`{"contexts": {"a": {"address": "h:1", "token": null}}}`,
	} {
		writeContexts(t, home, text, 0o600)
		_, err := (&settings{}).find()
		if ReasonOf(err) != "CONTEXTS_FILE_INVALID" {
			t.Errorf("%s: got %v", text, err)
		}
	}
	writeContexts(t, home, `{"current": "gone", "contexts": {}}`, 0o600)
	_, err := (&settings{}).find()
	expectReason(t, err, "CONTEXT_NOT_FOUND")
}

func TestADaemonIsStartedOnlyWhenAllowed(t *testing.T) {
	proves(t, "CONN-008")
	clearEnvironment(t)
	tools, socket := t.TempDir(), filepath.Join(t.TempDir(), "hutchd.sock")
	script := "#!/bin/sh\ncd " + tools + "\necho \"$* $HUTCH_SOCKET\" >>calls\n" +
		"test ! -e broken || { echo it is broken >&2; exit 1; }\n"
	check(t, os.WriteFile(tools+"/hutch", []byte(script), 0o755))
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))

	connectTo(t, WithAddress("unix:"+socket))
	if _, err := os.Stat(tools + "/calls"); err == nil {
		t.Error("a daemon was started without being allowed")
	}
	connectTo(t, WithAddress("unix:"+socket), WithStartDaemon())
	calls, err := os.ReadFile(tools + "/calls")
	check(t, err)
	if string(calls) != "daemon start "+socket+"\n" {
		t.Errorf("called with %q", calls)
	}
	check(t, os.WriteFile(tools+"/broken", nil, 0o600))
	_, err = Connect(testContext(t), WithAddress("unix:"+socket), WithStartDaemon())
	if failure := expectReason(t, err, "DAEMON_UNREACHABLE"); !strings.Contains(failure.Message, "it is broken") {
		t.Errorf("it says %s", failure.Message)
	}
	(&fakeDaemon{}).serve(t, "unix", socket)
	connectTo(t, WithAddress("unix:"+socket), WithStartDaemon()) // one listens: none is started
	t.Setenv("PATH", t.TempDir())
	_, err = Connect(testContext(t), WithAddress("unix:"+socket+"2"), WithStartDaemon())
	expectReason(t, err, "DAEMON_UNREACHABLE")
}
