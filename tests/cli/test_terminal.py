# SPDX-License-Identifier: Apache-2.0
"""hutch on a real terminal."""

import re
import shutil
import signal

import pytest
from hutchd import LIMIT, wait_until


def test_a_person_gets_a_terminal_and_a_shell_with_line_editing(hutch):
    with hutch.terminal("run", "-e", "PS1=P> ", "bash", "--norc") as terminal:
        terminal.expect("P> ")
        terminal.type("tty\r")
        terminal.expect(r"/dev/pts/\d+")
        terminal.expect("P> ")
        terminal.type("echo wronx\x7fg\x01\x1b[C\x05 end\r")  # backspace, Ctrl-A, right, Ctrl-E
        terminal.expect("[\r\n]wrong end\r\n")
        terminal.expect("P> ")
        terminal.type("\x1b[A")  # the line before
        terminal.expect("echo wrong end")
        terminal.type("\r")
        terminal.expect("[\r\n]wrong end\r\n")
        terminal.type("exit 6\r")
        assert terminal.ended() == 6
        assert terminal.is_restored()


def test_ctrl_c_is_for_the_command(hutch):
    with hutch.terminal("run", "-e", "PS1=P> ", "bash", "--norc") as terminal:
        terminal.expect("P> ")
        terminal.type("sh -c 'echo started; exec sleep 600'\r")
        terminal.expect("[\r\n]started\r\n")
        terminal.type("\x03")
        terminal.expect(r"\^C")
        terminal.expect("P> ")
        terminal.type("echo code $?\r")
        terminal.expect("code 130\r\n")
        terminal.expect("P> ")
        terminal.type("\x04")  # Ctrl-D
        assert terminal.ended() == 0


def test_the_terminal_has_our_size_and_follows_it(hutch):
    with hutch.terminal("run", "-e", "PS1=P> ", "bash", "--norc", rows=30, columns=100) as terminal:
        terminal.expect("P> ")
        terminal.type("stty size\r")
        terminal.expect("30 100\r\n")
        terminal.expect("P> ")
        terminal.type("trap 'stty size' WINCH; echo trapped\r")
        terminal.expect("[\r\n]trapped\r\n")
        terminal.expect("P> ")
        terminal.resize(41, 123)
        terminal.expect("41 123\r\n")
        terminal.type("exit\r")
        terminal.ended()


def test_the_terminals_type_goes_inside(hutch):
    hutch.env["TERM"] = "vt100"
    with hutch.terminal("run", "sh", "-c", "echo $TERM") as terminal:
        terminal.expect("vt100\r\n")
        assert terminal.ended() == 0
    with hutch.terminal("run", "-e", "TERM=dumb", "sh", "-c", "echo $TERM") as terminal:
        terminal.expect("dumb\r\n")
        assert terminal.ended() == 0


def test_no_tty_gives_none(hutch):
    with hutch.terminal("run", "-T", "sh", "-c", "tty; read line; echo got $line") as terminal:
        terminal.expect("not a tty\r\n")
        terminal.type("typed\n")
        terminal.expect("got typed\r\n")
        assert terminal.ended() == 0


def test_ctrl_c_without_a_terminal_inside_ends_it(hutch, daemon):
    with hutch.terminal("run", "--name", "ctrl-c-1", "-T", "sh", "-c", "echo up; exec sleep 600") as terminal:
        terminal.expect("up\r\n")
        terminal.type("\x03")
        assert terminal.ended() == 130
    daemon.wait("ctrl-c-1", "DELETED")


def test_a_terminal_that_is_closed_takes_the_sandbox_with_it(hutch, daemon):
    with hutch.terminal("run", "--name", "closed-1", "-e", "PS1=P> ", "bash", "--norc") as terminal:
        terminal.expect("P> ")
        terminal.hang_up()
        terminal.process.wait(LIMIT)
    daemon.wait("closed-1", "DELETED")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_restores_the_terminal(hutch, daemon, number):
    with hutch.terminal("run", "--name", f"restored-{number.name}", "sh", "-c", "echo up; exec sleep 600") as terminal:
        terminal.expect("up\r\n")
        assert not terminal.is_restored()
        terminal.process.send_signal(number)
        assert terminal.ended() == 128 + number
        assert terminal.is_restored()
    daemon.wait(f"restored-{number.name}", "DELETED")


def test_the_terminal_is_restored_when_the_daemon_dies(own):
    daemon, hutch = own
    with hutch.terminal("run", "sh", "-c", "echo up; exec sleep 600") as terminal:
        terminal.expect("up\r\n")
        daemon.restart(kill=True)
        assert terminal.ended() == 125
        assert terminal.is_restored()
        assert "hutch: " in terminal.seen
    wait_until(lambda: daemon.ids() == [])


def test_shell_and_exec_on_a_terminal(hutch, sandbox):
    with hutch.terminal("shell", "-e", "PS1=P> ", sandbox) as terminal:
        terminal.expect(r"[P$#]")
        terminal.type("echo in $((40+2)); exit 3\r")
        terminal.expect("in 42\r\n")
        assert terminal.ended() == 3
    with hutch.terminal("exec", sandbox, "sh", "-c", "tty; stty size") as terminal:
        terminal.expect(r"/dev/pts/\d+\r\n24 80\r\n")
        assert terminal.ended() == 0


@pytest.mark.skipif(not shutil.which("vi"), reason="there is no vi on this machine")
def test_vi_works_inside(hutch, sandbox):
    with hutch.terminal("exec", sandbox, "vi", "-u", "NONE", "/workspace/file") as terminal:
        terminal.expect("~")
        terminal.type("ihello\x1b")
        terminal.expect("hello")
        terminal.type(":wq\r")
        assert terminal.ended() == 0
    assert hutch.ok("exec", sandbox, "cat", "/workspace/file") == "hello\n"


@pytest.mark.skipif(not shutil.which("top"), reason="there is no top on this machine")
def test_top_works_inside(hutch, sandbox):
    with hutch.terminal("exec", sandbox, "top") as terminal:
        terminal.expect("PID")
        terminal.type("q")
        assert terminal.ended() == 0


def table_on_terminal(hutch, *arguments: str) -> str:
    with hutch.terminal(*arguments) as terminal:
        assert terminal.ended() == 0
        return terminal.seen


def test_tables_have_colours_on_a_terminal_only(hutch, sandbox):
    coloured = table_on_terminal(hutch, "list")
    assert re.search("\x1b\\[32mREADY\x1b\\[0m", coloured) and sandbox in coloured
    assert "\x1b" not in hutch.ok("list")
    assert "\x1b" not in table_on_terminal(hutch, "list", "-o", "json")
    hutch.env["NO_COLOR"] = "1"
    assert "\x1b" not in table_on_terminal(hutch, "list")
    hutch.env["NO_COLOR"] = ""
    assert "\x1b" in table_on_terminal(hutch, "list")
    hutch.env["TERM"] = "dumb"
    assert "\x1b" not in table_on_terminal(hutch, "list")


def test_in_the_background_it_does_not_stop_for_the_terminal(hutch):
    script = f"set -m; {hutch.program} run -- sh -c 'echo from the background' & wait $!; echo code $?"
    hutch.program = shutil.which("bash")
    with hutch.terminal("-c", script) as terminal:
        terminal.expect("from the background\r\n")
        terminal.expect("code 0\r\n")
        assert terminal.ended() == 0
