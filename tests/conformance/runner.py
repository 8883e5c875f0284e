# SPDX-License-Identifier: Apache-2.0
"""Runs cases: has a driver do the steps of one, and compares what it answers with what the case expects.

A case is {"name", "rules", "about"?, "proxy"?, "steps"}. With `proxy` ("unix" or "tcp") its commands go through a
proxy of its own (proxy.py), but for those of steps with "direct". A step is one of

    {"op", "args", "ok" or "error", "save"?, "timeout_ms"?, "client"?, "direct"?, "background"?, "unsettled"?}
                             does a command. `background` names it and goes on; with "until": "note" once it has noted.
                             `unsettled`: answers may differ, so those of languages are not compared;
                             `eventually`, also of "seen": again and again until it is as expected
    {"join": NAME, "ok" or "error", "save"?}        waits for one that was begun in the background
    {"cancel": NAME}                                cancels it
    {"fault": {…}}                                  arms the proxy
    {"release": true}                               lets what it holds go on
    {"seen": {"requests": {METHOD: EXPECTATION}, "connections": EXPECTATION, …}}    what the proxy has seen so far
    {"repeat": N, "steps": […]}                     with the variable $i from 1 on

Expectations of `ok` and `error` say as much as they name: of an object the keys they have, where 0, "", false and []
also stand for a key that is absent; of a list all elements. Beside plain values there are {"match": REGEX},
{"at_least": N, "at_most": N}, {"all": EXPECTATION} of a list's elements, and, for bytes, a text, {"text": EXPECTATION},
{"len": N} or {"repeat": BASE64, "times": N}.

"$name" is a variable, also within a text ("${name}"): `save` sets them by path ({"cursor": "events.-1.cursor"}). Given
are $sandbox (READY, shared by the cases of a language), $own (READY, of this case alone, made when it is first named),
$folder (of this case, in $sandbox, made), $id (a fresh one, the same throughout the case), $address (the proxy's), and
for TLS on 127.0.0.1: $port, $ca, $other_ca, $certificate, $key, $token, $expired_token. What is none of them stays as
it is: scripts have variables of their own."""

import base64
import hashlib
import json
import re
import tempfile
import time
from pathlib import Path

from drivers import LIMIT, WITHOUT, Driver
from proxy import Proxy
from values import Transcript, content, is_bytes, read_answer

CASES = Path(__file__).resolve().parent / "cases"
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class Mismatch(AssertionError):
    """An answer is not what was expected."""


def read_cases() -> list[dict]:
    cases = []
    for file in sorted(CASES.glob("*.json")):
        for case in json.loads(file.read_text(encoding="utf-8")):
            cases.append(case | {"area": file.stem})
    return cases


def operations(steps: list[dict]) -> set[str]:
    """The commands of a case, and for each that it cancels "cancel:OP"."""
    found = {step["op"] for step in steps if "op" in step}
    begun = {step["background"]: step["op"] for step in steps if "background" in step}
    found |= {f"cancel:{begun[step['cancel']]}" for step in steps if "cancel" in step}
    return found.union(*(operations(step["steps"]) for step in steps if "steps" in step))


def is_for(case: dict, language: str) -> bool:
    return not operations(case["steps"]) & WITHOUT.get(language, {}).keys()


# ---- Expectations ----


def expand(value) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return base64.b64decode(value["repeat"]) * value["times"]


def check_bytes(expected, actual: dict, where: str) -> None:
    rest = dict(expected) if isinstance(expected, dict) else {}
    if isinstance(expected, str) or "repeat" in expected:
        data = expand(expected)
        shown = content(actual)[:400] if "base64" in actual else f"{actual['len']} bytes"
        if actual["sha256"] != hashlib.sha256(data).hexdigest() or actual["len"] != len(data):
            raise Mismatch(f"{where}: expected {data[:400]!r}, not {shown!r}")
        rest.pop("repeat", None)
        rest.pop("times", None)
    if "text" in rest:
        check(rest.pop("text"), content(actual).decode("latin-1"), where)
    check_object(rest, actual, where)


def check_object(expected: dict, actual: dict, where: str) -> None:
    for name, value in expected.items():
        if name in actual:
            check(value, actual[name], f"{where}.{name}")
        elif value not in (0, "", False, [], {}):
            raise Mismatch(f"{where}: has no {name}: {json.dumps(actual)[:800]}")


def check(expected, actual, where: str) -> None:
    """Raises Mismatch unless @actual is what @expected says."""
    if isinstance(expected, dict) and expected.keys() <= {"match", "at_least", "at_most", "all"} and expected:
        if "match" in expected and not re.search(expected["match"], str(actual)):
            raise Mismatch(f"{where}: {actual!r} does not match {expected['match']!r}")
        if "at_least" in expected and int(actual) < expected["at_least"]:
            raise Mismatch(f"{where}: {actual} is less than {expected['at_least']}")
        if "at_most" in expected and int(actual) > expected["at_most"]:
            raise Mismatch(f"{where}: {actual} is more than {expected['at_most']}")
        for i, item in enumerate(actual if "all" in expected else []):
            check(expected["all"], item, f"{where}[{i}]")
    elif is_bytes(actual):
        check_bytes(expected, actual, where)
    elif isinstance(expected, dict) and isinstance(actual, dict):
        check_object(expected, actual, where)
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            shown = json.dumps(actual)[:1500]
            raise Mismatch(f"{where}: expected {len(expected)} elements, not {len(actual)}: {shown}")
        for i, pair in enumerate(zip(expected, actual, strict=True)):
            check(*pair, f"{where}[{i}]")
    elif isinstance(expected, int) and not isinstance(expected, bool) and isinstance(actual, str):
        if str(expected) != actual:  # integers of 64 bits are texts in proto3 JSON
            raise Mismatch(f"{where}: expected {expected}, not {actual}")
    elif expected != actual:
        raise Mismatch(f"{where}: expected {expected!r}, not {actual!r}")


