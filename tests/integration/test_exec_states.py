# SPDX-License-Identifier: Apache-2.0
"""Every cell of the table of an exec's states that can be reached from outside."""

import contextlib
import json
import os
import signal
import sqlite3

import grpc
import pytest
from hutch.v1 import exec_pb2
from hutchd import BUILD, EXEC_STATES, LIMIT, ROOT, Daemon, Refusal, refused, seconds, state_name, wait_until
from streams import PIPED, attach, create_attached, read_output

CASES = json.loads((ROOT / "spec/vectors/exec-states.json").read_text(encoding="utf-8"))["cases"]
ENDS = ("EXITED", "CANCELLED", "TIMED_OUT", "FAILED", "LOST")
LATE_SIGNALS = [case for case in CASES if case["in"]["input"] == "signal" and case["in"]["state"] in ENDS]
REQUESTS = [
    case
    for case in CASES
    if case["in"]["input"] in ("cancel", "signal", "input", "attach") and case not in LATE_SIGNALS
]


def reboot(daemon: Daemon) -> None:
    """What a start of the machine leaves: no process, and another boot id than the one in the store."""
    daemon.kill()
    daemon.kill_keepers()
    wait_until(lambda: not daemon.keepers())
    with sqlite3.connect(daemon.state / "hutch.db") as store:
        store.execute("UPDATE facts SET value = 'another' WHERE name = 'boot_id'")
    store.close()
    daemon.begin()


@pytest.fixture(scope="module", name="rebooted")
def make_rebooted():
    """A daemon after a reboot, and in it the ids of a sandbox and of an exec that was lost."""
    daemon = Daemon().begin()
    sandbox = daemon.ready()
    made = daemon.start(sandbox, "sleep", "1000", stdin=PIPED).id
    daemon.wait_exec(sandbox, made, "RUNNING")
    reboot(daemon)
    yield daemon, sandbox, made
    daemon.finish()


@pytest.fixture(scope="module", name="gated")
def make_gated():
    """A daemon whose keepers wait for the file @gate."""
    daemon = Daemon()
    daemon.gate = daemon.folder / "gate"
    keeper = daemon.folder / "keeper"
    keeper.write_text(
        f'#!/bin/sh\nwhile [ ! -e {daemon.gate} ]; do sleep 0.01; done\nexec {BUILD / "hutch-keeper"} "$@"\n',
        encoding="utf-8",
    )
    keeper.chmod(0o755)
    daemon.write_config({"native": {"keeper": str(keeper)}})
    daemon.begin()
    yield daemon
    daemon.gate.touch()
    daemon.finish()


@pytest.fixture(name="pending")
def make_pending(gated):
    """A daemon, a sandbox that is PENDING until daemon.gate is there, and an exec that waits for it."""
    gated.gate.unlink(missing_ok=True)
    sandbox = gated.create().id
    yield gated, sandbox, gated.start(sandbox, "cat", stdin=PIPED).id
    gated.gate.touch()
    gated.remove(sandbox)


@pytest.fixture(name="put_into")
def make_put_into(daemon, sandbox, request):
    """Makes an exec that is in a state: put_into("EXITED") is the daemon, the sandbox's id and the exec's."""

    def put_into(state: str):
        if state in ("PENDING", "LOST"):
            return request.getfixturevalue({"PENDING": "pending", "LOST": "rebooted"}[state])
        argv = {"EXITED": ["true"], "FAILED": ["missing-program"]}.get(state, ["cat"])
        timeout = seconds(0.01) if state == "TIMED_OUT" else None
        made = daemon.start(sandbox, *argv, stdin=PIPED, timeout=timeout).id
        if state == "CANCELLED":
            daemon.wait_exec(sandbox, made, "RUNNING")
            daemon.cancel(sandbox, made, grace=0)
        daemon.wait_exec(sandbox, made, state)
        return daemon, sandbox, made

    return put_into


