#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many sandboxes under mixed abuse for some minutes, with the daemon and a polite sandbox watched all the while.

Every abuse of tests/integration/abuses.py runs in many sandboxes at once; meanwhile sandboxes are paused, stopped,
resumed, deleted and made anew, execs cancelled, streams abandoned. A process of its own measures what a polite caller
sees. In the end all is deleted, and what is left of it on the host is told. Times are reported and not judged; a polite
call that fails and anything that is left are failures.

    make soak
    tests/soak/abuse.py --minutes 10 --sandboxes 300 --seed 1
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests/integration"), str(ROOT / "clients/python/src")]

# pylint: disable=wrong-import-position
import grpc  # noqa: E402
from abuses import ABUSES, argv  # noqa: E402
from hutch.v1 import sandbox_pb2, system_pb2  # noqa: E402
from hutchd import MIB, Client, Daemon, Refusal, memory_of, state_name  # noqa: E402
from streams import attach  # noqa: E402

LIMITS = {"memory_bytes": 32 * MIB, "max_processes": 30, "cpu_millis": 100, "max_open_files": 256, "tmp_bytes": 8 * MIB}
WARM_UP = 5  # seconds of peace, to compare with
ACTIONS_PER_SECOND = 25
ABUSES_AT_ONCE = 3  # of one sandbox
DELETE_LIMIT = 300  # seconds for all
POLITE = "polite"


# ---- The polite caller, in a process of its own ----


def watch(socket: Path, report: Path) -> None:
    """Measures until it is told to end, or to begin anew (SIGUSR1)."""
    client = Client(socket)
    usage = sandbox_pb2.GetSandboxRequest(sandbox_id=POLITE, include_usage=True)
    calls = {
        "Ping": lambda: client.system.Ping(system_pb2.PingRequest(), timeout=60),
        "GetSandbox, usage": lambda: client.sandboxes.GetSandbox(usage, timeout=60),
        "RunCommand, true": lambda: client.run(POLITE, "true", timeout=60),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    errors: list[str] = []
    parts = []
    wanted = {"end": False, "anew": False}
    signal.signal(signal.SIGTERM, lambda *_: wanted.update(end=True))
    signal.signal(signal.SIGUSR1, lambda *_: wanted.update(anew=True))
    while not wanted["end"]:
        for name, call in calls.items():
            begin = time.monotonic()
            try:
                call()
            except grpc.RpcError as error:
                errors.append(f"{name}: {error.code().name} {error.details()}")
            times[name].append(time.monotonic() - begin)
        if wanted["anew"]:
            parts.append(times)
            times, wanted["anew"] = {name: [] for name in calls}, False
        time.sleep(0.02)
    report.write_text(json.dumps({"parts": [*parts, times], "errors": errors}), encoding="utf-8")


def at(times: list[float], part: float) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] * 1000


# ---- The abuse ----


class Abuse:
    """Sandboxes that are up to no good, and callers who make it worse."""

    def __init__(self, daemon: Daemon, n: int, seed: int):
        self.daemon = daemon
        self.random = random.Random(seed)
        self.n_made = 0
        self.done: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        self.sandboxes = [self.make() for _ in range(n)]
        for sandbox in self.sandboxes:
            daemon.wait(sandbox, "READY", limit=120)

    def make(self) -> str:
        self.n_made += 1
        return self.daemon.create(f"hostile-{self.n_made}", limits=LIMITS).id

    def abuse(self, sandbox: str) -> str:
        name = self.random.choice(list(ABUSES))
        if self.daemon.get(sandbox).active_execs < ABUSES_AT_ONCE:
            command = argv(name, self.random.uniform(5, 40))
            self.daemon.start(sandbox, *command, output_limit_bytes=MIB)
        return name

    def act(self) -> None:
        """Does one thing to one of them. That it is refused is the daemon's good right."""
        place = self.random.randrange(len(self.sandboxes))
        sandbox = self.sandboxes[place]
        what = self.random.choices(
            ["abuse", "pause", "unpause", "stop", "resume", "delete", "attach", "many execs"],
            [60, 4, 8, 2, 6, 3, 4, 3],
        )[0]
        try:
            if what == "abuse":
                what = self.abuse(sandbox)
            elif what == "stop":
                self.daemon.stop(sandbox, grace=0.5)
            elif what == "delete":
                self.daemon.delete(sandbox)
                self.sandboxes[place] = self.make()
            elif what == "attach":
                self.abandon(sandbox)
            elif what == "many execs":
                for _ in range(20):
                    self.daemon.start(sandbox, "true")
            else:
                getattr(self.daemon, what)(sandbox)
            self.done[what] = self.done.get(what, 0) + 1
        except grpc.RpcError as error:
            reason = Refusal(error).reason or f"{error.code().name} {error.details()}"
            self.refused[reason] = self.refused.get(reason, 0) + 1

    def abandon(self, sandbox: str) -> None:
        """Attaches to a flood over a connection of its own, and goes away."""
        exec_id = self.daemon.start(sandbox, *argv("output flood", 10), output_limit_bytes=MIB).id
        client = Client(self.daemon.socket)
        for _ in range(5):
            attach(client, sandbox, exec_id)
        client.close()

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.monotonic()
            self.act()
            time.sleep(max(0.0, 1 / ACTIONS_PER_SECOND - (time.monotonic() - begin)))


