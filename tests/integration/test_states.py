# SPDX-License-Identifier: Apache-2.0
"""The table of a sandbox's states, driven from outside: what each request does in each state, and what is observed."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from hutch.v1 import sandbox_pb2
from hutchd import BUILD, ROOT, Daemon, refused, seconds, state_name, wait_until
from test_exec_states import reboot

CASES = json.loads((ROOT / "spec/vectors/sandbox-states.json").read_text(encoding="utf-8"))["cases"]
REQUESTS = [case for case in CASES if case["name"].startswith("request") and case["in"]["input"] != "snapshot"]
MOVES = [case for case in CASES if case["name"].startswith("observed") and case["out"]["action"] == "move"]
ENDS_OF_A_STOP = ("observed start-failed in STOPPING", "observed lost in STOPPING")  # told as `stopped`
OBSERVED = [case for case in MOVES if case["in"]["input"] != "rebooted" and case["name"] not in ENDS_OF_A_STOP]
REBOOTED = [case for case in CASES if case["in"]["input"] == "rebooted"]

# A keeper that waits while there is a file called "gate" beside it, and fails when there is one called "broken".
SLOW_KEEPER = """#!/bin/sh
here=$(dirname "$0")
while [ -e "$here/gate" ]; do sleep 0.02; done
[ -e "$here/broken" ] && exit 1
exec {keeper} "$@"
"""
DEAF = 'trap "" TERM; echo deaf; while :; do sleep 0.1; done'


class SlowDaemon(Daemon):
    """A daemon whose sandboxes start when the test says so."""

    def __init__(self, config: dict | None = None):
        super().__init__()
        keeper = self.folder / "slow-keeper"
        keeper.write_text(SLOW_KEEPER.format(keeper=BUILD / "hutch-keeper"), encoding="utf-8")
        keeper.chmod(0o755)
        self.write_config({"native": {"keeper": str(keeper)}} | (config or {}))
        self.gate = self.folder / "gate"
        self.broken = self.folder / "broken"

    def in_state(self, state: str) -> str:
        """A sandbox in @state."""
        if state == "PENDING":
            self.gate.touch()
            return self.create().id
        sandbox_id = self.ready()
        if state == "PAUSED":
            self.pause(sandbox_id)
        elif state == "STOPPING":
            self.start_deaf(sandbox_id)
            self.stop(sandbox_id, 600)
        elif state == "STOPPED":
            self.stop(sandbox_id, 0)
        elif state == "FAILED":
            os.kill(self.keeper(sandbox_id), signal.SIGKILL)
        elif state == "DELETING":
            self.gate.touch()  # a keeper removes the files, too
            self.delete(sandbox_id)
        elif state == "DELETED":
            self.delete(sandbox_id)
        self.wait(sandbox_id, state)
        return sandbox_id

    def start_deaf(self, sandbox_id: str) -> None:
        """A process that outlives TERM, so that a stop takes its time."""
        exec_id = self.start(sandbox_id, "sh", "-c", DEAF).id
        wait_until(lambda: self.get_exec(sandbox_id, exec_id).stdout_bytes)

    def end_deaf(self, sandbox_id: str) -> None:
        for pid in self.processes(sandbox_id):
            if "deaf" in read(Path(f"/proc/{pid}/cmdline")):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module", name="slow")
def start_slow_daemon():
    daemon = SlowDaemon()
    daemon.begin()
    yield daemon
    daemon.finish()


@pytest.fixture(autouse=True)
def _open_gate(slow):
    yield
    slow.gate.unlink(missing_ok=True)
    slow.broken.unlink(missing_ok=True)


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # the process is gone


def ask(daemon: Daemon, request: str, sandbox_id: str):
    """Makes a request of the table. Returns the sandbox in the answer."""
    if request == "use":
        daemon.start(sandbox_id, "true")
        return daemon.get(sandbox_id)
    if request == "update":
        return daemon.update(sandbox_id, "labels", labels={"changed": "yes"})
    return getattr(daemon, request)(sandbox_id)


@pytest.mark.vectors("sandbox-states")
@pytest.mark.parametrize("case", REQUESTS, ids=lambda case: case["name"].replace(" ", "-"))
def test_request(slow, case):
    state, request = case["in"]["state"], case["in"]["input"]
    sandbox_id = slow.in_state(state)
    before = slow.get(sandbox_id).sequence
    if "error" in case:
        with refused(case["error"]["reason"]) as error:
            ask(slow, request, sandbox_id)
        assert error.metadata["state"] == state
        assert slow.get(sandbox_id).sequence == before
        return

    answer = ask(slow, request, sandbox_id)
    assert state_name(answer) == case["out"]["state"]
    if case["out"]["action"] == "move":
        assert answer.sequence == before + 1
    elif case["out"]["action"] == "nothing":
        assert answer.sequence == before
    slow.gate.unlink(missing_ok=True)
    if case["out"]["state"] == "STOPPING":
        slow.end_deaf(sandbox_id)
    ends = {"STOPPING": "STOPPED", "PENDING": "READY", "DELETING": "DELETED"}
    if request in ("pause", "unpause"):
        end = "PAUSED" if request == "pause" else "READY"
    else:
        end = ends.get(case["out"]["state"], case["out"]["state"])
    slow.wait(sandbox_id, end)
    assert slow.states(sandbox_id)[-1] == end


def test_snapshots_are_not_served_and_say_so(slow):
    with refused("METHOD_UNIMPLEMENTED"):
        slow.sandboxes.CreateSnapshot(sandbox_pb2.CreateSnapshotRequest(sandbox_id="sb-any"))


@pytest.mark.parametrize("request_name", ["stop", "resume", "pause", "unpause", "update", "use", "delete"])
def test_what_never_was_is_not_found(slow, request_name):
    with refused("SANDBOX_NOT_FOUND"):
        ask(slow, request_name, "sb-never-was")


def waiting_keepers(daemon: SlowDaemon) -> list[int]:
    program = str(daemon.folder / "slow-keeper")
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if program in read(path)]


def lose(daemon: SlowDaemon, sandbox_id: str, state: str) -> None:
    if state == "PENDING":
        # Now and then there is a child of its own beside it that has not become another program yet.
        [keeper] = wait_until(lambda: len(found := waiting_keepers(daemon)) == 1 and found)
    else:
        keeper = daemon.keeper(sandbox_id)
    os.kill(keeper, signal.SIGKILL)


def bring_about(daemon: SlowDaemon, what: str, sandbox_id: str, state: str) -> None:
    """Makes something happen to a sandbox in @state."""
    if what == "lost":
        lose(daemon, sandbox_id, state)
    elif what in ("started", "start-failed", "removed"):
        if what == "start-failed":
            daemon.broken.touch()
        daemon.gate.unlink()
    elif what == "stopped":
        daemon.end_deaf(sandbox_id)
    else:
        ask(daemon, what.removesuffix("d"), sandbox_id)


@pytest.mark.vectors("sandbox-states")
@pytest.mark.parametrize("case", OBSERVED, ids=lambda case: case["name"].replace(" ", "-"))
def test_what_is_observed(slow, case):
    state, what = case["in"]["state"], case["in"]["input"]
    sandbox_id = slow.in_state(state)
    bring_about(slow, what, sandbox_id, state)
    slow.wait(sandbox_id, case["out"]["state"])
    assert slow.states(sandbox_id)[-2:] == [state, case["out"]["state"]]


@pytest.fixture(scope="module", name="after_reboot")
def make_after_reboot():
    """A daemon after a reboot, and sandboxes by the state that they were in before it, as they were."""
    daemon = SlowDaemon()
    daemon.begin()
    states = ("READY", "PAUSED", "STOPPING", "STOPPED", "FAILED", "DELETED", "DELETING", "PENDING")
    made = {state: daemon.in_state(state) for state in states}
    before = {state: daemon.get(one) for state, one in made.items()}
    assert {state_name(one) for one in before.values()} == set(states)
    reboot(daemon)
    yield daemon, before
    daemon.gate.unlink(missing_ok=True)
    daemon.finish()


@pytest.mark.vectors("sandbox-states")
@pytest.mark.parametrize("case", REBOOTED, ids=lambda case: case["name"].replace(" ", "-"))
def test_what_a_reboot_does(after_reboot, case):
    daemon, sandboxes = after_reboot
    before = sandboxes[case["in"]["state"]]
    after = daemon.wait(before.id, case["out"]["state"])
    moves = [case["out"]["state"]] if case["out"]["action"] == "move" else []
    assert after.sequence >= before.sequence + len(moves)
    assert daemon.states(before.id)[-1 - len(moves) :] == [case["in"]["state"], *moves]


@pytest.mark.rules("LIFE-010")
def test_observed_start_failed_in_pending(slow):
    slow.broken.touch()
    sandbox = slow.wait(slow.create().id, "FAILED")
    assert sandbox.state_reason and sandbox.state_message
    assert slow.states(sandbox.id) == ["PENDING", "FAILED"]
    wait_until(lambda: not slow.leftovers(sandbox.id, files=False))
    slow.broken.unlink()
    slow.remove(sandbox.id)


def test_a_resume_that_fails_is_failed(slow):
    sandbox_id = slow.in_state("STOPPED")
    slow.broken.touch()
    slow.resume(sandbox_id)
    slow.wait(sandbox_id, "FAILED")
    assert slow.states(sandbox_id)[-3:] == ["STOPPED", "PENDING", "FAILED"]


@pytest.mark.rules("LIFE-002")
def test_a_stop_during_a_start_ends_in_stopped(slow):
    sandbox_id = slow.in_state("PENDING")
    slow.stop(sandbox_id)
    slow.gate.unlink()
    slow.wait(sandbox_id, "STOPPED")
    assert slow.states(sandbox_id) == ["PENDING", "STOPPING", "STOPPED"]
    assert not slow.leftovers(sandbox_id, files=False)
    slow.resume(sandbox_id)
    slow.wait(sandbox_id, "READY")


@pytest.mark.rules("LIFE-010", "EVENT-007")
@pytest.mark.parametrize("state", ["READY", "PAUSED"])
def test_observed_lost(slow, state):
    sandbox_id = slow.in_state(state)
    os.kill(slow.keeper(sandbox_id), signal.SIGKILL)
    sandbox = slow.wait(sandbox_id, "FAILED")
    assert sandbox.state_reason and sandbox.state_message
    assert slow.states(sandbox_id)[-2:] == [state, "FAILED"]
    told = slow.history(sandbox_id)[-1]
    assert (told.reason, told.message, told.actor) == (sandbox.state_reason, sandbox.state_message, "")
    wait_until(lambda: not slow.leftovers(sandbox_id, files=False))
    slow.remove(sandbox_id)
    assert not slow.leftovers(sandbox_id)


def test_a_keeper_that_dies_while_it_stops_leaves_nothing(slow):
    """It was told to stop, so this is not necessarily a loss."""
    sandbox_id = slow.in_state("STOPPING")
    os.kill(slow.keeper(sandbox_id), signal.SIGKILL)
    slow.wait(sandbox_id, "STOPPED", "FAILED")
    wait_until(lambda: not slow.leftovers(sandbox_id, files=False))


@pytest.mark.rules("LIFE-002", "LIFE-003")
def test_a_delete_during_a_create_ends_in_deleted(slow):
    sandbox_id = slow.in_state("PENDING")
    exec_id = slow.start(sandbox_id, "true").id
    slow.delete(sandbox_id)
    slow.gate.unlink()
    slow.wait(sandbox_id, "DELETED")
    assert slow.states(sandbox_id) == ["PENDING", "DELETING", "DELETED"]
    assert state_name(slow.get_exec(sandbox_id, exec_id)) == "CANCELLED"
    assert not slow.leftovers(sandbox_id)


@pytest.mark.rules("LIFE-003")
@pytest.mark.parametrize("started", [False, True], ids=["before-the-start", "after-the-start"])
def test_a_delete_during_a_create_ends_in_deleted_after_a_crash(slow, started):
    """The daemon that comes back finds a start that nobody wants any more, or what it left."""
    sandbox_id = slow.in_state("PENDING")
    slow.delete(sandbox_id)
    slow.kill()
    if started:
        slow.gate.unlink()
        wait_until(lambda: not waiting_keepers(slow))
    slow.begin()
    slow.gate.unlink(missing_ok=True)
    slow.wait(sandbox_id, "DELETED")
    assert slow.states(sandbox_id) == ["PENDING", "DELETING", "DELETED"]
    slow.restart(kill=True)
    assert slow.states(sandbox_id) == ["PENDING", "DELETING", "DELETED"]
    assert not slow.leftovers(sandbox_id)


@pytest.mark.rules("LIFE-011", "LIFE-015")
@pytest.mark.parametrize("limit", ["sandboxes", "sandboxes_per_caller"])
def test_what_is_being_deleted_counts_for_quotas_until_it_is_deleted(limit):
    daemon = SlowDaemon({"limits": {limit: 1}})
    daemon.begin()
    try:
        sandbox_id = daemon.in_state("DELETING")
        for _ in range(2):
            with refused("QUOTA_EXCEEDED") as told:
                daemon.create()
            assert told.metadata == {"limit": limit, "value": "1"}
            daemon.restart(kill=True)
        daemon.gate.unlink()
        daemon.wait(sandbox_id, "DELETED")
        daemon.ready()
    finally:
        daemon.gate.unlink(missing_ok=True)
        daemon.finish()


@pytest.mark.rules("LIFE-002")
def test_a_delete_during_a_stop_ends_in_deleted(slow):
    sandbox_id = slow.in_state("STOPPING")
    slow.delete(sandbox_id)
    slow.wait(sandbox_id, "DELETED")  # long before the end of the grace
    assert slow.states(sandbox_id)[-3:] == ["STOPPING", "DELETING", "DELETED"]


@pytest.mark.rules("LIFE-002")
def test_a_pause_during_an_unpause_is_refused_until_it_is_done(slow):
    sandbox_id = slow.in_state("PAUSED")
    keeper = slow.keeper(sandbox_id)
    os.kill(keeper, signal.SIGSTOP)  # its answer takes its time
    try:
        assert state_name(slow.unpause(sandbox_id)) == "PAUSED"
        assert state_name(slow.unpause(sandbox_id)) == "PAUSED"
        with refused("OPERATION_IN_PROGRESS"):
            slow.pause(sandbox_id)
    finally:
        os.kill(keeper, signal.SIGCONT)
    slow.wait(sandbox_id, "READY")


@pytest.mark.rules("LIFE-002")
def test_an_unpause_during_a_pause_is_refused_until_it_is_done(slow):
    sandbox_id = slow.in_state("READY")
    keeper = slow.keeper(sandbox_id)
    os.kill(keeper, signal.SIGSTOP)
    try:
        assert state_name(slow.pause(sandbox_id)) == "READY"
        assert state_name(slow.pause(sandbox_id)) == "READY"
        with refused("OPERATION_IN_PROGRESS"):
            slow.unpause(sandbox_id)
    finally:
        os.kill(keeper, signal.SIGCONT)
    slow.wait(sandbox_id, "PAUSED")


@pytest.mark.rules("LIFE-002")
@pytest.mark.parametrize("state, request_name", [("READY", "pause"), ("PAUSED", "unpause")])
@pytest.mark.parametrize("end, states", [("stop", ["STOPPING", "STOPPED"]), ("delete", ["DELETING", "DELETED"])])
def test_a_stop_and_a_delete_come_before_what_is_under_way(slow, state, request_name, end, states):
    sandbox_id = slow.in_state(state)
    keeper = slow.keeper(sandbox_id)
    os.kill(keeper, signal.SIGSTOP)
    ask(slow, request_name, sandbox_id)
    assert state_name(ask(slow, end, sandbox_id)) == states[0]
    os.kill(keeper, signal.SIGCONT)
    slow.wait(sandbox_id, states[1])
    assert slow.states(sandbox_id)[-3:] == [state, *states]


@pytest.mark.rules("DEADLINE-004")
def test_the_timeout_of_an_exec_does_not_count_while_it_waits_for_its_sandbox(slow):
    sandbox_id = slow.in_state("PENDING")
    exec_id = slow.start(sandbox_id, "sleep", "1000", timeout=seconds(0.3)).id
    time.sleep(0.4)
    assert state_name(slow.get_exec(sandbox_id, exec_id)) == "PENDING"
    slow.gate.unlink()
    ended = slow.wait_exec(sandbox_id, exec_id, "TIMED_OUT")
    assert ended.end_time.ToNanoseconds() - ended.start_time.ToNanoseconds() >= 0.29e9  # by the calendar's clock


def test_execs_of_a_pending_sandbox_start_when_it_is_ready(slow):
    sandbox_id = slow.in_state("PENDING")
    execs = [slow.start(sandbox_id, "true") for _ in range(5)]
    assert {state_name(one) for one in execs} == {"PENDING"}
    assert slow.get(sandbox_id).active_execs == 5
    slow.gate.unlink()
    for one in execs:
        assert slow.wait_exec(sandbox_id, one.id, "EXITED").result.exit_code == 0
    assert slow.get(sandbox_id).active_execs == 0
