# SPDX-License-Identifier: Apache-2.0
"""What sandboxes are compared with: unshare, bwrap, runc, Podman and Docker, each doing as little as it can, with the
host's /usr.

Each is a context, entered once, that raises Failed when it is not installed or does not work here."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path

UNSHARE, BWRAP, RUNC, PODMAN, DOCKER = "unshare", "bwrap", "runc", "Podman", "Docker"
TRUE = "/bin/true"
KEEP_ALIVE = ("/bin/sleep", "3600")
LINKS = ("bin", "sbin", "lib", "lib64")  # into /usr, where the host has them so
FOLDERS = ("usr", "proc", "dev", "sys", "tmp", "etc")
LIMIT = 60  # seconds
START_LIMIT = 30
DOCKER_IDLE = 10  # containers whose memory is measured


class Failed(Exception):
    """It cannot be measured here."""


def output_of(*command, limit: float = LIMIT) -> str:
    """The output of @command, which must end well and in time."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit, check=False
        )
    except FileNotFoundError:
        raise Failed("not installed") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"'{' '.join(words)}' took more than {limit} s") from None
    if done.returncode:
        raise Failed(f"'{' '.join(words)}' failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def program(name: str) -> str:
    found = shutil.which(name)
    if not found:
        raise Failed("not installed")
    return found


def pids_below(pid: int, depth: int = 100) -> list[int]:
    """The processes that @pid has started, those that these have started, and so on."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found, level = [], [pid]
    while level and depth:
        level = [child for parent in level for child in children.get(parent, [])]
        found += level
        depth -= 1
    return found


def pss_kib(pid: int) -> int:
    """The memory of a process; what it shares with others is divided among them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def host_links() -> dict[str, str]:
    return {name: os.readlink(f"/{name}") for name in LINKS if os.path.islink(f"/{name}")}


class OneShot:
    """Has nothing that runs on, so nothing to execute in."""

    name = ""
    command: list[str]

    def __enter__(self) -> "OneShot":
        output_of(*self.command)
        return self

    def __exit__(self, *_) -> None:
        pass

    def run(self, _: int) -> list[str]:
        """A command that makes a sandbox, runs a program in it and removes it; the argument tells apart those that run
        at the same time."""
        return self.command

    def execute(self) -> list[str]:
        """A command that runs a program in a sandbox that is there. Empty: there is no such thing."""
        return []

    def idle_kib(self) -> int:
        """The memory of what waits outside for each idle sandbox. 0: nothing does."""
        return 0


class Unshare(OneShot):
    """Namespaces and nothing else: the host's own root."""

    name = UNSHARE

    def __init__(self, _: Path):
        namespaces = ("--user", "--map-root-user", "--mount", "--pid", "--fork", "--net", "--ipc", "--uts", "--cgroup")
        self.command = [program("unshare"), *namespaces, TRUE]


class Bwrap(OneShot):
    """With a root of its own."""

    name = BWRAP

    def __init__(self, _: Path):
        links = [word for name, target in host_links().items() for word in ("--symlink", target, f"/{name}")]
        self.command = [program("bwrap"), "--unshare-all", "--ro-bind", "/usr", "/usr", *links, "--proc", "/proc"]
        self.command += ["--dev", "/dev", "--tmpfs", "/tmp", TRUE]


class Runc:
    """A bundle as `runc spec` makes it, with a read-only /usr."""

    name = RUNC
    kept = "hutch-bench-kept"

    def __init__(self, folder: Path):
        self.folder = folder / "runc"
        self.command = [program("runc"), "--root", str(self.folder / "state")]

    def make_bundle(self, name: str, *argv: str) -> Path:
        bundle = self.folder / name
        root = bundle / "rootfs"
        root.mkdir(parents=True)
        for folder in FOLDERS:
            (root / folder).mkdir()
        for link, target in host_links().items():
            (root / link).symlink_to(target)
        output_of(*self.command, "spec", "--bundle", bundle)
        config = json.loads((bundle / "config.json").read_text(encoding="utf-8"))
        config["process"] |= {"terminal": False, "args": list(argv)}
        usr = {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]}
        config["mounts"].append(usr)
        (bundle / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return bundle

    def __enter__(self) -> "Runc":
        self.bundle = self.make_bundle("true", TRUE)
        kept = self.make_bundle("kept", *KEEP_ALIVE)
        try:
            output_of(*self.run(0))
            # Its descriptors must not be pipes: the container keeps them.
            subprocess.run(
                [*self.command, "run", "--detach", "--bundle", kept, self.kept],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=LIMIT,
                check=False,
            )
            output_of(*self.execute())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        with contextlib.suppress(Failed):
            output_of(*self.command, "delete", "--force", self.kept)

    def run(self, worker: int) -> list[str]:
        return [*self.command, "run", "--bundle", str(self.bundle), f"hutch-bench-{worker}"]

    def execute(self) -> list[str]:
        return [*self.command, "exec", self.kept, TRUE]

    def idle_kib(self) -> int:
        return 0


def make_root_archive(archive: Path) -> None:
    """A root for images, whose /usr is to be the host's."""
    with tarfile.open(archive, "w") as tar:
        for folder in FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for link, target in host_links().items():
            entry = tarfile.TarInfo(link)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)


