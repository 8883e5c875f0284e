# SPDX-License-Identifier: Apache-2.0
"""RunCommand: a command that ends with its call, and its bounded output."""

import contextlib
import json
import random
import select
import socket
import threading
import time
from pathlib import Path

import grpc
import pytest
from host import PATIENCE
from hutch.v1 import exec_pb2
from hutchd import LIMIT, ROOT, Client, exec_state, refused, seconds, state_name, wait_until

MIB = 1 << 20
SHARED = [
    case
    for case in json.loads((ROOT / "spec/vectors/output.json").read_text(encoding="utf-8"))["cases"]
    if case["in"]["kind"] == "shared" and 0 < case["in"]["limit"] and case["in"]["limit"] < 1000
]


def run(daemon, sandbox_id: str, *argv: str, timeout: float = LIMIT, limit: int = 0, data: bytes = b"", **spec):
    request = exec_pb2.RunCommandRequest(
        sandbox_id=sandbox_id, spec=exec_pb2.ExecSpec(argv=argv, **spec), output_limit_bytes=limit, input=data
    )
    return daemon.execs.RunCommand(request, timeout=timeout)


def begin(daemon, sandbox_id: str, *argv: str, timeout: float = LIMIT, request_id: str = "", **spec):
    """The call of a command that is surely running, and its exec."""
    request = exec_pb2.RunCommandRequest(
        sandbox_id=sandbox_id, spec=exec_pb2.ExecSpec(argv=argv, **spec), request_id=request_id
    )
    call = daemon.execs.RunCommand.future(request, timeout=timeout)
    made = wait_until(lambda: running(daemon, sandbox_id))
    return call, made[-1].id


def running(daemon, sandbox_id: str) -> list:
    request = exec_pb2.ListExecsRequest(sandbox_id=sandbox_id, states=[exec_state("RUNNING")])
    return list(daemon.execs.ListExecs(request, timeout=LIMIT).execs)


def assert_nothing_runs(daemon, sandbox_id: str) -> None:
    wait_until(lambda: len(daemon.processes(sandbox_id)) == 1, what="processes are left")


def test_a_command_is_answered_with_its_output_and_end(daemon, sandbox):
    answer = run(daemon, sandbox, "sh", "-c", "cat; echo err >&2; exit 3", data=b"\0in\xff")
    assert (answer.stdout, answer.stderr) == (b"\0in\xff", b"err\n")
    assert (state_name(answer.exec), answer.exec.result.exit_code) == ("EXITED", 3)
    assert answer.stdout_summary == exec_pb2.CollectedOutput(total_bytes=4, head_bytes=4)
    assert answer.stderr_summary == exec_pb2.CollectedOutput(total_bytes=4, head_bytes=4)
    assert daemon.get_exec(sandbox, answer.exec.id) == answer.exec


def test_without_input_stdin_is_empty(daemon, sandbox):
    assert run(daemon, sandbox, "wc", "-c").stdout == b"0\n"


def test_the_largest_input_goes_through(daemon, sandbox):
    data = random.randbytes(3 * MIB)
    assert run(daemon, sandbox, "cat", data=data).stdout == data


def test_a_command_need_not_read_its_input(daemon, sandbox):
    answer = run(daemon, sandbox, "sh", "-c", "exec <&-; sleep 0.1; echo done", data=bytes(3 * MIB))
    assert (answer.stdout, answer.exec.result.exit_code) == (b"done\n", 0)


@pytest.mark.parametrize("field", [{"stdin": 1}, {"stdin": 2}, {"terminal": exec_pb2.TerminalSize(rows=1, columns=1)}])
def test_stdin_and_terminal_must_be_unset(daemon, shared_sandbox, field):
    with refused("FIELD_INVALID", f"spec.{next(iter(field))}"):
        run(daemon, shared_sandbox, "true", **field)


def test_the_largest_answer_comes_whole(daemon, sandbox):
    data = run(daemon, sandbox, "sh", "-c", "head -c 8388608 /dev/zero; head -c 8388608 /dev/zero >&2")
    assert (len(data.stdout), len(data.stderr)) == (8 * MIB, 8 * MIB)
    assert not data.stdout_summary.truncated and not data.stderr_summary.truncated
    data = run(daemon, sandbox, "head", "-c", str(16 * MIB), "/dev/zero")
    assert len(data.stdout) == 16 * MIB and not data.stdout_summary.truncated


