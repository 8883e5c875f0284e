# SPDX-License-Identifier: Apache-2.0
"""Measures sandboxes through the public API, beside the raw floor of the same work and beside what others take.

Writes a table to the terminal and to build/bench/sandbox.md, and the numbers to build/bench/sandbox.json. Asserts
nothing. docs/benchmarks.md tells what the numbers mean."""

import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from sandbox_others import BWRAP, DOCKER, OTHERS, PODMAN, RUNC, TRUE, UNSHARE, Failed, output_of, pids_below, pss_kib
from servers import BUILD, LOAD_CORE, ROOT, SERVER_CORE, environment, run

PROGRAMS = Path(os.environ.get("HUTCH_BUILD", ROOT / "build/release"))
FLOOR, CLIENT, HUTCH = PROGRAMS / "bench/sandbox-floor", PROGRAMS / "bench/sandbox-client", PROGRAMS / "hutch"

OURS, RAW = "hutch", "raw floor"
COLUMNS = (OURS, RAW, UNSHARE, BWRAP, RUNC, PODMAN, DOCKER)
SAMPLES = 50  # of one thing in one round; the slow ones are measured less often
TURNS = 10  # in which these are taken where small differences matter
RUNS = 100  # in the measurements of rates
CREATES = 400
AT_ONCE = 2
CLIENTS = 8  # enough that accepting waits for nobody
IDLE = 1000
PING_CONNECTIONS = 100
PING_SECONDS = 2
SETTLE = 1  # seconds
WARM_SIZE = 64  # sandboxes that are ready, more than samples: while these are taken none is made
FORGET = 65  # seconds: an ext4 without a journal makes files the slower the more were removed in the last minute
LIMIT = 300  # seconds that anything may take
START_LIMIT = 60
CONFIG = {"limits": {"sandboxes_per_caller": 10000}, "sandboxes": {"idle_ttl": "0"}, "log": {"level": "warning"}}

COLD, EXEC = "create + first exec's result, cold", "exec in a running sandbox"
WARM, SHELL_WARM = "create + first exec's result, warm", "hutch run, warm"
ONCE, ONCE_WARM = "the same in one call, cold", "the same in one call, warm"
SHELL, SHELL_FROM_NOTHING = "from the shell: hutch run, docker run …", "hutch run, when no daemon runs yet"
SPAWN_STATIC = "spawn + exec + wait of a static program"
NAMESPACES, SYNC = "clone3 into the namespaces + exec + wait", "write + fdatasync of a page"
RUN_RATE = f"create + exec + remove, {AT_ONCE} at a time"
CREATE_RATE, CREATE_RATE_FULL = f"creates until READY, {CLIENTS} clients", f"the same with {IDLE:,} alive"
KEEPER, INIT = "memory of an idle sandbox: keeper (Docker: shim)", "… PID 1"
DAEMON_GROWTH, KERNEL, ALL_MEMORY = "… hutchd's growth", "… the kernel", "… all of it"
SERVING, ATTACHED = f"restart with {IDLE:,} sandboxes: serving", "… all of them attached"
# Of what keepers can do without, in the words of keeper-without.c.
WALLS = {
    "nothing": "all walls",
    "seccomp": "without the list of system calls",
    "landlock": "without Landlock",
    "keeper-filter": "without the keeper's own list",
    "limits": "without limits",
    "all": "without all of these",
}
WALL_COLD, WALL_EXEC = "create + first exec, {}", "exec, {}"
PING, RESIDENT = f"Ping, {PING_CONNECTIONS} connections, one core", "hutchd resident, idle"

# In the order they are shown.
UNITS = {
    COLD: "ms",
    ONCE: "ms",
    WARM: "ms",
    ONCE_WARM: "ms",
    EXEC: "ms",
    SHELL: "ms",
    SHELL_WARM: "ms",
    SHELL_FROM_NOTHING: "ms",
    SPAWN_STATIC: "ms",
    NAMESPACES: "ms",
    SYNC: "ms",
    RUN_RATE: "1/s",
    CREATE_RATE: "1/s",
    CREATE_RATE_FULL: "1/s",
    KEEPER: "KiB",
    INIT: "KiB",
    DAEMON_GROWTH: "KiB",
    KERNEL: "KiB",
    ALL_MEMORY: "KiB",
    SERVING: "ms",
    ATTACHED: "ms",
    PING: "1/s",
    RESIDENT: "KiB",
} | {row.format(words): "ms" for row in (WALL_COLD, WALL_EXEC) for words in WALLS.values()}