@pytest.fixture(name="starting")
def make_starting(daemon, sandbox):
    """A daemon, a sandbox whose keeper does not answer until go_on() is called, and an exec that is being started."""
    keeper = daemon.keeper(sandbox)
    os.kill(keeper, signal.SIGSTOP)
    made = daemon.start(sandbox, "cat", stdin=PIPED).id
    yield daemon, sandbox, made, lambda: os.kill(keeper, signal.SIGCONT)
    with contextlib.suppress(ProcessLookupError):
        os.kill(keeper, signal.SIGCONT)


def request_input(daemon, sandbox, made) -> str:
    """Sends each kind of input. Returns the state of the exec then."""
    with attach(daemon, sandbox, made) as attached:
        attached.write(b"hello\n")
        attached.write(b"")
        if attached.exec.HasField("end_time"):
            attached.close_stdin()
            attached.finish()
        else:  # an error would end the stream
            attached.half_close()
            assert attached.call.is_active()
    return state_name(daemon.get_exec(sandbox, made))


def request_signal(daemon, sandbox, made) -> str:
    with attach(daemon, sandbox, made) as attached:
        attached.send(signal=int(signal.SIGWINCH))
        if state_name(attached.exec) == "PENDING":
            attached.finish()
    return state_name(daemon.get_exec(sandbox, made))


def request_attach(daemon, sandbox, made) -> str:
    with attach(daemon, sandbox, made) as attached:
        if attached.exec.HasField("end_time"):
            assert attached.finish() == attached.exec
        return state_name(attached.exec)


def request_cancel(daemon, sandbox, made) -> str:
    return state_name(daemon.cancel(sandbox, made))


ASK = {"input": request_input, "signal": request_signal, "attach": request_attach, "cancel": request_cancel}


@pytest.mark.vectors("exec-states")
@pytest.mark.parametrize("case", REQUESTS, ids=lambda case: case["name"])
def test_a_request_in_a_state_does_what_the_table_says(put_into, case):
    state, asked = case["in"]["state"], case["in"]["input"]
    daemon, sandbox, made = put_into(state)
    before = daemon.get_exec(sandbox, made)
    assert state_name(before) == state

    if "error" in case:
        with refused(case["error"]["reason"]) as told:
            ASK[asked](daemon, sandbox, made)
        assert told.metadata["state"] == state
    else:
        assert ASK[asked](daemon, sandbox, made) == case["out"]["state"]
    if state in ENDS:
        assert daemon.get_exec(sandbox, made) == before


@pytest.mark.parametrize("case", LATE_SIGNALS, ids=lambda case: case["name"])
def test_a_signal_after_the_end_is_refused_or_comes_too_late(put_into, case):
    """The stream may have told of the end before it came to the signal, so this is no result for the vectors."""
    daemon, sandbox, made = put_into(case["in"]["state"])
    before = daemon.get_exec(sandbox, made)
    with attach(daemon, sandbox, made) as attached:
        attached.send(signal=int(signal.SIGTERM))
        try:
            assert attached.finish() == before
        except grpc.RpcError as error:
            told = Refusal(error)
            assert (told.reason, told.metadata) == (case["error"]["reason"], {"state": case["in"]["state"]})
    assert daemon.get_exec(sandbox, made) == before


def test_a_signal_to_an_exec_that_has_ended_is_refused_while_it_is_attached(daemon, sandbox):
    """Output that nobody takes keeps the stream from telling the end."""
    made = daemon.start(sandbox, "head", "-c", "50000000", "/dev/zero").id
    daemon.wait_exec(sandbox, made)
    with attach(daemon, sandbox, made) as attached:
        attached.send(signal=int(signal.SIGTERM))
        with refused("EXEC_WRONG_STATE") as told:
            attached.finish()
    assert told.metadata == {"state": "EXITED"}


def send_and_close(attached) -> None:
    attached.write(b"first ")
    attached.write(b"second")
    attached.close_stdin()


