# SPDX-License-Identifier: Apache-2.0
"""Sandboxes that run before anybody asks for them."""

import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hutch.v1 import sandbox_pb2
from hutchd import MIB, Daemon, refused, state_name, wait_until
from user_daemon import UserDaemon

SIZE = 2
WARM = {"sandboxes": {"warm": SIZE}}
# What a sandbox is like inside, but for its own name and what is never the same twice.
LOOK = """
id; hostname; env | sort; ulimit -a; stat -c '%n %f %u %g' /* /dev/* /workspace /home/*; ls /proc/self/ns /sys
cut -d' ' -f4- /proc/self/mountinfo; ps -e -o comm=; cat /etc/passwd /etc/hosts; find /workspace /home /tmp
grep -e Uid -e Gid -e Groups -e Cap -e Sec -e NoNew -e Sig /proc/self/status
"""


def warm_ids(daemon: Daemon) -> set[str]:
    """Of what runs on the host, what no caller can see."""
    running = {path.parent.name for path in (daemon.state / "sandboxes").glob("*/keeper.sock")}
    return running - set(daemon.ids(all_owners=True))


def wait_for_warm(daemon: Daemon, size: int = SIZE) -> set[str]:
    """Those that are ready, once there are so many and no more are made."""
    wait_until(lambda: daemon.log().count("a warm sandbox is ready") > 0 or size == 0)
    wait_until(lambda: len(warm_ids(daemon)) == size, what=f"there are not {size} warm sandboxes")
    time.sleep(0.1)
    found = warm_ids(daemon)
    assert len(found) == size
    wait_until(lambda: all(f'ready" sandbox={one}' in daemon.log() for one in found))
    return found


@pytest.fixture(name="warm")
def start_warm_daemon(start_daemon):
    """A daemon that has some ready."""
    daemon = start_daemon(WARM | {"log": {"level": "debug"}})
    daemon.remove(daemon.ready())
    wait_for_warm(daemon)
    return daemon


def reload(daemon: Daemon, config: dict) -> None:
    before = daemon.log().count("configuration read again")
    daemon.write_config(config | {"log": {"level": "debug"}})
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: daemon.log().count("configuration read again") > before)


def told(sandbox: sandbox_pb2.Sandbox) -> sandbox_pb2.Sandbox:
    """What is the same for all that are made alike."""
    sandbox = sandbox_pb2.Sandbox.FromString(sandbox.SerializeToString())
    for field in ("id", "create_time", "state_time", "idle_deadline", "lifetime_deadline", "usage"):
        sandbox.ClearField(field)
    return sandbox


def story(daemon: Daemon, sandbox_id: str) -> list:
    """Its events, but for what is its own."""
    events = daemon.history(sandbox_id)
    for event in events:
        for field in ("cursor", "time", "sandbox_id"):
            event.ClearField(field)
    return events


def look(daemon: Daemon, sandbox_id: str) -> str:
    """What it is like inside."""
    return re.sub(r"[0-9]{4,}", "N", daemon.shell(sandbox_id, LOOK).replace(sandbox_id, "ID"))


def limits_of(daemon: Daemon, sandbox_id: str) -> dict[str, str]:
    """What the kernel enforces, by file."""
    files = ["memory.limit_in_bytes", "pids.max", "cpu.cfs_quota_us", "cpu.shares", "blkio.weight"]
    files += ["memory.max", "memory.swap.max", "cpu.max"]  # of version 2
    groups = [*daemon.limit_groups(sandbox_id).values(), daemon.cgroup(sandbox_id) / "box"]
    paths = [group / file for group in groups for file in files]
    return {path.name: path.read_text(encoding="ascii") for path in paths if path.exists()}


