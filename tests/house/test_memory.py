# SPDX-License-Identifier: Apache-2.0
"""Rooms that libhutch is built on never abort for want of memory, so they use none of the allocations that do."""

import re

import pytest
from tree import ROOT

ABORTING = re.compile(r"\b(new0|xcalloc|xreallocarray|xstrn?dup|abort|assert)\s*\(")
ROOMS = ("rpc", "client")
RULES = ("local/contexts", "local/paths", "local/program")
RULES += ("model/environment", "model/ids", "model/labels", "model/selector")
SOURCES = [file for room in ROOMS for file in sorted((ROOT / "src" / room).glob("*.[ch]"))]
SOURCES += [ROOT / "src" / f"{rule}.c" for rule in (*RULES, "policy/path-rules")]


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.name)
def test_nothing_aborts(file):
    assert ABORTING.findall(without_comments(file.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("line", ["p = new0(T, 1);", "xstrdup(text)", "abort ();", "xstrndup(text, 1)"])
def test_what_aborts_is_seen(line):
    assert ABORTING.search(line)


@pytest.mark.parametrize("line", ["p = try_new0(T, 1);", "strdup(text)", "static_assert(true)", "/* new0() */"])
def test_the_rest_is_not(line):
    assert not ABORTING.search(without_comments(line))
