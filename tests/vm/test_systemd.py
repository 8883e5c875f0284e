# SPDX-License-Identifier: Apache-2.0
"""What else must hold where systemd is PID 1: its scopes come and go with the daemon and its sandboxes."""

from hutchd import MIB, refused, wait_until  # makes hutch.v1 be found
from places import USER, USER_ID, PlacedDaemon, run, running, session


def scopes() -> str:
    return run("systemctl", "list-units", "--plain", "--no-legend", "hutch-*.scope")


def test_a_killed_daemon_finds_its_sandboxes_and_a_scope_goes_with_the_last_of_them():
    with session() as daemon:
        sandbox = daemon.ready(limits={"memory_bytes": 64 * MIB})
        box, scope = daemon.box(sandbox), f"hutch-{daemon.instance}.scope"
        daemon.restart(kill=True)
        daemon.wait(sandbox, "READY")
        assert daemon.box(sandbox) == box
        assert daemon.shell(sandbox, "echo well") == "well\n"
        assert scope in scopes()
    wait_until(lambda: scope not in scopes(), what=scopes())


def test_a_user_without_a_session_is_told_how_to_get_one():
    run("systemctl", "stop", f"user@{USER_ID}.service")
    become = ("setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups")
    with running(PlacedDaemon(become, USER_ID)) as daemon:
        told = {one.limit: one for one in daemon.info().runtimes[0].unenforced}["cpu_millis"]
        assert told.fix.startswith(f"sudo loginctl enable-linger {USER}")
        found = daemon.examine()
        assert found["mend"] == told.fix and told.why in found["found"]
        with refused("LIMIT_NOT_ENFORCEABLE") as error:
            daemon.create(limits={"cpu_millis": 300})
        assert told.why in error.message and told.fix in error.message
