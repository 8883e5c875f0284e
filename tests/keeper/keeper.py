# SPDX-License-Identifier: Apache-2.0
"""Keepers as the daemon has them: started with a sealed configuration and a socket, asked by gRPC."""

import fcntl
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc

sys.path.append(str(Path(__file__).resolve().parents[1]))

# pylint: disable=wrong-import-position
import sanitizers  # noqa: E402
from host import PATIENCE  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("HUTCH_KEEPER", ROOT / "build/gcc/hutch-keeper"))
UID_BASE = 0x70000000 + 4096 * 65536
USER = 53400 + os.getpid() % 1000  # nobody's, and not that of a test that runs at the same time
LIMIT = int(30 * PATIENCE)  # seconds that anything may take
MIB = 1 << 20
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def make_stubs(folder: Path) -> None:
    """Makes the modules of the keeper protocol, and has them found."""
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={ROOT / 'proto'}"]
    command += [f"--python_out={folder}", f"--grpc_python_out={folder}"]
    command += ["hutch/keeper/v1/keeper.proto", "hutch/v1/file.proto"]
    subprocess.run(command, check=True)
    sys.path.insert(0, str(folder))


def protocol():
    """The messages; to be imported when there are stubs."""
    from hutch.keeper.v1 import keeper_pb2  # pylint: disable=import-outside-toplevel

    return keeper_pb2


