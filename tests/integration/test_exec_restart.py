# SPDX-License-Identifier: Apache-2.0
"""Execs and the daemon's end: they run on, and their output and end are there afterwards."""

import random
import threading
import time

import grpc
import pytest
from host import PATIENCE
from hutch.v1 import exec_pb2
from hutchd import LIMIT, refused, seconds, state_name, wait_until
from streams import PIPED, attach, create_attached, open_output, read_output

KILL = pytest.mark.parametrize("kill", [True, False], ids=["killed", "asked to end"])


def end(daemon, kill: bool) -> None:
    if kill:
        daemon.kill()
    else:
        daemon.stop_daemon()


@pytest.mark.rules("EXEC-012")
@KILL
def test_an_exec_runs_on_without_the_daemon(own_daemon, kill):
    daemon = own_daemon
    sandbox = daemon.ready()
    script = "echo before; while [ ! -e go ]; do sleep 0.02; done; echo after; echo err >&2; exit 7"
    made = daemon.start(sandbox, "sh", "-c", script)
    wait_until(lambda: daemon.get_exec(sandbox, made.id).stdout_bytes)
    daemon.restart(kill=kill)
    again = daemon.get_exec(sandbox, made.id)
    assert (state_name(again), again.spec, again.create_time) == ("RUNNING", made.spec, made.create_time)
    with attach(daemon, sandbox, made.id) as attached:
        daemon.shell(sandbox, "touch go")
        ended = attached.finish()
    assert (state_name(ended), ended.result.exit_code) == ("EXITED", 7)
    assert (attached.output.stdout, attached.output.stderr) == (b"before\nafter\n", b"err\n")


@pytest.mark.rules("EXEC-012")
@KILL
def test_an_exec_that_ends_without_the_daemon_is_told_afterwards(own_daemon, kill):
    daemon = own_daemon
    sandbox = daemon.ready()
    later = seconds(2 * PATIENCE)
    script = "while [ ! -e go ]; do sleep 0.02; done; seq 50000; exit 9"
    stubborn = "trap '' TERM; echo; while :; do sleep 1; done"
    made = {
        "EXITED": daemon.start(sandbox, "sh", "-c", script).id,
        "TIMED_OUT": daemon.start(sandbox, "sleep", "1000", timeout=later).id,
        "CANCELLED": daemon.start(sandbox, "sh", "-c", stubborn, kill_grace=later).id,
    }
    for one in made.values():  # of their starts the daemon hears in any order
        wait_until(lambda one=one: daemon.get_exec(sandbox, one).HasField("start_time"))
    wait_until(lambda: daemon.get_exec(sandbox, made["CANCELLED"]).stdout_bytes)
    daemon.cancel(sandbox, made["CANCELLED"])
    watch = daemon.watch()
    cursor = watch.cursor
    watch.close()
    end(daemon, kill)
    went = time.time_ns()
    (daemon.sandbox_folder(sandbox) / "fs/workspace/go").touch()
    wait_until(lambda: len(daemon.processes(sandbox)) == 1)
    time.sleep(2)  # for the keeper to see that
    came = time.time_ns()
    daemon.begin()
    for state, one in made.items():
        ended = daemon.wait_exec(sandbox, one)
        assert state_name(ended) == state
        assert went < ended.end_time.ToNanoseconds() < came
    assert daemon.get_exec(sandbox, made["EXITED"]).result.exit_code == 9
    expected = "".join(f"{i}\n" for i in range(1, 50001)).encode()
    assert read_output(daemon, sandbox, made["EXITED"])[0].stdout == expected
    watch = daemon.watch(after_cursor=cursor)
    told = {watch.next().exec_state.exec_id for _ in range(3)}
    assert told == set(made.values())


@pytest.mark.rules("EXEC-012")
def test_what_had_ended_stays_as_it_was(own_daemon):
    daemon = own_daemon
    sandbox = daemon.ready()
    before = [
        daemon.run(sandbox, *argv, env={"A": "1"}).exec
        for argv in (["sh", "-c", "echo out; exit 3"], ["missing-program"], ["true"])
    ]
    for kill in (True, False):
        daemon.restart(kill=kill)
        listed = daemon.execs.ListExecs(exec_pb2.ListExecsRequest(sandbox_id=sandbox), timeout=LIMIT).execs
        assert list(listed) == before
        assert read_output(daemon, sandbox, before[0].id)[0].stdout == b"out\n"


