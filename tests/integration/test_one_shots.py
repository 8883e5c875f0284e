# SPDX-License-Identifier: Apache-2.0
"""SandboxExecService: a command in a sandbox that is made for it and goes with the call."""

import grp
import random
import threading

import grpc
import pytest
from hutch.v1 import exec_pb2, sandbox_exec_pb2, sandbox_pb2
from host import PATIENCE
from hutchd import LIMIT, SANDBOX_STATES, Client, refused, seconds, state_name, wait_until
from streams import STDOUT, Output
from test_states import SlowDaemon

MIB = 1 << 20
ANY_STATE = [state for state in SANDBOX_STATES.values() if state]
DELETED = "READY", "DELETING", "DELETED"
UNTIL_TOLD = "echo up; until test -e told; do sleep 0.01; done"


class OneShot:
    """A one-shot under way, checked: what took effect comes first, then output, then one exit."""

    def __init__(self, client: Client, *argv: str, deadline: float = LIMIT, **request):
        self.call = client.one_shots.Exec(sandbox_exec_pb2.ExecRequest(argv=argv, **request), timeout=deadline)
        self.output = Output()
        self.exit = None
        step = next(self.call)
        assert step.HasField("started")
        self.started = step.started
        self.sandbox_id = step.started.sandbox_id

    def step(self) -> bool:
        for step in self.call:
            assert self.exit is None, "something came after the exit"
            if step.HasField("output"):
                self.output.add(step.output)
            else:
                assert step.HasField("exit")
                self.exit = step.exit
            return True
        return False

    def until(self, text: bytes) -> "OneShot":
        while text not in self.output.data[STDOUT]:
            assert self.step(), f"no {text!r} in {self.output.stdout!r}"
        return self

    def finish(self):
        while self.step():
            pass
        assert self.exit and self.call.code() == grpc.StatusCode.OK
        return self.exit


def run(client: Client, *argv: str, **request) -> OneShot:
    """Runs a command to its end."""
    one_shot = OneShot(client, *argv, **request)
    one_shot.finish()
    return one_shot


def exec_of(client: Client, sandbox_id: str):
    [found] = client.execs.ListExecs(exec_pb2.ListExecsRequest(sandbox_id=sandbox_id), timeout=LIMIT).execs
    return found


def tell(daemon, sandbox_id: str) -> None:
    """Ends UNTIL_TOLD. Not by an exec, which the end of the sandbox might meet."""
    (daemon.sandbox_folder(sandbox_id) / "fs/workspace/told").touch()


def assert_gone(daemon, *sandbox_ids: str) -> None:
    for one in sandbox_ids:
        daemon.wait(one, "DELETED")
        assert not daemon.leftovers(one)


# ---- What comes ----


