# SPDX-License-Identifier: Apache-2.0
"""The drivers, one for each language, and how they are spoken to (PROTOCOL.md)."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from host import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("HUTCH_BUILD", ROOT / "build/gcc")).resolve()
LIMIT = 60 * PATIENCE  # seconds that a command may take; each has a deadline of its own
BUILD_LIMIT = 300 * PATIENCE  # the first command of a driver that is built when it starts

# How each language's driver is started, from the root of the tree. The first is who the others are compared with.
DRIVERS = {
    "c": [BUILD / "tests/conformance/drivers/c/conformance-driver"],
    "typescript": [ROOT / "tests/conformance/drivers/typescript/run"],
    "python": [sys.executable, ROOT / "tests/conformance/drivers/python/driver.py"],
    "python-sync": [sys.executable, ROOT / "tests/conformance/drivers/python/driver.py", "--sync"],
    "go": [ROOT / "tests/conformance/drivers/go/run"],
}
# Commands that a library has no public function for, with the reason: their cases are not for this language.
WITHOUT: dict[str, dict[str, str]] = {
    "c": {
        "once.run_shell": "a program in C gives the shell as argv",
        "once.run_python": "the same",
        "cancel:exec.run": "a call that waits has a deadline and cannot be cancelled; streams can",
        "cancel:once.run": "the same",
    },
    "python-sync": {
        "cancel:exec.run": "a call that waits has a deadline and cannot be cancelled; streams can",
        "cancel:once.run": "the same",
    },
}


class Answer:
    """What will come of a command."""

    def __init__(self) -> None:
        self.noted = threading.Event()
        self.ended = threading.Event()
        self.line: dict = {}

    def wait_note(self) -> None:
        assert self.noted.wait(LIMIT), "nothing was noted"

    def wait(self, limit: float = LIMIT) -> dict:
        assert self.ended.wait(limit), "there was no answer"
        return self.line


class Driver:
    """A driver that runs."""

    def __init__(self, language: str):
        self.language = language
        self.lock = threading.Lock()
        self.answers: dict[int, Answer] = {}
        self.last_id = 0
        self.home = tempfile.TemporaryDirectory(prefix="hutch-test-")
        self.errors = open(Path(self.home.name, "stderr"), "w+b")  # pylint: disable=consider-using-with
        env = {name: value for name, value in os.environ.items() if not name.startswith("HUTCH_")}
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            DRIVERS[language],
            cwd=ROOT,
            env=env | {"HOME": self.home.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
        )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        """Takes answers until the driver ends; who waits then is told so."""
        for line in self.process.stdout:
            said = json.loads(line)
            with self.lock:
                answer = self.answers[said["id"]]
            if "note" in said:
                answer.noted.set()
                continue
            answer.line = said
            answer.ended.set()
            answer.noted.set()
        with self.lock:
            for answer in self.answers.values():
                if not answer.ended.is_set():
                    answer.line = {"error": {"code": "DRIVER", "reason": "ENDED", "metadata": {"text": self.said()}}}
                    answer.ended.set()
                    answer.noted.set()

    def said(self) -> str:
        """What it printed on stderr."""
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")[-4000:]

    def begin(self, op: str, args: dict, client: str = "main", timeout_ms: int = 0) -> tuple[int, Answer]:
        answer = Answer()
        with self.lock:
            self.last_id += 1
            command = {"id": self.last_id, "op": op, "client": client, "args": args}
            if timeout_ms:
                command["timeout_ms"] = timeout_ms
            self.answers[self.last_id] = answer
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
            return self.last_id, answer

    def do(self, op: str, args: dict, client: str = "main") -> dict:
        return self.begin(op, args, client)[1].wait()

    def end(self) -> int:
        """Has it end. Returns its exit status, which is not 0 when it had to be killed."""
        self.process.stdin.close()
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.reader.join(LIMIT)
        self.process.stdout.close()
        self.errors.close()
        self.home.cleanup()
        return self.process.wait()
