# SPDX-License-Identifier: Apache-2.0
"""Servers and clients that several tests use."""

import itertools
import subprocess

import pytest
from certificates import Certificates
from http2 import Connection
from interop import HERE, MADE, Server, check_service
from messages import MIB

GROWTH = MIB // 4  # of a server's memory over one test: what the C library keeps at hand


@pytest.fixture(scope="session", name="start_server")
def make_start_server(tmp_path_factory):
    """Starts servers that end with the session, in order."""
    folder = tmp_path_factory.mktemp("servers")
    numbers = itertools.count()
    servers = []

    def start(*arguments) -> Server:
        server = Server(folder / f"{next(numbers)}.log", *arguments)
        servers.append(server)
        return server

    yield start
    for server in servers:
        if server.process.returncode is None:
            server.stop()


@pytest.fixture(scope="session", name="servers")
def start_plain_servers(start_server, tmp_path_factory):
    """A server by transport."""
    return {
        "tcp": start_server("--port", "0"),
        "unix": start_server("--unix", tmp_path_factory.mktemp("unix") / "socket"),
    }


@pytest.fixture(scope="session", name="certificates")
def make_certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session", name="go_clients")
def build_go_clients():
    """grpc-go's own interop client, and ours."""
    subprocess.run(
        ["go", "build", "-o", f"{MADE}/", ".", "google.golang.org/grpc/interop/client"], cwd=HERE / "go", check=True
    )


@pytest.fixture(scope="session", name="server")
def start_warm_server(start_server):
    """A server that has its buffers already."""
    server = start_server("--port", "0")
    check_service(server)
    return server


@pytest.fixture(name="connect")
def make_connect(server):
    """Makes connections to the server. After the test these are closed, and the server must be as it was before."""
    before = server.memory()
    connections = []

    def connect(values: dict[int, int] | None = None, polite: bool = True) -> Connection:
        connections.append(Connection(server.connect(), values, polite))
        return connections[-1]

    yield connect
    for connection in connections:
        connection.close()
    check_service(server)
    assert server.memory() < before + GROWTH
