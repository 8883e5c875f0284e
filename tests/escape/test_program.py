# SPDX-License-Identifier: Apache-2.0
"""A process inside can be made to execute the keeper's own program, by /proc/self/exe, and then be looked at. That
program is a sealed copy, which does not lead to the one on the host, also where both belong to the same user. Kernels
before 6.3 do not seal its mode: then that user can spoil the copy, which harms no other sandbox."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from host import PATIENCE
from hutchd import BUILD, Daemon
from user_daemon import UID, UserDaemon

LIMIT = 30 * PATIENCE  # seconds
PYTHON = "/usr/bin/python3"

# Stops a process of the keeper's program, gets hold of the program by it, and takes from it what it can be executed by.
HUNT = """
import errno, os, signal, sys, time
print("hunting", flush=True)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if pid == str(os.getpid()) or sys.argv[1] not in os.readlink(f"/proc/{pid}/exe"):
                continue
            os.kill(int(pid), signal.SIGSTOP)
            program = os.open(f"/proc/{pid}/exe", os.O_RDONLY)
            os.kill(int(pid), signal.SIGKILL)
        except OSError:
            continue
        try:
            os.fchmod(program, 0o600)
        except OSError as error:
            print("fchmod", errno.errorcode[error.errno])
        try:
            os.pwrite(os.open(f"/proc/self/fd/{program}", os.O_WRONLY), b"\\x7f", 0)  # as it is
        except OSError as error:
            print("write", errno.errorcode[error.errno])
        print("caught")
        sys.exit()
"""

F_ADD_SEALS, F_SEAL_EXEC = 1033, 32

# Becomes a program for which the kernel knows no F_SEAL_EXEC: fcntl() with it fails with EINVAL.
WITHOUT_SEALS = """
import ctypes, os, struct, sys
steps = [(0x20, 0, 0, 0), (0x15, 0, 5, 72), (0x20, 0, 0, 24), (0x15, 0, 3, 1033), (0x20, 0, 0, 32), (0x45, 0, 1, 32)]
steps += [(0x06, 0, 0, 0x50000 | 22), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code))) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""


class OldKernelDaemon(UserDaemon):
    def wrapper(self) -> tuple:
        return (*super().wrapper(), PYTHON, "-c", WITHOUT_SEALS)


def kernel_seals_modes() -> bool:
    copy = os.memfd_create("hutch-escape", os.MFD_ALLOW_SEALING)
    try:
        fcntl.fcntl(copy, F_ADD_SEALS, F_SEAL_EXEC)
    except OSError:
        return False
    finally:
        os.close(copy)
    return True


def copy_keeper(folder: Path) -> Path:
    """A keeper that belongs to the user."""
    program = folder / "hutch-keeper"
    shutil.copy(BUILD / "hutch-keeper", program)
    os.chown(program, UID, UID)
    return program


def hunt_in(daemon: Daemon, user: str) -> list[str]:
    """What the hunter tells, while somebody has the keeper execute itself again and again. After that, others can still
    be started."""
    sandbox = daemon.ready()
    hunter = daemon.start(sandbox, PYTHON, "-c", HUNT, "hutch-keeper", str(LIMIT), user=user).id
    output = daemon.sandbox_folder(sandbox) / f"{hunter}.out"
    tried = []
    while not daemon.get_exec(sandbox, hunter).HasField("result"):
        tried.append(daemon.run(sandbox, "/proc/self/exe", "remove", "/tmp/nothing", user=user).exec.result)
    assert tried
    assert daemon.run(daemon.ready(), "echo", "well").stdout == b"well\n"
    return output.read_text(encoding="utf-8").split("\n")[1:-1]


def state_of(program: Path) -> tuple:
    status = program.stat()
    return status.st_mode, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def check_told(told: list[str], is_sealed: bool) -> None:
    modes = ["fchmod EPERM"] if is_sealed else []
    assert told in ([*modes, "write EPERM", "caught"], [*modes, "write ETXTBSY", "caught"])


def test_the_program_is_out_of_reach(daemon):
    before = state_of(BUILD / "hutch-keeper")
    told = hunt_in(daemon, "root" if daemon.has_users else "agent")
    check_told(told, not isinstance(daemon, UserDaemon) or kernel_seals_modes())
    assert state_of(BUILD / "hutch-keeper") == before


@pytest.mark.parametrize("kind", [UserDaemon, OldKernelDaemon])
def test_the_program_of_the_same_user_is_out_of_reach(kind):
    daemon = kind()
    program = copy_keeper(daemon.folder)
    daemon.write_config({"native": {"keeper": str(program)}})
    before = state_of(program)
    daemon.begin()
    try:
        check_told(hunt_in(daemon, "agent"), kind is UserDaemon and kernel_seals_modes())
        assert state_of(program) == before
    finally:
        daemon.finish()


def test_a_program_that_is_no_copy_is_within_reach():
    folder = Path(tempfile.mkdtemp(prefix="hutch-escape-", dir="/tmp"))
    folder.chmod(0o755)
    program = copy_keeper(folder)
    options = {"user": UID, "group": UID, "extra_groups": []}
    hunt = [PYTHON, "-c", HUNT, str(folder), str(LIMIT)]
    with subprocess.Popen(hunt, stdout=subprocess.PIPE, text=True, **options) as hunter:
        assert hunter.stdout.readline() == "hunting\n"
        while hunter.poll() is None:
            with contextlib.suppress(OSError):  # the hunter has it: nobody can execute it any more
                subprocess.run([program, "remove", "/tmp/nothing"], timeout=LIMIT, check=False, **options)
        told = hunter.communicate(timeout=LIMIT)[0].split("\n")
    mode = program.stat().st_mode
    shutil.rmtree(folder)
    assert "fchmod EPERM" not in told and "caught" in told
    assert mode & 0o777 == 0o600
