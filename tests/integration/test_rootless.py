# SPDX-License-Identifier: Apache-2.0
"""The daemon as an ordinary user, with one id and with subordinate ids, without cgroups and with those that were
delegated to it."""

import json
import os
import signal
import subprocess
import sys

import pytest
from hutch.v1 import exec_pb2
from hutchd import BUILD, LIMIT, MIB, refused, seconds, state_name, status_of, wait_until
from streams import run_to_end
from test_limits import FORK_BOMB, MEMORY_HOG, hits, usage
from user_daemon import RANGE, SUBORDINATE, UID, UserDaemon

# Makes what is hard to remove, as whoever runs it.
HARD_TO_REMOVE = """
cd {folder} && mkdir -p one/two/three four && echo text > one/two/file && ln one/two/file four/link &&
ln -s /etc/passwd four/symbolic && mkfifo four/pipe && mkdir -m 0 one/closed && touch one/two/three/'odd
name' && chmod 0 one/two/three && chmod 0500 one/two && chmod 0 four
"""


@pytest.fixture(name="start_user_daemon")
def make_start_user_daemon():
    """Starts daemons of the user that end with the test."""
    daemons = []

    def start(*arguments, **options) -> UserDaemon:
        daemons.append(UserDaemon(*arguments, **options))
        return daemons[-1].begin()

    yield start
    for daemon in daemons:
        daemon.finish()


@pytest.fixture(scope="module", name="daemon", params=[0, 2], ids=["one id", "subordinate ids"])
def start_shared_user_daemon(request):
    daemon = UserDaemon(request.param)
    daemon.has_ranges = request.param > 0
    daemon.begin()
    yield daemon
    daemon.finish()


@pytest.fixture(scope="module", name="with_ranges")
def has_ranges(daemon):
    if not daemon.has_ranges:
        pytest.skip("there is one id only")
    return daemon


# ---- Ids ----


def test_it_says_what_it_is(daemon):
    info = daemon.info()
    assert info.host.rootless
    assert info.runtimes[0].available
    assert ("uid-ranges" in info.runtimes[0].features) == daemon.has_ranges
    assert not {"own-uid-ranges", "pause"}.intersection(info.runtimes[0].features)


def test_agent_is_at_home(daemon, sandbox):
    script = "cd && touch a && mkdir b && cd /workspace && touch a && echo x > /tmp/x && stat -c %u . ~ a /tmp"
    told = daemon.shell(sandbox, f"id -u; id -g; {script}").split()
    root = "0" if daemon.has_ranges else "1000"
    assert told == ["1000", "1000", "1000", "1000", "1000", root]


@pytest.mark.rules("PROF-009")
def test_root_has_capabilities_where_there_is_one(daemon):
    if not daemon.has_ranges:
        with refused("FEATURE_UNSUPPORTED"):
            daemon.create(capabilities=["CHOWN"])
        return
    capable = daemon.ready(capabilities=["CHOWN"])
    assert daemon.shell(capable, "f=$(mktemp) && chown 1234 $f && stat -c %u $f", user="root") == "1234\n"
    daemon.remove(capable)


def test_root_has_nothing_of_the_host(with_ranges, sandbox):
    assert with_ranges.shell(sandbox, "id -u; id -G; touch /etc/x /x && echo made", user="root") == "0\n0\nmade\n"
    capabilities = with_ranges.shell(sandbox, "grep Cap /proc/self/status", user="root").split()[1::2]
    assert set(capabilities) == {"0" * 16}
    assert with_ranges.run(sandbox, "chown", "1000", "/x", user="root").exec.result.exit_code == 1
    assert with_ranges.run(sandbox, "touch", "/workspace/x", user="root").exec.result.exit_code == 1
    assert with_ranges.shell(sandbox, "id -u; id -g", user="65535:65534").split() == ["65535", "65534"]


def test_processes_are_the_users_or_of_its_ids(daemon, sandbox):
    own = str(100_000 + os.getpid())  # nobody else sleeps for that long
    exec_id = daemon.start(sandbox, "sleep", own).id
    pid = wait_until(lambda: find_process(f"sleep\0{own}\0"))
    first = SUBORDINATE + 999
    found = int(status_of(pid, "Uid").split()[0])
    assert found in ([first, first + RANGE - 1] if daemon.has_ranges else [UID])
    assert status_of(pid, "CapBnd") == status_of(pid, "CapEff") == "0" * 16
    assert status_of(pid, "NoNewPrivs") == "1" and status_of(pid, "Seccomp") == "2"
    daemon.cancel(sandbox, exec_id, grace=0)


