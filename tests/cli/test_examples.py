# SPDX-License-Identifier: Apache-2.0
"""The examples of the pages do what the pages say.

A block of ```sh after <!-- run --> is run by bash -e, in order, in one folder per page; of a line that ends in
"# → TEXT" the output is TEXT."""

import os
import re
import subprocess

import pytest
from commandline import ROOT, Hutch
from host import PATIENCE
from user_daemon import UID, UserDaemon

BLOCK = re.compile(r"<!-- run -->\n```sh\n(.*?)```", re.DOTALL)
PAGES = ["README.md", "docs/cli.md"]


def script_of(text: str) -> str:
    """The lines of the blocks, with what they have to print compared."""
    lines = []
    for line in "".join(BLOCK.findall(text)).split("\n"):
        command, arrow, expected = line.partition("  # → ")
        if arrow:
            lines.append(f"got=$({command})")
            quoted = expected.replace("'", "'\\''")
            lines.append(f"[ \"$got\" = '{quoted}' ] || {{ echo \"printed: $got\" >&2; exit 99; }}")
        else:
            lines.append(line)
    return "\n".join(lines)


def run_examples(page: str, hutch: Hutch, folder, wrapper: tuple = ()) -> None:
    script = script_of((ROOT / page).read_text(encoding="utf-8"))
    if not script.strip():
        pytest.skip(f"{page} has no examples")
    ended = subprocess.run(
        [*wrapper, "bash", "-exc", script],
        env=hutch.env | {"PATH": f"{hutch.program.parent}:{hutch.env['PATH']}"},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100 * PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("page", PAGES)
def test_examples_do_what_the_page_says(own, tmp_path, page):
    _, hutch = own
    run_examples(page, hutch, tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_examples_do_the_same_for_an_ordinary_user(page):
    """Who has one id and no cgroup."""
    daemon = UserDaemon()
    try:
        daemon.begin()
        folder = daemon.folder / "here"
        folder.mkdir()
        os.chown(folder, UID, UID)
        run_examples(page, Hutch(daemon.socket, HOME=str(folder)), folder, daemon.as_user())
    finally:
        daemon.wipe()


def test_an_example_that_prints_something_else_fails(tmp_path):
    text = "<!-- run -->\n```sh\necho one  # → two\n```\n"
    ended = subprocess.run(["bash", "-ec", script_of(text)], cwd=tmp_path, capture_output=True, check=False)
    assert ended.returncode == 99
