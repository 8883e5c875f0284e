# SPDX-License-Identifier: Apache-2.0
"""Limits by cgroups of version 2 alone, wherever in their tree the daemon is. scripts/test-vm makes such a host."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hutchd import LIMIT, MIB, Daemon, cgroup_mount, wait_until  # makes hutch.v1 be found

from hutch.v1 import exec_pb2, sandbox_pb2  # isort: skip

USER = 1000
LIMITS = {"memory_bytes": 64 * MIB, "max_processes": 20, "cpu_millis": 300, "cpu_weight": 50}
ENFORCED = set(LIMITS)
# With a child, so that there is somebody beside it to be killed.
MEMORY_HOG = """
import os, time
if os.fork():
    hog = bytearray(256 << 20)
time.sleep(600)
"""
FORKS = """
import os, time
made = 0
for _ in range(60):
    try:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        made += 1
    except BlockingIOError:
        pass
print(made)
"""


def read(folder: Path, name: str) -> str:
    return (folder / name).read_text(encoding="ascii").strip()


def box_of(above: Path, sandbox: str) -> Path:
    """The cgroup that the limits of a sandbox are in: the one above its PID 1."""
    return next((above / sandbox).rglob("init")).parent


def group_of(box: Path) -> Path:
    """That of the only exec that runs."""
    groups = [path for path in box.iterdir() if path.name.startswith("exec-") and read(path, "cgroup.procs")]
    assert len(groups) == 1
    return groups[0]


@contextlib.contextmanager
def subtree(name: str, owner: int = 0):
    """A part of the tree with all controllers, which belongs to @owner, and a leaf in it called hutchd."""
    tree = cgroup_mount()
    (tree / "cgroup.subtree_control").write_text("+cpu +memory +pids", encoding="ascii")
    above = tree / name
    leaf = above / "hutchd"
    leaf.mkdir(parents=True)
    for folder in (above, leaf):
        for path in (folder, folder / "cgroup.procs", folder / "cgroup.threads", folder / "cgroup.subtree_control"):
            os.chown(path, owner, owner)
    try:
        yield above
    finally:
        leaf.rmdir()
        above.rmdir()


@contextlib.contextmanager
def daemon_in(cgroup: Path, user: int = 0):
    """A daemon in a cgroup, as a user, who has to be able to reach the program."""
    folder = Path(tempfile.mkdtemp(prefix="hutch-test-", dir="/tmp"))
    os.chown(folder, user, user)
    daemon = Daemon(folder=folder)
    enter = f'echo 0 > {cgroup}/cgroup.procs && exec setpriv --reuid={user} --regid={user} --clear-groups "$@"'
    before = os.umask(0)  # the socket on which it says that it is ready is ours
    try:
        daemon.begin(wrapper=("sh", "-c", enter, "sh"), umask=before)
        os.umask(before)
        yield daemon
    finally:
        os.umask(before)
        if daemon.process is not None:
            daemon.finish()
        shutil.rmtree(folder, ignore_errors=True)


# Where a daemon can be that has all limits: its leaf, "" for the root of the tree, and its user.
PLACES = {"root": ("", 0), "leaf": ("hutchd", 0), "user": ("hutchd", USER)}


@pytest.fixture(scope="module", name="place", params=PLACES.values(), ids=PLACES.keys())
def make_place(request):
    """A daemon and the cgroup above its sandboxes."""
    leaf, user = request.param
    with contextlib.ExitStack() as stack:
        above = stack.enter_context(subtree(f"hutch-test-{os.getpid()}", user)) if leaf else cgroup_mount()
        daemon = stack.enter_context(daemon_in(above / leaf, user))
        yield daemon, above / f"hutch-{daemon.instance}"


@pytest.fixture(scope="module", name="sandbox")
def make_sandbox(place):
    daemon, _ = place
    sandbox = daemon.ready(limits=LIMITS)
    yield sandbox
    daemon.remove(sandbox)


def test_there_is_version_2_alone():
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    assert [line.split()[2] for line in mounts if line.split()[2].startswith("cgroup")] == ["cgroup2"]
    assert {"cpu", "io", "memory", "pids"} <= set(read(cgroup_mount(), "cgroup.controllers").split())


def test_all_limits_are_enforced(place, sandbox):
    daemon, _ = place
    assert not ENFORCED.intersection(daemon.info().runtimes[0].not_enforced)
    assert not ENFORCED.intersection(daemon.get(sandbox).effective.not_enforced)


def test_the_kernel_has_the_limits(place, sandbox):
    daemon, above = place
    box = box_of(above, sandbox)
    exec_id = daemon.start(sandbox, "sleep", "600").id
    daemon.wait_exec(sandbox, exec_id, "RUNNING")
    group = group_of(box)
    told = {name: read(box, name) for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.max")}
    weight = read(box.parent, "cpu.weight")  # with the keeper's work for it
    oom_group = read(group, "memory.oom.group")
    daemon.cancel(sandbox, exec_id, grace=0)
    assert told == {
        "memory.max": str(64 * MIB),
        "memory.swap.max": "0",
        "pids.max": "21",
        "cpu.max": "30000 100000",
    }
    assert weight == "50"
    assert oom_group == "1"


@contextlib.contextmanager
def swap():
    file = Path("/tmp/swap")
    file.touch(0o600)
    subprocess.run(["fallocate", "--length=512M", file], check=True)
    subprocess.run(["mkswap", "--quiet", file], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["swapon", file], check=True)
    try:
        yield
    finally:
        subprocess.run(["swapoff", file], check=True)
        file.unlink()


def test_a_memory_hog_is_killed_whole_and_alone_though_there_is_swap(place, sandbox):
    daemon, above = place
    bystander = daemon.start(sandbox, "sleep", "600").id
    with swap():
        hog = daemon.start(sandbox, "python3", "-c", MEMORY_HOG).id
        ended = daemon.wait_exec(sandbox, hog)
        assert read(box_of(above, sandbox), "memory.swap.current") == "0"
    assert ended.result.end_reason == exec_pb2.EXEC_END_REASON_OUT_OF_MEMORY
    assert 32 * MIB < ended.result.peak_memory_bytes <= 64 * MIB
    assert not daemon.get_exec(sandbox, bystander).HasField("end_time")
    # The child of the hog went with it: beside PID 1 there is the bystander.
    box = box_of(above, sandbox)
    wait_until(lambda: read(box, "pids.current") == "2", what=f"{read(box, 'pids.current')} processes")
    daemon.cancel(sandbox, bystander, grace=0)
    daemon.wait_exec(sandbox, bystander)


def test_there_are_no_more_processes_than_allowed(place, sandbox):
    daemon, above = place
    box = box_of(above, sandbox)
    exec_id = daemon.start(sandbox, "python3", "-c", FORKS).id
    ended = daemon.wait_exec(sandbox, exec_id)
    assert "limit of 20 processes" in ended.result.message
    assert 0 < int(read(box, "pids.current")) <= 21
    # They are the exec's, which has ended: they go with a stop of the sandbox, and here at once.
    (group_of(box) / "cgroup.kill").write_text("1", encoding="ascii")
    wait_until(lambda: read(box, "pids.current") == "1")


def test_a_cpu_hog_gets_its_share(place, sandbox):
    daemon, _ = place
    busy = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done"
    hogs = [daemon.start(sandbox, "sh", "-c", busy).id for _ in range(2)]
    ended = [daemon.wait_exec(sandbox, one) for one in hogs]
    used = sum(one.result.cpu_time.ToNanoseconds() for one in ended)
    begin = min(one.start_time.ToNanoseconds() for one in ended)
    assert used / (max(one.end_time.ToNanoseconds() for one in ended) - begin) < 0.5  # 0.3, and what bursts add


def test_a_pause_freezes_it(place, sandbox):
    daemon, above = place
    box = box_of(above, sandbox)
    exec_id = daemon.start(sandbox, "sh", "-c", "while :; do echo; done", output_limit_bytes=1000).id
    wait_until(lambda: daemon.get_exec(sandbox, exec_id).stdout_bytes)
    daemon.pause(sandbox)
    daemon.wait(sandbox, "PAUSED")
    assert "frozen 1" in read(box, "cgroup.events")
    used = read(group_of(box), "cpu.stat").splitlines()[0]
    assert used == read(group_of(box), "cpu.stat").splitlines()[0]
    daemon.unpause(sandbox)
    daemon.wait(sandbox, "READY")
    assert "frozen 0" in read(box, "cgroup.events")
    wait_until(lambda: used != read(group_of(box), "cpu.stat").splitlines()[0])
    daemon.cancel(sandbox, exec_id, grace=0)
    daemon.wait_exec(sandbox, exec_id)


def test_usage_is_measured(place, sandbox):
    daemon, _ = place
    daemon.run(sandbox, "true")
    request = sandbox_pb2.GetSandboxRequest(sandbox_id=sandbox, include_usage=True)
    usage = daemon.sandboxes.GetSandbox(request, timeout=LIMIT).sandbox.usage
    assert usage.cpu_time.ToNanoseconds() > 0
    assert 0 < usage.memory_bytes <= usage.memory_peak_bytes <= 64 * MIB


def test_a_daemon_beside_other_processes_tells_that_memory_is_not_enforced():
    """A cgroup that has processes, and is not the root, cannot give the controllers of memory to those below."""
    with subtree(f"hutch-test-beside-{os.getpid()}") as above, daemon_in(above) as daemon:
        assert "memory_bytes" in daemon.info().runtimes[0].not_enforced
        sandbox = daemon.ready()
        assert daemon.run(sandbox, "echo", "well").stdout == b"well\n"
        daemon.remove(sandbox)
