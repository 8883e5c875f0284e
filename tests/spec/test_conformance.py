# SPDX-License-Identifier: Apache-2.0
"""scripts/conformance says what the results say."""

import json

import pytest
from spec import load_script

conformance = load_script("conformance")

PAGE = """
## 1. Boxes

- **BOX-001** [MUST, Core, both] A box has four sides: otherwise it is no box. More words.
- **BOX-002** [MUST, Core, daemon] A box that was closed stays closed. More words.
- **BOX-003** [SHOULD, Full, client] A box is opened slowly.
- **BOX-004** [MUST, Full, daemon] Nobody looks in.

## 2. Lids

- **LID-001** [MUST, Core, client] A lid fits.
"""


@pytest.fixture
def tree(tmp_path):
    """A small project: two suites of vectors, one test, one service, no results."""
    for folder in ("spec/vectors", "tests/unit", "tests/spec", "proto/hutch/v1", "results"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "spec/behavior.md").write_text(PAGE)
    for suite, rules in {"sides": ["BOX-001"], "lids": ["BOX-001", "BOX-002"]}.items():
        cases = [{"name": "a", "requires": rules, "in": {}, "out": {}}]
        (tmp_path / f"spec/vectors/{suite}.json").write_text(json.dumps({"suite": suite, "cases": cases}))
    (tmp_path / "spec/vectors/schema.json").write_text("{}")
    (tmp_path / "tests/unit/test-lid.c").write_text("/* LID-001, and a PIN-001 of another kind */")
    (tmp_path / "tests/spec/test_x.py").write_text("# BOX-004")
    (tmp_path / "proto/hutch/v1/box.proto").write_text(
        "service BoxService {\n  // rpc Kick(A)\n  rpc Open(A) returns (B);\n  rpc Shut(stream A) returns (B) {}\n}\n"
    )
    return tmp_path


def write_results(tree, name: str, *lines: str) -> None:
    (tree / "results" / name).write_text("".join(f"{line}\n" for line in lines))


def rows(tree) -> dict[str, list[str]]:
    """The rows of all tables by their first cell."""
    lines = conformance.generate(tree, tree / "results").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {row[0]: row[1:] for row in cells}


def test_without_results_nothing_is_passed(tree):
    found = rows(tree)
    assert found["BOX-001"][5:] == ["·", "·", "·", "·", "·"]
    assert found["BOX-002"][5:] == ["·", "·", "", "", ""]
    assert found["BOX-003"][5:] == ["", "·", "·", "·", "·"]
    assert found["BOX-004"][5:] == ["·", "", "", "", ""]
    assert found["hutchd"] == ["0 / 0 / 2", "0 / 0 / 1"]
    assert found["Python"] == ["0 / 0 / 2", "0 / 0 / 1"]


def test_a_rule_is_told_with_what_checks_it(tree):
    found = rows(tree)
    short = "A box has four sides: otherwise it is no box"
    suites = "[lids](vectors/lids.json), [sides](vectors/sides.json)"
    assert found["BOX-001"][:5] == ["MUST", "Core", "both", short, suites]
    assert found["BOX-003"][:5] == ["SHOULD", "Full", "client", "A box is opened slowly", ""]
    assert found["LID-001"][4] == "[test-lid.c](../tests/unit/test-lid.c)"
    assert found["BOX-004"][4] == ""
    assert "PIN-001" not in found


def test_a_rule_passes_when_every_result_of_it_does(tree):
    write_results(tree, "c-sides.tsv", "BOX-001\tpass\tsides/a", "BOX-001\tpass\tsides/a")
    write_results(tree, "c-lids.tsv", "BOX-001\tpass\tlids/a", "BOX-002\tpass\tlids/a")
    found = rows(tree)
    assert found["BOX-001"][5:] == ["·", "pass", "·", "·", "·"]
    assert found["BOX-002"][5:] == ["·", "pass", "", "", ""]
    assert found["C (libhutch, and the daemon's rules)"] == ["2 / 2 / 3", "0 / 0 / 1"]


def test_a_rule_does_not_pass_while_a_case_was_not_run(tree):
    write_results(tree, "go-lids.tsv", "BOX-001\tpass\tlids/a")
    write_results(tree, "go-client.tsv", "LID-001\tpass\tclient/a")
    found = rows(tree)
    assert found["BOX-001"][9] == "·"
    assert found["LID-001"][9] == "pass"
    assert found["Go"] == ["1 / 1 / 2", "0 / 0 / 1"]


def test_one_failure_fails_the_rule(tree):
    write_results(tree, "c-sides.tsv", "BOX-001\tfail\tsides/a", "BOX-001\tpass\tsides/a")
    write_results(tree, "c-lids.tsv", "BOX-001\tpass\tlids/a")
    assert rows(tree)["BOX-001"][6] == "FAIL"
    assert rows(tree)["C (libhutch, and the daemon's rules)"][0] == "0 / 1 / 3"


