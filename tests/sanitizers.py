# SPDX-License-Identifier: Apache-2.0
"""What AddressSanitizer and UndefinedBehaviorSanitizer find in the programs that the suites start.

HUTCH_SANITIZER_LOGS is the folder for their reports. With it, daemons and keepers write there, and a test during which
a report came fails with its text; the last one does for what came later. Without it nothing here does anything."""

import os
import re
from pathlib import Path

import pytest

LOGS = os.environ.get("HUTCH_SANITIZER_LOGS", "")
# Said when its process is killed while LeakSanitizer looks into it.
KILLED = re.compile(r"^==\d+==Unable to get registers from thread \d+\.\n", re.MULTILINE)


def options(program: str) -> dict[str, str]:
    """The sanitizers' variables for @program."""
    if not LOGS:
        return {}
    asan = f"log_path={LOGS}/{program}:allocator_may_return_null=1"
    if program == "hutch-keeper":
        asan += ":detect_leaks=0"  # at its end it has no right left to make the process that would look
    return {"ASAN_OPTIONS": asan, "UBSAN_OPTIONS": f"log_path={LOGS}/{program}:print_stacktrace=1"}


def wrap(program: Path, folder: Path) -> Path:
    """A program in @folder that is @program with these variables: who starts it passes on none."""
    wrapper = folder / program.name
    if wrapper.exists():  # a daemon may be reading it
        return wrapper
    variables = " ".join(f"{name}='{value}'" for name, value in options(program.name).items())
    wrapper.write_text(f'#!/bin/sh\n{variables} exec {program} "$@"\n', encoding="utf-8")
    wrapper.chmod(0o755)
    return wrapper


def take_reports() -> str:
    """The reports that were written since this was last asked."""
    texts = []
    for file in sorted(Path(LOGS).iterdir()) if LOGS else []:
        text = KILLED.sub("", file.read_text(encoding="utf-8", errors="replace"))
        file.unlink()
        if text.strip():
            texts.append(f"{file.name}:\n{text}")
    return "\n".join(texts)


@pytest.fixture(scope="session", autouse=True)
def _nothing_for_the_sanitizers_at_the_end():
    """What daemons report that all tests share: it is torn down after these."""
    yield
    reports = take_reports()
    assert not reports, reports


@pytest.fixture(autouse=True)
def _nothing_for_the_sanitizers():
    yield
    reports = take_reports()
    assert not reports, reports
