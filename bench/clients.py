# SPDX-License-Identifier: Apache-2.0
"""Measures the clients of each language over one daemon, beside the stubs and libraries that they are written on: a
command's round trip, and one file in and out.

Writes a table to the terminal and to build/bench/clients.md, and the numbers to build/bench/clients.json. Asserts
nothing. docs/benchmarks.md tells what the numbers mean."""

import json
import os
import shutil
import statistics
import tempfile
from pathlib import Path

from sandbox import CLIENT, HUTCH, LIMIT, PROGRAMS, Daemon, build_programs, milliseconds, number
from sandbox_others import output_of
from servers import BUILD, ROOT, environment, run

HERE = ROOT / "bench/clients"
TYPESCRIPT = BUILD / "typescript"
SIZE = 256 << 20
EXECS = 200
FILES = 3
ROUNDS = 3
EXEC, UP, DOWN = "exec", "256 MiB up", "256 MiB down"
UNITS = {EXEC: "ms", UP: "MB/s", DOWN: "MB/s"}
MODES = {EXEC: "exec", UP: "up", DOWN: "down"}  # the file that goes up first comes down


def build_clients() -> None:
    build_programs()
    run("ninja", "-C", PROGRAMS, "bench/file-client", env=environment())
    run("go", "build", "-C", HERE / "go", "-o", BUILD / "client-go", ".", env=environment())
    shutil.rmtree(TYPESCRIPT, ignore_errors=True)
    (TYPESCRIPT / "bench").mkdir(parents=True)
    for name in ("package.json", "tsconfig.json"):
        shutil.copy(ROOT / "clients/typescript" / name, TYPESCRIPT)
    shutil.copytree(ROOT / "clients/typescript/src", TYPESCRIPT / "src")
    shutil.copy(HERE / "typescript.ts", TYPESCRIPT / "bench")
    modules = ROOT / "build/tools/npm-typescript/node_modules"
    (TYPESCRIPT / "node_modules").symlink_to(modules)
    settings = {
        "extends": "../tsconfig.json",
        "compilerOptions": {"rootDir": ".", "outDir": ".", "declaration": False},
        "files": ["typescript.ts"],
        "include": [],
    }
    (TYPESCRIPT / "bench/tsconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    for project in (TYPESCRIPT, TYPESCRIPT / "bench"):
        run(modules / ".bin/tsc", "--project", project, env=environment())


def commands() -> dict[str, tuple]:
    """What measures each client, but for what and how often."""
    sources = f"PYTHONPATH={ROOT}/clients/python/src"
    python = ("env", sources, ROOT / "build/tools/venv/bin/python", HERE / "python.py")
    node = ("node", TYPESCRIPT / "bench/typescript.js")
    return {
        "Python": (*python, "{socket}", "{sandbox}", "hutch"),
        "Python, asyncio": (*python, "{socket}", "{sandbox}", "aio"),
        "Python, raw": (*python, "{socket}", "{sandbox}", "raw"),
        "TypeScript": (*node, "{socket}", "{sandbox}", "hutch"),
        "TypeScript, raw": (*node, "{socket}", "{sandbox}", "raw"),
        "Go": (BUILD / "client-go", "{socket}", "{sandbox}", "hutch"),
        "Go, raw": (BUILD / "client-go", "{socket}", "{sandbox}", "raw"),
    }


def samples_of_c(daemon: Daemon, sandbox: str, row: str) -> list[float]:
    """libhutch by the programs that measure the daemon. It has no stubs: the library is the way to gRPC."""
    if row == EXEC:
        return milliseconds(output_of(CLIENT, daemon.socket, "exec", EXECS, limit=LIMIT))
    words = (PROGRAMS / "bench/file-client", daemon.socket, sandbox, MODES[row], SIZE, FILES)
    return milliseconds(output_of(*words, limit=LIMIT))


def measure() -> dict[str, dict[str, float]]:
    results: dict[str, dict[str, list[float]]] = {row: {} for row in UNITS}
    with tempfile.TemporaryDirectory(prefix="hutch-bench-", dir="/var/tmp", ignore_cleanup_errors=True) as name:
        with Daemon(Path(name) / "daemon") as daemon:
            sandbox = output_of(HUTCH, "--socket", daemon.socket, "create", "--wait", "--disk", "8g").strip()
            places = {"socket": daemon.socket, "sandbox": sandbox}
            for turn in range(ROUNDS):
                print(f"bench: clients, round {turn + 1} of {ROUNDS}", flush=True)
                for row in UNITS:
                    results[row].setdefault("C", []).extend(samples_of_c(daemon, sandbox, row))
                for client, words in commands().items():
                    command = [str(word).format(**places) for word in words]
                    for row, mode in MODES.items():
                        count = EXECS if row == EXEC else FILES
                        taken = milliseconds(output_of(*command, mode, SIZE, count, limit=LIMIT))
                        results[row].setdefault(client, []).extend(taken)
    return {
        row: {
            client: statistics.median(taken) if row == EXEC else SIZE / 1000 / statistics.median(taken)
            for client, taken in clients.items()
        }
        for row, clients in results.items()
    }


def as_markdown(report: dict) -> str:
    clients = list(report["rows"][EXEC])
    lines = ["# Clients compared", "", *(f"- {name}: {fact}" for name, fact in report["machine"].items()), ""]
    lines += ["| client | " + " | ".join(f"{row}, {unit}" for row, unit in UNITS.items()) + " |"]
    lines += ["|---|" + "--:|" * len(UNITS)]
    for client in clients:
        lines.append(f"| {client} | " + " | ".join(number(report["rows"][row][client]) for row in UNITS) + " |")
    return "\n".join(lines) + "\n"


def report(machine: dict[str, str]) -> None:
    if os.geteuid() != 0:
        return
    build_clients()
    told = {"machine": machine, "rows": measure()}
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "clients.json").write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (BUILD / "clients.md").write_text(as_markdown(told), encoding="utf-8")
    print(as_markdown(told), end="")
