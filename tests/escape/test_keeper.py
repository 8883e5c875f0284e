# SPDX-License-Identifier: Apache-2.0
"""Whoever has taken over a keeper, from inside of its sandbox, has got hold of nobody: no capability, no user of the
host's, few system calls."""

import os
from pathlib import Path

import pytest

NOTHING = "0" * 16
ONLY_ROOTS = pytest.mark.parametrize("daemon", ["root's"], indirect=True)  # those of a user's daemon are that user


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return {name: " ".join(value.split()) for name, value in (line.split(":", 1) for line in lines)}


def test_keepers_have_no_rights(daemon, sandbox):
    status = status_of(daemon.keeper(sandbox))
    assert status["CapPrm"] == status["CapEff"] == status["CapAmb"] == NOTHING
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


@ONLY_ROOTS
def test_keepers_of_root_are_nobody(daemon, sandbox):
    status = status_of(daemon.keeper(sandbox))
    assert status["CapBnd"] == status["CapInh"] == NOTHING and status["Groups"] == ""
    uids = set(status["Uid"].split()) | set(status["Gid"].split())
    assert len(uids) == 1
    # It is nobody's but its own: not the host's, and not of those inside.
    [uid] = map(int, uids)
    inside = daemon.processes(sandbox)[0]
    first, count = map(int, Path(f"/proc/{inside}/uid_map").read_text("ascii").split()[1:])
    assert uid == first + count and uid > 0x70000000


@ONLY_ROOTS
def test_keepers_of_two_sandboxes_are_two_users(daemon, sandbox):
    other = daemon.ready()
    users = {os.stat(f"/proc/{daemon.keeper(one)}/mem").st_uid for one in (sandbox, other)}
    assert users == {0}  # neither is dumpable
    assert status_of(daemon.keeper(sandbox))["Uid"] != status_of(daemon.keeper(other))["Uid"]


@ONLY_ROOTS
def test_a_keeper_shares_no_cgroup_with_what_it_limits(daemon, sandbox):
    keeper = daemon.keeper(sandbox)
    own = Path(f"/proc/{keeper}/cgroup").read_text("utf-8").splitlines()[-1]
    assert own.removesuffix("/keeper").endswith(f"/{sandbox}")
    assert daemon.processes(sandbox) and keeper not in daemon.processes(sandbox)


def test_the_socket_of_a_keeper_had_its_mode_before_its_name(daemon, sandbox):
    keeper = daemon.keeper(sandbox)
    named = (daemon.sandbox_folder(sandbox) / "keeper.sock").stat()
    assert named.st_mode & 0o777 == 0o600
    assert os.stat(f"/proc/{keeper}/fd/4").st_mode & 0o777 == 0o600
