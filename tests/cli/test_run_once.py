# SPDX-License-Identifier: Apache-2.0
"""hutch run --once: a command in one call."""

import signal

import pytest
from hutchd import LIMIT, wait_until


def test_once_runs_in_one_call(hutch, daemon):
    before = set(daemon.ids(states=[8]))
    script = "echo $A$PWD; echo err >&2; exit 3"
    ended = hutch("run", "--once", "-e", "A=1", "-w", "/tmp", "--label", "via=once", "--", "sh", "-c", script)
    assert (ended.code, ended.out, ended.err) == (3, "1/tmp\n", "err\n")
    [made] = wait_until(lambda: set(daemon.ids(states=[8], selector="via=once")) - before)
    assert daemon.get(made).effective.profile == "standard"


def test_once_tells_what_limits_and_ends_say(hutch):
    ended = hutch("run", "--once", "--memory", "4g", "--timeout", "200ms", "sleep", "100")
    assert ended.code == 124 and "memory_bytes is" in ended.err and "timeout" in ended.err
    assert "memory_bytes" not in hutch("run", "--once", "--memory", "4g", "--quiet", "true").err
    ended = hutch("run", "--once", "no-such-program")
    assert ended.code == 127 and "no-such-program" in ended.err
    assert hutch("run", "--once", "cat", stdin=b"typed").out == ""


@pytest.mark.parametrize("option", ["--keep", "--name=any", "-i", "-t", "--file=/dev/null", "--user=0", "-v/usr:/x"])
def test_once_takes_only_what_the_call_has(hutch, option):
    ended = hutch("run", "--once", option, "true")
    assert ended.code == 2 and "--once and --" in ended.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_once_ends_with_a_signal(hutch, daemon, number):
    script = "trap '' INT TERM; echo up; sleep 600"
    running = hutch.start("run", "--once", "--label", f"via={number.name}", "sh", "-c", script)
    assert running.stdout.readline() == b"up\n"
    running.send_signal(number)
    assert running.wait(LIMIT) == (-number if number == signal.SIGKILL else 128 + number)
    running.communicate()
    wait_until(lambda: daemon.ids(states=[8], selector=f"via={number.name}"))
