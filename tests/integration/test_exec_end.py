# SPDX-License-Identifier: Apache-2.0
"""How commands are ended: timeouts, cancels, graces, whole trees, pipes that are held; and what races with it."""

import os
import random
import signal
import threading
import time

import pytest
from hutch.v1 import exec_pb2
from host import PATIENCE
from hutchd import processes_of, seconds, state_name, wait_until
from streams import attach, read_output, run_to_end

TERM_IGNORED = "trap '' TERM; echo ready; while :; do sleep 1000; done"

# Each leaves a process that a kill of the main process, its group or its session does not reach.
TREES = {
    "children": "sleep 1000 & sleep 1000 & echo ready; wait",
    "another session": "setsid sleep 1000 & echo ready; wait",
    "a double fork": "(setsid sh -c 'sleep 1000 & sleep 1000' &) ; echo ready; sleep 1000",
    "children that ignore TERM": "setsid sh -c \"trap '' TERM HUP; sleep 1000 & sleep 1000\" & echo ready; sleep 1000",
    "one that stopped itself": "sh -c 'kill -STOP $$' & echo ready; sleep 1000",
    "one that closed all": "setsid sleep 1000 <&- >&- 2>&- & echo ready; sleep 1000",
    "many": "for i in 1 2 3 4 5 6 7 8; do (sleep 1000 & (sleep 1000 & sleep 1000) &) ; done; echo ready; sleep 1000",
}


def end_reason(made) -> str:
    return exec_pb2.ExecEndReason.Name(made.result.end_reason).removeprefix("EXEC_END_REASON_")


def start_ready(daemon, sandbox_id: str, script: str, **spec) -> str:
    """Starts a script and waits until it says that it is ready."""
    made = daemon.start(sandbox_id, "sh", "-c", script, **spec)
    wait_until(lambda: daemon.get_exec(sandbox_id, made.id).stdout_bytes >= len("ready\n"))
    return made.id


def count_processes(daemon, sandbox_id: str) -> int:
    """The processes of a sandbox beside its PID 1."""
    return len(daemon.processes(sandbox_id)) - 1


def assert_nothing_runs(daemon, sandbox_id: str) -> None:
    wait_until(lambda: count_processes(daemon, sandbox_id) == 0, what="processes are left")


# ---- Timeouts ----


@pytest.mark.rules("EXEC-003", "DEADLINE-004")
def test_a_timeout_ends_an_exec_with_124(daemon, sandbox):
    begin = time.monotonic()
    ended, _ = run_to_end(daemon, sandbox, "sleep", "1000", timeout=seconds(0.3))
    assert 0.3 <= time.monotonic() - begin < 5 * PATIENCE
    assert (state_name(ended), ended.result.exit_code, end_reason(ended)) == ("TIMED_OUT", 124, "TIMED_OUT")
    assert not ended.HasField("cancel_time")
    assert_nothing_runs(daemon, sandbox)


@pytest.mark.rules("EXEC-004", "DEADLINE-004")
def test_a_timeout_kills_the_whole_tree(daemon, sandbox):
    """All at once, as each needs time to grow."""
    times = {"timeout": seconds(2 * PATIENCE), "kill_grace": seconds(0.1)}
    made = {name: daemon.start(sandbox, "sh", "-c", script, **times).id for name, script in TREES.items()}
    for name, one in made.items():
        output, ended = read_output(daemon, sandbox, one, follow=True)
        assert (state_name(ended), ended.result.exit_code, output.stdout) == ("TIMED_OUT", 124, b"ready\n"), name
    assert_nothing_runs(daemon, sandbox)


@pytest.mark.rules("DEADLINE-004")
def test_a_timeout_counts_from_the_start_of_the_process_and_needs_nobody(daemon, sandbox):
    made = daemon.start(sandbox, "sleep", "1000", timeout=seconds(0.3))
    ended = daemon.wait_exec(sandbox, made.id)
    took = ended.end_time.ToNanoseconds() - ended.start_time.ToNanoseconds()
    assert 0.29e9 <= took < 5e9 * PATIENCE  # by the calendar, which may be set right meanwhile


def test_what_ends_before_its_timeout_is_not_touched(daemon, sandbox):
    ended, _ = run_to_end(daemon, sandbox, "sleep", "0.05", timeout=seconds(100))
    assert (state_name(ended), ended.result.exit_code) == ("EXITED", 0)


