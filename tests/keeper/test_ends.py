# SPDX-License-Identifier: Apache-2.0
"""Ends that somebody asked for: cancel, timeout, pause, shutdown; and those that nobody did."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from host import PATIENCE
from keeper import LIMIT, PROGRAM, USER, protocol, wait_until
from test_execs import exit_code, fails_with

# A tree that is hard to end: own sessions, orphans, ignored signals.
TREE = """
trap '' TERM
setsid sh -c 'trap "" TERM HUP INT; sleep 1000 & wait; sleep 1000' &
(setsid sh -c '(trap "" TERM; sleep 1000) & exit' &)
sh -c 'sleep 1000 & sleep 1000 &'
echo ready
sleep 1000
sleep 1000
"""


def duration(seconds: float) -> dict[str, int]:
    return {"seconds": int(seconds), "nanos": int(seconds % 1 * 1e9)}


def start_tree(keeper, **values):
    started = keeper.start("sh", "-c", TREE, **values)
    wait_until(lambda: keeper.output(started.exec_id) == b"ready\n")
    return started.exec_id


def only_init_is_left(keeper) -> bool:
    return len(keeper.processes()) == 1


def test_cancel_terminates(keeper):
    started = keeper.start("sleep", "1000")
    keeper.cancel(started.exec_id, LIMIT)
    ended = keeper.wait(started.exec_id)
    assert ended.end.cause == protocol().KEEPER_END_CAUSE_CANCELLED
    assert exit_code(ended) == -signal.SIGTERM


def test_cancel_kills_whole_trees(keeper):
    exec_id = start_tree(keeper)
    keeper.cancel(exec_id, 0.3)
    ended = keeper.wait(exec_id)
    assert ended.end.cause == protocol().KEEPER_END_CAUSE_CANCELLED
    assert exit_code(ended) == -signal.SIGKILL
    assert only_init_is_left(keeper)


def test_what_outlives_its_main_process_is_killed_too(keeper):
    started = keeper.start("sh", "-c", "(trap '' TERM; echo ready; sleep 1000; sleep 1000) & wait")
    wait_until(lambda: keeper.output(started.exec_id) == b"ready\n")
    began = time.monotonic()
    keeper.cancel(started.exec_id, 0.4)
    ended = keeper.wait(started.exec_id)
    assert time.monotonic() - began > 0.35
    assert ended.end.cause == protocol().KEEPER_END_CAUSE_CANCELLED
    assert exit_code(ended) == -signal.SIGTERM
    assert only_init_is_left(keeper)


def test_without_grace_there_is_no_warning(keeper):
    started = keeper.start("sh", "-c", "trap 'echo warned' TERM; echo ready; while :; do sleep 0.01; done")
    wait_until(lambda: keeper.output(started.exec_id) == b"ready\n")
    keeper.cancel(started.exec_id, 0)
    assert exit_code(keeper.wait(started.exec_id)) == -signal.SIGKILL
    assert keeper.output(started.exec_id) == b"ready\n"


def test_a_second_cancel_can_be_quicker(keeper):
    exec_id = start_tree(keeper)
    keeper.cancel(exec_id, 1000)
    keeper.cancel(exec_id, 2000)
    time.sleep(0.1)
    assert not keeper.find(exec_id).HasField("end")
    keeper.cancel(exec_id, 0)
    keeper.wait(exec_id)
    assert only_init_is_left(keeper)


def test_what_happened_wins_over_what_was_asked(keeper):
    messages = protocol()
    ended = keeper.shell("exit 7")
    keeper.cancel(ended.exec_id)
    assert keeper.find(ended.exec_id).end.cause == messages.KEEPER_END_CAUSE_EXITED


def test_one_that_exits_in_order_when_told_to_end_was_ended(keeper):
    started = keeper.start("sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done")
    wait_until(lambda: keeper.output(started.exec_id) == b"ready\n")
    keeper.cancel(started.exec_id, LIMIT)
    ended = keeper.wait(started.exec_id)
    assert (ended.end.cause, exit_code(ended)) == (protocol().KEEPER_END_CAUSE_CANCELLED, 9)


def test_one_that_goes_with_its_killed_children_was_killed(keeper):
    """The main process may see its children die of the KILL and exit before it is reached."""
    script = "trap '' TERM; echo ready; sleep 1000; exit 3"
    for _ in range(5):
        started = keeper.start("sh", "-c", script)
        wait_until(lambda exec_id=started.exec_id: keeper.output(exec_id) == b"ready\n")
        keeper.cancel(started.exec_id, 0.05)
        assert keeper.wait(started.exec_id).end.cause == protocol().KEEPER_END_CAUSE_CANCELLED


def test_cancel_of_an_unknown_exec(keeper):
    fails_with(grpc.StatusCode.NOT_FOUND, keeper.cancel, "exec-unknown")


def test_a_timeout_kills_the_tree(keeper):
    began = time.monotonic()
    timeout = 2 * PATIENCE  # until when the tree has to stand
    exec_id = start_tree(keeper, timeout=duration(timeout), kill_grace=duration(0.2))
    ended = keeper.wait(exec_id)
    assert time.monotonic() - began > timeout + 0.15
    assert ended.end.cause == protocol().KEEPER_END_CAUSE_TIMED_OUT
    assert only_init_is_left(keeper)


def test_a_timeout_that_does_not_pass_changes_nothing(keeper):
    ended = keeper.shell("sleep 0.1; exit 4", timeout={"seconds": LIMIT})
    assert (ended.end.cause, exit_code(ended)) == (protocol().KEEPER_END_CAUSE_EXITED, 4)


def test_watchers_hear_of_execs(keeper):
    watches = [keeper.watch() for _ in range(2)]
    started = keeper.start("sh", "-c", "sleep 0.1; exit 3")
    keeper.wait(started.exec_id)
    failed = keeper.start("no-such-program")
    for watch in watches:
        wait_until(lambda watch=watch: len(watch.execs(failed.exec_id)) == 1)
        first, last = watch.execs(started.exec_id)
        assert first.HasField("start_time") and not first.HasField("end")
        assert exit_code(last) == 3
        assert watch.execs(failed.exec_id)[0].end.failure.reason == "FILE_NOT_FOUND"
        watch.call.cancel()


def test_pausing_freezes_everything(keeper):
    watch = keeper.watch()
    started = keeper.start("sh", "-c", "while :; do echo x; sleep 0.01; done")
    wait_until(lambda: keeper.output(started.exec_id))
    keeper.pause(True)
    keeper.pause(True)
    for _ in range(2):
        keeper.describe()  # what was printed already has been collected when it has answered
    before = keeper.output(started.exec_id)
    time.sleep(0.5)
    assert keeper.output(started.exec_id) == before
    fails_with(grpc.StatusCode.FAILED_PRECONDITION, keeper.start, "true")
    assert keeper.describe().state == protocol().KEEPER_STATE_PAUSED
    keeper.pause(False)
    wait_until(lambda: len(keeper.output(started.exec_id)) > len(before))
    keeper.pause(True)
    keeper.cancel(started.exec_id, 0)
    keeper.wait(started.exec_id)
    keeper.pause(False)
    messages = protocol()
    wait_until(lambda: len(watch.states()) == 4)
    assert watch.states() == [messages.KEEPER_STATE_PAUSED, messages.KEEPER_STATE_RUNNING] * 2
    watch.call.cancel()


def test_usage_is_measured(keeper):
    started = keeper.start("sleep", "1000")
    usage = keeper.stub.GetUsage(protocol().GetUsageRequest(), timeout=LIMIT)
    assert usage.processes >= 1
    assert usage.cpu_time.ToNanoseconds() > 0
    keeper.cancel(started.exec_id, 0)
    keeper.wait(started.exec_id)


def test_what_is_not_served_yet_says_so(keeper):
    messages = protocol()
    fails_with(grpc.StatusCode.UNIMPLEMENTED, lambda: list(keeper.stub.ReadOutput(messages.ReadOutputRequest())))


def test_signals_do_not_end_a_keeper(keeper):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        keeper.process.send_signal(number)
    assert exit_code(keeper.shell("exit 2")) == 2


def test_only_its_own_user_may_ask(start_keeper):
    keeper = start_keeper()
    keeper.describe()
    os.chmod(keeper.folder, 0o755)
    os.chmod(keeper.folder / "keeper.sock", 0o777)
    for folder in [keeper.folder, *keeper.folder.parents]:
        if not os.stat(folder).st_mode & 0o001:
            os.chmod(folder, os.stat(folder).st_mode | 0o001)
    code = """
