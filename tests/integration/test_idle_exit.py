# SPDX-License-Identifier: Apache-2.0
"""The daemon that ends by itself when nobody needs it."""

import signal
import socket
import time

import grpc
import pytest
from hutchd import Client, Daemon

IDLE = 0.4  # seconds, of the daemons here


@pytest.fixture(name="lonely")
def start_lonely(start_daemon):
    """A daemon to which nobody is connected."""
    daemon = start_daemon({"idle_exit": f"{IDLE}s"})
    daemon.close()
    return daemon


def stays(daemon: Daemon, periods: float = 2.5) -> bool:
    """Whether it is still there after so many times idle_exit."""
    time.sleep(periods * IDLE)
    return daemon.process.poll() is None


def call(daemon: Daemon) -> None:
    """One call, on a connection of its own."""
    client = Client(daemon.socket)
    client.info()
    client.close()


def test_it_ends_in_order_when_it_was_of_no_use_for_that_long(lonely):
    started = time.monotonic()
    assert lonely.ended() == 0
    assert IDLE * 0.95 < time.monotonic() - started < IDLE + 5
    assert lonely.log().splitlines()[-1].endswith("msg=ended") and "level=error" not in lonely.log()
    assert not lonely.socket.exists()


def test_nobody_ever_came(start_daemon):
    daemon = start_daemon()
    daemon.stop_daemon()
    assert daemon.call("--idle-exit", f"{IDLE}s").returncode == 0


def test_without_being_told_it_stays(own_daemon):
    own_daemon.close()
    assert stays(own_daemon)
    own_daemon.connect()


def test_the_flag_comes_before_the_configuration(start_daemon):
    daemon = start_daemon({"idle_exit": f"{IDLE}s"})
    daemon.stop_daemon()
    daemon.begin(arguments=("--idle-exit", "0"))
    daemon.close()
    daemon.signal(signal.SIGHUP)  # the flag still comes first
    assert stays(daemon)
    daemon.connect()


@pytest.mark.parametrize("value", ["soon", "-1s", ""])
def test_a_flag_that_is_no_duration(own_daemon, value):
    ran = own_daemon.call("--check-config", "--idle-exit", value)
    assert ran.returncode == 1 and "idle_exit" in ran.stderr


def test_sighup_sets_it(start_daemon):
    daemon = start_daemon({"idle_exit": "1h"})
    daemon.close()
    daemon.write_config({"idle_exit": f"{IDLE}s"})
    daemon.signal(signal.SIGHUP)
    assert daemon.ended() == 0


def test_it_stays_with_a_sandbox_until_that_is_deleted(start_daemon):
    daemon = start_daemon({"idle_exit": f"{IDLE}s"})
    sandbox_id = daemon.ready()
    daemon.close()
    assert stays(daemon)
    daemon.connect()
    daemon.stop(sandbox_id, 0)
    daemon.wait(sandbox_id, "STOPPED")
    daemon.close()
    assert stays(daemon)
    daemon.connect()
    daemon.delete(sandbox_id)
    daemon.close()
    assert daemon.ended() == 0
    assert not daemon.keepers() and not daemon.sandbox_folder(sandbox_id).exists()


def test_it_stays_with_a_watcher_until_that_leaves(lonely):
    lonely.connect()
    watch = lonely.watch()
    assert stays(lonely)
    watch.close()
    lonely.close()
    assert lonely.ended() == 0


def test_it_stays_with_a_connection_that_says_nothing(lonely):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(lonely.socket))
        assert stays(lonely)
    assert lonely.ended() == 0


def test_a_call_begins_the_time_anew(lonely):
    for _ in range(6):
        assert stays(lonely, 0.5)
        call(lonely)
    started = time.monotonic()
    assert lonely.ended() == 0
    assert time.monotonic() - started > IDLE * 0.95


def test_who_comes_as_it_ends_is_served_or_can_try_again(start_daemon):
    """What was answered is there; what was not was refused, and the next daemon can be started and asked at once."""
    daemon = start_daemon({"idle_exit": "50ms"})
    outcomes = {"served": 0, "refused": 0}
    pause = 0.05  # before somebody comes: longer after one was served, shorter after one was refused
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