def test_results_for_others_do_not_count(tree):
    write_results(tree, "python-lids.tsv", "BOX-002\tpass\tlids/a")
    write_results(tree, "perl-lids.tsv", "BOX-001\tpass\tlids/a")
    found = rows(tree)
    assert found["BOX-002"][7] == ""
    assert "pass" not in found["BOX-001"]


def test_cases_of_clients_are_counted(tree):
    (tree / "tests/conformance/cases").mkdir(parents=True)
    cases = [{"name": "a", "rules": ["LID-001"]}, {"name": "b", "rules": []}]
    (tree / "tests/conformance/cases/lids.json").write_text(json.dumps(cases))
    (tree / "results/cases-go.txt").write_text("pass\tlids/a\nfail\tlids/b\n")
    (tree / "results/cases-c.txt").write_text("pass\tlids/b\n")
    found = rows(tree)
    assert found["[lids](../tests/conformance/cases/lids.json)"] == ["2", "1 / 1", "·", "·", "1 / 2"]
    assert "[lids.json](../tests/conformance/cases/lids.json)" in found["LID-001"][4]


def write_not_asked(tree, *names: str) -> None:
    groups = [{"suite": name.split("/")[0], "why": "", "cases": [name.split("/")[1]]} for name in names]
    (tree / "tests/not-asked.json").write_text(json.dumps(groups))


def test_the_c_code_stands_in_for_the_daemon_where_that_is_not_asked(tree):
    write_not_asked(tree, "lids/a")
    write_results(tree, "hutchd-sides.tsv", "BOX-001\tpass\tsides/a")
    assert rows(tree)["BOX-001"][5] == "·"
    write_results(tree, "c-lids.tsv", "BOX-001\tpass\tlids/a", "BOX-002\tpass\tlids/a")
    found = rows(tree)
    assert found["BOX-001"][5] == "pass + C"
    assert found["BOX-002"][5] == "·"  # of which the daemon was asked nothing
    assert found["hutchd"] == ["1 / 1 / 2", "0 / 0 / 1"]
    write_results(tree, "c-lids.tsv", "BOX-001\tfail\tlids/a")
    assert rows(tree)["BOX-001"][5] == "·"
    write_results(tree, "hutchd-sides.tsv", "BOX-001\tfail\tsides/a")
    assert rows(tree)["BOX-001"][5] == "FAIL"


def test_the_c_code_stands_in_for_nobody_else_and_for_nothing_else(tree):
    write_not_asked(tree, "lids/a")
    write_results(tree, "c-lids.tsv", "BOX-001\tpass\tlids/a")
    write_results(tree, "c-sides.tsv", "BOX-001\tpass\tsides/a")
    write_results(tree, "go-sides.tsv", "BOX-001\tpass\tsides/a")
    assert rows(tree)["BOX-001"][9] == "·"
    write_results(tree, "hutchd-more.tsv", "BOX-001\tpass\tmore/a")
    assert rows(tree)["BOX-001"][5] == "·"


@pytest.mark.parametrize("name", ["lids/b", "tops/a", "sides/a"])
def test_what_is_no_case_or_is_asked_is_not_excused(tree, name):
    write_results(tree, "hutchd-sides.tsv", "BOX-001\tpass\tsides/a")
    write_not_asked(tree, name)
    with pytest.raises(SystemExit):
        rows(tree)


@pytest.mark.parametrize("line", ["BOX-001\tok\tlids/a", "BOX-001 pass lids/a", "BOX-009\tpass\tlids/a", ""])
def test_a_result_that_cannot_be_is_refused(tree, line):
    write_results(tree, "c-lids.tsv", line)
    with pytest.raises(SystemExit):
        rows(tree)


def test_methods_are_served_when_the_results_say_so(tree):
    assert rows(tree)["`BoxService`"] == ["", "Open, Shut"]
    write_results(tree, "methods-served.txt", "BoxService/Shut")
    assert rows(tree)["`BoxService`"] == ["Shut", "Open"]


@pytest.mark.parametrize(
    "text, short",
    [
        ("A whole sentence that is short. And another.", "A whole sentence that is short"),
        ("Short: the rest of the clause comes too. And more.", "Short: the rest of the clause comes too"),
        ("word " * 30, "word " * 18 + "…"),
        ("a `code with a. dot and` then more words here. End.", "a `code with a. dot and` then more words here"),
        ("x " * 40 + "`" + "y" * 20 + "`.", "x " * 40 + "…"),
        ("x " * 40 + "(" + "y " * 20 + ").", "x " * 40 + "…"),
    ],
)
def test_a_rule_is_shortened_at_a_clause_or_word(text, short):
    assert conformance.in_short(text.strip()) == short
