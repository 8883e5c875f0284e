# SPDX-License-Identifier: Apache-2.0
"""A process inside can be made to execute the keeper's own program, by /proc/self/exe, and then be looked at. That
program is a sealed copy, which does not lead to the one on the host, also where both belong to the same user."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from hutchd import BUILD, Daemon
from user_daemon import UID, UserDaemon

LIMIT = 30  # seconds
PYTHON = "/usr/bin/python3"

# Stops a process of the keeper's program, gets hold of the program by it, and takes from it what it can be executed by.
HUNT = """
import errno, os, signal, sys, time
print("hunting", flush=True)
end = time.monotonic() + 20
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


def copy_keeper(folder: Path) -> Path:
    """A keeper that belongs to the user."""
    program = folder / "hutch-keeper"
    shutil.copy(BUILD / "hutch-keeper", program)
    os.chown(program, UID, UID)
    return program


def hunt_in(daemon: Daemon, user: str) -> list[str]:
    """What the hunter tells, while somebody has the keeper execute itself again and again."""
    sandbox = daemon.ready()
    hunter = daemon.start(sandbox, PYTHON, "-c", HUNT, "hutch-keeper", user=user).id
    output = daemon.sandbox_folder(sandbox) / f"{hunter}.out"
    tried = []
    while not daemon.get_exec(sandbox, hunter).HasField("result"):
        tried.append(daemon.run(sandbox, "/proc/self/exe", "remove", "/tmp/nothing", user=user).exec.result)
    assert tried
    return output.read_text(encoding="utf-8").split("\n")[1:-1]


def state_of(program: Path) -> tuple:
    status = program.stat()
    return status.st_mode, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def test_the_program_is_out_of_reach(daemon):
    before = state_of(BUILD / "hutch-keeper")
    told = hunt_in(daemon, "root" if daemon.has_users else "agent")
    assert told[-1] == "caught" and len(told) == 3, told
    assert state_of(BUILD / "hutch-keeper") == before


def test_the_program_of_the_same_user_is_out_of_reach():
    daemon = UserDaemon()
    program = copy_keeper(daemon.folder)
    daemon.write_config({"native": {"keeper": str(program)}})
    before = state_of(program)
    daemon.begin()
    try:
        told = hunt_in(daemon, "agent")
        assert told in (["fchmod EPERM", "write EPERM", "caught"], ["fchmod EPERM", "write ETXTBSY", "caught"])
        assert state_of(program) == before
    finally:
        daemon.finish()


def test_a_program_that_is_no_copy_is_within_reach():
    folder = Path(tempfile.mkdtemp(prefix="hutch-escape-", dir="/tmp"))
    folder.chmod(0o755)
    program = copy_keeper(folder)
    before = state_of(program)
    options = {"user": UID, "group": UID, "extra_groups": []}
    with subprocess.Popen([PYTHON, "-c", HUNT, str(folder)], stdout=subprocess.PIPE, text=True, **options) as hunter:
        assert hunter.stdout.readline() == "hunting\n"
        while hunter.poll() is None and state_of(program) == before:
            subprocess.run([program, "remove", "/tmp/nothing"], timeout=LIMIT, check=False, **options)
        told = hunter.communicate(timeout=LIMIT)[0].split("\n")
    mode = program.stat().st_mode
    shutil.rmtree(folder)
    assert "fchmod EPERM" not in told and "caught" in told
    assert mode & 0o777 == 0o600
