# SPDX-License-Identifier: Apache-2.0
"""The daemon as an ordinary user, who exists for the test only: what /etc/passwd, /etc/subuid and /etc/subgid say of it
is seen by nobody else, because they are mounted in a mount namespace of the daemon's own."""

import contextlib
import os
import shutil
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent / "integration"))

# pylint: disable=wrong-import-position
from hutchd import LIMIT, Daemon, cgroup_of_own, controllers_of_own, processes_of  # noqa: E402

UID = 54400 + os.getpid() % 1000  # nobody's, and not that of a test that runs at the same time
SUBORDINATE = 0x60000000 + os.getpid() % 1000 * 0x100000
RANGE = 65536
NAME = "hutch-test"

# Mounts the files, joins the cgroups, becomes the user.
BEGIN = """
folder=$1 uid=$2; shift 2
for name in passwd subuid subgid; do mount --bind "$folder/$name" /etc/$name || exit; done
while [ "$1" != -- ]; do echo 0 > "$1/cgroup.procs" || exit; shift; done
shift
exec setpriv --reuid "$uid" --regid "$uid" --clear-groups -- "$@"
"""


class UserDaemon(Daemon):
    """@ranges: how many ranges of 65536 subordinate ids the user has. @cgroups: whether cgroups are delegated to it."""

    def __init__(self, ranges: int = 0, cgroups: bool = False, config: dict | None = None):
        super().__init__(config)
        self.folder.chmod(0o755)
        os.chown(self.folder, UID, UID)
        self.delegated: dict[str, Path] = {}
        if cgroups:
            self.delegate_cgroups()
        passwd = Path("/etc/passwd").read_text(encoding="utf-8")
        (self.folder / "passwd").write_text(f"{passwd}{NAME}:x:{UID}:{UID}::/:/bin/sh\n", encoding="utf-8")
        self.give_ranges(ranges)

    def give_ranges(self, ranges: int, first: int = SUBORDINATE) -> None:
        """From the daemon's next start on."""
        lines = [f"{NAME}:{first + i * RANGE}:{RANGE}\n" for i in range(ranges)]
        for name in ("subuid", "subgid"):
            (self.folder / name).write_text("".join(lines), encoding="utf-8")

    def delegate_cgroups(self) -> None:
        """As systemd does: the user may write to the folder, and the daemon is in a leaf of it. In v1 hierarchies there
        are no leaves."""
        for name, own in {"": cgroup_of_own(), **controllers_of_own()}.items():
            above = own / self.folder.name
            self.delegated[name] = above / "hutchd" if name == "" else above
            self.delegated[name].mkdir(parents=True, exist_ok=True)
            for folder in {above, self.delegated[name]}:
                os.chown(folder, UID, UID)
                for file in ("cgroup.procs", "cgroup.subtree_control", "tasks"):
                    with contextlib.suppress(FileNotFoundError):
                        os.chown(folder / file, UID, UID)

    def wrapper(self) -> tuple:
        groups = sorted({str(path) for path in self.delegated.values()})
        unshare = ("unshare", "--mount", "--propagation", "private")
        return (*unshare, "sh", "-c", BEGIN, "sh", str(self.folder), str(UID), *groups, "--")

    def begin(self, **options) -> "UserDaemon":
        before = os.umask(0)  # the user speaks to sockets that are made for it
        try:
            super().begin(wrapper=self.wrapper(), **options)
        finally:
            os.umask(before)
        return self

    def as_user(self, *command: str) -> tuple:
        """A command that runs it as the user, outside of sandboxes."""
        return (*self.wrapper(), *command)

    # What it has on the host.

    def cgroup(self, sandbox_id: str = "") -> Path | None:
        if not self.delegated or not self.instance:
            return None
        path = self.delegated[""].parent / f"hutch-{self.instance}" / sandbox_id
        return path if path.exists() else None

    def limit_groups(self, sandbox_id: str = "") -> dict[str, Path]:
        groups = {name: path for name, path in self.delegated.items() if name and self.instance}
        found = {name: path / f"hutch-{self.instance}" / sandbox_id for name, path in groups.items()}
        return {name: path for name, path in found.items() if path.exists()}

    def wipe(self) -> None:
        try:
            super().wipe()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
            for name, path in self.delegated.items():
                end = time.monotonic() + LIMIT
                while processes_of(path) and time.monotonic() < end:
                    time.sleep(0.01)
                for folder in (path, path.parent) if name == "" else (path,):
                    with contextlib.suppress(FileNotFoundError):
                        folder.rmdir()
