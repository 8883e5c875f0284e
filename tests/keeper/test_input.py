# SPDX-License-Identifier: Apache-2.0
"""What is sent to processes: bytes, the end of them, signals, and the size of a terminal."""

import hashlib
import os
import signal
import time

import grpc
import pytest
from keeper import LIMIT, MIB, protocol, wait_until
from test_execs import exit_code, fails_with


def test_without_input_stdin_is_empty(keeper):
    ended = keeper.run("cat")
    assert (exit_code(ended), ended.stdout_bytes) == (0, 0)


def test_given_bytes_are_the_input(keeper):
    data = os.urandom(3 * MIB)
    ended = keeper.run("sha256sum", input=data)
    assert keeper.output(ended.exec_id).split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_given_bytes_may_be_left_unread(keeper):
    assert exit_code(keeper.run("true", input=bytes(3 * MIB))) == 0


def test_a_stream_is_passed_on_until_it_is_closed(keeper):
    started = keeper.start("sha256sum", stdin_stream=True)
    digest = hashlib.sha256()
    sending = keeper.input(started.exec_id)
    for size in (0, 1, 100_000, MIB, 3 * MIB, 7):
        data = os.urandom(size)
        digest.update(data)
        sending.send(input=data)
    sending.send(stdin_close=True)
    sending.finish()
    ended = keeper.wait(started.exec_id)
    assert keeper.output(ended.exec_id).split()[0].decode() == digest.hexdigest()


def test_the_end_of_a_call_is_not_the_end_of_the_input(keeper):
    started = keeper.start("cat", stdin_stream=True)
    for text in (b"one ", b"two ", b"three"):
        sending = keeper.input(started.exec_id)
        sending.send(input=text)
        sending.finish()
    assert not keeper.find(started.exec_id).HasField("end")
    closing = keeper.input(started.exec_id)
    closing.send(stdin_close=True)
    closing.finish()
    keeper.wait(started.exec_id)
    assert keeper.output(started.exec_id) == b"one two three"


def test_who_does_not_read_stalls_its_sender_only(keeper):
    started = keeper.start("sleep", "100", stdin_stream=True)
    sending = keeper.input(started.exec_id)
    for _ in range(4):
        sending.send(input=bytes(MIB))
    sending.messages.put(None)
    time.sleep(0.3)
    assert not sending.call.done()
    assert exit_code(keeper.run("cat", input=b"x")) == 0
    # A second call is not behind the first with its signals.
    other = keeper.input(started.exec_id)
    other.send(signal=signal.SIGINT)
    other.finish()
    assert exit_code(keeper.wait(started.exec_id)) == -signal.SIGINT
    sending.call.result(LIMIT)


def test_a_sender_that_goes_away_leaves_the_input_open(keeper):
    started = keeper.start("sh", "-c", "until test -e /tmp/closed; do sleep 0.01; done; wc -c", stdin_stream=True)
    stalled = keeper.input(started.exec_id)
    stalled.send(input=bytes(MIB))
    time.sleep(0.1)
    stalled.call.cancel()
    time.sleep(0.1)
    closing = keeper.input(started.exec_id)
    closing.send(stdin_close=True)
    closing.finish()
    keeper.shell("touch /tmp/closed")
    keeper.wait(started.exec_id)
    assert int(keeper.output(started.exec_id)) < MIB


def test_input_after_the_end_goes_nowhere(keeper):
    started = keeper.start("true", stdin_stream=True)
    sending = keeper.input(started.exec_id)
    sending.send(input=b"x")
    keeper.wait(started.exec_id)
    for _ in range(3):
        sending.send(input=b"x")
        sending.send(signal=15)
    sending.finish()


def test_a_reader_that_closes_its_stdin_is_no_error(keeper):
    started = keeper.start("sh", "-c", "exec <&-; sleep 0.5", stdin_stream=True)
    sending = keeper.input(started.exec_id)
    for _ in range(3):
        sending.send(input=bytes(100_000))
    sending.finish()
    assert exit_code(keeper.wait(started.exec_id)) == 0


