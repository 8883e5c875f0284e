# SPDX-License-Identifier: Apache-2.0
"""Walls that are seen only when the one before them, the list of system calls, is not there: keepers without it."""

import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sanitizers
from keeper import MIB, USER

SEARCH = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
found = libc.syscall(250, 10, -3, b"user", b"hutch-test", 0)  # KEYCTL_SEARCH in the session's keyring
print("found" if found > 0 else errno.errorcode[ctypes.get_errno()])
"""


def make_key() -> None:
    """Has this process, and those that it starts, a session with a key in it."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.syscall(250, 1, None) > 0  # KEYCTL_JOIN_SESSION_KEYRING
    assert libc.syscall(248, b"user", b"hutch-test", b"secret", 6, -3) > 0  # add_key


def test_the_keyring_of_the_session_is_another(start_keeper):
    make_key()
    outside = subprocess.run([sys.executable, "-c", SEARCH], capture_output=True, text=True, check=True)
    assert outside.stdout == "found\n"
    keeper = start_keeper()
    ran = keeper.run("/usr/bin/python3", "-c", SEARCH)
    assert keeper.output(ran.exec_id) in (b"ENOKEY\n", b"EACCES\n"), keeper.output(ran.exec_id, "err")


def test_a_keeper_without_a_list_allows_everything(start_keeper):
    keeper = start_keeper()
    ran = keeper.shell("grep Seccomp: /proc/self/status; unshare -U true && echo nested")
    assert keeper.output(ran.exec_id) == b"Seccomp:\t0\nnested\n"


def test_a_list_holds_for_execs_and_init_has_its_own(start_keeper):
    allow_all = (0x06).to_bytes(2, "little") + bytes(2) + (0x7FFF0000).to_bytes(4, "little")
    for config in ({}, {"seccomp_filter": allow_all}):
        keeper = start_keeper(config)
        ran = keeper.shell("grep -h Seccomp: /proc/self/status /proc/1/status")
        execs = 2 if config else 0
        init = execs if sanitizers.LOGS else 2  # with sanitizers, which make calls of their own, it has that of execs
        assert keeper.output(ran.exec_id) == b"Seccomp:\t%d\nSeccomp:\t%d\n" % (execs, init)


def test_nothing_runs_with_a_list_that_the_kernel_refuses(start_keeper):
    keeper = start_keeper({"seccomp_filter": b"\xff" * 8})
    failure = keeper.describe().failure if sanitizers.LOGS else keeper.shell("true").end.failure
    assert "Invalid argument" in failure.message, failure


@pytest.mark.parametrize("is_rootless", [False, True], ids=["root", "a user"])
def test_the_shared_image_cannot_be_written_through_a_keeper(start_keeper, is_rootless):
    """Whoever has its descriptor, and be it root."""
    keeper = start_keeper({"uid_base": USER, "uid_count": 1, "cgroup": ""}, USER) if is_rootless else start_keeper()
    image = next(one for one in (keeper.folder.parents[1] / "images").iterdir() if one.name.startswith("host-"))
    folders = [one for one in Path(f"/proc/{keeper.process.pid}/fd").iterdir() if one.exists() and image.samefile(one)]
    assert folders
    for folder in folders:
        for name in ("etc/passwd", "etc/new"):
            with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
                os.open(folder / name, os.O_WRONLY | os.O_CREAT)


FILL = """
import errno, os, sys

def fails_with(work):
    try:
        return work() or "nothing"
    except OSError as error:
        return errno.errorcode[error.errno]

def fill():
    with open(path, "wb", buffering=0) as file:
        for _ in range(int(sys.argv[1]) >> 20):
            file.write(bytes(1 << 20))

def make_files():
    for number in range(int(sys.argv[1]) // 4096):
        os.close(os.open(f"{path}-{number}", os.O_CREAT))

for folder in ("/dev/shm", "/dev"):
    path = folder + "/hutch-test"
    limits = os.statvfs(folder)
    print(limits.f_blocks * limits.f_frsize, limits.f_files, fails_with(fill), end=" ")
    os.unlink(path)
    print(fails_with(make_files))
    for name in os.listdir(folder):
        if name.startswith("hutch-test"):
            os.unlink(os.path.join(folder, name))
"""


def test_files_in_memory_have_a_limit(start_keeper):
    """Of their own: there may be none of memory."""
    keeper = start_keeper({"limits": {"no_network": True, "memory_bytes": 64 * MIB}})
    ran = keeper.run("/usr/bin/python3", "-c", FILL, str(48 * MIB))
    limits = f"{32 * MIB} {32 * MIB // 4096} ENOSPC ENOSPC"
    assert keeper.output(ran.exec_id).decode().splitlines() == [limits, limits], keeper.output(ran.exec_id, "err")


def test_without_a_limit_of_memory_files_in_it_have_one(start_keeper):
    keeper = start_keeper()
    ran = keeper.shell("stat -f -c '%b %s' /dev/shm /dev")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    sizes = [line.split() for line in keeper.output(ran.exec_id).decode().splitlines()]
    assert len(sizes) == 2
    assert all(int(blocks) * int(size) <= min(1024 * MIB, memory // 2) for blocks, size in sizes), sizes