def test_input_to_an_exec_that_waits_for_its_sandbox_is_kept(pending):
    daemon, sandbox, made = pending
    with attach(daemon, sandbox, made) as attached:
        send_and_close(attached)
        daemon.gate.touch()
        assert state_name(attached.finish()) == "EXITED"
    assert attached.output.stdout == b"first second"


def test_input_to_an_exec_that_is_being_started_is_kept(starting):
    daemon, sandbox, made, go_on = starting
    with attach(daemon, sandbox, made) as attached:
        send_and_close(attached)
        go_on()
        assert state_name(attached.finish()) == "EXITED"
    assert attached.output.stdout == b"first second"


def check_cancelled_before_its_start(daemon, sandbox, made) -> None:
    cancelled = daemon.get_exec(sandbox, made)
    assert state_name(cancelled) == "CANCELLED"
    assert cancelled.result.end_reason == exec_pb2.EXEC_END_REASON_CANCELLED
    assert cancelled.HasField("cancel_time") and cancelled.HasField("end_time")
    assert not cancelled.result.HasField("exit_code") and not cancelled.HasField("start_time")


def test_an_exec_that_is_cancelled_before_its_sandbox_is_ready_never_runs(pending):
    daemon, sandbox, made = pending
    assert state_name(daemon.cancel(sandbox, made)) == "CANCELLED"
    check_cancelled_before_its_start(daemon, sandbox, made)
    daemon.gate.touch()
    daemon.wait(sandbox, "READY")
    assert daemon.shell(sandbox, "echo on") == "on\n"
    check_cancelled_before_its_start(daemon, sandbox, made)
    assert read_output(daemon, sandbox, made)[0].stdout == b""


def test_an_exec_that_is_cancelled_while_it_is_started_is_cancelled_once_it_has(starting):
    daemon, sandbox, made, go_on = starting
    cancelled = daemon.cancel(sandbox, made)
    assert state_name(cancelled) == "PENDING" and cancelled.HasField("cancel_time")
    go_on()
    ended = daemon.wait_exec(sandbox, made)
    assert state_name(ended) == "CANCELLED" and ended.cancel_time == cancelled.cancel_time
    assert ended.result.end_reason == exec_pb2.EXEC_END_REASON_CANCELLED
    wait_until(lambda: len(daemon.processes(sandbox)) == 1)
    assert daemon.shell(sandbox, "echo on") == "on\n"


def test_an_exec_of_a_pending_sandbox_starts_when_that_is_ready(daemon):
    sandbox = daemon.create().id
    made = daemon.start(sandbox, "echo", "hello")
    assert state_name(made) == "PENDING"
    assert daemon.run(sandbox, "echo", "too").stdout == b"too\n"
    assert state_name(daemon.wait_exec(sandbox, made.id)) == "EXITED"
    assert read_output(daemon, sandbox, made.id)[0].stdout == b"hello\n"
    daemon.remove(sandbox)


def test_an_exec_of_a_pending_sandbox_may_be_cancelled(daemon):
    sandbox = daemon.create().id
    made = daemon.start(sandbox, "sleep", "1000").id
    daemon.cancel(sandbox, made, grace=0)
    assert state_name(daemon.wait_exec(sandbox, made)) == "CANCELLED"
    daemon.remove(sandbox)


@pytest.mark.parametrize("how, reason", [("stop", "SANDBOX_STOPPED"), ("delete", "SANDBOX_DELETED")])
def test_execs_that_wait_for_their_sandbox_end_with_it(pending, how, reason):
    daemon, sandbox, made = pending
    {"stop": daemon.stop, "delete": daemon.delete}[how](sandbox)
    daemon.gate.touch()
    ended = daemon.wait_exec(sandbox, made)
    assert state_name(ended) == "CANCELLED"
    assert exec_pb2.ExecEndReason.Name(ended.result.end_reason) == f"EXEC_END_REASON_{reason}"