@pytest.mark.rules("REMOTE-001")
def test_a_command_runs_and_its_sandbox_is_gone(daemon):
    ran = run(daemon, "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (ran.output.stdout, ran.output.stderr) == (b"out\n", b"err\n")
    assert (ran.exit.exit_code, ran.exit.result.exit_code) == (3, 3)
    assert ran.exit.result.end_reason == exec_pb2.EXEC_END_REASON_EXITED
    assert ran.exit.result.stdout.total_bytes == 4 and ran.exit.result.cpu_time.ToNanoseconds() > 0
    assert_gone(daemon, ran.sandbox_id)
    assert daemon.states(ran.sandbox_id) == ["PENDING", *DELETED]
    assert daemon.get(ran.sandbox_id).owner == "uid:0"


@pytest.mark.rules("REMOTE-001")
def test_output_comes_as_it_is_printed(daemon):
    one_shot = OneShot(daemon, "sh", "-c", "echo first; sleep 1000")
    one_shot.until(b"first\n")
    assert state_name(daemon.get(one_shot.sandbox_id)) == "READY"
    one_shot.call.cancel()
    assert_gone(daemon, one_shot.sandbox_id)


def test_what_a_command_gets_is_what_was_asked_for(daemon):
    script = "pwd; echo $A$B; cat; id -u"
    ran = run(daemon, "sh", "-c", script, env={"A": "1", "B": "2"}, working_directory="sub/..x", input=b"in\n")
    assert ran.exit.exit_code == 126  # it is not there
    ran = run(daemon, "sh", "-c", script, env={"A": "1", "B": "2"}, working_directory="/tmp", input=b"in\n")
    assert ran.output.stdout == b"/tmp\n12\nin\n1000\n"
    assert run(daemon, "pwd").output.stdout == b"/workspace\n"
    assert run(daemon, "cat").output.stdout == b""


def test_labels_are_those_of_the_sandbox(daemon):
    ran = run(daemon, "true", labels={"app": "one-shot"})
    sandbox = daemon.get(ran.sandbox_id)
    assert sandbox.spec.labels == {"app": "one-shot"}
    assert sandbox.spec.idle_action == sandbox_pb2.IDLE_ACTION_DELETE


def test_the_largest_input_and_a_large_output_go_through(daemon):
    data = random.randbytes(3 * MIB)
    assert run(daemon, "cat", input=data).output.stdout == data
    ran = run(daemon, "sh", "-c", f"head -c {20 * MIB} /dev/zero")
    assert ran.output.stdout == bytes(20 * MIB)


@pytest.mark.rules("REMOTE-001")
def test_who_does_not_read_stalls_nobody_else(daemon):
    slow = OneShot(daemon, "sh", "-c", f"head -c {30 * MIB} /dev/zero; echo >&2 done")
    state = wait_until(lambda: (found := exec_of(daemon, slow.sandbox_id)).HasField("end_time") and found)
    assert state.stdout_bytes == 30 * MIB  # it did not wait for its reader
    assert run(daemon, "echo", "on").output.stdout == b"on\n"
    assert state_name(daemon.get(slow.sandbox_id)) == "READY"
    slow.finish()
    assert len(slow.output.stdout) == 30 * MIB and slow.output.stderr == b"done\n"
    assert_gone(daemon, slow.sandbox_id)


@pytest.mark.rules("REMOTE-004", "PROF-001")
def test_what_took_effect_is_told_first(daemon):
    limits = sandbox_pb2.ResourceLimits(memory_bytes=4 << 30, max_processes=9)
    one_shot = OneShot(daemon, "sleep", "1000", limits=limits, timeout=seconds(3600))
    effective = one_shot.started.effective
    assert effective.profile == "standard"
    assert (effective.limits.memory_bytes, effective.limits.max_processes) == (256 * MIB, 9)
    assert {clamped.field for clamped in effective.clamped} == {"memory_bytes", "exec_timeout"}
    assert daemon.get(one_shot.sandbox_id).effective == effective
    one_shot.call.cancel()
    assert run(daemon, "true", profile="strict").started.effective.profile == "strict"


# ---- How it ends ----


@pytest.mark.rules("REMOTE-001", "EXEC-003")
def test_ends_are_told_as_those_of_any_exec(daemon):
    ran = run(daemon, "no-such-program")
    assert (ran.exit.exit_code, ran.exit.result.end_reason) == (127, exec_pb2.EXEC_END_REASON_NOT_STARTED)
    assert run(daemon, "/tmp").exit.exit_code == 126
    ran = run(daemon, "sh", "-c", "kill -9 $$")
    assert (ran.exit.exit_code, ran.exit.result.signal) == (137, 9)
    ran = run(daemon, "sleep", "1000", timeout=seconds(0.3))
    assert (ran.exit.exit_code, ran.exit.result.end_reason) == (124, exec_pb2.EXEC_END_REASON_TIMED_OUT)
    hog = "x = bytearray(200 << 20); x[::4096] = b'1' * len(x[::4096]); print(len(x))"
    ran = run(daemon, "python3", "-c", hog, limits=sandbox_pb2.ResourceLimits(memory_bytes=64 * MIB))
    assert ran.exit.result.end_reason == exec_pb2.EXEC_END_REASON_OUT_OF_MEMORY
    wait_until(lambda: not daemon.leftovers(ran.sandbox_id))


@pytest.mark.rules("REMOTE-001")
def test_it_goes_when_the_caller_cancels_or_vanishes(daemon):
    cancelled = OneShot(daemon, "sh", "-c", "echo up; trap '' TERM; sleep 1000").until(b"up\n")
    client = daemon.client()
    vanished = OneShot(client, "sh", "-c", "echo up; sleep 1000").until(b"up\n")
    early = daemon.one_shots.Exec(sandbox_exec_pb2.ExecRequest(argv=["sleep", "1000"]), timeout=LIMIT)
    early.cancel()
    cancelled.call.cancel()
    client.close()
    assert_gone(daemon, cancelled.sandbox_id, vanished.sandbox_id)
    wait_until(lambda: not [one for one in daemon.all() if one.spec.profile == "standard"])


@pytest.mark.rules("DEADLINE-003")
def test_it_goes_when_its_deadline_passes(daemon):
    one_shot = OneShot(daemon, "sleep", "1000", deadline=2 * PATIENCE)  # before which it has to begin
    with pytest.raises(grpc.RpcError) as error:
        one_shot.finish()
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert_gone(daemon, one_shot.sandbox_id)


@pytest.fixture(name="slow")
def start_slow_daemon():
    daemon = SlowDaemon()
    daemon.begin()
    yield daemon
    daemon.gate.unlink(missing_ok=True)
    daemon.broken.unlink(missing_ok=True)
    daemon.finish()


@pytest.mark.rules("REMOTE-001", "LIFE-010")
def test_a_start_that_fails_is_the_sandboxes_error_and_leaves_nothing(slow):
    slow.broken.touch()
    one_shot = OneShot(slow, "true")
    with refused("KEEPER_UNAVAILABLE"):
        one_shot.finish()
    slow.broken.unlink()
    slow.wait(one_shot.sandbox_id, "DELETED")
    assert slow.states(one_shot.sandbox_id) == ["PENDING", "FAILED", "DELETING", "DELETED"]


@pytest.mark.rules("REMOTE-001", "LIFE-003")
def test_what_never_started_has_no_exit_code(slow):
    slow.gate.touch()
    gone, stopped, cancelled = [OneShot(slow, "true") for _ in range(3)]
    gone.call.cancel()
    slow.stop(stopped.sandbox_id)
    with refused("SANDBOX_WRONG_STATE") as error:
        stopped.finish()
    assert error.metadata["state"] == "STOPPING"
    slow.cancel(cancelled.sandbox_id, exec_of(slow, cancelled.sandbox_id).id)
    with refused("CALL_CANCELLED"):
        cancelled.finish()
    slow.gate.unlink()
    assert_gone(slow, gone.sandbox_id, stopped.sandbox_id, cancelled.sandbox_id)


@pytest.mark.rules("REMOTE-001")
def test_what_somebody_else_does_to_it_ends_it(daemon):
    deleted = OneShot(daemon, "sleep", "1000")
    daemon.wait(deleted.sandbox_id, "READY")
    daemon.wait_exec(deleted.sandbox_id, exec_of(daemon, deleted.sandbox_id).id, "RUNNING")
    daemon.delete(deleted.sandbox_id)
    assert deleted.finish().result.end_reason == exec_pb2.EXEC_END_REASON_SANDBOX_DELETED
    cancelled = OneShot(daemon, "sleep", "1000")
    daemon.wait_exec(cancelled.sandbox_id, exec_of(daemon, cancelled.sandbox_id).id, "RUNNING")
    daemon.cancel(cancelled.sandbox_id, exec_of(daemon, cancelled.sandbox_id).id)
    assert cancelled.finish().result.end_reason == exec_pb2.EXEC_END_REASON_CANCELLED
    assert_gone(daemon, deleted.sandbox_id, cancelled.sandbox_id)


# ---- What is refused ----


BAD = {
    "argv": ({"argv": []}, "ARGV_EMPTY", ["argv"]),
    "program": ({"argv": [""]}, "ARGV_EMPTY", ["argv[0]"]),
    "profile": ({"profile": "none-such"}, "PROFILE_UNKNOWN", ["profile"]),
    "directory": ({"working_directory": "a/../b"}, "PATH_DOTDOT", ["working_directory"]),
    "env": ({"env": {"A=": "1"}}, "ENV_NAME_MALFORMED", ["env[A=]"]),
    "limit": ({"limits": {"memory_bytes": 1}}, "LIMIT_TOO_SMALL", ["limits.memory_bytes"]),
    "labels": ({"labels": {"hutch/one-shot": "1"}}, "LABEL_RESERVED", ["labels[hutch/one-shot]"]),
    "input": ({"input": bytes(3 * MIB + 1)}, "FIELD_TOO_LONG", ["input"]),
    "request id": ({"request_id": "a b"}, "REQUEST_ID_MALFORMED", ["request_id"]),
    "timeout": ({"timeout": {"seconds": -1}}, "DURATION_OUT_OF_RANGE", ["timeout"]),
    "all": (
        {"argv": [], "working_directory": "~", "limits": {"cpu_millis": 1}, "labels": {"": ""}},
        "ARGV_EMPTY",
        ["argv", "working_directory", "labels[]", "limits.cpu_millis"],
    ),
}


@pytest.mark.rules("TEXT-003", "ERR-003")
@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_is_refused_before_anything_happens(daemon, name):
    request, reason, fields = BAD[name]
    before = daemon.ids(states=ANY_STATE)
    with refused(reason, *fields):
        next(daemon.one_shots.Exec(sandbox_exec_pb2.ExecRequest(**{"argv": ["true"]} | request), timeout=LIMIT))
    assert daemon.ids(states=ANY_STATE) == before


@pytest.mark.parametrize("request_", [{"image": "debian"}, {"egress": ["example.com"]}], ids=["image", "egress"])
@pytest.mark.rules("ERR-007")
def test_what_the_daemon_has_not_is_refused(daemon, request_):
    with refused("FEATURE_UNSUPPORTED"):
        next(daemon.one_shots.Exec(sandbox_exec_pb2.ExecRequest(argv=["true"], **request_), timeout=LIMIT))


@pytest.mark.rules("LIFE-011")
def test_quotas_hold(start_daemon):
    daemon = start_daemon({"limits": {"sandboxes_per_caller": 1, "execs": 1}})
    sandbox = daemon.create()
    with refused("QUOTA_EXCEEDED") as error:
        OneShot(daemon, "true")
    assert error.metadata["limit"] == "sandboxes_per_caller"
    daemon.remove(sandbox.id)
    assert run(daemon, "true").exit.exit_code == 0
    wait_until(lambda: daemon.ids() == [])

    daemon.write_config({"limits": {"execs": 1}})
    daemon.restart()
    daemon.start(daemon.ready(), "sleep", "1000")
    with refused("QUOTA_EXCEEDED") as error:
        OneShot(daemon, "true")
    assert error.metadata["limit"] == "execs"
    assert len(daemon.ids()) == 1


# ---- Repeated ----


@pytest.mark.rules("REMOTE-005", "IDEM-001", "IDEM-002")
def test_a_repeated_request_never_runs_twice(daemon):
    first = OneShot(daemon, "sh", "-c", "echo up; read line; exit 4", request_id="one:1", input=b"")
    first.until(b"up\n")
    assert first.finish().exit_code == 4
    with refused("REQUEST_ID_REUSED"):
        OneShot(daemon, "sh", "-c", "echo up; read line; exit 4", request_id="one:1", input=b"")

    script = f"{UNTIL_TOLD}; exit 5"
    first = OneShot(daemon, "sh", "-c", script, request_id="one:2").until(b"up\n")
    again = OneShot(daemon, "sh", "-c", script, request_id="one:2")
    with refused("REQUEST_ID_REUSED"):
        OneShot(daemon, "true", request_id="one:2")
    first.call.cancel()  # the other one holds it
    assert state_name(daemon.get(first.sandbox_id)) == "READY"
    tell(daemon, first.sandbox_id)
    assert (again.sandbox_id, again.finish().exit_code) == (first.sandbox_id, 5)
    assert again.output.stdout == b"up\n"
    assert_gone(daemon, first.sandbox_id)


# ---- Restarts ----


@pytest.mark.rules("REMOTE-001", "REMOTE-005", "LIFE-009")
@pytest.mark.parametrize("kill", [True, False], ids=["crash", "stop"])
def test_after_a_restart_it_is_found_again_or_removed(own_daemon, kill):
    daemon = own_daemon
    script = f"{UNTIL_TOLD}; echo on"
    left = OneShot(daemon, "sh", "-c", script).until(b"up\n")
    asked = OneShot(daemon, "sh", "-c", script, request_id="one:1").until(b"up\n")
    daemon.restart(kill=kill)
    again = OneShot(daemon, "sh", "-c", script, request_id="one:1")
    tell(daemon, left.sandbox_id)
    tell(daemon, asked.sandbox_id)
    again.finish()
    assert (again.sandbox_id, again.output.stdout, again.exit.exit_code) == (asked.sandbox_id, b"up\non\n", 0)
    assert_gone(daemon, asked.sandbox_id, left.sandbox_id)


# ---- Many ----


@pytest.mark.rules("REMOTE-001")
def test_two_hundred_at_once(own_daemon):
    errors, ids = [], []

    def one(number: int) -> None:
        try:
            with_client = own_daemon if number % 2 else other
            ran = run(with_client, "sh", "-c", f"echo {number}; exit {number % 100}", deadline=4 * LIMIT)
            assert (ran.output.stdout, ran.exit.exit_code) == (f"{number}\n".encode(), number % 100)
            ids.append(ran.sandbox_id)
        except Exception as error:  # pylint: disable=broad-exception-caught
            errors.append(error)

    other = own_daemon.client()
    threads = [threading.Thread(target=one, args=(number,)) for number in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]
    assert len(set(ids)) == 200
    wait_until(lambda: not own_daemon.ids() and not own_daemon.leftovers())


# ---- Whose they are ----


@pytest.mark.rules("AUTH-005")
def test_a_one_shot_is_its_callers(start_daemon):
    daemon = start_daemon({"socket_group": "users"})
    daemon.folder.chmod(0o755)
    one, other = [daemon.client(uid=uid, gid=grp.getgrnam("users").gr_gid) for uid in (4242, 4243)]
    one_shot = OneShot(one, "sleep", "1000", request_id="one:1")
    assert one.get(one_shot.sandbox_id).owner == "uid:4242"
    with refused("SANDBOX_NOT_FOUND"):
        other.get(one_shot.sandbox_id)
    again = OneShot(other, "sleep", "1000", request_id="one:1")
    assert again.sandbox_id != one_shot.sandbox_id
    one_shot.call.cancel()
    again.call.cancel()
    assert_gone(daemon, one_shot.sandbox_id, again.sandbox_id)
