# SPDX-License-Identifier: Apache-2.0
"""What clients were told of sandboxes and execs, and whether what they are told later goes with it."""

import json
import re
from collections import Counter
from pathlib import Path

from daemon import ROOT, state_name

ENDED = ("EXITED", "CANCELLED", "TIMED_OUT", "FAILED", "LOST")
GONE = ("DELETING", "DELETED")
ORDER = {"PENDING": 0, "RUNNING": 1} | dict.fromkeys(ENDED, 2)


def moves_of(kind: str) -> set[tuple[str, str]]:
    """The moves that the spec's table has."""
    cases = json.loads((ROOT / f"spec/vectors/{kind}-states.json").read_text(encoding="utf-8"))["cases"]
    ways = [(case["in"]["state"], case["out"]) for case in cases if "out" in case]
    return {(state, out["state"]) for state, out in ways if out["action"] == "move"}


MOVES = {kind: moves_of(kind) for kind in ("sandbox", "exec")}


class Run:
    """An exec: what it must do, once, and what was told of it."""

    def __init__(self, token: str, script: str, code: int = 0, stdout: bytes = b"", stderr: bytes = b""):
        self.id = ""
        self.token = token
        self.argv = ["sh", "-c", f"echo {token} >>/workspace/ran; {script}"]
        self.code, self.stdout, self.stderr = code, stdout, stderr
        self.timeout = 0.0
        self.has_terminal = False
        self.is_endless = False
        self.may_be_cancelled = False
        self.last = None  # what was told last
        self.told: set[str] = set()  # states
        self.output_was_read = False

    def hear(self, box: "Box", told) -> None:
        """The daemon tells how it is."""
        self.id = self.id or told.id
        state = state_name(told)
        assert (told.id, told.sandbox_id, list(told.spec.argv)) == (self.id, box.id, self.argv), f"another exec: {told}"
        if self.last is not None:
            before = state_name(self.last)
            assert ORDER[state] >= ORDER[before], f"it was {before}: {told}"
            if before in ENDED:
                assert told == self.last, f"it changed after its end\n{self.last}\n{told}"
            if self.last.HasField("start_time"):
                assert told.start_time == self.last.start_time, f"it began again\n{self.last}\n{told}"
            assert told.HasField("cancel_time") or not self.last.HasField("cancel_time"), f"a cancel is lost: {told}"
        self.last = told
        self.told.add(state)
        if state in ENDED:
            self.check_end(box, told)

    def check_end(self, box: "Box", told) -> None:
        state = state_name(told)
        expected = {"EXITED"}
        if self.timeout:
            expected.add("TIMED_OUT")
        if self.may_be_cancelled or box.may_stop:
            expected.add("CANCELLED")
        assert state in expected, f"not {expected}: {told}"
        if state == "TIMED_OUT":
            assert told.result.exit_code == 124, f"{told}"
        if state == "EXITED":
            assert told.result.exit_code == self.code, f"it has to end with {self.code}: {told}"
            sizes = (told.result.stdout.total_bytes, told.result.stderr.total_bytes)
            assert sizes == (len(self.stdout), len(self.stderr)), f"output is lost: {told}"

    @property
    def has_ended(self) -> bool:
        return self.last is not None and state_name(self.last) in ENDED


