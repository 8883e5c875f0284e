# SPDX-License-Identifier: Apache-2.0
"""Which daemon is meant, and how it is connected to."""

import json
import os
from pathlib import Path

import pytest

from hutch import Client, HutchError
from hutch._connection import Endpoint, Options, find_endpoint

ROOT_SOCKET = "/run/hutch/hutchd.sock"


def find(environ: dict | None = None, **options) -> Endpoint:
    return find_endpoint(Options(**options), {"HOME": "/nonexistent"} | (environ or {}))


def refused(reason: str, environ: dict | None = None, **options) -> str:
    with pytest.raises(HutchError) as told:
        find(environ, **options)
    assert told.value.reason == reason
    return str(told.value)


@pytest.fixture(name="contexts")
def make_contexts(tmp_path):
    """Writes a contexts file, and gives the environment that names it."""

    def write(text, mode: int = 0o600) -> dict:
        folder = tmp_path / "hutch"
        folder.mkdir(exist_ok=True)
        file = folder / "contexts.json"
        file.write_text(text if isinstance(text, str) else json.dumps(text))
        file.chmod(mode)
        return {"XDG_CONFIG_HOME": str(tmp_path)}

    return write


PROD = {"address": "prod.test:7443", "ca_file": "/ca", "server_name": "inside.test", "token": "of-context"}


@pytest.mark.rules("CONN-001")
def test_the_daemon_is_looked_up_in_order(contexts, monkeypatch):
    environ = contexts({"current": "prod", "contexts": {"prod": PROD, "other": {"address": "unix:/other"}}})
    everything = environ | {"HUTCH_ADDRESS": "unix:/a", "HUTCH_SOCKET": "/s", "HUTCH_CONTEXT": "other"}
    assert find(everything, address="unix:/given").target == "unix:/given"
    assert find(everything, context="prod").target == "dns:///prod.test:7443"
    assert find(everything).target == "unix:/a"
    assert find(everything | {"HUTCH_ADDRESS": ""}).target == "unix:/s"
    assert find(everything | {"HUTCH_ADDRESS": "", "HUTCH_SOCKET": ""}).target == "unix:/other"
    assert find(environ).target == "dns:///prod.test:7443"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert find().target == f"unix:{ROOT_SOCKET}"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert find({"XDG_RUNTIME_DIR": "/nonexistent"}).target == "unix:/nonexistent/hutch/hutchd.sock"
    refused("FIELD_CONFLICT", address="unix:/a", context="prod")


USER = 12345


@pytest.fixture(name="places")
def make_places(tmp_path, monkeypatch):
    """Folders in the place of /run/user and /tmp, for a user who is not root."""
    monkeypatch.setattr("hutch._connection._SESSIONS", str(tmp_path / "sessions"))
    monkeypatch.setattr("hutch._connection._SHARED", str(tmp_path / "shared"))
    monkeypatch.setattr(os, "geteuid", lambda: USER)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    made = os.mkdir
    monkeypatch.setattr(os, "mkdir", lambda path, mode: (made(path, mode), os.chown(path, USER, USER)))
    for name in ("sessions", "shared", "named"):
        made(tmp_path / name)
    return tmp_path


@pytest.mark.rules("CONN-001")
def test_a_user_without_a_runtime_folder_has_a_socket(places):
    own, named = places / f"shared/hutch-{USER}", places / "named"
    for value in ("", "relative", str(named)):  # that one is root's, as after su
        assert find({"XDG_RUNTIME_DIR": value}).target == f"unix:{own}/hutchd.sock"
    assert find().target == f"unix:{own}/hutchd.sock"
    assert own.stat().st_mode & 0o7777 == 0o700
    os.chown(named, USER, USER)
    assert find({"XDG_RUNTIME_DIR": str(named)}).target == f"unix:{named}/hutch/hutchd.sock"

    session = places / f"sessions/{USER}"
    os.mkdir(session, 0o700)
    assert find().target == f"unix:{session}/hutch/hutchd.sock"
    os.chmod(session, 0o722)
    assert find().target == f"unix:{own}/hutchd.sock"
    os.chmod(session, 0o700)
    os.chown(session, 0, 0)
    assert find().target == f"unix:{own}/hutchd.sock"


@pytest.mark.rules("CONN-010")
def test_a_daemon_in_a_folder_of_somebody_elses_is_not_connected_to(places):
    own = places / f"shared/hutch-{USER}"
    os.mkdir(own, 0o700)
    for mode in (0o710, 0o701, 0o720, 0o702):
        own.chmod(mode)
        assert f"mode {mode:04o}" in refused("FILE_PERMISSION")
    own.chmod(0o700)
    os.chown(own, 0, 0)
    words = refused("FILE_PERMISSION")
    assert "owner 0" in words and "XDG_RUNTIME_DIR" in words
    with pytest.raises(HutchError) as told, Client(start_daemon=False) as client:
        client.list()
    assert told.value.code == "PERMISSION_DENIED"

    own.rmdir()
    own.symlink_to(places / "named")
    refused("FILE_PERMISSION")
    own.unlink()
    own.touch(0o600)
    refused("FILE_PERMISSION")
    (places / "shared").rename(places / "gone")
    assert "cannot make" in refused("FILE_PERMISSION")


@pytest.mark.rules("CONN-002")
@pytest.mark.parametrize(
    "address, target",
    [
        ("unix:/run/x.sock", "unix:/run/x.sock"),
        ("host.test:7443", "dns:///host.test:7443"),
        ("dns:host.test:7443", "dns:///host.test:7443"),
        ("dns:///host.test:7443", "dns:///host.test:7443"),
        ("127.0.0.1:1", "dns:///127.0.0.1:1"),
        ("[::1]:65535", "dns:///[::1]:65535"),
    ],
)
def test_addresses_are_read(address, target):
    assert find(address=address).target == target