# ---- The daemon and the host ----


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Samples(threading.Thread):
    """What the daemon has, once a second."""

    def __init__(self, daemon: Daemon):
        super().__init__(daemon=True)
        self.pid = daemon.process.pid
        self.rss, self.fds, self.load = [memory_of(self.pid)], [self.count_fds()], [0.0]
        self.cpu, self.begin = cpu_of(self.pid), time.monotonic()
        self.ended = threading.Event()

    def count_fds(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def run(self) -> None:
        while not self.ended.wait(1):
            self.rss.append(memory_of(self.pid))
            self.fds.append(self.count_fds())
            self.load.append(os.getloadavg()[0])

    def end(self) -> float:
        """Returns how much of a core it used."""
        self.ended.set()
        self.join()
        return (cpu_of(self.pid) - self.cpu) / (time.monotonic() - self.begin)


def loops_in(folder: Path) -> list[str]:
    """Loop devices that stand on files of the daemon."""
    found = []
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        if file.read_text(encoding="utf-8").startswith(str(folder)):
            found.append(f"loop device {file.parts[3]}")
    return found


def remove_all(daemon: Daemon) -> tuple[float, list[str]]:
    """Deletes everything. Returns how long that took, and what is left."""
    begin = time.monotonic()
    ids = daemon.ids(all_owners=True)
    for one in ids:
        daemon.delete(one)
    left = []
    for one in ids:
        try:
            daemon.wait(one, "DELETED", limit=max(1.0, begin + DELETE_LIMIT - time.monotonic()))
        except AssertionError:
            left.append(f"sandbox {one}, {state_name(daemon.get(one))}")
    return time.monotonic() - begin, left + daemon.leftovers() + loops_in(daemon.folder)


# ---- All of it ----


def print_report(watched: dict, samples: Samples, cpu: float, abuse: Abuse) -> None:
    peace, war, after = watched["parts"]
    print(f"\n{'polite caller, ms':24}{'peace p50':>10}{'p99':>9}{'abuse p50':>11}{'p99':>9}{'max':>9}{'calls':>8}")
    for name, times in war.items():
        row = (at(peace[name], 0.5), at(peace[name], 0.99), at(times, 0.5), at(times, 0.99), at(times, 1))
        print(f"{name:24}{row[0]:10.2f}{row[1]:9.2f}{row[2]:11.2f}{row[3]:9.2f}{row[4]:9.1f}{len(times):8}")
    print(f"while all are deleted: Ping p99 {at(after['Ping'], 0.99):.1f} ms, max {at(after['Ping'], 1):.1f} ms")
    print(
        f"hutchd: {cpu:.2f} cores; {samples.rss[0] / MIB:.1f} MiB at first, {max(samples.rss) / MIB:.1f} at most, "
        f"{samples.rss[-1] / MIB:.1f} in the end; {samples.fds[0]}, {max(samples.fds)}, {samples.fds[-1]} descriptors; "
        f"load of the host at most {max(samples.load):.0f}"
    )
    print("done: " + ", ".join(f"{n} {what}" for what, n in sorted(abuse.done.items())))
    print("refused: " + (", ".join(f"{n} {why}" for why, n in sorted(abuse.refused.items())) or "nothing"))


def soak(daemon: Daemon, options: argparse.Namespace) -> int:
    report = daemon.folder / "watched"
    before = Samples(daemon)
    daemon.ready(POLITE)
    begin = time.monotonic()
    abuse = Abuse(daemon, options.sandboxes, options.seed)
    print(f"{options.sandboxes} sandboxes made in {time.monotonic() - begin:.1f} s, seed {options.seed}", flush=True)

    command = [sys.executable, __file__, "--watch", daemon.socket, report]
    with subprocess.Popen([str(word) for word in command]) as watcher:
        try:
            samples = Samples(daemon)
            samples.rss, samples.fds = before.rss, before.fds
            time.sleep(WARM_UP)
            watcher.send_signal(signal.SIGUSR1)
            samples.start()
            abuse.run(options.minutes * 60)
            cpu = samples.end()
            watcher.send_signal(signal.SIGUSR1)
            for sandbox in daemon.ids(all_owners=True):
                if sandbox != POLITE:
                    daemon.delete(sandbox)
            time.sleep(WARM_UP)
        finally:
            watcher.terminate()
            watcher.wait(120)
    took, left = remove_all(daemon)
    samples.rss.append(memory_of(daemon.process.pid))
    samples.fds.append(samples.count_fds())

    watched = json.loads(report.read_text(encoding="utf-8"))
    print_report(watched, samples, cpu, abuse)
    print(f"all deleted within {took + WARM_UP:.1f} s; left on the host: {len(left)}")
    for line in left + watched["errors"]:
        print(f"FAIL  {line}")
    for name in {line.split("/")[-1] for line in left}:
        print("".join(f"  {line}\n" for line in daemon.log().splitlines() if f"sandbox={name} " in line + " "), end="")
    return 1 if left or watched["errors"] else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--sandboxes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--watch", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.watch:
        watch(*options.watch)
        return 0
    daemon = Daemon()
    daemon.begin()
    try:
        return soak(daemon, options)
    finally:
        daemon.finish()


if __name__ == "__main__":
    sys.exit(main())
