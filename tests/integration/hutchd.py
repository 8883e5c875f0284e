# SPDX-License-Identifier: Apache-2.0
"""What the tests of this folder share: the daemon as a program, clients of it, and how to read its errors."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Idle clients read what the daemon says to them this often, in milliseconds; it waits for them when it ends.
os.environ["GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS"] = "50"

# pylint: disable=wrong-import-position
import grpc  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "clients/python/src"))
sys.path.append(str(ROOT / "tests"))

import sanitizers  # noqa: E402
from google.protobuf import duration_pb2  # noqa: E402
from google.rpc import error_details_pb2, status_pb2  # noqa: E402
from host import PATIENCE  # noqa: E402
from hutch.v1 import (  # noqa: E402
    exec_pb2,
    exec_pb2_grpc,
    sandbox_exec_pb2_grpc,
    sandbox_pb2,
    sandbox_pb2_grpc,
    state_pb2,
    system_pb2,
    system_pb2_grpc,
)

BUILD = Path(os.environ.get("HUTCH_BUILD", ROOT / "build/gcc")).resolve()
LIMIT = int(30 * PATIENCE)  # seconds that anything may take
POLL = 0.005 if PATIENCE < 10 else 0.05  # between two looks, which take long themselves on an emulated machine
CONFIG_NAME = "config.yaml"
FOLDER_PREFIX = "hutch-test-"  # of the daemons' folders
MIB = 1 << 20
SANDBOX_STATES = state_pb2.SandboxState
EXEC_STATES = state_pb2.ExecState
OPTIONS = [
    ("grpc.max_receive_message_length", 17 * MIB),
    ("grpc.max_send_message_length", 17 * MIB),
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own for each channel
    ("grpc.enable_retries", 0),
]


def seconds(value: float) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromNanoseconds(round(value * 1e9))
    return duration


def wait_until(condition, limit: float = LIMIT, what: str = "it did not come to that"):
    """What @condition says, once that is true."""
    end = time.monotonic() + limit
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(POLL)
    return found


def sandbox_state(name: str) -> int:
    return SANDBOX_STATES.Value(f"SANDBOX_STATE_{name}")


def exec_state(name: str) -> int:
    return EXEC_STATES.Value(f"EXEC_STATE_{name}")


def state_name(thing) -> str:
    """The state of a sandbox or exec, as the spec writes it."""
    if isinstance(thing, sandbox_pb2.Sandbox):
        return SANDBOX_STATES.Name(thing.state).removeprefix("SANDBOX_STATE_")
    return EXEC_STATES.Name(thing.state).removeprefix("EXEC_STATE_")


def field(number: int, data: bytes) -> bytes:
    """A field of bytes as it is sent."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80]) + varint(number >> 7) if number > 0x7F else bytes([number])


# ---- Errors ----


REASONS = {
    case["in"]["reason"]: case["out"]["code"]
    for case in json.loads((ROOT / "spec/vectors/errors.json").read_text(encoding="utf-8"))["cases"]
    if "reason" in case["in"]
}


# What the metadata of an error must have.
METADATA = {
    "SANDBOX_WRONG_STATE": {"state"},
    "EXEC_WRONG_STATE": {"state"},
    "QUOTA_EXCEEDED": {"limit", "value"},
    "TOO_MANY_STREAMS": {"limit", "value"},
    "MESSAGE_TOO_LARGE": {"limit", "value"},
    "CURSOR_GONE": {"oldest_cursor"},
    "WATCHER_LAGGED": {"cursor"},
}
SEEN: dict[str, set[str]] = {}  # the codes that each reason came with


