# SPDX-License-Identifier: Apache-2.0
"""The pages only name what exists, and name every dependency."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from tree import ROOT, files, name

PAGES = [file for file in files(".md") if re.match(r"[A-Z]+\.md$|docs/|spec/", name(file))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"`([\w.-]+/[\w./-]*)`")
PLACEHOLDER = re.compile(r"(^|[/-])[A-Z]{4,}([/.]|$)")  # as in src/ROOM/THING.c
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def prose_of(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors_of(page: Path) -> set[str]:
    """The anchors of the headings, made as code hosts make them."""
    headings = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(prose_of(page)))
    return {heading.strip().replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in LINK.findall(prose_of(page)):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if ":" in path:
            continue
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    return broken


def missing_paths(page: Path) -> list[str]:
    """The paths in backticks that begin with a folder of this tree, and are not there."""
    folders = {folder.name for folder in ROOT.iterdir() if folder.is_dir()} - {"build"}
    named = [path for path in NAMED.findall(prose_of(page)) if not PLACEHOLDER.search(path)]
    return [path for path in named if path.split("/")[0] in folders and not (ROOT / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_page_names_only_what_exists(page):
    missing = broken_links(page) + missing_paths(page)
    assert not missing, "\n".join(missing)


def test_a_broken_link_and_a_missing_path_are_reported(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Two words\n[a](#two-words) [b](#three) [c](gone.md) [d](page.md)\n"
        "`tests/gone.py` `tests/house/` `tests/THING.c` `a/b`\n"
    )
    assert broken_links(page) == ["#three", "gone.md"]
    assert missing_paths(page) == ["tests/gone.py"]


def dependencies() -> list[str]:
    tools = ROOT / "scripts" / "tools"
    apt = re.search(r"apt_packages=\(([^)]*)\)", (ROOT / "scripts/deps").read_text(encoding="utf-8"))
    npm = json.loads((tools / "package.json").read_text(encoding="utf-8"))
    pip = [line for file in tools.glob("requirements*.txt") for line in file.read_text(encoding="utf-8").split("\n")]
    go = (tools / "go-tools.txt").read_text(encoding="utf-8").split()
    return [
        *apt[1].split(),
        *npm["devDependencies"],
        *(line.split("==")[0] for line in pip if "==" in line),
        *(tool.split("@")[0].split("/")[-1] for tool in go),
    ]


def test_every_dependency_has_its_reason():
    page = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")
    assert [dependency for dependency in dependencies() if f"`{dependency}`" not in page] == []


def test_the_configuration_reference_is_what_the_daemon_prints():
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    printed = subprocess.run([ROOT / "build/gcc/hutchd", "--print-config"], capture_output=True, text=True, check=True)
    assert f"<!-- hutchd --print-config -->\n```yaml\n{printed.stdout}```\n" in page
