# SPDX-License-Identifier: Apache-2.0
"""Measures how files get into a sandbox and out of it: hutch cp beside cp, docker cp, and tar through docker exec; and
the streams of the API alone, beside dd.

Writes a table to the terminal and to build/bench/files.md, and the numbers to build/bench/files.json. Asserts nothing.
docs/benchmarks.md tells what the numbers mean."""

import contextlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from sandbox import HUTCH, LIMIT, OURS, PROGRAMS, Daemon, build_programs, number
from sandbox_others import Docker, Failed, output_of, pids_below
from servers import BUILD

CP, DD, DOCKER_CP, DOCKER_TAR = "cp", "dd", "docker cp", "tar by docker exec"
COLUMNS = (OURS, CP, DD, DOCKER_CP, DOCKER_TAR)
CLIENT = PROGRAMS / "bench/file-client"
SIZES = {"4 KiB": 4 << 10, "1 MiB": 1 << 20, "1 GiB": 1 << 30}
SMALL_FILES = 10_000
SMALL_SIZE = 1000
SAMPLES = 5
LARGE = 1 << 30
STREAMS = 3
SMALL_STREAMS = 50
TARGETS = {"up": "≥ 700", "down": "≥ 1,000"}
FOLDER = f"{SMALL_FILES:,} small files"


def seconds(command: str) -> float:
    """How long a line of the shell takes."""
    started = time.monotonic()
    output_of("sh", "-c", command, limit=LIMIT)
    return time.monotonic() - started


class Way:
    """One way to copy: what the shell does for it."""

    def __init__(self, name: str, into: str, out: str, clean: str):
        self.name, self.into, self.out, self.clean = name, into, out, clean


def make_sources(folder: Path) -> dict[str, Path]:
    sources = {}
    for name, size in SIZES.items():
        sources[name] = folder / name.replace(" ", "")
        with sources[name].open("wb") as file:
            for _ in range(max(1, size >> 20)):
                file.write(os.urandom(min(size, 1 << 20)))
    sources[FOLDER] = folder / "small"
    sources[FOLDER].mkdir()
    for count in range(SMALL_FILES):
        below = sources[FOLDER] / str(count % 100)
        below.mkdir(exist_ok=True)
        (below / str(count)).write_bytes(os.urandom(SMALL_SIZE))
    return sources


def measure_way(way: Way, sources: dict[str, Path], folder: Path, results: dict) -> None:
    for case, source in sources.items():
        names = {"source": source, "name": source.name, "target": folder / "out"}
        taken = {"up": [], "down": []}
        for _ in range(1 if case in ("1 GiB", FOLDER) else SAMPLES):
            taken["up"].append(seconds(way.into.format(**names)))
            shutil.rmtree(folder / "out", ignore_errors=True)
            (folder / "out").mkdir()
            taken["down"].append(seconds(way.out.format(**names)))
            seconds(way.clean.format(**names))
        for direction, samples in taken.items():
            median = statistics.median(samples)
            if case == "1 GiB":
                results.setdefault((f"1 GiB {direction}", "MB/s"), {})[way.name] = LARGE / 1e6 / median
            elif case == FOLDER:
                results.setdefault((f"{case} {direction}", "files/s"), {})[way.name] = SMALL_FILES / median
            else:
                results.setdefault((f"{case} {direction}", "ms"), {})[way.name] = median * 1000