def find_process(command: str) -> int | None:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                if file.read() == command:
                    return int(pid)
        except OSError:
            pass
    return None


def test_sandboxes_get_different_ids_while_there_are_some(start_user_daemon):
    def owner(sandbox) -> int:
        return (daemon.sandbox_folder(sandbox) / "fs/home").stat().st_uid

    daemon = start_user_daemon(2)
    first, second, third = (daemon.ready() for _ in range(3))
    assert len({owner(first), owner(second)}) == 2
    assert owner(third) in {owner(first), owner(second)}


# ---- A life ----


def test_a_terminal(daemon, sandbox):
    script = "stat -c %u $(tty); stty size; script -qec 'stty size' /dev/null"
    _, output = run_to_end(daemon, sandbox, "sh", "-c", script, terminal=exec_pb2.TerminalSize(rows=33, columns=101))
    assert output.stdout.split() == [b"1000", b"33", b"101", b"33", b"101"]


def test_files_stay_and_execs_are_found_again(start_user_daemon):
    for ranges in (0, 1):
        daemon = start_user_daemon(ranges)
        sandbox = daemon.ready()
        daemon.shell(sandbox, "echo kept | tee ~/kept > /workspace/kept; mkdir -m 700 ~/closed; touch ~/closed/x")
        runs = daemon.start(sandbox, "sleep", "1000").id
        ends = daemon.start(sandbox, "sh", "-c", "sleep 0.3; echo out; exit 7").id
        daemon.restart(kill=True)
        assert daemon.wait_exec(sandbox, ends).result.exit_code == 7
        assert state_name(daemon.get_exec(sandbox, runs)) == "RUNNING"
        daemon.cancel(sandbox, runs, grace=0)
        assert daemon.wait_exec(sandbox, runs).result.signal == signal.SIGKILL
        for _ in range(2):
            daemon.stop(sandbox)
            daemon.wait(sandbox, "STOPPED")
            daemon.resume(sandbox)
            daemon.wait(sandbox, "READY")
            assert daemon.shell(sandbox, "cat ~/kept /workspace/kept; ls ~/closed") == "kept\nkept\nx\n"
        os.kill(daemon.keeper(sandbox), signal.SIGKILL)
        daemon.wait(sandbox, "FAILED")
        daemon.remove(sandbox)
        assert not daemon.leftovers(sandbox)


def test_the_whole_tree_of_an_exec_is_killed(daemon, sandbox):
    script = "(setsid sh -c 'sleep 1000 & sleep 1000' &) ; sleep 1000 & echo ready; wait"
    # Its first thread ends, and another goes on: it looks like a zombie.
    threads = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(1000,)).start()"
    made = daemon.start(sandbox, "python3", "-c", f"{threads}; ctypes.CDLL(None).syscall(60, 0)", timeout=seconds(0.5))
    assert daemon.wait_exec(sandbox, made.id).result.end_reason == exec_pb2.EXEC_END_REASON_TIMED_OUT
    for user in ("agent", "root") if daemon.has_ranges else ("agent",):
        made = daemon.start(sandbox, "sh", "-c", script, user=user, timeout=seconds(0.5)).id
        assert daemon.wait_exec(sandbox, made).result.end_reason == exec_pb2.EXEC_END_REASON_TIMED_OUT
        assert daemon.shell(sandbox, "cat /proc/[0-9]*/comm | grep -c sleep || true") == "0\n"


def test_it_cannot_be_paused_without_cgroups(daemon, sandbox):
    with refused("FEATURE_UNSUPPORTED"):
        daemon.pause(sandbox)


def test_what_is_hard_to_remove_is_removed(daemon):
    sandbox = daemon.ready()
    for user, folders in {"agent": ["~", "/workspace", "/tmp", "/var/tmp"], "root": ["/root", "/etc", "/opt"]}.items():
        if user == "agent" or daemon.has_ranges:
            for folder in folders[: 2 if user == "root" else None]:
                daemon.shell(sandbox, HARD_TO_REMOVE.format(folder=folder), user=user)
    deep = "import os\nos.chdir('/workspace')\nfor _ in range(300): os.mkdir('d'); os.chdir('d')"
    daemon.run(sandbox, "python3", "-c", deep)
    daemon.remove(sandbox)
    assert not daemon.leftovers(sandbox)
    assert not daemon.log().count("still there")


