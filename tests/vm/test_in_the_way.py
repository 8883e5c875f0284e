# SPDX-License-Identifier: Apache-2.0
"""Where the daemon gets no cgroup, or not all controllers: it says why, and what helps. Without systemd."""

from hutchd import MIB, refused  # makes hutch.v1 be found
from places import USER_ID, ContainedDaemon, PlacedDaemon, entering, process_in, run, running, subtree

# Without a cgroup memory is limited by measuring, and processes by their user.
ALL = {"cpu_millis", "cpu_weight"}


def unenforced(daemon) -> dict:
    return {one.limit: one for one in daemon.info().runtimes[0].unenforced}


def check_told_everywhere(daemon, limit: str, value: int):
    """GetInfo, the error of a request, and the doctor say the same. Returns it."""
    told = unenforced(daemon)[limit]
    with refused("LIMIT_NOT_ENFORCEABLE") as error:
        daemon.create(limits={limit: value})
    found = daemon.examine()
    assert told.why and told.fix
    assert told.why in error.message and told.fix in error.message
    assert found["is"] == "warning", found
    assert told.why in found["found"] and found["mend"] == told.fix, (found, told)
    return told


def test_who_is_in_the_way_is_named_and_the_command_helps():
    """Somebody else's process in the root of a cgroup namespace keeps controllers from being passed on."""
    with subtree("vm-way") as above, process_in(above) as pid, running(ContainedDaemon(above)) as daemon:
        assert ALL <= set(unenforced(daemon))
        told = check_told_everywhere(daemon, "cpu_millis", 300)
        assert f"process {pid} (sleep)" in told.why

        run(*daemon.beside(), "sh", "-c", told.fix)
        daemon.restart()
        assert not ALL.intersection(unenforced(daemon))
        sandbox = daemon.ready(limits={"memory_bytes": 64 * MIB})
        assert (daemon.box(sandbox) / "memory.max").read_text(encoding="ascii").strip() == str(64 * MIB)


def test_a_user_without_a_cgroup_is_told_how_to_get_one():
    become = ("setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups")
    with subtree("vm-bare") as above, running(PlacedDaemon((*entering(above), *become), USER_ID)) as daemon:
        told = check_told_everywhere(daemon, "cpu_millis", 300)
        assert "may not write to" in told.why
        assert f"hutch-{USER_ID}" in told.fix
