# SPDX-License-Identifier: Apache-2.0
"""Starting processes, what they print, and how they end by themselves."""

import errno
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import sanitizers
from keeper import MIB, Watch, protocol, wait_until


def exit_code(ended) -> int:
    return os.waitstatus_to_exitcode(ended.end.wait_status)


def assert_not_started(ended, reason: str, error: int):
    messages = protocol()
    assert not ended.HasField("start_time")
    assert ended.end.cause == messages.KEEPER_END_CAUSE_NOT_STARTED
    assert (ended.end.failure.reason, ended.end.failure.error) == (reason, error)
    assert ended.end.failure.message


def fails_with(code: grpc.StatusCode, function, *arguments, **values):
    with pytest.raises(grpc.RpcError) as failure:
        function(*arguments, **values)
    assert failure.value.code() == code
    return failure.value


def test_a_process_ends_with_its_code(keeper):
    messages = protocol()
    for code in (0, 1, 42, 255):
        ended = keeper.shell(f"exit {code}")
        assert ended.end.cause == messages.KEEPER_END_CAUSE_EXITED
        assert exit_code(ended) == code
        assert ended.start_time.ToNanoseconds() <= ended.end.end_time.ToNanoseconds()
        assert not ended.end.HasField("failure")


def test_one_that_is_started_quietly_is_told_of_all_the_same(keeper):
    for _ in range(20):
        short = keeper.start("true", quietly=True)
        assert short.HasField("start_time")
        assert exit_code(keeper.wait(short.exec_id)) == 0
    watch = Watch(keeper)
    long = keeper.start("sleep", "1000", quietly=True)
    assert long.HasField("start_time")
    assert not long.HasField("end")
    wait_until(lambda: watch.execs(long.exec_id))
    assert watch.execs(long.exec_id) == [long]
    keeper.cancel(long.exec_id, 0)
    keeper.wait(long.exec_id)
    missing = keeper.start("/nowhere", quietly=True)
    assert missing.HasField("end")
    assert not missing.HasField("start_time")


def test_a_process_ends_with_its_signal(keeper):
    ended = keeper.shell("kill -USR1 $$")
    assert ended.end.cause == protocol().KEEPER_END_CAUSE_EXITED
    assert exit_code(ended) == -signal.SIGUSR1


def test_output_is_kept_byte_by_byte(keeper):
    everything = "import os; os.write(1, bytes(range(256)) * 300); os.write(2, b'no newline'); os.write(1, b'\\xff\\0')"
    ended = keeper.run("python3", "-c", everything)
    assert exit_code(ended) == 0
    assert keeper.output(ended.exec_id) == bytes(range(256)) * 300 + b"\xff\0"
    assert keeper.output(ended.exec_id, "err") == b"no newline"
    assert (ended.stdout_bytes, ended.stderr_bytes) == (256 * 300 + 2, 10)
    assert (ended.end.stdout_dropped_bytes, ended.end.stderr_dropped_bytes) == (0, 0)


