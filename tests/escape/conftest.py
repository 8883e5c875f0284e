# SPDX-License-Identifier: Apache-2.0
"""A sandbox to break out of."""

import platform
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "integration"))

# pylint: disable=wrong-import-position,unused-import
from host import _host_makes_sandboxes  # noqa: E402,F401
from hutchd import Daemon  # noqa: E402
from user_daemon import UserDaemon  # noqa: E402

DAEMONS = {"root's": Daemon, "a user's": UserDaemon, "a user's with subordinate ids": lambda: UserDaemon(1)}


@pytest.fixture(scope="session", autouse=True)
def _numbers_of_calls_are_right():
    if platform.machine() != "x86_64":
        pytest.skip("the attacks know the system calls of x86-64 only")


@pytest.fixture(scope="session", name="daemon", params=DAEMONS)
def start_daemon(request):
    daemon = DAEMONS[request.param]()
    daemon.begin()
    daemon.has_users = "uid-ranges" in daemon.info().runtimes[0].features
    yield daemon
    daemon.finish()


@pytest.fixture(scope="session", name="capable")
def make_capable_sandbox(daemon):
    """One whose root has all that root can have. Of a daemon whose sandboxes have a root."""
    names = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "NET_BIND_SERVICE", "SETGID", "SETUID"]
    return daemon.ready(capabilities=names)


@pytest.fixture(scope="session", name="sandbox")
def make_sandbox(daemon):
    return daemon.ready()