import sys, grpc, os
os.setgid(65534); os.setuid(65534)
call = grpc.insecure_channel("unix:" + sys.argv[1]).unary_unary("/hutch.keeper.v1.KeeperService/Describe")
try: call(b"", timeout=float(sys.argv[2]))
except grpc.RpcError as error: print(error.code().name)
"""
    link = Path(f"/tmp/hutch-test-{os.getpid()}.sock")
    link.symlink_to(keeper.folder / "keeper.sock")
    try:
        command = [sys.executable, "-c", code, link, str(LIMIT)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    finally:
        link.unlink()
    assert done.stdout == "PERMISSION_DENIED\n"


def test_shutdown_ends_everything(start_keeper):
    messages = protocol()
    keeper = start_keeper()
    watch = keeper.watch()
    polite = keeper.start("sleep", "1000")
    tree = start_tree(keeper)
    script = "(trap 'echo bye > /workspace/bye; exit' TERM; touch /tmp/set; while :; do sleep 0.01; done) &"
    left = keeper.shell(script, user="1000")
    wait_until(lambda: exit_code(keeper.shell("test -e /tmp/set")) == 0)
    ended = keeper.shell("exit 1")
    keeper.shut_down(2 * PATIENCE)  # in which one says bye

    assert keeper.process.wait(LIMIT) == 0
    wait_until(lambda: not watch.thread.is_alive())
    for exec_id in (polite.exec_id, tree):
        assert watch.execs(exec_id)[-1].end.cause == messages.KEEPER_END_CAUSE_SHUTDOWN
    assert watch.execs(ended.exec_id)[-1].end.cause == messages.KEEPER_END_CAUSE_EXITED
    assert watch.execs(left.exec_id)[-1].end.cause == messages.KEEPER_END_CAUSE_EXITED
    assert watch.states() == [messages.KEEPER_STATE_STOPPING]
    assert not keeper.box.exists()
    assert (keeper.folder / "fs/workspace/bye").read_bytes() == b"bye\n"


def test_shutdown_of_a_paused_sandbox(start_keeper):
    keeper = start_keeper()
    # One that does not heed TERM would die of it also while it is frozen.
    started = keeper.start("sh", "-c", "trap exit TERM; echo ready; while :; do sleep 0.01; done")
    wait_until(lambda: keeper.output(started.exec_id) == b"ready\n")
    keeper.pause(True)
    keeper.shut_down(10 * LIMIT)
    assert keeper.process.wait(LIMIT) == 0
    assert not keeper.box.exists()


def test_a_sandbox_that_cannot_be_built_says_why(start_keeper):
    keeper = start_keeper(config={"cgroup": "/no/such/folder/of/cgroups"})
    described = keeper.describe()
    assert described.state == protocol().KEEPER_STATE_FAILED
    assert described.failure.reason and described.failure.message
    fails_with(grpc.StatusCode.FAILED_PRECONDITION, keeper.start, "true")
    keeper.shut_down()
    assert keeper.process.wait(LIMIT) == 0


def test_a_bad_configuration_ends_the_keeper(start_keeper):
    keeper = start_keeper(config={"state_folder": "relative"})
    assert keeper.process.wait(LIMIT) == 1
    assert "level=error" in keeper.log()


def test_the_end_of_pid_1_ends_the_keeper(start_keeper):
    keeper = start_keeper()
    watch = keeper.watch()
    started = keeper.start("sleep", "1000")
    init = [pid for pid in keeper.processes() if b"sleep" not in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(init) == 1
    os.kill(init[0], signal.SIGKILL)
    keeper.process.wait(LIMIT)
    wait_until(lambda: not watch.thread.is_alive())
    assert watch.states() == [protocol().KEEPER_STATE_FAILED]
    assert watch.execs(started.exec_id)[-1].HasField("end")
    assert not keeper.box.exists()


def test_a_killed_keeper_leaves_nothing_running(start_keeper):
    keeper = start_keeper()
    before = mounts_of(keeper)
    start_tree(keeper)
    started = keeper.start("sleep", "1000", terminal={"rows": 1, "columns": 1})
    assert started.HasField("start_time")
    pids = keeper.processes()
    assert len(pids) > 5
    keeper.kill()
    # They leave their cgroup some moments before they are gone.
    wait_until(lambda: not any(map(pid_is_alive, pids)))
    assert mounts_of(keeper) == before
    assert not keeper.box.exists()


def mounts_of(keeper) -> list[str]:
    """Those of the host that are in its folder. Others are others' affair, and come and go."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if str(keeper.folder.parent) in line]