@pytest.mark.rules("EXEC-004")
def test_a_timeout_waits_for_its_grace(daemon, sandbox):
    begin = time.monotonic()
    times = {"timeout": seconds(2 * PATIENCE), "kill_grace": seconds(0.5)}  # TERM is ignored by then
    ended, output = run_to_end(daemon, sandbox, "sh", "-c", TERM_IGNORED, **times)
    assert output.stdout == b"ready\n"
    assert time.monotonic() - begin >= 2 * PATIENCE + 0.5
    assert (state_name(ended), ended.result.exit_code) == ("TIMED_OUT", 124)


# ---- Cancel ----


@pytest.mark.rules("EXEC-004")
@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("grace", [0, 0.1])
def test_a_cancel_kills_the_whole_tree(daemon, sandbox, name, grace):
    made = start_ready(daemon, sandbox, TREES[name])
    assert count_processes(daemon, sandbox) >= 2
    accepted = daemon.cancel(sandbox, made, grace=grace)
    assert accepted.HasField("cancel_time")
    ended = daemon.wait_exec(sandbox, made)
    assert (state_name(ended), end_reason(ended)) == ("CANCELLED", "CANCELLED")
    assert ended.result.exit_code == 128 + ended.result.signal
    assert_nothing_runs(daemon, sandbox)


@pytest.mark.rules("EXEC-004")
def test_a_cancel_sends_TERM_first(daemon, sandbox):  # pylint: disable=invalid-name
    made = start_ready(daemon, sandbox, "sleep 1000 & trap 'echo bye; kill $!; exit 3' TERM; echo ready; wait")
    daemon.cancel(sandbox, made)
    ended = daemon.wait_exec(sandbox, made)
    assert (state_name(ended), ended.result.exit_code, ended.result.signal) == ("CANCELLED", 3, 0)
    assert read_output(daemon, sandbox, made)[0].stdout == b"ready\nbye\n"
    assert_nothing_runs(daemon, sandbox)


@pytest.mark.rules("EXEC-004")
def test_a_cancel_sends_TERM_to_all(daemon, sandbox):  # pylint: disable=invalid-name
    script = "setsid sh -c \"trap 'echo child; exit' TERM; echo ready; sleep 1000 & wait\" & wait $!; wait"
    made = start_ready(daemon, sandbox, script)
    daemon.cancel(sandbox, made, grace=600)
    daemon.wait_exec(sandbox, made)
    assert b"child" in read_output(daemon, sandbox, made)[0].stdout
    assert_nothing_runs(daemon, sandbox)


def test_a_plain_process_ends_by_the_TERM_of_a_cancel(daemon, sandbox):  # pylint: disable=invalid-name
    made = daemon.start(sandbox, "sleep", "1000")
    daemon.wait_exec(sandbox, made.id, "RUNNING")
    daemon.cancel(sandbox, made.id)
    ended = daemon.wait_exec(sandbox, made.id)
    assert (state_name(ended), ended.result.signal, ended.result.exit_code) == ("CANCELLED", 15, 143)


@pytest.mark.rules("EXEC-004")
def test_KILL_comes_when_the_grace_is_over(daemon, sandbox):  # pylint: disable=invalid-name
    made = start_ready(daemon, sandbox, TERM_IGNORED, kill_grace=seconds(0.4))
    begin = time.monotonic()
    assert state_name(daemon.cancel(sandbox, made)) == "RUNNING"
    ended = daemon.wait_exec(sandbox, made)
    assert 0.4 <= time.monotonic() - begin < 5 * PATIENCE
    assert (state_name(ended), ended.result.signal, ended.result.exit_code) == ("CANCELLED", 9, 137)


def test_a_grace_of_0_kills_at_once(daemon, sandbox):
    made = start_ready(daemon, sandbox, TERM_IGNORED, kill_grace=seconds(100))
    begin = time.monotonic()
    daemon.cancel(sandbox, made, grace=0)
    assert daemon.wait_exec(sandbox, made).result.signal == 9
    assert time.monotonic() - begin < 5 * PATIENCE


@pytest.mark.rules("IDEM-004")
def test_a_second_cancel_changes_nothing(daemon, sandbox):
    made = start_ready(daemon, sandbox, TERM_IGNORED)
    first = daemon.cancel(sandbox, made, grace=100)
    assert daemon.cancel(sandbox, made, grace=0).cancel_time == first.cancel_time
    time.sleep(0.1)
    assert state_name(daemon.get_exec(sandbox, made)) == "RUNNING"
    daemon.run(sandbox, "kill", "-9", "-1")
    assert state_name(daemon.wait_exec(sandbox, made)) == "CANCELLED"


