# SPDX-License-Identifier: Apache-2.0
"""Builds and starts the servers that are compared, each with a client of its own kind."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from http2 import Connection

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "bench"
BUILD = ROOT / "build" / "bench"
PYTHON = ROOT / "build/tools/venv/bin/python"
GHZ = BUILD / "bin" / "ghz"

OURS = "hutch"
# Each with the command of its server, which takes a port and the path of a Unix socket, and that of its client, which
# takes the path, a size and a number of seconds.
SERVERS = {
    OURS: ([ROOT / "build/release/bench/echo-server"], [ROOT / "build/release/bench/stream-client"]),
    "grpc-go": ([BUILD / "bin/go-server"], [BUILD / "bin/go-client"]),
    "gRPC C++": ([BUILD / "bin/cpp-server"], [BUILD / "bin/cpp-client"]),
    "grpcio": ([PYTHON, BUILD / "python/server.py"], [PYTHON, BUILD / "python/client.py"]),
}
SERVER_CORE, LOAD_CORE = "0", "1"

UNARY, HOLD = "/bench.Echo/Unary", "/bench.Echo/Hold"
PAYLOAD = b"x" * 64
MESSAGE = bytes([0x0A, len(PAYLOAD)]) + PAYLOAD
BODY = b"\0" + len(MESSAGE).to_bytes(4, "big") + MESSAGE

BUILD_LIMIT = 900  # seconds
START_LIMIT = 20
TICK = 1 / os.sysconf("SC_CLK_TCK")


def environment() -> dict[str, str]:
    """The environment of scripts/env."""
    command = ["bash", "-c", ". scripts/env && env -0"]
    sourced = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout
    variables = dict(entry.split("=", 1) for entry in sourced.split("\0") if entry)
    return variables | {"XDG_CONFIG_HOME": str(ROOT / "build/tools/config")}


def run(*command, limit: float = BUILD_LIMIT, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """The output of @command. What it complains about is shown when it fails."""
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, timeout=limit, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise SystemExit(f"bench: {command[0]} failed")
    return done.stdout


def build() -> None:
    env = environment()
    # As scripts/build does it, without all that benchmarks do not need.
    if not (ROOT / "build/release/build.ninja").exists():
        run("meson", "setup", "build/release", "--buildtype=release", env=env | {"CC": "gcc"})
    run("ninja", "-C", "build/release", "bench/echo-server", "bench/stream-client", env=env)

    for source in ("go", "python", "cpp"):
        shutil.copytree(HERE / source, BUILD / source, dirs_exist_ok=True)
    go, python, cpp, binaries = BUILD / "go", BUILD / "python", BUILD / "cpp", BUILD / "bin"
    generate = [PYTHON, "-m", "grpc_tools.protoc", f"-I{HERE}", "echo.proto"]
    run(*generate, f"--python_out={python}", f"--grpc_python_out={python}", env=env)
    options = ("--go_opt=module=bench", "--go-grpc_opt=module=bench")
    run(*generate, f"--go_out={go}", f"--go-grpc_out={go}", *options, env=env)
    # Debian's own, which fits Debian's libraries.
    plugin = f"--plugin=protoc-gen-grpc={shutil.which('grpc_cpp_plugin')}"
    run("protoc", f"-I{HERE}", "echo.proto", f"--cpp_out={cpp}", f"--grpc_out={cpp}", plugin)

    for name in ("server", "client"):
        run("go", "build", "-o", binaries / f"go-{name}", f"./{name}", cwd=go, env=env)
        sources = (f"{name}.cpp", "echo.pb.cc", "echo.grpc.pb.cc")
        libraries = run("pkg-config", "--cflags", "--libs", "grpc++", "protobuf").split()
        run("g++", "-O2", "-o", binaries / f"cpp-{name}", *sources, *libraries, cwd=cpp)
    run("go", "build", "-o", GHZ, "github.com/bojand/ghz/cmd/ghz", cwd=go, env=env)


def versions() -> dict[str, str]:
    env = environment()
    grpc_go = run("go", "list", "-m", "google.golang.org/grpc", cwd=HERE / "go", env=env).split()[-1]
    show = "import grpc, platform; print(grpc.__version__, 'on Python', platform.python_version())"
    return {
        OURS: f"this tree, nghttp2 {run('pkg-config', '--modversion', 'libnghttp2').strip()}",
        "grpc-go": f"{grpc_go} on {run('go', 'env', 'GOVERSION', env=env).strip()}",
        "gRPC C++": f"{run('pkg-config', '--modversion', 'grpc++').strip()} (Debian), callback API",
        "grpcio": f"{run(PYTHON, '-c', show).strip()}, asyncio",
        "h2load": run("h2load", "--version").split("/")[-1].strip(),
        "ghz": run("go", "list", "-m", "github.com/bojand/ghz", cwd=HERE / "go", env=env).split()[-1],
    }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Server:
    """A running server, on a core of its own. It ends with the context, or with this process."""

    def __init__(self, name: str, folder: Path):
        self.name = name
        self.port = free_port()
        self.path = folder / f"{self.port}.sock"
        command, self.client = SERVERS[name]
        pinned = ["setpriv", "--pdeathsig", "KILL", "taskset", "-c", SERVER_CORE, *command, self.port, self.path]
        self.process = subprocess.Popen([str(word) for word in pinned], stdin=subprocess.DEVNULL)

    def __enter__(self) -> "Server":
        try:
            self.await_answer()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.process.kill()
        self.process.wait()
        self.path.unlink(missing_ok=True)

    def await_answer(self) -> None:
        """Waits until the server answers, and checks that it answers with what it was sent."""
        deadline = time.monotonic() + START_LIMIT
        while True:
            try:
                connection = Connection(self.port)
                break
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"bench: the server of {self.name} did not start") from None
                time.sleep(0.05)
        answer = connection.call(UNARY, BODY)
        connection.close()
        if answer != BODY:
            raise SystemExit(f"bench: the server of {self.name} answered with {answer!r}")

    def cpu_seconds(self) -> float:
        """What all its threads have used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * TICK

    def resident_bytes(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise SystemExit(f"bench: the server of {self.name} is gone")
