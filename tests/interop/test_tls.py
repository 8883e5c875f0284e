# SPDX-License-Identifier: Apache-2.0
"""TLS: official clients that should get through do, and those that should not are told why, at once."""

import re
import socket
import ssl

import pytest
from interop import CLIENTS, LIMIT, Tls, run_client

pytestmark = pytest.mark.usefixtures("go_clients")

# A few cases of every kind; the rest does not depend on what carries it.
CASES = ["empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "custom_metadata"]


@pytest.fixture(scope="session", name="tls_servers")
def start_tls_servers(start_server, certificates):
    client_ca = ["--client-ca", certificates.cert("ca")]
    return {
        "tls": start_server(*certificates.server()),
        "wants": start_server(*certificates.server(), *client_ca),
        "requires": start_server(*certificates.server(), *client_ca, "--require-client-cert"),
        "expired": start_server(*certificates.server("expired-server")),
        "misnamed": start_server(*certificates.server("misnamed-server")),
    }


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("client", CLIENTS)
def test_case_over_tls(tls_servers, certificates, client, case):
    assert run_client(client, tls_servers["tls"].address, case, certificates.client()) == ""


@pytest.mark.parametrize("name", [None, "client"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_wanted_client_certificate_may_be_shown(tls_servers, certificates, client, name):
    assert run_client(client, tls_servers["wants"].address, "large_unary", certificates.client(name)) == ""


@pytest.mark.parametrize("client", CLIENTS)
def test_a_required_client_certificate_lets_in(tls_servers, certificates, client):
    assert run_client(client, tls_servers["requires"].address, "large_unary", certificates.client("client")) == ""


# What the clients say when they do not trust the server, each in its own words.
DISTRUST = {
    "unknown authority": {
        "go": "certificate signed by unknown authority",
        "python": "CERTIFICATE_VERIFY_FAILED",
        "node": "unable to verify the first certificate|unable to get local issuer certificate",
    },
    "expired": {
        "go": "certificate has expired",
        "python": "CERTIFICATE_VERIFY_FAILED",
        "node": "certificate has expired",
    },
    "misnamed": {
        "go": "doesn't contain any IP SANs|cannot validate certificate for 127.0.0.1",
        "python": "Hostname Verification Check failed|not in peer certificate",
        "node": "does not match certificate's altnames|is not in the cert's list",
    },
}


@pytest.mark.parametrize("why", DISTRUST)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_distrusts_the_server_says_why(tls_servers, certificates, client, why):
    server = tls_servers["tls" if why == "unknown authority" else why]
    tls = certificates.client(ca="other-ca" if why == "unknown authority" else "ca")
    assert re.search(DISTRUST[why][client], run_client(client, server.address, "empty_unary", tls))


# What the server says when it does not trust the client, and what the client hears. Some clients do not show a
# certificate that the server has not asked for.
REFUSED = {
    None: ("TLS_CERTIFICATE_REQUIRED", "certificate[ _]required"),
    "stranger": ("TLS_CERTIFICATE_(UNTRUSTED|REQUIRED)", "unknown[ _]ca|certificate[ _]required"),
    "expired-client": ("TLS_CERTIFICATE_EXPIRED", "expired"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_without_a_good_certificate_is_told_so(tls_servers, certificates, client, name):
    server, (said, heard) = tls_servers["requires"], REFUSED[name]
    before = len(server.complaints())
    assert re.search(heard, run_client(client, server.address, "empty_unary", certificates.client(name)), re.IGNORECASE)
    server.wait_for_complaint(said, before)


@pytest.mark.parametrize("client", CLIENTS)
def test_plaintext_to_a_tls_port_is_refused(tls_servers, client):
    server = tls_servers["tls"]
    before = len(server.complaints())
    assert "unavailable" in run_client(client, server.address, "empty_unary").lower()
    server.wait_for_complaint("TLS_PLAINTEXT", before)


@pytest.mark.parametrize("client", CLIENTS)
def test_tls_to_a_plaintext_port_is_refused(servers, certificates, client):
    said = run_client(client, servers["tcp"].address, "empty_unary", certificates.client())
    assert "unavailable" in said.lower()


def handshake(server, tls: Tls, alpn: tuple[str, ...] = ("h2",), **versions: ssl.TLSVersion) -> ssl.SSLSocket:
    """TLS by Python's own library, which does what it is told."""
    context = ssl.create_default_context(cafile=tls.ca)
    for name, version in versions.items():
        setattr(context, name, version)
    context.set_alpn_protocols(list(alpn))
    return context.wrap_socket(server.connect(), server_hostname="127.0.0.1")


def test_only_tls_1_3_is_spoken(tls_servers, certificates):
    with handshake(tls_servers["tls"], certificates.client()) as connection:
        assert (connection.version(), connection.selected_alpn_protocol()) == ("TLSv1.3", "h2")
    with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
        handshake(tls_servers["tls"], certificates.client(), maximum_version=ssl.TLSVersion.TLSv1_2)


@pytest.mark.parametrize("alpn", [(), ("http/1.1",)])
def test_only_http_2_is_spoken(tls_servers, certificates, alpn):
    with pytest.raises((ssl.SSLError, ConnectionError)):
        with handshake(tls_servers["tls"], certificates.client(), alpn) as connection:
            connection.settimeout(LIMIT)
            connection.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            while connection.recv(1000):
                pass
            raise ConnectionError("closed")


def test_a_handshake_may_be_dropped_anywhere(tls_servers, certificates):
    """The client's first flight, cut short at every byte; then a proper client is served."""
    server = tls_servers["tls"]
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=certificates.cert("ca"))
    context.set_alpn_protocols(["h2"])
    try:
        context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
    except ssl.SSLWantReadError:
        pass
    hello = outgoing.read()

    for cut in range(len(hello) + 1):
        with server.connect() as connection:
            connection.sendall(hello[:cut])
    server.wait_for_quiet()
    with handshake(server, certificates.client()) as connection:
        assert connection.version() == "TLSv1.3"


def test_garbage_in_place_of_a_handshake_is_refused(tls_servers):
    for garbage in b"\0" * 100, b"\x16\x03\x01\xff\xff" + b"\xff" * 100, b"GET / HTTP/1.1\r\n\r\n":
        with tls_servers["tls"].connect() as connection:
            connection.settimeout(LIMIT)
            connection.sendall(garbage)
            connection.shutdown(socket.SHUT_WR)
            try:
                while connection.recv(1000):
                    pass
            except ConnectionError:
                pass
