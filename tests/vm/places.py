# SPDX-License-Identifier: Apache-2.0
"""Where a daemon can be that has all limits, on a host with cgroups of version 2 alone."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from hutchd import BUILD, FOLDER_PREFIX, LIMIT, Daemon, cgroup_mount, wait_until

USER, USER_ID = "vm-user", 54321  # of tests/vm/inside
HAS_SYSTEMD = Path("/proc/1/comm").read_text(encoding="ascii").strip() == "systemd"
ENTER = 'echo 0 > "$1/cgroup.procs" && shift && exec "$@"'
# As in a container: of the tree there is nothing but what is below the own cgroup, and that has the daemon in it.
CONTAIN = 'umount /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec "$@"'
# A login shell that tells its process, which becomes the daemon's.
LOGIN = 'echo $$ > "$0" && exec "$@"'
LOGIN_ARGUMENTS = ("su", "--login", "--whitelist-environment=NOTIFY_SOCKET", "--command", LOGIN, "--")


def run(*command: str | Path, **options) -> str:
    """What a command prints; it must end well."""
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, **options)
    assert ran.returncode == 0, f"{command}: {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def read(folder: Path, name: str) -> str:
    return (folder / name).read_text(encoding="ascii").strip()


def entering(cgroup: Path) -> tuple:
    """What begins a command in a cgroup."""
    return ("sh", "-c", ENTER, "sh", str(cgroup))


class PlacedDaemon(Daemon):
    """A daemon that is begun by a command of its own. Its cgroups are wherever it puts them."""

    def __init__(self, wrapper: tuple = (), user: int = 0):
        super().__init__(folder=Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir="/tmp")))
        os.chown(self.folder, user, user)
        self.wrapper = wrapper

    def begin(self, **options) -> Daemon:
        before = os.umask(0)  # a user speaks to the socket on which the daemon says that it is ready
        try:
            return super().begin(wrapper=self.wrapper, umask=before, **options)
        finally:
            os.umask(before)

    def cgroup(self, sandbox_id: str = "") -> Path | None:
        name = f"hutch-{self.instance}"
        found = [Path(folder) / name for folder, names, _ in os.walk(cgroup_mount()) if name in names]
        path = found[0] / sandbox_id if self.instance and found else None
        return path if path and path.exists() else None

    def limit_groups(self, sandbox_id: str = "") -> dict[str, Path]:
        return {}

    def box(self, sandbox_id: str) -> Path:
        """The cgroup that the limits of a sandbox are in: the one above its PID 1."""
        return next(self.cgroup(sandbox_id).rglob("init")).parent

    def beside(self) -> tuple:
        """What begins another command where the daemon is."""
        return self.wrapper

    def examine(self) -> dict[str, str]:
        """What `hutch doctor` finds of cgroups there."""
        command = [*self.beside(), BUILD / "hutch", "doctor", "--socket", self.socket, "--output", "json"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        assert told.stdout, told.stderr
        return next(one for one in json.loads(told.stdout) if one["check"] == "cgroups")


class ContainedDaemon(PlacedDaemon):
    """A daemon that sees nothing of the tree but what is below @cgroup. Like the first program of a container it is in
    that cgroup itself, which nobody can enter any more once it passes controllers on."""

    def __init__(self, cgroup: Path):
        super().__init__()
        self.above = cgroup
        self.namespaces: dict[str, int] = {}  # those of the container, which outlives the daemon
        unshare = ("unshare", "--cgroup", "--mount", "--propagation", "private", "sh", "-c", CONTAIN, "sh")
        self.wrapper = (*entering(cgroup), *unshare)

    def begin(self, **options) -> Daemon:
        super().begin(**options)
        if not self.namespaces:
            for option, name in (("--cgroup", "cgroup"), ("--mount", "mnt")):
                self.namespaces[option] = os.open(f"/proc/{self.process.pid}/ns/{name}", os.O_RDONLY)
        self.wrapper = self.beside()
        return self

    def beside(self) -> tuple:
        leaf = self.above / "hutch-processes"
        entrance = leaf if read(self.above, "cgroup.subtree_control") else self.above
        enter = [f"{option}=/proc/{os.getpid()}/fd/{fd}" for option, fd in self.namespaces.items()]
        return (*entering(entrance), "nsenter", *enter)

    def wipe(self) -> None:
        super().wipe()
        for fd in self.namespaces.values():
            os.close(fd)
        self.namespaces.clear()


class SessionDaemon(PlacedDaemon):
    """A daemon that somebody starts from a login shell: in the scope of a session of logind."""

    def __init__(self, user: str, user_id: int):
        super().__init__(user=user_id)
        self.user, self.pid_file = user, self.folder / "pid"
        self.wrapper = (*LOGIN_ARGUMENTS, user, str(self.pid_file))

    def beside(self) -> tuple:
        return (*LOGIN_ARGUMENTS, self.user, "/dev/null")

    def signal(self, number: int) -> None:
        os.kill(int(self.pid_file.read_text(encoding="ascii")), number)


class UnitDaemon(PlacedDaemon):
    """The daemon of the unit that is installed."""

    def __init__(self):
        super().__init__()
        self.state, self.socket = Path("/var/lib/hutch"), Path("/run/hutch/hutchd.sock")

    def begin(self, **options) -> Daemon:
        run("systemctl", "start", "hutchd.service")
        self.process = True
        self.connect()
        return self

    def signal(self, number: int) -> None:
        run("systemctl", "kill", "--kill-whom=main", f"--signal={number}", "hutchd.service")

    def ended(self, limit: float = LIMIT) -> int:
        for client in self.clients:
            client.close()
        self.clients.clear()
        self.process = None
        wait_until(lambda: show("ActiveState") in ("inactive", "failed"), limit)
        return 0 if show("Result") == "success" else 1

    def kill(self) -> None:
        run("systemctl", "stop", "hutchd.service")  # it would be started again
        self.ended()

    def wipe(self) -> None:
        super().wipe()
        for path in self.state.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def log(self) -> str:
        return run("systemctl", "status", "hutchd.service")


def show(name: str) -> str:
    """A property of the unit."""
    return run("systemctl", "show", "--value", f"--property={name}", "hutchd.service").strip()


@contextlib.contextmanager
def subtree(name: str, *leaves: str, owner: int = 0):
    """A part of the tree with all controllers, and leaves in it, that belong to @owner."""
    tree = cgroup_mount()
    (tree / "cgroup.subtree_control").write_text("+cpu +memory +pids", encoding="ascii")
    above = tree / f"{name}-{os.getpid()}"
    folders = [above, *(above / leaf for leaf in leaves)]
    for folder in folders:
        folder.mkdir()
        for path in (folder, folder / "cgroup.procs", folder / "cgroup.threads", folder / "cgroup.subtree_control"):
            os.chown(path, owner, owner)
    try:
        yield above
    finally:
        left = [Path(folder) for folder, _, _ in os.walk(above)]
        for folder in reversed(left):
            wait_until(lambda folder=folder: not read(folder, "cgroup.procs"))
            folder.rmdir()


@contextlib.contextmanager
def process_in(cgroup: Path):
    """Somebody else, who is in a cgroup."""
    with subprocess.Popen([*entering(cgroup), "sleep", "infinity"]) as process:
        try:
            wait_until(lambda: str(process.pid) in read(cgroup, "cgroup.procs").split())
            yield process.pid
        finally:
            process.kill()


@contextlib.contextmanager
def running(daemon: PlacedDaemon):
    try:
        yield daemon.begin()
    except BaseException:
        daemon.wipe()
        raise
    daemon.finish()


# ---- The places ----


@contextlib.contextmanager
def nested():
    """Root's daemon, in a nested cgroup together with the shell it came from."""
    with subtree("vm-nested", "shell") as above, process_in(above / "shell"):
        with running(PlacedDaemon(entering(above / "shell"))) as daemon:
            yield daemon


