# SPDX-License-Identifier: Apache-2.0
"""libhutch as others use it: what it shows, how it is installed and linked, its examples, and its functions against a
running daemon, through tests/libhutch/driver.c. What needs no real daemon is in tests/unit/test-client*.c."""

import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from hutch.v1 import (
    exec_pb2,
    file_pb2,
    image_pb2,
    policy_pb2,
    port_pb2,
    provider_pb2,
    sandbox_exec_pb2,
    sandbox_pb2,
    system_pb2,
)
from hutchd import BUILD, LIMIT, ROOT, is_alive, sandbox_state, state_name, wait_until
from user_daemon import UserDaemon as OrdinaryDaemon

HEADER = ROOT / "include/hutch/hutch.h"
EXAMPLES = ROOT / "examples/c"
DRIVER = BUILD / "tests/libhutch/libhutch-driver"
LIBRARY = BUILD / "src/client/libhutch.so"
AT_ONCE = 200  # programs that want a daemon


def run(*command, env: dict | None = None, stdin: str = "", status: int = 0) -> str:
    """What a command prints; it must end with @status."""
    ran = subprocess.run(
        [str(word) for word in command],
        env=os.environ | (env or {}),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert ran.returncode == status, f"{command}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def of(daemon) -> dict:
    """The environment in which @daemon is the daemon of this user."""
    return {"HUTCH_SOCKET": str(daemon.socket)}


def drive(daemon, *arguments) -> str:
    return run(DRIVER, *arguments, env=of(daemon))


class Driven:
    """The driver at work on something that takes its time."""

    def __init__(self, daemon, *arguments):
        command = [str(word) for word in (DRIVER, *arguments)]
        self.process = subprocess.Popen(
            command, env=os.environ | of(daemon), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self) -> "Driven":
        return self

    def __exit__(self, *_) -> None:
        self.process.kill()
        self.process.wait()

    def line(self) -> str:
        return self.process.stdout.readline()

    def end(self) -> str:
        """What else it prints; it must end well."""
        out, err = self.process.stdout.read(), self.process.stderr.read()
        assert self.process.wait(LIMIT) == 0, out + err
        return out


# ---- The header and the library ----


def declared() -> set[str]:
    return set(re.findall(r"\bHUTCH_API\b[^;(]*?\b(hutch_\w+)\(", HEADER.read_text(encoding="utf-8")))


def test_the_library_shows_what_the_header_declares_and_nothing_else():
    lines = run("nm", "-D", "--defined-only", LIBRARY).splitlines()
    shown = {line.split()[2].split("@")[0] for line in lines if line.split()[1] != "A"}
    assert shown == declared()
    assert len(shown) > 50


def test_the_library_is_known_by_its_major_version():
    assert "SONAME" in (dynamic := run("readelf", "-d", LIBRARY)) and "[libhutch.so.0]" in dynamic


def test_the_manual_names_every_function():
    manual = (ROOT / "docs/man/libhutch.3.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(hutch_\w+)\(\)", manual)) == declared()


