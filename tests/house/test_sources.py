# SPDX-License-Identifier: Apache-2.0
"""What holds for the text of every source: its format, its licence, and that it knows nothing of the machine it was
written on."""

import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tree import ROOT, files, handwritten, name

SOURCES = (".c", ".h", ".py", ".sh", ".proto", ".ts", ".go", "meson.build", "meson_options.txt", "Makefile")


def handwritten_sources() -> list[Path]:
    scripts = [*files(under="scripts"), *files(under=".ci")]
    return handwritten(*SOURCES) + [file for file in scripts if not file.suffix]


def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def test_c_files_are_formatted():
    folders = ("src", "include", "tests", "bench")
    sources = [file for folder in folders for file in handwritten(".c", ".h", under=folder)]
    formatted = subprocess.run(
        ["clang-format", "--dry-run", "-Werror", *sources], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert formatted.returncode == 0, f"run 'make format'\n{formatted.stderr}"


def test_clang_tidy_finds_nothing():
    commands = json.loads(text_of(ROOT / "build/gcc/compile_commands.json"))
    sources = {Path(os.path.normpath(Path(command["directory"], command["file"]))) for command in commands}
    sources &= set(handwritten(".c"))
    assert sources

    def tidy(source: Path) -> str:
        command = ["clang-tidy", "-p", "build/gcc", "--quiet", str(source)]
        checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return checked.stdout + checked.stderr if checked.returncode else ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        assert "\n".join(filter(None, pool.map(tidy, sorted(sources)))) == ""


def test_every_source_names_its_licence():
    licence = "SPDX-License-Identifier: Apache-2.0"
    silent = [file for file in handwritten_sources() if licence not in text_of(file)[:300]]
    assert [name(file) for file in silent if file.stat().st_size] == []


def test_lines_fit_into_120_columns_and_end_cleanly():
    bad = []
    for file in handwritten_sources():
        for number, line in enumerate(text_of(file).split("\n"), 1):
            if len(line) > 120 or line != line.rstrip():
                bad.append(f"{name(file)}:{number}")
    assert not bad, "\n".join(bad)


def test_no_file_names_a_path_of_the_machine_it_was_written_on():
    """This checkout's own path and what hides in this user's home are the paths that tools leak."""
    leaks = [str(ROOT)] * (len(ROOT.parts) > 2) + [f"{Path.home()}/."]
    pattern = re.compile(r"(?<![\w.-])(" + "|".join(map(re.escape, leaks)) + ")")
    assert [name(file) for file in files() if pattern.search(text_of(file))] == []


def test_lock_files_hold_no_addresses():
    locks = files("package-lock.json", "npm-shrinkwrap.json", "uv.lock", "poetry.lock")
    assert locks
    assert [name(file) for file in locks if '"resolved"' in text_of(file) or "registry" in text_of(file)] == []
    assert [name(file) for file in files(".npmrc", "pip.conf")] == []
