# SPDX-License-Identifier: Apache-2.0
"""What is observed of an exec in each of its states, as far as it can be brought about from outside, and signals that
come after its end."""

import base64
import json
import os
import signal
import socket
import sys

import pytest
from google.rpc import error_details_pb2, status_pb2
from hutch.v1 import exec_pb2
from host import PATIENCE
from hutchd import EXEC_STATES, LIMIT, ROOT, Daemon, seconds, state_name, wait_until
from test_exec_states import reboot
from test_states import SlowDaemon

sys.path.append(str(ROOT / "tests/interop"))

# pylint: disable=wrong-import-position
from http2 import Connection, Flag, Kind, frame, grpc_message, request_fields  # noqa: E402

CASES = json.loads((ROOT / "spec/vectors/exec-states.json").read_text(encoding="utf-8"))["cases"]
ENDS = ("EXITED", "CANCELLED", "TIMED_OUT", "FAILED", "LOST")
OF_THE_SANDBOX = ("sandbox-ended", "rebooted")  # what happens to all its execs, also to those that have ended
LATE_SIGNALS = [case for case in CASES if case["in"]["input"] == "signal" and case["in"]["state"] in ENDS]
OBSERVED = [
    case
    for case in CASES
    if case["name"].startswith("observed")
    and (case["out"]["action"] == "move" or case["in"]["input"] in OF_THE_SANDBOX)
]


class UnixSocket(socket.socket):
    """A socket that has none of TCP's options."""

    def setsockopt(self, *_):
        pass


@pytest.fixture(name="slow")
def start_slow_daemon():
    daemon = SlowDaemon()
    daemon.begin()
    yield daemon
    daemon.gate.unlink(missing_ok=True)
    daemon.finish()


def by_name(cases: list):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case["name"].replace(" ", "-"))


def moves(daemon: Daemon, sandbox: str, made: str) -> list[str]:
    """The states that an exec has gone through."""
    changes = [event.exec_state for event in daemon.history(sandbox) if event.HasField("exec_state")]
    return [EXEC_STATES.Name(one.to_state).removeprefix("EXEC_STATE_") for one in changes if one.exec_id == made]


def in_state(daemon: Daemon, sandbox: str, state: str) -> str:
    """An exec in @state. While one is PENDING the sandbox's keeper is halted."""
    if state == "PENDING":
        os.kill(daemon.keeper(sandbox), signal.SIGSTOP)
    timeout = {"timeout": seconds(0.05)} if state == "TIMED_OUT" else {}
    program = {"EXITED": ["true"], "FAILED": ["no-such-program"]}.get(state, ["sleep", "1000"])
    made = daemon.start(sandbox, *program, **timeout).id
    if state in ("RUNNING", "CANCELLED", "LOST"):
        daemon.wait_exec(sandbox, made, "RUNNING")
    if state == "CANCELLED":
        daemon.cancel(sandbox, made)
    if state != "LOST":
        daemon.wait_exec(sandbox, made, state)
    return made


def put_into(daemon: Daemon, state: str) -> tuple[str, str]:
    """A sandbox and an exec of it that is in @state."""
    sandbox = daemon.ready()
    made = in_state(daemon, sandbox, state)
    if state == "LOST":
        reboot(daemon)
        daemon.wait_exec(sandbox, made, "LOST")
        daemon.resume(sandbox)
        daemon.wait(sandbox, "READY")
    return sandbox, made


def bring_about(daemon: Daemon, what: str, sandbox: str, made: str) -> None:
    """Makes something happen to an exec that is PENDING or RUNNING, or to its sandbox."""
    if what == "rebooted":
        reboot(daemon)
        return
    if what == "sandbox-ended":
        daemon.stop(sandbox, 0)
    elif what == "cancelled":
        daemon.cancel(sandbox, made)
    elif what == "exited":
        [pid] = [one for one in daemon.processes(sandbox) if is_sleep(one)]
        os.kill(pid, signal.SIGKILL)
    if what in ("started", "start-failed"):
        os.kill(daemon.keeper(sandbox), signal.SIGCONT)


def is_sleep(pid: int) -> bool:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().startswith(b"sleep\0")


