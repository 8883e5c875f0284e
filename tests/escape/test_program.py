# SPDX-License-Identifier: Apache-2.0
"""A process inside can be made to execute the keeper's own program, by /proc/self/exe, and then be looked at. That
program is a sealed copy, which does not lead to the one on the host, also where both belong to the same user."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hutchd import BUILD, Daemon

USER = 1000
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


@pytest.fixture(name="folder")
def make_folder():
    """A folder of the user's, with a keeper of their own in it."""
    folder = Path(tempfile.mkdtemp(prefix="hutch-escape-", dir="/tmp"))
    for name in ("hutchd", "hutch-keeper"):
        shutil.copy(BUILD / name, folder)
    for path in [folder, *folder.iterdir()]:
        os.chown(path, USER, USER)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


class UsersDaemon(Daemon):
    """A daemon that a user has started, with programs that are the user's."""

    def command(self, *arguments: str | Path) -> list:
        return [self.folder / "hutchd", *super().command(*arguments)[1:]]


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


def test_the_program_of_root_is_out_of_reach(daemon):
    before = state_of(BUILD / "hutch-keeper")
    told = hunt_in(daemon, "root")
    assert told[-1] == "caught" and len(told) == 3, told
    assert state_of(BUILD / "hutch-keeper") == before


def test_the_program_of_the_same_user_is_out_of_reach(folder):
    daemon = UsersDaemon(folder=folder, config={"native": {"keeper": str(folder / "hutch-keeper")}})
    before = state_of(folder / "hutch-keeper")
    mask = os.umask(0)  # for the socket that the daemon says it is ready by
    try:
        daemon.begin(user=USER, group=USER, extra_groups=[], umask=0o077)
    finally:
        os.umask(mask)
    try:
        told = hunt_in(daemon, "agent")
        assert told in (["fchmod EPERM", "write EPERM", "caught"], ["fchmod EPERM", "write ETXTBSY", "caught"])
        assert state_of(folder / "hutch-keeper") == before
    finally:
        daemon.finish()


def test_a_program_that_is_no_copy_is_within_reach(folder):
    before = state_of(folder / "hutch-keeper")
    with subprocess.Popen(
        [PYTHON, "-c", HUNT, str(folder)], user=USER, group=USER, extra_groups=[], stdout=subprocess.PIPE, text=True
    ) as hunter:
        assert hunter.stdout.readline() == "hunting\n"
        while hunter.poll() is None:
            subprocess.run(
                [folder / "hutch-keeper", "remove", "/tmp/nothing"], user=USER, group=USER, timeout=LIMIT, check=False
            )
            if state_of(folder / "hutch-keeper") != before:
                break
        told = hunter.communicate(timeout=LIMIT)[0].split("\n")
    assert "fchmod EPERM" not in told and "caught" in told
    assert state_of(folder / "hutch-keeper")[0] & 0o777 == 0o600
