# SPDX-License-Identifier: Apache-2.0
"""Callers over TCP: TLS, certificates and tokens, who is let in, and what can be changed while the daemon runs."""

import contextlib
import signal
import socket
import ssl
import time

import grpc
import pytest
from host import PATIENCE
from hutchd import LIMIT, Refusal, refused, wait_until
from hutch.v1 import system_pb2
from remote import FAR, Certificates, RemoteClient, RemoteDaemon

INFO = system_pb2.GetInfoRequest()


@pytest.fixture(scope="module", name="certificates")
def make_certificates(tmp_path_factory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(name="make_remote")
def make_make_remote(certificates):
    """Makes daemons that end with the test; they are not begun."""
    daemons = []

    def make(listen: dict | None = None, **config) -> RemoteDaemon:
        daemons.append(RemoteDaemon(certificates, listen, **config))
        return daemons[-1]

    yield make
    for daemon in daemons:
        if daemon.process is None:
            daemon.wipe()
        else:
            daemon.finish()


def handshake(port: int, ca, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """Makes a connection of that version. Returns the server's certificate."""
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", port), LIMIT) as plain:
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted:
            return encrypted.getpeercert(binary_form=True)


@contextlib.contextmanager
def unreachable():
    """Expects that no connection comes about."""
    with pytest.raises(grpc.RpcError) as caught:
        yield
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE, caught.value


# ---- Who is let in ----


@pytest.mark.rules("AUTH-002", "AUTH-003")
def test_a_caller_with_a_token_is_known_by_its_name(make_remote):
    daemon = make_remote()
    token = daemon.tokens.add("ci")
    daemon.begin()
    info = daemon.remote(token).info()
    assert info.caller == "token:ci"
    assert not info.caller_is_admin
    assert daemon.info().caller == "uid:0"


@pytest.mark.rules("AUTH-003")
def test_what_is_no_good_token_is_refused(make_remote):
    daemon = make_remote()
    token = daemon.tokens.add("ci")
    other = daemon.tokens.add("other")
    short = daemon.tokens.add("short", expires=-1)
    daemon.begin()
    with refused("CREDENTIALS_MISSING"):
        daemon.remote().info()
    with refused("CREDENTIALS_EXPIRED"):
        daemon.remote(short).info()
    secret = token.rpartition("_")[2]
    for bad in (
        secret,
        token[:-1],
        token + "0",
        token.upper(),
        f"hutch_ci_{'0' * 64}",
        f"hutch_nobody_{secret}",
        f"hutch_other_{secret}",
        f"hutch__{secret}",
        other.replace("other", "ci"),
    ):
        with refused("CREDENTIALS_INVALID") as told:
            daemon.remote(bad).info()
        assert secret not in told.message
    assert secret not in daemon.log()
    assert daemon.remote(token).info().caller == "token:ci"


@pytest.mark.rules("AUTH-003")
def test_other_schemes_than_bearer_are_refused(make_remote):
    daemon = make_remote()
    token = daemon.tokens.add("ci")
    daemon.begin()
    client = daemon.remote()
    for header in (token, f"Basic {token}", "Bearer", f"Bearer{token}"):
        with refused("CREDENTIALS_INVALID"):
            client.system.GetInfo(INFO, timeout=LIMIT, metadata=[("authorization", header)])
    lower = client.system.GetInfo(INFO, timeout=LIMIT, metadata=[("authorization", f"bearer {token}")])
    assert lower.caller == "token:ci"


@pytest.mark.rules("AUTH-003", "AUTH-008")
def test_a_token_ends_at_once_also_on_open_connections(make_remote):
    daemon = make_remote()
    kept, revoked = daemon.tokens.add("kept"), daemon.tokens.add("revoked")
    daemon.begin()
    one, other = daemon.remote(kept), daemon.remote(revoked)
    assert other.info().caller == "token:revoked"
    watch, made = other.watch(), other.create()
    daemon.tokens.revoke("revoked")
    with refused("CREDENTIALS_INVALID"):
        other.info()
    assert watch.next().sandbox_id == made.id
    watch.close()
    assert one.info().caller == "token:kept"
    soon = daemon.remote(daemon.tokens.add("soon", expires=1 + 2 * PATIENCE))
    assert soon.info().caller == "token:soon"

    def has_expired():
        try:
            soon.info()
        except grpc.RpcError as error:
            return Refusal(error).reason == "CREDENTIALS_EXPIRED"
        return False

    wait_until(has_expired)


@pytest.mark.rules("AUTH-003")
def test_a_caller_with_a_certificate_is_known_by_its_subject(make_remote, certificates):
    wanted = {"client_certificates": "wanted", "client_ca": str(certificates.cert("ca"))}
    daemon = make_remote(certificates.server() | wanted)
    token = daemon.tokens.add("ci")
    daemon.begin()
    assert daemon.remote(certificate="alice").info().caller == "cert:CN=alice,O=Example"
    assert daemon.remote(token, "alice").info().caller == "token:ci"
    assert daemon.remote(token).info().caller == "token:ci"
    with refused("CREDENTIALS_MISSING"):
        daemon.remote().info()
    with refused("CREDENTIALS_INVALID"):
        daemon.remote("wrong", "alice").info()
    for name in ("stranger", "expired"):
        with unreachable():
            daemon.remote(certificate=name).info()


@pytest.mark.rules("AUTH-003", "AUTH-008")
def test_a_certificate_ends_also_on_open_connections(make_remote, certificates):
    wanted = {"client_certificates": "wanted", "client_ca": str(certificates.cert("ca"))}
    daemon = make_remote(certificates.server() | wanted)
    daemon.begin()
    certificates.make_short("short", 3 + 2 * PATIENCE)
    client, token = daemon.remote(certificate="short"), daemon.remote(daemon.tokens.add("ci"), "short")
    assert client.info().caller == "cert:CN=short" and token.info().caller == "token:ci"
    watch, made = client.watch(), client.create()

    def has_expired():
        try:
            client.info()
        except grpc.RpcError as error:
            return Refusal(error).reason == "CREDENTIALS_EXPIRED"
        return False

    wait_until(has_expired)
    assert watch.next().sandbox_id == made.id  # what is under way goes on
    watch.close()
    with refused("CREDENTIALS_EXPIRED"):
        token.info()


@pytest.mark.rules("AUTH-003")
def test_certificates_and_tokens_can_both_be_required(make_remote, certificates):
    required = {"client_certificates": "required", "client_ca": str(certificates.cert("ca"))}
    daemon = make_remote(certificates.server() | required | {"tokens": "required"})
    token = daemon.tokens.add("ci")
    daemon.begin()
    assert daemon.remote(token, "alice").info().caller == "token:ci"
    with refused("CREDENTIALS_MISSING"):
        daemon.remote(certificate="alice").info()
    with unreachable():
        daemon.remote(token).info()


def test_without_tokens_a_header_is_not_looked_at(make_remote, certificates):
    required = {"client_certificates": "required", "client_ca": str(certificates.cert("ca")), "tokens": "off"}
    daemon = make_remote(certificates.server() | required).begin()
    assert daemon.remote(f"hutch_root_{'0' * 64}", "bob").info().caller == "cert:CN=bob"


def test_admins_are_those_of_the_configuration(make_remote, certificates):
    wanted = {"client_certificates": "wanted", "client_ca": str(certificates.cert("ca"))}
    section = certificates.server() | wanted
    daemon = make_remote(section, admins=["token:boss", "cert:CN=alice,O=Example", "token:cert:CN=bob"])
    boss, ci = daemon.tokens.add("boss"), daemon.tokens.add("ci")
    daemon.begin()
    callers = [daemon.remote(boss), daemon.remote(ci), daemon.remote(None, "alice"), daemon.remote(None, "bob")]
    assert [caller.info().caller_is_admin for caller in callers] == [True, False, True, False]
    daemon.configure(section, admins=["token:ci"])
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: callers[1].info().caller_is_admin)
    assert [caller.info().caller_is_admin for caller in callers] == [False, True, False, False]
    assert daemon.info().caller_is_admin


def test_refusals_are_logged_with_their_address_but_not_all(make_remote):
    daemon = make_remote().begin()
    client = daemon.remote("wrong")
    begin = time.monotonic()
    for _ in range(50):
        with refused("CREDENTIALS_INVALID"):
            client.info()
    lines = [line for line in daemon.log().splitlines() if 'msg="caller refused"' in line]
    assert 1 <= len(lines) <= 1 + time.monotonic() - begin  # one in a second
    assert "address=127.0.0.1:" in lines[0] and "reason=CREDENTIALS_INVALID" in lines[0]


# ---- TLS ----


@pytest.mark.rules("AUTH-002")
def test_tls_is_1_3_unless_1_2_is_configured(make_remote, certificates):
    daemon = make_remote().begin()
    handshake(daemon.port, certificates.cert("ca"))
    with pytest.raises(ssl.SSLError):
        handshake(daemon.port, certificates.cert("ca"), ssl.TLSVersion.TLSv1_2)
    daemon.stop_daemon()
    daemon.configure(certificates.server() | {"tls12": True})
    daemon.begin()
    handshake(daemon.port, certificates.cert("ca"), ssl.TLSVersion.TLSv1_2)
    handshake(daemon.port, certificates.cert("ca"))


def test_a_client_that_trusts_others_does_not_connect(make_remote, certificates):
    daemon = make_remote()
    token = daemon.tokens.add("ci")
    daemon.begin()
    with unreachable():
        RemoteClient(daemon.port, certificates.credentials(ca="other-ca"), token).info()


@pytest.mark.rules("AUTH-002")
def test_clear_text_is_not_served(make_remote):
    daemon = make_remote()
    token = daemon.tokens.add("ci")
    daemon.begin()
    with unreachable():
        daemon.remote(token, tls=False).info()
    assert daemon.remote(token).info().caller == "token:ci"


@pytest.mark.rules("AUTH-002")
def test_insecure_listeners_serve_and_say_so(make_remote):
    daemon = make_remote({"insecure": True})
    token = daemon.tokens.add("ci")
    daemon.begin()
    assert daemon.remote(token, tls=False).info().caller == "token:ci"
    with refused("CREDENTIALS_MISSING"):
        daemon.remote(tls=False).info()
    assert 'msg="listen.insecure is set" clear_text=true anonymous=false' in daemon.log()
    daemon.stop_daemon()
    daemon.configure({"insecure": True, "tokens": "off"})
    daemon.begin()
    info = daemon.remote(tls=False).info()
    assert info.caller == "anonymous"
    assert not info.caller_is_admin
    assert 'msg="listen.insecure is set" clear_text=true anonymous=true' in daemon.log()


# ---- What is refused at the start ----


@pytest.mark.rules("AUTH-002")
@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ({"certificate": None, "key": None}, "without TLS all that is said can be read"),
        ({"tokens": "off"}, "both off: anybody could call"),
        ({"key": None}, "go together"),
        ({"client_certificates": "wanted"}, "needs listen.client_ca"),
        ({"client_ca": "CA"}, "has no use"),
        ({"tokens_file": "/nonexistent/tokens"}, "hutch token create"),
        ({"certificate": "/nonexistent.pem"}, "/nonexistent.pem"),
        ({"key": "CA"}, "has no key that can be used"),
        ({"key": "/nonexistent.key"}, "cannot read the key"),
        ({"key": "OTHER"}, "is not the one of the certificate"),
        ({"certificate": "/dev/null"}, "/dev/null"),
    ],
)
def test_a_listener_that_would_not_be_safe_is_refused(make_remote, certificates, listen, words):
    files = {"CA": str(certificates.cert("ca")), "OTHER": str(certificates.key("new-server"))}
    section = certificates.server() | {key: files.get(value, value) for key, value in listen.items()}
    daemon = make_remote({key: value for key, value in section.items() if value is not None})
    for arguments in (["--check-config"], []):
        ran = daemon.call(*arguments)
        assert ran.returncode == 1, ran
        assert words in ran.stderr
    assert not daemon.socket.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ci\n", "tokens:1: the line is not NAME SHA256 CREATED EXPIRES"),
        (f"# all\n\nci {'0' * 63} 2026-11-15T20:00:00Z -\n", "tokens:3: the line has no SHA-256"),
        (f"Ci {'0' * 64} 2026-11-15T20:00:00Z -\n", "tokens:1: the line has no name"),
        (f"ci {'0' * 64} today -\n", "tokens:1: the line has no time of creation"),
        (f"ci {'0' * 64} 2026-11-15T20:00:00Z never\n", "tokens:1: the line has no time of expiry"),
        (f"ci {'0' * 64} 2026-02-30T20:00:00Z -\n", "tokens:1: the line has no time of creation"),
        (f"ci {'0' * 64} 2026-11-15T20:00:00Z -\n" * 2, "the token ci is there twice"),
        ("ci \0\n", "contains NUL"),
    ],
)
def test_a_malformed_file_of_tokens_is_refused(make_remote, text, words):
    daemon = make_remote()
    daemon.tokens.path.write_text(text, encoding="ascii")
    for arguments in (["--check-config"], []):
        ran = daemon.call(*arguments)
        assert ran.returncode == 1, ran
        assert words in ran.stderr


