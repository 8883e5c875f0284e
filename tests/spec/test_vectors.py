# SPDX-License-Identifier: Apache-2.0
"""The vectors are well formed, and say what behavior.md and the contract say."""

import copy
import json
import re

import pytest
from jsonschema import Draft202012Validator
from spec import BEHAVIOR, REASONS, SCHEMA, SUITES, VECTORS, load_script, table

VALIDATOR = Draft202012Validator(SCHEMA)
RULES = {rule.id for rule in load_script("conformance").read_rules(BEHAVIOR)}
every_suite = pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)


def cases(suite: str) -> list[dict]:
    return copy.deepcopy(SUITES[suite]["cases"])


def changed(suite: str, change) -> list[dict]:
    """The cases of the suite after @change did something to the list."""
    found = cases(suite)
    change(found)
    return found


# What every file must keep.


def repeated(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


def contradictions(found: list[dict]) -> list[str]:
    """The cases whose input is that of an earlier case with another result."""
    results, wrong = {}, []
    for case in found:
        result = case.get("out"), case.get("error")
        if results.setdefault(json.dumps(case["in"], sort_keys=True), result) != result:
            wrong.append(case["name"])
    return wrong


def test_the_schema_is_one():
    Draft202012Validator.check_schema(SCHEMA)
    assert set(SUITES) == set(SCHEMA["properties"]["suite"]["enum"])


@every_suite
def test_file_is_as_the_schema_says(suite):
    errors = [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(suite)]
    assert not errors, "\n".join(errors[:10])


@pytest.mark.parametrize("name", SUITES)
def test_file_is_named_by_its_suite_and_has_one_case_a_line(name):
    text = (VECTORS / f"{name}.json").read_text(encoding="ascii")
    suite = json.loads(text)
    assert suite["suite"] == name
    assert text.splitlines()[4:-2] == [f"    {json.dumps(case)}," for case in suite["cases"][:-1]] + [
        f"    {json.dumps(suite['cases'][-1])}"
    ]


@every_suite
def test_names_are_unique(suite):
    assert repeated([case["name"] for case in suite["cases"]]) == []


@every_suite
def test_cases_do_not_contradict_each_other(suite):
    assert contradictions(suite["cases"]) == []


@every_suite
def test_required_rules_exist(suite):
    assert {rule for case in suite["cases"] for rule in case["requires"]} - RULES == set()


@every_suite
def test_reasons_exist(suite):
    used = {case["error"]["reason"] for case in suite["cases"] if "error" in case}
    assert used - set(REASONS) == set()


def test_there_are_at_least_150_paths():
    assert len(SUITES["paths"]["cases"]) >= 150


def test_every_path_reason_is_expected_somewhere():
    used = {case["error"]["reason"] for case in SUITES["paths"]["cases"] if "error" in case}
    assert used == {reason for reason in REASONS if reason.startswith("PATH_")}


@pytest.mark.parametrize(
    "name, damage",
    [
        ("paths", lambda case: case.pop("name")),
        ("paths", lambda case: case.update(note="")),
        ("paths", lambda case: case.update(requires=["PATH-1"])),
        ("paths", lambda case: case.update(requires=[])),
        ("paths", lambda case: case.update(error={"reason": "PATH_EMPTY"})),
        ("paths", lambda case: case.pop("out")),
        ("paths", lambda case: case["in"].update(path_base64="Lg==")),
        ("paths", lambda case: case["in"].update(cwd="/")),
        ("paths", lambda case: case["out"].update(path="a")),
        ("retry", lambda case: case["in"]["random"].append(1 << 32)),
        ("output", lambda case: case["in"].update(offset=0)),
        ("profiles", lambda case: case["in"]["caps"].update(no_network=True)),
        ("sandbox-states", lambda case: case["in"].update(state="RUNNING")),
        ("errors", lambda case: case["in"].update(errno="ENOENT")),
    ],
)
def test_the_schema_notices_damage(name, damage):
    suite = copy.deepcopy(SUITES[name])
    assert "out" in suite["cases"][0]
    assert VALIDATOR.is_valid(suite)
    damage(suite["cases"][0])
    assert not VALIDATOR.is_valid(suite)


def test_a_repeated_name_and_a_contradiction_are_noticed():
    assert repeated(["a", "b", "a"]) == ["a"]
    found = cases("durations")
    found.append({**found[0], "name": "again", "out": {**found[0]["out"], "seconds": 1}})
    assert contradictions(found) == ["again"]


# errors.json against the contract.


def wrong_codes(found: list[dict]) -> list[str]:
    """Where the cases do not give every reason of the contract its code, once."""
    named = [case["in"]["reason"] for case in found if "reason" in case["in"]]
    wrong = [f"{reason} is missing" for reason in REASONS if reason not in named]
    wrong += [f"{reason} comes twice" for reason in repeated(named)]
    for case in found:
        reason = case["in"].get("reason") or case["out"]["reason"]
        if REASONS.get(reason) != case["out"]["code"]:
            wrong.append(f"{case['name']} is {REASONS.get(reason)} in the contract")
    return wrong


def test_every_reason_has_its_code():
    assert wrong_codes(cases("errors")) == []


def test_a_missing_reason_and_a_wrong_code_are_noticed():
    first = SUITES["errors"]["cases"][0]["in"]["reason"]
    assert wrong_codes(cases("errors")[1:]) == [f"{first} is missing"]
    assert wrong_codes(changed("errors", lambda found: found[0]["out"].update(code="INTERNAL"))) != []
    assert wrong_codes(changed("errors", lambda found: found[-1]["out"].update(code="OK"))) != []


# The state tables.

WRONG_STATE = {"sandbox-states": "SANDBOX_WRONG_STATE", "exec-states": "EXEC_WRONG_STATE"}
ACTIONS = {"ok": "ok", "=": "nothing", "·": "ignore"}


def wrong_cells(behavior: str, name: str, found: list[dict]) -> list[str]:
    """The cells of the table that no case, or not exactly one case that says the same, stands for."""
    said = {}
    for case in found:
        cell = case["in"]["input"], case["in"]["state"]
        said.setdefault(cell, []).append(case.get("out") or case["error"]["reason"])
    wrong = []
    for row, cells in table(behavior, name).items():
        (given,) = re.findall(r"^(?:request|observed) `([a-z-]+)`$", row)
        for state, cell in cells.items():
            if cell == "!":
                expected = WRONG_STATE[name]
            elif cell.startswith("→ "):
                expected = {"action": "move", "state": cell[2:]}
            else:
                expected = {"action": ACTIONS[cell], "state": state}
            if said.pop((given, state), None) != [expected]:
                wrong.append(f"{given} in {state}")
    return wrong + [f"{given} in {state} is in no table" for given, state in said]


@pytest.mark.parametrize("name", WRONG_STATE)
def test_vectors_agree_with_every_cell_of_the_state_table(name):
    assert wrong_cells(BEHAVIOR, name, cases(name)) == []


@pytest.mark.parametrize("name", WRONG_STATE)
def test_a_changed_cell_is_noticed(name):
    found = cases(name)
    change = re.sub(r"(\| observed `started` \|) → \w+ ", r"\1 · ", BEHAVIOR)
    assert wrong_cells(change, name, found) == ["started in PENDING"]

    case = next(case for case in found if case["in"] == {"state": "PENDING", "input": "started"})
    case["out"]["state"] = "FAILED"
    assert wrong_cells(BEHAVIOR, name, found) == ["started in PENDING"]


@pytest.mark.parametrize("name", WRONG_STATE)
def test_a_missing_a_doubled_and_an_invented_case_are_noticed(name):
    first = SUITES[name]["cases"][0]["in"]
    assert wrong_cells(BEHAVIOR, name, cases(name)[1:]) == [f"{first['input']} in {first['state']}"]
    assert len(wrong_cells(BEHAVIOR, name, cases(name) + cases(name)[:1])) == 1
    invented = {"in": {"state": "PENDING", "input": "explode"}, "out": {"action": "ok", "state": "PENDING"}}
    assert wrong_cells(BEHAVIOR, name, [*cases(name), invented]) == ["explode in PENDING is in no table"]


# The table of profiles.

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "s": 1000, "min": 60_000}
WORDS = {"yes": False, "no": True, "writable": False, "read-only": True, "policy": False, "none": True}
COLUMNS = {
    "memory": "memory_bytes",
    "CPU (millis)": "cpu_millis",
    "processes": "max_processes",
    "open files": "max_open_files",
    "disk": "disk_bytes",
    "/tmp": "tmp_bytes",
    "/tmp exec": "tmp_noexec",
    "root": "read_only_root",
    "network": "no_network",
    "one exec": "exec_timeout_ms",
}