def test_execs_that_are_being_started_end_with_their_sandbox(starting):
    daemon, sandbox, made, go_on = starting
    daemon.delete(sandbox)
    go_on()
    ended = daemon.wait_exec(sandbox, made)
    assert state_name(ended) == "CANCELLED"
    assert ended.result.end_reason == exec_pb2.EXEC_END_REASON_SANDBOX_DELETED


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED", "DELETED"])
def test_no_exec_starts_in_a_sandbox_that_does_not_run(daemon, state):
    sandbox = daemon.ready()
    {"PAUSED": daemon.pause, "STOPPED": daemon.stop, "DELETED": daemon.delete}[state](sandbox)
    daemon.wait(sandbox, state)
    for call in (daemon.start, daemon.run, lambda *args: create_attached(daemon, *args)):
        with refused("SANDBOX_WRONG_STATE") as told:
            call(sandbox, "true")
        assert told.metadata == {"state": state}
    daemon.remove(sandbox)


def test_every_move_of_an_exec_is_one_event(daemon, sandbox):
    watch = daemon.watch()
    made = {
        "EXITED": daemon.start(sandbox, "true").id,
        "FAILED": daemon.start(sandbox, "missing-program").id,
        "TIMED_OUT": daemon.start(sandbox, "sleep", "1000", timeout=seconds(0.05)).id,
        "CANCELLED": daemon.start(sandbox, "sleep", "1000").id,
    }
    daemon.wait_exec(sandbox, made["CANCELLED"], "RUNNING")
    daemon.cancel(sandbox, made["CANCELLED"])
    moves: dict[str, list[str]] = {one: [] for one in made.values()}
    for _ in range(4 * 3 - 1):  # the failed one never ran
        change = watch.next().exec_state
        moves[change.exec_id].append(EXEC_STATES.Name(change.to_state).removeprefix("EXEC_STATE_"))
        if len(moves[change.exec_id]) > 2 or moves[change.exec_id][-1] == "FAILED":
            assert change.result == daemon.get_exec(sandbox, change.exec_id).result
    watch.close()
    for state, one in made.items():
        assert moves[one] == ["PENDING", state] if state == "FAILED" else ["PENDING", "RUNNING", state]


@pytest.mark.rules("EXEC-003")
def test_a_reboot_loses_what_ran_and_keeps_what_had_ended(own_daemon):
    daemon = own_daemon
    sandbox = daemon.ready()
    running = daemon.start(sandbox, "sh", "-c", "echo so far; sleep 1000").id
    ended = daemon.run(sandbox, "echo", "well").exec
    wait_until(lambda: daemon.get_exec(sandbox, running).stdout_bytes)
    os.kill(daemon.keeper(sandbox), signal.SIGSTOP)
    waiting = daemon.start(sandbox, "true").id
    reboot(daemon)
    assert state_name(daemon.wait(sandbox, "STOPPED")) == "STOPPED"
    for one in (running, waiting):
        lost = daemon.get_exec(sandbox, one)
        assert state_name(lost) == "LOST"
        assert lost.result.end_reason == exec_pb2.EXEC_END_REASON_MACHINE_DOWN
        assert not lost.result.HasField("exit_code") and lost.HasField("end_time") and lost.result.message
    assert daemon.get_exec(sandbox, ended.id) == ended
    assert read_output(daemon, sandbox, running)[0].stdout == b"so far\n"
    assert read_output(daemon, sandbox, ended.id)[0].stdout == b"well\n"
    daemon.resume(sandbox)
    assert daemon.shell(sandbox, "echo again") == "again\n"
    listed = daemon.execs.ListExecs(exec_pb2.ListExecsRequest(sandbox_id=sandbox), timeout=LIMIT).execs
    assert [state_name(one) for one in listed][:3] == ["LOST", "EXITED", "LOST"]
