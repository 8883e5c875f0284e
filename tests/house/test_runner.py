# SPDX-License-Identifier: Apache-2.0
"""scripts/test counts what happened: what crashed, hung or left no results is a failure."""

import importlib.machinery
import importlib.util
import os
import sys
import time

import pytest
from tree import ROOT


@pytest.fixture(name="runner")
def load_runner(monkeypatch, tmp_path):
    loader = importlib.machinery.SourceFileLoader("runner", str(ROOT / "scripts" / "test"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("runner", loader))
    monkeypatch.setitem(sys.modules, "runner", module)
    loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


def last_line_of(runner, monkeypatch, capsys, junit):
    """Runs a suite that leaves @junit behind; returns the exit status and the last line."""

    def leave(suite, folder, env):
        if junit is not None:
            (folder / "x.xml").write_text(junit, encoding="utf-8")

    monkeypatch.setattr(runner, "SUITES", {"x": leave})
    monkeypatch.setattr(sys, "argv", ["scripts/test"])
    status = runner.main()
    return status, capsys.readouterr().out.rstrip("\n").split("\n")[-1]


@pytest.mark.parametrize(
    "junit, status, line",
    [
        ('<testsuite><testcase name="a"/></testsuite>', 0, "1 passed, 0 failed, 0 skipped"),
        ('<testsuite><testcase name="a"><skipped/></testcase></testsuite>', 0, "0 passed, 0 failed, 1 skipped"),
        (
            '<testsuites><testsuite><testcase name="a"><failure>no\x01</failure></testcase></testsuite>'
            '<testsuite><testcase name="b"/><testcase name="c"><error message="no"/></testcase></testsuite>'
            "</testsuites>",
            1,
            "1 passed, 2 failed, 0 skipped",
        ),
        ("<testsuite></testsuite>", 1, "0 passed, 1 failed, 0 skipped"),
        ("<testsuite><testcase", 1, "0 passed, 1 failed, 0 skipped"),
        (None, 1, "0 passed, 1 failed, 0 skipped"),
    ],
)
def test_results_are_counted(runner, monkeypatch, capsys, junit, status, line):
    assert last_line_of(runner, monkeypatch, capsys, junit) == (status, line)


def test_results_of_an_earlier_run_are_not_counted(runner, monkeypatch, capsys):
    junit = '<testsuite><testcase name="a"/></testsuite>'
    assert last_line_of(runner, monkeypatch, capsys, junit)[0] == 0
    assert last_line_of(runner, monkeypatch, capsys, None) == (1, "0 passed, 1 failed, 0 skipped")


@pytest.mark.parametrize(
    "script, problem",
    [
        ("exit 0", ""),
        ("exit 3", "exit status 3"),
        ("kill -SEGV $$", "killed by SIGSEGV"),
        ("sleep 60", "timed out after 0.5 s"),
        ("sleep 60 & wait", "timed out after 0.5 s"),
    ],
)
def test_the_end_of_a_command_is_told(runner, script, problem):
    assert runner.run(["sh", "-c", script], 0.5, dict(os.environ), capture=True) == (problem, "")


def test_a_command_that_hangs_takes_its_children_with_it(runner, tmp_path):
    script = f"sleep 60 & echo $! >{tmp_path}/pid; wait"
    runner.run(["sh", "-c", script], 0.5, dict(os.environ), capture=True)
    child = int((tmp_path / "pid").read_text(encoding="utf-8"))
    deadline = time.monotonic() + 10
    while is_alive(child):
        assert time.monotonic() < deadline, f"{child} still runs"
        time.sleep(0.01)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_suites_that_run_beside_each_other_are_counted_in_order_and_spec_is_last(runner, monkeypatch, capsys):
    begun = []

    def run_beside(suite):
        begun.append(suite)
        cases = [runner.Case(suite, "a", "passed")] + [runner.Case(suite, "b", "failed", "no")] * (suite == "y")
        return cases, 1.0

    monkeypatch.setattr(runner, "SUITES", dict.fromkeys(("spec", "x", "y", "z")))
    monkeypatch.setattr(runner, "run", lambda *_: ("", ""))
    monkeypatch.setattr(runner, "run_beside_others", run_beside)
    monkeypatch.setattr(sys, "argv", ["scripts/test"])
    assert runner.main() == 1
    assert capsys.readouterr().out.rstrip("\n").split("\n")[-1] == "4 passed, 1 failed, 0 skipped"
    assert sorted(begun[:3]) == ["x", "y", "z"] and begun[3] == "spec"


def test_a_suite_whose_runner_fails_without_results_is_a_failure(runner, monkeypatch, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("import sys; sys.exit(3)", encoding="utf-8")
    monkeypatch.setattr(runner, "__file__", str(broken))
    cases, _ = runner.run_beside_others("x")
    assert [(case.outcome, case.detail) for case in cases] == [("failed", "scripts/test x: exit status 3")]
