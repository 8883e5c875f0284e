# SPDX-License-Identifier: Apache-2.0
"""What is kept of output, and how it is read: live and afterwards, from any offset, by lines, by many."""

import json
import time

import pytest
from hutch.v1 import exec_pb2
from hutchd import ROOT, refused, state_name, wait_until
from streams import PIPED, STDERR, STDOUT, create_attached, open_output, read_output, run_to_end

MIB = 1 << 20
CASES = json.loads((ROOT / "spec/vectors/output.json").read_text(encoding="utf-8"))["cases"]


def vectors(kind: str) -> list:
    """The cases of a kind that an exec can be asked for: a limit of 0 means another one, and time is short."""
    return [
        case
        for case in CASES
        if case["in"]["kind"] == kind and case["in"]["limit"] > 0 and case["in"].get("total", 0) <= 10 * MIB
    ]


def counted(total: int) -> bytes:
    """Output whose every byte says where it stands."""
    return b"".join(b"%07d\n" % i for i in range(total // 8 + 1))[:total]


def start_counted(daemon, sandbox_id: str, total: int, limit: int, then: str = ""):
    script = f"seq -f %07.0f 0 {total // 8 + 1} | head -c {total}; {then}"
    return daemon.start(sandbox_id, "sh", "-c", script, output_limit_bytes=limit).id


# ---- What is kept ----


@pytest.mark.vectors("output")
@pytest.mark.parametrize("case", vectors("stream"), ids=lambda case: case["name"])
def test_head_and_tail_are_kept_as_in_the_vectors(daemon, shared_sandbox, case):
    total, limit, out = case["in"]["total"], case["in"]["limit"], case["out"]
    made = start_counted(daemon, shared_sandbox, total, limit)
    ended = daemon.wait_exec(shared_sandbox, made)
    output, _ = read_output(daemon, shared_sandbox, made)
    whole = counted(total)
    tail = whole[out["tail_start"] :] if out["truncated"] else b""
    assert output.stdout == whole[: out["head"]] + tail
    gap = (STDOUT, out["head"], out["tail_start"])
    assert output.gaps == [gap] * (out["truncated"] and tail != b"")
    assert ended.result.stdout == exec_pb2.StreamSummary(
        total_bytes=total, dropped_bytes=out["dropped"], truncated=out["truncated"]
    )
    assert ended.stdout_bytes == total


@pytest.mark.vectors("output")
@pytest.mark.parametrize("case", vectors("bytes"), ids=lambda case: case["name"])
def test_chunks_are_kept_as_in_the_vectors(daemon, shared_sandbox, case):
    octal = ["".join(f"\\{byte:03o}" for byte in chunk.encode()) for chunk in case["in"]["chunks"]]
    script = 'for chunk; do printf "$chunk" >&2; done'
    ended, _ = run_to_end(
        daemon, shared_sandbox, "sh", "-c", script, "sh", *octal, output_limit_bytes=case["in"]["limit"]
    )
    output, _ = read_output(daemon, shared_sandbox, ended.id)
    assert output.stderr == (case["out"]["head"] + case["out"]["tail"]).encode()
    assert ended.result.stderr.dropped_bytes == case["out"]["dropped"]


@pytest.mark.vectors("output")
@pytest.mark.parametrize("case", vectors("read"), ids=lambda case: case["name"])
def test_reading_goes_on_where_the_vectors_say(daemon, shared_sandbox, case):
    wanted = case["in"]
    then = "" if wanted["finished"] else "sleep 99"
    made = start_counted(daemon, shared_sandbox, wanted["total"], wanted["limit"], then)
    if wanted["finished"]:
        daemon.wait_exec(shared_sandbox, made)
    else:
        wait_until(lambda: daemon.get_exec(shared_sandbox, made).stdout_bytes == wanted["total"])
    if "error" in case:
        with refused(case["error"]["reason"]):
            read_output(daemon, shared_sandbox, made, stdout_offset=wanted["offset"])
        return
    output, _ = read_output(daemon, shared_sandbox, made, stdout_offset=wanted["offset"])
    out = case["out"]
    assert output.stdout[: out["available"]] == counted(wanted["total"])[out["offset"] :][: out["available"]]
    assert output.begin.get(STDOUT, out["offset"]) == out["offset"]
    daemon.cancel(shared_sandbox, made, grace=0)


def test_each_stream_has_a_limit_of_its_own(daemon, sandbox):
    script = "printf 0123456789; printf abcdefgh >&2"
    ended, _ = run_to_end(daemon, sandbox, "sh", "-c", script, output_limit_bytes=8)
    output, _ = read_output(daemon, sandbox, ended.id)
    assert (output.stdout, output.stderr) == (b"01236789", b"abcdefgh")
    assert ended.result.stdout.truncated and not ended.result.stderr.truncated


def test_a_limit_that_is_reached_while_it_is_read_is_a_gap_at_most(daemon, sandbox):
    """A live reader that keeps up loses nothing; one that does not sees a gap. What it gets is always right."""
    total = 5 * MIB
    made = start_counted(daemon, sandbox, total, 100_000)
    output, ended = read_output(daemon, sandbox, made, follow=True)
    whole = counted(total)
    assert ended.result.stdout.dropped_bytes == total - 100_000
    begin, rest = 0, output.stdout
    for _, gap_from, gap_to in output.gaps:
        assert rest[: gap_from - begin] == whole[begin:gap_from]
        rest, begin = rest[gap_from - begin :], gap_to
    assert rest == whole[begin:]


# ---- What it is ----


@pytest.mark.rules("OUT-007")
def test_output_is_bytes(daemon, sandbox):
    script = "i=0; while [ $i -lt 256 ]; do printf \"\\\\$(printf %03o $i)\"; i=$((i+1)); done"
    _, output = run_to_end(daemon, sandbox, "sh", "-c", script)
    assert output.stdout == bytes(range(256))


@pytest.mark.rules("OUT-007")
def test_random_bytes_come_as_they_are(daemon, sandbox):
    daemon.shell(sandbox, "head -c 3000000 /dev/urandom > noise")
    _, output = run_to_end(daemon, sandbox, "cat", "noise")
    assert output.stdout == daemon.run(sandbox, "cat", "noise").stdout
    assert len(output.stdout) == 3000000


@pytest.mark.rules("OUT-007")
@pytest.mark.parametrize("text", ["", "x", "no newline", "\n", "\n\n", "a\nb", "a\r\nb\r"])
def test_no_newline_is_added_or_changed(daemon, shared_sandbox, text):
    ended, output = run_to_end(daemon, shared_sandbox, "printf", "%s", text)
    assert output.stdout == text.encode()
    assert ended.stdout_bytes == len(text)


def test_a_million_lines_come_whole(daemon, sandbox):
    _, output = run_to_end(daemon, sandbox, "seq", "1000000")
    assert output.stdout == "".join(f"{i}\n" for i in range(1, 1000001)).encode()
    assert output.gaps == []


def test_many_small_writes_come_whole(daemon, sandbox):
    script = "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done"
    _, output = run_to_end(daemon, sandbox, "sh", "-c", script)
    assert output.stdout == "".join(f"{i}\n" for i in range(20000)).encode()


def test_both_streams_come_whole(daemon, sandbox):
    script = "seq 200000 & seq 200000 >&2 & wait"
    _, output = run_to_end(daemon, sandbox, "sh", "-c", script)
    expected = "".join(f"{i}\n" for i in range(1, 200001)).encode()
    assert (output.stdout, output.stderr) == (expected, expected)


# ---- Reading ----


@pytest.mark.rules("OUT-001")
def test_what_is_there_is_read_without_waiting(daemon, sandbox):
    made = daemon.start(sandbox, "sh", "-c", "echo one; sleep 1000").id
    wait_until(lambda: daemon.get_exec(sandbox, made).stdout_bytes)
    output, last = read_output(daemon, sandbox, made)  # by a deadline long before the end of the exec
    assert (output.stdout, state_name(last), last.stdout_bytes) == (b"one\n", "RUNNING", 4)
    daemon.cancel(sandbox, made, grace=0)


@pytest.mark.rules("OUT-001")
def test_output_comes_live(daemon, sandbox):
    """Each line is asked for by the one before."""
    script = "for i in 1 2 3; do echo $i; read x; done"
    with create_attached(daemon, sandbox, "sh", "-c", script, stdin=PIPED) as writer:
        call = open_output(daemon, sandbox, writer.exec.id, follow=True)
        for i in (1, 2, 3):
            assert next(call).output.data == b"%d\n" % i
            writer.write(b"\n")
        assert next(call).exec.result.exit_code == 0
        assert next(call, None) is None


def test_streams_can_be_chosen(daemon, sandbox):
    ended, _ = run_to_end(daemon, sandbox, "sh", "-c", "echo out; echo err >&2")
    for streams in ([STDOUT], [STDERR], [STDOUT, STDERR], [STDERR, STDERR]):
        output, _ = read_output(daemon, sandbox, ended.id, streams=streams, follow=True)
        assert output.stdout == (b"out\n" if STDOUT in streams else b"")
        assert output.stderr == (b"err\n" if STDERR in streams else b"")


def test_each_stream_is_read_from_its_offset(daemon, sandbox):
    ended, _ = run_to_end(daemon, sandbox, "sh", "-c", "printf 012345; printf abcdef >&2")
    output, _ = read_output(daemon, sandbox, ended.id, stdout_offset=2, stderr_offset=6)
    assert (output.stdout, output.stderr) == (b"2345", b"")
    with refused("OFFSET_OUT_OF_RANGE"):
        read_output(daemon, sandbox, ended.id, stderr_offset=7)
    output, _ = read_output(daemon, sandbox, ended.id, streams=[STDOUT], stderr_offset=7)
    assert output.stdout == b"012345"


@pytest.mark.rules("OUT-001")
def test_every_offset_can_be_read_from(daemon, sandbox):
    made = start_counted(daemon, sandbox, 1000, 100)
    daemon.wait_exec(sandbox, made)
    whole = counted(1000)
    for offset in range(0, 1001, 13):
        output, _ = read_output(daemon, sandbox, made, stdout_offset=offset)
        assert output.stdout == (whole[offset:50] + whole[950:] if offset < 50 else whole[max(offset, 950) :])


def test_a_reader_beyond_the_end_waits_for_what_comes(daemon, sandbox):
    made = daemon.start(sandbox, "sh", "-c", "mkfifo g; printf 0123; read x < g; printf 456789").id
    wait_until(lambda: daemon.get_exec(sandbox, made).stdout_bytes == 4)
    call = open_output(daemon, sandbox, made, follow=True, stdout_offset=7)
    daemon.shell(sandbox, "echo > g")
    step = next(call)
    assert (step.output.offset, step.output.data) == (7, b"789")
    assert next(call).HasField("exec")


@pytest.mark.parametrize(
    "text, lines, expected",
    [
        ("a\nb\nc\n", 0, ""),
        ("a\nb\nc\n", 1, "c\n"),
        ("a\nb\nc\n", 2, "b\nc\n"),
        ("a\nb\nc\n", 3, "a\nb\nc\n"),
        ("a\nb\nc\n", 100, "a\nb\nc\n"),
        ("a\nb\nc", 1, "c"),
        ("a\nb\nc", 2, "b\nc"),
        ("\n\n\n", 2, "\n\n"),
        ("", 5, ""),
        ("x", 1, "x"),
        ("\n", 1, "\n"),
        ("a\r\nb\r\n", 1, "b\r\n"),
    ],
)
def test_the_last_lines_can_be_read(daemon, shared_sandbox, text, lines, expected):
    ended, _ = run_to_end(daemon, shared_sandbox, "sh", "-c", 'printf %s "$0"; printf %s "$0" >&2', text)
    output, _ = read_output(daemon, shared_sandbox, ended.id, tail_lines=lines)
    assert (output.stdout, output.stderr) == (expected.encode(), expected.encode())


def test_the_last_lines_of_much_output_are_read_fast(daemon, sandbox):
    made = daemon.start(sandbox, "seq", "3000000").id
    daemon.wait_exec(sandbox, made)
    times = []
    for _ in range(5):
        begin = time.monotonic()
        output, _ = read_output(daemon, sandbox, made, tail_lines=1000)
        times.append(time.monotonic() - begin)
    assert min(times) < 1  # a host may stall now and then
    assert output.stdout == "".join(f"{i}\n" for i in range(2999001, 3000001)).encode()


def test_the_last_lines_stand_after_the_gap(daemon, sandbox):
    made = start_counted(daemon, sandbox, 8000, 160)
    daemon.wait_exec(sandbox, made)
    output, _ = read_output(daemon, sandbox, made, tail_lines=3)
    assert output.stdout == counted(8000)[-24:]
    output, _ = read_output(daemon, sandbox, made, tail_lines=15)
    assert output.stdout.endswith(counted(8000)[-80:])


def test_the_last_lines_can_be_followed(daemon, sandbox):
    made = daemon.start(sandbox, "sh", "-c", "mkfifo f; seq 100; read x < f; echo more").id
    wait_until(lambda: daemon.get_exec(sandbox, made).stdout_bytes == 292)
    call = open_output(daemon, sandbox, made, follow=True, tail_lines=2)
    assert next(call).output.data == b"99\n100\n"
    daemon.shell(sandbox, "echo > f")
    assert next(call).output.data == b"more\n"


# ---- Its life ----


@pytest.mark.rules("OUT-008")
def test_output_is_there_while_the_sandbox_is_stopped_and_goes_with_it(daemon):
    sandbox = daemon.ready()
    ended, _ = run_to_end(daemon, sandbox, "echo", "kept")
    daemon.stop(sandbox)
    daemon.wait(sandbox, "STOPPED")
    assert read_output(daemon, sandbox, ended.id)[0].stdout == b"kept\n"
    daemon.remove(sandbox)
    assert not daemon.sandbox_folder(sandbox).exists()
    assert daemon.get_exec(sandbox, ended.id) == ended
    with refused("SANDBOX_WRONG_STATE") as told:
        read_output(daemon, sandbox, ended.id)
    assert told.metadata == {"state": "DELETED"}


@pytest.mark.rules("OUT-009")
def test_a_sandbox_keeps_the_latest_output_within_its_limit(start_daemon):
    own = start_daemon({"limits": {"output_per_sandbox": "1MiB"}})
    sandbox = own.ready()
    print_much = ("sh", "-c", "head -c 400000 /dev/zero; head -c 100000 /dev/zero >&2")
    first, output = run_to_end(own, sandbox, *print_much)
    assert (len(output.stdout), len(output.stderr)) == (400000, 100000)
    second, _ = run_to_end(own, sandbox, *print_much)
    own.restart()
    third = own.run(sandbox, *print_much)
    assert len(third.stdout) == 400000

    files = {file.stem for file in own.sandbox_folder(sandbox).iterdir() if file.suffix in (".out", ".err")}
    assert files == {second.id, third.exec.id}
    wait_until(lambda: not any((own.state / "trash").iterdir()))
    for request in ({}, {"follow": True}, {"tail_lines": 2}, {"stdout_offset": 7}):
        output, gone = read_output(own, sandbox, first.id, **request)
        assert (output.stdout, output.stderr) == (b"", b"")
    assert gone.result.stdout == exec_pb2.StreamSummary(total_bytes=400000, dropped_bytes=400000, truncated=True)
    assert gone.result.exit_code == 0
    assert len(read_output(own, sandbox, second.id)[0].stdout) == 400000

    # Whatever one leaves, it can be read until there is another.
    large, _ = run_to_end(own, sandbox, "head", "-c", "3000000", "/dev/zero")
    assert len(read_output(own, sandbox, large.id)[0].stdout) == 3000000
    assert own.get_exec(sandbox, third.exec.id).result.stdout.truncated
    own.shell(sandbox, "echo small")
    assert own.get_exec(sandbox, large.id).result.stdout.dropped_bytes == 3000000


@pytest.mark.rules("OUT-009")
def test_output_whose_files_went_before_a_crash_is_dropped_afterwards(start_daemon):
    own = start_daemon({"limits": {"output_per_sandbox": "1KiB"}})
    sandbox = own.ready()
    first = own.run(sandbox, "head", "-c", "800", "/dev/zero").exec
    for file in own.sandbox_folder(sandbox).glob(f"{first.id}.*"):  # as by a daemon that was killed right then
        file.unlink()
    own.restart(kill=True)
    assert read_output(own, sandbox, first.id)[0].stdout == b""
    assert not own.get_exec(sandbox, first.id).result.stdout.truncated
    own.run(sandbox, "head", "-c", "800", "/dev/zero")
    assert own.get_exec(sandbox, first.id).result.stdout.dropped_bytes == 800


def test_output_that_is_being_read_while_its_sandbox_is_deleted_ends_well(daemon):
    sandbox = daemon.ready()
    made = daemon.start(sandbox, "sh", "-c", "while :; do echo x; sleep 0.01; done").id
    call = open_output(daemon, sandbox, made, follow=True)
    next(call)
    daemon.delete(sandbox)
    *_, last = call
    assert last.HasField("exec") and state_name(last.exec) == "CANCELLED"
    daemon.remove(sandbox)


@pytest.mark.rules("OUT-001")
def test_output_takes_no_more_disk_than_its_limit(daemon, sandbox):
    made = daemon.start(sandbox, "head", "-c", "200000000", "/dev/zero", output_limit_bytes=MIB).id
    daemon.wait_exec(sandbox, made)
    files = list(daemon.sandbox_folder(sandbox).glob(f"{made}*"))
    assert files and sum(file.stat().st_blocks * 512 for file in files) < 3 * MIB


def test_the_bytes_so_far_are_told(daemon, sandbox):
    made = daemon.start(sandbox, "sh", "-c", "printf 12345; printf 123 >&2; sleep 1000", output_limit_bytes=2).id
    wait_until(lambda: daemon.get_exec(sandbox, made).stderr_bytes == 3)
    assert daemon.get_exec(sandbox, made).stdout_bytes == 5
    daemon.cancel(sandbox, made, grace=0)
    ended = daemon.wait_exec(sandbox, made)
    assert (ended.stdout_bytes, ended.stderr_bytes) == (5, 3)
