# SPDX-License-Identifier: Apache-2.0
"""Results of hutchd for spec/CONFORMANCE.md, from tests that ask a running daemon. Its two marks:

    @pytest.mark.rules("AREA-000", …)       the test checks these rules. A rule may be named only where the tests that
                                            name it check all that it says, together.
    @pytest.mark.vectors("paths", …)        the test's parameter `case` is one of a suite of vectors. It counts for the
                                            rules that the case requires, or for those of them that are named here.

With HUTCH_CONFORMANCE_DIR set, each test that was run adds a line for each rule (spec/vectors/README.md has the form).
A suite takes part by importing the two hooks into its conftest.py."""

import json
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OUTCOMES = pytest.StashKey[set[str]]()  # of a test's setup, call and teardown


def vectors(suite: str) -> list[dict]:
    """The cases of a suite."""
    return json.loads((ROOT / f"spec/vectors/{suite}.json").read_text(encoding="utf-8"))["cases"]


def write_result(suite: str, rule: str, passed: bool, name: str) -> None:
    folder = os.environ.get("HUTCH_CONFORMANCE_DIR")
    if folder:
        with open(f"{folder}/hutchd-{suite}.tsv", "a", encoding="utf-8") as file:
            file.write(f"{rule}\t{'pass' if passed else 'fail'}\t{name}\n")


def write_results(item: pytest.Item, passed: bool) -> None:
    suite = item.path.parent.name
    for mark in item.iter_markers("rules"):
        for rule in mark.args:
            write_result(suite, rule, passed, f"{suite}/{item.path.name}::{item.name}")
    for mark in item.iter_markers("vectors"):
        suite, *claimed = mark.args
        case = item.callspec.params["case"]  # type: ignore[attr-defined]
        for rule in case["requires"]:
            if not claimed or rule in claimed:
                write_result(suite, rule, passed, f"{suite}/{case['name']}")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rules(*ids): rules of spec/behavior.md that this test checks")
    config.addinivalue_line("markers", "vectors(suite, *rules): runs a case of spec/vectors")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    outcomes = item.stash.setdefault(OUTCOMES, set())
    outcomes.add(report.outcome)
    if report.when == "teardown" and "skipped" not in outcomes:
        write_results(item, outcomes == {"passed"})
    return report
