# SPDX-License-Identifier: Apache-2.0
"""The daemon that ends by itself when nobody needs it."""

import signal
import socket
import time

import grpc
import pytest
from host import PATIENCE
from hutchd import Client, Daemon, wait_until

IDLE = 0.4  # seconds, of the daemons here


class IdleDaemon(Daemon):
    """A daemon that ends when it was of no use for @idle seconds, which count from when somebody was connected: before
    that it might be gone."""

    def __init__(self, idle: float = IDLE):
        super().__init__()
        self.idle = idle

    def begin(self, **options) -> "IdleDaemon":
        self.write_config({"idle_exit": "1h"})
        super().begin(**options)
        self.write_config({"idle_exit": f"{self.idle}s"})
        before = self.log().count("configuration read again")
        self.signal(signal.SIGHUP)
        wait_until(lambda: self.log().count("configuration read again") > before)
        return self


@pytest.fixture(name="start_idle")
def make_start_idle():
    """Starts daemons that end with the test, if they have not ended."""
    daemons = []

    def start(idle: float = IDLE) -> IdleDaemon:
        daemons.append(IdleDaemon(idle))
        return daemons[-1].begin()

    yield start
    for daemon in daemons:
        daemon.finish()


@pytest.fixture(name="idle")
def start_idle_daemon(start_idle):
    """A daemon to which one client is connected."""
    return start_idle()


def stays(daemon: Daemon, periods: float = 2.5) -> bool:
    """Whether it is still there after so many times idle_exit."""
    time.sleep(periods * IDLE)
    return daemon.process.poll() is None


def call(daemon: Daemon) -> None:
    """One call, on a connection of its own."""
    client = Client(daemon.socket)
    client.info()
    client.close()


def test_it_ends_in_order_when_it_was_of_no_use_for_that_long(idle):
    started = time.monotonic()
    idle.close()
    assert idle.ended() == 0
    assert time.monotonic() - started > IDLE * 0.95
    assert idle.log().splitlines()[-1].endswith("msg=ended") and "level=error" not in idle.log()
    assert not idle.socket.exists()


def test_nobody_ever_came(start_daemon):
    daemon = start_daemon()
    daemon.stop_daemon()
    assert daemon.call("--idle-exit", f"{IDLE}s").returncode == 0
    daemon.write_config({"idle_exit": f"{IDLE}s"})
    assert daemon.call().returncode == 0
    daemon.write_config({})


def test_without_being_told_it_stays(own_daemon):
    own_daemon.close()
    assert stays(own_daemon)
    own_daemon.connect()


def test_the_flag_comes_before_the_configuration(start_daemon):
    daemon = start_daemon()
    daemon.stop_daemon()
    daemon.write_config({"idle_exit": f"{IDLE}s"})
    daemon.begin(arguments=("--idle-exit", "0"))
    daemon.close()
    daemon.signal(signal.SIGHUP)  # the flag still comes first
    assert stays(daemon)
    daemon.write_config({})
    daemon.connect()


@pytest.mark.parametrize("value", ["soon", "-1s"])
def test_a_flag_that_is_no_duration(own_daemon, value):
    ran = own_daemon.call("--check-config", "--idle-exit", value)
    assert ran.returncode == 1 and "idle_exit" in ran.stderr


def test_sighup_sets_it(start_daemon):
    daemon = start_daemon({"idle_exit": "1h"})
    daemon.close()
    daemon.write_config({"idle_exit": f"{IDLE}s"})
    daemon.signal(signal.SIGHUP)
    assert daemon.ended() == 0
    daemon.write_config({})


def test_it_stays_with_a_sandbox_until_that_is_deleted(idle):
    sandbox_id = idle.ready()
    idle.close()
    assert stays(idle)
    idle.connect()
    idle.stop(sandbox_id, 0)
    idle.wait(sandbox_id, "STOPPED")
    idle.close()
    assert stays(idle)
    idle.connect()
    idle.delete(sandbox_id)
    idle.close()
    assert idle.ended() == 0
    assert not idle.keepers() and not idle.sandbox_folder(sandbox_id).exists()


def test_it_stays_with_a_watcher_until_that_leaves(idle):
    watch = idle.watch()
    assert stays(idle)
    watch.close()
    idle.close()
    assert idle.ended() == 0


def test_it_stays_with_a_connection_that_says_nothing(idle):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(idle.socket))
        idle.close()
        assert stays(idle)
    assert idle.ended() == 0


def test_a_call_begins_the_time_anew(start_idle):
    idle = 2 * PATIENCE  # a third of which passes before the call, and not all of it
    daemon = start_idle(idle)
    daemon.close()
    time.sleep(idle / 3)
    started = time.monotonic()
    call(daemon)
    assert daemon.ended() == 0
    assert time.monotonic() - started > idle * 0.95


def test_who_comes_as_it_ends_is_served_or_can_try_again(start_idle):
    """What was answered is there; what was not was refused, and the next daemon can be started and asked at once."""
    pause = 0.1
    daemon = start_idle(pause)
    outcomes = {"served": 0, "refused": 0}
    # So long it is before somebody comes: longer after one was served, shorter after one was refused.
    for step in range(40):
        daemon.close()
        time.sleep(pause)
        client, sandbox_id = Client(daemon.socket), f"sb-{step}"
        try:
            client.create(sandbox_id)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE, error
            outcomes["refused"] += 1
            pause *= 0.9
            assert daemon.ended() == 0
            daemon.begin()
            assert sandbox_id not in daemon.ids()
        else:
            outcomes["served"] += 1
            pause *= 1.1
            daemon.connect()
            assert sandbox_id in daemon.ids()
            daemon.remove(sandbox_id)
        client.close()
    assert all(outcomes.values()), f"{outcomes}: that tests nothing"
