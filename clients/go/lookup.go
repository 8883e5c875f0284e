// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/hutch-sandbox/hutch/clients/go/internal/rules"
)

// endpoint is a daemon's place.
type endpoint struct {
	network string // "unix" or "tcp"
	address string // a path, or host and port
}

func (e endpoint) String() string {
	if e.network == "unix" {
		return "unix:" + e.address
	}
	return e.address
}

// host is what the daemon's certificate is for.
func (e endpoint) host() string {
	host, _, err := net.SplitHostPort(e.address)
	if e.network == "unix" || err != nil {
		return "localhost"
	}
	return host
}

// parseAddress is CONN-002.
func parseAddress(address string) (endpoint, error) {
	if path, found := strings.CutPrefix(address, "unix:"); found {
		if !strings.HasPrefix(path, "/") || strings.Contains(path, "\x00") {
			return endpoint{}, newError("ADDRESS_MALFORMED", "%q is no address: the path of a Unix socket is absolute", address)
		}
		return endpoint{"unix", filepath.Clean(path)}, nil
	}

	rest, found := strings.CutPrefix(address, "dns:///")
	if !found {
		rest = strings.TrimPrefix(address, "dns:")
	}
	host, port, err := net.SplitHostPort(rest)
	number, notNumber := strconv.ParseUint(port, 10, 16)
	if err != nil || notNumber != nil || number == 0 || host == "" || strings.ContainsAny(host, "/ \x00") {
		return endpoint{}, newError("ADDRESS_MALFORMED", "%q is no address: write unix:/path or host:port", address)
	}
	return endpoint{"tcp", rest}, nil
}

// find is CONN-001, CONN-004 and CONN-005: it fills in what the options leave open from the environment and the
// contexts file.
func (s *settings) find() (endpoint, error) {
	if s.address != "" && s.contextName != "" {
		return endpoint{}, newError("FIELD_CONFLICT", "an address and a context exclude each other")
	}

	if s.contextName == "" {
		if s.address == "" {
			s.address = os.Getenv("HUTCH_ADDRESS")
		}
		if s.address != "" {
			s.fillFromEnvironment()
			return parseAddress(s.address)
		}
		if path := os.Getenv("HUTCH_SOCKET"); path != "" {
			absolute, err := filepath.Abs(path)
			if err != nil {
				return endpoint{}, newError("ADDRESS_MALFORMED", "HUTCH_SOCKET: %v", err)
			}
			return endpoint{"unix", absolute}, nil
		}
	}

	found, err := findContext(s.contextName)
	if err != nil {
		return endpoint{}, err
	}
	if found == nil {
		return defaultSocket()
	}
	return s.useContext(found)
}

// fillFromEnvironment is CONN-004.
func (s *settings) fillFromEnvironment() {
	if s.token == "" && s.tokenSource == nil {
		s.token = os.Getenv("HUTCH_TOKEN")
	}
	if s.caFile == "" {
		s.caFile = os.Getenv("HUTCH_CA_FILE")
	}
	if s.certificateFile == "" && s.keyFile == "" {
		s.certificateFile, s.keyFile = os.Getenv("HUTCH_CERTIFICATE_FILE"), os.Getenv("HUTCH_KEY_FILE")
	}
}

func (s *settings) useContext(found *namedContext) (endpoint, error) {
	if s.token == "" && s.tokenSource == nil {
		s.token = found.Token
	}
	if s.caFile == "" {
		s.caFile = found.CAFile
	}
	if s.certificateFile == "" && s.keyFile == "" {
		s.certificateFile, s.keyFile = found.CertificateFile, found.KeyFile
	}
	if s.serverName == "" {
		s.serverName = found.ServerName
	}
	place, err := parseAddress(found.Address)
	if err == nil && s.insecure && place.network == "tcp" {
		err = newError("FIELD_CONFLICT", "the TCP of a context is always TLS")
	}
	return place, err
}

func defaultSocket() (endpoint, error) {
	if os.Geteuid() == 0 {
		return endpoint{"unix", "/run/hutch/hutchd.sock"}, nil
	}
	if folder := runtimeFolder(); folder != "" {
		return endpoint{"unix", folder + "/hutch/hutchd.sock"}, nil
	}
	folder, err := makeSharedFolder()
	return endpoint{"unix", folder + "/hutchd.sock"}, err
}

// Where users may have folders for sockets.
var sessionsFolder, sharedFolder = "/run/user", "/tmp"

// runtimeFolder is the one that XDG_RUNTIME_DIR names, unless it is somebody else's, as su leaves it; else that of a
// session; else there is none.
func runtimeFolder() string {
	if named := os.Getenv("XDG_RUNTIME_DIR"); strings.HasPrefix(named, "/") {
		if info, err := os.Stat(named); err != nil || isOwn(info) {
			return named
		}
	}
	session := fmt.Sprintf("%s/%d", sessionsFolder, os.Geteuid())
	if info, err := os.Lstat(session); err == nil && info.IsDir() && isOwn(info) && info.Mode()&0o022 == 0 {
		return session
	}
	return ""
}

