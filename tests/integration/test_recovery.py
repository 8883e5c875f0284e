# SPDX-License-Identifier: Apache-2.0
"""Daemons, keepers and machines that end when nobody asked them to."""

import contextlib
import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from hutchd import is_alive, processes_of, refused, state_name, wait_until

COUNT = "i=0; while [ $i -lt {n} ]; do echo line $i; i=$((i+1)); sleep 0.01; done; exit 7"


@pytest.mark.rules("EXEC-012")
def test_execs_run_on_while_the_daemon_is_dead(own_daemon):
    sandbox_id = own_daemon.ready()
    short = own_daemon.start(sandbox_id, "sh", "-c", COUNT.format(n=20)).id
    long = own_daemon.start(sandbox_id, "sh", "-c", COUNT.format(n=100)).id
    own_daemon.wait_exec(sandbox_id, long, "RUNNING")
    keeper = own_daemon.keeper(sandbox_id)
    own_daemon.kill()
    time.sleep(0.6)  # the short one ends meanwhile
    own_daemon.begin()
    assert own_daemon.keeper(sandbox_id) == keeper
    ended = own_daemon.wait_exec(sandbox_id, short)
    assert (state_name(ended), ended.result.exit_code) == ("EXITED", 7)
    assert ended.stdout_bytes == len("".join(f"line {n}\n" for n in range(20)))
    ended = own_daemon.wait_exec(sandbox_id, long)
    assert (state_name(ended), ended.result.exit_code) == ("EXITED", 7)
    assert ended.stdout_bytes == len("".join(f"line {n}\n" for n in range(100)))
    assert own_daemon.states(sandbox_id) == ["PENDING", "READY"]


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "asked-to-end"])
def test_everything_is_there_after_a_restart(own_daemon, kill):
    ready, paused, stopped, deleted, failed = (own_daemon.ready(labels={"n": str(n)}) for n in range(5))
    own_daemon.pause(paused)
    own_daemon.wait(paused, "PAUSED")
    own_daemon.stop(stopped, 0)
    own_daemon.wait(stopped, "STOPPED")
    own_daemon.remove(deleted)
    os.kill(own_daemon.keeper(failed), signal.SIGKILL)
    own_daemon.wait(failed, "FAILED")
    before = [own_daemon.get(one) for one in (ready, paused, stopped, deleted, failed)]
    info = own_daemon.info()
    own_daemon.restart(kill=kill)
    for one in before:
        after = own_daemon.get(one.id)
        one.ClearField("idle_deadline")
        after.ClearField("idle_deadline")
        assert after == one
    assert own_daemon.info().instance_id == info.instance_id
    own_daemon.run(ready, "true")
    own_daemon.unpause(paused)
    own_daemon.wait(paused, "READY")
    own_daemon.resume(stopped)
    own_daemon.wait(stopped, "READY")


def test_a_stop_and_a_delete_that_were_accepted_are_done_after_a_crash(own_daemon):
    stopping, deleting = own_daemon.ready(), own_daemon.ready()
    for one in (stopping, deleting):
        exec_id = own_daemon.start(one, "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done").id
        wait_until(lambda one=one, exec_id=exec_id: own_daemon.get_exec(one, exec_id).stdout_bytes)
    own_daemon.stop(stopping, 1)
    own_daemon.delete(deleting)
    own_daemon.restart(kill=True)
    own_daemon.wait(stopping, "STOPPED")
    own_daemon.wait(deleting, "DELETED")
    assert own_daemon.states(stopping) == ["PENDING", "READY", "STOPPING", "STOPPED"]
    assert own_daemon.states(deleting) == ["PENDING", "READY", "DELETING", "DELETED"]
    assert not own_daemon.leftovers(deleting)


def test_creates_that_were_accepted_are_done_after_a_crash(own_daemon):
    ids = [own_daemon.create().id for _ in range(10)]
    own_daemon.kill()
    own_daemon.begin()
    for one in ids:
        own_daemon.wait(one, "READY")
        assert own_daemon.states(one) == ["PENDING", "READY"]


@pytest.mark.rules("LIFE-010")
def test_a_killed_keeper_fails_its_sandbox_and_leaves_nothing(own_daemon):
    lost, other = own_daemon.ready(), own_daemon.ready()
    exec_id = own_daemon.start(lost, "sh", "-c", "setsid sleep 1000 & sleep 1000").id
    own_daemon.wait_exec(lost, exec_id, "RUNNING")
    pids = own_daemon.processes(lost)
    own_daemon.shell(lost, "echo kept > /workspace/file")
    os.kill(own_daemon.keeper(lost), signal.SIGKILL)
    sandbox = own_daemon.wait(lost, "FAILED")
    assert sandbox.state_reason and "keeper" in sandbox.state_message
    wait_until(lambda: not own_daemon.leftovers(lost, files=False))
    wait_until(lambda: not [pid for pid in pids if is_alive(pid)])
    ended = own_daemon.get_exec(lost, exec_id)
    assert state_name(ended) == "CANCELLED" and ended.result.end_reason
    assert (own_daemon.sandbox_folder(lost) / "fs/workspace/file").exists()
    assert state_name(own_daemon.get(other)) == "READY"
    own_daemon.remove(lost)
    assert not own_daemon.leftovers(lost)


