# SPDX-License-Identifier: Apache-2.0
"""The files of the tree, as the tests of this folder see them."""

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

NOT_OURS = {".git", ".venv", "__pycache__", "build", "dist", "node_modules"}
GENERATED = re.compile(r"@generated|DO NOT EDIT|Do not edit manually")


def files(*suffixes: str, under: str = ".") -> list[Path]:
    """The files below @under whose names end in one of @suffixes; all of them when none is given."""
    found = []
    for folder, folders, names in os.walk(ROOT / under):
        folders[:] = sorted(set(folders) - NOT_OURS)
        found += [Path(folder, name) for name in sorted(names) if name.endswith(suffixes or "")]
    return found


def is_generated(file: Path) -> bool:
    """Generators say so in the first lines of what they write."""
    with file.open(encoding="utf-8", errors="replace") as lines:
        return any(GENERATED.search(line) for _, line in zip(range(8), lines))


def handwritten(*suffixes: str, under: str = ".") -> list[Path]:
    return [file for file in files(*suffixes, under=under) if not is_generated(file)]


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))