class Target(NamedTuple):
    """What our number is to be at most or at least: @factor times the number in the column @of, or @factor itself, and
    @more."""

    text: str
    factor: float
    of: str = ""
    more: float = 0

    def is_met(self, values: dict[str, float]) -> bool | None:
        """None: what it takes was not measured."""
        if OURS not in values or self.of and self.of not in values:
            return None
        limit = (self.factor * values[self.of] if self.of else self.factor) + self.more
        return values[OURS] <= limit if self.text.startswith("≤") else values[OURS] >= limit


TARGETS = {
    COLD: [Target("≤ 2 × floor", 2, RAW), Target("≤ Docker ÷ 100", 0.01, DOCKER)],
    ONCE: [Target("≤ 2 × floor", 2, RAW)],
    WARM: [Target("≤ 1.5 × floor + 0.5", 1.5, RAW, 0.5)],
    ONCE_WARM: [Target("≤ 1.5 × floor + 0.5", 1.5, RAW, 0.5)],
    EXEC: [Target("≤ 2 × floor", 2, RAW)],
    SHELL: [Target("≤ Docker ÷ 30", 1 / 30, DOCKER), Target("≤ 2 × bwrap", 2, BWRAP)],
    CREATE_RATE: [Target("≥ 400", 400)],
    CREATE_RATE_FULL: [Target("≥ 400", 400)],
    ALL_MEMORY: [Target("≤ 0.7 MiB", 0.7 * 1024)],
    SERVING: [Target("≤ 1 s", 1000)],
    PING: [Target("≥ 50,000", 50000)],
    RESIDENT: [Target("≤ 8 MB", 8e6 / 1024)],
}


class Results:
    """Samples by what was measured and of whom; a result is the median of its samples."""

    def __init__(self):
        self.samples: dict[str, dict[str, list[float]]] = {}
        self.failures: dict[str, str] = {}

    def add(self, row: str, column: str, sample: float) -> None:
        self.samples.setdefault(row, {}).setdefault(column, []).append(sample)

    def has(self, row: str, column: str) -> bool:
        return column in self.samples.get(row, {})

    def as_list(self) -> list[dict]:
        rows = []
        for row, unit in UNITS.items():
            samples = self.samples.get(row, {})
            values = {column: statistics.median(taken) for column, taken in samples.items()}
            targets = {target.text: target.is_met(values) for target in TARGETS.get(row, [])}
            rows.append({"case": row, "unit": unit, "values": values, "targets": targets, "samples": samples})
        return rows


# ---- The daemon ----