def test_a_file_of_tokens_that_others_may_read_is_refused(make_remote):
    daemon = make_remote()
    daemon.tokens.path.chmod(0o640)
    ran = daemon.call("--check-config")
    assert ran.returncode == 1
    assert "must be for its owner only" in ran.stderr
    daemon.tokens.path.chmod(0o600)
    assert daemon.call("--check-config").returncode == 0


# ---- While it runs ----


def test_certificates_are_renewed_without_dropping_connections(make_remote, certificates):
    daemon = make_remote()
    client = daemon.tokens.add("ci")
    daemon.begin()
    before = handshake(daemon.port, certificates.cert("ca"))
    client = daemon.remote(client)
    watch = client.watch()
    daemon.configure(certificates.server("new-server"))
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: handshake(daemon.port, certificates.cert("ca")) != before)
    made = client.create()
    assert watch.next().sandbox_id == made.id
    watch.close()


@pytest.mark.parametrize("damage", ["missing", "other key", "unsafe"])
def test_bad_new_certificates_leave_the_old(make_remote, certificates, damage):
    daemon = make_remote()
    token = daemon.tokens.add("ci")
    daemon.begin()
    before = handshake(daemon.port, certificates.cert("ca"))
    section = certificates.server() | {
        "missing": {"certificate": "/nonexistent.pem"},
        "other key": {"key": str(certificates.key("new-server"))},
        "unsafe": {"client_ca": str(certificates.cert("ca"))},
    }[damage]
    daemon.configure(section)
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: 'msg="certificates not read again"' in daemon.log())
    assert handshake(daemon.port, certificates.cert("ca")) == before
    assert daemon.remote(token).info().caller == "token:ci"


