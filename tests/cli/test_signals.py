# SPDX-License-Identifier: Apache-2.0
"""Whatever ends `hutch run`, its sandbox is gone afterwards."""

import os
import select
import signal
import socket
import time

import pytest
from commandline import ENDINGS, LIMIT, end_group, has_heard, hears_signals
from host import PATIENCE
from hutchd import status_of, wait_until


def ended(process) -> tuple[int, bytes, bytes]:
    out, err = process.communicate(timeout=LIMIT)
    return process.returncode, out, err


@pytest.mark.parametrize("number", ENDINGS, ids=lambda number: number.name)
def test_a_signal_is_passed_on_and_the_commands_end_is_ours(hutch, daemon, number):
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo got; exit 9' {name}; echo up; while :; do sleep 0.1; done"
    running = hutch.start("run", "--name", f"signal-{name}", "sh", "-c", script)
    assert running.stdout.readline() == b"up\n"
    end_group(running, number)
    assert ended(running) == (9, b"got\n", b"")
    daemon.wait(f"signal-{name}", "DELETED")


@pytest.mark.parametrize("number", ENDINGS, ids=lambda number: number.name)
def test_a_command_that_does_not_mind_dies_of_it(hutch, daemon, number):
    running = hutch.start("run", "--name", f"dies-{number.name}", "sh", "-c", "echo up; exec sleep 600")
    assert running.stdout.readline() == b"up\n"
    end_group(running, number)
    assert ended(running)[0] == 128 + number
    daemon.wait(f"dies-{number.name}", "DELETED")


@pytest.mark.parametrize("number", ENDINGS, ids=lambda number: number.name)
def test_a_signal_that_hutch_was_told_to_ignore_is_nobodys(hutch, sandbox, number):
    """As nohup does it, and a shell that starts something in the background."""
    ignoring = ("env", f"--ignore-signal={number.name}")
    script = "echo up; read line; echo $line"
    running = hutch.start("exec", "-i", sandbox, "sh", "-c", script, stdin=-1, wrapper=ignoring)
    assert running.stdout.readline() == b"up\n"
    end_group(running, number)
    end_group(running, number)
    out, err = running.communicate(b"still here\n", timeout=LIMIT)
    assert (running.returncode, out, err) == (0, b"still here\n", b"")


def test_the_second_signal_gives_up_on_a_command_that_ignores_them(hutch, daemon):
    running = hutch.start("run", "--name", "ignores-1", "sh", "-c", "trap '' INT; echo up; while :; do sleep 0.1; done")
    assert running.stdout.readline() == b"up\n"
    end_group(running)
    wait_until(lambda: has_heard(running))
    time.sleep(0.5)
    assert running.poll() is None
    end_group(running)
    assert ended(running) == (130, b"", b"")
    daemon.wait("ignores-1", "DELETED")


def test_patience_ends_by_itself(hutch, daemon):
    script = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    running = hutch.start("run", "--name", "ignores-2", "sh", "-c", script)
    assert running.stdout.readline() == b"up\n"
    started = time.monotonic()
    running.terminate()
    assert ended(running)[0] == 143
    assert 9 < time.monotonic() - started < 30 * PATIENCE
    daemon.wait("ignores-2", "DELETED")


@pytest.mark.parametrize("after", [0, 0.001, 0.002, 0.004, 0.006, 0.008, 0.012, 0.016, 0.025, 0.05])
def test_ctrl_c_at_any_moment_leaves_nothing(own, after):
    daemon, hutch = own
    for _ in range(8):
        running = hutch.start("run", "sleep", "600")
        time.sleep(after)
        end_group(running)
        code, out, err = ended(running)
        assert (out, err) == (b"", b"") and code in (-signal.SIGINT, 130)
    wait_until(lambda: daemon.ids() == [])


def test_ctrl_c_before_the_daemon_answers_waits_for_it_and_deletes(own):
    daemon, hutch = own
    daemon.signal(signal.SIGSTOP)
    running = hutch.start("run", "--name", "slow-create", "sleep", "600")
    wait_until(lambda: hears_signals(running))
    end_group(running)
    time.sleep(0.5)
    assert running.poll() is None
    daemon.signal(signal.SIGCONT)
    assert ended(running) == (130, b"", b"")
    daemon.wait("slow-create", "DELETED")


def test_a_second_ctrl_c_gives_up_on_a_daemon_that_does_not_answer(own):
    daemon, hutch = own
    daemon.signal(signal.SIGSTOP)
    running = hutch.start("run", "sleep", "600")
    wait_until(lambda: hears_signals(running))
    end_group(running)
    wait_until(lambda: has_heard(running))
    end_group(running)
    code, _, err = ended(running)
    daemon.signal(signal.SIGCONT)
    assert code == 130 and b"gave up" in err and b"hutch list" in err
    time.sleep(1)  # the daemon may still make what was asked for; the end of the test looks for it