@pytest.mark.rules("EXEC-004")
def test_a_cancel_reaches_a_stopped_process(daemon, sandbox):
    made = start_ready(daemon, sandbox, "echo ready; kill -STOP $$; sleep 1000")
    daemon.cancel(sandbox, made, grace=0.2)
    assert state_name(daemon.wait_exec(sandbox, made)) == "CANCELLED"
    assert_nothing_runs(daemon, sandbox)


def test_a_cancel_reaches_a_paused_sandbox(daemon, sandbox):
    made = start_ready(daemon, sandbox, "echo ready; sleep 1000 & sleep 1000")
    daemon.pause(sandbox)
    daemon.wait(sandbox, "PAUSED")
    daemon.cancel(sandbox, made, grace=0.1)
    assert state_name(daemon.wait_exec(sandbox, made)) == "CANCELLED"
    assert state_name(daemon.get(sandbox)) == "PAUSED"
    daemon.unpause(sandbox)
    daemon.wait(sandbox, "READY")
    assert_nothing_runs(daemon, sandbox)


def test_a_cancel_of_one_exec_leaves_the_others(daemon, sandbox):
    kept = start_ready(daemon, sandbox, "echo ready; sleep 1000")
    gone = start_ready(daemon, sandbox, "echo ready; sleep 1000")
    daemon.cancel(sandbox, gone, grace=0)
    daemon.wait_exec(sandbox, gone)
    assert state_name(daemon.get_exec(sandbox, kept)) == "RUNNING"
    daemon.cancel(sandbox, kept, grace=0)


@pytest.mark.rules("EXEC-004")
def test_an_exec_that_forks_all_the_time_is_killed(daemon, sandbox):
    forks = "while :; do (sleep 0.01 &); done"
    made = start_ready(daemon, sandbox, f"echo ready; f() {{ {forks}; }}; f & f & setsid sh -c '{forks}' & wait")
    daemon.cancel(sandbox, made, grace=0)
    assert state_name(daemon.wait_exec(sandbox, made)) == "CANCELLED"
    assert_nothing_runs(daemon, sandbox)


# ---- What is left running ----


@pytest.mark.rules("EXEC-005")
def test_an_exec_ends_with_its_main_process_and_leaves_the_others(daemon, sandbox):
    times = []
    for _ in range(5):
        begin = time.monotonic()
        ended, output = run_to_end(daemon, sandbox, "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo done")
        times.append(time.monotonic() - begin)
        assert (state_name(ended), output.stdout) == ("EXITED", b"done\n")
    assert min(times) < 0.9  # a pause of the host's makes it later, but not each time
    assert count_processes(daemon, sandbox) == 5


@pytest.mark.rules("EXEC-005")
def test_a_held_pipe_does_not_hang_an_exec(daemon, sandbox):
    times = []
    for _ in range(3):
        begin = time.monotonic()
        ended, output = run_to_end(daemon, sandbox, "sh", "-c", "sleep 1000 & echo done")
        times.append(time.monotonic() - begin)
        assert (state_name(ended), ended.result.exit_code, output.stdout) == ("EXITED", 0, b"done\n")
    assert 0.5 < min(times) < 3
    assert count_processes(daemon, sandbox) == 3


@pytest.mark.rules("EXEC-005")
def test_output_after_the_end_is_collected_for_a_second(daemon, sandbox):
    script = "(sleep 0.3; echo soon; while [ ! -e go ]; do sleep 0.1; done; echo late) & echo first"
    for _ in range(3):  # where the host pauses, the second may be over too soon
        ended, output = run_to_end(daemon, sandbox, "sh", "-c", script)
        assert ended.result.stdout.total_bytes == len(output.stdout)
        if output.stdout != b"first\n":
            break
    daemon.shell(sandbox, "touch go")
    assert_nothing_runs(daemon, sandbox)
    assert read_output(daemon, sandbox, ended.id)[0].stdout == b"first\nsoon\n"


@pytest.mark.rules("EXEC-005")
def test_what_was_left_running_is_not_killed_by_a_broken_pipe_soon(daemon, sandbox):
    """The left one may write on, and the sandbox's end is its end."""
    daemon.run(sandbox, "sh", "-c", "(while sleep 0.1; do date +%s%N > alive || exit; done) & exit 0")
    first = wait_until(lambda: daemon.run(sandbox, "cat", "alive").stdout)
    wait_until(lambda: daemon.run(sandbox, "cat", "alive").stdout not in (b"", first))
    daemon.stop(sandbox, grace=0)
    daemon.wait(sandbox, "STOPPED")
    assert daemon.processes(sandbox) == []