def test_request_ids_and_ids_are_remembered(own_daemon):
    daemon = own_daemon
    sandbox = daemon.ready()
    made = daemon.start(sandbox, "sh", "-c", "echo x >> count", request_id="r:1", exec_id="one-of-mine")
    spec = exec_pb2.ExecSpec(argv=["sh", "-c", "echo x >> count; cat count"])
    run = exec_pb2.RunCommandRequest(sandbox_id=sandbox, request_id="r:2", spec=spec)
    daemon.wait_exec(sandbox, made.id)
    ran = daemon.execs.RunCommand(run, timeout=LIMIT)
    daemon.restart(kill=True)
    again = daemon.start(sandbox, "sh", "-c", "echo x >> count", request_id="r:1", exec_id="one-of-mine")
    assert state_name(again) == "EXITED"
    with refused("REQUEST_ID_REUSED"):
        daemon.start(sandbox, "true", request_id="r:1")
    with refused("ID_TAKEN"):
        daemon.start(sandbox, "true", exec_id="one-of-mine")
    assert daemon.execs.RunCommand(run, timeout=LIMIT) == ran
    assert daemon.shell(sandbox, "wc -l < count").strip() == "2"


def test_input_goes_on_after_a_restart(own_daemon):
    """Also what comes before the daemon has found the keeper again."""
    daemon = own_daemon
    sandbox = daemon.ready()
    for _ in range(8):
        attached = create_attached(daemon, sandbox, "cat", stdin=PIPED)
        attached.write(b"before\n")
        attached.until(b"before\n")
        attached.half_close()
        daemon.restart(kill=True)
        with attach(daemon, sandbox, attached.exec.id, stdout_offset=7) as again:
            again.write(b"after\n")
            again.close_stdin()
            assert again.finish().result.exit_code == 0
        assert again.output.stdout == b"after\n"


def test_signals_go_on_after_a_restart(own_daemon):
    daemon = own_daemon
    sandbox = daemon.ready()
    for _ in range(5):
        made = daemon.start(sandbox, "sleep", "1000").id
        daemon.wait_exec(sandbox, made, "RUNNING")
        daemon.restart(kill=True)
        with attach(daemon, sandbox, made) as attached:
            attached.send(signal=2)
            assert attached.finish().result.signal == 2


def test_a_terminal_goes_on_after_a_restart(own_daemon):
    daemon = own_daemon
    sandbox = daemon.ready()
    size = exec_pb2.TerminalSize(rows=10, columns=20)
    script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done"
    made = daemon.start(sandbox, "sh", "-c", script, stdin=PIPED, terminal=size)
    wait_until(lambda: daemon.get_exec(sandbox, made.id).stdout_bytes)
    daemon.restart(kill=True)
    with attach(daemon, sandbox, made.id) as attached:
        attached.resize(30, 40)
        attached.until(b"30 40")
        attached.send(signal=9)
        assert attached.finish().result.signal == 9


def test_a_cancel_that_was_accepted_is_done_after_a_restart(own_daemon):
    daemon = own_daemon
    sandbox = daemon.ready()
    made = [daemon.start(sandbox, "sh", "-c", "setsid sleep 1000 & sleep 1000").id for _ in range(10)]
    for one in made:
        daemon.cancel(sandbox, one, grace=0)
    daemon.restart(kill=True)
    for one in made:
        assert state_name(daemon.wait_exec(sandbox, one)) == "CANCELLED"
    wait_until(lambda: len(daemon.processes(sandbox)) == 1)


def test_execs_that_were_accepted_are_started_once_after_a_restart(own_daemon):
    daemon = own_daemon
    sandbox = daemon.create().id
    made = [daemon.start(sandbox, "sh", "-c", "echo $0 >> ran", str(i)).id for i in range(20)]
    daemon.restart(kill=True)
    for one in made:
        assert state_name(daemon.wait_exec(sandbox, one)) == "EXITED"
    assert sorted(map(int, daemon.shell(sandbox, "cat ran").split())) == list(range(20))


