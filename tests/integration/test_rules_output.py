# SPDX-License-Identifier: Apache-2.0
"""The vectors of output that take their time, and what is told when output is beyond its limit."""

import json

import pytest
from hutch.v1 import event_pb2, exec_pb2
from host import PATIENCE
from hutchd import ROOT, refused, state_name, wait_until
from streams import STDOUT, read_output

MIB = 1 << 20
LONG = 90 * PATIENCE  # seconds
CASES = json.loads((ROOT / "spec/vectors/output.json").read_text(encoding="utf-8"))["cases"]
WHOLE = 64 * MIB  # that are kept of a stream
BEYOND = 10 << 30  # the total of what lies beyond 32 bits


def cases(kind: str, least: int, most: int) -> list:
    """Those whose totals are in a range and whose limits can be asked for."""
    found = [case for case in CASES if case["in"]["kind"] == kind and 0 < case["in"]["limit"] <= WHOLE]
    return [case for case in found if least <= max(case["in"].get("total", 0), case["in"].get("stdout", 0)) <= most]


def by_name(found: list):
    return pytest.mark.parametrize("case", found, ids=lambda case: case["name"])


def summary(total: int, dropped: int) -> exec_pb2.StreamSummary:
    return exec_pb2.StreamSummary(total_bytes=total, dropped_bytes=dropped, truncated=dropped > 0)


@pytest.fixture(scope="module", name="block")
def make_block(daemon, shared_sandbox) -> bytes:
    """A MiB without a pattern, which is also the sandbox's file block."""
    return daemon.run(shared_sandbox, "sh", "-c", "head -c 1048576 /dev/urandom | tee block").stdout


def write_blocks(daemon, sandbox: str, total: int, limit: int) -> str:
    """An exec that has written @total bytes, block after block."""
    script = "while :; do cat block block block block block block block block || exit; done | head -c $0"
    made = daemon.start(sandbox, "sh", "-c", script, str(total), output_limit_bytes=limit).id
    daemon.wait_exec(sandbox, made, "EXITED", limit=LONG)
    return made


