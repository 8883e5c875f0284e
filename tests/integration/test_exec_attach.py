# SPDX-License-Identifier: Apache-2.0
"""AttachExec: input, output, terminals, signals; several attached, coming and going; what is out of order."""

import contextlib
import time
from pathlib import Path

import grpc
import pytest
from host import PATIENCE
from hutch.v1 import exec_pb2
from hutchd import LIMIT, refused, state_name, wait_until
from streams import PIPED, Attached, attach, create_attached, open_output, run_to_end

MIB = 1 << 20
DEADLINE = 5  # seconds: an exec is started by then, also where the host pauses


def terminal(rows: int = 24, columns: int = 80) -> exec_pb2.TerminalSize:
    return exec_pb2.TerminalSize(rows=rows, columns=columns)


# ---- The stream ----


def test_a_stream_tells_first_the_exec_then_output_then_the_end(daemon, sandbox):
    with create_attached(daemon, sandbox, "sh", "-c", "echo out; echo err >&2; exit 5") as attached:
        assert state_name(attached.exec) in ("PENDING", "RUNNING")
        ended = attached.finish()
    assert ended.id == attached.exec.id
    assert (state_name(ended), ended.result.exit_code) == ("EXITED", 5)
    assert (attached.output.stdout, attached.output.stderr) == (b"out\n", b"err\n")
    assert (ended.stdout_bytes, ended.stderr_bytes) == (4, 4)
    assert attached.call.code() == grpc.StatusCode.OK
    assert daemon.get_exec(sandbox, ended.id) == ended


def test_a_client_that_sends_no_more_still_hears_all(daemon, sandbox):
    with create_attached(daemon, sandbox, "sh", "-c", "sleep 0.2; echo out") as attached:
        attached.half_close()
        attached.finish()
    assert attached.output.stdout == b"out\n"


def test_the_end_of_requests_is_no_end_of_stdin(daemon, sandbox):
    with create_attached(daemon, sandbox, "cat", stdin=PIPED) as attached:
        attached.write(b"one\n")
        attached.half_close()
        attached.until(b"one\n")
        with attach(daemon, sandbox, attached.exec.id) as other:
            other.write(b"two\n")
            other.close_stdin()
            other.finish()
        assert attached.finish().result.exit_code == 0
    assert attached.output.stdout == b"one\ntwo\n"


def test_the_first_message_says_which_exec(daemon, shared_sandbox):
    for first in ({"stdin": b"x"}, {"stdin_close": exec_pb2.StdinClose()}, {"resize": terminal()}, {"signal": 15}, {}):
        with refused("STREAM_ORDER"):
            Attached(daemon, **first).attached()
    with refused("STREAM_ORDER"):
        next(daemon.execs.AttachExec(iter([]), timeout=LIMIT))
    assert daemon.shell(shared_sandbox, "echo on") == "on\n"


@pytest.mark.parametrize("again", ["attach", "create"])
def test_no_later_message_says_which_exec(daemon, sandbox, again):
    with create_attached(daemon, sandbox, "sleep", "1000") as attached:
        daemon.wait_exec(sandbox, attached.exec.id, "RUNNING")
        target = exec_pb2.AttachTarget(sandbox_id=sandbox, exec_id=attached.exec.id)
        create = exec_pb2.CreateExecRequest(sandbox_id=sandbox, spec=exec_pb2.ExecSpec(argv=["true"]))
        attached.send(**{again: {"attach": target, "create": create}[again]})
        with refused("STREAM_ORDER"):
            attached.finish()
    assert state_name(daemon.get_exec(sandbox, attached.exec.id)) == "RUNNING"
    daemon.cancel(sandbox, attached.exec.id, grace=0)


def test_a_message_that_says_nothing_is_refused(daemon, sandbox):
    with create_attached(daemon, sandbox, "sleep", "1000") as attached:
        attached.send()
        with refused("FIELD_REQUIRED"):
            attached.finish()


def test_what_is_wrong_with_a_command_is_told_with_its_place(daemon, shared_sandbox):
    request = exec_pb2.CreateExecRequest(sandbox_id=shared_sandbox, exec_id="x")
    with refused("ID_MALFORMED", "create.exec_id", "create.spec"):
        Attached(daemon, create=request).attached()
    request = exec_pb2.CreateExecRequest(sandbox_id=shared_sandbox, spec=exec_pb2.ExecSpec())
    with refused("ARGV_EMPTY", "create.spec.argv"):
        Attached(daemon, create=request).attached()


