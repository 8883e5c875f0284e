# SPDX-License-Identifier: Apache-2.0
"""Comments and pages name functions and files that are there."""

import re
from pathlib import Path

import pytest
from tree import files, handwritten, name

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
FUNCTION = re.compile(r"(?<![\w.*…])([a-z][a-z0-9_]+)\(\)")
C_FILE = re.compile(r"(?<![\w*/-])((?:[a-z][a-z0-9-]*/)*[a-z][a-z0-9-]*\.[ch])\b")
IN_BACKTICKS = re.compile(r"`([a-z][a-z0-9_]+)\(\)`")
WORD = re.compile(r"[A-Za-z_]\w+")
SOURCES = (".c", ".h", ".py", ".go", ".ts", ".proto")
# Examples of names, not names of ours.
EXAMPLES = {"tests/unit/test-path-patterns.c": {"a.c", "x/a.c", "x/y/a.c", "y/x/a.c", "y/x/z/a.c"}}


def words_of_code() -> set[str]:
    """Every word of the code, comments of C left out: what is called there exists, here or in a library."""
    words = set()
    for file in files(*SOURCES):
        text = file.read_text(encoding="utf-8")
        words.update(WORD.findall(COMMENT.sub(" ", text) if file.suffix in (".c", ".h") else text))
    return words


WORDS = words_of_code()
FILE_NAMES = {file.name for file in files(".c", ".h")}


def unknown_in_comments(text: str) -> list[str]:
    unknown = []
    for comment in COMMENT.findall(text):
        unknown += [f"{function}()" for function in FUNCTION.findall(comment) if function not in WORDS]
        unknown += [path for path in C_FILE.findall(comment) if Path(path).name not in FILE_NAMES]
    return unknown


def unknown_in_page(text: str) -> list[str]:
    return [f"{function}()" for function in IN_BACKTICKS.findall(text) if function not in WORDS]


@pytest.mark.parametrize("file", handwritten(".c", ".h"), ids=name)
def test_comments_name_what_is_there(file):
    unknown = set(unknown_in_comments(file.read_text(encoding="utf-8"))) - EXAMPLES.get(name(file), set())
    assert not unknown, sorted(unknown)


@pytest.mark.parametrize("page", files(".md"), ids=name)
def test_pages_name_what_is_there(page):
    assert unknown_in_page(page.read_text(encoding="utf-8")) == []


def test_a_name_that_is_gone_is_found():
    gone = "sandbox" + "_vanished"
    assert unknown_in_comments(f"/* Before {gone}() and fork(), as gone.c and base/error.h say. */ int {gone}();") == [
        f"{gone}()",
        "gone.c",
    ]
    assert unknown_in_page(f"`{gone}()` and `openat2()`") == [f"{gone}()"]