def test_ctrl_c_while_it_deletes_does_not_keep_the_sandbox(own):
    """The command ends while hutch is stopped, and hutch goes on when the daemon is: it finds the end, and waits for
    the daemon to delete."""
    daemon, hutch = own
    script = "echo up; until [ -e /tmp/go ]; do sleep 0.05; done; exit 3"
    running = hutch.start("run", "--name", "slow-delete", "sh", "-c", script)
    assert running.stdout.readline() == b"up\n"
    running.send_signal(signal.SIGSTOP)
    daemon.run("slow-delete", "touch", "/tmp/go")
    wait_until(lambda: daemon.get("slow-delete").active_execs == 0)
    daemon.get("slow-delete")  # by the answer to this one hutch was told, too
    daemon.signal(signal.SIGSTOP)
    running.send_signal(signal.SIGCONT)
    wait_until(lambda: status_of(running.pid, "Threads") == "2")  # one waits for the daemon, one for signals
    end_group(running)
    wait_until(lambda: has_heard(running))
    assert running.poll() is None
    daemon.signal(signal.SIGCONT)
    assert ended(running) == (3, b"", b"")
    daemon.wait("slow-delete", "DELETED")


def test_a_blocked_reader_does_not_keep_it_from_hearing(hutch, daemon):
    read, write = os.pipe()
    running = hutch.start("run", "--name", "blocked-1", "yes", stdout=write)
    wait_until(lambda: not select.select([], [write], [], 0)[1])  # nobody reads: it is full
    end_group(running)
    assert ended(running)[0] == 130
    daemon.wait("blocked-1", "DELETED")
    os.close(read)
    os.close(write)


def test_a_killed_hutch_leaves_nothing(hutch, daemon):
    """Nobody can clean up after SIGKILL but the daemon."""
    running = hutch.start("run", "--name", "killed-1", "sh", "-c", "echo up; exec sleep 600")
    running.stdout.readline()
    running.kill()
    running.communicate()
    wait_until(lambda: daemon.get("killed-1").active_execs == 0)
    spec = daemon.get("killed-1").spec
    assert (spec.idle_ttl.seconds, spec.idle_action, spec.lifetime_action) == (60, 2, 2)
    daemon.remove("killed-1")

    running = hutch.start("run", "--name", "killed-2", "--idle-ttl", "200ms", "sh", "-c", "echo up; exec sleep 600")
    running.stdout.readline()
    running.kill()
    running.communicate()
    daemon.wait("killed-2", "DELETED")


def test_what_is_kept_goes_on_when_hutch_is_killed(hutch, daemon):
    running = hutch.start("run", "--keep", "--name", "killed-3", "sh", "-c", "echo up; exec sleep 600")
    running.stdout.readline()
    running.kill()
    running.communicate()
    time.sleep(0.5)
    assert daemon.get("killed-3").active_execs == 1
    daemon.remove("killed-3")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_exec_passes_signals_on_too(hutch, daemon, sandbox, number):
    running = hutch.start("exec", sandbox, "sh", "-c", "echo up; exec sleep 600")
    assert running.stdout.readline() == b"up\n"
    end_group(running, number)
    assert ended(running)[0] == 128 + number
    wait_until(lambda: daemon.get(sandbox).active_execs == 0)


def test_an_exec_that_is_given_up_is_cancelled(hutch, daemon, sandbox):
    running = hutch.start("exec", sandbox, "sh", "-c", "trap '' INT; echo up; while :; do sleep 0.1; done")
    assert running.stdout.readline() == b"up\n"
    end_group(running)
    wait_until(lambda: has_heard(running))
    end_group(running)
    assert ended(running)[0] == 130
    wait_until(lambda: daemon.get(sandbox).active_execs == 0)


def test_an_exec_whose_reader_goes_away_is_cancelled_before_hutch_ends(own):
    daemon, hutch = own
    sandbox = daemon.ready()
    running = hutch.start("exec", sandbox, "yes")
    running.stdout.read(100_000)
    daemon.signal(signal.SIGSTOP)
    running.stdout.close()
    time.sleep(0.5)
    assert running.poll() is None
    daemon.signal(signal.SIGCONT)
    assert running.wait(LIMIT) == -signal.SIGPIPE
    running.stderr.close()
    wait_until(lambda: daemon.get(sandbox).active_execs == 0)


def test_ctrl_c_is_heard_when_another_took_the_daemons_place_and_does_not_answer(own):
    daemon, hutch = own
    running = hutch.start("run", "--name", "deserted-1", "sh", "-c", "echo up; exec sleep 600")
    assert running.stdout.readline() == b"up\n"
    with socket.socket(socket.AF_UNIX) as silent:
        other = daemon.folder / "other.sock"
        silent.bind(str(other))
        silent.listen()
        other.rename(daemon.socket)
        daemon.kill()
        assert b"closed the connection" in running.stderr.readline()
        end_group(running)
        wait_until(lambda: has_heard(running))
        end_group(running)
        code, _, err = ended(running)
    assert code == 130 and b"gave up" in err and b"hutch delete deserted-1" in err
    daemon.begin()
    daemon.remove("deserted-1")


def test_a_daemon_that_is_killed_is_told(own):
    daemon, hutch = own
    running = hutch.start("run", "sh", "-c", "echo up; exec sleep 600")
    assert running.stdout.readline() == b"up\n"
    daemon.restart(kill=True)
    code, _, err = ended(running)
    assert code == 125 and err.startswith(b"hutch: ")
    wait_until(lambda: daemon.ids() == [])
