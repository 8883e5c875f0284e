# SPDX-License-Identifier: Apache-2.0
"""spec/CONFORMANCE.md shows the results of this run. The runner puts this suite last, so that there are some."""

import os
import subprocess
import sys
from pathlib import Path

from spec import ROOT

RESULTS = Path(os.environ.get("HUTCH_CONFORMANCE_DIR") or ROOT / "build/results/rules")


def check(results: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, ROOT / "scripts/conformance", "--check"],
        env=os.environ | {"HUTCH_CONFORMANCE_DIR": str(results)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_table_is_what_the_results_say():
    assert list(RESULTS.glob("*.tsv")), f"there are no results in {RESULTS}: run `make test`, which leaves them there"
    checked = check(RESULTS)
    assert checked.returncode == 0, f"run scripts/conformance and commit its page\n{checked.stdout}{checked.stderr}"


def test_a_failure_would_be_noticed(tmp_path):
    for file in RESULTS.glob("*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "c-more.tsv").write_text("PATH-001\tfail\tmore/a\n")
    checked = check(tmp_path)
    assert checked.returncode == 1
    assert "FAIL" in checked.stdout
