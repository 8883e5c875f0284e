# SPDX-License-Identifier: Apache-2.0
"""Limits by cgroups of version 2 alone, wherever in their tree the daemon is. scripts/test-vm makes such a host."""

import subprocess
from pathlib import Path

import pytest
from hutchd import LIMIT, MIB, cgroup_mount, wait_until  # makes hutch.v1 be found
from places import HAS_SYSTEMD, PLACES, read

from hutch.v1 import exec_pb2, sandbox_pb2  # isort: skip

LIMITS = {"memory_bytes": 64 * MIB, "max_processes": 20, "cpu_millis": 700, "cpu_weight": 50}
ENFORCED = set(LIMITS)
# With a child, so that there is somebody beside it to be killed.
MEMORY_HOG = """
import os, time
if os.fork():
    hog = bytearray(128 << 20)
time.sleep(600)
"""
FORKS = """
import os, time
made = 0
for _ in range(30):
    try:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        made += 1
    except BlockingIOError:
        pass
print(made)
"""


def group_of(box: Path) -> Path:
    """That of the only exec that runs."""
    groups = [path for path in box.iterdir() if path.name.startswith("exec-") and read(path, "cgroup.procs")]
    assert len(groups) == 1
    return groups[0]


@pytest.fixture(scope="module", name="daemon", params=list(PLACES), ids=[place.__name__ for place in PLACES])
def make_daemon(request):
    with request.param() as daemon:
        yield daemon


@pytest.fixture(scope="module", name="sandbox")
def make_sandbox(daemon):
    sandbox = daemon.ready(limits=LIMITS)
    yield sandbox
    daemon.remove(sandbox)


def test_there_is_version_2_alone():
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    assert [line.split()[2] for line in mounts if line.split()[2].startswith("cgroup")] == ["cgroup2"]
    assert {"cpu", "io", "memory", "pids"} <= set(read(cgroup_mount(), "cgroup.controllers").split())


def test_no_hierarchy_of_version_1_is_made(daemon):
    assert daemon.info()
    assert "name=hutch" not in Path("/proc/self/cgroup").read_text(encoding="utf-8")


def test_cgroups_are_in_the_right_place(request, daemon, sandbox):
    part = PLACES[request.node.callspec.params["daemon"]]
    found = daemon.cgroup(sandbox).parent
    scope = f"hutch-{daemon.instance}.scope/" if HAS_SYSTEMD else ""
    assert str(found).startswith(str(cgroup_mount()))
    assert part in str(found) and str(found).endswith(f"/{scope}hutch-{daemon.instance}")
    assert found.parent == cgroup_mount() or part != "/"


def test_all_limits_are_enforced(daemon, sandbox):
    assert not ENFORCED.intersection(daemon.info().runtimes[0].not_enforced)
    assert not ENFORCED.intersection(daemon.get(sandbox).effective.not_enforced)


def test_the_doctor_finds_it_well(daemon):
    found = daemon.examine()
    assert found["is"] == "ok", found


def test_the_kernel_has_the_limits(daemon, sandbox):
    box = daemon.box(sandbox)
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
        "cpu.max": "70000 100000",
    }
    assert weight == "50"
    assert oom_group == "1"


@pytest.fixture(scope="session", name="swap")
def make_swap():
    file = Path("/tmp/swap")
    file.touch(0o600)
    subprocess.run(["fallocate", "--length=128M", file], check=True)
    subprocess.run(["mkswap", "--quiet", file], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["swapon", file], check=True)
    try:
        yield
    finally:
        subprocess.run(["swapoff", file], check=True)
        file.unlink()


def test_a_memory_hog_is_killed_whole_and_alone_though_there_is_swap(daemon, sandbox, swap):
    bystander = daemon.start(sandbox, "sleep", "600").id
    hog = daemon.start(sandbox, "python3", "-c", MEMORY_HOG).id
    ended = daemon.wait_exec(sandbox, hog)
    assert read(daemon.box(sandbox), "memory.swap.current") == "0"
    assert ended.result.end_reason == exec_pb2.EXEC_END_REASON_OUT_OF_MEMORY
    assert 32 * MIB < ended.result.peak_memory_bytes <= 64 * MIB
    assert not daemon.get_exec(sandbox, bystander).HasField("end_time")
    # The child of the hog went with it: beside PID 1 there is the bystander.
    box = daemon.box(sandbox)
    wait_until(lambda: read(box, "pids.current") == "2", what=f"{read(box, 'pids.current')} processes")
    daemon.cancel(sandbox, bystander, grace=0)
    daemon.wait_exec(sandbox, bystander)


def test_there_are_no_more_processes_than_allowed(daemon, sandbox):
    box = daemon.box(sandbox)
    exec_id = daemon.start(sandbox, "python3", "-c", FORKS).id
    ended = daemon.wait_exec(sandbox, exec_id)
    assert "limit of 20 processes" in ended.result.message
    assert 0 < int(read(box, "pids.current")) <= 21
    # They are the exec's, which has ended: they go with a stop of the sandbox, and here at once.
    (group_of(box) / "cgroup.kill").write_text("1", encoding="ascii")
    wait_until(lambda: read(box, "pids.current") == "1")


def test_a_cpu_hog_gets_its_share(daemon, sandbox):
    busy = "i=0; while [ $i -lt 4000 ]; do i=$((i + 1)); done"
    hogs = [daemon.start(sandbox, "sh", "-c", busy).id for _ in range(2)]
    ended = [daemon.wait_exec(sandbox, one) for one in hogs]
    used = sum(one.result.cpu_time.ToNanoseconds() for one in ended)
    begin = min(one.start_time.ToNanoseconds() for one in ended)
    # 0.7, and what bursts add; without a limit it is 2.
    assert used / (max(one.end_time.ToNanoseconds() for one in ended) - begin) < 1


def test_a_pause_freezes_it(daemon, sandbox):
    box = daemon.box(sandbox)
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


def test_usage_is_measured(daemon, sandbox):
    daemon.run(sandbox, "true")
    request = sandbox_pb2.GetSandboxRequest(sandbox_id=sandbox, include_usage=True)
    usage = daemon.sandboxes.GetSandbox(request, timeout=LIMIT).sandbox.usage
    assert usage.cpu_time.ToNanoseconds() > 0
    assert 0 < usage.memory_bytes <= usage.memory_peak_bytes <= 64 * MIB


def test_sandboxes_outlive_the_daemon_and_keep_their_limits(daemon, sandbox):
    exec_id = daemon.start(sandbox, "sleep", "600").id
    box, before = daemon.box(sandbox), daemon.wait_exec(sandbox, exec_id, "RUNNING")
    daemon.restart()
    after = daemon.get_exec(sandbox, exec_id)
    assert after.start_time == before.start_time and not after.HasField("end_time")
    assert daemon.box(sandbox) == box
    assert read(box, "memory.max") == str(64 * MIB)

    # What comes later has limits, too, in the same place.
    other = daemon.ready(limits={"memory_bytes": 32 * MIB})
    assert read(daemon.box(other), "memory.max") == str(32 * MIB)
    assert daemon.cgroup(other).parent == daemon.cgroup(sandbox).parent
    daemon.remove(other)
    daemon.cancel(sandbox, exec_id, grace=0)
    daemon.wait_exec(sandbox, exec_id)