class Podman(OneShot):
    """With storage of its own, and runc, which works on hosts with cgroups of both versions."""

    name = PODMAN
    image = "localhost/hutch-bench"

    def __init__(self, folder: Path):
        self.folder = folder / "podman"
        self.folder.mkdir()
        self.podman = [program("podman"), "--root", str(self.folder / "root"), "--runroot", str(self.folder / "run")]
        self.podman += ["--cgroup-manager=cgroupfs", "--runtime", program("runc"), "--events-backend=none"]
        self.command = [*self.podman, "run", "--rm", "--network", "none"]
        # Its defaults are more than a host without CAP_SYS_RESOURCE may give.
        self.command += ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
        self.command += ["--volume", "/usr:/usr:ro", self.image, TRUE]

    def __enter__(self) -> "Podman":
        make_root_archive(self.folder / "root.tar")
        try:
            output_of(*self.podman, "import", self.folder / "root.tar", self.image)
            super().__enter__()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        with contextlib.suppress(Failed):
            output_of(*self.podman, "rm", "--all", "--force")
        with contextlib.suppress(Failed):  # what it has mounted for its storage
            output_of("umount", self.folder / "root/overlay")


class Docker:
    """A daemon of its own, that touches neither the firewall nor any bridge; containers without a network."""

    name = DOCKER
    image, kept = "hutch-bench", "hutch-bench-kept"

    def __init__(self, folder: Path):
        self.folder = folder / "docker"
        self.folder.mkdir()
        host = f"unix://{self.folder}/docker.sock"
        self.client = [program("docker"), "--host", host]
        self.daemon = [program("dockerd"), "--host", host, "--iptables=false", "--bridge=none"]
        for option in ("data-root", "exec-root", "pidfile"):
            self.daemon += [f"--{option}", str(self.folder / option)]
        self.options = ["--network", "none", "--volume", "/usr:/usr:ro", self.image]

    def make_image(self) -> None:
        make_root_archive(self.folder / "root.tar")
        output_of(*self.client, "import", self.folder / "root.tar", self.image)

    def await_daemon(self) -> None:
        end = time.monotonic() + START_LIMIT
        while True:
            with contextlib.suppress(Failed):
                output_of(*self.client, "version")
                return
            if self.process.poll() is not None or time.monotonic() > end:
                raise Failed(f"dockerd does not answer: {(self.folder / 'log').read_text(errors='replace')[-300:]}")
            time.sleep(0.2)

    def __enter__(self) -> "Docker":
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(self.daemon, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self.await_daemon()
            self.make_image()
            output_of(*self.client, "run", "--detach", "--name", self.kept, *self.options, *KEEP_ALIVE)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        """Containers first: a daemon that ends leaves what it has started. What is left then is killed."""
        started = [os.pidfd_open(pid) for pid in pids_below(self.process.pid)]
        with contextlib.suppress(Failed):
            containers = output_of(*self.client, "ps", "--all", "--quiet").split()
            if containers:
                output_of(*self.client, "rm", "--force", *containers)
        self.process.terminate()
        try:
            self.process.wait(START_LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
            os.close(process)

    def run(self, _: int) -> list[str]:
        return [*self.client, "run", "--rm", *self.options, TRUE]

    def execute(self) -> list[str]:
        return [*self.client, "exec", self.kept, TRUE]

    def idle_kib(self) -> int:
        """That of the shims, which are started through containerd and leave it."""
        names = [f"{self.kept}-{number}" for number in range(DOCKER_IDLE)]
        for name in names:
            output_of(*self.client, "run", "--detach", "--name", name, *self.options, *KEEP_ALIVE)
        keepers = []
        for name in names:
            pid = int(output_of(*self.client, "inspect", "--format", "{{.State.Pid}}", name))
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
            keepers.append(int(stat.rsplit(")", 1)[1].split()[1]))
        used = sum(map(pss_kib, keepers))
        output_of(*self.client, "rm", "--force", *names)
        return used // DOCKER_IDLE


OTHERS = (Unshare, Bwrap, Runc, Podman, Docker)
