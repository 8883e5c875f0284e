# SPDX-License-Identifier: Apache-2.0
"""What a sandbox does in its life: stop, resume, pause, delete, its times to live, and many at once."""

import os
import signal
import time

import pytest
from hutch.v1 import sandbox_pb2
from host import PATIENCE
from hutchd import LIMIT, refused, sandbox_state, seconds, state_name, wait_until

DELETE = sandbox_pb2.LIFETIME_ACTION_DELETE


def stop(daemon, sandbox_id: str, grace: float | None = 0) -> None:
    daemon.stop(sandbox_id, grace)
    daemon.wait(sandbox_id, "STOPPED")


def resume(daemon, sandbox_id: str) -> None:
    daemon.resume(sandbox_id)
    daemon.wait(sandbox_id, "READY")


@pytest.fixture(scope="module", autouse=True, name="lingering")
def make_lingering(daemon):
    """A sandbox that is stopped and one whose exec is cancelled, both without a grace of their own: that takes long."""
    ids = daemon.ready(), daemon.ready()
    execs = [daemon.start(one, "sh", "-c", 'trap "" TERM; echo; while :; do sleep 1; done').id for one in ids]
    for one, exec_id in zip(ids, execs):
        wait_until(lambda one=one, exec_id=exec_id: daemon.get_exec(one, exec_id).stdout_bytes)
    daemon.stop(ids[0])
    daemon.cancel(ids[1], execs[1])
    return ids[0], ids[1], execs[1]


# ---- Stop and resume ----


@pytest.mark.rules("LIFE-004")
def test_a_stop_keeps_the_files_and_a_resume_sees_them(daemon, sandbox):
    daemon.shell(sandbox, "echo work > /workspace/a && echo home > ~/b")
    daemon.shell(sandbox, "echo root > /etc/c", user="0")
    exec_id = daemon.start(sandbox, "sleep", "1000").id
    stop(daemon, sandbox)
    assert daemon.get_exec(sandbox, exec_id).result.end_reason
    assert not daemon.leftovers(sandbox, files=False)
    resume(daemon, sandbox)
    assert daemon.shell(sandbox, "cat /workspace/a ~/b /etc/c") == "work\nhome\nroot\n"
    assert state_name(daemon.get_exec(sandbox, exec_id)) == "CANCELLED"


def test_tmp_is_kept_or_empty_but_there_after_a_resume(daemon, sandbox):
    stop(daemon, sandbox)
    resume(daemon, sandbox)
    daemon.shell(sandbox, "echo x > /tmp/x && cat /tmp/x")


def test_a_sandbox_can_be_stopped_and_resumed_again_and_again(daemon, sandbox):
    for number in range(5):
        daemon.shell(sandbox, f"echo {number} >> /workspace/log")
        stop(daemon, sandbox)
        resume(daemon, sandbox)
    assert daemon.shell(sandbox, "cat /workspace/log") == "0\n1\n2\n3\n4\n"


@pytest.mark.rules("LIFE-004")
def test_a_stop_asks_first_and_kills_after_the_grace(daemon, sandbox):
    polite = 'trap "echo bye; exit 0" TERM; echo up; while :; do sleep 0.05; done'
    deaf = 'trap "" TERM; echo up; while :; do sleep 0.05; done'
    execs = [daemon.start(sandbox, "sh", "-c", script).id for script in (polite, deaf)]
    for one in execs:
        wait_until(lambda one=one: daemon.get_exec(sandbox, one).stdout_bytes)
    grace = 2 * PATIENCE  # in which the polite one says bye
    started = time.monotonic()
    stop(daemon, sandbox, grace)
    assert time.monotonic() - started > grace - 0.1
    polite, deaf = (daemon.get_exec(sandbox, one) for one in execs)
    assert polite.stdout_bytes == len("up\nbye\n")
    assert deaf.result.signal in (0, 9)
    assert not daemon.leftovers(sandbox, files=False)