def pid_is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]], ids=str)
def test_it_tells_about_itself(arguments):
    done = subprocess.run([PROGRAM, *arguments], stdout=subprocess.PIPE, check=True, text=True)
    assert done.stdout.startswith("hutch-keeper ")
    assert subprocess.run([PROGRAM, "nonsense"], stderr=subprocess.PIPE, check=False).returncode == 2


def test_it_works_without_root_and_without_cgroups(start_keeper, user):
    """With one uid, as for a daemon that an ordinary user runs."""
    messages = protocol()
    keeper = start_keeper(config={"cgroup": "", "uid_base": USER, "uid_count": 1}, user=USER)
    user(USER)
    ended = keeper.shell("id -u; echo hi > /dev/stdout", user="1000")
    assert keeper.output(ended.exec_id) == b"1000\nhi\n"
    exec_id = start_tree(keeper, user="1000")
    keeper.cancel(exec_id, 0.2)
    assert keeper.wait(exec_id).end.cause == messages.KEEPER_END_CAUSE_CANCELLED
    keeper.start("sleep", "1000", user="1000")
    keeper.shut_down(0.5)
    assert keeper.process.wait(LIMIT) == 0
    mine = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if uid_of(pid) == USER]
    assert set(mine) <= {os.getpid()}


def uid_of(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except FileNotFoundError:
        return -1


def test_a_start_that_takes_too_long_fails_and_leaves_nothing(start_keeper):
    for _ in range(50):  # now and then one is done before it was looked at
        keeper = start_keeper({"start_timeout": {"nanos": 1}})
        described = keeper.describe()
        if described.state == protocol().KEEPER_STATE_FAILED:
            break
    assert described.failure.reason == "DEADLINE_EXCEEDED" and "in time" in described.failure.message, described
    assert not keeper.processes()
