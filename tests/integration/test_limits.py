# SPDX-License-Identifier: Apache-2.0
"""Limits of a sandbox against programs that want more: the sandbox suffers, and nobody else."""

import os
import signal
import statistics
import time
from pathlib import Path

import pytest
from hutch.v1 import event_pb2, exec_pb2, sandbox_pb2, system_pb2
from host import PATIENCE
from hutchd import LIMIT, MIB, Daemon, cgroup_mount, cgroup_of_own, refused, state_name, wait_until
from streams import read_output

# All of these end, so that a limit that does not hold fails a test and not the machine.
MEMORY_HOG = "import time; hog = bytearray(256 << 20); time.sleep(60)"
FORK_BOMB = """
import os, sys, time
made = 0
for _ in range(2000):
    try:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
    except BlockingIOError:
        pass
print(made, flush=True)
time.sleep(float(sys.argv[1]))
"""
# Prints the most of a processor that it got in half a second: in the others the host may have had none for it.
CPU_HOG = """
import time
most = 0
for _ in range(8):
    begin, used = time.monotonic(), time.process_time()
    while time.monotonic() < begin + 0.5:
        pass
    most = max(most, (time.process_time() - used) / (time.monotonic() - begin))
print(most)
"""


def hits(daemon, sandbox, limit):
    """What was told of a limit."""
    found = [one for one in daemon.history(sandbox) if one.type == event_pb2.EVENT_TYPE_LIMIT_HIT]
    return [one.limit_hit for one in found if one.limit_hit.limit == limit]


def usage(daemon, sandbox):
    request = sandbox_pb2.GetSandboxRequest(sandbox_id=sandbox, include_usage=True)
    return daemon.sandboxes.GetSandbox(request, timeout=LIMIT).sandbox.usage


def assert_others_are_well(daemon, other):
    """The daemon answers and another sandbox works, in times that do not depend on the hostile one."""
    times = []
    for _ in range(10):
        begin = time.monotonic()
        daemon.system.Ping(system_pb2.PingRequest(), timeout=LIMIT)
        times.append(time.monotonic() - begin)
    assert statistics.median(times) < 0.5 * PATIENCE  # the host itself may stall now and then
    assert daemon.run(other, "echo", "well").stdout == b"well\n"


@pytest.fixture(name="limited")
def make_limited(daemon):
    """A sandbox with small limits."""
    limits = {"memory_bytes": 64 * MIB, "max_processes": 20, "cpu_millis": 200}
    sandbox = daemon.ready(limits=limits)
    yield sandbox
    daemon.remove(sandbox)


def test_limits_are_in_force_and_told(daemon, limited):
    effective = daemon.get(limited).effective
    assert effective.limits.memory_bytes == 64 * MIB
    assert effective.limits.max_processes == 20
    assert effective.limits.cpu_millis == 200
    enforced = {"memory_bytes", "max_processes", "cpu_millis", "cpu_weight"}
    assert not enforced.intersection(effective.not_enforced)
    assert not enforced.intersection(daemon.info().runtimes[0].not_enforced)


@pytest.mark.rules("PROF-007")
def test_a_memory_hog_is_killed_alone(daemon, sandbox, limited):
    bystander = daemon.start(limited, "sleep", "60").id
    hog = daemon.start(limited, "python3", "-c", MEMORY_HOG).id
    ended = daemon.wait_exec(limited, hog)
    assert_others_are_well(daemon, sandbox)
    assert ended.result.end_reason == exec_pb2.EXEC_END_REASON_OUT_OF_MEMORY
    assert ended.result.signal == 9
    assert "out of memory" in ended.result.message
    assert 32 * MIB < ended.result.peak_memory_bytes <= 64 * MIB
    [hit] = hits(daemon, limited, "memory_bytes")
    assert (hit.value, hit.count, hit.exec_id) == (64 * MIB, 1, hog)
    assert not daemon.get_exec(limited, bystander).HasField("end_time")
    assert daemon.shell(limited, "echo alive") == "alive\n"


def test_memory_of_files_counts_and_does_not_end_the_sandbox(daemon):
    sandbox = daemon.ready(limits={"memory_bytes": 32 * MIB, "tmp_bytes": 128 * MIB})
    filled = daemon.run(sandbox, "sh", "-c", "head -c 100000000 /dev/zero > /tmp/big").exec.result
    assert filled.end_reason == exec_pb2.EXEC_END_REASON_OUT_OF_MEMORY or filled.exit_code == 137
    # Whether another program still finds room depends on a few pages. What is in memory goes with a stop.
    assert state_name(daemon.get(sandbox)) == "READY"
    daemon.stop(sandbox, grace=0)
    daemon.wait(sandbox, "STOPPED")
    daemon.resume(sandbox)
    daemon.wait(sandbox, "READY")
    assert daemon.shell(sandbox, "ls /tmp; echo alive") == "alive\n"
    daemon.remove(sandbox)