def test_a_stop_with_no_grace_kills_at_once(daemon, sandbox):
    exec_id = daemon.start(sandbox, "sh", "-c", 'trap "" TERM; echo up; while :; do sleep 1; done').id
    wait_until(lambda: daemon.get_exec(sandbox, exec_id).stdout_bytes)
    started = time.monotonic()
    stop(daemon, sandbox, 0)
    assert time.monotonic() - started < 3 * PATIENCE


@pytest.mark.rules("LIFE-004", "EXEC-004")
def test_a_stop_ends_processes_that_hide(daemon, sandbox):
    script = "setsid sh -c 'sleep 1000 & sleep 1000' & (setsid sleep 1000 &); echo up"
    daemon.shell(sandbox, script)
    wait_until(lambda: len(daemon.processes(sandbox)) > 3)
    stop(daemon, sandbox)
    assert not daemon.leftovers(sandbox, files=False)


# ---- Pause ----


def test_a_paused_sandbox_stands_still_and_goes_on(daemon, sandbox):
    exec_id = daemon.start(sandbox, "sh", "-c", "while :; do echo tick; sleep 0.01; done").id

    def count() -> int:
        return daemon.get_exec(sandbox, exec_id).stdout_bytes

    wait_until(count)
    daemon.pause(sandbox)
    daemon.wait(sandbox, "PAUSED")

    def stands_still() -> bool:
        before = count()
        time.sleep(1)
        return count() == before

    wait_until(stands_still, 5 * PATIENCE)  # what was written already may still be counted
    before = count()
    assert state_name(daemon.get_exec(sandbox, exec_id)) == "RUNNING"
    daemon.unpause(sandbox)
    daemon.wait(sandbox, "READY")
    wait_until(lambda: count() > before)
    daemon.cancel(sandbox, exec_id, 0)


def test_a_paused_sandbox_can_be_stopped_and_deleted(daemon):
    one, two = daemon.ready(), daemon.ready()
    for sandbox_id in (one, two):
        daemon.start(sandbox_id, "sleep", "1000")
        daemon.pause(sandbox_id)
        daemon.wait(sandbox_id, "PAUSED")
    stop(daemon, one)
    daemon.remove(one, two)
    assert not daemon.leftovers(one) and not daemon.leftovers(two)


# ---- Delete ----


@pytest.mark.rules("LIFE-005")
def test_a_delete_leaves_nothing_but_history(daemon):
    sandbox_id = daemon.ready()
    exec_id = daemon.start(sandbox_id, "sh", "-c", "echo out; setsid sleep 1000 & sleep 1000").id
    wait_until(lambda: daemon.get_exec(sandbox_id, exec_id).stdout_bytes)
    daemon.shell(sandbox_id, "mkdir -m 0 /workspace/closed; ln -s / /workspace/root; touch /workspace/-rf")
    daemon.remove(sandbox_id)
    assert not daemon.leftovers(sandbox_id)
    found = daemon.get(sandbox_id)
    assert state_name(found) == "DELETED" and found.owner == "uid:0"
    assert state_name(daemon.get_exec(sandbox_id, exec_id)) == "CANCELLED"
    assert daemon.delete(sandbox_id).sequence == found.sequence


def test_a_delete_does_not_follow_links_out_of_the_sandbox(daemon, tmp_path):
    (tmp_path / "kept").write_text("kept", encoding="utf-8")
    sandbox_id = daemon.ready()
    daemon.shell(sandbox_id, f"ln -s {tmp_path} /workspace/link; ln -s {tmp_path}/kept /workspace/file")
    daemon.remove(sandbox_id)
    assert (tmp_path / "kept").read_text(encoding="utf-8") == "kept"


def test_a_delete_removes_deep_and_wide_trees(daemon):
    sandbox_id = daemon.ready()
    deeper = "mkdir a-rather-long-name; cd a-rather-long-name"
    daemon.shell(sandbox_id, f"i=0; while [ $i -lt 300 ]; do {deeper}; i=$((i+1)); done")
    daemon.shell(sandbox_id, "cd /workspace; for i in $(seq 500); do : > file-$i; done")
    daemon.remove(sandbox_id)
    assert not daemon.leftovers(sandbox_id)


