# SPDX-License-Identifier: Apache-2.0
"""The rules of behavior.md can be told apart, and name reasons that the contract has."""

import re

from spec import BEHAVIOR, REASONS, load_script

conformance = load_script("conformance")


def malformed_rules(behavior: str) -> list[str]:
    """The lines that look like a rule and are none."""
    lines = [line for line in behavior.splitlines() if re.match(r"\s*[-*] \*\*", line)]
    return [line for line in lines if not conformance.RULE.fullmatch(line)]


def repeated_ids(behavior: str) -> list[str]:
    ids = [rule.id for rule in conformance.read_rules(behavior)]
    return sorted({rule for rule in ids if ids.count(rule) > 1})


def unknown_references(behavior: str) -> list[str]:
    """The rules that the page names and does not have. SHA-256 looks like one, so the area must be the page's."""
    ids = {rule.id for rule in conformance.read_rules(behavior)}
    areas = "|".join({rule.split("-")[0] for rule in ids})
    return sorted(set(re.findall(rf"\b(?:{areas})-\d+\b", behavior)) - ids)


def unknown_reasons(behavior: str) -> list[str]:
    """What is written like a reason, `TWO_WORDS` or more, and is none, nor a code, state or variable of the page's."""
    known = {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "TIMED_OUT"}
    named = set(re.findall(r"`([A-Z0-9]+(?:_[A-Z0-9]+)+)`", behavior)) - set(REASONS) - known
    return sorted(name for name in named if not name.startswith("HUTCH_"))


def test_there_are_rules():
    assert len(conformance.read_rules(BEHAVIOR)) > 150


def test_rules_are_well_formed():
    assert malformed_rules(BEHAVIOR) == []


def test_ids_are_unique():
    assert repeated_ids(BEHAVIOR) == []


def test_rules_that_are_named_exist():
    assert unknown_references(BEHAVIOR) == []


def test_reasons_that_are_named_exist():
    assert unknown_reasons(BEHAVIOR) == []


def test_damage_is_noticed():
    rule = "- **PATH-001** [MUST, Core, both] Text.\n"
    assert malformed_rules(rule) == []
    damages = {"PATH-001": "PATH-1", "PATH": "Path", "MUST": "MAY", "Core": "core", "both": "all", "- ": "* "}
    for old, new in damages.items():
        assert malformed_rules(rule.replace(old, new)) != []
    assert repeated_ids(rule + rule) == ["PATH-001"]
    assert unknown_references(rule + "As in PATH-002.") == ["PATH-002"]
    assert unknown_reasons("`PATH_EMPTY` `PATH_FULL` `TERM`") == ["PATH_FULL"]