@pytest.mark.rules("LIFE-016")
def test_one_that_was_warm_is_like_one_that_was_not(start_daemon):
    spec = {"labels": {"a": "b"}, "env": {"NAME": "value"}, "max_lifetime": {"seconds": 500}}
    spec["limits"] = {"memory_bytes": 100 * MIB, "max_processes": 20, "cpu_millis": 300}
    daemon = start_daemon(WARM | {"log": {"level": "debug"}})
    cold = daemon.ready(**spec)
    waiting = wait_for_warm(daemon)
    made = daemon.create(**spec)
    assert (state_name(made), made.sequence) == ("PENDING", 1)
    warm = daemon.wait(made.id, "READY").id
    assert warm in waiting and cold not in waiting

    one, other = daemon.get(cold), daemon.get(warm)
    assert told(one) == told(other)
    assert other.create_time.ToNanoseconds() > one.create_time.ToNanoseconds()
    lifetimes = [x.lifetime_deadline.ToNanoseconds() - x.create_time.ToNanoseconds() for x in (one, other)]
    assert abs(lifetimes[0] - lifetimes[1]) < 1e9
    assert story(daemon, cold) == story(daemon, warm)
    assert look(daemon, cold) == look(daemon, warm)
    assert limits_of(daemon, cold) == limits_of(daemon, warm) != {}


@pytest.mark.rules("LIFE-016")
def test_it_can_be_all_that_a_sandbox_can(warm):
    sandbox_id = warm.ready(command=["sh", "-c", "echo main > /workspace/main"])
    warm.wait_exec(sandbox_id, "main")
    assert warm.shell(sandbox_id, "cat main; echo $$ > file; cat file; rm file").startswith("main\n")
    warm.pause(sandbox_id)
    warm.wait(sandbox_id, "PAUSED")
    warm.unpause(sandbox_id)
    warm.wait(sandbox_id, "READY")
    warm.stop(sandbox_id, 0)
    warm.wait(sandbox_id, "STOPPED")
    warm.resume(sandbox_id)
    warm.wait(sandbox_id, "READY")
    assert warm.shell(sandbox_id, "cat main") == "main\n"
    warm.remove(sandbox_id)
    assert not warm.leftovers(sandbox_id)
    assert warm.states(sandbox_id) == [
        *("PENDING", "READY", "PAUSED", "READY", "STOPPING", "STOPPED", "PENDING", "READY", "DELETING", "DELETED")
    ]


def test_a_command_that_follows_at_once_waits_for_nothing(warm):
    for _ in range(10):
        assert warm.shell(warm.create().id, "echo here") == "here\n"


def test_the_first_command_is_a_process_that_waited(warm):
    """It was there before the sandbox had an owner."""
    pids = [pid for one in warm_ids(warm) for pid in warm.processes(one)]
    assert len(pids) == 2 * SIZE  # PID 1 and one that waits, of each
    sandbox_id = warm.create().id
    command = warm.start(sandbox_id, "sleep", "1000").id
    warm.wait_exec(sandbox_id, command, "RUNNING")
    assert set(warm.processes(sandbox_id)) < set(pids)


def test_more_at_once_than_there_are(warm):
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: warm.create().id, range(20)))
        assert len(set(ids)) == 20
        assert list(pool.map(lambda one: warm.shell(one, "echo $0"), ids)) == ["sh\n"] * 20
    uids = {os.stat(warm.sandbox_folder(one)).st_uid for one in ids + list(wait_for_warm(warm))}
    assert len(uids) == 20 + SIZE


@pytest.mark.rules("LIFE-017")
def test_nobody_sees_them(warm):
    waiting = warm_ids(warm)
    assert len(waiting) == SIZE
    assert warm.ids(all_owners=True) == []
    assert warm.info().sandboxes == 0
    for one in waiting:
        with refused("SANDBOX_NOT_FOUND"):
            warm.get(one)
        with refused("ID_TAKEN"):
            warm.create(one)
    events = warm.watch(after_cursor=0, all_owners=True)
    last = events.cursor
    seen = events.until(lambda event: event.cursor >= last) if last else []
    assert not waiting & {event.sandbox_id for event in seen}


@pytest.mark.rules("LIFE-017")
def test_quotas_do_not_count_them(start_daemon):
    daemon = start_daemon(WARM | {"limits": {"sandboxes": 2}, "log": {"level": "debug"}})
    first = daemon.ready()
    waiting = wait_for_warm(daemon)
    second = daemon.ready()
    assert second in waiting
    left = wait_for_warm(daemon)
    with refused("QUOTA_EXCEEDED"):
        daemon.create()
    assert warm_ids(daemon) == left
    daemon.remove(first)
    assert daemon.ready() in left


