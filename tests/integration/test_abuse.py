# SPDX-License-Identifier: Apache-2.0
"""Hostile load: whatever a sandbox does, the daemon, its neighbours and the host go on, and it can be deleted."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import grpc
import pytest
from abuses import ABUSES, argv
from host import PATIENCE
from hutch.v1 import exec_pb2, system_pb2
from hutchd import LIMIT, MIB, memory_of, refused, seconds, state_name, wait_until
from streams import attach

LIMITS = {"memory_bytes": 96 * MIB, "max_processes": 50, "cpu_millis": 500, "max_open_files": 256}
LASTS = 2 * LIMIT  # seconds, unless it is ended

# A program of the host's own, which needs one of everything.
ON_HOST = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
name = b"/hutch-test-%d" % os.getpid()
assert libc.inotify_init1(0) >= 0, "inotify"
assert libc.mq_open(name, 0o102, 0o600, None) >= 0 and libc.mq_unlink(name) == 0, "mq_open"
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
assert libc.sigqueue(os.getpid(), 40, ctypes.c_void_p(1)) == 0, "sigqueue"
assert libc.timer_create(1, None, ctypes.byref(ctypes.c_void_p())) == 0, "timer_create"
os.openpty(), os.pipe(), os.fork()
"""

# The same in another sandbox, with what it should find there.
IN_NEIGHBOUR = ON_HOST + "print('well')"


def fds_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def printed(daemon, sandbox, exec_id) -> str:
    """The last line that an exec has printed so far."""
    request = exec_pb2.ReadExecOutputRequest(sandbox_id=sandbox, exec_id=exec_id, tail_lines=1)
    steps = daemon.execs.ReadExecOutput(request, timeout=LIMIT)
    return b"".join(step.output.data for step in steps if step.HasField("output")).decode(errors="replace")


def begin(daemon, sandbox, name, **spec) -> tuple[str, list[str]]:
    """Starts an abuse. Returns its exec and what it said that it got, once it is at its worst."""
    exec_id = daemon.start(sandbox, *argv(name, LASTS), **spec).id

    def worst():
        said = printed(daemon, sandbox, exec_id) if name != "output flood" else "ready"
        if said.startswith("ready"):
            return said.split(maxsplit=2)
        ended = daemon.get_exec(sandbox, exec_id)
        assert not ended.HasField("end_time") or ended.result.signal == 9, f"{ended}\n{said}"
        return ["ready"] if ended.HasField("end_time") else None  # the limit of memory was faster

    return exec_id, wait_until(worst)