def test_more_than_the_limit_is_cut_in_the_middle_and_told(daemon, sandbox):
    answer = run(daemon, sandbox, "seq", "-w", "0", "3000000")
    whole = 3000001 * 8
    summary = answer.stdout_summary
    assert summary.total_bytes == whole and summary.truncated
    assert summary.dropped_bytes == whole - len(answer.stdout)
    assert len(answer.stdout) <= 16 * MIB and len(answer.stdout) > 15 * MIB
    head, tail = answer.stdout[: summary.head_bytes], answer.stdout[summary.head_bytes :]
    assert abs(len(head) - len(tail)) <= 1
    assert head.startswith(b"0000000\n0000001\n") and tail.endswith(b"2999999\n3000000\n")
    assert head[-9:-1] in b"".join(b"%07d\n" % i for i in range(len(head) // 8 - 2, len(head) // 8 + 2))


@pytest.mark.vectors("output")
@pytest.mark.parametrize("case", SHARED, ids=lambda case: case["name"])
def test_two_streams_share_a_limit_as_in_the_vectors(daemon, shared_sandbox, case):
    wanted = case["in"]
    script = "head -c $0 /dev/zero | tr '\\0' o; head -c $1 /dev/zero | tr '\\0' e >&2"
    answer = run(
        daemon, shared_sandbox, "sh", "-c", script, str(wanted["stdout"]), str(wanted["stderr"]), limit=wanted["limit"]
    )
    for name, data, summary in (
        ("stdout", answer.stdout, answer.stdout_summary),
        ("stderr", answer.stderr, answer.stderr_summary),
    ):
        share = case["out"][f"{name}_limit"]
        kept = min(share, wanted[name])
        assert len(data) == kept and set(data) <= {ord(name[3])}
        assert (summary.total_bytes, summary.dropped_bytes) == (wanted[name], wanted[name] - kept)
        assert summary.truncated == (wanted[name] > kept)
        assert summary.head_bytes == (-(-share // 2) if summary.truncated else kept)


def test_a_limit_of_the_exec_holds_for_the_answer(daemon, sandbox):
    answer = run(daemon, sandbox, "printf", "abcdefghij", output_limit_bytes=4)
    assert answer.stdout == b"abij"
    assert answer.stdout_summary == exec_pb2.CollectedOutput(
        total_bytes=10, dropped_bytes=6, truncated=True, head_bytes=2
    )
    assert answer.exec.result.stdout == exec_pb2.StreamSummary(total_bytes=10, dropped_bytes=6, truncated=True)


def test_a_limit_below_the_exec_s_cuts_what_was_kept(daemon, sandbox):
    answer = run(daemon, sandbox, "printf", "abcdefghij", output_limit_bytes=8, limit=4)
    assert answer.stdout == b"abij"
    assert answer.exec.result.stdout.dropped_bytes == 2
    assert answer.stdout_summary.dropped_bytes == 6


# ---- It ends with its call ----


def test_a_deadline_kills_the_command(daemon, sandbox):
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        run(daemon, sandbox, "sh", "-c", "setsid sleep 1000 & sleep 1000", timeout=0.3)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - began < 5 * PATIENCE
    assert_nothing_runs(daemon, sandbox)


def test_a_cancelled_call_kills_the_command(daemon, sandbox):
    call, made = begin(daemon, sandbox, "sh", "-c", "setsid sleep 1000 & sleep 1000")
    call.cancel()
    ended = daemon.wait_exec(sandbox, made)
    assert (state_name(ended), ended.result.end_reason) == ("CANCELLED", exec_pb2.EXEC_END_REASON_CANCELLED)
    assert_nothing_runs(daemon, sandbox)


@pytest.fixture(name="relay")
def start_relay(daemon, tmp_path):
    """Carries one connection to the daemon, until it is cut: relay.client() and relay.cut()."""
    relay = Relay(tmp_path / "relay.sock", daemon.socket)
    yield relay
    relay.end()


class Relay:
    def __init__(self, path: Path, target: Path):
        self.path, self.target = path, target
        self.clients: list[Client] = []
        self.sockets = [socket.socket(socket.AF_UNIX) for _ in range(2)]
        self.sockets[0].bind(str(path))
        self.sockets[0].listen()
        threading.Thread(target=self.carry, daemon=True).start()

    def client(self) -> Client:
        self.clients.append(Client(self.path))
        return self.clients[-1]

    def carry(self) -> None:
        self.sockets.append(self.sockets[0].accept()[0])
        self.sockets[0].close()  # nobody can come back this way
        daemon, client = self.sockets[1:]
        daemon.connect(str(self.target))
        with contextlib.suppress(OSError):
            while ready := select.select([daemon, client], [], [], LIMIT)[0]:
                for one in ready:
                    (client if one is daemon else daemon).sendall(one.recv(65536))

    def cut(self) -> None:
        for one in self.sockets[1:]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        self.cut()
        for client in self.clients:
            client.close()


@pytest.mark.rules("EXEC-016")
def test_a_broken_connection_kills_the_command(daemon, sandbox, relay):
    call, made = begin(relay.client(), sandbox, "sleep", "1000")
    relay.cut()
    assert call.code() == grpc.StatusCode.UNAVAILABLE
    assert state_name(daemon.wait_exec(sandbox, made)) == "CANCELLED"
    assert_nothing_runs(daemon, sandbox)


@pytest.mark.rules("EXEC-016")
def test_a_command_with_a_request_id_outlives_its_connection_for_a_while(daemon, sandbox, relay):
    script = "echo once >> ran; while [ ! -e go ]; do sleep 0.02; done; cat ran"
    call, _ = begin(relay.client(), sandbox, "sh", "-c", script, request_id="lost-and-found")
    relay.cut()
    assert call.code() == grpc.StatusCode.UNAVAILABLE
    request = exec_pb2.RunCommandRequest(sandbox_id=sandbox, request_id="lost-and-found")
    request.spec.argv.extend(["sh", "-c", script])
    again = daemon.execs.RunCommand.future(request, timeout=LIMIT)
    daemon.shell(sandbox, "touch go")
    answer = again.result()
    assert (state_name(answer.exec), answer.stdout) == ("EXITED", b"once\n")


@pytest.mark.rules("EXEC-016")
def test_a_command_with_a_request_id_ends_with_its_cancelled_call(daemon, sandbox):
    call, made = begin(daemon, sandbox, "sleep", "1000", request_id="cancelled-for-good")
    call.cancel()
    assert state_name(daemon.wait_exec(sandbox, made)) == "CANCELLED"


def test_a_killed_command_gets_its_grace(daemon, sandbox):
    script = "trap 'sleep 0.1; echo bye > bye; exit 0' TERM; echo ready; sleep 1000 & wait"
    call, made = begin(daemon, sandbox, "sh", "-c", script)
    wait_until(lambda: daemon.get_exec(sandbox, made).stdout_bytes)
    call.cancel()
    daemon.wait_exec(sandbox, made)
    assert daemon.shell(sandbox, "cat bye") == "bye\n"


def test_a_timeout_of_the_command_is_an_answer(daemon, sandbox):
    spec = exec_pb2.ExecSpec(argv=["sh", "-c", "echo so far; sleep 1000"], timeout=seconds(PATIENCE))
    answer = daemon.execs.RunCommand(exec_pb2.RunCommandRequest(sandbox_id=sandbox, spec=spec), timeout=LIMIT)
    assert (state_name(answer.exec), answer.exec.result.exit_code) == ("TIMED_OUT", 124)
    assert answer.stdout == b"so far\n"


def test_a_command_that_somebody_cancels_is_answered(daemon, sandbox):
    call, made = begin(daemon, sandbox, "sh", "-c", "echo so far; sleep 1000")
    wait_until(lambda: daemon.get_exec(sandbox, made).stdout_bytes)
    daemon.cancel(sandbox, made, grace=0)
    answer = call.result()
    assert (state_name(answer.exec), answer.stdout) == ("CANCELLED", b"so far\n")


@pytest.mark.parametrize("how", ["stop", "delete"])
def test_a_command_whose_sandbox_ends_is_answered(daemon, how):
    sandbox = daemon.ready()
    call, made = begin(daemon, sandbox, "sh", "-c", "echo so far; sleep 1000")
    wait_until(lambda: daemon.get_exec(sandbox, made).stdout_bytes)
    {"stop": daemon.stop, "delete": daemon.delete}[how](sandbox)
    answer = call.result()
    assert state_name(answer.exec) == "CANCELLED"
    if how == "stop":
        assert answer.stdout == b"so far\n"
    daemon.remove(sandbox)


def test_a_command_that_fails_to_start_is_an_answer(daemon, sandbox):
    answer = run(daemon, sandbox, "missing-program")
    assert (state_name(answer.exec), answer.exec.result.exit_code) == ("FAILED", 127)
    assert answer.stdout_summary == exec_pb2.CollectedOutput()


def test_deadlines_that_race_with_the_end_leave_nothing(daemon, sandbox):
    for _ in range(40):
        try:
            answer = run(daemon, sandbox, "sh", "-c", "sleep 0.01; echo x", timeout=random.uniform(0.001, 0.04))
            assert answer.stdout == b"x\n"
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert_nothing_runs(daemon, sandbox)
    wait_until(lambda: not running(daemon, sandbox))


def test_cancels_that_race_with_the_end_leave_nothing(daemon, sandbox):
    spec = exec_pb2.ExecSpec(argv=["sh", "-c", "sleep 0.01; echo x"])
    request = exec_pb2.RunCommandRequest(sandbox_id=sandbox, spec=spec)
    for _ in range(40):
        call = daemon.execs.RunCommand.future(request, timeout=LIMIT)
        time.sleep(random.uniform(0, 0.03))
        call.cancel()
    assert_nothing_runs(daemon, sandbox)
    wait_until(lambda: not running(daemon, sandbox))


def test_many_commands_run_at_once(daemon, sandbox):
    calls = []
    for i in range(100):
        spec = exec_pb2.ExecSpec(argv=["sh", "-c", "sleep 0.2; echo $0", str(i)])
        request = exec_pb2.RunCommandRequest(sandbox_id=sandbox, spec=spec)
        calls.append(daemon.execs.RunCommand.future(request, timeout=LIMIT))
    assert [call.result().stdout for call in calls] == [b"%d\n" % i for i in range(100)]
