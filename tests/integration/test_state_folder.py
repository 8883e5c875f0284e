# SPDX-License-Identifier: Apache-2.0
"""A state folder on an overlay, as everything in a container is: changes to the root are in memory, the rest is kept.
With root's daemon and with those of an ordinary user."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hutchd import BUILD, MIB, Daemon, seconds
from sandbox_files import Files
from test_file_changes import told
from user_daemon import UserDaemon

DAEMONS = {"root's": Daemon, "a user's": UserDaemon, "a user's with subordinate ids": lambda: UserDaemon(1)}
LATER = "/var/tmp/later"  # in the root
KEPT = ("/workspace/kept", "/home/agent/kept")


@pytest.fixture(scope="module", name="overlay")
def mount_overlay():
    with tempfile.TemporaryDirectory(prefix="hutch-test-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("lower", "upper", "work", "merged"):
            (folder / part).mkdir()
        layers = f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, folder / "merged"], check=True)
        try:
            yield folder / "merged"
        finally:
            subprocess.run(["umount", folder / "merged"], check=True)


@pytest.fixture(scope="module", name="daemon", params=DAEMONS)
def start_daemon_there(request, overlay):
    daemon = DAEMONS[request.param]()
    daemon.state = overlay / request.param.replace("'", "").replace(" ", "-")
    daemon.state.mkdir()
    owner = daemon.folder.stat()
    os.chown(daemon.state, owner.st_uid, owner.st_gid)
    daemon.begin()
    daemon.has_users = "uid-ranges" in daemon.info().runtimes[0].features
    yield daemon
    daemon.finish()


@pytest.fixture(name="sandbox")
def make_sandbox_there(daemon):
    sandbox_id = daemon.ready()
    yield sandbox_id
    daemon.remove(sandbox_id)


def start_again(daemon, sandbox) -> None:
    daemon.stop(sandbox)
    daemon.wait(sandbox, "STOPPED")
    daemon.resume(sandbox)
    daemon.wait(sandbox, "READY")


def test_the_daemon_says_so(daemon):
    assert "root-in-memory" in daemon.info().runtimes[0].features
    assert "cannot hold changes to the root of sandboxes" in daemon.log()


def test_elsewhere_it_does_not(start_daemon):
    assert "root-in-memory" not in start_daemon().info().runtimes[0].features


def test_programs_run_and_everything_can_be_written(daemon, sandbox):
    user = "root" if daemon.has_users else "agent"
    assert daemon.shell(sandbox, "id -un; hostname; cat /etc/hostname", user=user).split() == [user, sandbox, sandbox]
    script = "echo a >> /etc/hosts && rm /etc/profile && mkdir /opt2 && mv /opt2 /opt3"
    script += " && rm -r /var/tmp && mkdir /var/tmp"
    assert daemon.shell(sandbox, f"{script} && tail -n 1 /etc/hosts && ls -d /opt?", user=user) == "a\n/opt3\n"
    assert daemon.shell(sandbox, "stat -c '%U' / /etc /etc/passwd", user=user).split() == [user] * 3
    assert daemon.shell(sandbox, "python3 -c 'import json; print(1)'") == "1\n"


def test_home_and_workspace_are_kept_and_the_rest_is_not(daemon, sandbox):
    daemon.shell(sandbox, " && ".join(f"echo {path} > {path}" for path in (*KEPT, LATER)))
    identity = daemon.shell(sandbox, "cat /etc/machine-id")
    start_again(daemon, sandbox)
    assert daemon.shell(sandbox, f"cat {' '.join(KEPT)}; ls {LATER} 2>&1 || true").split()[:2] == list(KEPT)
    assert daemon.run(sandbox, "test", "-e", LATER).exec.result.exit_code == 1
    assert daemon.shell(sandbox, "cat /etc/machine-id") == identity


def test_everything_outlives_the_daemon(daemon, sandbox):
    daemon.shell(sandbox, f"echo 1 > {LATER}")
    daemon.stop_daemon()
    daemon.begin()
    assert daemon.shell(sandbox, f"cat {LATER}") == "1\n"


def test_what_was_changed_is_told(daemon, sandbox):
    files = Files(daemon, sandbox)
    assert told(files) == []
    daemon.shell(sandbox, f"echo 1 > {LATER}; echo 1 > /workspace/new; mkdir /tmp/folder")
    assert set(told(files)) >= {f"A {LATER}", "A /workspace/new", "A /tmp/folder"}
    start_again(daemon, sandbox)
    assert told(files) == ["A /workspace/new"]


def test_the_root_has_a_limit(daemon, sandbox):
    script = "python3 -c 'import os; print(os.statvfs(\"/\").f_blocks * os.statvfs(\"/\").f_frsize)'"
    assert int(daemon.shell(sandbox, script)) <= 1024 * MIB


def test_a_read_only_root_is_one(daemon):
    sandbox = daemon.ready(limits={"read_only_root": True})
    assert "Read-only" in daemon.run(sandbox, "mkdir", "/new").stderr.decode()
    daemon.shell(sandbox, "touch /workspace/new /tmp/new")
    daemon.remove(sandbox)


def test_one_shots_run(daemon):
    """As those that come and go by the hundred do."""
    for _ in range(3):
        sandbox = daemon.ready(idle_ttl=seconds(60))
        assert daemon.shell(sandbox, "cat /etc/hostname") == f"{sandbox}\n"
        daemon.remove(sandbox)


def test_doctor_says_so(overlay):
    folder = overlay / "doctor"
    folder.mkdir()
    command = [BUILD / "hutch", "--socket", folder / "no.sock", "doctor", "-o", "json"]
    env = os.environ | {"HUTCH_STATE": str(folder)}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    found = {one["check"]: one for one in json.loads(ran.stdout)}
    assert found["state folder"]["is"] == "warning" and "memory" in found["state folder"]["found"]
    assert "HUTCH_STATE" in found["state folder"]["mend"]
    assert found["overlayfs"]["is"] == "ok" and found["host's files"]["is"] == "ok"
    assert list(folder.iterdir()) == []