class Refusal:
    """An error as the contract has it."""

    def __init__(self, error: grpc.RpcError):
        self.code = error.code().name
        self.message = error.details()
        self.reason = None
        self.metadata: dict[str, str] = {}
        self.fields: list[tuple[str, str]] = []  # of every violation its field and reason
        trailers = dict(error.trailing_metadata() or ())
        status = status_pb2.Status.FromString(trailers.get("grpc-status-details-bin", b""))
        for detail in status.details:
            info, request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
            if detail.Unpack(info):
                assert info.domain == "hutch"
                self.reason, self.metadata = info.reason, dict(info.metadata)
            elif detail.Unpack(request):
                assert all(violation.description for violation in request.field_violations)
                self.fields = [(violation.field, violation.reason) for violation in request.field_violations]
        if self.reason:
            SEEN.setdefault(self.reason, set()).add(self.code)

    def check(self) -> None:
        """What holds for every error."""
        assert self.reason, f"an error without a reason: {self.code} {self.message}"
        assert self.code == REASONS[self.reason], f"{self.reason} came as {self.code}"
        assert len(self.message.split()) > 2, f"no sentence: {self.message}"
        told = f"{self.message} {self.metadata}"
        if self.reason == "SOURCE_NOT_ALLOWED":  # it names the file in which that is to be changed
            told = re.sub(rf"(sources\.(read|write) in )\S*/{CONFIG_NAME},", r"\1,", told)
        assert FOLDER_PREFIX not in told, "a path of the host is told"
        assert METADATA.get(self.reason, set()) <= set(self.metadata), f"{self.reason} has only {self.metadata}"
        if self.code == "INVALID_ARGUMENT":
            assert self.fields and self.fields[0][1] == self.reason


@contextlib.contextmanager
def refused(reason: str, *fields: str):
    """Expects an error for @reason, about @fields where they are named."""
    told = Refusal.__new__(Refusal)
    try:
        yield told
    except grpc.RpcError as error:
        told.__init__(error)  # pylint: disable=unnecessary-dunder-call
    else:
        raise AssertionError(f"no {reason} was told")
    assert told.reason == reason, f"{told.code} {told.reason} {told.fields}: {told.message}"
    told.check()
    if fields:
        assert [name for name, _ in told.fields] == list(fields)


# ---- Clients ----