@contextlib.contextmanager
def container():
    """Root's daemon, in the root of a cgroup namespace."""
    with subtree("vm-container") as above, running(ContainedDaemon(above)) as daemon:
        yield daemon


@contextlib.contextmanager
def delegated():
    """An ordinary user's daemon, in a cgroup that was given to the user."""
    become = ("setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups")
    with subtree("vm-delegated", "shell", owner=USER_ID) as above, process_in(above / "shell"):
        with running(PlacedDaemon((*entering(above / "shell"), *become), USER_ID)) as daemon:
            yield daemon


@contextlib.contextmanager
def session():
    """Root's daemon, begun in a login shell."""
    with running(SessionDaemon("root", 0)) as daemon:
        yield daemon


@contextlib.contextmanager
def unit():
    with running(UnitDaemon()) as daemon:
        yield daemon


@contextlib.contextmanager
def user():
    """An ordinary user's daemon, begun in a login shell."""
    with running(SessionDaemon(USER, USER_ID)) as daemon:
        yield daemon


# Each with a part of the path to the cgroups that sandboxes must get there.
PLACES = {
    True: {session: "/hutch.slice/", unit: "/hutch.slice/", user: f"/user@{USER_ID}.service/"},
    False: {nested: "/", container: "/vm-container", delegated: "/vm-delegated"},
}[HAS_SYSTEMD]