def test_client_certificates_can_be_required_while_it_runs(make_remote, certificates):
    daemon = make_remote()
    token = daemon.tokens.add("ci")
    daemon.begin()
    early = daemon.remote(token)
    early.info()
    required = {"client_certificates": "required", "client_ca": str(certificates.cert("ca"))}
    daemon.configure(certificates.server() | required)
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: 'msg="configuration read again"' in daemon.log())
    with refused("CREDENTIALS_MISSING"):
        early.info()
    assert daemon.remote(token, "alice").info().caller == "token:ci"


def test_what_is_read_at_the_start_only_stays(make_remote, certificates):
    daemon = make_remote()
    token = daemon.tokens.add("ci")
    daemon.begin()
    daemon.configure({"insecure": True, "tokens": "off", **certificates.server()})
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: 'msg="configuration read again"' in daemon.log())
    assert 'keys="listen.tokens, listen.insecure"' in daemon.log()
    with refused("CREDENTIALS_MISSING"):
        daemon.remote().info()
    assert daemon.remote(token).info().caller == "token:ci"


def test_a_bad_new_file_of_tokens_leaves_the_old(make_remote):
    daemon = make_remote()
    token = daemon.tokens.add("ci")
    daemon.begin()
    client = daemon.remote(token)
    client.info()
    daemon.tokens.path.write_text("nonsense\n", encoding="ascii")
    for _ in range(3):
        assert client.info().caller == "token:ci"
    assert daemon.log().count('msg="tokens not read again"') == 1
    assert "tokens:1: the line is not NAME" in daemon.log()
    daemon.tokens.revoke("ci")
    with refused("CREDENTIALS_INVALID"):
        client.info()


def test_a_file_of_tokens_that_is_gone_has_none(make_remote):
    daemon = make_remote()
    daemon.begin()
    client = daemon.remote(daemon.tokens.add("ci"))
    assert client.info().caller == "token:ci"
    daemon.tokens.path.unlink()
    with refused("CREDENTIALS_INVALID"):
        client.info()


def test_tokens_are_read_again_on_sighup(make_remote):
    daemon = make_remote()
    daemon.tokens.add("ci", expires=FAR)
    daemon.begin()
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: 'msg="tokens read" tokens=1' in daemon.log())


def test_sandboxes_work_over_tls(make_remote):
    daemon = make_remote()
    token = daemon.tokens.add("ci")
    daemon.begin()
    client = daemon.remote(token)
    made = client.ready()
    assert client.get(made).owner == "token:ci"
    assert client.shell(made, "echo from afar") == "from afar\n"