@pytest.mark.rules("LIFE-010")
def test_a_keeper_killed_while_the_daemon_is_dead(own_daemon):
    lost = own_daemon.ready()
    exec_id = own_daemon.start(lost, "sleep", "1000").id
    own_daemon.wait_exec(lost, exec_id, "RUNNING")
    keeper = own_daemon.keeper(lost)
    own_daemon.kill()
    os.kill(keeper, signal.SIGKILL)
    own_daemon.begin()
    own_daemon.wait(lost, "FAILED")
    assert state_name(own_daemon.wait_exec(lost, exec_id)) == "CANCELLED"
    wait_until(lambda: not own_daemon.leftovers(lost, files=False))


@pytest.mark.rules("LIFE-010")
def test_pid_1_of_a_sandbox_killed(own_daemon):
    sandbox_id = own_daemon.ready()
    exec_id = own_daemon.start(sandbox_id, "sleep", "1000").id
    own_daemon.wait_exec(sandbox_id, exec_id, "RUNNING")
    [first] = [pid for pid in own_daemon.processes(sandbox_id) if Path(f"/proc/{pid}/comm").read_text() == "init\n"]
    os.kill(first, signal.SIGKILL)
    own_daemon.wait(sandbox_id, "FAILED")
    wait_until(lambda: not own_daemon.leftovers(sandbox_id, files=False))


def reboot(daemon) -> None:
    """As far as the daemon can tell: nothing runs, and the boot's id is another."""
    daemon.kill()
    for pid in daemon.keepers():
        with contextlib.suppress(ProcessLookupError):  # it goes with the one that it came from
            os.kill(pid, signal.SIGKILL)
    cgroup = daemon.cgroup()
    if cgroup:
        (cgroup / "cgroup.kill").write_text("1", encoding="ascii")
        wait_until(lambda: not processes_of(cgroup))
        for path in sorted(cgroup.rglob("*"), reverse=True):
            if path.is_dir():
                path.rmdir()
        cgroup.rmdir()
    with sqlite3.connect(daemon.state / "hutch.db") as store:
        names = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE name LIKE '%fact%'")]
        assert len(names) == 1
        columns = [row[1] for row in store.execute(f"PRAGMA table_info({names[0]})")]
        changed = store.execute(f"UPDATE {names[0]} SET {columns[1]} = 'another' WHERE {columns[0]} = 'boot_id'")
        assert changed.rowcount == 1
    store.close()
    daemon.begin()


@pytest.mark.rules("EXEC-003")
def test_after_a_reboot_sandboxes_are_stopped_and_execs_lost(own_daemon):
    ready, paused, stopped, stopping = (own_daemon.ready() for _ in range(4))
    own_daemon.shell(ready, "echo kept > /workspace/file")
    running = own_daemon.start(ready, "sleep", "1000").id
    own_daemon.wait_exec(ready, running, "RUNNING")
    own_daemon.pause(paused)
    own_daemon.wait(paused, "PAUSED")
    own_daemon.stop(stopped, 0)
    own_daemon.wait(stopped, "STOPPED")
    deaf = own_daemon.start(stopping, "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done").id
    wait_until(lambda: own_daemon.get_exec(stopping, deaf).stdout_bytes)
    own_daemon.stop(stopping)
    reboot(own_daemon)
    for one in (ready, paused, stopped, stopping):
        own_daemon.wait(one, "STOPPED")
    assert own_daemon.states(ready) == ["PENDING", "READY", "STOPPED"]
    assert own_daemon.states(paused) == ["PENDING", "READY", "PAUSED", "STOPPED"]
    lost = own_daemon.get_exec(ready, running)
    assert state_name(lost) == "LOST" and not lost.result.HasField("exit_code")
    own_daemon.resume(ready)
    own_daemon.wait(ready, "READY")
    assert own_daemon.shell(ready, "cat /workspace/file") == "kept\n"


def test_after_a_reboot_a_pending_sandbox_is_started_and_a_delete_goes_on(own_daemon):
    sandbox_id, deleting = own_daemon.ready(), own_daemon.ready()
    own_daemon.stop(sandbox_id, 0)
    own_daemon.wait(sandbox_id, "STOPPED")
    own_daemon.resume(sandbox_id)
    own_daemon.delete(deleting)
    reboot(own_daemon)
    own_daemon.wait(deleting, "DELETED")
    assert state_name(own_daemon.wait(sandbox_id, "READY", "STOPPED")) in ("READY", "STOPPED")
    with refused("ID_TAKEN"):
        own_daemon.create(deleting)


def test_restarts_in_a_row_change_nothing(own_daemon):
    sandbox_id = own_daemon.ready()
    exec_id = own_daemon.start(sandbox_id, "sleep", "1000").id
    own_daemon.wait_exec(sandbox_id, exec_id, "RUNNING")
    for _ in range(5):
        own_daemon.restart(kill=True)
    assert own_daemon.states(sandbox_id) == ["PENDING", "READY"]
    assert state_name(own_daemon.get_exec(sandbox_id, exec_id)) == "RUNNING"
    own_daemon.cancel(sandbox_id, exec_id, 0)
    assert state_name(own_daemon.wait_exec(sandbox_id, exec_id)) == "CANCELLED"