def blocks(block: bytes, begin: int, end: int) -> bytes:
    """What stands from one offset to another."""
    repeated = block * ((end - begin) // MIB + 2)
    return repeated[begin % MIB :][: end - begin]


@pytest.mark.vectors("output")
@by_name(cases("stream", 10 * MIB + 1, WHOLE + 1))
def test_head_and_tail_of_much_output_are_kept(daemon, shared_sandbox, block, case):
    total, out = case["in"]["total"], case["out"]
    made = write_blocks(daemon, shared_sandbox, total, case["in"]["limit"])
    output, ended = read_output(daemon, shared_sandbox, made)
    assert ended.result.stdout == summary(total, out["dropped"])
    kept = blocks(block, 0, out["head"]) + blocks(block, out["tail_start"], total)
    assert output.stdout == kept
    assert output.gaps == [(STDOUT, out["head"], out["tail_start"])] * out["truncated"]


@pytest.fixture(scope="module", name="beyond")
def make_beyond(daemon, shared_sandbox, block):
    """An exec whose output goes beyond 32 bits: nothing but zeros between two blocks, which is quick."""
    script = f"cat block; head -c {BEYOND - 2 * len(block)} /dev/zero; cat block"
    made = daemon.start(shared_sandbox, "sh", "-c", script, output_limit_bytes=WHOLE).id
    daemon.wait_exec(shared_sandbox, made, "EXITED", limit=LONG)
    return made


@pytest.mark.vectors("output")
@by_name(cases("stream", BEYOND, BEYOND))
def test_head_and_tail_of_output_beyond_32_bits_are_kept(daemon, shared_sandbox, block, beyond, case):
    out = case["out"]
    output, ended = read_output(daemon, shared_sandbox, beyond)
    assert ended.result.stdout == summary(BEYOND, out["dropped"])
    assert output.stdout == block + bytes(WHOLE - 2 * len(block)) + block
    assert output.gaps == [(STDOUT, out["head"], out["tail_start"])]


@pytest.mark.vectors("output")
@by_name(cases("read", BEYOND, BEYOND))
def test_reading_beyond_32_bits_goes_on_where_the_vectors_say(daemon, shared_sandbox, block, beyond, case):
    offset = case["in"]["offset"]
    if "error" in case:
        with refused(case["error"]["reason"]):
            read_output(daemon, shared_sandbox, beyond, stdout_offset=offset)
        return
    output, _ = read_output(daemon, shared_sandbox, beyond, stdout_offset=offset)
    out = case["out"]
    assert output.begin[STDOUT] == out["offset"]
    assert output.stdout == bytes(out["available"] - len(block)) + block


@pytest.mark.vectors("output")
@by_name(cases("shared", 10 * MIB, 100 * MIB))
def test_two_streams_share_16_mib(daemon, shared_sandbox, block, case):
    totals = {name: case["in"][name] for name in ("stdout", "stderr")}
    script = 'blocks() { while :; do cat block || exit; done | head -c "$1"; }; blocks $0; blocks $1 >&2'
    argv = "sh", "-c", script, *map(str, totals.values())
    request = exec_pb2.RunCommandRequest(
        sandbox_id=shared_sandbox, spec={"argv": argv}, output_limit_bytes=case["in"]["limit"]
    )
    answer = daemon.execs.RunCommand(request, timeout=LONG)
    for name, total in totals.items():
        kept = min(total, case["out"][f"{name}_limit"])
        head, tail = (kept - kept // 2, kept // 2) if kept < total else (kept, 0)
        assert getattr(answer, name) == blocks(block, 0, head) + blocks(block, total - tail, total)
        told = getattr(answer, f"{name}_summary")
        assert (told.total_bytes, told.dropped_bytes, told.truncated) == (total, total - kept, kept < total)


# ---- Beyond the limit ----


def limits_hit(daemon, sandbox: str) -> list:
    return [one.limit_hit for one in daemon.history(sandbox) if one.type == event_pb2.EVENT_TYPE_LIMIT_HIT]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_beyond_its_limit_is_an_event_and_told_in_words(daemon, sandbox, stream):
    script = "printf 01234567890" + " >&2" * (stream == "stderr")
    made = daemon.start(sandbox, "sh", "-c", script, output_limit_bytes=10).id
    ended = daemon.wait_exec(sandbox, made, "EXITED")
    assert getattr(ended.result, stream).truncated
    assert "10 bytes" in ended.result.message
    [hit] = limits_hit(daemon, sandbox)
    assert hit == event_pb2.LimitHit(limit="output_limit_bytes", value=10, exec_id=made, count=1)
    types = [event.type for event in daemon.history(sandbox)[-2:]]
    assert types == [event_pb2.EVENT_TYPE_LIMIT_HIT, event_pb2.EVENT_TYPE_EXEC_STATE_CHANGED]


def test_output_that_reaches_its_limit_is_no_event(daemon, sandbox):
    ended = daemon.run(sandbox, "sh", "-c", "printf 0123456789; printf 0123456789 >&2", output_limit_bytes=10).exec
    assert not ended.result.message and not limits_hit(daemon, sandbox)


def test_an_exec_that_was_ended_tells_that_and_its_output(daemon, sandbox):
    made = daemon.start(sandbox, "sh", "-c", "yes | head -c 100; sleep 1000", output_limit_bytes=10).id
    daemon.wait_exec(sandbox, made, "RUNNING")
    wait_until(lambda: daemon.get_exec(sandbox, made).stdout_bytes == 100)
    daemon.cancel(sandbox, made)
    ended = daemon.wait_exec(sandbox, made)
    assert state_name(ended) == "CANCELLED"
    assert "cancelled" in ended.result.message and "10 bytes" in ended.result.message
    assert [hit.exec_id for hit in limits_hit(daemon, sandbox)] == [made]
