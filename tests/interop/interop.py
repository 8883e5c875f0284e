# SPDX-License-Identifier: Apache-2.0
"""What the tests of this folder share: our server, and the official clients as programs that run one case."""

import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from http2 import Connection
from messages import Status, unary_request

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "interop"
MADE = ROOT / "build" / "interop"
SERVER = Path(os.environ.get("HUTCH_INTEROP_SERVER", ROOT / "build/gcc/tests/interop/interop-server"))
LIMIT = 120  # seconds that anything may take

CASES = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "custom_metadata",
    "status_code_and_message",
    "special_status_message",
    "unimplemented_method",
    "unimplemented_service",
    "cancel_after_begin",
    "cancel_after_first_response",
    "timeout_on_sleeping_server",
    "client_compressed_unary",
    "server_compressed_unary",
    "client_compressed_streaming",
    "server_compressed_streaming",
]


class Server:
    """Our server, listening as its arguments say."""

    def __init__(self, log: Path, *arguments: str | Path) -> None:
        self.log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen([SERVER, *arguments], stdout=subprocess.PIPE, stderr=stderr)
        line = self.read_line()
        if not line.startswith("listening on "):
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"the server does not listen: {line}{self.complaints()}")
        self.address = line.removeprefix("listening on ").strip()
        self.sockets_at_rest = self.count_sockets()

    def connect(self) -> socket.socket:
        if self.address.startswith("unix:"):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self.address.removeprefix("unix:"))
            return connection
        host, port = self.address.split(":")
        return socket.create_connection((host, int(port)), timeout=LIMIT)

    def complaints(self) -> str:
        """What it wrote to standard error."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_for_complaint(self, pattern: str, since: int) -> None:
        """Waits until it complains of @pattern, behind the first @since characters."""
        deadline = time.monotonic() + LIMIT
        while not re.search(pattern, self.complaints()[since:]):
            assert time.monotonic() < deadline, f"no {pattern} in what it said: {self.complaints()[since:]}"
            time.sleep(0.01)

    def read_line(self) -> str:
        """A line that it writes, "" when none comes."""
        readable, _, _ = select.select([self.process.stdout], [], [], LIMIT)
        return self.process.stdout.readline().decode() if readable else ""

    def memory(self) -> int:
        """Bytes that it has allocated and not freed."""
        self.process.send_signal(signal.SIGUSR1)
        return int(self.read_line().split()[0])

    def peak(self) -> int:
        """Bytes of memory that it had at most since forget_peak()."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) for line in status.split("\n") if line.startswith("VmHWM:")) * 1024

    def forget_peak(self) -> None:
        """Starts anew at what it has now."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5", encoding="ascii")

    def count_sockets(self) -> int:
        count = 0
        for fd in Path(f"/proc/{self.process.pid}/fd").iterdir():
            try:
                count += os.readlink(fd).startswith("socket:")
            except FileNotFoundError:
                pass  # closed in the meantime
        return count

    def wait_for_quiet(self) -> None:
        """Waits until it has closed every connection."""
        deadline = time.monotonic() + LIMIT
        while self.count_sockets() > self.sockets_at_rest:
            assert time.monotonic() < deadline, "the server keeps connections that are over"
            time.sleep(0.01)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Its exit status; it is killed when it does not end."""
        try:
            return self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def stop(self) -> None:
        self.terminate()
        status = self.wait()
        self.process.stdout.close()
        assert status == 0, f"the server ended with {status}: {self.complaints()}"


def check_service(server: Server) -> None:
    """A new client is answered, and nothing is left of it, nor of others before it."""
    connection = Connection(server.connect())
    assert connection.call("UnaryCall", unary_request(100_000)).grpc_status == Status.OK
    connection.close()
    server.wait_for_quiet()


@dataclass
class Tls:
    """What a client knows of certificates; nothing encrypts nothing."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def arguments(self) -> list:
        files = {"--ca": self.ca, "--cert": self.cert, "--key": self.key}
        return [word for option, file in files.items() if file for word in (option, file)]


def go_client(target: str, case: str, tls: Tls) -> list:
    """grpc-go's own interop client, and ours for what that one cannot do."""
    if "compressed" in case or tls.cert:
        return [MADE / "go", "--target", target, "--case", case, *tls.arguments()]
    host, port = (target, "0") if target.startswith("unix:") else target.split(":")
    command = [MADE / "client", f"--server_host={host}", f"--server_port={port}", f"--test_case={case}"]
    return command + (["--use_tls", "--use_test_ca", f"--ca_file={tls.ca}"] if tls.ca else [])


def python_client(target: str, case: str, tls: Tls) -> list:
    return [sys.executable, HERE / "python_client.py", "--target", target, "--case", case, *tls.arguments()]


def node_client(target: str, case: str, tls: Tls) -> list:
    return ["node", HERE / "node" / "client.js", "--target", target, "--case", case, *tls.arguments()]


CLIENTS = {"go": go_client, "python": python_client, "node": node_client}


def run_client(client: str, target: str, case: str, tls: Tls = Tls()) -> str:
    """Runs @case. Returns what the client says is wrong, "" when it passed; fails when it hangs."""
    env = os.environ | {"NODE_PATH": str(ROOT / "build/tools/npm-interop/node_modules")}
    command = CLIENTS[client](target, case, tls)
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
    return "" if ran.returncode == 0 else f"{ran.stdout}{ran.stderr}" or f"exit status {ran.returncode}"


class Relay:
    """Stands between clients and a server, and counts the bytes that pass."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.sent = self.received = 0  # by clients
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.threads: list[threading.Thread] = []
        self.start(self.accept)

    def start(self, function, *arguments) -> None:
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self.threads.append(thread)
        thread.start()

    def accept(self) -> None:
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            server = self.server.connect()
            self.start(self.pump, client, server, "sent")
            self.start(self.pump, server, client, "received")

    def pump(self, source: socket.socket, sink: socket.socket, counter: str) -> None:
        try:
            while data := source.recv(65536):
                setattr(self, counter, getattr(self, counter) + len(data))
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # one side is gone, and the other will notice

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(LIMIT)
