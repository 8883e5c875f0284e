# SPDX-License-Identifier: Apache-2.0
"""Walks the includes of a source folder and reports what breaks the order of the rooms."""

import re
from pathlib import Path, PurePosixPath

# Who may include whom, beside itself: rooms, or folders or single headers of a room. Everyone may include base. A
# folder of a room that is listed here knows no more of its room than it says.
MAY_INCLUDE = {
    "base": set(),
    "contract": set(),  # generated from proto/
    "rpc": {"contract/google", "contract/grpc"},  # what gRPC itself defines
    "rpc/core": {"contract/google"},  # has no sockets and no clock
    "pbtext": set(),
    "local": set(),
    "model": set(),
    "policy": {"model"},
    "host": {"model", "policy"},
    "store": {"model"},
    "output": {"model"},
    "runtime": {"host", "model", "policy", "rpc", "contract"},
    "control": {"model", "policy", "store", "output", "runtime/runtime.h"},
    "api": {"rpc", "control", "model", "policy", "runtime/runtime.h", "contract"}
    | {"host/sources.h", "host/tools.h", "local/token-file.h"},
    "keeper": {"rpc", "model", "policy", "host", "output", "contract"},
    # By process and privilege: what runs inside the sandbox (worker, archive) knows nothing of the keeper's own side.
    "keeper/keeper": {"keeper", "rpc", "model", "policy", "host", "output", "contract"},
    "keeper/box": {"keeper/config.h", "keeper/root", "keeper/execs/starter.h", "keeper/memory/memory-usage.h", "host"},
    "keeper/root": {"keeper/config.h", "keeper/box", "host", "policy"},
    "keeper/execs": {"keeper/loop.h", "keeper/box", "output", "model"},
    "keeper/disk": {"keeper/loop.h", "keeper/box", "host"},
    "keeper/memory": {"keeper/loop.h", "keeper/box"},
    "keeper/files": {"keeper/loop.h", "keeper/box", "keeper/worker", "keeper/keeper/keeper.h"}
    | {"rpc/core", "model", "contract"},
    "keeper/worker": {"keeper/box", "keeper/archive", "rpc/core", "model", "policy", "contract"},
    "keeper/archive": {"keeper/worker", "rpc/core", "model", "policy", "contract"},
    "client": {"rpc", "local", "model", "policy", "contract"},
    "cli": {"host", "local", "pbtext"},  # and <hutch/hutch.h>, as everybody outside has it
    "daemon": {"rpc", "host", "local", "model", "policy", "store", "runtime", "control", "api"}
    | {"contract/hutch/files.h"},
}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
PRAGMA_ONCE = re.compile(r"^#pragma once$", re.MULTILINE)


def violations(src: Path) -> list[str]:
    """All that is wrong with the includes of the rooms in @src, one sentence each."""
    found = []
    headers: dict[str, list[str]] = {}
    for file in sorted([*src.rglob("*.c"), *src.rglob("*.h")]):
        name = file.relative_to(src).as_posix()
        room = room_of(name)
        if room == "contract":
            continue
        if room not in MAY_INCLUDE:
            found.append(f"{name}: '{room}' is no room")
            continue

        text = file.read_text(encoding="utf-8")
        if file.suffix == ".h" and not PRAGMA_ONCE.search(text):
            found.append(f"{name}: has no #pragma once")
        included = [path for quote, path in INCLUDE.findall(text) if quote == '"' or (src / path).is_file()]
        found += [f"{name}: {problem}" for path in included if (problem := problem_of(room, path))]
        if file.suffix == ".h":
            headers[name] = included
    return found + cycles(headers)


def room_of(path: str) -> str:
    """The room that @path is in, or the folder of it that has rules of its own."""
    folder = str(PurePosixPath(path).parent)
    return folder if folder in MAY_INCLUDE else path.split("/")[0]


def problem_of(room: str, path: str) -> str:
    """What is wrong with a file of @room including @path; "" for nothing."""
    target = path.split("/")[0]
    if "/" not in path or target.startswith("."):
        return f'"{path}" does not name its room'
    if target not in MAY_INCLUDE:
        return f'"{path}" is in no room'
    above = {path, *map(str, PurePosixPath(path).parents)}
    if target == "base" or above & {room, *MAY_INCLUDE[room]}:
        return ""
    return f'{room} may not include "{path}"'


def cycles(headers: dict[str, list[str]]) -> list[str]:
    """The cycles among @headers, each told once."""
    found, done = [], set()

    def visit(header: str, path: list[str]) -> None:
        if header in path:
            found.append("headers include each other: " + " -> ".join(path[path.index(header) :] + [header]))
        elif header not in done:
            for included in headers.get(header, []):
                visit(included, path + [header])
            done.add(header)

    for header in headers:
        visit(header, [])
    return found