@pytest.mark.parametrize("standard", ["c99", "c11", "gnu17"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_header_is_plain_c(compiler, standard, tmp_path):
    source = tmp_path / "header.c"
    source.write_text("#include <hutch/hutch.h>\n", encoding="ascii")
    strict = ["-pedantic-errors", "-Wall", "-Wextra", "-Wstrict-prototypes", "-Werror"]
    run(compiler, f"-std={standard}", *strict, f"-I{ROOT}/include", "-fsyntax-only", source)


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_the_header_is_plain_cpp(compiler, tmp_path):
    if not shutil.which(compiler):
        pytest.skip(f"there is no {compiler}")
    source = tmp_path / "header.cc"
    source.write_text("#include <hutch/hutch.h>\nint main() { return hutch_version() == nullptr; }\n", encoding="ascii")
    strict = ["-pedantic-errors", "-Wall", "-Wextra", "-Werror"]
    run(compiler, "-std=c++11", *strict, f"-I{ROOT}/include", "-c", source, "-o", tmp_path / "header.o")


def test_the_methods_that_stream_are_known():
    modules = [exec_pb2, file_pb2, image_pb2, policy_pb2, port_pb2, provider_pb2]
    modules += [sandbox_exec_pb2, sandbox_pb2, system_pb2]
    files = [module.DESCRIPTOR for module in modules]
    methods = [method for file in files for service in file.services_by_name.values() for method in service.methods]
    source = (ROOT / "src/client/methods.c").read_text(encoding="utf-8")
    table = re.search(r"streaming\[\] = \{(.*?)\};", source, re.DOTALL)[1]
    streaming = {method.name for method in methods if method.client_streaming or method.server_streaming}
    assert set(re.findall(r'"(\w+)"', table)) == streaming
    assert len({method.name for method in methods}) == len(methods)


# ---- Installed ----


@pytest.fixture(scope="module", name="installed")
def install(tmp_path_factory):
    """The environment in which a compiler and pkg-config find the library as it is installed."""
    root = tmp_path_factory.mktemp("installed")
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", root, "--tags", "devel,runtime")
    config = next(root.rglob("hutch.pc"))
    return {
        "PKG_CONFIG_SYSROOT_DIR": str(root),
        "PKG_CONFIG_PATH": str(config.parent),
        "LD_LIBRARY_PATH": str(config.parent.parent),
    }


def compile_example(name: str, installed: dict, folder: Path, static: bool) -> Path:
    """Compiles an example as its head says; @static: with the library in it."""
    program = folder / name
    flags = shlex.split(run("pkg-config", "--cflags", "--libs", *["--static"] * static, "hutch", env=installed))
    if static:
        flags = ["-l:libhutch.a" if flag == "-lhutch" else flag for flag in flags]
    strict = ["-std=gnu99", "-Wall", "-Wextra", "-Werror"]
    run("cc", *strict, EXAMPLES / f"{name}.c", *flags, "-o", program)
    needed = run("readelf", "-d", program)
    assert ("libhutch" in needed) != static
    return program


@pytest.fixture(scope="module", name="examples", params=["shared", "static"])
def compile_examples(installed, tmp_path_factory, request):
    """Runs an example: examples(daemon, "hello", …)."""
    folder = tmp_path_factory.mktemp(request.param)
    static = request.param == "static"
    names = sorted(file.stem for file in EXAMPLES.glob("*.c"))
    programs = {name: compile_example(name, installed, folder, static) for name in names}

    def start(daemon, name, *arguments, **options) -> str:
        env = of(daemon) | ({} if static else {"LD_LIBRARY_PATH": installed["LD_LIBRARY_PATH"]})
        return run(programs[name], *arguments, env=env, **options)

    start.programs = programs
    return start


def test_every_example_is_tried(examples):
    assert set(examples.programs) == {"files", "hello", "loop", "stream", "watch"}


def test_example_hello(examples, daemon):
    assert examples(daemon, "hello") == "hello from the hutch\n"
    assert examples(daemon, "hello", "sh", "-c", "echo out; exit 5", status=5) == "out\n"


def test_example_files(examples, daemon):
    for text in ("", "some text\n", "0123456789abcde\n" * 200_000):
        assert examples(daemon, "files", stdin=text) == text


def test_examples_need_no_cgroups(examples):
    """The library asks for no limits by itself: a daemon that enforces none serves its examples."""
    daemon = OrdinaryDaemon()
    try:
        daemon.begin()
        assert examples(daemon, "hello") == "hello from the hutch\n"
        assert examples(daemon, "files", stdin="some text\n") == "some text\n"
    finally:
        daemon.wipe()


def test_example_stream(examples, daemon, sandbox):
    assert examples(daemon, "stream", sandbox, "tr", "a-z", "A-Z", stdin="some text\n") == "SOME TEXT\n"
    much = "0123456789abcde\n" * 200_000
    assert examples(daemon, "stream", sandbox, "cat", stdin=much) == much
    assert examples(daemon, "stream", sandbox, "sh", "-c", "exit 3", stdin=much, status=3) == ""
    assert examples(daemon, "stream", "no-such-sandbox", "true", status=1) == ""


def test_example_loop(examples, daemon, sandbox):
    env = os.environ | of(daemon) | {"LD_LIBRARY_PATH": str(LIBRARY.parent)}
    commands = "until test -e told; do sleep 0.01; done; echo one", "echo two", "exit 4"
    loop = [examples.programs["loop"], sandbox, *commands]
    with subprocess.Popen(loop, env=env, stdout=subprocess.PIPE, text=True) as it:
        printed = [it.stdout.readline()]
        while printed[-1] not in ("2: two\n", ""):
            printed.append(it.stdout.readline())
        daemon.shell(sandbox, "touch told")
        printed += it.stdout.readlines()
    assert it.returncode == 0
    assert sorted(printed) == ["1: ended with 0\n", "1: one\n", "2: ended with 0\n", "2: two\n", "3: ended with 4\n"]


def test_example_watch(examples, own_daemon):
    sandbox = own_daemon.ready(labels={"team": "blue"})
    env = os.environ | of(own_daemon) | {"LD_LIBRARY_PATH": str(LIBRARY.parent)}
    with subprocess.Popen([examples.programs["watch"], "team=blue"], env=env, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout.readline() == f"{sandbox} is READY\n"
        own_daemon.stop(sandbox)
        assert it.stdout.readline().split()[1:4] == [sandbox, "SANDBOX_STATE_CHANGED", "STOPPING"]
        it.kill()


# ---- The functions ----


def test_the_life_of_a_sandbox(daemon):
    lines = drive(daemon, "life", "libhutch-life").splitlines()
    assert lines[0] == "create PENDING"
    assert lines[1] == "wait READY"
    assert lines[2:7] == ["a=b", "/tmp", "in", "oh", "7 EXITED"]
    assert lines[7:9] == ["set_labels READY", "set_idle_ttl READY"]
    assert [line for line in lines[9:] if line.startswith("wait")] == [
        "wait PAUSED",
        "wait READY",
        "wait STOPPED",
        "wait READY",
        "wait DELETED",
    ]
    spec = daemon.get("libhutch-life").spec
    assert (dict(spec.labels), spec.idle_ttl.seconds) == ({"empty": ""}, 60)


def test_many_sandboxes(own_daemon):
    blue = own_daemon.ready(labels={"team": "blue"})
    own_daemon.ready(labels={"team": "red"})
    assert drive(own_daemon, "list", "team=blue") == f"{blue} READY team=blue\n"
    assert len(drive(own_daemon, "list", "").splitlines()) == 2
    assert drive(own_daemon, "delete", "team in (blue,red)") == "2\n"
    own_daemon.wait(blue, "DELETED")


def test_threads_share_a_client(daemon, sandbox):
    assert drive(daemon, "threads", sandbox, 10) == "0 failed\n"


def test_a_command_ends_with_its_stream(daemon, sandbox):
    drive(daemon, "leave", sandbox, "left-alone")
    assert state_name(daemon.wait_exec(sandbox, "left-alone")) == "CANCELLED"
    assert drive(daemon, "execs", sandbox).startswith("left-alone CANCELLED ")


@pytest.mark.rules("REMOTE-001")
def test_a_one_shot_runs_and_is_gone(daemon):
    collected, code, *streamed = drive(daemon, "once", "cat; echo $A$PWD; exit 4").splitlines()
    assert (collected, code) == ("in1/tmp", "EXITED 4")
    assert "".join(streamed[:-1]).replace("1 ", "") == "in1/tmp"
    sandbox_id, code, limits = streamed[-1].split()
    assert (code, limits) == ("4", "limits")
    assert daemon.wait(sandbox_id, "DELETED").effective.profile == "strict"


# ---- Across a restart ----


@pytest.mark.parametrize("kill", [False, True])
def test_a_watch_outlives_the_daemon(own_daemon, kill):
    sandbox = own_daemon.ready()
    with Driven(own_daemon, "watch", sandbox) as driven:
        assert driven.line() == "1 SANDBOX_CREATED PENDING\n"
        own_daemon.restart(kill=kill)
        own_daemon.stop(sandbox)
        own_daemon.wait(sandbox, "STOPPED")
        own_daemon.restart(kill=kill)
        own_daemon.remove(sandbox)
        told = [line.split() for line in driven.end().splitlines()]
    assert [int(line[0]) for line in told] == list(range(2, len(told) + 2))
    assert [line[2] for line in told] == ["READY", "STOPPING", "STOPPED", "DELETING", "DELETED"]


def test_output_is_read_on_after_a_restart(own_daemon):
    sandbox = own_daemon.ready()
    script = "for i in $(seq 1 300); do echo line $i; sleep 0.01; done"
    made = own_daemon.start(sandbox, "sh", "-c", script).id
    with Driven(own_daemon, "follow", sandbox, made) as driven:
        assert driven.line() == "line 1\n"
        own_daemon.restart(kill=True)
        assert driven.end() == "".join(f"line {i}\n" for i in range(2, 301))


def test_a_waiter_outlives_the_daemon(own_daemon):
    sandbox = own_daemon.ready()
    with Driven(own_daemon, "wait", sandbox, sandbox_state("STOPPED")) as driven:
        assert driven.line() == "waiting\n"
        own_daemon.restart(kill=True)
        own_daemon.stop(sandbox)
        assert driven.end() == "there\n"


def test_who_is_attached_is_told_that_the_daemon_is_gone(own_daemon):
    sandbox = own_daemon.ready()
    made = own_daemon.start(sandbox, "sh", "-c", "echo here; exec sleep 100").id
    with Driven(own_daemon, "attach", sandbox, made) as driven:
        assert driven.line() == "here\n"
        own_daemon.kill()
        assert driven.process.wait(LIMIT) == 1
        assert driven.process.stderr.read().startswith("CONNECTION_")


# ---- The daemon of this user ----


class UserDaemon:
    """A daemon that libhutch starts."""

    def __init__(self, folder: Path):
        self.socket = folder / "run/hutchd.sock"
        self.state = folder / "state"
        config = folder / "config.yaml"
        config.write_text("{}", encoding="ascii")
        self.env = {
            "HUTCH_SOCKET": str(self.socket),
            "HUTCH_STATE": str(self.state),
            "HUTCH_CONFIG": str(config),
            "LD_LIBRARY_PATH": str(LIBRARY.parent),
        }
        # Programs are found beside the one that looks for them.
        self.driver = folder / "driver"
        shutil.copy(DRIVER, self.driver)
        (folder / "hutchd").symlink_to(BUILD / "hutchd")

    def drive(self, *arguments, status: int = 0, env: dict | None = None) -> str:
        return run(self.driver, *arguments, env=self.env | (env or {}), status=status)

    def pid(self) -> int:
        return int(self.drive("pid", self.socket))

    def log(self) -> str:
        return (self.state / "hutchd.log").read_text(encoding="utf-8")


@pytest.fixture(name="user_daemon")
def make_user_daemon(tmp_path):
    daemon = UserDaemon(tmp_path)
    yield daemon
    daemon.drive("stop-daemon", daemon.socket)


def test_the_daemon_is_started_and_ended(user_daemon):
    path = user_daemon.socket
    assert user_daemon.drive("socket") == f"{path}\n"
    assert user_daemon.pid() == 0
    assert user_daemon.drive("stop-daemon", path) == "0\n"
    assert user_daemon.drive("start-daemon", path) == "1\n"
    assert user_daemon.drive("start-daemon", path) == "0\n"
    pid = user_daemon.pid()
    assert os.readlink(f"/proc/{pid}/exe") == str((BUILD / "hutchd").resolve())
    assert user_daemon.drive("call") == "0\n"
    assert user_daemon.drive("stop-daemon", path) == "1\n"
    assert not is_alive(pid)
    assert user_daemon.drive("call") == "1\n"
    assert user_daemon.pid() not in (0, pid)


def test_the_daemon_inherits_nothing(user_daemon):
    read, write = os.pipe()
    os.set_inheritable(write, True)
    subprocess.run(
        [user_daemon.driver, "start-daemon", str(user_daemon.socket)],
        env=os.environ | user_daemon.env,
        stdout=subprocess.DEVNULL,
        close_fds=False,
        timeout=LIMIT,
        check=True,
    )
    os.close(write)
    assert os.read(read, 1) == b""  # nobody holds the other end
    os.close(read)
    pid = user_daemon.pid()
    assert os.getsid(pid) != os.getsid(0)
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    assert re.search(r"^SigBlk:\s+0+$", status, re.MULTILINE)
    assert not re.search(r"^PPid:\s+%d$" % os.getpid(), status, re.MULTILINE)


def test_many_who_want_a_daemon_at_once_get_one(user_daemon):
    env = os.environ | user_daemon.env
    command = [str(user_daemon.driver), "call"]
    started = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(AT_ONCE)
    ]
    ended = [process.communicate(timeout=LIMIT) + (process.returncode,) for process in started]
    assert [end for end in ended if end[2] != 0] == []
    assert [end[0] for end in ended].count("1\n") == 1
    assert user_daemon.log().count('msg="serving"') + user_daemon.log().count("msg=serving") == 1


def test_why_the_daemon_cannot_start_is_told(user_daemon):
    Path(user_daemon.env["HUTCH_CONFIG"]).write_text("nonsense: 1\n", encoding="ascii")
    ran = subprocess.run(
        [user_daemon.driver, "call"], env=os.environ | user_daemon.env, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("DAEMON_UNREACHABLE: the daemon could not be started: ")
    assert "nonsense" in ran.stderr


def test_without_a_program_to_start_it_is_told(user_daemon):
    (user_daemon.driver.parent / "hutchd").unlink()
    ran = subprocess.run(
        [user_daemon.driver, "call"], env=os.environ | user_daemon.env, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "there is no hutchd to start" in ran.stderr


def test_a_daemon_that_was_killed_is_started_again(user_daemon):
    user_daemon.drive("start-daemon", user_daemon.socket)
    pid = user_daemon.pid()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))
    assert user_daemon.drive("call") == "1\n"
