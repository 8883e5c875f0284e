# SPDX-License-Identifier: Apache-2.0
"""The daemon as a program that is killed."""

import contextlib
import os
import re
import signal
import socket
import sqlite3
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))

# pylint: disable=wrong-import-position,unused-import
from hutchd import (  # noqa: E402,F401
    LIMIT,
    ROOT,
    Client,
    Daemon,
    Refusal,
    cgroup_mount,
    seconds,
    state_name,
    wait_until,
)


def all_failpoints() -> list[str]:
    """Those that the sources have."""
    sources = [file.read_text(encoding="utf-8") for file in sorted((ROOT / "src").rglob("*.c"))]
    return sorted({name for text in sources for name in re.findall(r'FAILPOINT\("([^"]+)"\)', text)})


class KilledDaemon(Daemon):
    """A daemon that may die at any moment, but only of SIGKILL."""

    def __init__(self):
        super().__init__()
        self.reached = self.folder / "failpoints"  # those that it came to

    def start_life(self, failpoint: str = "") -> bool:
        """Starts it. Tells whether it lived until it was ready."""
        notify = self.folder / "notify"
        notify.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(str(notify))
            env = {"NOTIFY_SOCKET": str(notify), "HUTCH_FAILPOINT_LOG": str(self.reached)}
            self.spawn(env=env | ({"HUTCH_FAILPOINT": failpoint} if failpoint else {}))
            listener.settimeout(0.02)
            for _ in range(LIMIT * 50):
                with contextlib.suppress(TimeoutError):
                    assert listener.recv(100) == b"READY=1"
                    return True
                if self.process.poll() is not None:
                    self.end_life()
                    return False
        raise AssertionError("the daemon does not get ready")

    def end_life(self) -> None:
        """Kills it, if it is not dead yet."""
        self.process.kill()
        status = self.ended()
        assert status == -signal.SIGKILL, f"the daemon ended with {status}"

    def keeper_pids(self) -> dict[str, int]:
        """The keepers, by the id of their sandbox."""
        prefix, keepers = f"{self.state}/sandboxes/", {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if "hutch-keeper" not in os.path.basename(os.readlink(f"/proc/{pid}/exe")):
                    continue
                log = os.readlink(f"/proc/{pid}/fd/2")
                if log.startswith(prefix):
                    keepers.setdefault(log[len(prefix) :].split("/")[0], int(pid))
        return keepers

    def cgroup(self, sandbox_id: str = "") -> Path | None:
        """As in the class above, but without a look at the cgroups of others, which come and go."""
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        own = next(line.removeprefix("0::/") for line in lines if line.startswith("0::/"))
        path = cgroup_mount() / own / f"hutch-{self.instance}" / sandbox_id
        return path if path.exists() else None

    def wipe(self) -> None:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(self.state / "hutch.db")) as store:
            row = store.execute("SELECT value FROM facts WHERE name = 'instance_id'").fetchone()
            self.instance = row[0] if row else ""
        wait_until(self.try_to_wipe, what="what is left cannot be removed")

    def try_to_wipe(self) -> bool:
        """Keepers that have just been started, or are ending, get in the way."""
        with contextlib.suppress(FileNotFoundError, OSError):
            super().wipe()
        return not self.folder.exists()

    def failpoints_reached(self) -> set[str]:
        return set(self.reached.read_text(encoding="utf-8").split()) if self.reached.exists() else set()

    def keep_logs(self) -> Path:
        """Puts aside what tells what happened. Returns where that is."""
        kept = Path(f"{self.folder}-failed")
        kept.mkdir()
        for file in (self.log_file, self.folder / "journal", self.state / "hutch.db", self.state / "hutch.db-wal"):
            if file.exists():
                (kept / file.name).write_bytes(file.read_bytes())
        return kept
