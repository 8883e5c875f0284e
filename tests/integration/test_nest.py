# SPDX-License-Identifier: Apache-2.0
"""The process that keepers are forked from: what it has and has not, that keepers are the same without it, and that
nothing depends on it."""

import contextlib
import os
import re
import signal
import tempfile
from pathlib import Path

import pytest
from hutchd import Daemon, is_alive, parent_of, status_of, wait_until
from sanitizers import LOGS
from user_daemon import UID, UserDaemon

pytestmark = pytest.mark.skipif(bool(LOGS), reason="there keepers are scripts, which have no nest")

# What of a keeper's status comes from its start.
STATUS = "Umask Uid Gid Groups SigBlk SigIgn SigCgt CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp".split()
RANGES = {"one id": 0, "subordinate ids": 2}


@pytest.fixture(name="own_daemon", params=["root", *RANGES])
def start_own_daemon(request):
    """A daemon for one test, that may mount @source."""
    with tempfile.TemporaryDirectory() as source:
        if request.param != "root":
            os.chown(source, UID, UID)
        config = {"sources": {"read": [source]}}
        daemon = Daemon(config) if request.param == "root" else UserDaemon(RANGES[request.param], config=config)
        daemon.source = source
        daemon.begin()
        yield daemon
        daemon.finish()