def test_what_a_killed_daemon_did_not_remove_is_removed_by_the_next(start_user_daemon):
    daemon = start_user_daemon(1)
    sandbox = daemon.ready()
    daemon.shell(sandbox, HARD_TO_REMOVE.format(folder="~"))
    daemon.stop(sandbox)
    daemon.wait(sandbox, "STOPPED")
    daemon.stop_daemon()
    daemon.sandbox_folder(sandbox).rename(daemon.state / "trash" / sandbox)
    daemon.begin()
    wait_until(lambda: not list((daemon.state / "trash").iterdir()))


# ---- When the ids change ----


def test_a_sandbox_keeps_the_ids_that_it_was_made_with(start_user_daemon):
    daemon = start_user_daemon(1)
    sandbox, *lost = (daemon.ready() for _ in range(3))
    daemon.shell(sandbox, "echo kept > ~/kept")
    for one in (sandbox, *lost):
        daemon.stop(one)
        daemon.wait(one, "STOPPED")
    for one, (ranges, first) in zip(lost, ((0, SUBORDINATE), (1, SUBORDINATE + 5 * RANGE))):
        daemon.stop_daemon()
        daemon.give_ranges(ranges, first)
        daemon.begin()
        daemon.resume(one)
        told = daemon.wait(one, "FAILED", "READY").state_message
        assert str(SUBORDINATE) in told and "/etc/subuid" in told and "hutch doctor" in told, told
        other = daemon.ready()
        assert daemon.shell(other, "id -u") == "1000\n"
        daemon.remove(other)
    daemon.stop_daemon()
    daemon.give_ranges(2, SUBORDINATE)
    daemon.begin()
    daemon.resume(sandbox)
    daemon.wait(sandbox, "READY")
    assert daemon.shell(sandbox, "cat ~/kept; stat -c %u ~/kept") == "kept\n1000\n"


def test_a_sandbox_with_one_id_has_it_for_ever(start_user_daemon):
    daemon = start_user_daemon(0)
    sandbox = daemon.ready()
    daemon.shell(sandbox, "echo kept > ~/kept")
    daemon.stop(sandbox)
    daemon.wait(sandbox, "STOPPED")
    daemon.stop_daemon()
    daemon.give_ranges(1)
    daemon.begin()
    daemon.resume(sandbox)
    daemon.wait(sandbox, "READY")
    assert daemon.shell(sandbox, "cat ~/kept; echo more >> ~/kept; stat -c %u ~/kept /") == "kept\n1000\n1000\n"


# ---- Limits ----


def test_nobody_asked_for_limits_and_they_are_told(daemon, sandbox):
    effective = daemon.get(sandbox).effective
    assert effective.profile == "default"
    assert {"cpu_millis"} <= set(effective.not_enforced) <= set(daemon.info().runtimes[0].not_enforced)
    assert not {"max_processes", "memory_bytes"}.intersection(daemon.info().runtimes[0].not_enforced)
    assert effective.limits.max_processes == 256


@pytest.mark.rules("PROF-006")
@pytest.mark.parametrize("limit", [{"cpu_millis": 500}, {"cpu_weight": 50}])
def test_limits_that_cannot_be_enforced_are_refused(daemon, limit):
    with refused("LIMIT_NOT_ENFORCEABLE") as told:
        daemon.create(limits=limit)
    assert "to fix: sudo " in told.message and "\n" not in told.message


@pytest.mark.rules("PROF-006")
def test_limits_that_are_not_enforced_are_told_when_that_is_allowed(start_user_daemon):
    daemon = start_user_daemon(0, config={"sandboxes": {"allow_unenforced_limits": True}})
    sandbox = daemon.ready(limits={"cpu_millis": 100, "max_processes": 10})
    not_enforced = daemon.get(sandbox).effective.not_enforced
    assert "cpu_millis" in not_enforced and "max_processes" not in not_enforced
    assert daemon.shell(sandbox, "echo runs") == "runs\n"