@pytest.mark.rules("PROF-007")
def test_a_fork_bomb_stays_in_its_sandbox(daemon, sandbox, limited):
    bomb = daemon.start(limited, "python3", "-c", FORK_BOMB, "2").id
    wait_until(lambda: hits(daemon, limited, "max_processes"))
    assert usage(daemon, limited).processes <= 20
    assert_others_are_well(daemon, sandbox)
    ended = daemon.wait_exec(limited, bomb)
    assert "limit of 20 processes" in ended.result.message
    told = hits(daemon, limited, "max_processes")
    assert told[0].value == 20
    assert 0 < sum(hit.count for hit in told) <= 2000
    took = ended.end_time.ToNanoseconds() - ended.start_time.ToNanoseconds()
    assert len(told) <= took / 1e9 + 2  # one in a second, not one for each process


def test_as_many_processes_as_allowed_can_be_made(daemon, limited):
    ran = daemon.run(limited, "python3", "-c", FORK_BOMB, "0")
    assert ran.stdout == b"19\n"


def test_a_cpu_hog_gets_its_share(daemon, sandbox, limited):
    hog = daemon.start(limited, "python3", "-c", CPU_HOG).id
    assert_others_are_well(daemon, sandbox)
    ended = daemon.wait_exec(limited, hog)
    took = ended.end_time.ToNanoseconds() - ended.start_time.ToNanoseconds()
    assert ended.result.cpu_time.ToNanoseconds() / took < 0.4
    assert float(read_output(daemon, limited, hog)[0].stdout) > 0.1


def test_usage_is_measured(daemon, limited):
    exec_id = daemon.start(limited, "python3", "-c", "import time; x = bytearray(20 << 20); time.sleep(60)").id
    wait_until(lambda: usage(daemon, limited).memory_bytes > 20 * MIB)
    now = usage(daemon, limited)
    assert now.memory_bytes <= now.memory_peak_bytes <= 64 * MIB
    assert now.processes == 1
    assert now.cpu_time.ToNanoseconds() > 0
    daemon.cancel(limited, exec_id, grace=0)


def test_the_least_limits_let_a_program_run(daemon):
    sandbox = daemon.ready(limits={"memory_bytes": 8 * MIB, "max_processes": 1, "cpu_millis": 10})
    assert daemon.run(sandbox, "echo", "small").stdout == b"small\n"
    daemon.remove(sandbox)


def test_nothing_of_the_limits_is_left_when_the_keeper_is_killed(own_daemon):
    sandbox = own_daemon.ready()
    own_daemon.start(sandbox, "sleep", "60")
    groups = own_daemon.limit_groups(sandbox)
    assert all((path / "cgroup.procs").exists() for path in groups.values())
    os.kill(own_daemon.keeper(sandbox), signal.SIGKILL)
    own_daemon.wait(sandbox, "FAILED")
    wait_until(lambda: not own_daemon.limit_groups(sandbox))
    own_daemon.remove(sandbox)


def tree_has_controllers() -> bool:
    return bool({"memory", "cpu", "pids"} & set((cgroup_mount() / "cgroup.controllers").read_text("ascii").split()))


def test_a_daemon_in_a_leaf_of_its_own_has_its_cgroups_beside_it():
    if tree_has_controllers():
        pytest.skip("there the daemon of root has its cgroups at the top of the tree: tests/vm")
    daemon = Daemon()
    above = cgroup_of_own() / daemon.folder.name
    leaf = above / "hutchd"
    leaf.mkdir(parents=True)
    try:
        daemon.begin(wrapper=("sh", "-c", f'echo 0 > {leaf}/cgroup.procs && exec "$@"', "sh"))
        sandbox = daemon.ready()
        assert (above / f"hutch-{daemon.instance}" / sandbox / "box").exists()
        assert not list(leaf.glob("hutch-*"))
        assert daemon.run(sandbox, "echo", "well").stdout == b"well\n"
    finally:
        daemon.finish()
        leaf.rmdir()
        above.rmdir()


def test_why_a_limit_is_not_enforced_is_told_with_what_helps(daemon):
    [runtime] = daemon.info().runtimes
    assert [one.limit for one in runtime.unenforced] == list(runtime.not_enforced)
    for one in runtime.unenforced:
        assert one.why and "\n" not in one.why + one.fix
        with refused("LIMIT_NOT_ENFORCEABLE") as told:
            daemon.create(limits={one.limit: 100})
        assert one.why in told.message and one.fix in told.message and "\n" not in told.message


def test_the_empty_hierarchy_is_there_only_beside_others_of_version_1(daemon):
    daemon.info()  # it serves
    mounts = Path("/proc/self/mountinfo").read_text("utf-8")
    seen = ":name=hutch:" in Path("/proc/self/cgroup").read_text("utf-8")
    assert seen == (" - cgroup " in mounts)
