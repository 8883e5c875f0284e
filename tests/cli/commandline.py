# SPDX-License-Identifier: Apache-2.0
"""hutch as a program: with pipes, and on a terminal."""

import contextlib
import errno
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import yaml

sys.path.append(str(Path(__file__).resolve().parents[1] / "integration"))

# pylint: disable=wrong-import-position
from hutchd import BUILD, LIMIT, status_of  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]

ENDINGS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]

# What the tests themselves are to ignore, as under nohup, is not for hutch: unlike that, this ends with an exec.
for ending in ENDINGS:
    if signal.getsignal(ending) == signal.SIG_IGN:
        signal.signal(ending, lambda *_: None)

BELOW = [*(("exec", name) for name in ("list", "ls", "get", "cancel")), ("daemon", "status")]


class Hutch:
    """The command line with one daemon's socket, or with the user's own."""

    program = BUILD / "hutch"

    def __init__(self, socket: Path | None = None, **environment: str):
        self.env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        if socket:
            self.env["HUTCH_SOCKET"] = str(socket)
        self.env |= {"LANG": "C.UTF-8"} | environment

    def start(self, *arguments: str, wrapper: tuple[str, ...] = (), **options) -> subprocess.Popen:
        """Starts it in a process group of its own."""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        return subprocess.Popen([*wrapper, self.program, *arguments], env=self.env, process_group=0, **options)

    def __call__(self, *arguments: str, stdin: bytes = b"", **options) -> "Ended":
        """Runs it to its end, with @stdin as its stdin."""
        process = self.start(*arguments, **{"stdin": subprocess.PIPE} | options)
        try:
            stdout, stderr = process.communicate(stdin, timeout=LIMIT)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
        return Ended(process.returncode, stdout, stderr)

    def ok(self, *arguments: str, **options) -> str:
        """What it prints; it must end well and have nothing to complain about."""
        ended = self(*arguments, **options)
        assert (ended.code, ended.err) == (0, ""), f"{arguments}: {ended}"
        return ended.out

    def json(self, *arguments: str):
        return json.loads(self.ok(*with_output("json", arguments)))

    def yaml(self, *arguments: str):
        return yaml.safe_load(self.ok(*with_output("yaml", arguments)))

    def refused(self, *arguments: str, code: int = 1, **options) -> str:
        """What it complains about, in one line, with that exit code."""
        ended = self(*arguments, **options)
        assert (ended.code, ended.out) == (code, ""), ended
        assert re.fullmatch(r"hutch: .+\n(  .+\n)*", ended.err), ended.err
        return ended.err

    def terminal(self, *arguments: str, rows: int = 24, columns: int = 80) -> "Terminal":
        return Terminal([str(self.program), *arguments], self.env, rows, columns)


def with_output(form: str, arguments: tuple[str, ...]) -> list[str]:
    """@arguments with --output behind the command's name, where it is not taken for an argument of a program."""
    words = 2 if arguments[:2] in BELOW else 1
    return [*arguments[:words], "--output", form, *arguments[words:]]


class Ended:
    """How it ended, and what it printed."""

    def __init__(self, code: int, stdout: bytes | None, stderr: bytes | None):
        self.code = code
        self.bytes = stdout or b""
        self.out = self.bytes.decode(errors="replace")
        self.err = (stderr or b"").decode(errors="replace")

    def __repr__(self) -> str:
        return f"exit {self.code}\n{self.out}\n{self.err}"


class Terminal:
    """A program on a terminal of its own, with somebody who reads and types."""

    def __init__(self, command: list[str], env: dict[str, str], rows: int, columns: int):
        self.seen = ""
        self.code: int | None = None
        ours, theirs = pty.openpty()
        self.fd = ours
        self.resize(rows, columns)
        self.before = termios.tcgetattr(ours)
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={"TERM": "xterm-256color"} | env,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.fd >= 0:
            os.close(self.fd)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def expect(self, pattern: str, limit: float = LIMIT) -> re.Match:
        """Reads until @pattern was printed, and forgets what came up to it."""
        end = time.monotonic() + limit
        while not (found := re.search(pattern, self.seen)):
            left = end - time.monotonic()
            assert left > 0, f"{pattern!r} did not come, but {self.seen!r}"
            if select.select([self.fd], [], [], left)[0]:
                assert self.read(), f"it ended before {pattern!r} came, with {self.seen!r}"
        self.seen = self.seen[found.end() :]
        return found

    def read(self) -> bool:
        try:
            data = os.read(self.fd, 65536)
        except OSError as error:
            if error.errno != errno.EIO:  # nobody has it open any more
                raise
            data = b""
        self.seen += data.decode(errors="replace")
        return bool(data)

    def ended(self) -> int:
        """Reads to the end. Returns the exit code; all that was printed is in @seen."""
        end = time.monotonic() + LIMIT
        while self.process.poll() is None:
            assert time.monotonic() < end, f"it does not end: {self.seen!r}"
            if select.select([self.fd], [], [], 0.05)[0] and not self.read():
                break
        self.process.wait(LIMIT)
        while select.select([self.fd], [], [], 0)[0] and self.read():
            pass
        return self.process.returncode

    def hang_up(self) -> None:
        """Closes the terminal, as its window does."""
        os.close(self.fd)
        self.fd = -1

    def is_restored(self) -> bool:
        return termios.tcgetattr(self.fd) == self.before


def end_group(process: subprocess.Popen, number: int = signal.SIGINT) -> None:
    """What Ctrl-C does."""
    os.killpg(process.pid, number)


def hears_signals(process: subprocess.Popen) -> bool:
    """Whether it reads signals by now, instead of dying of them."""
    return bool(int(status_of(process.pid, "SigBlk"), 16) >> (signal.SIGINT - 1) & 1)


def has_heard(process: subprocess.Popen, number: int = signal.SIGINT) -> bool:
    """Whether it has read a signal that was sent to it: until then, another of the same is lost."""
    return not int(status_of(process.pid, "ShdPnd"), 16) >> (number - 1) & 1