@pytest.mark.rules("IDEM-001")
def test_a_run_that_is_repeated_after_a_restart_gets_its_answer(own_daemon):
    daemon = own_daemon
    sandbox = daemon.ready()
    spec = exec_pb2.ExecSpec(argv=["sh", "-c", "echo x >> count; while [ ! -e go ]; do sleep 0.02; done; cat count"])
    request = exec_pb2.RunCommandRequest(sandbox_id=sandbox, spec=spec, request_id="r:1")
    call = daemon.execs.RunCommand.future(request, timeout=LIMIT)
    workspace = daemon.sandbox_folder(sandbox) / "fs/workspace"
    wait_until((workspace / "count").exists)
    daemon.kill()
    with pytest.raises(grpc.RpcError):
        call.result()
    daemon.begin()
    (workspace / "go").touch()
    answer = daemon.execs.RunCommand(request, timeout=LIMIT)
    assert (answer.exec.result.exit_code, answer.stdout) == (0, b"x\n")


@pytest.mark.rules("EXEC-015")
@pytest.mark.parametrize("kill", [True, False], ids=["crash", "stop"])
def test_a_bound_exec_can_be_attached_to_again_after_a_restart(own_daemon, kill):
    daemon = own_daemon
    sandbox = daemon.ready()
    attached = create_attached(daemon, sandbox, "cat", stdin=PIPED, bound=True)
    attached.write(b"one\n")
    attached.until(b"one\n")
    daemon.restart(kill=kill)
    with attach(daemon, sandbox, attached.exec.id, stdout_offset=4) as again:
        again.write(b"two\n")
        again.until(b"two\n")
    assert state_name(daemon.wait_exec(sandbox, attached.exec.id)) == "CANCELLED"


@pytest.mark.rules("OUT-001")
def test_a_reader_goes_on_from_its_offset_across_restarts(own_daemon):
    daemon = own_daemon
    sandbox = daemon.ready()
    script = "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); [ $((i%20)) = 0 ] && sleep 0.01; done"
    made = daemon.start(sandbox, "sh", "-c", script).id
    got = bytearray()
    ended = None
    for _ in range(4):
        timer = threading.Timer(random.uniform(0.1, 0.3), daemon.process.kill)
        timer.start()
        try:
            for step in open_output(daemon, sandbox, made, follow=True, stdout_offset=len(got)):
                if step.HasField("exec"):
                    ended = step.exec
                else:
                    assert step.output.offset == len(got)
                    got += step.output.data
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE
        timer.join()
        daemon.ended()
        daemon.begin()
        if ended:
            break
    rest, ended = read_output(daemon, sandbox, made, follow=True, stdout_offset=len(got))
    assert got + rest.stdout == "".join(f"line {i}\n" for i in range(2000)).encode()
    assert ended.result.exit_code == 0


@pytest.mark.rules("EXEC-012")
def test_execs_under_load_survive_kills_at_random_moments(own_daemon):
    """Every exec whose create was answered runs exactly once and has its output and exit code."""
    daemon = own_daemon
    sandbox = daemon.ready()
    accepted: dict[str, int] = {}
    for round_number in range(5):
        timer = threading.Timer(random.uniform(0.02, 0.15), daemon.process.kill)
        timer.start()
        for i in range(1000):
            number = round_number * 1000 + i
            try:
                made = daemon.start(sandbox, "sh", "-c", f"echo {number} >> ran; echo {number}; exit {number % 200}")
                accepted[made.id] = number
            except grpc.RpcError:
                break
            if len(accepted) > 40 * (round_number + 1):
                break
        timer.join()
        daemon.ended()
        daemon.begin()
    for one, number in accepted.items():
        ended = daemon.wait_exec(sandbox, one)
        assert (state_name(ended), ended.result.exit_code) == ("EXITED", number % 200)
        assert read_output(daemon, sandbox, one)[0].stdout == b"%d\n" % number
    ran = list(map(int, daemon.shell(sandbox, "cat ran").split()))
    assert len(set(ran)) == len(ran), "something ran twice"
    assert set(accepted.values()) <= set(ran)