class Peaks:
    """The most memory that hutchd and its keeper have while something happens."""

    def __init__(self, daemon: Daemon):
        self.pids = {"hutchd": daemon.process.pid, "keeper": pids_below(daemon.process.pid, depth=1)[0]}
        self.peaks = dict.fromkeys(self.pids, 0)
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self) -> None:
        while not self.done.wait(0.02):
            for name, pid in self.pids.items():
                with contextlib.suppress(OSError):
                    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
                    self.peaks[name] = max(self.peaks[name], pages * os.sysconf("SC_PAGESIZE") // 1024)

    def __enter__(self) -> "Peaks":
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.done.set()
        self.thread.join()


def stream_case(direction: str) -> str:
    return f"one stream of 1 GiB {direction}, the API alone (target: {TARGETS[direction]})"


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def processor_times(daemon: Daemon) -> dict[str, float]:
    """Of all processes that a byte goes through: of clients those that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    keeper = pids_below(daemon.process.pid, depth=1)[0]
    times = {"client": usage.ru_utime + usage.ru_stime, "hutchd": processor_seconds(daemon.process.pid)}
    times["keeper"] = processor_seconds(keeper)
    for pid in pids_below(keeper):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "hutch-files":
                times["worker"] = times.get("worker", 0) + processor_seconds(pid)
    return times


def measure_streams(daemon: Daemon, sandbox: str, results: dict) -> None:
    """Files from memory and to nowhere, through the API: without a program to start and a disk of the client's."""

    def medium(direction: str, size: int, count: int) -> float:
        """The median of the seconds that a file takes."""
        output = output_of(CLIENT, daemon.socket, sandbox, direction, size, count, limit=LIMIT)
        return statistics.median(map(float, output.split())) / 1e6

    for name, size in SIZES.items():
        for direction in ("up", "down"):
            if size < LARGE:
                taken = medium(direction, size, SMALL_STREAMS) * 1000
                results[f"{name} {direction}, the API alone", "ms"] = {OURS: taken}
                continue
            before = processor_times(daemon)
            taken = medium(direction, size, STREAMS)
            after = processor_times(daemon)
            results[stream_case(direction), "MB/s"] = {OURS: LARGE / 1e6 / taken}
            for process, time_after in after.items():
                spent = (time_after - before[process]) / STREAMS
                results[f"… processor time per GiB {direction}: {process}", "s"] = {OURS: spent}


def measure_dd(folder: Path, results: dict) -> None:
    """The same on the same disk, synced as well, without anything between."""
    file = folder / "dd"
    lines = {
        "up": f"dd if=/dev/zero of={file} bs=1M count={LARGE >> 20} conv=fsync",
        "down": f"dd if={file} of=/dev/null bs=1M",
    }
    for direction, line in lines.items():
        taken = statistics.median(seconds(line) for _ in range(STREAMS))
        results[stream_case(direction), "MB/s"][DD] = LARGE / 1e6 / taken
    file.unlink()


def measure_ours(sources: dict[str, Path], folder: Path, results: dict) -> None:
    with Daemon(folder / "daemon") as daemon:
        hutch = f"{HUTCH} --socket {daemon.socket}"
        sandbox = output_of("sh", "-c", f"{hutch} create --wait --disk 8g", limit=LIMIT).strip()
        way = Way(
            OURS,
            f"{hutch} cp '{{source}}' {sandbox}:",
            f"{hutch} cp {sandbox}:'{{name}}' '{{target}}'",
            f"{hutch} rm -r {sandbox}:'{{name}}'",
        )
        with Peaks(daemon) as memory:
            measure_way(way, sources, folder, results)
            measure_streams(daemon, sandbox, results)
        for name, kib in memory.peaks.items():
            results.setdefault((f"the most memory of {name} meanwhile", "KiB"), {})[OURS] = kib
        output_of("sh", "-c", f"{hutch} delete --wait {sandbox}", limit=LIMIT)


def measure_docker(sources: dict[str, Path], folder: Path, results: dict) -> None:
    with Docker(folder) as docker:
        client, kept = " ".join(str(word) for word in docker.client), docker.kept
        inside = f"{client} exec -i {kept}"
        clean = f"{inside} rm -r '/{{name}}'"
        copy = Way(
            DOCKER_CP, f"{client} cp '{{source}}' {kept}:/", f"{client} cp {kept}:'/{{name}}' '{{target}}'", clean
        )
        tar = Way(
            DOCKER_TAR,
            f"tar -C '{{source}}/..' -c '{{name}}' | {inside} tar -C / -x",
            f"{inside} tar -C / -c '{{name}}' | tar -C '{{target}}' -x",
            clean,
        )
        # A file has no "..": the folder that it is in is the same for all.
        tar.into = tar.into.replace("{source}/..", str(next(iter(sources.values())).parent))
        for way in (copy, tar):
            measure_way(way, sources, folder, results)


def as_markdown(report: dict) -> str:
    lines = ["# Files compared", "", *(f"- {name}: {fact}" for name, fact in report["machine"].items())]
    lines += [f"- {name} was not measured: {why}" for name, why in report["failures"].items()]
    lines += ["", "| what | unit | " + " | ".join(COLUMNS) + " |", "|---|---|" + "--:|" * len(COLUMNS)]
    for row in report["rows"]:
        cells = [number(row["values"][column]) if column in row["values"] else "–" for column in COLUMNS]
        lines.append("| " + " | ".join([row["case"], row["unit"], *cells]) + " |")
    return "\n".join(lines) + "\n"


def report(machine: dict[str, str]) -> None:
    if os.geteuid() != 0:
        return
    build_programs()
    results: dict[tuple[str, str], dict[str, float]] = {}
    failures: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="hutch-bench-", dir="/var/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "sources").mkdir()
        print("bench: files", flush=True)
        sources = make_sources(folder / "sources")
        copy = Way(CP, f"cp -r '{{source}}' {folder}/copy", f"cp -r {folder}/copy '{{target}}'", f"rm -r {folder}/copy")
        measure_way(copy, sources, folder, results)
        measure_ours(sources, folder, results)
        measure_dd(folder, results)
        try:
            measure_docker(sources, folder, results)
        except (Failed, subprocess.SubprocessError) as failure:
            failures["docker"] = str(failure)
    rows = [{"case": case, "unit": unit, "values": values} for (case, unit), values in results.items()]
    told = {"machine": machine, "failures": failures, "rows": rows}
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "files.json").write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (BUILD / "files.md").write_text(as_markdown(told), encoding="utf-8")
    print(as_markdown(told), end="")
