# SPDX-License-Identifier: Apache-2.0
"""The man pages are made, can be read without a warning, and name every flag."""

import re
import subprocess

import pytest
from tree import ROOT, files

MADE = ROOT / "build/gcc/docs/man"
PAGES = [file.stem for file in files(".md", under="docs/man")]
PROGRAMS = {"hutch.1": "hutch", "hutchd.8": "hutchd"}  # whose flags a page is to name


def render(page: str) -> subprocess.CompletedProcess:
    command = ["groff", "-Kutf8", "-Tutf8", "-P-cbou", "-man", "-ww", "-rLL=100n", MADE / page]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def missing_flags(told: str, text: str) -> list[str]:
    """The flags in @told, what a program prints when it is asked for help, that are not in @text."""
    return [flag for flag in re.findall(r"--[a-z][a-z-]*", told) if not re.search(rf"{flag}(?![a-z-])", text)]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_read(page):
    rendered = render(page)
    assert rendered.stderr == ""
    name, section = page.rsplit(".", 1)
    assert rendered.stdout.startswith(f"{name.upper()}({section})")
    assert re.search(rf"^NAME\n +{re.escape(name)} - ", rendered.stdout, re.MULTILINE)
    assert "SEE ALSO" in rendered.stdout and "**" not in rendered.stdout


@pytest.mark.parametrize("page", PROGRAMS)
def test_a_page_names_every_flag_of_its_program(page):
    told = subprocess.run([ROOT / "build/gcc" / PROGRAMS[page], "--help"], capture_output=True, text=True, check=True)
    assert "--help" in told.stdout
    assert missing_flags(told.stdout, render(page).stdout) == []


def test_a_flag_that_is_missing_is_reported():
    assert missing_flags("  --now\n  --later TIME\n", "--now-then --later") == ["--now"]


def test_the_configuration_is_in_its_page():
    told = subprocess.run([ROOT / "build/gcc/hutchd", "--print-config"], capture_output=True, text=True, check=True)
    page = re.sub(r"^ +", "", render("hutchd.yaml.5").stdout, flags=re.MULTILINE)
    lines = [line.strip() for line in told.stdout.splitlines() if line.strip()]
    assert [line for line in lines if line not in page] == []