class Client:
    """Somebody who calls a daemon. All calls have a deadline."""

    def __init__(self, path: Path, *options: tuple):
        self.channel = grpc.insecure_channel(f"unix:{path}", options=[*OPTIONS, *options])
        self.add_stubs()

    def add_stubs(self) -> None:
        self.sandboxes = sandbox_pb2_grpc.AgentSandboxServiceStub(self.channel)
        self.execs = exec_pb2_grpc.ExecServiceStub(self.channel)
        self.one_shots = sandbox_exec_pb2_grpc.SandboxExecServiceStub(self.channel)
        self.system = system_pb2_grpc.SystemServiceStub(self.channel)

    def close(self) -> None:
        self.channel.close()

    def create(self, sandbox_id: str = "", request_id: str = "", **spec):
        """A new sandbox, PENDING."""
        request = sandbox_pb2.CreateSandboxRequest(
            sandbox_id=sandbox_id, request_id=request_id, spec=sandbox_pb2.SandboxSpec(**spec)
        )
        return self.sandboxes.CreateSandbox(request, timeout=LIMIT).sandbox

    def ready(self, sandbox_id: str = "", **spec) -> str:
        """The id of a new sandbox that is READY."""
        return self.wait(self.create(sandbox_id, **spec).id, "READY").id

    def get(self, sandbox_id: str):
        request = sandbox_pb2.GetSandboxRequest(sandbox_id=sandbox_id)
        return self.sandboxes.GetSandbox(request, timeout=LIMIT).sandbox

    def wait(self, sandbox_id: str, *states: str, limit: float = LIMIT):
        """The sandbox, once it is in one of @states."""
        end = time.monotonic() + limit
        while state_name(found := self.get(sandbox_id)) not in states:
            assert time.monotonic() < end, f"not {states} but {found}"
            time.sleep(POLL)
        return found

    def update(self, sandbox_id: str, *mask: str, **spec):
        request = sandbox_pb2.UpdateSandboxRequest(sandbox_id=sandbox_id, spec=sandbox_pb2.SandboxSpec(**spec))
        request.update_mask.paths.extend(mask)
        return self.sandboxes.UpdateSandbox(request, timeout=LIMIT).sandbox

    def stop(self, sandbox_id: str, grace: float | None = None):
        request = sandbox_pb2.StopSandboxRequest(sandbox_id=sandbox_id)
        if grace is not None:
            request.grace.CopyFrom(seconds(grace))
        return self.sandboxes.StopSandbox(request, timeout=LIMIT).sandbox

    def resume(self, sandbox_id: str, request_id: str = ""):
        request = sandbox_pb2.ResumeSandboxRequest(sandbox_id=sandbox_id, request_id=request_id)
        return self.sandboxes.ResumeSandbox(request, timeout=LIMIT).sandbox

    def pause(self, sandbox_id: str):
        request = sandbox_pb2.PauseSandboxRequest(sandbox_id=sandbox_id)
        return self.sandboxes.PauseSandbox(request, timeout=LIMIT).sandbox

    def unpause(self, sandbox_id: str):
        request = sandbox_pb2.UnpauseSandboxRequest(sandbox_id=sandbox_id)
        return self.sandboxes.UnpauseSandbox(request, timeout=LIMIT).sandbox

    def delete(self, sandbox_id: str):
        request = sandbox_pb2.DeleteSandboxRequest(sandbox_id=sandbox_id)
        return self.sandboxes.DeleteSandbox(request, timeout=LIMIT).sandbox

    def remove(self, *sandbox_ids: str) -> None:
        """Deletes sandboxes and waits until they are gone."""
        for one in sandbox_ids:
            self.delete(one)
        for one in sandbox_ids:
            self.wait(one, "DELETED")

    def pages(self, **filters) -> list:
        """The pages of a listing."""
        pages = []
        request = sandbox_pb2.ListSandboxesRequest(**filters)
        while not pages or request.page_token:
            pages.append(self.sandboxes.ListSandboxes(request, timeout=LIMIT))
            request.page_token = pages[-1].next_page_token
            assert len(pages) < 1000
        return pages

    def all(self, **filters) -> list:
        return [sandbox for page in self.pages(**filters) for sandbox in page.sandboxes]

    def ids(self, **filters) -> list[str]:
        return [sandbox.id for sandbox in self.all(**filters)]

    def info(self):
        return self.system.GetInfo(system_pb2.GetInfoRequest(), timeout=LIMIT)

    def start(self, sandbox_id: str, *argv: str, exec_id: str = "", request_id: str = "", **spec):
        """A new exec."""
        request = exec_pb2.CreateExecRequest(sandbox_id=sandbox_id, exec_id=exec_id, request_id=request_id)
        request.spec.CopyFrom(exec_pb2.ExecSpec(argv=argv, **spec))
        return self.execs.CreateExec(request, timeout=LIMIT).exec

    def get_exec(self, sandbox_id: str, exec_id: str):
        return self.execs.GetExec(exec_pb2.GetExecRequest(sandbox_id=sandbox_id, exec_id=exec_id), timeout=LIMIT).exec

    def wait_exec(self, sandbox_id: str, exec_id: str, *states: str, limit: float = LIMIT):
        """The exec, once it is in one of @states; without any, once it has ended."""
        end = time.monotonic() + limit
        while True:
            found = self.get_exec(sandbox_id, exec_id)
            if state_name(found) in states or not states and found.HasField("end_time"):
                return found
            assert time.monotonic() < end, f"not {states} but {found}"
            time.sleep(POLL)

    def cancel(self, sandbox_id: str, exec_id: str, grace: float | None = None):
        request = exec_pb2.CancelExecRequest(sandbox_id=sandbox_id, exec_id=exec_id)
        if grace is not None:
            request.grace.CopyFrom(seconds(grace))
        return self.execs.CancelExec(request, timeout=LIMIT).exec

    def run(self, sandbox_id: str, *argv: str, stdin: bytes = b"", timeout: float = LIMIT, **spec):
        """The answer of RunCommand."""
        request = exec_pb2.RunCommandRequest(sandbox_id=sandbox_id, input=stdin)
        request.spec.CopyFrom(exec_pb2.ExecSpec(argv=argv, **spec))
        return self.execs.RunCommand(request, timeout=timeout)

    def shell(self, sandbox_id: str, script: str, **spec) -> str:
        """What @script prints; it must end well."""
        ran = self.run(sandbox_id, "sh", "-c", script, **spec)
        assert ran.exec.result.exit_code == 0, f"{ran.exec}\n{ran.stderr!r}"
        return ran.stdout.decode()

    def history(self, sandbox_id: str) -> list:
        """All events of a sandbox, which must be whole: numbered without gaps, each state following from the last."""
        sequence = self.get(sandbox_id).sequence
        watch = self.watch(sandbox_ids=[sandbox_id], after_sequence=0, all_owners=True)
        events = watch.until(lambda event: event.sequence >= sequence)
        watch.close()
        assert [event.sequence for event in events] == list(range(1, sequence + 1))
        assert events == sorted(events, key=lambda event: event.cursor)
        moves = [event.sandbox_state for event in events if event.HasField("sandbox_state")]
        assert moves[0].from_state == 0
        for before, after in zip(moves, moves[1:]):
            assert after.from_state == before.to_state != after.to_state
        return events

    def states(self, sandbox_id: str) -> list[str]:
        """The states that a sandbox has gone through."""
        moves = [event.sandbox_state.to_state for event in self.history(sandbox_id)]
        return [SANDBOX_STATES.Name(state).removeprefix("SANDBOX_STATE_") for state in moves if state]

    def watch(self, timeout: float = LIMIT, **request) -> "Watch":
        return Watch(self.sandboxes.WatchEvents(sandbox_pb2.WatchEventsRequest(**request), timeout=timeout))