def cgroup_mount() -> Path:
    """Where the cgroup v2 tree is."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, right = line.split(" - ")
        if right.split()[0] == "cgroup2":
            return Path(left.split()[4])
    raise RuntimeError("this machine has no cgroup v2 tree")


def processes_of(cgroup: Path) -> list[int]:
    """All processes in a cgroup and those below it."""
    pids = []
    for folder, _, _ in os.walk(cgroup):  # which does not mind those that are removed meanwhile
        try:
            pids += map(int, Path(folder, "cgroup.procs").read_text(encoding="utf-8").split())
        except OSError:
            pass
    return pids


BUILT = ("sandbox runs", "cannot build the sandbox")  # what a keeper says then


def wait_until(condition, limit: float = LIMIT) -> None:
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


class Keeper:
    """A keeper that runs, and its client."""

    def __init__(self, folder: Path, cgroup: Path, config: dict, user: int | None = None):
        messages = protocol()
        self.folder = folder
        self.cgroup = cgroup  # of the keeper and the sandbox
        self.box = cgroup / "box"  # of what is inside
        folder.parent.mkdir(exist_ok=True)
        folder.mkdir(mode=0o700)
        if user is not None:
            for path in [folder, *folder.parents[:2]]:  # where the keeper makes its image as well
                os.chown(path, user, user)
            for parent in folder.parents[:-1]:
                os.chmod(parent, parent.stat().st_mode | 0o011)
        values = {"sandbox_id": "sbx-test", "state_folder": str(folder), "cgroup": str(cgroup)}
        values |= {"uid_base": UID_BASE, "uid_count": 65536, "workspace": "/workspace"}
        values |= {"start_timeout": {"seconds": LIMIT}, "limits": {"no_network": True}}
        self.config = messages.KeeperConfig(**(values | config)).SerializeToString()
        self.user = user
        self.process = self._start(self.config, user)
        self.directory = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        self.numbers = iter(range(1_000_000))
        self._connect()

    def _connect(self) -> None:
        from hutch.keeper.v1 import keeper_pb2_grpc  # pylint: disable=import-outside-toplevel

        self.channel = grpc.insecure_channel(f"unix:/proc/self/fd/{self.directory}/keeper.sock")
        self.stub = keeper_pb2_grpc.KeeperServiceStub(self.channel)

    def start_again(self) -> None:
        """Has another keeper have the sandbox, after this one has ended."""
        self.process.wait(LIMIT)
        self.channel.close()
        (self.folder / "keeper.sock").unlink()
        self.process = self._start(self.config, self.user)
        self._connect()

    def _start(self, config: bytes, user: int | None) -> subprocess.Popen:
        memfd = os.memfd_create("config", os.MFD_ALLOW_SEALING)
        os.write(memfd, config)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, seals)
        folder = os.open(self.folder, os.O_PATH | os.O_DIRECTORY)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"/proc/self/fd/{folder}/keeper.sock")
        listener.listen()
        if user is not None:
            os.chown(self.folder / "keeper.sock", user, user)
        program = os.open(PROGRAM, os.O_PATH)  # which a user need not be able to reach
        # Copies beyond 10, so that none of them is in the way of 3 and 4.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (memfd, listener.fileno(), program)]

        def arrange() -> None:
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        with open(self.folder / "keeper.log", "wb") as log:
            process = subprocess.Popen(  # pylint: disable=subprocess-popen-preexec-fn
                ["hutch-keeper"],
                executable=f"/proc/self/fd/{high[2]}",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(3, 4, *high),
                preexec_fn=arrange,
                start_new_session=True,
                env=sanitizers.options("hutch-keeper"),
                user=user,
                group=user,
                extra_groups=None if user is None else [],
            )
        for fd in (memfd, folder, program, *high):
            os.close(fd)
        listener.close()
        wait_until(lambda: process.poll() is not None or any(word in self.log() for word in BUILT))
        return process

    def log(self) -> str:
        return (self.folder / "keeper.log").read_text(encoding="utf-8", errors="replace")

    def describe(self):
        return self.stub.Describe(protocol().DescribeRequest(), timeout=LIMIT, wait_for_ready=True)

    def find(self, exec_id: str):
        return next(one for one in self.describe().execs if one.exec_id == exec_id)

    def request(self, *argv: str, env: dict[str, str] | None = None, **values):
        """A request to start @argv, with an id of its own."""
        variables = [{"name": name, "value": value} for name, value in ({"PATH": PATH} | (env or {})).items()]
        defaults = {"exec_id": f"exec-{next(self.numbers)}", "argv": argv, "env": variables}
        defaults |= {"working_directory": "/", "user": "0", "output_limit_bytes": 64 * MIB}
        return protocol().StartExecRequest(**(defaults | values))

    def start(self, *argv: str, **values):
        return self.send(self.request(*argv, **values))

    def send(self, request):
        return self.stub.StartExec(request, timeout=LIMIT, wait_for_ready=True).exec

    def wait(self, exec_id: str, limit: float = LIMIT):
        """The exec, once it has ended."""
        found = []

        def ended() -> bool:
            found[:] = [self.find(exec_id)]
            return found[0].HasField("end")

        wait_until(ended, limit)
        return found[0]

    def run(self, *argv: str, **values):
        return self.wait(self.start(*argv, **values).exec_id)

    def shell(self, script: str, **values):
        return self.run("sh", "-c", script, **values)

    def output(self, exec_id: str, stream: str = "out") -> bytes:
        """What there is so far: the file is made with the first byte."""
        file = self.folder / f"{exec_id}.{stream}"
        return file.read_bytes() if file.exists() else b""

    def cancel(self, exec_id: str, grace: float | None = None):
        request = protocol().CancelExecRequest(exec_id=exec_id)
        if grace is not None:
            request.grace.FromNanoseconds(int(grace * 1e9))
        return self.stub.CancelExec(request, timeout=LIMIT)

    def forget(self, exec_id: str):
        return self.stub.ForgetExec(protocol().ForgetExecRequest(exec_id=exec_id), timeout=LIMIT)

    def pause(self, paused: bool):
        return self.stub.SetPaused(protocol().SetPausedRequest(paused=paused), timeout=LIMIT)

    def shut_down(self, grace: float = 5):
        request = protocol().ShutdownRequest()
        request.grace.FromNanoseconds(int(grace * 1e9))
        return self.stub.Shutdown(request, timeout=LIMIT)

    def input(self, exec_id: str) -> "Input":
        return Input(self, exec_id)

    def watch(self) -> "Watch":
        return Watch(self)

    def processes(self) -> list[int]:
        """Those of the sandbox."""
        return processes_of(self.box)

    def kill(self) -> None:
        """Ends it as a crash would, and removes what that leaves."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(LIMIT)
        self.clean()

    def clean(self) -> None:
        self.channel.close()
        os.close(self.directory)
        wait_until(lambda: not processes_of(self.cgroup))
        folders = sorted((path for path in [self.cgroup, *self.cgroup.rglob("*")] if path.is_dir()), reverse=True)
        for folder in folders:
            folder.rmdir()


class Input:
    """A call of SendInput, whose messages are sent one by one."""

    def __init__(self, keeper: Keeper, exec_id: str):
        self.messages: queue.Queue = queue.Queue()
        self.first = exec_id
        self.call = keeper.stub.SendInput.future(iter(self.messages.get, None), timeout=LIMIT)

    def send(self, **values) -> None:
        if isinstance(values.get("resize"), tuple):
            values["resize"] = {"rows": values["resize"][0], "columns": values["resize"][1]}
        self.messages.put(protocol().SendInputRequest(exec_id=self.first, **values))
        self.first = ""

    def finish(self):
        self.messages.put(None)
        return self.call.result(LIMIT)


class Watch:
    """A watch, and what it was told so far."""

    def __init__(self, keeper: Keeper):
        self.call = keeper.stub.WatchKeeper(protocol().WatchKeeperRequest(), wait_for_ready=True)
        self.items: list = []
        assert next(self.call).HasField("synced")
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        try:
            for item in self.call:
                self.items.append(item)
        except grpc.RpcError:
            pass

    def states(self) -> list[int]:
        return [item.state.state for item in list(self.items) if item.HasField("state")]

    def execs(self, exec_id: str) -> list:
        return [item.exec for item in list(self.items) if item.HasField("exec") and item.exec.exec_id == exec_id]