@pytest.mark.parametrize("ranges", [0, 2], ids=["one id", "subordinate ids"])
def test_output_beyond_its_limit_goes(start_user_daemon, ranges):
    daemon = start_user_daemon(ranges, config={"limits": {"output_per_sandbox": "100KiB"}})
    sandbox = daemon.ready()
    ran = [daemon.run(sandbox, "head", "-c", "80000", "/dev/zero").exec.id for _ in range(2)]
    kept = [daemon.get_exec(sandbox, one).result.stdout.dropped_bytes for one in ran]
    assert kept == [80000, 0]
    assert {file.stem for file in daemon.sandbox_folder(sandbox).glob("*.out")} == {ran[1]}
    wait_until(lambda: not any((daemon.state / "trash").iterdir()))


def test_a_fork_bomb_stays_in_its_sandbox(daemon, sandbox):
    limited = daemon.ready(limits={"max_processes": 20})
    bombs = [daemon.start(limited, "python3", "-c", FORK_BOMB, "3").id]
    if daemon.has_ranges:
        bombs.append(daemon.start(limited, "python3", "-c", FORK_BOMB, "3", user="root").id)
    for bomb in bombs:
        wait_until(lambda one=bomb: daemon.get_exec(limited, one).stdout_bytes)
    # Neither another sandbox of this user, nor the user itself, is short of processes.
    assert daemon.shell(sandbox, "for i in 1 2 3 4 5; do sleep 0 & done; wait; echo well") == "well\n"
    script = "for i in 1 2 3 4 5; do sleep 0 & done; wait; echo well"
    assert subprocess.check_output(daemon.as_user("sh", "-c", script)) == b"well\n"
    for bomb in bombs:
        daemon.wait_exec(limited, bomb)
    daemon.remove(limited)


def test_as_many_processes_as_allowed_can_be_made_by_each_user(daemon):
    limited = daemon.ready(limits={"max_processes": 20})
    for user in ("agent", "root") if daemon.has_ranges else ("agent",):
        assert daemon.run(limited, "python3", "-c", FORK_BOMB, "0", user=user).stdout == b"19\n"
    limits = "import resource; resource.setrlimit(resource.RLIMIT_NPROC, (100, 100))"
    assert b"ValueError" in daemon.run(limited, "python3", "-c", limits).stderr
    daemon.remove(limited)


@pytest.mark.rules("PROF-008")
@pytest.mark.parametrize("unlink", ["", "os.unlink(file.name);"], ids=["named", "deleted and open"])
def test_what_is_on_disk_is_limited_by_measuring(daemon, unlink):
    sandbox = daemon.ready(limits={"disk_bytes": 32 * MIB, "disk_inodes": 2000})
    script = f"import os, time; file = open('big', 'wb'); {unlink} file.write(bytes(64 << 20)); time.sleep(60)"
    ended = daemon.wait_exec(sandbox, daemon.start(sandbox, "python3", "-c", script).id)
    assert ended.result.end_reason == exec_pb2.EXEC_END_REASON_DISK_FULL, ended
    daemon.remove(sandbox)


def test_open_files_are_limited(daemon):
    limited = daemon.ready(limits={"max_open_files": 32, "tmp_bytes": MIB})
    assert daemon.shell(limited, "ulimit -Hn") == "32\n"
    assert daemon.run(limited, "sh", "-c", "head -c 4000000 /dev/zero > /tmp/x").exec.result.exit_code == 1
    daemon.remove(limited)