class Watch:
    """A watch that stands; the sandboxes it began with, and its events."""

    def __init__(self, call):
        self.call = call
        self.snapshot = []
        for step in call:
            if step.HasField("started"):
                self.cursor = step.started.cursor
                return
            self.snapshot.append(step.sandbox)

    def next(self):
        """The next event."""
        for step in self.call:
            if step.HasField("event"):
                return step.event
        raise AssertionError("the watch ended")

    def until(self, condition) -> list:
        """The events up to the first one for which @condition holds."""
        events = [self.next()]
        while not condition(events[-1]):
            events.append(self.next())
        return events

    def until_state(self, name: str) -> list:
        """The events up to the one that a sandbox came into a state."""
        return self.until(lambda event: event.sandbox_state.to_state == sandbox_state(name))

    def close(self) -> None:
        self.call.cancel()


# ---- The daemon ----


class Daemon(Client):
    """The daemon with a state folder of its own, and its client."""

    def __init__(self, config: dict | None = None, folder: Path | None = None):  # pylint: disable=super-init-not-called
        self.folder = folder or Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir="/tmp"))
        self.state = self.folder / "state"
        self.socket = self.folder / "hutchd.sock"
        self.config_file = self.folder / CONFIG_NAME
        self.log_file = self.folder / "log"
        self.process: subprocess.Popen | None = None
        self.instance = ""
        self.clients: list[Client] = []
        self.write_config(config or {})

    def write_config(self, config: dict) -> None:
        if sanitizers.LOGS:
            keeper = sanitizers.wrap(BUILD / "hutch-keeper", self.folder)
            config = {"native": {"keeper": str(keeper)}} | config
        self.config_file.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML

    def command(self, *arguments: str | Path) -> list:
        """hutchd on this state folder."""
        paths = ["--socket", self.socket, "--state", self.state, "--config", self.config_file]
        return [BUILD / "hutchd", *paths, *arguments]

    def call(self, *arguments: str | Path) -> subprocess.CompletedProcess:
        """Runs hutchd to its end."""
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=LIMIT, check=False)

    def begin(self, **options) -> "Daemon":
        """Starts it and waits until it says that it is ready."""
        notify = self.folder / "notify"
        notify.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(str(notify))
            self.spawn(env={"NOTIFY_SOCKET": str(notify)}, **options)
            listener.settimeout(0.05)
            end = time.monotonic() + LIMIT
            while True:
                with contextlib.suppress(TimeoutError):
                    told = listener.recv(100)
                    assert told == b"READY=1", told
                    break
                assert self.process.poll() is None, f"hutchd ended with {self.process.returncode}: {self.log()}"
                assert time.monotonic() < end, f"hutchd is not ready: {self.log()}"
        self.connect()
        return self

    def spawn(self, env: dict | None = None, wrapper: tuple = (), arguments: tuple = (), **options) -> None:
        assert self.process is None
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [*wrapper, *self.command(*arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "SECRET_OF_THE_DAEMON": "1"}
                | sanitizers.options("hutchd")
                | (env or {}),
                **options,
            )

    def connect(self) -> None:
        super().__init__(self.socket)
        self.clients.append(self)
        self.instance = self.info().instance_id

    def client(self, uid: int | None = None, gid: int | None = None) -> Client:
        """Another client, which connects as another user: the kernel tells the daemon who connected."""
        made = Client(self.socket)
        self.clients.append(made)
        groups = os.getgroups()
        try:
            if gid is not None:
                os.setgroups([])
                os.setegid(gid)
            if uid is not None:
                os.seteuid(uid)
            grpc.channel_ready_future(made.channel).result(LIMIT)
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)
        return made

    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self, limit: float = LIMIT) -> int:
        """Waits for its end. Returns its exit status."""
        try:
            return self.process.wait(limit)
        finally:
            if self.process.returncode is None:
                self.process.kill()
                self.process.wait()
            self.process = None
            for client in self.clients:
                client.close()
            self.clients.clear()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.ended()

    def stop_daemon(self) -> None:
        """Asks it to end, and sees it end well."""
        self.signal(signal.SIGTERM)
        status = self.ended()
        assert status == 0, f"hutchd ended with {status}: {self.log()[-4000:]}"

    def restart(self, kill: bool = False) -> None:
        if kill:
            self.kill()
        else:
            self.stop_daemon()
        self.begin()

    def memory(self) -> int:
        """Bytes of memory that it has now."""
        return memory_of(self.process.pid)

    # What it has on the host.

    def sandbox_folder(self, sandbox_id: str) -> Path:
        return self.state / "sandboxes" / sandbox_id

    def keepers(self, sandbox_id: str = "") -> list[int]:
        """The processes of keepers that belong to this state folder, or to one sandbox."""
        folder = str(self.sandbox_folder(sandbox_id)) if sandbox_id else str(self.state)
        return [pid for pid in all_processes() if is_keeper(pid) and holds_file_in(pid, folder)]

    def keeper(self, sandbox_id: str) -> int:
        """The keeper of a sandbox: of those processes the one that the others come from."""
        parents = {}
        for pid in self.keepers(sandbox_id):
            with contextlib.suppress(OSError):  # one that was to start or to measure something has ended
                parents[pid] = parent_of(pid)
        return next(pid for pid, parent in parents.items() if parent not in parents)

    def kill_keepers(self, sandbox_id: str = "") -> None:
        for pid in self.keepers(sandbox_id):
            with contextlib.suppress(ProcessLookupError):  # some go with their parents
                os.kill(pid, signal.SIGKILL)

    def cgroup(self, sandbox_id: str = "") -> Path | None:
        """The cgroup of a sandbox, or of them all; None when there is none. docs/cgroups.md says where it is."""
        tree = cgroup_mount()
        for place in (cgroup_of_own(), tree, tree / f"hutch.slice/hutch-{self.instance}.scope"):
            path = place / f"hutch-{self.instance}" / sandbox_id
            if self.instance and path.exists():
                return path
        return None

    def limit_groups(self, sandbox_id: str = "") -> dict[str, Path]:
        """The folders of a sandbox, or of them all, in v1 hierarchies, by controller; those that are there."""
        found = {name: own / f"hutch-{self.instance}" / sandbox_id for name, own in controllers_of_own().items()}
        return {name: path for name, path in found.items() if self.instance and path.exists()}

    def processes(self, sandbox_id: str) -> list[int]:
        """All processes in a sandbox."""
        cgroup = self.cgroup(sandbox_id)
        return processes_of(cgroup / "box") if cgroup else []

    def leftovers(self, sandbox_id: str = "", files: bool = True) -> list[str]:
        """What is there of a sandbox, or of any."""
        found = [f"keeper {pid}" for pid in self.keepers(sandbox_id)]
        cgroup = self.cgroup(sandbox_id)
        if cgroup:
            found += [f"process {pid}" for pid in processes_of(cgroup)]
            found += [f"cgroup {path}" for path in cgroups_below(cgroup, depth=1)][not sandbox_id :]
        for path in self.limit_groups(sandbox_id).values():
            found += [f"cgroup {path}" for path in cgroups_below(path, depth=1)][not sandbox_id :]
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        here = str(self.sandbox_folder(sandbox_id) if sandbox_id else self.state) + "/"
        found += [f"mount {line}" for line in mounts if here in line + "/"]
        if not files:
            address = self.sandbox_folder(sandbox_id) / "keeper.sock"
            return found + [f"socket {address}"] * address.exists()
        for folder in (self.state / "sandboxes", self.state / "trash"):
            if folder.exists():
                found += [f"file {path}" for path in folder.iterdir() if not sandbox_id or sandbox_id in path.name]
        return found

    def finish(self) -> None:
        """Deletes all sandboxes, ends the daemon, and sees that nothing is left, also after what a test did."""
        try:
            if self.process is None:
                self.begin()
            left = self.ids(all_owners=True)
            for one in left:
                self.delete(one)
            for one in left:
                self.wait(one, "DELETED")
            self.stop_daemon()
            assert not self.leftovers()
        finally:
            self.wipe()

    def wipe(self) -> None:
        """Takes away whatever is left, so that one test cannot disturb another."""
        if self.process is not None:
            self.kill()
        self.kill_keepers()
        cgroup = self.cgroup()
        if cgroup:
            (cgroup / "cgroup.kill").write_text("1", encoding="ascii")
            wait_until(lambda: not processes_of(cgroup))
            for path in reversed(cgroups_below(cgroup)):
                path.rmdir()
        for group in self.limit_groups().values():
            for path in reversed(cgroups_below(group)):
                path.rmdir()
        shutil.rmtree(self.folder)