class Daemon:
    """hutchd with a state folder of its own. All sandboxes end with the context."""

    def __init__(self, folder: Path, wrapper: tuple = (), keeper: Path | None = None, warm: int = 0):
        self.folder, self.socket, self.wrapper = folder, folder / "hutchd.sock", wrapper
        folder.mkdir()
        config = CONFIG | ({"native": {"keeper": str(keeper)}} if keeper else {})
        config["sandboxes"] = CONFIG["sandboxes"] | {"warm": warm}
        (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
        self.process: subprocess.Popen
        self.keepers: list[int] = []  # of a daemon that was killed, as pidfds

    def start(self) -> float:
        """Returns the seconds until it serves."""
        notify = self.folder / "notify"
        notify.unlink(missing_ok=True)
        paths = ("--socket", self.socket, "--state", self.folder / "state", "--config", self.folder / "config.yaml")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, (self.folder / "log").open("ab") as log:
            ready.bind(str(notify))
            ready.settimeout(START_LIMIT)
            started = time.monotonic()
            self.process = subprocess.Popen(
                [*self.wrapper, PROGRAMS / "hutchd", *paths],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "NOTIFY_SOCKET": str(notify)},
            )
            try:
                ready.recv(100)
            except TimeoutError:
                raise SystemExit(f"bench: hutchd did not start:\n{self.log()}") from None
            return time.monotonic() - started

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(START_LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kill(self) -> None:
        self.note_keepers()
        self.process.kill()
        self.process.wait()

    def note_keepers(self) -> None:
        for pid in pids_below(self.process.pid, depth=1):
            with contextlib.suppress(ProcessLookupError):
                self.keepers.append(os.pidfd_open(pid))

    def __enter__(self) -> "Daemon":
        self.start()
        return self

    def __exit__(self, *_) -> None:
        """Whatever happened, no keeper stays behind."""
        self.note_keepers()
        with contextlib.suppress(SystemExit, subprocess.TimeoutExpired):
            self.client("delete")
        self.stop()
        for keeper in self.keepers:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(keeper, signal.SIGKILL)
            os.close(keeper)
        self.remove_cgroups()

    def remove_cgroups(self) -> None:
        """A daemon keeps the one that its sandboxes' are in: they may run on without it."""
        with contextlib.closing(sqlite3.connect(self.folder / "state/hutch.db")) as store:
            instance = store.execute("SELECT value FROM facts WHERE name = 'instance_id'").fetchone()[0]
        mounts = [line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
        own = re.search(r"^0::/(.*)$", Path("/proc/self/cgroup").read_text(encoding="utf-8"), re.MULTILINE)
        for tree in (Path(mount[1]) for mount in mounts if own and mount[2] == "cgroup2"):
            cgroup = tree / own[1] / f"hutch-{instance}"
            with contextlib.suppress(OSError):
                for path in [*sorted(filter(Path.is_dir, cgroup.rglob("*")), reverse=True), cgroup]:
                    path.rmdir()

    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def client(self, *arguments) -> str:
        return run(CLIENT, self.socket, *arguments, limit=LIMIT)

    def clients(self, clients: int, mode: str, count: int) -> float:
        """Has clients do something @count times, all together. Returns the seconds it takes."""
        return seconds_together([(CLIENT, self.socket, mode, count // clients)] * clients)

    def wait_for_sandboxes(self, count: int) -> None:
        """Until there are so many, whosever they are, and a moment longer."""
        end = time.monotonic() + START_LIMIT
        while len(os.listdir(self.folder / "state/sandboxes")) < count and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(SETTLE)

    def resident_kib(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(re.search(r"VmRSS:\s*(\d+) kB", status)[1])


def seconds_together(commands: list[tuple]) -> float:
    """How long it takes to run @commands at the same time. All must end well."""
    started = time.monotonic()
    processes = [
        subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for command in commands
    ]
    try:
        ended = [process.wait(LIMIT) for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(ended):
        raise Failed(f"{commands[0][0]} failed")
    return time.monotonic() - started


def milliseconds(output: str) -> list[float]:
    return [float(line) / 1000 for line in output.split()]


def spawned(count: int, *command) -> list[float]:
    """The milliseconds from starting @command to its end, @count times."""
    return milliseconds(output_of(FLOOR, "spawn", count, *command, limit=LIMIT))


# ---- What is measured ----


def measure_ours(results: Results, folder: Path) -> None:
    with Daemon(folder) as daemon:
        daemon.client("cold", 3)
        results.add(COLD, OURS, statistics.median(milliseconds(daemon.client("cold", SAMPLES))))
        results.add(ONCE, OURS, statistics.median(milliseconds(daemon.client("once", SAMPLES))))
        results.add(EXEC, OURS, statistics.median(milliseconds(daemon.client("exec", SAMPLES))))
        shell = spawned(SAMPLES, HUTCH, "--socket", daemon.socket, "run", "--", TRUE)
        results.add(SHELL, OURS, statistics.median(shell))
        daemon.client("delete")
        started = time.monotonic()
        daemon.clients(AT_ONCE, "run", RUNS)
        daemon.client("delete")
        results.add(RUN_RATE, OURS, RUNS / (time.monotonic() - started))
        results.add(CREATE_RATE, OURS, CREATES / daemon.clients(CLIENTS, "create", CREATES))


def measure_warm(results: Results, folder: Path) -> None:
    """As the cold ones, one right after the other."""
    with Daemon(folder, warm=WARM_SIZE) as daemon:
        daemon.client("cold", 1)
        daemon.wait_for_sandboxes(WARM_SIZE)
        results.add(WARM, OURS, statistics.median(milliseconds(daemon.client("cold", SAMPLES))))
        daemon.wait_for_sandboxes(WARM_SIZE)
        shell = spawned(SAMPLES, HUTCH, "--socket", daemon.socket, "run", "--", TRUE)
        results.add(SHELL_WARM, OURS, statistics.median(shell))
    with Daemon(folder.with_name(folder.name + "-once"), warm=WARM_SIZE) as daemon:
        daemon.client("once", 1)
        daemon.wait_for_sandboxes(WARM_SIZE)
        results.add(ONCE_WARM, OURS, statistics.median(milliseconds(daemon.client("once", SAMPLES))))


def measure_from_nothing(results: Results, folder: Path) -> None:
    """Each time with a daemon that is started for it, and ended afterwards, on the state of the one before."""
    folder.mkdir()
    paths = {"HUTCH_SOCKET": str(folder / "hutchd.sock"), "HUTCH_STATE": str(folder / "state")}
    samples = []
    for _ in range(5):
        samples += spawned(1, "env", *(f"{name}={value}" for name, value in paths.items()), HUTCH, "run", "--", TRUE)
        output_of("env", *(f"{name}={value}" for name, value in paths.items()), HUTCH, "daemon", "stop")
    results.add(SHELL_FROM_NOTHING, OURS, statistics.median(samples))


def measure_ping(results: Results, folder: Path) -> None:
    """On a core of its own, with the load on another."""
    with Daemon(folder, ("taskset", "-c", SERVER_CORE)) as daemon:
        body = folder / "body"
        body.write_bytes(bytes(5))
        url = "http://localhost/hutch.v1.SystemService/Ping"
        output = run(
            *("taskset", "-c", LOAD_CORE, "h2load", "-B", f"unix:{daemon.socket}", "-c", PING_CONNECTIONS),
            *("-D", PING_SECONDS, "--warm-up-time=500ms", "-d", body),
            *("-H", "content-type: application/grpc", "-H", "te: trailers", url),
            limit=PING_SECONDS + 60,
        )
        results.add(PING, OURS, float(re.search(r"finished in [^,]*, ([\d.]+) req/s", output)[1]))


def kernel_kib() -> int:
    """What the kernel holds for itself and cannot give back."""
    meminfo = dict(re.findall(r"(\w+):\s*(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii")))
    return sum(int(meminfo[name]) for name in ("SUnreclaim", "KernelStack", "PageTables", "Percpu"))


def measure_idle(results: Results, folder: Path, idle: int) -> None:
    with Daemon(folder) as daemon:
        results.add(RESIDENT, OURS, daemon.resident_kib())
        daemon.client("cold", 1)
        resident, kernel = daemon.resident_kib(), kernel_kib()
        daemon.clients(CLIENTS, "create", idle)
        time.sleep(SETTLE)
        keepers = pids_below(daemon.process.pid, depth=1)
        inits = set(pids_below(daemon.process.pid, depth=2)) - set(keepers)
        used = {
            KEEPER: sum(map(pss_kib, keepers)),
            INIT: sum(map(pss_kib, inits)),
            DAEMON_GROWTH: daemon.resident_kib() - resident,
            KERNEL: kernel_kib() - kernel,
        }
        used[ALL_MEMORY] = sum(used.values())
        for row, kib in used.items():
            results.add(row, OURS, kib / idle)

        daemon.kill()
        started = time.monotonic()
        results.add(SERVING, OURS, daemon.start() * 1000)
        daemon.client("attached", idle)
        results.add(ATTACHED, OURS, (time.monotonic() - started) * 1000)
        results.add(CREATE_RATE_FULL, OURS, CREATES / daemon.clients(CLIENTS, "create", CREATES))


def measure_walls(results: Results, folder: Path) -> None:
    """What each wall costs: keepers that are started by way of a program which takes it away, or nothing. Few samples
    at a time, of each in turn: what changes meanwhile is then the same for all."""
    folder.mkdir()
    samples: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        daemons = {}
        for wall, words in WALLS.items():
            keeper = folder / wall
            keeper.write_text(f"#!{PROGRAMS}/bench/keeper-without {wall}:{PROGRAMS}/hutch-keeper\n", encoding="utf-8")
            keeper.chmod(0o755)
            daemons[words] = stack.enter_context(Daemon(folder / f"daemon-{wall}", keeper=keeper))
        for _ in range(TURNS):
            for words, daemon in daemons.items():
                for row, mode in ((WALL_COLD, "cold"), (WALL_EXEC, "exec")):
                    taken = milliseconds(daemon.client(mode, SAMPLES // TURNS))
                    samples.setdefault(row.format(words), []).extend(taken)
    for row, taken in samples.items():
        results.add(row, OURS, statistics.median(taken))


def measure_floor(results: Results, folder: Path) -> None:
    def median(*arguments) -> float:
        return statistics.median(milliseconds(output_of(FLOOR, *arguments, limit=LIMIT)))

    folders = [folder / f"floor-{worker}" for worker in range(AT_ONCE)]
    for one in folders:
        one.mkdir(exist_ok=True)
    sandbox, spawn = median("sandbox", folders[0], SAMPLES, TRUE), median("spawn", SAMPLES, TRUE)
    for row, floor in {COLD: sandbox, ONCE: sandbox, EXEC: spawn, WARM: spawn, ONCE_WARM: spawn}.items():
        results.add(row, RAW, floor)
    results.add(SPAWN_STATIC, RAW, median("spawn", SAMPLES, FLOOR, "nothing"))
    results.add(NAMESPACES, RAW, median("namespaces", SAMPLES, TRUE))
    results.add(SYNC, RAW, median("sync", folder / "page", SAMPLES))
    seconds = seconds_together([(FLOOR, "sandbox", one, RUNS // AT_ONCE, TRUE) for one in folders])
    results.add(RUN_RATE, RAW, RUNS / seconds)


def measure_other(results: Results, other) -> None:
    """The slower it is, the fewer samples are taken."""
    count = max(3, min(SAMPLES, int(3000 / spawned(1, *other.run(0))[0])))
    cold = statistics.median(spawned(count, *other.run(0)))
    results.add(COLD, other.name, cold)
    results.add(SHELL, other.name, cold)
    if command := other.execute():
        results.add(EXEC, other.name, statistics.median(spawned(count, *command)))
    seconds = seconds_together([(FLOOR, "spawn", count, *other.run(worker)) for worker in range(AT_ONCE)])
    results.add(RUN_RATE, other.name, AT_ONCE * count / seconds)
    if not results.has(KEEPER, other.name) and (used := other.idle_kib()):
        results.add(KEEPER, other.name, used)


def measure(rounds: int, idle: int) -> Results:
    results = Results()
    with contextlib.ExitStack() as stack:
        # Not in /tmp, which may be in memory: what must last is to be written to a disk.
        name = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="hutch-bench-", dir="/var/tmp", ignore_cleanup_errors=True)
        )
        folder, others = Path(name), []
        for Other in OTHERS:
            try:
                others.append(stack.enter_context(Other(folder)))
            except Failed as failure:
                results.failures[Other.name] = str(failure)
        for number in range(rounds):
            print(f"bench: sandboxes, round {number + 1} of {rounds}", flush=True)
            time.sleep(FORGET)
            measure_floor(results, folder)
            measure_ours(results, folder / f"daemon-{number}")
            measure_warm(results, folder / f"warm-{number}")
            measure_from_nothing(results, folder / f"nothing-{number}")
            measure_ping(results, folder / f"ping-{number}")
            measure_walls(results, folder / f"walls-{number}")
            for other in [one for one in others if one.name not in results.failures]:
                try:
                    measure_other(results, other)
                except Failed as failure:
                    results.failures[other.name] = str(failure)
        print(f"bench: {idle} idle sandboxes", flush=True)
        measure_idle(results, folder / "idle", idle)
    return results


# ---- The report ----


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def as_markdown(report: dict) -> str:
    lines = ["# Sandboxes compared", "", *(f"- {name}: {fact}" for name, fact in report["machine"].items())]
    lines += [f"- {name} was not measured: {why}" for name, why in report["failures"].items()]
    lines += ["", "| what | unit | " + " | ".join(COLUMNS) + " | target |"]
    lines += ["|---|---|" + "--:|" * len(COLUMNS) + "---|"]
    for row in report["rows"]:
        cells = [number(row["values"][column]) if column in row["values"] else "–" for column in COLUMNS]
        words = {True: "met", False: "missed", None: "not told"}
        targets = "; ".join(f"{text}: {words[met]}" for text, met in row["targets"].items())
        lines.append("| " + " | ".join([row["case"], row["unit"], *cells, targets]) + " |")
    return "\n".join(lines) + "\n"


def build_programs() -> None:
    if not (PROGRAMS / "build.ninja").exists():
        run("meson", "setup", PROGRAMS, "--buildtype=release", env=environment() | {"CC": "gcc"})
    ours = [f"bench/{name}" for name in ("sandbox-client", "sandbox-floor", "keeper-without", "file-client")]
    run("ninja", "-C", PROGRAMS, "hutch", "hutchd", "hutch-keeper", *ours, env=environment())


def report(machine: dict[str, str], rounds: int, idle: int = IDLE) -> None:
    if os.geteuid() != 0:
        print("bench: sandboxes are not measured: their floor needs root", flush=True)
        return
    build_programs()
    try:
        results = measure(rounds, idle)
    except Failed as failure:
        raise SystemExit(f"bench: {failure}") from None
    BUILD.mkdir(parents=True, exist_ok=True)
    told = {"machine": machine, "failures": results.failures, "rows": results.as_list()}
    (BUILD / "sandbox.json").write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (BUILD / "sandbox.md").write_text(as_markdown(told), encoding="utf-8")
    print(as_markdown(told), end="")
