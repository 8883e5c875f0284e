# SPDX-License-Identifier: Apache-2.0
"""The doors of the house: make's targets, scripts/deps, and the command line's first steps."""

import os
import re
import subprocess

import pytest
from tree import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", "")
SUITES = re.search(r"^SUITES := (.*)$", MAKEFILE, re.MULTILINE)[1].split()
DOCUMENTED = re.findall(r"@echo 'make ([a-z]+) ", MAKEFILE) + [f"test-{suite}" for suite in SUITES]


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def hutch(*arguments: str) -> subprocess.CompletedProcess:
    """The command line, where no daemon is, whatever runs on this host."""
    command = ["build/gcc/hutch", *arguments]
    env = os.environ | {"HUTCH_SOCKET": "/nonexistent/hutchd.sock"}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("target", ["help", *DOCUMENTED])
def test_target_exists(target):
    made = run("make", "-n", target)
    assert made.returncode == 0, made.stderr
    assert "Nothing to be done" not in made.stdout


def test_deps_finds_nothing_to_install():
    deps = run("scripts/deps")
    assert (deps.returncode, deps.stdout, deps.stderr) == (0, "deps: nothing to install\n", "")


@pytest.mark.parametrize("word", ["version", "--version"])
def test_hutch_tells_its_version(word):
    told = hutch(word)
    assert told.returncode == 0
    assert re.fullmatch(r"hutch \d+\.\d+\.\d+\n", told.stdout)


@pytest.mark.parametrize("word", ["help", "--help"])
def test_hutch_helps(word):
    told = hutch(word)
    assert (told.returncode, told.stdout.split("\n")[0], told.stderr) == (0, "Usage: hutch COMMAND", "")


@pytest.mark.parametrize("arguments", [[], ["fly"], ["--fly"], [""], ["version", "now"]])
def test_hutch_refuses_the_rest_in_one_line(arguments):
    told = hutch(*arguments)
    assert (told.returncode, told.stdout) == (2, "")
    assert re.fullmatch(r"hutch: .*; see 'hutch( version)? --help'\n", told.stderr)
