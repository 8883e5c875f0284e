# SPDX-License-Identifier: Apache-2.0
"""The tests of the Python client.

Those in twins/ are written for hutch.aio and run twice: as they stand, and rewritten for the sync twin by the tool that
makes the twin itself. A test function that is a coroutine runs in a loop of its own."""

import asyncio
import inspect
import os
import secrets
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / path) for path in ("clients/python/src", "clients/python/tools", "clients/python/tests")]
sys.path += [str(ROOT / "tests/integration"), str(ROOT / "tests")]

# pylint: disable=wrong-import-position,unused-import
from host import PATIENCE, _host_makes_sandboxes  # noqa: E402,F401
from hutchd import BUILD, Daemon, RestingDaemon  # noqa: E402
from make_sync import sync_source  # noqa: E402
from remote import Certificates, RemoteDaemon  # noqa: E402
from user_daemon import UserDaemon as OrdinaryDaemon  # noqa: E402

TEST_LIMIT = int(60 * PATIENCE)
OUTCOMES = pytest.StashKey[set[str]]()


# ---- Twins ----


class SyncModule(pytest.Module):
    """A module of twins/ as the sync client sees it."""

    def _getobj(self) -> types.ModuleType:
        module = types.ModuleType(f"sync_{self.path.stem}")
        source = sync_source(self.path.read_text(encoding="utf-8"))
        exec(compile(source, str(self.path), "exec"), module.__dict__)  # pylint: disable=exec-used
        return module


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.parent.name != "twins" or not file_path.match("test_*.py"):
        return None
    name = f"sync-{file_path.name}"
    return SyncModule.from_parent(parent, path=file_path, name=name, nodeid=f"{parent.nodeid}/{name}")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames  # pylint: disable=protected-access
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


# ---- Results for spec/CONFORMANCE.md, of the implementation "python" ----


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rules(*ids): rules of spec/behavior.md that this test checks")
    config.addinivalue_line("markers", "vectors(suite, *rules): runs a case of spec/vectors")


def write_result(suite: str, rule: str, passed: bool, name: str) -> None:
    if folder := os.environ.get("HUTCH_CONFORMANCE_DIR"):
        with open(f"{folder}/python-{suite}.tsv", "a", encoding="utf-8") as file:
            file.write(f"{rule}\t{'pass' if passed else 'fail'}\t{name}\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    outcomes = item.stash.setdefault(OUTCOMES, set())
    outcomes.add(report.outcome)
    if report.when == "teardown" and "skipped" not in outcomes:
        passed = outcomes == {"passed"}
        for mark in item.iter_markers("rules"):
            for rule in mark.args:
                write_result("tests", rule, passed, f"python/{item.parent.name}::{item.name}")
        for mark in item.iter_markers("vectors"):
            suite, case = mark.args[0], item.callspec.params["case"]
            for rule in case["requires"]:
                write_result(suite, rule, passed, f"{suite}/{case['name']}")
    return report


# ---- Daemons ----


@pytest.fixture(scope="session", name="daemon")
def start_daemon():
    """A daemon for all tests that neither end it nor need a configuration."""
    daemon = Daemon()
    daemon.begin()
    yield daemon
    daemon.finish()


@pytest.fixture(scope="session", name="resting_daemon")
def start_resting_daemon():
    """A daemon whose sandboxes fail to start."""
    daemon = RestingDaemon()
    daemon.begin()
    yield daemon
    daemon.wipe()


@pytest.fixture(name="address")
def address_of_daemon(daemon) -> str:
    return f"unix:{daemon.socket}"


@pytest.fixture(scope="session", name="ordinary_daemon")
def start_ordinary_daemon():
    """The daemon of an ordinary user, who has one id, and no cgroup: it enforces no limit of memory and CPU."""
    daemon = OrdinaryDaemon()
    daemon.begin()
    yield daemon
    daemon.wipe()


@pytest.fixture(name="any_address", params=["daemon", "ordinary_daemon"])
def address_of_any_daemon(request) -> str:
    """For what must work wherever the daemon runs."""
    return f"unix:{request.getfixturevalue(request.param).socket}"


@pytest.fixture(name="unique")
def make_unique() -> str:
    """A name that no other test has, nor the same one's twin."""
    return f"py-{secrets.token_hex(4)}"


@pytest.fixture(name="own_daemon")
def start_own_daemon():
    """A daemon for one test, which may do with it what it likes."""
    daemon = Daemon()
    daemon.begin()
    yield daemon
    daemon.finish()


@pytest.fixture(scope="session", name="remote_daemon")
def start_remote_daemon(tmp_path_factory):
    """A daemon that also serves over TCP, to those with a token or a certificate."""
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    listen = certificates.server() | {"client_ca": str(certificates.cert("ca")), "client_certificates": "wanted"}
    daemon = RemoteDaemon(certificates, listen)
    daemon.begin()
    yield daemon
    daemon.finish()


class UserDaemon:
    """The program `hutch` on the path, and where its daemon is, which nobody has started yet."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.socket = folder / "hutchd.sock"
        monkeypatch.setenv("HUTCH_SOCKET", str(self.socket))
        monkeypatch.setenv("HUTCH_STATE", str(folder / "state"))
        monkeypatch.setenv("PATH", f"{BUILD}:{os.environ['PATH']}")

    def stop(self) -> None:
        subprocess.run(["hutch", "daemon", "stop"], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(name="user_daemon")
def find_user_daemon(tmp_path, monkeypatch):
    daemon = UserDaemon(tmp_path, monkeypatch)
    yield daemon
    daemon.stop()


@pytest.fixture(autouse=True)
def _bounded():
    """Ends a test that hangs."""

    def on_alarm(_number, _frame):
        raise TimeoutError(f"the test takes longer than {TEST_LIMIT} s")

    signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(TEST_LIMIT)
    yield
    signal.alarm(0)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    """No test sees the variables and files of whoever runs it."""
    for name in os.environ:
        if name.startswith("HUTCH_") and name not in ("HUTCH_BUILD", "HUTCH_KEEPER", "HUTCH_CONFORMANCE_DIR"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