@pytest.mark.rules("LIFE-016")
def test_another_kind_is_not_taken_from_them(start_daemon, tmp_path):
    files = {"sources": {"read": [str(tmp_path)]}, "tools": {"mine": [str(tmp_path)]}}
    daemon = start_daemon(WARM | files | {"log": {"level": "debug"}})
    daemon.ready()
    waiting = wait_for_warm(daemon)
    assert daemon.ready("of-my-own") == "of-my-own"
    assert daemon.ready(mounts=[{"source": str(tmp_path), "target": "/mnt/here"}]) not in waiting
    assert daemon.ready(copies=[{"source": str(tmp_path), "target": "/workspace/here"}]) not in waiting
    assert daemon.ready(tools=["mine"]) not in waiting
    reload(daemon, files | {"sandboxes": {"warm": 8}})  # so that those there are stay
    assert daemon.ready(workspace={"target": "/work"}) not in waiting
    assert daemon.ready(capabilities=["CHOWN"]) not in waiting
    assert daemon.ready(limits={"memory_bytes": 64 * MIB}) not in waiting
    assert daemon.ready(limits={"read_only_root": True}) not in waiting
    assert daemon.ready(env={"ANY": "thing"}, labels={"any": "thing"}, user="root") in waiting


def test_a_dead_one_is_not_given_out(warm):
    waiting = warm_ids(warm)
    for one in waiting:
        os.kill(warm.keeper(one), signal.SIGKILL)
    wait_until(lambda: warm.log().count("a warm sandbox failed") == SIZE)
    assert warm.shell(warm.ready(), "echo well") == "well\n"
    wait_until(lambda: not any(warm.leftovers(one) for one in waiting))
    wait_for_warm(warm)


def test_their_number_can_be_changed(warm):
    reload(warm, {"sandboxes": {"warm": 1}})
    wait_for_warm(warm, 1)
    reload(warm, {"sandboxes": {"warm": 3}})
    wait_for_warm(warm, 3)
    reload(warm, {})
    wait_until(lambda: not warm.leftovers())
    assert "a warm sandbox failed" not in warm.log()


@pytest.mark.rules("LIFE-017")
def test_none_is_left_when_the_daemon_ends(warm):
    taken = warm.ready()
    wait_for_warm(warm)
    warm.stop_daemon()
    assert {path.name for path in (warm.state / "sandboxes").iterdir()} == {taken}
    assert not list((warm.state / "trash").iterdir())
    warm.begin()
    assert warm.shell(taken, "echo well") == "well\n"


@pytest.mark.rules("LIFE-017")
def test_none_is_left_after_a_crash_but_one_that_was_taken_is(warm):
    waiting = warm_ids(warm)
    taken = warm.create().id
    warm.kill()
    assert taken in waiting
    warm.begin()
    warm.wait(taken, "READY")
    assert warm.shell(taken, "echo well") == "well\n"
    assert warm.states(taken) == ["PENDING", "READY"]
    wait_until(lambda: not any(warm.leftovers(one) for one in waiting - {taken}))


def test_a_daemon_that_has_nothing_else_ends_for_want_of_use(warm):
    reload(warm, WARM | {"idle_exit": "0.5s"})
    warm.close()
    assert warm.ended() == 0
    assert not warm.leftovers()


@pytest.mark.parametrize("ranges", [0, 2], ids=["one id", "subordinate ids"])
def test_an_ordinary_user_has_them_too(ranges):
    daemon = UserDaemon(ranges, config=WARM | {"log": {"level": "debug"}})
    try:
        daemon.begin()
        daemon.ready()
        waiting = wait_for_warm(daemon)
        one = daemon.create()
        assert one.id in waiting
        assert daemon.shell(one.id, "id -un") == "agent\n"
        assert state_name(daemon.get(one.id)) == "READY"
    finally:
        daemon.finish()