def test_head_and_tail_of_a_gibibyte_are_kept(keeper):
    limit, total = 3 * MIB + 1, 1024 * MIB
    pour = "import os\nfor i in range(16384):\n os.write(1, i.to_bytes(8, 'big') * 8192)"
    ended = keeper.run("python3", "-c", pour, output_limit_bytes=limit)
    assert (ended.stdout_bytes, ended.end.stdout_dropped_bytes) == (total, total - limit)

    def stream(start: int, stop: int) -> bytes:
        pieces = b"".join(i.to_bytes(8, "big") * 8192 for i in range(start // 65536, (stop - 1) // 65536 + 1))
        return pieces[start % 65536 :][: stop - start]

    kept = keeper.output(ended.exec_id)
    head, ring = limit - limit // 2, limit // 2
    assert kept[:head] == stream(0, head)
    turn = (total - head) % ring
    assert kept[head + turn : limit] + kept[head : head + turn] == stream(total - ring, total)
    assert len(kept) < limit + 64

    memory = dict(
        line.split(":") for line in open(f"/proc/{keeper.process.pid}/status", encoding="utf-8") if ":" in line
    )
    # Sanitizers keep what was freed: the longer it takes, the more.
    assert int(memory["VmHWM"].split()[0]) < 16 * 1024 or sanitizers.LOGS


def test_environment_folder_and_user_are_as_asked(keeper):
    asked = {"env": {"A": "b c\nd"}, "working_directory": "/tmp", "user": "1000:1000"}
    ended = keeper.shell('echo "$A"; pwd; id -u; id -g', **asked)
    assert keeper.output(ended.exec_id) == b"b c\nd\n/tmp\n1000\n1000\n"


@pytest.mark.parametrize(
    "asked, expected", [({}, b""), ({"set_user": True}, b"USER=root\n"), ({"set_home": True}, b"HOME=/root\n")]
)
def test_home_and_user_are_added_when_that_is_asked_for(keeper, asked, expected):
    ended = keeper.run("sh", "-c", "env | grep -E '^(HOME|USER)='", **asked)
    assert keeper.output(ended.exec_id) == expected


def test_a_large_environment_passes(keeper):
    large = {f"V{i}": "x" * 131000 for i in range(7)}
    ended = keeper.shell("printf %s $V6 | wc -c", env=large)
    assert keeper.output(ended.exec_id).split() == [b"131000"]


@pytest.mark.parametrize(
    "env", [{"V": "x" * 131071}, {f"V{i}": "x" * 131000 for i in range(9)}], ids=["one variable", "all together"]
)
def test_too_large_an_environment_is_refused(keeper, env):
    fails_with(grpc.StatusCode.RESOURCE_EXHAUSTED, keeper.start, "true", env=env)


@pytest.mark.parametrize(
    "values",
    [
        {"exec_id": "../../x"},
        {"exec_id": ""},
        {"argv": []},
        {"argv": [""]},
        {"working_directory": "tmp"},
        {"output_limit_bytes": 0},
        {"env": [{"name": "A=B"}]},
        {"stdin_stream": True, "input": b"x"},
    ],
    ids=str,
)
def test_bad_requests_are_refused(keeper, values):
    request = keeper.request("true")
    for field in values:
        request.ClearField(field)
    request.MergeFrom(protocol().StartExecRequest(**values))
    fails_with(grpc.StatusCode.INVALID_ARGUMENT, keeper.send, request)


def test_what_cannot_be_started_says_why(keeper):
    assert_not_started(keeper.start("no-such-program"), "FILE_NOT_FOUND", errno.ENOENT)
    assert_not_started(keeper.start("/no/such/program"), "FILE_NOT_FOUND", errno.ENOENT)
    assert_not_started(keeper.start("/etc/passwd"), "FILE_PERMISSION", errno.EACCES)
    assert_not_started(keeper.start("/"), "FILE_PERMISSION", errno.EACCES)
    missing = keeper.start("true", working_directory="/no/such/folder")
    assert_not_started(missing, "FILE_NOT_FOUND", errno.ENOENT)
    assert "/no/such/folder" in missing.end.failure.message
    assert_not_started(keeper.start("true", working_directory="/etc/passwd"), "NOT_A_DIRECTORY", errno.ENOTDIR)
    assert_not_started(keeper.start("true", user="nobody-at-all"), "USER_NOT_FOUND", errno.ENOENT)

    made = keeper.shell("printf 'neither script nor program' > /tmp/odd; chmod 755 /tmp/odd")
    assert exit_code(made) == 0
    assert_not_started(keeper.start("/tmp/odd"), "FILE_PERMISSION", errno.ENOEXEC)


def test_names_that_are_told_in_part_end_between_characters(keeper):
    for cut in range(4):
        missing = keeper.run("/" + "x" * (123 + cut) + "€" * 20)
        assert missing.end.failure.message.startswith("cannot execute /xxx")


def test_starting_again_is_a_question(keeper):
    request = keeper.request("sh", "-c", "echo once; exit 3")
    first = keeper.send(request)
    ended = keeper.wait(first.exec_id)
    again = keeper.send(request)
    assert again.start_time == first.start_time
    assert again.end == ended.end
    assert keeper.output(first.exec_id) == b"once\n"

    keeper.forget(first.exec_id)
    assert [one for one in keeper.describe().execs if one.exec_id == first.exec_id] == []
    fails_with(grpc.StatusCode.ALREADY_EXISTS, keeper.send, request)
    keeper.forget(first.exec_id)


def test_one_that_runs_is_not_forgotten(keeper):
    running = keeper.start("sleep", "100")
    fails_with(grpc.StatusCode.FAILED_PRECONDITION, keeper.forget, running.exec_id)
    keeper.cancel(running.exec_id, 0)
    keeper.wait(running.exec_id)


def test_many_run_at_once(keeper):
    with ThreadPoolExecutor(50) as pool:
        started = list(pool.map(lambda i: keeper.start("sh", "-c", f"sleep 0.2; seq {i} 20000"), range(50)))
    for i, one in enumerate(started):
        assert exit_code(keeper.wait(one.exec_id)) == 0
        assert keeper.output(one.exec_id) == b"".join(b"%d\n" % n for n in range(i, 20001))


def test_a_held_pipe_does_not_hang_an_exec(keeper):
    """What the holder says within a second is collected, and it runs on undisturbed afterwards."""
    script = """
        (while kill -0 $$; do sleep 0.01; done 2> /dev/null; echo soon
        until test -e /tmp/over; do sleep 0.01; done; echo late; echo more; echo ran > /tmp/ran) & echo first
    """
    began = time.monotonic()
    ended = keeper.shell(script)
    assert time.monotonic() - began > 0.9
    assert keeper.output(ended.exec_id) == b"first\nsoon\n"
    assert ended.stdout_bytes == 11
    keeper.forget(ended.exec_id)
    keeper.shell("touch /tmp/over")
    wait_until(lambda: exit_code(keeper.shell("test -e /tmp/ran")) == 0)


def test_what_is_left_running_runs_on_without_being_waited_for(keeper):
    took = []
    for _ in range(5):
        began = time.monotonic()
        ended = keeper.shell("sleep 1000 > /dev/null 2>&1 & echo $!")
        took.append(time.monotonic() - began)
        pid = keeper.output(ended.exec_id).decode().strip()
        assert exit_code(keeper.shell(f"kill {pid}")) == 0
        wait_until(lambda pid=pid: exit_code(keeper.shell(f"kill -0 {pid}")) != 0)
    assert min(took) < 0.9  # and no second for its output, which it does not hold; a host may stall now and then


def test_cpu_time_and_memory_are_measured(keeper):
    burn = "x = bytearray(50_000_000)\nimport time\nwhile time.process_time() < 0.3: pass"
    ended = keeper.run("python3", "-c", burn)
    assert 0.2e9 < ended.end.cpu_time.ToNanoseconds() < 5e9
    assert ended.end.peak_memory_bytes > 50_000_000


def test_standard_streams_can_be_opened_by_name(keeper):
    ended = keeper.shell("echo out > /dev/stdout; echo err > /dev/stderr", user="1000")
    assert keeper.output(ended.exec_id) == b"out\n"
    assert keeper.output(ended.exec_id, "err") == b"err\n"