@pytest.mark.parametrize("ranges", [0, 1], ids=["one id", "subordinate ids"])
def test_delegated_cgroups_enforce_limits(start_user_daemon, ranges):
    daemon = start_user_daemon(ranges, cgroups=True)
    runtime = daemon.info().runtimes[0]
    assert "pause" in runtime.features
    assert not {"memory_bytes", "cpu_millis", "max_processes"}.intersection(runtime.not_enforced)
    sandbox = daemon.ready(limits={"memory_bytes": 64 * MIB, "max_processes": 20, "cpu_millis": 900})
    ended = daemon.wait_exec(sandbox, daemon.start(sandbox, "python3", "-c", MEMORY_HOG).id)
    assert ended.result.end_reason == exec_pb2.EXEC_END_REASON_OUT_OF_MEMORY
    assert daemon.run(sandbox, "python3", "-c", FORK_BOMB, "0", user="root" if ranges else "").stdout == b"19\n"
    wait_until(lambda: hits(daemon, sandbox, "max_processes"))
    least = daemon.ready(limits={"memory_bytes": 8 * MIB, "max_processes": 1, "cpu_millis": 10})
    assert daemon.run(least, "echo", "small").stdout == b"small\n"
    sandbox = daemon.ready()
    sleeps = daemon.start(sandbox, "sh", "-c", "while :; do echo; sleep 0.01; done").id
    wait_until(lambda: usage(daemon, sandbox).processes >= 1)
    daemon.pause(sandbox)
    daemon.wait(sandbox, "PAUSED")
    before = daemon.get_exec(sandbox, sleeps).stdout_bytes
    daemon.unpause(sandbox)
    daemon.wait(sandbox, "READY")
    wait_until(lambda: daemon.get_exec(sandbox, sleeps).stdout_bytes > before)
    daemon.remove(sandbox)
    assert not daemon.leftovers(sandbox)


# ---- Hosts that do not let it ----


def doctor(daemon, *before: str) -> dict:
    command = [*before, BUILD / "hutch", "doctor", "-o", "json"]
    env = {"PATH": os.environ["PATH"], "HUTCH_STATE": str(daemon.state), "HUTCH_SOCKET": str(daemon.socket)}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
    return {finding["check"]: finding for finding in json.loads(ran.stdout)}


@pytest.mark.parametrize("ranges", [0, 1], ids=["one id", "subordinate ids"])
def test_doctor_tells_a_user_what_it_has(start_user_daemon, ranges):
    daemon = start_user_daemon(ranges)
    findings = doctor(daemon, *daemon.as_user())
    assert findings["namespaces"]["is"] == "ok"
    assert findings["newuidmap"]["is"] == "ok"
    ids = findings["subordinate ids"]
    assert ids["is"] == ("ok" if ranges else "warning"), ids
    if not ranges:
        assert "usermod --add-subuids" in ids["mend"] and "--add-subgids" in ids["mend"]
    assert findings["cgroups"]["is"] == findings["limits"]["is"] == "warning"
    assert findings["cgroups"]["mend"].startswith("sudo ") and "chown" in findings["cgroups"]["mend"]
    assert findings["limits"]["mend"] == findings["cgroups"]["mend"]


def test_doctor_is_content_with_delegated_cgroups(start_user_daemon):
    daemon = start_user_daemon(2, cgroups=True)
    findings = doctor(daemon, *daemon.as_user())
    assert findings["cgroups"]["is"] == findings["subordinate ids"]["is"] == "ok", findings


RAISE_NAMESPACES = "sysctl -w user.max_user_namespaces=65536"

# Runs a program in a user namespace in which there cannot be another, and whose ids are those of the host.
RESTRICTED = """
import ctypes, os, sys
ready, read = os.pipe()[::-1]
self, helper = os.getpid(), os.fork()
if helper == 0:
    os.close(ready)
    os.read(read, 1)
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{self}/{name}", "w") as file:
            file.write("0 0 2000000000")
    os._exit(0)
assert ctypes.CDLL(None).unshare(0x10000000) == 0
os.close(ready)
assert os.waitpid(helper, 0)[1] == 0
with open("/proc/sys/user/max_user_namespaces", "w") as file:
    file.write("0")
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_a_host_without_user_namespaces_is_told():
    class RestrictedDaemon(UserDaemon):
        def wrapper(self) -> tuple:
            return (sys.executable, "-c", RESTRICTED, *super().wrapper())

    daemon = RestrictedDaemon(1)
    try:
        daemon.begin()
        runtime = daemon.info().runtimes[0]
        assert not runtime.available
        assert "user namespaces" in runtime.message and runtime.message.endswith(RAISE_NAMESPACES), runtime.message
        failed = daemon.wait(daemon.create().id, "FAILED").state_message
        assert failed.endswith(RAISE_NAMESPACES), failed
        findings = doctor(daemon, *daemon.as_user())
        assert findings["namespaces"]["is"] == "bad"
        assert findings["namespaces"]["mend"] == RAISE_NAMESPACES
    finally:
        daemon.finish()