// makeSharedFolder is CONN-010. Where everybody may make folders, what is there may be anybody's: who listens in it
// would get what is meant for the daemon. It is made here, too, so that nobody else makes it before this client
// connects.
func makeSharedFolder() (string, error) {
	const mend = "set XDG_RUNTIME_DIR to a folder of your own, or HUTCH_SOCKET to a path"
	folder := fmt.Sprintf("%s/hutch-%d", sharedFolder, os.Geteuid())
	err := os.Mkdir(folder, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", newError("FILE_PERMISSION", "cannot make the folder: %v; %s", err, mend)
	}
	info, err := os.Lstat(folder)
	if err != nil {
		return "", newError("FILE_PERMISSION", "%v; %s", err, mend)
	}
	if !info.IsDir() || !isOwn(info) || info.Mode()&0o077 != 0 {
		return "", newError("FILE_PERMISSION",
			"%s is no folder of this user's alone (owner %d, mode %04o): have it removed, or %s",
			folder, info.Sys().(*syscall.Stat_t).Uid, info.Mode().Perm(), mend)
	}
	return folder, nil
}

func isOwn(info fs.FileInfo) bool {
	return int(info.Sys().(*syscall.Stat_t).Uid) == os.Geteuid()
}

// namedContext is an entry of the contexts file.
type namedContext struct {
	Address         string `json:"address"`
	CAFile          string `json:"ca_file"`
	CertificateFile string `json:"certificate_file"`
	KeyFile         string `json:"key_file"`
	ServerName      string `json:"server_name"`
	Token           string `json:"token"`
}

type contextsFile struct {
	Current  string                  `json:"current"`
	Contexts map[string]namedContext `json:"contexts"`
}

// findContext reads the context of that name, else the one of HUTCH_CONTEXT, else the current one. nil: there is none.
func findContext(name string) (*namedContext, error) {
	if name == "" {
		name = os.Getenv("HUTCH_CONTEXT")
	}
	file, err := readContexts()
	if err != nil {
		return nil, err
	}
	if name == "" {
		name = file.Current
	}
	if name == "" {
		return nil, nil
	}
	found, ok := file.Contexts[name]
	if !ok {
		return nil, newError("CONTEXT_NOT_FOUND", "there is no context %q: hutch context list shows those there are", name)
	}
	return &found, nil
}

func contextsPath() string {
	if folder := os.Getenv("XDG_CONFIG_HOME"); strings.HasPrefix(folder, "/") {
		return folder + "/hutch/contexts.json"
	}
	if home := os.Getenv("HOME"); strings.HasPrefix(home, "/") {
		return home + "/.config/hutch/contexts.json"
	}
	return ""
}

// readContexts is CONN-005 and CONN-006. A file that is missing is an empty one.
func readContexts() (*contextsFile, error) {
	path := contextsPath()
	if path == "" {
		return &contextsFile{}, nil
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return &contextsFile{}, nil
	}
	if err != nil {
		return nil, newError("CONTEXTS_FILE_INVALID", "%v", err)
	}
	defer file.Close()

	info, err := file.Stat()
	if err != nil {
		return nil, newError("CONTEXTS_FILE_INVALID", "%v", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, newError("CONTEXTS_FILE_EXPOSED", "others may read or write %s: chmod 600 it", path)
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, newError("CONTEXTS_FILE_INVALID", "%v", err)
	}
	read, err := parseContexts(data)
	if err != nil {
		return nil, newError("CONTEXTS_FILE_INVALID", "%s: %v", path, err)
	}
	return read, nil
}

func parseContexts(data []byte) (*contextsFile, error) {
	if err := checkKeys(json.NewDecoder(bytes.NewReader(data))); err != nil {
		return nil, err
	}
	read := &contextsFile{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(read); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("there is something after its end")
	}
	for name, entry := range read.Contexts {
		if refusal := rules.CheckName(name); refusal != nil {
			return nil, errors.New(name + ": " + refusal.Message)
		}
		if entry.Address == "" {
			return nil, errors.New(name + ": there is no address")
		}
		if (entry.CertificateFile == "") != (entry.KeyFile == "") {
			return nil, errors.New(name + ": certificate_file and key_file go together")
		}
	}
	return read, nil
}

// checkKeys reads one value and refuses what encoding/json lets pass: doubled keys, keys in another case, and null.
func checkKeys(decoder *json.Decoder) error {
	token, err := decoder.Token()
	if err != nil {
		return err
	}
	if _, isText := token.(string); isText {
		return nil
	}
	if token != json.Delim('{') {
		return fmt.Errorf("%v stands where a text or an object is meant", token)
	}
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string)
		if seen[key] || key != strings.ToLower(key) {
			return fmt.Errorf("the key %q is not known, or stands twice", key)
		}
		seen[key] = true
		if err := checkKeys(decoder); err != nil {
			return err
		}
	}
	_, err = decoder.Token()
	return err
}
