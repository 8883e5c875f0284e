# SPDX-License-Identifier: Apache-2.0
"""Where an ordinary user's daemon listens who has no XDG_RUNTIME_DIR: after su, in containers, in CI."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hutchd import BUILD, FOLDER_PREFIX, LIMIT, ROOT
from user_daemon import UID

SHARED = Path(f"/tmp/hutch-{UID}")

# Hides the sessions of the host, makes one for the user where @session is not empty, and becomes the user.
BEGIN = """
uid=$1 session=$2; shift 2
mount -t tmpfs -o mode=755 none /run && mkdir /run/user || exit
[ -z "$session" ] || install -d -m 0700 -o "$uid" -g "$uid" "/run/user/$uid" || exit
exec setpriv --reuid "$uid" --regid "$uid" --clear-groups -- "$@"
"""


class User:
    """Somebody with a home and nothing else."""

    def __init__(self):
        self.home = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
        os.chown(self.home, UID, UID)
        python = f"{Path(sys.executable).parent}:{BUILD}"
        self.env = {"HOME": str(self.home), "PATH": f"{python}:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8"}
        self.env["PYTHONPATH"] = str(ROOT / "clients/python/src")

    def shell(self, script: str, session: bool = False, **env: str) -> subprocess.CompletedProcess:
        """Runs a script as the user, with a session's folder or without one."""
        wrapper = ["unshare", "--mount", "--propagation", "private", "sh", "-c", BEGIN, "sh"]
        return subprocess.run(
            [*wrapper, str(UID), "yes" if session else "", "bash", "-c", script],
            env=self.env | env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def close(self) -> None:
        if SHARED.is_dir() and SHARED.stat().st_uid == UID:
            self.shell("hutch daemon stop")
        if SHARED.is_dir() and not SHARED.is_symlink():
            shutil.rmtree(SHARED)
        else:
            SHARED.unlink(missing_ok=True)
        shutil.rmtree(self.home)


@pytest.fixture(name="user")
def make_user():
    user = User()
    yield user
    user.close()


# What a user does first. The daemon is started by the first of them.
FIRST_MINUTE = """
set -e
trap 'hutch daemon stop >&2' EXIT
{first}
hutch run -- echo from the shell
hutch doctor -o json >doctor.json || true
"""


def python_of_the_readme() -> str:
    [code] = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    return code


@pytest.mark.rules("CONN-001", "CONN-010")
@pytest.mark.parametrize("runtime_folder", [None, "", "relative", "/"], ids=["unset", "empty", "relative", "roots"])
def test_a_user_without_a_runtime_folder_has_a_daemon(user, runtime_folder):
    env = {} if runtime_folder is None else {"XDG_RUNTIME_DIR": runtime_folder}
    script = FIRST_MINUTE.format(first="true").replace("doctor.json", "$HOME/doctor.json")
    ran = user.shell(script, **env)
    assert (ran.returncode, ran.stdout) == (0, "from the shell\n"), ran.stderr
    assert f"{SHARED}/hutchd.sock" in ran.stderr
    status = SHARED.lstat()
    assert (status.st_uid, status.st_mode & 0o7777) == (UID, 0o700)
    assert f"{SHARED}/hutchd.sock" in (user.home / "doctor.json").read_text(encoding="utf-8")


def test_a_program_of_such_a_user_finds_and_starts_the_daemon(user):
    (user.home / "first.py").write_text(python_of_the_readme(), encoding="utf-8")
    script = FIRST_MINUTE.format(first="python3 $HOME/first.py").replace("doctor.json", "/dev/null")
    ran = user.shell(script)
    assert (ran.returncode, ran.stdout) == (0, "42\n\nfrom the shell\n"), ran.stderr
    assert "started a daemon" not in ran.stderr  # hutch found the one that Python has started


@pytest.mark.rules("CONN-001")
def test_the_folder_of_a_session_is_found_without_the_variable(user):
    script = 'set -e; hutch run -- echo one; test -S "/run/user/$UID/hutch/hutchd.sock"; hutch daemon stop'
    ran = user.shell(script, session=True)
    assert ran.returncode == 0 and ran.stdout.startswith("one\n"), ran.stderr
    assert not SHARED.exists()


@contextlib.contextmanager
def somebody_listens():
    """Another user has made the folder first, and waits there for what is meant for the daemon. Tells who came."""
    came = []
    SHARED.mkdir(mode=0o755)
    SHARED.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(SHARED / "hutchd.sock"))
        (SHARED / "hutchd.sock").chmod(0o777)
        server.listen()
        server.setblocking(False)
        yield came
        with contextlib.suppress(BlockingIOError):
            while True:
                came.append(server.accept())


@pytest.mark.rules("CONN-010")
@pytest.mark.parametrize(
    "command",
    [
        "hutch run -- echo never",
        "hutch daemon status",
        "hutch daemon stop",
        "hutchd",
        "python3 -c 'import hutch; hutch.Client().run_shell(\"echo never\")'",
    ],
)
def test_a_folder_of_somebody_elses_is_refused(user, command):
    with somebody_listens() as came:
        ran = user.shell(command)
    assert ran.returncode != 0 and ran.stdout == ""
    assert f"{SHARED} is no folder of this user's alone (owner 0, mode 0755)" in ran.stderr
    assert "set XDG_RUNTIME_DIR" in ran.stderr
    assert came == []
    assert sorted(SHARED.iterdir()) == [SHARED / "hutchd.sock"]
