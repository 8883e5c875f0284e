# SPDX-License-Identifier: Apache-2.0
"""Disks that take their time, or fail: nobody hears of what the machine could still forget."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from hutchd import BUILD, LIMIT, Daemon, state_name, wait_until

MODULE = BUILD / "tests/integration/held-disk.so"


class Disk:
    """What the daemon's store is on."""

    def __init__(self, folder):
        self.folder = folder

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    @contextlib.contextmanager
    def held(self):
        """It takes nothing."""
        (self.folder / "held").unlink(missing_ok=True)
        (self.folder / "hold").touch()
        try:
            yield
        finally:
            (self.folder / "hold").unlink()

    def wait_until_held(self) -> None:
        """Somebody waits for it."""
        wait_until(lambda: self.has("held"))

    def fail(self, fails: bool = True) -> None:
        if fails:
            (self.folder / "fail").touch()
        else:
            (self.folder / "fail").unlink()


class HeldDaemon(Daemon):
    """One whose store is on @disk."""

    def __init__(self, disk: Disk):
        super().__init__()
        self.disk = disk

    def spawn(self, env: dict | None = None, **options) -> None:
        super().spawn(env=(env or {}) | {"LD_PRELOAD": str(MODULE), "HUTCH_DISK": str(self.disk.folder)}, **options)


@pytest.fixture(name="disk")
def make_disk(tmp_path):
    return Disk(tmp_path)


@pytest.fixture(name="daemon")
def start_daemon_on_it(disk):
    daemon = HeldDaemon(disk)
    daemon.begin()
    yield daemon
    daemon.finish()


@pytest.fixture(name="others")
def make_threads():
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.mark.rules("EVENT-001")
def test_a_command_runs_and_nobody_hears_of_it_before_the_disk_has_it(daemon, disk, others):
    sandbox = daemon.ready()
    with disk.held():
        answer = others.submit(daemon.run, sandbox, "touch", "/workspace/mark")
        disk.wait_until_held()
        wait_until((daemon.sandbox_folder(sandbox) / "fs/workspace/mark").exists)
        assert not answer.done()
    assert answer.result(LIMIT).exec.result.exit_code == 0


def test_nobody_hears_of_a_sandbox_before_the_disk_has_it(daemon, disk, others):
    with disk.held():
        answer = others.submit(daemon.create, "sb-new")
        disk.wait_until_held()
        assert not answer.done()
    assert answer.result(LIMIT).id == "sb-new"
    daemon.wait("sb-new", "READY")


def test_what_nobody_asks_about_is_on_the_disk_before_long(daemon, disk):
    sandbox = daemon.ready()
    with disk.held():
        daemon.kill_keepers(sandbox)
        disk.wait_until_held()
    daemon.wait(sandbox, "FAILED")


def test_a_slow_disk_is_told(daemon, disk, others):
    with disk.held():
        answer = others.submit(daemon.create, "sb-new")
        disk.wait_until_held()
        time.sleep(1.5)
    answer.result(LIMIT)
    wait_until(lambda: 'msg="the disk is slow, and all had to wait for it" milliseconds=' in daemon.log())


def test_a_disk_that_fails_ends_the_daemon_and_the_next_one_goes_on(daemon, disk, others):
    sandbox = daemon.ready()
    keeper = daemon.keeper(sandbox)
    disk.fail()
    answer = others.submit(daemon.run, sandbox, "sh", "-c", "echo once >> /workspace/times")
    with pytest.raises(grpc.RpcError) as failed:
        answer.result(LIMIT)
    assert failed.value.code() == grpc.StatusCode.UNAVAILABLE
    assert daemon.ended() == 1
    assert "the disk did not take what was written" in daemon.log()

    disk.fail(False)
    daemon.begin()
    assert daemon.keeper(sandbox) == keeper
    assert state_name(daemon.get(sandbox)) == "READY"
    assert daemon.shell(sandbox, "cat /workspace/times") == "once\n"