class Box:
    """A sandbox and what was told of it. It has one client, so that what was asked, and not answered, is known."""

    def __init__(self, create):
        self.create = create  # the request that makes it
        self.id = ""
        self.told: list[tuple[int, str]] = []  # sequence and state
        self.labels = {"0"}  # that it may have
        self.paused: bool | None = None  # what was asked and answered last, if nothing else was asked since
        self.may_stop = False  # somebody, or a time that passed, may have stopped or deleted it
        self.may_fail = False  # its keeper was killed, or its files were ruined
        self.is_ruined = False  # its files are not there any more
        self.expires = False
        self.was_deleted = False  # that was answered
        self.runs: list[Run] = []

    @property
    def state(self) -> str:
        return self.told[-1][1] if self.told else ""

    @property
    def is_gone(self) -> bool:
        return self.was_deleted or self.state in GONE

    def hear(self, told) -> None:
        """The daemon tells how it is."""
        state = state_name(told)
        self.id = self.id or told.id
        assert told.id == self.id, f"another sandbox than {self.id}: {told}"
        if self.told:
            sequence, before = self.told[-1]
            assert told.sequence >= sequence, f"events are lost: it was at {sequence}: {told}"
            assert told.sequence > sequence or state == before, f"it was {before} at {sequence}: {told}"
            assert state in GONE or before not in GONE, f"it is there again, and was {before}: {told}"
            assert state == "DELETED" or before != "DELETED", f"it was DELETED: {told}"
        assert state in GONE or not self.was_deleted, f"its deletion is lost: {told}"
        assert state != "FAILED" or self.may_fail, f"it failed: {told}"
        assert self.may_stop or state in ("PENDING", "READY", "PAUSED", "FAILED"), f"nobody stopped it: {told}"
        label = told.spec.labels["n"]
        assert label in self.labels, f"its label was to be one of {self.labels}: {told}"
        self.labels = {label}  # what was asked before and not answered did happen or will not
        self.told.append((told.sequence, state))

    def check_tokens(self, folder: Path) -> None:
        """Every exec that ended ran once, and none ran twice. Only what is known to be over is counted."""
        ended = [run for run in self.runs if run.has_ended]
        try:
            tokens = Counter((folder / "fs/workspace/ran").read_text(encoding="ascii").split())
        except (FileNotFoundError, NotADirectoryError):
            tokens = Counter()
            if self.is_ruined or self.expires or self.is_gone:
                return
        for run in self.runs:
            assert tokens[run.token] <= 1, f"{run.id} ran {tokens[run.token]} times in {self.id}"
        for run in ended:
            if state_name(run.last) == "EXITED":
                assert tokens[run.token] == 1, f"{run.id} says that it ran in {self.id}, and did not"


def check_history(events: list, boxes: list[Box]) -> None:
    """All events there are, against all that was told."""
    cursors = [event.cursor for event in events]
    assert cursors == sorted(set(cursors)), "cursors do not grow"

    sequences: dict[str, int] = {}
    states: dict[tuple[str, int], str] = {}
    now: dict[str, str] = {}
    execs: dict[tuple[str, str], list[str]] = {}
    for event in events:
        box = event.sandbox_id
        sequences[box] = sequences.get(box, 0) + 1
        assert event.sequence == sequences[box], f"after {sequences[box] - 1} events of {box}: {event}"
        if event.HasField("sandbox_state"):
            change = event.sandbox_state
            check_move("sandbox", now.get(box, ""), name_of(change, "from_state"), name_of(change, "to_state"), event)
            now[box] = name_of(change, "to_state")
        if event.HasField("exec_state"):
            change = event.exec_state
            chain = execs.setdefault((box, change.exec_id), [])
            before = chain[-1] if chain else ""
            check_move("exec", before, name_of(change, "from_state"), name_of(change, "to_state"), event)
            chain.append(name_of(change, "to_state"))
        states[box, event.sequence] = now[box]

    for box in boxes:
        for told in box.told:
            assert states.get((box.id, told[0])) == told[1], f"{box.id} was told to be {told[1]} at {told[0]}"
        for run in box.runs:
            chain = execs.get((box.id, run.id), [])
            assert run.told <= set(chain), f"{run.id} of {box.id} was told to be {run.told} and was {chain}"
    known = {box.id for box in boxes}
    assert set(now) == known, f"nobody asked for {set(now) - known}; {known - set(now)} are lost"
    known_execs = {(box.id, run.id) for box in boxes for run in box.runs}
    assert set(execs) <= known_execs, f"nobody asked for {set(execs) - known_execs}"
    assert set(execs) >= known_execs, f"{known_execs - set(execs)} are lost"


def name_of(change, field: str) -> str:
    """The state in a field, as the spec writes it; "" for none."""
    enum = change.DESCRIPTOR.fields_by_name[field].enum_type
    return re.sub(r"^(SANDBOX|EXEC)_STATE_(UNSPECIFIED)?", "", enum.values_by_number[getattr(change, field)].name)


def check_move(kind: str, before: str, source: str, target: str, event) -> None:
    assert source == before, f"the event before said {before!r}: {event}"
    assert (source, target) in MOVES[kind] | {("", "PENDING")}, f"the spec has no such move: {event}"
