# SPDX-License-Identifier: Apache-2.0
"""A daemon for the command line's tests, and the command line."""

import signal
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "integration"))

# pylint: disable=wrong-import-position,unused-import
from commandline import Hutch  # noqa: E402
from host import PATIENCE, _host_makes_sandboxes  # noqa: E402,F401
from hutchd import Daemon, state_name  # noqa: E402

TEST_LIMIT = int(120 * PATIENCE)  # seconds


@pytest.fixture(scope="session", name="daemon")
def start_shared_daemon():
    """A daemon for the tests that do not end it. Limits that this host cannot enforce may be asked for."""
    daemon = Daemon({"sandboxes": {"allow_unenforced_limits": True}})
    daemon.begin()
    yield daemon
    daemon.finish()


@pytest.fixture(name="hutch")
def make_hutch(daemon):
    """The command line with the shared daemon; a test that leaves a sandbox behind fails."""
    before = set(daemon.ids())
    yield Hutch(daemon.socket)
    made = [one for one in daemon.all() if one.id not in before]
    left = [one.id for one in made if state_name(one) != "DELETING"]
    daemon.remove(*(one.id for one in made))
    assert not left, f"sandboxes are left: {left}"


@pytest.fixture(name="sandbox")
def make_sandbox(daemon):
    """The id of a READY sandbox, for one test."""
    sandbox_id = daemon.ready()
    yield sandbox_id
    daemon.remove(sandbox_id)


@pytest.fixture(autouse=True)
def _bounded():
    """Ends a test that hangs."""

    def on_alarm(_number, _frame):
        raise TimeoutError(f"the test takes longer than {TEST_LIMIT} s")

    signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(TEST_LIMIT)
    yield
    signal.alarm(0)


@pytest.fixture(name="own")
def start_own_daemon():
    """A daemon for one test, and the command line with it."""
    daemon = Daemon()
    daemon.begin()
    yield daemon, Hutch(daemon.socket)
    daemon.finish()
