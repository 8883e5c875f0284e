# SPDX-License-Identifier: Apache-2.0
"""hutch and daemons elsewhere: TLS, tokens and contexts."""

import json
import re
import signal

import pytest
from commandline import Hutch
from hutchd import wait_until
from remote import Certificates, RemoteDaemon

TOKEN = re.compile(r"hutch_ci_[0-9a-f]{64}\n")


@pytest.fixture(scope="module", name="certificates")
def make_certificates(tmp_path_factory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", name="daemon")
def start_remote_daemon(certificates):
    wanted = {"client_certificates": "wanted", "client_ca": str(certificates.cert("ca"))}
    daemon = RemoteDaemon(certificates, certificates.server() | wanted)
    daemon.begin()
    yield daemon
    daemon.finish()


@pytest.fixture(name="hutch")
def make_hutch(tmp_path):
    """The command line of somebody who has nothing configured."""
    return Hutch(XDG_CONFIG_HOME=str(tmp_path / "config"), HUTCH_STATE=str(tmp_path / "state"))


@pytest.fixture(name="token")
def make_token(daemon, hutch):
    """A file with a good token."""
    token = hutch.ok("token", "create", "ci", "--file", str(daemon.tokens.path))
    yield token
    hutch.ok("token", "revoke", "ci", "--file", str(daemon.tokens.path))


@pytest.fixture(name="options")
def make_options(daemon, certificates, token, tmp_path):
    """Of a call with all that it takes."""
    file = tmp_path / "token"
    file.write_text(token, encoding="ascii")
    return [f"--address=127.0.0.1:{daemon.port}", f"--ca={certificates.cert('ca')}", f"--token-file={file}"]


# ---- Tokens ----


def test_tokens_are_created_listed_and_revoked(hutch, tmp_path):
    token = hutch.ok("token", "create", "ci")
    assert TOKEN.fullmatch(token)
    file = tmp_path / "state/tokens"
    assert file.stat().st_mode & 0o777 == 0o600
    assert token.strip().rpartition("_")[2] not in file.read_text(encoding="ascii")
    hutch.ok("token", "create", "soon", "--expires", "1h")
    lines = [line.split() for line in hutch.ok("token", "list").splitlines()]
    assert [line[0] for line in lines] == ["NAME", "ci", "soon"]
    assert lines[1][2] == "never"
    assert lines[2][2].startswith("2")
    assert "there is a token 'ci' already" in hutch.refused("token", "create", "ci")
    hutch.ok("token", "revoke", "ci")
    assert "there is no token 'ci'" in hutch.refused("token", "revoke", "ci")
    assert [line.split()[0] for line in hutch.ok("token", "list").splitlines()] == ["NAME", "soon"]
    assert hutch.ok("token", "create", "ci") != token


def test_tokens_are_where_the_daemon_is_configured_to_read_them(hutch, tmp_path):
    config = tmp_path / "hutchd.yaml"
    hutch.env["HUTCH_CONFIG"] = str(config)
    config.write_text(f"listen:\n  tokens_file: {tmp_path}/etc/callers\n", encoding="utf-8")
    hutch.ok("token", "create", "ci")
    assert "\nci " in (tmp_path / "etc/callers").read_text(encoding="ascii")

    del hutch.env["HUTCH_STATE"]
    config.write_text(f"state: {tmp_path}/other\n", encoding="utf-8")
    hutch.ok("token", "create", "ci")
    assert (tmp_path / "other/tokens").exists()

    config.write_text("nosuch: 1\n", encoding="utf-8")
    ended = hutch("token", "list")
    assert (ended.code, ended.out) == (1, "")
    assert "hutchd.yaml:1: nosuch" in ended.err and "--file" in ended.err


@pytest.mark.parametrize("name", ["CI", "a_b", "-a", "a-", "", "x" * 64])
def test_a_name_that_is_none_is_refused(hutch, name):
    assert "is no name" in hutch.refused("token", "create", "--", name, code=2)
    assert "is no name" in hutch.refused("context", "add", "--address", "a:1", "--", name, code=2)


def test_a_file_of_tokens_that_is_damaged_is_left_alone(hutch, tmp_path):
    file = tmp_path / "tokens"
    file.write_text("nonsense\n", encoding="ascii")
    file.chmod(0o600)
    for command in (["create", "ci"], ["list"], ["revoke", "ci"]):
        assert "tokens:1: the line is not NAME" in hutch.refused("token", *command, "--file", str(file))
    file.chmod(0o644)
    assert "must be for its owner only" in hutch.refused("token", "create", "ci", "--file", str(file))
    assert file.read_text(encoding="ascii") == "nonsense\n"


def test_tokens_made_at_once_are_all_there(hutch, tmp_path):
    processes = [hutch.start("token", "create", f"t{i}") for i in range(12)]
    assert [process.wait() for process in processes] == [0] * 12
    for process in processes:
        process.stdout.close()
        process.stderr.close()
    assert len((tmp_path / "state/tokens").read_text(encoding="ascii").splitlines()) == 13


# ---- Calls ----


def test_commands_work_over_tls(hutch, options, tmp_path):
    assert hutch.ok(*options, "run", "echo", "from afar") == "from afar\n"
    assert hutch("run", *options, "--", "sh", "-c", "cat; exit 3", stdin=b"input").bytes == b"input"
    sandbox = hutch.ok(*options, "create", "--wait").strip()
    data = bytes(range(256)) * 4096
    (tmp_path / "there").write_bytes(data)
    hutch.ok(*options, "cp", "-q", str(tmp_path / "there"), f"{sandbox}:/workspace/file")
    hutch.ok(*options, "cp", "-q", f"{sandbox}:/workspace/file", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == data
    assert hutch.ok(*options, "exec", sandbox, "wc", "-c", "file") == f"{len(data)} file\n"
    assert f"127.0.0.1:{options[0].rpartition(':')[2]}" in hutch.ok(*options, "info")
    assert "token:ci" in hutch.ok(*options, "info")
    hutch.ok(*options, "delete", sandbox)


def test_a_certificate_is_enough(hutch, daemon, certificates):
    names = [f"--cert={certificates.cert('alice')}", f"--key={certificates.key('alice')}"]
    address = [f"--address=127.0.0.1:{daemon.port}", f"--ca={certificates.cert('ca')}"]
    assert "cert:CN=alice,O=Example" in hutch.ok(*address, *names, "info")


def test_what_is_wrong_with_a_connection_is_told(hutch, options, certificates, tmp_path):
    address, ca, _ = options
    assert "bearer token" in hutch.refused(address, ca, "info")
    (tmp_path / "bad").write_text("hutch_ci_0\n", encoding="ascii")
    assert "none of this daemon's" in hutch.refused(address, ca, f"--token-file={tmp_path / 'bad'}", "info")
    (tmp_path / "bad").write_text("two words\n", encoding="ascii")
    assert "has no token" in hutch.refused(address, ca, f"--token-file={tmp_path / 'bad'}", "info")
    assert "cannot read" in hutch.refused(address, ca, "--token-file=/nonexistent", "info")
    assert "/nonexistent" in hutch.refused(address, "--ca=/nonexistent", "info")
    other = f"--ca={certificates.cert('other-ca')}"
    assert "certificate" in hutch.refused(address, other, "list")
    assert "certificate" in hutch.refused(*options, "--server-name=elsewhere.test", "list")
    assert "must be given together" in hutch.refused(*options, f"--cert={certificates.cert('alice')}", "info")
    assert "exclude each other" in hutch.refused(address, "--context=a", "info", code=2)


# ---- The environment ----


def test_the_environment_names_the_daemon_and_its_token(hutch, options, token):
    address, ca, _ = (option.partition("=")[2] for option in options)
    hutch.env |= {"HUTCH_ADDRESS": address, "HUTCH_CA_FILE": ca, "HUTCH_TOKEN": token.strip()}
    assert hutch.ok("run", "echo", "hi") == "hi\n"
    # An address of the caller's comes before the environment's.
    assert "127.0.0.1:1" in hutch.refused("--address=127.0.0.1:1", "daemon", "status", code=2)


# ---- Contexts ----


def test_contexts_are_added_used_and_removed(hutch, options, token, tmp_path):
    address, ca, _ = options
    file = tmp_path / "config/hutch/contexts.json"
    hutch.ok("context", "add", "prod", address, ca, "--token-stdin", stdin=token.encode())
    hutch.ok("context", "add", "other", "--address=example.test:1")
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text(encoding="utf-8")) == {
        "contexts": {
            "prod": {"address": address[10:], "ca_file": ca[5:], "token": token.strip()},
            "other": {"address": "example.test:1"},
        }
    }
    assert hutch.ok("--context=prod", "run", "echo", "hi") == "hi\n"
    hutch.ok("context", "use", "prod")
    assert "token:ci" in hutch.ok("info")
    assert hutch.ok("run", "echo", "hi") == "hi\n"
    listed = [line.split() for line in hutch.ok("context", "list").splitlines()]
    assert listed == [["CURRENT", "NAME", "ADDRESS"], ["*", "prod", address[10:]], ["other", "example.test:1"]]
    shown = hutch.ok("context", "show")
    assert address[10:] in shown and token.strip() not in shown
    assert "example.test:1" in hutch.ok("context", "show", "other")
    assert "there is a context 'prod' already" in hutch.refused("context", "add", "prod", address)
    hutch.env["HUTCH_CONTEXT"] = "gone"
    assert "there is no context 'gone'" in hutch.refused("info")
    del hutch.env["HUTCH_CONTEXT"]
    hutch.ok("context", "remove", "prod")
    assert "there is no context 'prod'" in hutch.refused("--context=prod", "info")
    assert "no context is used" in hutch.ok("context", "show")


def test_a_socket_of_the_environment_comes_before_the_current_context(hutch, daemon):
    hutch.ok("context", "add", "other", "--address=127.0.0.1:1")
    hutch.ok("context", "use", "other")
    hutch.env["HUTCH_SOCKET"] = str(daemon.socket)
    assert "uid:0" in hutch.ok("info")
    del hutch.env["HUTCH_SOCKET"]
    assert "uid:0" in hutch.ok(f"--socket={daemon.socket}", "info")
    hutch.ok("context", "use")
    assert "CURRENT" in hutch.ok("context", "list") and "*" not in hutch.ok("context", "list")


def test_a_context_is_checked_before_it_is_kept(hutch, certificates, tmp_path):
    for wrong, words in (
        (["--address=nonsense"], "address"),
        (["--address=a:1", "--ca=/nonexistent"], "--ca /nonexistent"),
        (["--address=a:1", f"--cert={certificates.cert('alice')}"], "must be given together"),
        (["--address=a:1", f"--ca={certificates.key('alice')}"], "alice.key"),
    ):
        assert words in hutch.refused("context", "add", "bad", *wrong)
    assert "--address is needed" in hutch.refused("context", "add", "bad", code=2)
    assert "has no token" in hutch.refused("context", "add", "bad", "--address=a:1", "--token-stdin")
    assert not (tmp_path / "config/hutch/contexts.json").exists()


def test_a_contexts_file_that_is_not_right_is_not_used(hutch, tmp_path):
    hutch.ok("context", "add", "prod", "--address=a:1")
    file = tmp_path / "config/hutch/contexts.json"
    file.chmod(0o640)
    for command in (["info"], ["context", "list"], ["--context=prod", "info"]):
        assert "must be for its owner only" in hutch.refused(*command)
    file.chmod(0o600)
    file.write_text('{"contexts": {"prod": {"address": "a:1", "adress": "b:1"}}}', encoding="ascii")
    for command in (["info"], ["context", "use", "prod"]):
        assert "adress is no key of a context" in hutch.refused(*command)


def test_contexts_are_completed(hutch):
    hutch.ok("context", "add", "prod", "--address=a:1")
    for words in (["context", "use", "p"], ["info", "--context", "p"]):
        assert hutch.ok("__complete", "--", *words).startswith("prod\t"), words


def test_a_revoked_token_is_refused_by_a_daemon_that_was_told_nothing(hutch, daemon, options):
    path = str(daemon.tokens.path)
    hutch.ok("token", "create", "brief", "--file", path)
    assert "token:ci" in hutch.ok(*options, "info")
    hutch.ok("token", "revoke", "ci", "--file", path)
    assert "none of this daemon's" in hutch.refused(*options, "info")
    hutch.ok("token", "create", "ci", "--file", path)
    hutch.ok("token", "revoke", "brief", "--file", path)
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: 'msg="configuration read again"' in daemon.log())