@pytest.mark.rules("EXEC-005")
def test_a_held_pipe_that_is_written_to_without_end_does_not_hang_an_exec(daemon, sandbox):
    ended, _ = run_to_end(daemon, sandbox, "sh", "-c", "yes & echo done", output_limit_bytes=1000)
    assert state_name(ended) == "EXITED"
    assert len(read_output(daemon, sandbox, ended.id)[0].stdout) == 1000
    assert ended.end_time.ToNanoseconds() - ended.start_time.ToNanoseconds() < 5e9 * PATIENCE


@pytest.mark.rules("EXEC-005")
def test_a_cancel_after_the_end_kills_nothing(daemon, sandbox):
    made = start_ready(daemon, sandbox, "echo ready; sleep 1000 > /dev/null 2>&1 &")
    daemon.wait_exec(sandbox, made)
    assert state_name(daemon.cancel(sandbox, made, grace=0)) == "EXITED"
    time.sleep(0.1)
    assert count_processes(daemon, sandbox) == 1


# ---- The sandbox ends ----


@pytest.mark.rules("EXEC-004")
@pytest.mark.parametrize("how, reason", [("stop", "SANDBOX_STOPPED"), ("delete", "SANDBOX_DELETED")])
def test_the_end_of_a_sandbox_ends_its_execs(daemon, how, reason):
    sandbox = daemon.ready()
    made = start_ready(daemon, sandbox, TREES["another session"])
    following = attach(daemon, sandbox, made)
    if how == "stop":
        daemon.stop(sandbox, grace=0.2)
    else:
        daemon.delete(sandbox)
    ended = following.finish()
    assert (state_name(ended), end_reason(ended)) == ("CANCELLED", reason)
    assert following.output.stdout == b"ready\n"
    assert daemon.get_exec(sandbox, made) == ended
    if how == "stop":
        assert read_output(daemon, sandbox, made)[0].stdout == b"ready\n"
    daemon.remove(sandbox)


@pytest.mark.rules("EXEC-004")
def test_a_stop_sends_TERM_and_waits(daemon, sandbox):  # pylint: disable=invalid-name
    made = start_ready(daemon, sandbox, "sleep 1000 & trap 'echo bye; exit 0' TERM; echo ready; wait")
    daemon.stop(sandbox, grace=600)
    daemon.wait(sandbox, "STOPPED")
    assert read_output(daemon, sandbox, made)[0].stdout == b"ready\nbye\n"


def test_a_killed_keeper_ends_its_execs(daemon):
    sandbox = daemon.ready()
    made = start_ready(daemon, sandbox, TREES["another session"])
    following = attach(daemon, sandbox, made)
    os.kill(daemon.keeper(sandbox), signal.SIGKILL)
    ended = following.finish()
    assert (state_name(ended), end_reason(ended)) == ("CANCELLED", "SANDBOX_FAILED")
    assert following.output.stdout == b"ready\n"
    daemon.wait(sandbox, "FAILED")
    assert read_output(daemon, sandbox, made)[0].stdout == b"ready\n"
    daemon.remove(sandbox)


# ---- Races ----


@pytest.mark.rules("EXEC-006")
def test_a_process_that_ended_before_the_kill_reached_it_has_exited(daemon, sandbox):
    """A keeper that stands still lets a process end, and then has to kill it."""
    made = start_ready(daemon, sandbox, "echo ready; while [ ! -e go ]; do sleep 0.01; done; exit 7")
    workspace = daemon.sandbox_folder(sandbox) / "fs/workspace"
    keeper = daemon.keeper(sandbox)
    os.kill(keeper, signal.SIGSTOP)
    (workspace / "go").touch()
    assert_nothing_runs(daemon, sandbox)
    assert daemon.cancel(sandbox, made, grace=0).HasField("cancel_time")
    os.kill(keeper, signal.SIGCONT)
    ended = daemon.wait_exec(sandbox, made)
    assert (state_name(ended), ended.result.exit_code, end_reason(ended)) == ("EXITED", 7, "EXITED")


@pytest.mark.rules("EXEC-006")
def test_what_happened_wins_over_what_was_asked(daemon, sandbox):
    """Cancels that race with the end: the exec is EXITED with its own code, or CANCELLED."""
    seen = set()
    for _ in range(60):
        made = daemon.start(sandbox, "sh", "-c", "sleep 0.01; exit 7")
        time.sleep(random.uniform(0, 0.03))
        daemon.cancel(sandbox, made.id, grace=random.choice([0, 0.05]))
        ended = daemon.wait_exec(sandbox, made.id)
        seen.add(state_name(ended))
        if state_name(ended) == "EXITED":
            assert (ended.result.exit_code, end_reason(ended)) == (7, "EXITED")
        else:
            assert (state_name(ended), end_reason(ended)) == ("CANCELLED", "CANCELLED")
            assert not ended.result.HasField("exit_code") or ended.result.exit_code in (7, 128 + ended.result.signal)
    assert seen <= {"EXITED", "CANCELLED"}
    assert_nothing_runs(daemon, sandbox)


