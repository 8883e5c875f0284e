# SPDX-License-Identifier: Apache-2.0
"""The vectors of spec/, as far as their rules bind a client."""

import base64
import json
import re
from pathlib import Path

import pytest

from hutch._rules import durations, hosts, names, output, paths, retry, selectors
from hutch.errors import HutchError, code_of_reason

SPEC = Path(__file__).resolve().parents[3] / "spec"
RULES = set(re.findall(r"^- \*\*([A-Z]+-\d+)\*\* \[[^]]*(?:both|client)\]", (SPEC / "behavior.md").read_text(), re.M))


def cases(suite: str):
    """Marks a test to run the cases of a suite that have a rule for clients."""
    found = json.loads((SPEC / f"vectors/{suite}.json").read_text(encoding="utf-8"))["cases"]
    found = [case for case in found if RULES & set(case["requires"])]
    assert found
    parametrize = pytest.mark.parametrize("case", found, ids=lambda case: case["name"])
    return lambda test: pytest.mark.vectors(suite)(parametrize(test))


def text(given: dict, key: str) -> str:
    """A text of the input. Bytes that are not UTF-8 are as Python has them in strings."""
    if f"{key}_base64" in given:
        return base64.b64decode(given[f"{key}_base64"]).decode("utf-8", "surrogateescape")
    return given[key]


def check(case: dict, run) -> None:
    try:
        found = {"out": run(case["in"])}
    except HutchError as error:
        found = {"error": {"reason": error.reason}}
        assert error.code == code_of_reason(error.reason)
    assert found == {key: case[key] for key in ("out", "error") if key in case}


@cases("paths")
def test_paths(case):
    def run(given):
        path, directory = paths.resolve_path(
            text(given, "path"),
            working_directory=given.get("working_directory", paths.WORKSPACE),
            workspace=given.get("workspace", paths.WORKSPACE),
            absolute=given.get("use") == "absolute",
            removing=given.get("use") == "remove",
        )
        return {"path": path, "directory": directory}

    check(case, run)


@cases("ids")
def test_ids(case):
    rules = {"id": names.check_id, "name": names.check_name, "request-id": names.check_request_id}
    check(case, lambda given: rules[given["kind"]](text(given, "text")) or {})


@cases("labels")
def test_labels(case):
    check(case, lambda given: names.check_own_label(text(given, "key"), text(given, "value")) or {})


@cases("selectors")
def test_selectors(case):
    def run(given):
        requirements = selectors.parse_selector(text(given, "selector"))
        matches = all(requirement.matches(given["labels"]) for requirement in requirements)
        return {"matches": matches, "empty": not requirements}

    check(case, run)


@cases("env")
def test_env(case):
    def run(given):
        merged = names.merge_env(given["layers"], given["unset"])
        return {"env": [f"{name}={value}" for name, value in merged.items()]}

    check(case, run)


@cases("durations")
def test_durations(case):
    def run(given):
        nanoseconds = durations.parse_duration(text(given, "text"))
        seconds, nanos = divmod(nanoseconds, durations.SECOND)
        canonical = durations.format_duration(nanoseconds)
        assert durations.parse_duration(canonical) == nanoseconds
        return {"seconds": seconds, "nanos": nanos, "canonical": canonical}

    check(case, run)


@cases("retry")
def test_retry(case):
    def run(given):
        now = given.get("attempt_ms", 0)
        numbers = iter(given["random"])
        policy = {key: given[key] for key in ("attempts", "initial_ms", "max_ms") if key in given}
        tries = retry.Retry(
            given.get("deadline_ms"), **policy, clock=lambda: now, random32=lambda: next(numbers)
        )
        pauses = []
        while (pause := tries.next_pause()) is not None:
            pauses.append(pause)
            now += pause + given.get("attempt_ms", 0)
        return {"pauses_ms": pauses}

    check(case, run)


@cases("retry-decisions")
def test_retry_decisions(case):
    check(case, lambda given: {"retry": retry.Outcome(**given).may_retry()})


@cases("errors")
def test_errors(case):
    check(case, lambda given: {"code": code_of_reason(given["reason"])})


@cases("output")
def test_output(case):
    def run(given):
        if given["kind"] == "stream":
            kept = output.window(given["limit"], given["total"])
            truncated = kept.dropped > 0
            return {
                "head": kept.head,
                "tail_start": kept.tail_start,
                "dropped": kept.dropped,
                "truncated": truncated,
            }
        if given["kind"] == "bytes":
            stream = output.Kept(given["limit"])
            for chunk in given["chunks"]:
                stream.add(chunk.encode())
            head, tail = stream.cut()
            dropped = stream.total - len(head) - len(tail)
            return {"head": head.decode(), "tail": tail.decode(), "dropped": dropped}
        if given["kind"] == "shared":
            limits = output.share(given["limit"], given["stdout"], given["stderr"])
            return {"stdout_limit": limits[0], "stderr_limit": limits[1]}
        window = output.window(given["limit"], given["total"])
        offset, available = window.seek(given["offset"], given["finished"])
        return {"offset": offset, "available": available}

    check(case, run)


@cases("host-patterns")
def test_host_patterns(case):
    check(case, lambda given: {"covers": hosts.pattern_covers(text(given, "pattern"), text(given, "name"))})
