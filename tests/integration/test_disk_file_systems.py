# SPDX-License-Identifier: Apache-2.0
"""Disk limits and removal where the state folder is on btrfs, tmpfs, ext4 or xfs."""

import fcntl
import os
import struct
from pathlib import Path

import pytest
from hutch.v1 import exec_pb2, sandbox_pb2
from hutchd import LIMIT, MIB, wait_until
from state_images import daemon_on, run_all

SUBVOL_CREATE, SNAP_CREATE_V2, SUBVOL_RDONLY = 0x5000940E, 0x50009417, 2
FOUND = 2 * LIMIT

# All of these end, so that a limit that does not hold fails a test and not the machine.
ATTRIBUTES_OF_ONE = """
import os, time
open("one", "w").close()
for n in range(4000):
    os.setxattr("one", f"user.{n}", bytes(9000))
time.sleep(1000)
"""
ATTRIBUTES_OF_MANY = """
import os, time
for n in range(10000):
    open(f"{n}", "w").close()
    os.setxattr(f"{n}", "user.x", os.urandom(3500))
time.sleep(1000)
"""
BIG_FILE = """
import sys, time
with open(sys.argv[1], "wb", buffering=0) as file:
    for _ in range(int(sys.argv[2])):
        file.write(bytes(1 << 20))
time.sleep(1000)
"""
FAST_FILE = """
import os, sys, time
for n in range(int(sys.argv[1])):
    os.makedirs(f"many/{n % 100}", exist_ok=True)
    os.close(os.open(f"many/{n % 100}/{n}", os.O_CREAT | os.O_WRONLY))
with open("fast", "wb", buffering=0) as file:
    for _ in range(128):
        file.write(bytes(4 << 20))
time.sleep(1000)
"""
MANY_FILES = """
import os, time
for n in range(20000):
    os.close(os.open(f"{n}", os.O_CREAT | os.O_WRONLY))
time.sleep(1000)
"""


def try_mount(kind: str, image: Path, place: Path) -> str:
    """Mounts a new file system. What is in the way; "" for nothing."""
    commands = [["mount", "-t", "tmpfs", "-o", "size=768M", "none", place]]
    if kind != "tmpfs":
        commands = [["truncate", "-s", "768M", image], [f"mkfs.{kind}", "-q", image]]
        commands += [["mount", "-o", "loop", image, place]]
    return run_all(commands)


@pytest.fixture(scope="module", name="mounted")
def start_mounted(request):
    """A daemon whose state folder is on a file system of that kind."""
    with daemon_on(request.param, lambda image, place: try_mount(request.param, image, place)) as daemon:
        yield daemon


on_btrfs = pytest.mark.parametrize("mounted", ["btrfs"], indirect=True)


def make_subvolume(parent: Path, name: str) -> Path:
    """A new subvolume, of its parent's owner."""
    owner, folder = parent.stat(), os.open(parent, os.O_RDONLY)
    fcntl.ioctl(folder, SUBVOL_CREATE, bytearray(struct.pack("=q4088s", 0, name.encode())))
    os.close(folder)
    os.chown(parent / name, owner.st_uid, owner.st_gid)
    return parent / name


def make_snapshot(source: Path, parent: Path, name: str) -> Path:
    """A read-only snapshot of a subvolume."""
    fds = [os.open(path, os.O_RDONLY) for path in (source, parent)]
    wanted = struct.pack("=qQQ32x4040s", fds[0], 0, SUBVOL_RDONLY, name.encode())
    fcntl.ioctl(fds[1], SNAP_CREATE_V2, bytearray(wanted))
    for fd in fds:
        os.close(fd)
    return parent / name


def run_to_limit(daemon, sandbox, script, *arguments):
    """Runs a program that is to be ended by a limit."""
    started = daemon.start(sandbox, "python3", "-c", script, *arguments)
    ended = daemon.wait_exec(sandbox, started.id, limit=FOUND)
    assert ended.result.end_reason == exec_pb2.EXEC_END_REASON_DISK_FULL, ended
    return ended


@pytest.mark.rules("PROF-008")
@pytest.mark.parametrize("mounted", ["btrfs", "tmpfs", "ext4", "xfs"], indirect=True)
def test_extended_attributes_count(mounted):
    sandbox = mounted.ready(limits={"disk_bytes": 16 * MIB, "disk_inodes": 100000})
    ended = run_to_limit(mounted, sandbox, ATTRIBUTES_OF_MANY)
    assert "bytes on disk" in ended.result.message
    mounted.remove(sandbox)