@pytest.mark.parametrize(
    "item, reason, field",
    [
        ({"stdin": b"x"}, "NO_SUCH_STREAM", None),
        ({"stdin_close": exec_pb2.StdinClose()}, "NO_SUCH_STREAM", None),
        ({"resize": terminal()}, "NO_SUCH_STREAM", None),
        ({"signal": 0}, "FIELD_OUT_OF_RANGE", "signal"),
        ({"signal": 65}, "FIELD_OUT_OF_RANGE", "signal"),
        ({"resize": terminal(65536, 1)}, "FIELD_OUT_OF_RANGE", "resize"),
        ({"stdin": bytes(MIB + 1)}, "FIELD_TOO_LONG", "stdin"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_input_that_cannot_be_is_refused_and_the_exec_goes_on(daemon, shared_sandbox, item, reason, field):
    with create_attached(daemon, shared_sandbox, "sleep", "1000") as attached:
        daemon.wait_exec(shared_sandbox, attached.exec.id, "RUNNING")
        attached.send(**item)
        with refused(reason, *[field] * bool(field)):
            attached.finish()
    assert state_name(daemon.get_exec(shared_sandbox, attached.exec.id)) == "RUNNING"
    daemon.cancel(shared_sandbox, attached.exec.id, grace=0)


def test_the_largest_piece_of_stdin_goes_through(daemon, sandbox):
    with create_attached(daemon, sandbox, "wc", "-c", stdin=PIPED) as attached:
        attached.write(bytes(MIB))
        attached.close_stdin()
        attached.finish()
    assert attached.output.stdout == b"1048576\n"


# ---- Coming and going ----


def test_an_exec_goes_on_when_its_client_goes(daemon, sandbox):
    with create_attached(daemon, sandbox, "sh", "-c", "read line; echo got $line", stdin=PIPED) as attached:
        pass  # the call is cancelled
    time.sleep(0.1)
    daemon.wait_exec(sandbox, attached.exec.id, "RUNNING")
    with attach(daemon, sandbox, attached.exec.id) as again:
        again.write(b"later\n")
        again.finish()
    assert again.output.stdout == b"got later\n"


def test_an_exec_goes_on_when_the_deadline_of_its_client_passes(daemon, sandbox):
    request = exec_pb2.CreateExecRequest(sandbox_id=sandbox, spec=exec_pb2.ExecSpec(argv=["sleep", "1000"]))
    attached = Attached(daemon, timeout=DEADLINE, create=request)
    made = attached.attached().id
    with pytest.raises(grpc.RpcError) as caught:
        attached.finish()
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    daemon.wait_exec(sandbox, made, "RUNNING")
    daemon.cancel(sandbox, made, grace=0)


def test_an_exec_goes_on_when_the_connection_of_its_client_breaks(daemon, sandbox):
    client = daemon.client()
    attached = create_attached(client, sandbox, "sh", "-c", "sleep 0.3; echo still here")
    client.close()
    ended = daemon.wait_exec(sandbox, attached.exec.id)
    assert (state_name(ended), ended.stdout_bytes) == ("EXITED", 11)


def test_two_that_are_attached_get_the_same(daemon, sandbox):
    script = "while read line; do echo $line; echo $line >&2; done"
    with create_attached(daemon, sandbox, "sh", "-c", script, stdin=PIPED) as first:
        with attach(daemon, sandbox, first.exec.id) as second:
            first.write(b"a\n")
            second.until(b"a\n")
            second.write(b"b\n")
            first.until(b"b\n")
            first.close_stdin()
            assert first.finish() == second.finish()
    assert first.output.stdout == second.output.stdout == b"a\nb\n"
    assert first.output.stderr == second.output.stderr == b"a\nb\n"


def test_one_that_attaches_later_gets_all_or_what_it_asks_for(daemon, sandbox):
    with create_attached(daemon, sandbox, "sh", "-c", "echo 12345; read x; echo 67", stdin=PIPED) as first:
        first.until(b"12345\n")
        with attach(daemon, sandbox, first.exec.id) as all_of_it, attach(daemon, sandbox, first.exec.id, 3) as rest:
            rest.write(b"\n")
            all_of_it.finish()
            rest.finish()
    assert all_of_it.output.stdout == b"12345\n67\n"
    assert rest.output.stdout == b"45\n67\n"


def test_detaching_and_attaching_again_from_the_last_offset_loses_and_doubles_nothing(daemon, sandbox):
    script = "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); [ $((i%30)) = 0 ] && sleep 0.01; done"
    made = daemon.start(sandbox, "sh", "-c", script).id
    got = b""
    for _ in range(1000):
        with attach(daemon, sandbox, made, stdout_offset=len(got)) as attached:
            more = attached.step()
        got += attached.output.stdout
        if more and attached.ended:
            break
    assert got == "".join(f"line {i}\n" for i in range(300)).encode()


def test_50_may_be_attached(daemon, sandbox):
    made = daemon.start(sandbox, "sh", "-c", "read x; seq 1000", stdin=PIPED).id
    everybody = [attach(daemon, sandbox, made) for _ in range(50)]
    everybody[7].write(b"\n")
    expected = "".join(f"{i}\n" for i in range(1, 1001)).encode()
    for one in everybody:
        with one:
            one.finish()
        assert one.output.stdout == expected


def test_an_exec_that_has_ended_can_be_attached_to(daemon, sandbox):
    ended, _ = run_to_end(daemon, sandbox, "sh", "-c", "echo out; echo err >&2")
    with attach(daemon, sandbox, ended.id) as attached:
        assert attached.exec == ended
        assert attached.finish() == ended
    assert (attached.output.stdout, attached.output.stderr) == (b"out\n", b"err\n")


def test_an_offset_beyond_the_end_is_refused(daemon, sandbox):
    ended, _ = run_to_end(daemon, sandbox, "echo", "out")
    with refused("OFFSET_OUT_OF_RANGE"):
        attach(daemon, sandbox, ended.id, stdout_offset=5).finish()


# ---- Signals ----


def test_a_signal_goes_to_the_main_process(daemon, sandbox):
    script = "trap 'echo usr1' USR1; trap 'echo hup; exit 4' HUP; echo ready; while :; do sleep 0.05; done"
    with create_attached(daemon, sandbox, "sh", "-c", script) as attached:
        attached.until(b"ready\n")
        attached.send(signal=10)
        attached.until(b"usr1\n")
        attached.send(signal=1)
        ended = attached.finish()
    assert (state_name(ended), ended.result.exit_code) == ("EXITED", 4)


@pytest.mark.rules("EXEC-003")
@pytest.mark.parametrize("number", [2, 9, 15, 32, 33, 64])
def test_a_signal_that_ends_it_is_its_end(daemon, sandbox, number):
    with create_attached(daemon, sandbox, "sh", "-c", "echo ready; exec sleep 1000") as attached:
        attached.until(b"ready\n")
        attached.send(signal=number)
        ended = attached.finish()
    assert (state_name(ended), ended.result.signal, ended.result.exit_code) == ("EXITED", number, 128 + number)


def test_a_signal_goes_to_no_other_process(daemon, sandbox):
    child = "trap 'echo child' USR1; echo ready; while :; do sleep 0.05; done"
    script = f'trap "echo main" USR1; sh -c "{child}" & wait; wait'
    with create_attached(daemon, sandbox, "sh", "-c", script) as attached:
        attached.until(b"ready\n")
        attached.send(signal=10)
        attached.until(b"main\n")
        time.sleep(0.2)
        daemon.cancel(sandbox, attached.exec.id, grace=0)
        attached.finish()
    assert b"child" not in attached.output.stdout


# ---- Terminals ----


@pytest.mark.rules("EXEC-008")
def test_with_a_terminal_all_three_are_one_and_it_has_its_size(daemon, sandbox):
    script = "tty <&0; tty <&1; tty <&2; stty size; echo err >&2"
    ended, output = run_to_end(daemon, sandbox, "sh", "-c", script, terminal=terminal(33, 101))
    lines = output.stdout.decode().split("\r\n")
    assert lines[0].startswith("/dev/pts/") and lines[1] == lines[0] and lines[2] == lines[0]
    assert lines[3:] == ["33 101", "err", ""]
    assert (output.stderr, ended.result.exit_code) == (b"", 0)


def test_a_terminal_without_a_size_has_24_by_80(daemon, sandbox):
    _, output = run_to_end(daemon, sandbox, "stty", "size", terminal=terminal(0, 0))
    assert output.stdout == b"24 80\r\n"


@pytest.mark.rules("EXEC-008")
def test_a_resize_is_seen_and_raises_SIGWINCH(daemon, sandbox):  # pylint: disable=invalid-name
    script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done"
    with create_attached(daemon, sandbox, "sh", "-c", script, stdin=PIPED, terminal=terminal()) as attached:
        attached.until(b"ready")
        attached.resize(50, 132)
        attached.until(b"50 132")
        attached.resize(0, 7)
        attached.until(b"24 7")
    daemon.cancel(sandbox, attached.exec.id, grace=0)


def test_what_is_typed_reaches_the_program_and_is_echoed(daemon, sandbox):
    script = "read a; echo got $a"
    with create_attached(daemon, sandbox, "sh", "-c", script, stdin=PIPED, terminal=terminal()) as attached:
        attached.write(b"hello\r")
        attached.finish()
    assert attached.output.stdout == b"hello\r\ngot hello\r\n"


def test_ctrl_c_and_ctrl_d_work_on_a_terminal(daemon, sandbox):
    with create_attached(daemon, sandbox, "cat", stdin=PIPED, terminal=terminal()) as attached:
        attached.write(b"hello\r")
        attached.until(b"hello\r\nhello\r\n")
        attached.write(b"\x03")
        assert attached.finish().result.signal == 2
    script = "echo ready; cat; echo eof"
    with create_attached(daemon, sandbox, "sh", "-c", script, stdin=PIPED, terminal=terminal()) as attached:
        attached.until(b"ready")
        attached.write(b"\x04")
        attached.finish()
    assert attached.output.stdout.endswith(b"eof\r\n")


def test_closing_the_stdin_of_a_terminal_is_an_end_of_file(daemon, sandbox):
    with create_attached(daemon, sandbox, "sh", "-c", "cat; echo eof", stdin=PIPED, terminal=terminal()) as attached:
        attached.write(b"line\n")
        attached.until(b"line\r\nline\r\n")
        attached.close_stdin()
        assert attached.finish().result.exit_code == 0
    assert attached.output.stdout.endswith(b"eof\r\n")


def test_a_terminal_without_stdin_is_never_typed_at(daemon, sandbox):
    with create_attached(daemon, sandbox, "sh", "-c", "echo ready; cat", terminal=terminal()) as attached:
        attached.until(b"ready")
        attached.write(b"x")
        with refused("NO_SUCH_STREAM"):
            attached.finish()
    daemon.cancel(sandbox, attached.exec.id, grace=0)


def programs_of(daemon, sandbox) -> list[str]:
    """What runs in a sandbox, by name; of those that have just ended nothing is told."""
    programs = []
    for pid in daemon.processes(sandbox):
        with contextlib.suppress(OSError):
            programs.append(Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip())
    return programs


def test_an_interactive_shell_has_job_control(daemon, sandbox):
    with create_attached(daemon, sandbox, "sh", "-i", stdin=PIPED, terminal=terminal(), env={"PS1": "% "}) as attached:
        attached.until(b"% ")
        attached.write(b"sleep 1000\r")
        wait_until(lambda: "sleep" in programs_of(daemon, sandbox))  # which has the terminal by then
        attached.write(b"\x1a")
        attached.until(b"Stopped")
        attached.write(b"exit 9\r")
        attached.until(b"stopped jobs")
        attached.write(b"exit 9\r")
        ended = attached.finish()
    assert ended.result.exit_code == 9
    assert b"can't access tty" not in attached.output.stdout


def test_a_large_output_of_a_terminal_is_whole(daemon, sandbox):
    _, output = run_to_end(daemon, sandbox, "seq", "100000", terminal=terminal())
    assert output.stdout == "".join(f"{i}\r\n" for i in range(1, 100001)).encode()


def test_a_process_left_on_a_terminal_does_not_hang_the_exec(daemon, sandbox):
    begin = time.monotonic()
    script = "trap '' HUP; sleep 1000 & echo done"
    ended, output = run_to_end(daemon, sandbox, "sh", "-c", script, terminal=terminal())
    assert time.monotonic() - begin < 5 * PATIENCE
    assert (ended.result.exit_code, output.stdout) == (0, b"done\r\n")


# ---- Bound to the stream ----


@pytest.mark.rules("EXEC-015")
def test_a_bound_exec_is_cancelled_when_its_stream_is(daemon, sandbox):
    with create_attached(daemon, sandbox, "sleep", "1000", bound=True) as attached:
        daemon.wait_exec(sandbox, attached.exec.id, "RUNNING")
    assert state_name(daemon.wait_exec(sandbox, attached.exec.id)) == "CANCELLED"
    wait_until(lambda: len(daemon.processes(sandbox)) == 1)


@pytest.mark.rules("EXEC-015")
def test_a_bound_exec_is_cancelled_when_its_client_vanishes(daemon, sandbox):
    client = daemon.client()
    attached = create_attached(client, sandbox, "sh", "-c", "echo up; exec sleep 1000", bound=True)
    attached.until(b"up\n")
    client.close()
    assert state_name(daemon.wait_exec(sandbox, attached.exec.id)) == "CANCELLED"


@pytest.mark.rules("EXEC-015", "DEADLINE-003")
def test_a_bound_exec_is_cancelled_when_the_deadline_of_its_stream_passes(daemon, sandbox):
    request = exec_pb2.CreateExecRequest(sandbox_id=sandbox, bound=True)
    request.spec.argv[:] = ["sleep", "1000"]
    attached = Attached(daemon, timeout=DEADLINE, create=request)
    attached.attached()
    with pytest.raises(grpc.RpcError) as error:
        attached.finish()
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert state_name(daemon.wait_exec(sandbox, attached.exec.id)) == "CANCELLED"


@pytest.mark.rules("EXEC-015")
def test_a_bound_exec_is_cancelled_when_its_stream_is_refused(daemon, sandbox):
    with create_attached(daemon, sandbox, "sleep", "1000", bound=True) as attached:
        attached.send(signal=99)
        with refused("FIELD_OUT_OF_RANGE", "signal"):
            attached.finish()
        assert state_name(daemon.wait_exec(sandbox, attached.exec.id)) == "CANCELLED"


@pytest.mark.rules("EXEC-015")
def test_a_bound_exec_goes_on_while_anybody_is_attached(daemon, sandbox):
    with create_attached(daemon, sandbox, "sleep", "1000", bound=True) as attached:
        daemon.wait_exec(sandbox, attached.exec.id, "RUNNING")
        with attach(daemon, sandbox, attached.exec.id):
            pass
        time.sleep(0.3)
        assert state_name(daemon.get_exec(sandbox, attached.exec.id)) == "RUNNING"
        other = attach(daemon, sandbox, attached.exec.id)
    time.sleep(0.3)
    assert state_name(daemon.get_exec(sandbox, attached.exec.id)) == "RUNNING"
    other.detach()
    assert state_name(daemon.wait_exec(sandbox, attached.exec.id)) == "CANCELLED"


@pytest.mark.rules("EXEC-015")
def test_who_only_reads_does_not_keep_a_bound_exec(daemon, sandbox):
    with create_attached(daemon, sandbox, "sh", "-c", "echo up; exec sleep 1000", bound=True) as attached:
        attached.until(b"up\n")
        reader = open_output(daemon, sandbox, attached.exec.id, follow=True)
        assert next(reader).output.data == b"up\n"
    assert state_name(list(reader)[-1].exec) == "CANCELLED"


def test_a_bound_exec_that_ends_by_itself_ends_as_any_other(daemon, sandbox):
    with create_attached(daemon, sandbox, "sh", "-c", "echo out; exit 5", bound=True) as attached:
        ended = attached.finish()
    assert (state_name(ended), ended.result.exit_code, attached.output.stdout) == ("EXITED", 5, b"out\n")
    assert daemon.get_exec(sandbox, ended.id) == ended


def test_without_a_stream_nothing_is_bound(daemon, shared_sandbox):
    request = exec_pb2.CreateExecRequest(sandbox_id=shared_sandbox, bound=True)
    request.spec.argv[:] = ["true"]
    with refused("FIELD_INVALID", "bound"):
        daemon.execs.CreateExec(request, timeout=LIMIT)
