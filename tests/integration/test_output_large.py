# SPDX-License-Identifier: Apache-2.0
"""Much output: at the speed of the disk, through slow and fast readers, with flat memory."""

import os
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hutch.v1 import exec_pb2
from host import PATIENCE
from hutchd import LIMIT, memory_of, state_name, wait_until
from streams import STDOUT, open_output, read_output

MIB = 1 << 20
GIB = 1 << 30
LONG = 90 * PATIENCE  # seconds that a gigabyte may take
FLAT = 24 * MIB  # by how much memory may grow, whatever the output


class Memory:
    """Looks at how much memory processes have, until it is closed."""

    def __init__(self, *pids: int):
        self.before = {pid: memory_of(pid) for pid in pids}
        self.peak = dict(self.before)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()

    def look(self) -> None:
        while not self.ended.wait(0.02):
            for pid in self.peak:
                self.peak[pid] = max(self.peak[pid], memory_of(pid))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def growth(self) -> int:
        return max(self.peak[pid] - self.before[pid] for pid in self.peak)


@pytest.fixture(scope="module", name="block")
def make_block(daemon, shared_sandbox) -> bytes:
    """A MiB without a pattern, which is also the sandbox's file block."""
    return daemon.run(shared_sandbox, "sh", "-c", "head -c 1048576 /dev/urandom | tee block").stdout


def write_blocks(daemon, sandbox_id: str, count: int, **spec) -> str:
    """Starts a command that writes @count blocks."""
    files = " ".join(["block"] * 64)
    return daemon.start(
        sandbox_id, "sh", "-c", f"i=0; while [ $i -lt {count // 64} ]; do cat {files}; i=$((i+1)); done", **spec
    ).id


def read_blocks(daemon, sandbox_id: str, exec_id: str, block: bytes, wait=lambda: None) -> int:
    """Reads all output, and sees that it is block after block. Returns how many bytes it was."""
    twice = memoryview(block + block)
    position = 0
    for step in open_output(daemon, sandbox_id, exec_id, timeout=LONG, follow=True):
        if step.HasField("exec"):
            assert (state_name(step.exec), step.exec.result.exit_code) == ("EXITED", 0)
            return position
        chunk = step.output
        assert chunk.offset == position
        begin = position % MIB
        assert chunk.data == twice[begin : begin + len(chunk.data)]
        position += len(chunk.data)
        wait()
    raise AssertionError("the stream ended without its end")


@pytest.mark.rules("OUT-001")
def test_a_gigabyte_through_a_slow_and_a_fast_reader(daemon, shared_sandbox, block):
    keeper = daemon.keeper(shared_sandbox)
    slow_is_free = threading.Event()
    ends = {}

    def slow() -> int:
        got = read_blocks(daemon, shared_sandbox, made, block, lambda: slow_is_free.wait(0.05))
        ends["slow"] = time.monotonic()
        return got

    def fast() -> int:
        got = read_blocks(daemon, shared_sandbox, made, block)
        ends["fast"] = time.monotonic()
        return got

    with Memory(daemon.process.pid, keeper) as memory, ThreadPoolExecutor(2) as pool:
        made = write_blocks(daemon, shared_sandbox, 1024, output_limit_bytes=2 * GIB)
        readers = [pool.submit(slow), pool.submit(fast)]
        assert readers[1].result() == GIB
        assert not readers[0].done()  # it kept nobody from going on
        slow_is_free.set()
        assert readers[0].result() == GIB
    assert memory.growth() < FLAT
    daemon.run(shared_sandbox, "true")
    assert daemon.get_exec(shared_sandbox, made).result.stdout.dropped_bytes == 0


@pytest.mark.rules("OUT-001")
def test_a_reader_that_stalls_holds_up_neither_the_process_nor_the_daemon(daemon, shared_sandbox, block):
    keeper = daemon.keeper(shared_sandbox)
    with Memory(daemon.process.pid, keeper) as memory:
        made = write_blocks(daemon, shared_sandbox, 256, output_limit_bytes=GIB)
        stalled = [open_output(daemon.client(), shared_sandbox, made, timeout=LONG, follow=True) for _ in range(8)]
        for call in stalled:
            next(call)
        assert daemon.wait_exec(shared_sandbox, made, limit=LONG).stdout_bytes == len(block) * 256
        times = []
        for _ in range(20):
            begin = time.monotonic()
            assert daemon.shell(shared_sandbox, "echo well") == "well\n"
            times.append(time.monotonic() - begin)
        assert statistics.median(times) < 1 * PATIENCE  # a host may stall now and then
        assert memory.growth() < FLAT
    for call in stalled:
        call.cancel()


def test_output_past_its_limit_costs_neither_memory_nor_disk(daemon, shared_sandbox, block):
    keeper = daemon.keeper(shared_sandbox)
    with Memory(daemon.process.pid, keeper) as memory:
        made = write_blocks(daemon, shared_sandbox, 512, output_limit_bytes=3 * MIB)
        ended = daemon.wait_exec(shared_sandbox, made, limit=LONG)
    assert memory.growth() < FLAT
    assert ended.result.stdout == exec_pb2.StreamSummary(
        total_bytes=512 * MIB, dropped_bytes=509 * MIB, truncated=True
    )
    output, _ = read_output(daemon, shared_sandbox, made)
    assert output.stdout == (block * 3)[: 3 * MIB // 2] + (block * 3)[3 * MIB // 2 :]
    assert output.gaps == [(STDOUT, 3 * MIB // 2, 512 * MIB - 3 * MIB // 2)]
    files = daemon.sandbox_folder(shared_sandbox).glob(f"{made}*")
    assert sum(file.stat().st_blocks * 512 for file in files) < 8 * MIB


def test_parallel_writers_and_readers_mix_nothing_up(daemon, shared_sandbox, block):
    def one(number: int) -> bool:
        made = daemon.start(shared_sandbox, "sh", "-c", "cat block block; printf $0; cat block >&2", f"{number:03}").id
        output, _ = read_output(daemon, shared_sandbox, made, follow=True)
        return output.stdout == block * 2 + b"%03d" % number and output.stderr == block

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(one, range(50)))


@pytest.mark.rules("OUT-001")
def test_many_readers_of_one_exec_get_the_same(daemon, shared_sandbox, block):
    made = daemon.start(shared_sandbox, "sh", "-c", "for i in 1 2 3 4 5; do cat block; sleep 0.05; done").id
    with ThreadPoolExecutor(30) as pool:
        reads = [pool.submit(read_output, daemon, shared_sandbox, made, follow=True) for _ in range(30)]
        assert all(read.result()[0].stdout == block * 5 for read in reads)


def test_readers_that_come_and_go_leave_nothing(daemon, shared_sandbox):
    made = daemon.start(shared_sandbox, "sh", "-c", "while :; do echo x; sleep 0.01; done").id
    wait_until(lambda: daemon.get_exec(shared_sandbox, made).stdout_bytes)
    files = len(list(daemon_files(daemon)))
    for _ in range(200):
        call = open_output(daemon, shared_sandbox, made, timeout=LIMIT, follow=True)
        next(call)
        call.cancel()
    wait_until(lambda: len(list(daemon_files(daemon))) <= files + 2, what="descriptors are left open")
    daemon.cancel(shared_sandbox, made, grace=0)


def daemon_files(daemon):
    """Descriptors that the daemon has open."""
    return os.scandir(f"/proc/{daemon.process.pid}/fd")