def test_input_needs_a_stream_and_resizing_a_terminal(keeper):
    started = keeper.start("sleep", "100")
    for values in ({"input": b"x"}, {"stdin_close": True}, {"resize": (1, 1)}):
        sending = keeper.input(started.exec_id)
        sending.send(**values)
        failure = fails_with(grpc.StatusCode.FAILED_PRECONDITION, sending.finish)
        assert "NO_SUCH_STREAM" in str(failure.trailing_metadata())
    bad = keeper.input(started.exec_id)
    bad.send(signal=99)
    fails_with(grpc.StatusCode.INVALID_ARGUMENT, bad.finish)
    unknown = keeper.input("exec-unknown")
    unknown.send(input=b"x")
    fails_with(grpc.StatusCode.NOT_FOUND, unknown.finish)
    keeper.cancel(started.exec_id, 0)
    keeper.wait(started.exec_id)


def test_a_terminal_without_a_stream_takes_sizes_and_signals_only(keeper):
    started = keeper.start("sleep", "100", terminal={"rows": 1, "columns": 1})
    for values in ({"input": b"x"}, {"stdin_close": True}):
        sending = keeper.input(started.exec_id)
        sending.send(**values)
        failure = fails_with(grpc.StatusCode.FAILED_PRECONDITION, sending.finish)
        assert "NO_SUCH_STREAM" in str(failure.trailing_metadata())
    sending = keeper.input(started.exec_id)
    sending.send(resize=(2, 2))
    sending.send(signal=signal.SIGTERM)
    sending.finish()
    assert exit_code(keeper.wait(started.exec_id)) == -signal.SIGTERM


def test_signals_reach_the_main_process_only(keeper):
    script = "trap 'echo got; exit 5' USR1; (trap 'echo wrong' USR1; sleep 1) & echo ready; wait; wait"
    started = keeper.start("sh", "-c", script)
    wait_until(lambda: keeper.output(started.exec_id) == b"ready\n")
    sending = keeper.input(started.exec_id)
    sending.send(signal=signal.SIGUSR1)
    sending.finish()
    assert exit_code(keeper.wait(started.exec_id)) == 5
    assert keeper.output(started.exec_id) == b"ready\ngot\n"


@pytest.fixture(name="terminal")
def start_terminal(keeper):
    """A shell on a terminal, its input, and what it showed since."""
    script = "trap 'stty size' WINCH; stty size; test -t 0 -a -t 1 -a -t 2 && tty; while read l; do echo =$l; done"
    started = keeper.start("sh", "-c", script, terminal={"rows": 30, "columns": 100}, stdin_stream=True, user="1000")
    wait_until(lambda: keeper.output(started.exec_id).count(b"\n") == 2)
    yield started.exec_id, keeper.input(started.exec_id)
    keeper.cancel(started.exec_id, 0)
    keeper.wait(started.exec_id)


def test_a_terminal_has_its_size_and_is_one(keeper, terminal):
    lines = keeper.output(terminal[0]).split(b"\r\n")
    assert lines[0] == b"30 100"
    assert lines[1].startswith(b"/dev/pts/")


def test_a_terminal_takes_lines_and_the_end(keeper, terminal):
    exec_id, sending = terminal
    sending.send(input=b"a line\n")
    sending.send(stdin_close=True)
    sending.finish()
    ended = keeper.wait(exec_id)
    assert exit_code(ended) == 0
    assert keeper.output(exec_id).endswith(b"a line\r\n=a line\r\n")
    assert keeper.output(exec_id, "err") == b""


def test_resizing_a_terminal_is_heard(keeper, terminal):
    exec_id, sending = terminal
    sending.send(resize=(44, 155))
    sending.send(input=b"\n")
    wait_until(lambda: b"44 155\r\n" in keeper.output(exec_id))
    sending.finish()


def test_a_terminal_passes_on_its_control_characters(keeper, terminal):
    exec_id, sending = terminal
    sending.send(input=b"\x03")
    sending.finish()
    assert exit_code(keeper.wait(exec_id)) == -signal.SIGINT


def test_much_passes_through_a_terminal(keeper):
    ended = keeper.run("seq", "200000", terminal={"rows": 1, "columns": 1})
    assert keeper.output(ended.exec_id) == b"".join(b"%d\r\n" % n for n in range(1, 200001))
    assert ended.end.cause == protocol().KEEPER_END_CAUSE_EXITED