class RestingDaemon(Daemon):
    """A daemon whose sandboxes fail to start, for what can be seen without them. A group may call it."""

    def __init__(self):
        super().__init__()
        self.folder.chmod(0o755)
        self.configure()

    def configure(self, **more) -> None:
        self.write_config({"native": {"keeper": shutil.which("false")}, "socket_group": "nogroup"} | more)


# ---- The host ----


def all_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def is_keeper(pid: int) -> bool:
    try:
        return "hutch-keeper" in os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False  # it is gone, or a thread of the kernel


def holds_file_in(pid: int, folder: str) -> bool:
    with contextlib.suppress(OSError):
        for fd in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if (os.readlink(fd.path) + "/").startswith(folder + "/"):
                    return True
    return False


def status_of(pid: int, key: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(f"{key}:"))


def is_alive(pid: int) -> bool:
    """Whether it runs; what merely was not reaped yet does not."""
    try:
        return status_of(pid, "State")[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent_of(pid: int) -> int:
    return int(status_of(pid, "PPid"))


def memory_of(pid: int) -> int:
    return int(status_of(pid, "VmRSS").split()[0]) * 1024


def cgroup_mount() -> Path:
    """Where the cgroup v2 tree is."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, right = line.split(" - ")
        if right.split()[0] == "cgroup2":
            return Path(left.split()[4])
    raise RuntimeError("this machine has no cgroup v2 tree")


def cgroup_of_own() -> Path:
    """Our own cgroup in that tree, which is also that of the daemons we start."""
    lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    return cgroup_mount() / next(line for line in lines if line.startswith("0::")).removeprefix("0::/")


def controllers_of_own() -> dict[str, Path]:
    """Our own cgroups in v1 hierarchies with controllers that limit sandboxes."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()]
    own = {name: path.lstrip("/") for _, names, path in lines for name in names.split(",")}
    found = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, right = line.split(" - ")
        if right.split()[0] == "cgroup":
            for name in {"cpu", "memory", "pids", "blkio"}.intersection(right.split()[2].split(",")):
                found[name] = Path(left.split()[4]) / own[name]
    return found


def cgroups_below(cgroup: Path, depth: int = 9) -> list[Path]:
    """A cgroup and those below it, down to a depth. Others may come and go meanwhile."""
    found = []
    for folder, names, _ in os.walk(cgroup):
        found.append(Path(folder))
        if len(found[-1].parts) - len(cgroup.parts) == depth:
            names.clear()
    return found


def processes_of(cgroup: Path) -> list[int]:
    """All processes in a cgroup and those below it."""
    pids = []
    for folder in cgroups_below(cgroup):
        with contextlib.suppress(OSError):
            pids += map(int, (folder / "cgroup.procs").read_text(encoding="ascii").split())
    return sorted(set(pids))