def find(value, path: str):
    """What stands at a path as "events.-1.cursor"."""
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


# ---- Running ----


def eventually(do, patient: bool) -> None:
    """Calls @do, when @patient until it does not raise Mismatch any more."""
    end = time.monotonic() + LIMIT
    while True:
        try:
            do()
            return
        except Mismatch:
            if not patient or time.monotonic() > end:
                raise
            time.sleep(0.1)


class Run:
    """A case on its way through one language's driver."""

    def __init__(self, case: dict, driver: Driver, daemon, number: int, given: dict):
        self.case = case
        self.driver = driver
        self.daemon = daemon
        self.client = f"case-{number}"
        self.begun: dict[str, tuple] = {}
        self.proxy: Proxy | None = None
        self.own: list[str] = []
        fresh = f"case-{number}-{driver.language}"
        self.variables = given | {"id": fresh, "folder": f"/workspace/case-{number}"}
        self.transcript = Transcript({given["sandbox"]: "<sandbox>", fresh: "<id>"})

    def variable(self, match: re.Match):
        """What a variable stands for. What is none stays as it is: scripts have variables of their own."""
        name = match[1] or match[2]
        if name == "own" and name not in self.variables:
            self.own.append(self.daemon.ready())
            self.variables["own"] = self.own[0]
            self.transcript.names[self.own[0]] = "<own>"
        return self.variables.get(name, match[0])

    def fill(self, value):
        """@value with its variables."""
        if isinstance(value, dict):
            return {self.fill(key): self.fill(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if not isinstance(value, str):
            return value
        whole = VARIABLE.fullmatch(value)
        if whole:
            return self.variable(whole)
        return VARIABLE.sub(lambda match: str(self.variable(match)), value)

    def do(self) -> list:
        """Does all steps. Returns the transcript."""
        with tempfile.TemporaryDirectory(prefix="hutch-test-") as folder:
            if "proxy" in self.case:
                self.proxy = Proxy(Path(folder), self.daemon.socket, self.case["proxy"] == "tcp")
                self.variables["address"] = self.proxy.address
                self.transcript.names[self.proxy.address] = "<address>"
                if self.case["proxy"] == "unix":
                    self.driver.do("client.connect", {"address": self.proxy.address}, self.client)
            try:
                self.do_steps(self.case["steps"])
                assert not self.begun, f"nobody has waited for {', '.join(self.begun)}"
                assert not self.proxy or not self.proxy.outstanding(), f"did not happen: {self.proxy.outstanding()}"
            finally:
                if self.proxy:
                    if self.case["proxy"] == "unix":
                        self.driver.do("client.close", {}, self.client)
                    self.proxy.close()
                for one in self.own:
                    self.daemon.delete(one)
        return self.transcript.lines

    def do_steps(self, steps: list[dict]) -> None:
        for number, step in enumerate(steps, 1):
            try:
                self.do_step(step)
            except AssertionError as error:
                about = f"step {number} ({step.get('op') or next(iter(step))}): "
                raise type(error)(about + str(error)) from None

    def do_step(self, step: dict) -> None:
        if "repeat" in step:
            for i in range(1, step["repeat"] + 1):
                self.variables["i"] = i
                self.do_steps(step["steps"])
        elif "fault" in step:
            self.proxy.arm(self.fill(step["fault"]))
        elif "release" in step:
            self.proxy.released.set()
        elif "seen" in step:
            eventually(lambda: [self.look(*item) for item in step["seen"].items()], step.get("eventually", False))
        elif "cancel" in step:
            ok = self.driver.do("cancel", {"id": self.begun[step["cancel"]][0]}, self.client)
            check({}, ok.get("ok"), "ok")
        elif "join" in step:
            _, answer, op, args = self.begun.pop(step["join"])
            self.compare(step, op, args, answer.wait())
        else:
            eventually(lambda: self.do_command(step), step.get("eventually", False))

    def look(self, name: str, expected: dict) -> None:
        """Compares what the proxy has seen."""
        if name in ("connections", "held"):
            check(expected, getattr(self.proxy, f"n_{name}"), name)
            return
        for method, value in expected.items():
            check(value, getattr(self.proxy, name)(method), f"{name} of {method}")

    def do_command(self, step: dict) -> None:
        client = "main" if step.get("direct") or not self.proxy else self.client
        if "client" in step:
            client = f"{self.client}-{step['client']}"
        args = self.fill(step.get("args", {}))
        number, answer = self.driver.begin(step["op"], args, client, step.get("timeout_ms", 0))
        if "background" in step:
            self.begun[step["background"]] = number, answer, step["op"], args
            if step.get("until") == "note":
                answer.wait_note()
        else:
            self.compare(step, step["op"], args, answer.wait())

    def compare(self, step: dict, op: str, args: dict, said: dict) -> None:
        """Compares an answer with what was expected, and writes it down."""
        if "error" in said:
            if said["error"]["code"] == "DRIVER" or "error" not in step:
                raise Mismatch(f"failed with {json.dumps(said['error'])}")
            check(self.fill(step["error"]), said["error"], "error")
            if not step.get("unsettled"):
                self.transcript.add(op, args, said)
            return
        ok = read_answer(op, args, said["ok"])
        if "ok" not in step:
            raise Mismatch(f"did not fail, but answered {json.dumps(ok)[:1500]}")
        for name, path in step.get("save", {}).items():
            self.variables[name] = find(ok, path)
        check(self.fill(step["ok"]), ok, "ok")
        if not step.get("unsettled"):
            self.transcript.add(op, args, {"ok": ok})