def start_for(daemon: SlowDaemon, what: str, state: str) -> tuple[str, str]:
    """A sandbox and an exec in @state to which @what is going to happen."""
    if (what, state) == ("sandbox-ended", "PENDING"):
        sandbox = daemon.in_state("PENDING")
        return sandbox, daemon.start(sandbox, "true").id
    if what not in ("timed-out", "start-failed"):
        return put_into(daemon, state)
    sandbox = daemon.ready()
    os.kill(daemon.keeper(sandbox), signal.SIGSTOP)
    program = ["no-such-program"] if what == "start-failed" else ["sleep", "1000"]
    made = daemon.start(sandbox, *program, timeout=seconds(2 * PATIENCE)).id  # in which it is seen to run
    if what == "timed-out":
        os.kill(daemon.keeper(sandbox), signal.SIGCONT)
        daemon.wait_exec(sandbox, made, "RUNNING")
    return sandbox, made


@pytest.mark.vectors("exec-states")
@by_name(OBSERVED)
def test_what_is_observed(slow, case):
    state, what = case["in"]["state"], case["in"]["input"]
    sandbox, made = start_for(slow, what, state)
    assert state_name(slow.get_exec(sandbox, made)) == state
    bring_about(slow, what, sandbox, made)
    if what in OF_THE_SANDBOX:
        slow.gate.unlink(missing_ok=True)
        slow.wait(sandbox, "STOPPED")
    slow.wait_exec(sandbox, made, case["out"]["state"])
    moved = [case["out"]["state"]] if case["out"]["action"] == "move" else []
    assert moves(slow, sandbox, made)[-1 - len(moved) :] == [state, *moved]


def refusal_of(daemon: Daemon, method: str, data: bytes, **headers: str) -> error_details_pb2.ErrorInfo:
    """Begins a call with one frame of data, and does not end it. Returns the error that it ends with."""
    sock = UnixSocket(socket.AF_UNIX)
    sock.connect(str(daemon.socket))
    connection = Connection(sock)
    fields = request_fields(f"/hutch.v1.{method}", {name.replace("_", "-"): text for name, text in headers.items()})
    connection.send(connection.headers(1, fields) + frame(Kind.DATA, Flag.NONE, 1, data))
    trailers = connection.response(1).blocks[-1]
    connection.close()
    encoded = trailers["grpc-status-details-bin"]
    status = status_pb2.Status.FromString(base64.b64decode(encoded + "=" * (-len(encoded) % 4)))
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return info


@pytest.mark.vectors("exec-states")
@by_name(LATE_SIGNALS)
def test_a_signal_after_the_end_is_refused(own_daemon, case):
    """It comes in one frame with the request to attach, so that the stream has not told the end yet."""
    state = case["in"]["state"]
    sandbox, made = put_into(own_daemon, state)
    before = own_daemon.get_exec(sandbox, made)
    assert state_name(before) == state
    target = exec_pb2.AttachTarget(sandbox_id=sandbox, exec_id=made)
    requests = exec_pb2.AttachExecRequest(attach=target), exec_pb2.AttachExecRequest(signal=signal.SIGTERM)
    messages = b"".join(grpc_message(request.SerializeToString()) for request in requests)
    told = refusal_of(own_daemon, "ExecService/AttachExec", messages)
    assert (told.reason, dict(told.metadata)) == (case["error"]["reason"], {"state": state})
    assert own_daemon.get_exec(sandbox, made) == before


@pytest.mark.rules("EXEC-014")
@pytest.mark.parametrize("how", ["CreateExec", "RunCommand"])
def test_the_timeout_of_an_exec_kills_it_though_the_call_goes_on_or_has_ended(daemon, sandbox, how):
    if how == "CreateExec":
        client = daemon.client()
        made = client.start(sandbox, "sleep", "1000", timeout=seconds(0.2)).id
        client.close()
        ended = daemon.wait_exec(sandbox, made)
    else:
        request = exec_pb2.RunCommandRequest(sandbox_id=sandbox)
        request.spec.CopyFrom(exec_pb2.ExecSpec(argv=["sleep", "1000"], timeout=seconds(0.2)))
        ended = daemon.execs.RunCommand(request, timeout=LIMIT).exec
    assert (state_name(ended), ended.result.exit_code) == ("TIMED_OUT", 124)
    wait_until(lambda: len(daemon.processes(sandbox)) == 1, what="processes are left")