def assert_others_are_well(daemon, other) -> None:
    """The daemon answers, another sandbox works, and so does the host."""
    for _ in range(10):
        daemon.system.Ping(system_pb2.PingRequest(), timeout=5 * PATIENCE)
    assert state_name(daemon.get(other)) == "READY"
    ran = daemon.run(other, "python3", "-c", IN_NEIGHBOUR, stdin=b"")
    assert b"well\n" in ran.stdout, ran
    host = subprocess.run([sys.executable, "-c", ON_HOST], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert host.returncode == 0, host.stderr


@contextlib.contextmanager
def removed(daemon, sandbox):
    """Deletes a sandbox in the end, and sees that nothing of it is left."""
    try:
        yield sandbox
    finally:
        daemon.delete(sandbox)
        daemon.wait(sandbox, "DELETED")
        assert daemon.leftovers(sandbox) == []


@pytest.mark.parametrize("name", ABUSES)
def test_the_sandbox_suffers_alone_and_goes(daemon, sandbox, name):
    hostile = daemon.ready(limits=LIMITS)
    keeper = daemon.keeper(hostile)
    with removed(daemon, hostile):
        _, got = begin(daemon, hostile, name)
        assert_others_are_well(daemon, sandbox)
        assert state_name(daemon.get(hostile)) == "READY"
        assert memory_of(keeper) < 32 * MIB
        if name == "descriptor hog":
            assert 200 < int(got[1]) < 256
        if name == "terminal hog":
            assert int(got[1]) <= 64
        if name == "mount attempts":
            assert got[1].strip() == "0"
        if name == "deep tree":
            assert int(got[1]) == 1000  # a path of 200 KB
        if name == "tcp flood" and "memory" in (groups := daemon.limit_groups(hostile)):
            held = groups["memory"] / "memory.kmem.tcp.usage_in_bytes"  # v1 counts it apart
            assert 10 * MIB < int(held.read_text(encoding="ascii")) < 1.2 * LIMITS["memory_bytes"]
    assert_others_are_well(daemon, sandbox)


@pytest.mark.parametrize("name", ["fork bomb", "memory hog", "stopped tree", "deaf to signals", "files that change"])
def test_it_can_be_paused_stopped_and_deleted_while_paused(daemon, sandbox, name):
    hostile = daemon.ready(limits=LIMITS)
    with removed(daemon, hostile):
        begin(daemon, hostile, name)
        daemon.pause(hostile)
        daemon.wait(hostile, "PAUSED")
        daemon.unpause(hostile)
        daemon.wait(hostile, "READY")
        daemon.stop(hostile, grace=0.2)
        daemon.wait(hostile, "STOPPED")
        assert daemon.processes(hostile) == []
        daemon.resume(hostile)
        daemon.wait(hostile, "READY")
        assert daemon.shell(hostile, "echo again") == "again\n"
        begin(daemon, hostile, name if name != "files that change" else "fork bomb")
        daemon.pause(hostile)
        daemon.wait(hostile, "PAUSED")
        assert_others_are_well(daemon, sandbox)


def test_who_kills_all_kills_only_its_own(daemon, sandbox):
    hostile = daemon.ready()
    with removed(daemon, hostile):
        bystander = daemon.start(hostile, "sleep", "1000").id
        daemon.wait_exec(hostile, bystander, "RUNNING")
        daemon.run(hostile, "python3", "-c", "import os\nfor i in range(1, 65): os.kill(1, i) if i != 33 else 0")
        daemon.run(hostile, "python3", "-c", "import os; os.kill(-1, 9)")
        assert daemon.wait_exec(hostile, bystander).result.signal == signal.SIGKILL
        assert state_name(daemon.get(hostile)) == "READY"
        assert daemon.shell(hostile, "echo alive") == "alive\n"
        assert_others_are_well(daemon, sandbox)


FILLER = """
import ctypes, os
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
for _ in range(236):
    ctypes.memset(libc.shmat(libc.shmget(0, ctypes.c_size_t(1 << 20), 0o1600), None, 0), 1, 1 << 20)
"""


def test_what_is_told_of_memory_holds_in_a_full_sandbox(daemon, sandbox):
    """Of v1: there an exec has no group of its own then, which would make the kernel look for memory inside while
    nobody on the host can make or remove a cgroup."""
    hostile = daemon.ready(limits={"memory_bytes": 256 * MIB})
    with removed(daemon, hostile):
        roomy = daemon.start(hostile, "sleep", "1000").id
        daemon.wait_exec(hostile, roomy, "RUNNING")
        daemon.run(hostile, "python3", "-c", FILLER)  # it stays without a process
        small = daemon.start(hostile, "sleep", "1000").id
        daemon.wait_exec(hostile, small, "RUNNING")
        for group in (path for name, path in daemon.limit_groups(hostile).items() if name == "memory"):
            wait_until(lambda group=group: len([path for path in group.iterdir() if path.is_dir()]) == 1)
            within = next(path for path in group.iterdir() if path.is_dir()) / "cgroup.procs"
            assert len(within.read_text(encoding="utf-8").split()) == 1  # that of the first, which had room
        large = daemon.run(hostile, "python3", "-c", "x = bytearray(512 << 20)").exec
        assert large.result.end_reason == exec_pb2.EXEC_END_REASON_OUT_OF_MEMORY
        assert large.result.peak_memory_bytes < 256 * MIB
        daemon.cancel(hostile, small, grace=0)
        ended = daemon.wait_exec(hostile, small).result
        assert ended.end_reason == exec_pb2.EXEC_END_REASON_CANCELLED
        assert_others_are_well(daemon, sandbox)


# ---- Output ----


def test_a_flood_that_nobody_reads_is_bounded_and_counted(daemon, sandbox):
    hostile = daemon.ready(limits=LIMITS)
    with removed(daemon, hostile):
        flood, _ = begin(daemon, hostile, "output flood", output_limit_bytes=MIB)
        kept = [daemon.sandbox_folder(hostile) / f"{flood}.{end}" for end in ("out", "err")]
        keeper, before = daemon.keeper(hostile), daemon.memory()
        wait_until(lambda: all(told(daemon, hostile, flood)))
        assert_others_are_well(daemon, sandbox)
        assert all(path.stat().st_blocks * 512 < 2 * MIB for path in kept)
        assert memory_of(keeper) < 16 * MIB and daemon.memory() < before + 8 * MIB
        daemon.cancel(hostile, flood, grace=0)
        result = daemon.wait_exec(hostile, flood).result
        for stream, path in zip((result.stdout, result.stderr), kept):
            assert stream.total_bytes > 20 * MIB
            assert stream.total_bytes - stream.dropped_bytes == MIB
            assert path.stat().st_blocks * 512 < 2 * MIB


def processor_time(pid: int) -> float:
    """In seconds."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        user, system = file.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def test_a_flood_costs_little_more_than_the_processor_time_that_the_sandbox_has(daemon):
    hostile = daemon.ready(limits=LIMITS | {"cpu_millis": 100})
    with removed(daemon, hostile):
        flood, _ = begin(daemon, hostile, "output flood", output_limit_bytes=MIB)
        wait_until(lambda: all(told(daemon, hostile, flood)))
        keeper, began = daemon.keeper(hostile), time.monotonic()
        used = processor_time(keeper)
        time.sleep(3)
        share = (processor_time(keeper) - used) / (time.monotonic() - began)
        assert share < 0.1 / 2, share


def told(daemon, sandbox, exec_id) -> list[bool]:
    """Of each stream whether more was printed than is kept."""
    request = exec_pb2.ReadExecOutputRequest(sandbox_id=sandbox, exec_id=exec_id, tail_lines=1)
    more = {exec_pb2.OUTPUT_STREAM_STDOUT: False, exec_pb2.OUTPUT_STREAM_STDERR: False}
    for step in daemon.execs.ReadExecOutput(request, timeout=LIMIT):
        if step.HasField("output"):
            more[step.output.stream] |= step.output.offset > 20 * MIB
    return list(more.values())


def test_a_slow_reader_of_a_flood_costs_nothing_and_is_told_of_gaps(daemon, sandbox):
    hostile = daemon.ready(limits=LIMITS)
    with removed(daemon, hostile):
        flood, _ = begin(daemon, hostile, "output flood", output_limit_bytes=MIB)
        before = daemon.memory()
        with attach(daemon, hostile, flood) as slow:
            end = time.monotonic() + 2
            while time.monotonic() < end:
                slow.step()
                time.sleep(0.1)
            wait_until(lambda: all(told(daemon, hostile, flood)))
            assert_others_are_well(daemon, sandbox)
            assert daemon.memory() < before + 8 * MIB
            wait_until(lambda: slow.step() and slow.output.gaps)  # each of which was checked to go forward
        daemon.cancel(hostile, flood, grace=0)
        daemon.wait_exec(hostile, flood)


# ---- The callers ----


def test_streams_that_nobody_ends_cost_nothing_when_their_connection_is_gone(own_daemon):
    sandbox, other = own_daemon.ready(), own_daemon.ready()
    exec_id = own_daemon.start(sandbox, "sleep", "1000").id
    own_daemon.wait_exec(sandbox, exec_id, "RUNNING")
    pid = own_daemon.process.pid
    for _ in range(3):
        client = own_daemon.client(uid=0)
        streams = [attach(client, sandbox, exec_id) for _ in range(50)]
        assert all(stream.exec for stream in streams)
        fds, memory = fds_of(pid), own_daemon.memory()
        assert_others_are_well(own_daemon, other)
        own_daemon.clients.remove(client)
        client.close()
        wait_until(lambda: fds_of(pid) < fds)
    wait_until(lambda: own_daemon.memory() < memory + 4 * MIB)
    assert state_name(own_daemon.get_exec(sandbox, exec_id)) == "RUNNING"


def test_as_many_execs_as_allowed_and_no_more(start_daemon):
    daemon = start_daemon({"limits": {"execs_per_sandbox": 40}})
    hostile, other = daemon.ready(), daemon.ready()
    running = [daemon.start(hostile, "sleep", "1000").id for _ in range(40)]
    for _ in range(500):
        with refused("QUOTA_EXCEEDED"):
            daemon.start(hostile, "sleep", "1000")
    assert_others_are_well(daemon, other)
    for exec_id in running:
        daemon.cancel(hostile, exec_id, grace=0)
    for exec_id in running:
        daemon.wait_exec(hostile, exec_id)
    assert daemon.shell(hostile, "echo again") == "again\n"


def test_thousands_of_small_execs_leave_nothing(own_daemon):
    hostile, other = own_daemon.ready(), own_daemon.ready()
    keeper = own_daemon.keeper(hostile)
    failed = []

    def storm(client, n):
        for _ in range(n):
            try:
                client.run(hostile, "true")
            except grpc.RpcError as error:
                failed.append(error)

    def all_at_once(n):
        threads = [threading.Thread(target=storm, args=(client, n)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    clients = [own_daemon.client() for _ in range(8)]
    all_at_once(25)
    before = [fds_of(pid) for pid in (keeper, own_daemon.process.pid)]
    memory = memory_of(keeper)
    all_at_once(225)
    assert not failed
    assert_others_are_well(own_daemon, other)
    assert memory_of(keeper) < memory + 2 * MIB
    wait_until(lambda: all(map(lambda pid, n: fds_of(pid) <= n + 2, (keeper, own_daemon.process.pid), before)))
    groups = own_daemon.cgroup(hostile)
    wait_until(lambda: len([path for path in groups.iterdir() if path.is_dir()]) <= 2)


def test_a_keeper_of_an_abused_sandbox_can_be_killed(own_daemon):
    """Then nobody is left who knows the sandbox but the daemon."""
    other = own_daemon.ready()
    for name in ("fork bomb", "stopped tree", "deep tree"):
        hostile = own_daemon.ready(limits=LIMITS)
        with removed(own_daemon, hostile):
            begin(own_daemon, hostile, name)
            os.kill(own_daemon.keeper(hostile), signal.SIGKILL)
            own_daemon.wait(hostile, "FAILED")
            wait_until(lambda: not own_daemon.processes(hostile))  # pylint: disable=cell-var-from-loop
            assert_others_are_well(own_daemon, other)


def test_a_daemon_that_is_killed_finds_abused_sandboxes_again(own_daemon):
    other = own_daemon.ready()
    hostile = {name: own_daemon.ready(limits=LIMITS) for name in ("fork bomb", "output flood", "zombie maker")}
    for name, sandbox in hostile.items():
        begin(own_daemon, sandbox, name)
    own_daemon.restart(kill=True)
    assert_others_are_well(own_daemon, other)
    for sandbox in hostile.values():
        assert state_name(own_daemon.get(sandbox)) == "READY"
        with removed(own_daemon, sandbox):
            pass


def test_the_time_that_an_exec_has_holds_against_who_does_not_listen(daemon):
    hostile = daemon.ready(limits=LIMITS)
    with removed(daemon, hostile):
        for name in ("deaf to signals", "stopped tree"):
            exec_id = daemon.start(hostile, *argv(name, LASTS), timeout=seconds(1), kill_grace=seconds(0.1)).id
            assert state_name(daemon.wait_exec(hostile, exec_id)) == "TIMED_OUT"
        wait_until(lambda: len(daemon.processes(hostile)) == 1)