# ---- The command of a sandbox ----


@pytest.mark.rules("LIFE-012")
def test_the_command_runs_as_main_and_its_end_does_not_end_the_sandbox(daemon):
    sandbox_id = daemon.ready(command=["sh", "-c", "echo $A; exit 3"], env={"A": "from-spec"})
    ended = daemon.wait_exec(sandbox_id, "main", "EXITED")
    assert ended.result.exit_code == 3 and ended.stdout_bytes == len("from-spec\n")
    assert state_name(daemon.get(sandbox_id)) == "READY"
    daemon.remove(sandbox_id)


def test_environment_directory_and_user_of_a_sandbox_hold_for_its_execs(daemon):
    sandbox_id = daemon.ready(env={"A": "1", "B": "2"}, working_directory="/tmp", user="0")
    assert daemon.shell(sandbox_id, 'echo "$A $B $(pwd) $(id -u)"', env={"B": "3"}) == "1 3 /tmp 0\n"
    daemon.remove(sandbox_id)


@pytest.mark.rules("EXEC-009")
def test_a_workspace_elsewhere(daemon):
    sandbox_id = daemon.ready(workspace={"target": "/srv/work"})
    assert daemon.shell(sandbox_id, "touch x && pwd") == "/srv/work\n"
    daemon.remove(sandbox_id)


