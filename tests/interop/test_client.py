# SPDX-License-Identifier: Apache-2.0
"""The public interoperability cases of gRPC, run by our client against official servers, and against ours."""

import itertools
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import hpack
import pytest
from http2 import PREFACE, Kind
from interop import CASES, HERE, LIMIT, MADE, ROOT, SERVER, Relay, Tls

CLIENT = Path(os.environ.get("HUTCH_INTEROP_CLIENT", ROOT / "build/gcc/tests/interop/interop-client"))
OWN = "own"


class Program:
    """A server in a process of its own."""

    def __init__(self, command: list, log: Path) -> None:
        self.log = log
        env = os.environ | {"GRPC_GO_LOG_SEVERITY_LEVEL": "info"}  # without it grpc-go's does not say where it listens
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT)
        try:
            self.address = self.wait_for_address()
        except BaseException:
            self.kill()
            raise

    def wait_for_address(self) -> str:
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline and self.process.poll() is None:
            if listening := re.search(r"listening on (\S+)\n", self.log.read_text(encoding="utf-8")):
                return listening[1].replace("[::]", "127.0.0.1")
            time.sleep(0.01)
        raise RuntimeError(f"the server does not listen: {self.log.read_text(encoding='utf-8')}")

    def connect(self) -> socket.socket:
        host, port = self.address.split(":")
        return socket.create_connection((host, int(port)), timeout=LIMIT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def own_server(arguments: list) -> list:
    return [SERVER, *arguments]


def python_server(arguments: list) -> list:
    return [sys.executable, HERE / "python_server.py", *arguments]


def go_server(arguments: list) -> list:
    """grpc-go's own interop server, which has no Unix sockets and asks no client for a certificate."""
    names = {"--port": "--port", "--cert": "--tls_cert_file", "--key": "--tls_key_file"}
    pairs = zip(arguments[::2], arguments[1::2])
    return [MADE / "server", *(f"{names[name]}={value}" for name, value in pairs), f"--use_tls={'--cert' in arguments}"]


SERVERS = {OWN: own_server, "python": python_server, "go": go_server}
MUTUAL = [OWN, "python"]  # that can ask clients for certificates
TRANSPORTS = [(server, "tcp") for server in SERVERS] + [(OWN, "unix"), ("python", "unix")]

# Cases that a server as it is published cannot pass: grpc-go's interop server has no compression at all, and grpcio
# does not tell its users whether a message was compressed, so that a false claim of that goes unnoticed.
REQUESTS_COMPRESSED = ["client_compressed_unary", "client_compressed_streaming"]
UNSUPPORTED = {
    OWN: [],
    "python": REQUESTS_COMPRESSED,
    "go": [*REQUESTS_COMPRESSED, "server_compressed_unary", "server_compressed_streaming"],
}


@pytest.fixture(scope="session", name="start")
def make_start(tmp_path_factory):
    """Starts servers that live until the end of the session."""
    folder = tmp_path_factory.mktemp("programs")
    numbers = itertools.count()
    programs = []
    subprocess.run(
        ["go", "build", "-o", f"{MADE}/", "google.golang.org/grpc/interop/server"], cwd=HERE / "go", check=True
    )

    def start(server: str, *arguments) -> Program:
        program = Program(SERVERS[server](list(arguments)), folder / f"{next(numbers)}.log")
        programs.append(program)
        return program

    yield start
    for program in programs:
        program.kill()


@pytest.fixture(scope="session", name="plain")
def start_plain(start, tmp_path_factory):
    """A server by its kind and transport."""
    where = {"tcp": lambda: ["--port", "0"], "unix": lambda: ["--unix", tmp_path_factory.mktemp("unix") / "socket"]}
    return {(server, transport): start(server, *where[transport]()) for server, transport in TRANSPORTS}


@pytest.fixture(scope="session", name="encrypted")
def start_encrypted(start, certificates):
    """A server by its kind and what it shows, or "requires" for one that requires a certificate."""
    names = ["server", "expired-server", "misnamed-server"]
    servers = {(server, name): start(server, *certificates.server(name)) for server in SERVERS for name in names}
    required = ["--client-ca", certificates.cert("ca"), "--require-client-cert"]
    return servers | {(server, "requires"): start(server, *certificates.server(), *required) for server in MUTUAL}


def run(target: str, case: str, tls: Tls = Tls(), *arguments: str) -> str:
    """Runs @case. Returns what our client says is wrong, "" when it passed; fails when it hangs."""
    command = [CLIENT, "--target", target, "--case", case, *tls.arguments(), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ran.returncode in (0, 1), f"exit status {ran.returncode}: {ran.stderr}"
    assert (ran.returncode == 0) == (ran.stderr == "")
    return ran.stderr


@pytest.mark.parametrize(
    ("server", "transport", "case"),
    [(*where, case) for where in TRANSPORTS for case in CASES if case not in UNSUPPORTED[where[0]]],
)
def test_case(plain, server, transport, case):
    assert run(plain[server, transport].address, case) == ""


# Bytes of payloads that pass uncompressed without the probes, and so many of each direction at least.
UNCOMPRESSED = {
    "client_compressed_unary": (271828, 2 * 314159),
    "server_compressed_unary": (2 * 271828, 314159),
    "client_compressed_streaming": (45904, 0),
    "server_compressed_streaming": (0, 92653),
}
OVERHEAD = 20000


@pytest.mark.parametrize("case", UNCOMPRESSED)
@pytest.mark.parametrize("server", [OWN, "python"])
def test_what_is_compressed_and_nothing_else_is_small_on_the_wire(plain, server, case):
    relay = Relay(plain[server, "tcp"])
    assert run(relay.target, case, Tls(), "--no-probe") == ""
    relay.close()
    sent, received = UNCOMPRESSED[case]
    assert sent <= relay.sent < sent + OVERHEAD
    assert received <= relay.received < received + OVERHEAD


def test_a_server_that_cannot_decompress_says_so(plain):
    said = run(plain["go", "tcp"].address, "client_compressed_unary", Tls(), "--no-probe")
    assert said.startswith("UNIMPLEMENTED: ") and "gzip" in said


@pytest.mark.parametrize(
    ("server", "case"), [(server, case) for server in SERVERS for case in CASES if case not in UNSUPPORTED[server]]
)
def test_case_over_tls(encrypted, certificates, server, case):
    assert run(encrypted[server, "server"].address, case, certificates.client()) == ""


@pytest.mark.parametrize("server", SERVERS)
def test_a_certificate_for_the_name_that_was_asked_for_is_trusted(encrypted, certificates, server):
    address = encrypted[server, "misnamed-server"].address
    assert run(address, "large_unary", certificates.client(), "--server-name", "elsewhere.test") == ""


@pytest.mark.parametrize("server", MUTUAL)
def test_a_required_certificate_lets_in(encrypted, certificates, server):
    assert run(encrypted[server, "requires"].address, "large_unary", certificates.client("client")) == ""


# What the server shows, whom the client trusts, and what this says of it.
DISTRUST = {
    "unknown authority": ("server", "other-ca", "a CA that is not trusted here"),
    "expired": ("expired-server", "ca", "a certificate that has expired"),
    "misnamed": ("misnamed-server", "ca", "a certificate for another name"),
}


@pytest.mark.parametrize("why", DISTRUST)
@pytest.mark.parametrize("server", SERVERS)
def test_a_server_that_is_not_trusted_is_not_called(encrypted, certificates, server, why):
    shown, ca, expected = DISTRUST[why]
    said = run(encrypted[server, shown].address, "empty_unary", certificates.client(ca=ca))
    assert said.startswith("UNAVAILABLE: ") and expected in said


# What a client without a good certificate hears. grpcio hangs up without saying why.
REFUSED = {
    None: "the server requires a certificate",
    "stranger": "the server does not trust the CA of our certificate",
    "expired-client": "our certificate has expired",
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("server", MUTUAL)
def test_a_client_without_a_good_certificate_hears_so(encrypted, certificates, server, name):
    said = run(encrypted[server, "requires"].address, "empty_unary", certificates.client(name))
    assert said.startswith("UNAVAILABLE: ")
    assert REFUSED[name] in said or (server == "python" and "it may require a certificate of ours" in said)


@pytest.mark.parametrize("server", SERVERS)
def test_plaintext_to_a_tls_port_fails(encrypted, server):
    said = run(encrypted[server, "server"].address, "empty_unary")
    assert said.startswith("UNAVAILABLE: ") and "it may expect TLS" in said


@pytest.mark.parametrize("server", SERVERS)
def test_tls_to_a_plaintext_port_fails(plain, certificates, server):
    said = run(plain[server, "tcp"].address, "empty_unary", certificates.client())
    assert said.startswith("UNAVAILABLE: ") and "the server does not speak TLS" in said


def test_a_refused_connection_is_told():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and nobody listens
        said = run(f"127.0.0.1:{unused.getsockname()[1]}", "empty_unary")
    assert said.startswith("UNAVAILABLE: ") and "Connection refused" in said


def test_a_socket_that_is_not_there_is_told(tmp_path):
    said = run(f"unix:{tmp_path}/socket", "empty_unary")
    assert said.startswith("UNAVAILABLE: ") and f"unix:{tmp_path}/socket: No such file or directory" in said


def test_a_server_that_speaks_something_else_is_told():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = f"127.0.0.1:{listener.getsockname()[1]}"
        command = [CLIENT, "--target", target, "--case", "empty_unary"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as client:
            with listener.accept()[0] as connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
                said = client.communicate(timeout=LIMIT)[1]
    assert said.startswith("UNAVAILABLE: ") and "does not keep to HTTP/2" in said


@pytest.mark.parametrize("arguments", [[], ["--server-name", "elsewhere.test"]])
def test_the_authority_is_what_was_asked_for(arguments):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = f"127.0.0.1:{listener.getsockname()[1]}"
        command = [CLIENT, "--target", target, "--case", "empty_unary", *arguments]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as client:
            with listener.accept()[0] as connection, connection.makefile("rb") as stream:
                assert stream.read(len(PREFACE)) == PREFACE
                kind = body = None
                while kind != Kind.HEADERS:
                    head = stream.read(9)
                    kind, body = head[3], stream.read(int.from_bytes(head[:3], "big"))
            client.wait(LIMIT)
    fields = dict(hpack.Decoder().decode(body))
    assert fields[":authority"] == (arguments[1] if arguments else target)


@pytest.mark.parametrize("encryption", ["plain", "tls"])
@pytest.mark.parametrize("server", SERVERS)
def test_a_server_that_dies_ends_the_stream(start, certificates, server, encryption):
    tls = certificates.client() if encryption == "tls" else Tls()
    program = start(server, *(certificates.server() if encryption == "tls" else ["--port", "0"]))
    command = [CLIENT, "--target", program.address, "--case", "server_vanishes", *tls.arguments()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
        assert client.stdout.readline() == "answered\n"
        program.kill()
        assert client.communicate(timeout=LIMIT)[1] == ""
    assert client.returncode == 0
