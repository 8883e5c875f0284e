# SPDX-License-Identifier: Apache-2.0
"""The examples of the pages do what the pages say.

A block of ```sh after <!-- run --> is run by bash -e, in order, in one folder per page; of a line that ends in
"# → TEXT" the output is TEXT."""

import re
import subprocess

import pytest
from commandline import ROOT
from host import PATIENCE

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


@pytest.mark.parametrize("page", PAGES)
def test_examples_do_what_the_page_says(own, tmp_path, page):
    _, hutch = own
    script = script_of((ROOT / page).read_text(encoding="utf-8"))
    if not script.strip():
        pytest.skip(f"{page} has no examples")
    env = hutch.env | {"PATH": f"{hutch.program.parent}:{hutch.env['PATH']}"}
    ended = subprocess.run(
        ["bash", "-exc", script],
        env=env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100 * PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def test_an_example_that_prints_something_else_fails(tmp_path):
    text = "<!-- run -->\n```sh\necho one  # → two\n```\n"
    ended = subprocess.run(["bash", "-ec", script_of(text)], cwd=tmp_path, capture_output=True, check=False)
    assert ended.returncode == 99