def test_usage_is_measured_when_asked_for(daemon, sandbox):
    daemon.shell(sandbox, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
    daemon.wait_exec(sandbox, daemon.start(sandbox, "sleep", "1000").id, "RUNNING")
    request = sandbox_pb2.GetSandboxRequest(sandbox_id=sandbox, include_usage=True)
    usage = daemon.sandboxes.GetSandbox(request, timeout=LIMIT).sandbox.usage
    assert usage.processes >= 1 and usage.cpu_time.ToNanoseconds() > 0 and usage.measure_time.seconds
    assert not daemon.get(sandbox).HasField("usage")


# ---- Times to live ----


# Whoever makes a sandbox that is soon idle, or soon over, may come too late to see it READY, or to do anything with it:
# the host may stall meanwhile. Hence commands that come with the creation, and times that are shortened afterwards.
FAR, SOON = seconds(1000), seconds(0.4)


def moment_of(daemon, sandbox_id: str, state: str) -> int:
    """When it came into a state, in nanoseconds of the calendar."""
    [event] = [one for one in daemon.history(sandbox_id) if one.sandbox_state.to_state == sandbox_state(state)]
    return event.time.ToNanoseconds()


def test_an_idle_sandbox_is_stopped(daemon):
    sandbox_id = daemon.create(idle_ttl=SOON).id
    sandbox = daemon.wait(sandbox_id, "STOPPED")
    assert moment_of(daemon, sandbox_id, "STOPPING") - moment_of(daemon, sandbox_id, "READY") > 0.3e9
    assert sandbox.state_message and not sandbox.HasField("idle_deadline")
    daemon.resume(sandbox_id)
    daemon.wait(sandbox_id, "STOPPED")
    daemon.remove(sandbox_id)


def test_an_exec_and_a_stream_keep_a_sandbox_awake(daemon):
    sandbox_id = daemon.create(idle_ttl=SOON).id
    exec_id = daemon.start(sandbox_id, "sleep", "1.2").id
    assert not daemon.get(sandbox_id).HasField("idle_deadline")
    ended = daemon.wait_exec(sandbox_id, exec_id, "EXITED")
    daemon.wait(sandbox_id, "STOPPED")
    assert daemon.states(sandbox_id) == ["PENDING", "READY", "STOPPING", "STOPPED"]
    assert moment_of(daemon, sandbox_id, "STOPPING") - ended.end_time.ToNanoseconds() > 0.3e9
    daemon.remove(sandbox_id)


def test_reading_about_a_sandbox_does_not_keep_it_awake(daemon):
    sandbox_id = daemon.create(idle_ttl=SOON).id
    watch = daemon.watch(sandbox_ids=[sandbox_id])
    daemon.wait(sandbox_id, "STOPPED")
    watch.close()
    daemon.remove(sandbox_id)


def test_an_idle_ttl_of_zero_is_for_ever(daemon):
    sandbox_id = daemon.ready(idle_ttl=seconds(0))
    assert not daemon.get(sandbox_id).HasField("idle_deadline")
    daemon.remove(sandbox_id)


def test_an_update_of_the_idle_ttl_counts_at_once(daemon):
    sandbox_id = daemon.ready(idle_ttl=FAR)
    assert daemon.get(sandbox_id).HasField("idle_deadline")
    daemon.update(sandbox_id, "idle_ttl", idle_ttl=SOON)
    daemon.wait(sandbox_id, "STOPPED")
    daemon.remove(sandbox_id)


def test_a_paused_sandbox_does_not_count_as_idle(daemon):
    sandbox_id = daemon.ready(idle_ttl=FAR)
    daemon.pause(sandbox_id)
    daemon.wait(sandbox_id, "PAUSED")
    assert not daemon.get(sandbox_id).HasField("idle_deadline")
    assert not daemon.update(sandbox_id, "idle_ttl", idle_ttl=SOON).HasField("idle_deadline")
    time.sleep(0.7)
    assert state_name(daemon.get(sandbox_id)) == "PAUSED"
    daemon.remove(sandbox_id)


IDLE_DELETE = sandbox_pb2.IDLE_ACTION_DELETE


@pytest.mark.rules("LIFE-014")
def test_an_idle_sandbox_is_deleted_where_that_is_asked_for(daemon):
    sandbox_id = daemon.create(idle_ttl=SOON, idle_action=IDLE_DELETE).id
    exec_id = daemon.start(sandbox_id, "sleep", "0.8").id
    assert not daemon.get(sandbox_id).HasField("idle_deadline")
    ended = daemon.wait_exec(sandbox_id, exec_id, "EXITED")
    assert daemon.wait(sandbox_id, "DELETED").state_message
    assert daemon.states(sandbox_id) == ["PENDING", "READY", "DELETING", "DELETED"]
    assert moment_of(daemon, sandbox_id, "DELETING") - ended.end_time.ToNanoseconds() > 0.3e9


@pytest.mark.rules("LIFE-014")
def test_one_to_be_deleted_is_idle_also_when_it_is_stopped(daemon):
    stopped = daemon.ready(idle_ttl=FAR, idle_action=IDLE_DELETE)
    daemon.stop(stopped, grace=0)
    assert daemon.wait(stopped, "STOPPED").HasField("idle_deadline")
    daemon.update(stopped, "idle_ttl", idle_ttl=SOON)
    daemon.wait(stopped, "DELETED")
    assert daemon.states(stopped)[-3:] == ["STOPPED", "DELETING", "DELETED"]


@pytest.mark.rules("LIFE-014", "LIFE-010")
def test_one_to_be_deleted_is_idle_also_when_it_has_failed(daemon):
    failed = daemon.create(idle_ttl=SOON, idle_action=IDLE_DELETE).id
    exec_id = daemon.start(failed, "sleep", "1000").id
    daemon.wait_exec(failed, exec_id, "RUNNING")
    os.kill(daemon.keeper(failed), signal.SIGKILL)
    daemon.wait(failed, "DELETED")
    assert "FAILED" in daemon.states(failed)


@pytest.mark.rules("LIFE-014")
def test_an_update_of_the_idle_action_counts_at_once(daemon, sandbox):
    daemon.stop(sandbox, grace=0)
    daemon.wait(sandbox, "STOPPED")
    mask = "idle_ttl", "idle_action"
    changed = daemon.update(sandbox, *mask, idle_ttl=SOON, idle_action=IDLE_DELETE)
    assert changed.spec.idle_action == IDLE_DELETE and changed.HasField("idle_deadline")
    daemon.wait(sandbox, "DELETED")


@pytest.mark.rules("LIFE-014")
def test_without_the_idle_action_a_stopped_sandbox_is_not_idle(daemon, sandbox):
    daemon.stop(sandbox, grace=0)
    daemon.wait(sandbox, "STOPPED")
    mask = "idle_ttl", "idle_action"
    assert daemon.update(sandbox, *mask, idle_ttl=FAR, idle_action=IDLE_DELETE).HasField("idle_deadline")
    assert not daemon.update(sandbox, *mask, idle_ttl=SOON).HasField("idle_deadline")
    time.sleep(0.6)
    assert state_name(daemon.get(sandbox)) == "STOPPED"


@pytest.mark.rules("LIFE-008", "LIFE-014")
def test_an_idle_time_before_the_deletion_goes_on_over_a_restart(own_daemon):
    ready, stopped = (own_daemon.ready(idle_ttl=FAR, idle_action=IDLE_DELETE) for _ in range(2))
    own_daemon.stop(stopped, grace=0)
    own_daemon.wait(stopped, "STOPPED")
    for one in ready, stopped:
        own_daemon.update(one, "idle_ttl", idle_ttl=seconds(1.5))
    own_daemon.restart(kill=True)
    for one in ready, stopped:
        own_daemon.wait(one, "DELETED")


@pytest.mark.rules("LIFE-007")
def test_the_end_of_a_lifetime_stops_for_good(daemon):
    sandbox_id = daemon.create(max_lifetime=seconds(0.5), command=["sleep", "1000"]).id
    sandbox = daemon.wait(sandbox_id, "STOPPED")
    assert sandbox.state_message
    assert state_name(daemon.get_exec(sandbox_id, "main")) == "CANCELLED"
    with refused("SANDBOX_EXPIRED"):
        daemon.resume(sandbox_id)
    daemon.remove(sandbox_id)


@pytest.mark.rules("LIFE-007")
def test_the_end_of_a_lifetime_deletes_where_that_was_asked_for(daemon):
    sandbox_id = daemon.create(max_lifetime=seconds(0.5), lifetime_action=DELETE).id
    daemon.wait(sandbox_id, "DELETED")
    assert not daemon.leftovers(sandbox_id)


@pytest.mark.rules("LIFE-007")
def test_a_lifetime_goes_on_while_stopped_and_paused(daemon):
    stopped, paused = (daemon.ready(max_lifetime=FAR, lifetime_action=DELETE) for _ in range(2))
    daemon.stop(stopped, 0)
    daemon.wait(stopped, "STOPPED")
    daemon.pause(paused)
    daemon.wait(paused, "PAUSED")
    for one in stopped, paused:
        so_far = time.time() - daemon.get(one).create_time.ToNanoseconds() / 1e9
        daemon.update(one, "max_lifetime", max_lifetime=seconds(so_far + 0.5))
    for one, state in (stopped, "STOPPED"), (paused, "PAUSED"):
        daemon.wait(one, "DELETED")
        assert daemon.states(one)[-3:] == [state, "DELETING", "DELETED"]


@pytest.mark.rules("LIFE-008")
def test_times_to_live_survive_a_restart_with_the_time_that_remains(own_daemon):
    expired = own_daemon.create(max_lifetime=seconds(0.6)).id
    ttl = seconds(2 * PATIENCE)  # until when the daemon has to be dead
    mortal = own_daemon.ready(max_lifetime=ttl, lifetime_action=DELETE)
    idle = own_daemon.ready(idle_ttl=ttl)
    deadlines = own_daemon.get(idle).idle_deadline, own_daemon.get(mortal).lifetime_deadline
    own_daemon.kill()
    time.sleep(0.7)
    own_daemon.begin()
    moved = own_daemon.get(mortal).lifetime_deadline.ToMilliseconds() - deadlines[1].ToMilliseconds()
    assert abs(moved) < 10
    moved = own_daemon.get(idle).idle_deadline.ToMilliseconds() - deadlines[0].ToMilliseconds()
    assert abs(moved) < 1000
    own_daemon.wait(expired, "STOPPED")
    own_daemon.wait(mortal, "DELETED")
    late = moment_of(own_daemon, mortal, "DELETING") / 1e6 - deadlines[1].ToMilliseconds()
    assert -10 < late < 2000 * PATIENCE
    own_daemon.wait(idle, "STOPPED")


def test_the_operators_defaults_and_caps(start_daemon):
    daemon = start_daemon({"sandboxes": {"idle_ttl": "300ms", "max_lifetime": "1h"}})
    assert daemon.info().limits.default_idle_ttl == seconds(0.3)
    with refused("FIELD_OUT_OF_RANGE", "spec.max_lifetime"):
        daemon.create(max_lifetime=seconds(3601))
    sandbox = daemon.create()
    assert sandbox.lifetime_deadline.seconds - sandbox.create_time.seconds == 3600
    daemon.wait(sandbox.id, "STOPPED")


# ---- Many ----


def test_two_hundred_sandboxes_at_once(own_daemon):
    ids = [own_daemon.create(labels={"of": "many"}).id for _ in range(200)]
    for one in ids:
        own_daemon.wait(one, "READY", limit=60 * PATIENCE)
    futures = [own_daemon.start(one, "sh", "-c", "echo $HUTCH_SANDBOX_ID").id for one in ids]
    for one, exec_id in zip(ids, futures):
        ended = own_daemon.wait_exec(one, exec_id, "EXITED")
        assert ended.stdout_bytes == len(one) + 1
    assert own_daemon.ids(page_size=70) == ids
    own_daemon.restart(kill=True)
    assert own_daemon.shell(ids[100], "echo $HUTCH_SANDBOX_ID").strip() == ids[100]
    request = sandbox_pb2.DeleteSandboxesRequest(selector="of=many")
    assert list(own_daemon.sandboxes.DeleteSandboxes(request, timeout=LIMIT).sandbox_ids) == ids
    for one in ids:
        own_daemon.wait(one, "DELETED", limit=60 * PATIENCE)


# ---- Isolation ----


@pytest.mark.parametrize("kind", ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"])
def test_namespaces_are_the_sandboxes_own(daemon, shared_sandbox, kind):
    inside = daemon.shell(shared_sandbox, f"readlink /proc/self/ns/{kind}").strip()
    assert inside.startswith(f"{kind}:[") and inside != os.readlink(f"/proc/self/ns/{kind}")


@pytest.mark.rules("EGRESS-001")
def test_only_loopback_is_there_and_it_is_up(daemon, shared_sandbox):
    assert daemon.shell(shared_sandbox, "ls /sys/class/net").split() == ["lo"]
    script = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())"
    daemon.shell(shared_sandbox, f'python3 -c "{script}"')
    script = "import socket; socket.create_connection(('192.0.2.1', 80), 1)"
    assert daemon.run(shared_sandbox, "python3", "-c", script).exec.result.exit_code != 0


def test_processes_of_the_host_are_not_seen(daemon, shared_sandbox):
    pids = [int(name) for name in daemon.shell(shared_sandbox, "ls /proc").split() if name.isdigit()]
    assert len(pids) < 10 and 1 in pids
    assert daemon.shell(shared_sandbox, "cat /proc/1/comm").strip() != ""


@pytest.mark.rules("IMAGE-001")
def test_files_of_the_host_are_not_seen(daemon, shared_sandbox):
    assert daemon.run(shared_sandbox, "ls", str(daemon.state)).exec.result.exit_code != 0
    assert daemon.shell(shared_sandbox, "ls -A /root /home", user="0").split() == ["/home:", "agent", "/root:"]
    assert daemon.run(shared_sandbox, "cat", "/etc/shadow", user="0").exec.result.exit_code != 0
    hosts_users = {line.split(":")[0] for line in open("/etc/passwd", encoding="utf-8")}
    inside = {line.split(":")[0] for line in daemon.shell(shared_sandbox, "cat /etc/passwd").splitlines()}
    assert "agent" in inside and inside - hosts_users


@pytest.mark.rules("IMAGE-001")
@pytest.mark.parametrize("path", ["/usr/x", "/bin/x", "/lib/x", "/sys/x", "/proc/sys/kernel/hostname"])
def test_the_system_is_read_only_also_for_root_inside(daemon, shared_sandbox, path):
    assert daemon.run(shared_sandbox, "sh", "-c", f"echo x > {path}", user="0").exec.result.exit_code != 0


@pytest.mark.parametrize("path", ["/workspace/x", "/home/agent/x", "/tmp/x", "/dev/shm/x", "/dev/null"])
def test_the_agent_may_write_where_it_should(daemon, shared_sandbox, path):
    daemon.shell(shared_sandbox, f"echo x > {path}")


def test_users_inside_are_nobodies_outside(daemon, shared_sandbox):
    assert daemon.shell(shared_sandbox, "id -u; id -g; id -un").split() == ["1000", "1000", "agent"]
    assert daemon.shell(shared_sandbox, "id -u", user="0").strip() == "0"
    daemon.shell(shared_sandbox, "touch /etc/owned", user="0")
    owner = (daemon.sandbox_folder(shared_sandbox) / "fs/upper/etc/owned").stat().st_uid
    assert owner >= 0x70000000
    exec_id = daemon.start(shared_sandbox, "sleep", "50", user="0").id
    daemon.wait_exec(shared_sandbox, exec_id, "RUNNING")
    for pid in daemon.processes(shared_sandbox):
        assert os.stat(f"/proc/{pid}").st_uid >= 0x70000000
    daemon.cancel(shared_sandbox, exec_id, 0)
    daemon.wait_exec(shared_sandbox, exec_id)


def test_sandboxes_do_not_share_users(daemon, shared_sandbox, sandbox):
    maps = [daemon.shell(one, "cat /proc/self/uid_map") for one in (shared_sandbox, sandbox)]
    ranges = [int(text.split()[1]) for text in maps]
    assert abs(ranges[0] - ranges[1]) >= 65536


def test_the_host_name_is_the_sandboxes_own(daemon, shared_sandbox):
    assert daemon.shell(shared_sandbox, "uname -n").strip() != os.uname().nodename


def test_the_state_folder_is_closed(daemon, shared_sandbox):
    assert daemon.state.stat().st_mode & 0o777 == 0o700
    assert daemon.sandbox_folder(shared_sandbox).stat().st_mode & 0o777 == 0o700


# ---- What began first and is over last ----


@pytest.mark.rules("LIFE-004", "EXEC-004")
def test_a_stop_has_a_grace_of_10_s_and_a_cancel_of_5_s(daemon, lingering):
    stopped, cancelled, exec_id = lingering
    daemon.wait(stopped, "STOPPED")
    moves = {event.sandbox_state.to_state: event.time.ToNanoseconds() for event in daemon.history(stopped)}
    # These times are the calendar's, which may be set right meanwhile; graces are measured by another clock.
    assert 9.9e9 <= moves[sandbox_state("STOPPED")] - moves[sandbox_state("STOPPING")] < 13e9 * PATIENCE
    ended = daemon.wait_exec(cancelled, exec_id)
    assert 4.9e9 <= ended.end_time.ToNanoseconds() - ended.cancel_time.ToNanoseconds() < 8e9 * PATIENCE
    assert (state_name(ended), ended.result.signal) == ("CANCELLED", 9)
    daemon.remove(stopped, cancelled)