def read(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8")


def children_of(pid: int) -> list[int]:
    return [int(child) for child in read(pid, f"task/{pid}/children").split()]


def is_nest(pid: int) -> bool:
    """What was just forked has its name, too, until it has a session of its own."""
    with contextlib.suppress(OSError):  # it is gone
        return os.getsid(pid) == pid and read(pid, "comm") == "hutch-nest\n" and is_alive(pid)
    return False


def nests(daemon: Daemon) -> list[int]:
    return [pid for pid in children_of(daemon.process.pid) if is_nest(pid)]


def nest_of(daemon: Daemon) -> int:
    [nest] = nests(daemon)
    return nest


def descriptors_of(pid: int) -> dict[str, str]:
    return {fd: os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}


def portrait(daemon: Daemon, sandbox_id: str) -> dict[str, str]:
    """What a keeper has of its start, without what is another's in each."""
    pid = daemon.keeper(sandbox_id)
    fields = read(pid, "stat").rsplit(")", 1)[1].split()
    told = {name: read(pid, name) for name in ("comm", "limits", "cgroup", "environ", "oom_score_adj")}
    told |= {name: os.readlink(f"/proc/{pid}/{name}") for name in ("cwd", "root", "exe")}
    told |= {f"descriptor {fd}": link for fd, link in descriptors_of(pid).items()}
    told |= {f"flags of {fd}": read(pid, f"fdinfo/{fd}").split()[3] for fd in descriptors_of(pid)}
    told |= {key: status_of(pid, key) for key in STATUS}
    told["command line"] = read(pid, "cmdline").rstrip("\0")
    told["parent, group, session, terminal"] = " ".join(fields[1:5])
    told["nice"] = fields[16]
    others = {str(pid): "PID", sandbox_id: "ID", told["Uid"].split()[0]: "UID"}
    pattern = "|".join(rf"\b{re.escape(other)}\b" for other in others)
    told = {key: re.sub(pattern, lambda found: others[found[0]], value) for key, value in told.items()}
    return {key: re.sub(r":\[\d+\]", "", value) for key, value in told.items()}


def test_keepers_are_the_same_without_it(own_daemon):
    mounts = [{"source": own_daemon.source, "target": f"/mnt/{n}"} for n in range(3)]
    forked = own_daemon.ready(mounts=mounts)
    os.kill(nest_of(own_daemon), signal.SIGSTOP)
    executed = own_daemon.ready(mounts=mounts)
    assert "process cannot be forked" in own_daemon.log()
    assert portrait(own_daemon, forked) == portrait(own_daemon, executed)
    assert parent_of(own_daemon.keeper(forked)) == own_daemon.process.pid
    for sandbox_id in (forked, executed):
        assert own_daemon.shell(sandbox_id, "ls /mnt").split() == ["0", "1", "2"]
        assert own_daemon.shell(sandbox_id, "ls /sys/class/net; cat /sys/class/net/lo/flags") == "lo\n0x9\n"


def can_clone_what_is_mounted_nowhere() -> bool:
    return tuple(int(number) for number in os.uname().release.split(".")[:2]) >= (6, 15)


def test_what_it_forks_shares_a_sysfs_of_no_network(own_daemon):
    """As root; others cannot make one. The one of a keeper that was executed is its sandbox's own."""
    ids = [own_daemon.ready(), own_daemon.ready()]
    networks = {os.readlink(f"/proc/{own_daemon.keeper(sandbox_id)}/ns/net") for sandbox_id in ids}
    os.kill(nest_of(own_daemon), signal.SIGSTOP)
    ids.append(own_daemon.ready())
    of_a_user = isinstance(own_daemon, UserDaemon)
    [devices, executed] = [[own_daemon.shell(one, "stat -c %d /sys") for one in some] for some in (ids[:2], ids[2:])]
    assert len(set(devices)) == (1 if not of_a_user and can_clone_what_is_mounted_nowhere() else 2)
    assert executed[0] not in devices
    assert (networks == {os.readlink("/proc/self/ns/net")}) == of_a_user and len(networks) == 1
    for sandbox_id in ids:
        assert "Read-only" in own_daemon.shell(sandbox_id, "touch /sys/x 2>&1 || true")


def test_it_has_nothing_of_any_sandbox(own_daemon):
    mounts = [{"source": own_daemon.source, "target": "/mnt"}]
    own_daemon.ready()
    nest = nest_of(own_daemon)
    memory = [line for line in read(nest, "smaps_rollup").splitlines() if line.startswith("Private_Dirty")]
    for _ in range(10):
        own_daemon.remove(own_daemon.ready(mounts=mounts))
    assert nest_of(own_daemon) == nest
    assert [line for line in read(nest, "smaps_rollup").splitlines() if line.startswith("Private_Dirty")] == memory
    links = descriptors_of(nest)
    assert set(links) == {"0", "1", "2"}
    assert links["0"] == ("/dev/null" if isinstance(own_daemon, UserDaemon) else "/")  # the /sys that all share
    assert links["1"].startswith("socket:") and links["2"] == str(own_daemon.log_file)
    assert nest not in own_daemon.keepers()


def test_it_can_be_killed_at_any_time(own_daemon):
    ids, killed = [], set()
    for _ in range(6):
        ids += [own_daemon.create().id for _ in range(5)]
        for nest in nests(own_daemon):
            os.kill(nest, signal.SIGKILL)
            killed.add(nest)
    for sandbox_id in ids:
        own_daemon.wait(sandbox_id, "READY")
        assert own_daemon.states(sandbox_id) == ["PENDING", "READY"]
    assert len({own_daemon.keeper(sandbox_id) for sandbox_id in ids}) == len(ids)
    assert killed
    own_daemon.remove(*ids)
    wait_until(lambda: {status_of(pid, "Name") for pid in children_of(own_daemon.process.pid)} <= {"hutch-nest"})


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "asked-to-end"])
def test_it_ends_with_the_daemon_and_keepers_do_not(own_daemon, kill):
    sandbox_id = own_daemon.ready()
    keeper, nest = own_daemon.keeper(sandbox_id), nest_of(own_daemon)
    own_daemon.kill() if kill else own_daemon.stop_daemon()
    wait_until(lambda: not is_alive(nest))
    assert is_alive(keeper)
    own_daemon.begin()
    assert not nests(own_daemon)
    own_daemon.run(sandbox_id, "true")
    assert own_daemon.keeper(sandbox_id) == keeper
    other = own_daemon.ready()
    assert nests(own_daemon)
    own_daemon.run(other, "true")


def test_what_it_was_asked_by_a_dead_daemon_is_not_done(own_daemon):
    own_daemon.ready()
    nest = nest_of(own_daemon)
    os.kill(nest, signal.SIGSTOP)
    try:
        sandbox_id = own_daemon.create().id
        wait_until(lambda: (own_daemon.sandbox_folder(sandbox_id) / "keeper.sock").exists())
        own_daemon.kill()
    finally:
        os.kill(nest, signal.SIGCONT)
    wait_until(lambda: not is_alive(nest))
    # What it has forked ends by itself. On a very busy host the daemon may have given up on the nest before that.
    wait_until(lambda: "process cannot be forked" in own_daemon.log() or not own_daemon.keepers(sandbox_id))
    own_daemon.begin()
    own_daemon.wait(sandbox_id, "READY")
    own_daemon.run(sandbox_id, "true")