@pytest.mark.rules("EXEC-006")
def test_timeouts_that_race_with_the_end(daemon, sandbox):
    for _ in range(40):
        timeout = seconds(random.uniform(0.005, 0.03))
        ended, _ = run_to_end(daemon, sandbox, "sh", "-c", "sleep 0.01; exit 7", timeout=timeout)
        assert (state_name(ended), ended.result.exit_code) in [("EXITED", 7), ("TIMED_OUT", 124)]
    assert_nothing_runs(daemon, sandbox)


def test_a_cancel_races_with_a_timeout(daemon, sandbox):
    for _ in range(30):
        made = daemon.start(sandbox, "sleep", "1000", timeout=seconds(0.03))
        time.sleep(random.uniform(0.02, 0.04))
        daemon.cancel(sandbox, made.id)
        ended = daemon.wait_exec(sandbox, made.id)
        assert state_name(ended) in ("CANCELLED", "TIMED_OUT")
        assert (state_name(ended) == "TIMED_OUT") == (ended.result.exit_code == 124)
    assert_nothing_runs(daemon, sandbox)


def test_cancels_at_once_by_many(daemon, sandbox):
    made = start_ready(daemon, sandbox, TREES["many"])
    threads = [threading.Thread(target=daemon.cancel, args=(sandbox, made, 0)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state_name(daemon.wait_exec(sandbox, made)) == "CANCELLED"


def test_a_cancel_right_after_the_create_leaves_nothing(daemon, sandbox):
    made = [daemon.start(sandbox, "sh", "-c", "sleep 1000 & sleep 1000").id for _ in range(30)]
    for one in made:
        daemon.cancel(sandbox, one, grace=0)
    for one in made:
        ended = daemon.wait_exec(sandbox, one)
        assert (state_name(ended), end_reason(ended)) == ("CANCELLED", "CANCELLED")
    assert_nothing_runs(daemon, sandbox)


def test_execs_that_race_with_a_stop_or_delete_all_end(daemon):
    for how in (daemon.stop, daemon.delete):
        sandbox = daemon.ready()
        made = [daemon.start(sandbox, "sh", "-c", "sleep 1000 & sleep 1000").id for _ in range(10)]
        time.sleep(random.uniform(0, 0.02))
        how(sandbox)
        for one in made:
            assert state_name(daemon.wait_exec(sandbox, one)) == "CANCELLED"
        daemon.remove(sandbox)
        assert daemon.leftovers(sandbox) == []


# ---- Many at once ----


def test_50_execs_run_in_one_sandbox_at_once(daemon, sandbox):
    script = "echo begin $0; read line < gate; echo end $0; exit $0"
    daemon.shell(sandbox, "mkfifo gate")
    made = [daemon.start(sandbox, "sh", "-c", script, str(i), output_limit_bytes=1000).id for i in range(50)]
    for one in made:
        wait_until(lambda one=one: daemon.get_exec(sandbox, one).stdout_bytes > 0)
    assert count_processes(daemon, sandbox) == 50
    assert all(state_name(daemon.get_exec(sandbox, one)) == "RUNNING" for one in made)
    lines = "exec 3<> gate; i=0; while [ $i -lt 50 ]; do echo x; i=$((i+1)); done >&3; sleep 1000"
    opener = daemon.start(sandbox, "sh", "-c", lines)
    for i, one in enumerate(made):
        ended = daemon.wait_exec(sandbox, one)
        assert (state_name(ended), ended.result.exit_code) == ("EXITED", i)
        assert read_output(daemon, sandbox, one)[0].stdout == f"begin {i}\nend {i}\n".encode()
    daemon.cancel(sandbox, opener.id, grace=0)
    assert_nothing_runs(daemon, sandbox)


def test_the_cgroup_of_an_exec_goes_with_it(daemon, sandbox):
    for _ in range(10):
        daemon.run(sandbox, "true")
    cgroup = daemon.cgroup(sandbox) / "box"
    wait_until(lambda: not list(cgroup.glob("exec-*")))
    assert len(processes_of(cgroup)) == 1
