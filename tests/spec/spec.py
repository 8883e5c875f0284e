# SPDX-License-Identifier: Apache-2.0
"""The page, its tables, the vectors and the contract's reasons, as the tests of this folder see them."""

import json
import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VECTORS = ROOT / "spec" / "vectors"
BEHAVIOR = (ROOT / "spec" / "behavior.md").read_text(encoding="utf-8")
SCHEMA = json.loads((VECTORS / "schema.json").read_text(encoding="utf-8"))
SUITES = {
    file.stem: json.loads(file.read_text(encoding="utf-8"))
    for file in sorted(VECTORS.glob("*.json"))
    if file.name != "schema.json"
}


def load_script(name: str):
    """A script of scripts/ as a module; these have no suffix."""
    loader = SourceFileLoader(name, str(ROOT / "scripts" / name))
    module = module_from_spec(spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def table(behavior: str, name: str) -> dict[str, dict[str, str]]:
    """The rows of the Markdown table marked @name: for the text of the first column, column title to cell."""
    lines = behavior.split(f"<!-- table: {name} -->\n")[1].splitlines()
    end = next(i for i, line in enumerate(lines) if not line.startswith("|"))
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:end]]
    assert all(len(row) == len(head) for row in rows), f"a row of {name} has another number of cells than the head"
    return {row[0]: dict(zip(head[1:], row[1:])) for row in rows}


def reasons(proto: str) -> dict[str, str]:
    """The code of each reason, as the comment above it in error.proto says."""
    found = re.findall(r"((?:^  //.*\n)*)^  REASON_(\w+) = \d+;", proto, re.MULTILINE)
    codes = {name: re.match(r"  // ([A-Z_]+): ", comment) for comment, name in found if name != "UNSPECIFIED"}
    assert all(codes.values()), f"no code above {[name for name, code in codes.items() if not code]}"
    return {name: code[1] for name, code in codes.items()}


REASONS = reasons((ROOT / "proto/hutch/v1/error.proto").read_text(encoding="utf-8"))