def value_of(cell: str) -> int | bool | None:
    """What a cell says: a number in bytes, milliseconds or pieces, whether something is tightened, or nothing."""
    if cell == "–":
        return None
    if cell in WORDS:
        return WORDS[cell]
    number, _, unit = cell.partition(" ")
    return int(number) * (UNITS[unit] if unit else 1)


def wrong_profiles(behavior: str, found: list[dict]) -> list[str]:
    """Where the cases that ask for nothing and have no caps differ from the table."""
    said = {
        case["in"]["profile"]: case["out"]["effective"]
        for case in found
        if "out" in case and not case["in"]["request"] and not case["in"]["caps"]
    }
    wrong = []
    for row, cells in table(behavior, "profiles").items():
        effective = said.pop(row.strip("`"), {})
        values = {COLUMNS[column]: value_of(cell) for column, cell in cells.items()}
        wrong += [f"{row}: {field}" for field, value in values.items() if effective.get(field) != value]
    return wrong + [f"{profile} is not in the table" for profile in said]


def test_vectors_agree_with_every_cell_of_the_table_of_profiles():
    assert wrong_profiles(BEHAVIOR, cases("profiles")) == []


@pytest.mark.parametrize(
    "old, new", [("64 MiB | no", "65 MiB | no"), ("| read-only |", "| writable |"), ("| 10 min |", "| – |")]
)
def test_a_changed_limit_is_noticed(old, new):
    assert BEHAVIOR.count(old) == 1
    assert len(wrong_profiles(BEHAVIOR.replace(old, new), cases("profiles"))) == 1


def test_a_missing_profile_is_noticed():
    def asks_for_nothing(case):
        return case["in"]["profile"] == "strict" and not case["in"]["request"]

    rest = [case for case in cases("profiles") if not asks_for_nothing(case)]
    assert len(wrong_profiles(BEHAVIOR, rest)) == len(COLUMNS)