@pytest.mark.rules("PROF-008")
@on_btrfs
def test_many_extended_attributes_of_one_file_count(mounted):
    sandbox = mounted.ready(limits={"disk_bytes": 16 * MIB})
    run_to_limit(mounted, sandbox, ATTRIBUTES_OF_ONE)
    mounted.remove(sandbox)


@pytest.mark.rules("PROF-008")
@on_btrfs
def test_what_is_in_a_subvolume_counts(mounted):
    sandbox = mounted.ready(limits={"disk_bytes": 32 * MIB})
    make_subvolume(mounted.sandbox_folder(sandbox) / "fs/workspace", "sub")
    run_to_limit(mounted, sandbox, BIG_FILE, "sub/big", "64")
    mounted.remove(sandbox)


@pytest.mark.rules("PROF-007", "PROF-008")
@on_btrfs
def test_limits_hold_where_the_file_system_tells_late_what_it_holds(mounted):
    sandbox = mounted.ready(limits={"disk_bytes": 64 * MIB, "disk_inodes": 2000})
    run_to_limit(mounted, sandbox, BIG_FILE, "big", "512")
    assert (mounted.sandbox_folder(sandbox) / "fs/workspace/big").stat().st_size < 200 * MIB
    mounted.shell(sandbox, "rm big")
    wait_until(lambda: mounted.run(sandbox, "sh", "-c", "echo data > file").exec.result.exit_code == 0)
    ended = run_to_limit(mounted, sandbox, MANY_FILES)
    assert "2000 files and folders" in ended.result.message
    mounted.remove(sandbox)


def blocks_below(folder: Path) -> int:
    """What is in a folder, in bytes."""
    files = (os.path.join(path, name) for path, _, names in os.walk(folder) for name in names)
    return sum(os.lstat(file).st_blocks * 512 for file in files)


@pytest.mark.rules("PROF-008")
@pytest.mark.parametrize("n_files", [0, 20000])
@pytest.mark.parametrize("mounted", ["ext4"], indirect=True)
def test_who_writes_fast_has_little_more_than_the_limit(mounted, n_files):
    """Where counting takes long, nothing is written meanwhile."""
    if not mounted.cgroup() and n_files > 0:
        pytest.skip("there are no cgroups")
    sandbox = mounted.ready(limits={"disk_bytes": 256 * MIB, "disk_inodes": 40000})
    run_to_limit(mounted, sandbox, FAST_FILE, str(n_files))
    assert blocks_below(mounted.sandbox_folder(sandbox) / "fs") <= 256 * MIB * 1.1
    mounted.remove(sandbox)


@on_btrfs
def test_subvolumes_and_snapshots_of_a_sandbox_go_with_it(mounted):
    sandbox = mounted.ready()
    workspace = mounted.sandbox_folder(sandbox) / "fs/workspace"
    below = workspace / "/".join("d" * 20)
    below.mkdir(parents=True)
    subvolume = make_subvolume(below, "sub")
    (subvolume / "file").write_bytes(bytes(MIB))
    (subvolume / "/".join("d" * 80)).mkdir(parents=True)
    inner = make_subvolume(subvolume / "d/d", "inner")
    (inner / "/".join("d" * 50)).mkdir(parents=True)
    make_snapshot(inner, subvolume, "inner-snapshot")
    for parent, name in ((workspace, "one"), (below, "two"), (inner / "d", "three")):
        make_snapshot(subvolume, parent, name)
    os.chmod(inner, 0o000)
    mounted.delete(sandbox)
    wait_until(lambda: sandbox not in mounted.ids(), what="it stays")
    assert not mounted.leftovers(sandbox)


def usage(daemon, sandbox):
    request = sandbox_pb2.GetSandboxRequest(sandbox_id=sandbox, include_usage=True)
    return daemon.sandboxes.GetSandbox(request, timeout=LIMIT).sandbox.usage


@on_btrfs
def test_usage_has_subvolumes_and_attributes(mounted):
    sandbox = mounted.ready(limits={"disk_bytes": 256 * MIB})
    workspace = mounted.sandbox_folder(sandbox) / "fs/workspace"
    subvolume = make_subvolume(workspace, "sub")
    (subvolume / "file").write_bytes(bytes(8 * MIB))
    for number in range(1000):
        os.setxattr(subvolume / "file", f"user.{number}", bytes(8192))
    os.sync()
    wait_until(lambda: 15 * MIB < usage(mounted, sandbox).disk_bytes < 18 * MIB)
    mounted.remove(sandbox)
