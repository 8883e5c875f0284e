# SPDX-License-Identifier: Apache-2.0
"""The second wall around files: programs that were given a way out of the sandbox, a descriptor of the host's, by
somebody's mistake, get nowhere by it; where there is no such wall they do. And what is inside stays together."""

import ctypes
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from attacks import PRELUDE, USER, attack
from host import PATIENCE
from hutchd import wait_until

PYTHON = "/usr/bin/python3"
LIMIT = 30 * PATIENCE  # seconds

LANDLOCK_CREATE_RULESET, VERSION = 444, 1
# What the kernel's Landlock has to be for what a daemon tells of it, and for an attack to fail.
FEATURES = {"landlock": 2, "landlock-truncate": 3, "landlock-scopes": 6}
NEEDS = {"cutting off": "landlock-truncate", "an abstract socket": "landlock-scopes"}

# Gets `folder`, an O_PATH descriptor of a folder where everybody may do everything, and `link`, a socket of the host's.
RECEIVE = """
listener = socket.socket(socket.AF_UNIX)
listener.bind(host["socket"])
os.chmod(host["socket"], 0o777)
listener.listen()
_, given, _, _ = socket.recv_fds(listener.accept()[0], 1, 2)
folder, link = given[0], socket.socket(fileno=given[1])
"""

ATTACKS = [
    attack("reading", "EACCES", USER, "os.open('file', os.O_RDONLY, dir_fd=folder)"),
    attack("reading by the name of the descriptor", "EACCES", USER, "open(f'/proc/self/fd/{folder}/file')"),
    attack("reading by another root", "EACCES EPERM", USER, "os.fchdir(folder); open('file')"),
    attack("writing", "EACCES", USER, "os.open('file', os.O_WRONLY, dir_fd=folder)"),
    attack("cutting off", "EACCES", USER, "os.truncate(f'/proc/self/fd/{folder}/file', 0)"),
    attack("listing", "EACCES", USER, "os.open('.', os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)"),
    attack("making a file", "EACCES", USER, "os.open('new', os.O_WRONLY | os.O_CREAT, dir_fd=folder)"),
    attack("making a folder", "EACCES", USER, "os.mkdir('new', dir_fd=folder)"),
    attack("making a link", "EACCES", USER, "os.symlink('/', 'new', dir_fd=folder)"),
    attack("making a pipe", "EACCES", USER, "os.mkfifo('new', dir_fd=folder)"),
    attack("removing", "EACCES", USER, "os.unlink('file', dir_fd=folder)"),
    attack("renaming", "EACCES", USER, "os.rename('file', 'new', src_dir_fd=folder, dst_dir_fd=folder)"),
    attack("a second name", "EACCES EXDEV", USER, "os.link('file', 'below/new', src_dir_fd=folder, dst_dir_fd=folder)"),
    attack(
        "executing",
        "EACCES",
        USER,
        """
path = f"/proc/self/fd/{folder}/program"
os.spawnv(os.P_WAIT, path, ["true"]) == 0 or fail("EACCES")
""",
    ),
    attack("an abstract socket", "EPERM", USER, "link.connect('\\0' + host['abstract'])"),
]


@pytest.fixture(scope="module", name="version")
def ask_for_version() -> int:
    version = ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, VERSION)
    if version < FEATURES["landlock"]:
        pytest.skip("this kernel has no Landlock that would do")
    return version


def test_daemons_tell_what_the_kernel_has(daemon, version):
    told = {name for name in daemon.info().runtimes[0].features if name.startswith("landlock")}
    assert told == {name for name, least in FEATURES.items() if version >= least}


@pytest.fixture(name="outside")
def make_outside():
    """A folder of the host's in which everybody may do everything."""
    folder = Path(tempfile.mkdtemp(prefix="hutch-escape-", dir="/tmp"))
    (folder / "file").write_text("of the host", encoding="ascii")
    (folder / "below").mkdir()
    shutil.copy("/bin/true", folder / "program")
    for path in [folder, *folder.iterdir()]:
        path.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def give(path: Path, outside: Path) -> None:
    """Gives the way out to who listens at @path."""
    wait_until(path.is_socket)
    folder = os.open(outside, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as to, socket.socket(socket.AF_UNIX) as link:
        end = time.monotonic() + LIMIT
        while to.connect_ex(str(path)) != 0:
            assert time.monotonic() < end
            time.sleep(0.01)
        socket.send_fds(to, [b"x"], [folder, link.fileno()])
    os.close(folder)


def run_inside(daemon, sandbox: str, program: str, outside: Path, host: dict) -> tuple[int, str]:
    name = f"socket-{time.monotonic_ns()}"
    told = json.dumps(host | {"socket": f"/workspace/{name}"})
    started = daemon.start(sandbox, PYTHON, "-c", PRELUDE + RECEIVE + program, told).id
    give(daemon.sandbox_folder(sandbox) / "fs/workspace" / name, outside)
    result = daemon.wait_exec(sandbox, started, "EXITED", "FAILED").result
    output = daemon.sandbox_folder(sandbox) / f"{started}.out"
    return result.exit_code, output.read_text(encoding="utf-8") if output.exists() else ""


def run_outside(program: str, outside: Path, host: dict, without: list[str]) -> tuple[int, str]:
    path = outside / "socket"
    told = json.dumps(host | {"socket": str(path)})
    command = [*without, PYTHON, "-c", PRELUDE + RECEIVE + program, told]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        give(path, outside)
        text = process.communicate(timeout=LIMIT)[0]
    return process.returncode, text


@pytest.mark.parametrize("one", ATTACKS, ids=lambda one: one.name)
def test_a_way_out_leads_nowhere(daemon, sandbox, outside, version, one):
    if version < (least := FEATURES[NEEDS.get(one.name, "landlock")]):
        pytest.skip(f"this kernel's Landlock is of version {version}: {one.name} is behind it from version {least} on")
    name = f"hutch-landlock-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{name}")
        abstract.listen()
        status, text = run_inside(daemon, sandbox, one.program, outside, {"abstract": name})
        assert status == 1 and text.strip() in one.inside.split(), text
        assert (outside / "file").read_text(encoding="ascii") == "of the host" and len(list(outside.iterdir())) == 3
        status, text = run_outside(one.program, outside, {"abstract": name}, one.without)
        assert status == 0, text


@pytest.mark.usefixtures("version")
def test_processes_of_different_execs_can_signal_and_trace_each_other(daemon, sandbox):
    sleeper = daemon.start(sandbox, "sh", "-c", "echo $$; exec sleep 600").id
    output = daemon.sandbox_folder(sandbox) / f"{sleeper}.out"
    wait_until(lambda: output.exists() and output.read_text(encoding="ascii").endswith("\n"))
    pid = int(output.read_text(encoding="ascii"))
    program = f"call(101, 0x4206, {pid}, 0, 0); os.kill({pid}, 9)"  # PTRACE_SEIZE
    ran = daemon.run(sandbox, PYTHON, "-c", PRELUDE + program, "{}")
    assert ran.exec.result.exit_code == 0, ran.stderr.decode()
    assert daemon.wait_exec(sandbox, sleeper, "EXITED", "FAILED").result.signal == 9
