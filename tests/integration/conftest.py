# SPDX-License-Identifier: Apache-2.0
"""Daemons and sandboxes for the tests."""

import signal
import sys
from pathlib import Path

import pytest
from hutchd import REASONS, SEEN, Daemon

sys.path.append(str(Path(__file__).resolve().parents[1]))

# pylint: disable=wrong-import-position,unused-import
from conformance import pytest_configure, pytest_runtest_makereport, write_result  # noqa: E402,F401
from host import PATIENCE, _host_makes_sandboxes  # noqa: E402,F401
from sanitizers import (  # noqa: E402,F401
    _nothing_for_the_sanitizers,
    _nothing_for_the_sanitizers_at_the_end,
)

TEST_LIMIT = int(120 * PATIENCE)  # seconds; every call has a deadline of its own, this is for what has none


def pytest_sessionfinish() -> None:
    """Every error that a test met counts for its reason."""
    for reason, codes in SEEN.items():
        write_result("errors", "ERR-002", codes == {REASONS.get(reason)}, f"errors/{reason}")


@pytest.fixture(scope="session", name="daemon")
def start_shared_daemon():
    """A daemon for the tests that neither end it nor need a configuration."""
    daemon = Daemon()
    daemon.begin()
    yield daemon
    daemon.finish()


@pytest.fixture(name="start_daemon")
def make_start_daemon():
    """Starts daemons that end with the test: start_daemon({"limits": {"sandboxes": 3}})."""
    daemons = []

    def start(config: dict | None = None) -> Daemon:
        daemons.append(Daemon(config))
        return daemons[-1].begin()

    yield start
    errors = []
    for daemon in daemons:
        try:
            daemon.finish()
        except Exception as error:  # pylint: disable=broad-exception-caught
            errors.append(error)  # the others are to end, too
    if errors:
        raise errors[0]


@pytest.fixture(name="own_daemon")
def start_own_daemon(start_daemon):
    """A daemon for one test, which may do with it what it likes."""
    return start_daemon()


@pytest.fixture(name="sandbox")
def make_sandbox(daemon):
    """The id of a READY sandbox of the shared daemon, for one test."""
    sandbox_id = daemon.ready()
    yield sandbox_id
    daemon.remove(sandbox_id)


@pytest.fixture(scope="module", name="shared_sandbox")
def make_shared_sandbox(daemon):
    """The id of a READY sandbox of the shared daemon, for the tests of a file."""
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