@pytest.mark.rules("CONN-002")
@pytest.mark.parametrize(
    "address",
    "host|host:|:1|host:0|host:65536|host:1:2|::1:5|unix:relative|unix:|https://h:1|h:1/|a b:1".split("|"),
)
def test_other_addresses_are_refused(address):
    refused("ADDRESS_MALFORMED", address=address)


def test_tcp_is_tls_unless_asked_otherwise():
    assert find(address="host:1").tls
    assert not find(address="host:1", insecure=True).tls
    assert not find(address="unix:/x").tls


@pytest.mark.rules("AUTH-004")
def test_a_token_is_not_sent_in_clear_text():
    refused("TOKEN_IN_CLEAR_TEXT", address="host:1", insecure=True, token="secret")
    refused("TOKEN_IN_CLEAR_TEXT", address="host:1", insecure=True, token=lambda: "secret")
    refused("TOKEN_IN_CLEAR_TEXT", {"HUTCH_TOKEN": "secret"}, address="host:1", insecure=True)
    allowed = find(address="host:1", insecure=True, token="secret", token_in_clear_text=True)
    assert (allowed.token, allowed.tls) == ("secret", False)
    with pytest.raises(HutchError) as told:
        Client("host:1", insecure=True, token="secret")
    assert told.value.code == "FAILED_PRECONDITION"


@pytest.mark.rules("CONN-004")
def test_credentials_come_from_the_environment_for_its_address(contexts):
    environ = {
        "HUTCH_TOKEN": "t",
        "HUTCH_CA_FILE": "/ca",
        "HUTCH_CERTIFICATE_FILE": "/cert",
        "HUTCH_KEY_FILE": "/key",
    }
    for found in (find(environ, address="host:1"), find(environ | {"HUTCH_ADDRESS": "host:1"})):
        assert (found.token, found.ca_file, found.certificate_file, found.key_file) == ("t", "/ca", "/cert", "/key")
    own = find(environ, address="host:1", token="mine", ca_file="/mine", certificate_file="/c", key_file="/k")
    assert (own.token, own.ca_file, own.certificate_file, own.key_file) == ("mine", "/mine", "/c", "/k")
    found = find(environ | contexts({"contexts": {"one": {"address": "host:1"}}}), context="one")
    assert (found.token, found.ca_file, found.certificate_file) == ("", "", "")
    del environ["HUTCH_KEY_FILE"]
    refused("FIELD_CONFLICT", environ, address="host:1")
    refused("FIELD_CONFLICT", address="host:1", key_file="/key")


@pytest.mark.rules("CONN-005")
def test_a_context_has_all_that_a_connection_needs(contexts):
    environ = contexts({"contexts": {"prod": PROD}})
    found = find(environ, context="prod", insecure=True)
    assert (found.tls, found.ca_file, found.server_name, found.token) == (True, "/ca", "inside.test", "of-context")
    assert find(environ, context="prod", token="mine", ca_file="/mine").token == "mine"
    refused("CONTEXTS_FILE_INVALID", contexts("not JSON"), context="prod")
    contexts("not JSON")
    assert find(environ, address="unix:/x").target == "unix:/x"  # it is not read


@pytest.mark.rules("CONN-006")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"extra": 1}',
        '{"current": 1}',
        '{"contexts": []}',
        '{"contexts": {"a": {}}}',
        '{"contexts": {"A": {"address": "h:1"}}}',
        '{"contexts": {"a": {"address": 1}}}',
        '{"contexts": {"a": {"address": "h:1", "user": "x"}}}',
        '{"contexts": {"a": {"address": "h:1", "key_file": "/k"}}}',
        '{"contexts": {"a": {"address": "h:1"}, "a": {"address": "h:2"}}}',
        '{"contexts": {"a": {"address": "h:1", "address": "h:2"}}}',
    ],
)
def test_a_contexts_file_that_is_wrong_is_refused(contexts, text):
    refused("CONTEXTS_FILE_INVALID", contexts(text), context="a")


@pytest.mark.rules("CONN-006")
def test_a_contexts_file_that_others_may_read_is_not_read(contexts):
    text = {"current": "gone", "contexts": {"prod": PROD}}
    for mode in (0o640, 0o604, 0o620, 0o602):
        assert "may read or write" in refused("CONTEXTS_FILE_EXPOSED", contexts(text, mode), context="prod")
    environ = contexts(text)
    refused("CONTEXT_NOT_FOUND", environ, context="other")
    refused("CONTEXT_NOT_FOUND", environ)
    refused("CONTEXT_NOT_FOUND", environ | {"HUTCH_CONTEXT": "other"})
    refused("CONTEXT_NOT_FOUND", context="other")


@pytest.mark.rules("CONN-008")
def test_a_daemon_is_started_only_where_nothing_was_named(contexts):
    assert find({"HUTCH_SOCKET": "/s"}).start_daemon
    assert not find({"HUTCH_ADDRESS": "unix:/s"}).start_daemon
    assert not find(address="unix:/s").start_daemon
    assert find(address="unix:/s", start_daemon=True).start_daemon
    assert not find({"HUTCH_SOCKET": "/s"}, start_daemon=False).start_daemon
    assert not find(address="host:1", start_daemon=True).start_daemon


@pytest.mark.rules("CONN-009")
def test_the_user_agent_names_the_library():
    options = dict(find(address="unix:/x").channel_options())
    assert str(options["grpc.primary_user_agent"]).startswith("hutch-python/")


def test_files_that_cannot_be_read_are_told(tmp_path: Path):
    endpoint = find(address="host:1", ca_file=str(tmp_path / "none"))
    with pytest.raises(HutchError, match="cannot read"):
        endpoint.credentials()
