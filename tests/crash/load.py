# SPDX-License-Identifier: Apache-2.0
"""The load: clients that do anything that can be done, in an order that their seed gives, and check all answers."""

import contextlib
import os
import random
import signal
import threading
import time

import grpc
from daemon import LIMIT, Client, KilledDaemon, Refusal, seconds, state_name
from host import PATIENCE
from told import Box, Run
from hutch.v1 import exec_pb2, sandbox_exec_pb2, sandbox_pb2

BOXES = 3  # of one actor at a time
LINES = "".join(f"{line}\n" for line in range(20000)).encode()
RUNS = 12  # in one sandbox at most
SETTLE = 10 * PATIENCE  # seconds that a sandbox may take to get where it was told to go
# What a request may be answered with when its sandbox went another way meanwhile.
LATE = {"SANDBOX_WRONG_STATE", "OPERATION_IN_PROGRESS", "SANDBOX_EXPIRED", "EXEC_WRONG_STATE"}


class Gone(Exception):
    """The daemon did not answer: whether it did what was asked is not known."""


class Actor:
    """A client with sandboxes of its own, which goes on where it was when the daemon is there again."""

    def __init__(self, daemon: KilledDaemon, name: str, seed: int):
        self.daemon = daemon
        self.name = name
        self.random = random.Random(seed)
        self.boxes: list[Box] = []
        self.numbers = 0
        self.unanswered = None  # a request that is to be repeated, as a function
        self.client: Client | None = None
        self.journal = (daemon.folder / "journal").open("a", buffering=1, encoding="utf-8")
        self.keepers_killed = 0

    # A life of the daemon.

    def live(self, over: threading.Event, favourite: str) -> None:
        """Does things until the daemon is gone, or @over."""
        self.client = Client(self.daemon.socket)
        self.note(f"life favourite={favourite}")
        try:
            self.repeat()
            self.audit()
            while not over.is_set():
                self.act(favourite if self.random.random() < 0.4 else "")
        except Gone:
            self.note("gone")
        finally:
            self.client.close()

    def note(self, text: str) -> None:
        self.journal.write(f"{time.time():.6f} {self.name} {text}\n")

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def ask(self, call, request, late: frozenset | set = LATE, limit: float = LIMIT):
        """The answer; None for one of the refusals in @late."""
        try:
            answer = call(request, timeout=limit)
        except grpc.RpcError as error:
            told = Refusal(error)
            self.note(f"{type(request).__name__}: {told.code} {told.reason}")
            if told.code == "UNAVAILABLE" and not told.reason:
                raise Gone from error
            assert told.reason in late, f"{request} was refused: {told.code} {told.reason}: {told.message}"
            return None
        self.note(f"{type(request).__name__}: ok")
        return answer

    def ask_again_and_again(self, function):
        """Calls @function, in a later life again when it was not answered. It must be repeatable."""
        self.unanswered = function
        answer = function()
        self.unanswered = None
        return answer

    def repeat(self) -> None:
        if self.unanswered:
            self.note("repeats")
            self.unanswered()
            self.unanswered = None

    # Sandboxes.

    def create(self, **spec) -> Box:
        number = self.number()
        request = sandbox_pb2.CreateSandboxRequest(request_id=f"{self.name}-{number}")
        request.spec.CopyFrom(sandbox_pb2.SandboxSpec(labels={"n": "0"}, **spec))
        if self.random.random() < 0.5:
            request.sandbox_id = f"{self.name}-{number}"
        box = Box(request)
        box.expires = box.may_stop = bool(spec)
        self.boxes.append(box)
        self.ask_again_and_again(lambda: self.make(box))
        if self.random.random() < 0.3:
            self.make(box)
        return box

    def make(self, box: Box) -> None:
        """Also of a sandbox that is there: then it must be the same."""
        box.hear(self.ask(self.client.sandboxes.CreateSandbox, box.create, late=set()).sandbox)
        assert box.id == (box.create.sandbox_id or box.id)
        self.note(f"made {box.id}")

    def get(self, box: Box) -> str:
        request = sandbox_pb2.GetSandboxRequest(sandbox_id=box.id)
        box.hear(self.ask(self.client.sandboxes.GetSandbox, request, late=set()).sandbox)
        return box.state

    def wait(self, box: Box, *states: str) -> bool:
        """Waits for one of @states. It may become something else instead: False."""
        end = time.monotonic() + SETTLE
        while self.get(box) not in states:
            if box.state in ("STOPPED", "FAILED", "DELETED"):
                return False
            assert time.monotonic() < end, f"{box.id} was to become {states} and is {box.state}"
            time.sleep(0.003)
        return True

    def change(self, box: Box, name: str, **fields) -> bool:
        """Calls one of the methods that change a sandbox and answer with it."""
        request = getattr(sandbox_pb2, f"{name}Request")(sandbox_id=box.id, **fields)
        answer = self.ask(getattr(self.client.sandboxes, name), request)
        if answer:
            box.hear(answer.sandbox)
        return answer is not None

    def pick(self, *states: str) -> Box | None:
        """A sandbox that was in one of @states when last heard of."""
        found = [box for box in self.boxes if box.id and not box.is_gone and (not states or box.state in states)]
        return self.random.choice(found) if found else None

    # Execs.

    def make_run(self, box: Box) -> Run:
        code = self.random.randrange(4)
        kind = self.random.choice(["short", "short", "long", "big", "killed", "timeout", "forever", "terminal"])
        if kind == "short":
            script = f"printf out; printf err >&2; exit {code}"
            return self.add_run(box, script, code=code, stdout=b"out", stderr=b"err")
        if kind == "long":
            script = f"for i in 0 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.03; done; exit {code}"
            return self.add_run(box, script, code=code, stdout=LINES[: 2 * 10])
        if kind == "big":
            return self.add_run(box, "seq 0 19999", stdout=LINES)
        if kind == "killed":
            return self.add_run(box, "kill -KILL $$", code=137)
        if kind == "terminal":
            run = self.add_run(box, f"echo tty; exit {code}", code=code, stdout=b"tty\r\n")
            run.has_terminal = True
            return run
        run = self.add_run(box, "exec sleep 1000")
        run.timeout = 0.1 if kind == "timeout" else 0
        run.is_endless = kind == "forever"
        return run

    def add_run(self, box: Box, script: str, **expected) -> Run:
        box.runs.append(Run(f"{self.name}-{self.number()}", script, **expected))
        return box.runs[-1]

    def spec_of(self, run: Run) -> exec_pb2.ExecSpec:
        spec = exec_pb2.ExecSpec(argv=run.argv, kill_grace=seconds(0))
        if run.timeout:
            spec.timeout.CopyFrom(seconds(run.timeout))
        if run.has_terminal:
            spec.terminal.rows = 24
        return spec

    def start(self, box: Box, run: Run) -> None:
        request = exec_pb2.CreateExecRequest(sandbox_id=box.id, request_id=run.token, spec=self.spec_of(run))
        answer = self.ask(self.client.execs.CreateExec, request)
        if answer:
            run.hear(box, answer.exec)
        elif not run.id:
            box.runs.remove(run)  # refused: it is none

    def get_run(self, box: Box, run: Run) -> None:
        request = exec_pb2.GetExecRequest(sandbox_id=box.id, exec_id=run.id)
        run.hear(box, self.ask(self.client.execs.GetExec, request, late=set()).exec)

    def read_output(self, box: Box, run: Run) -> None:
        """Reads all output of an exec that ended by itself."""
        data = {1: b"", 2: b""}
        request = exec_pb2.ReadExecOutputRequest(sandbox_id=box.id, exec_id=run.id)
        try:
            for step in self.client.execs.ReadExecOutput(request, timeout=LIMIT):
                if step.HasField("output"):
                    assert step.output.offset == len(data[step.output.stream]), f"output of {run.id} has a gap"
                    data[step.output.stream] += step.output.data
                else:
                    run.hear(box, step.exec)
        except grpc.RpcError as error:
            told = Refusal(error)
            if told.code == "UNAVAILABLE" and not told.reason:
                raise Gone from error
            assert told.reason in LATE and box.expires, f"{run.id} of {box.id}: {told.reason}: {told.message}"
            return
        assert (data[1], data[2]) == (run.stdout, run.stderr), f"output of {run.id} of {box.id} is not what it wrote"
        run.output_was_read = True

    # What is checked at the begin of each life.

    def audit(self, thorough: bool = False) -> None:
        for box in [box for box in self.boxes if box.id]:
            if box.state != "DELETED" or thorough:
                self.audit_box(box, thorough)

    def audit_box(self, box: Box, thorough: bool) -> None:
        state = self.get(box)
        if box.paused is not None and not box.may_stop and not box.may_fail:
            self.wait(box, "PAUSED" if box.paused else "READY")
        for run in [run for run in box.runs if run.id]:
            if not run.has_ended or thorough:
                self.get_run(box, run)
        box.check_tokens(self.daemon.sandbox_folder(box.id))
        for run in box.runs:
            readable = run.has_ended and state_name(run.last) == "EXITED" and not box.is_gone
            if readable and (thorough or not run.output_was_read) and state == box.state:
                self.read_output(box, run)

    def finish(self) -> None:
        """Sees everything come to its end in a daemon that is not killed, and deletes it."""
        self.client = Client(self.daemon.socket)
        self.note("finish")
        for box in [box for box in self.boxes if box.id]:
            while self.get(box) in ("READY", "PAUSED") and box.paused is not False:
                self.unpause(box)  # so that no exec waits for that, and a call for the exec
        self.repeat()
        for box in self.boxes:
            self.finish_box(box)
        self.audit(thorough=True)
        for box in self.boxes:
            self.delete(box)
        for box in self.boxes:
            assert self.wait(box, "DELETED")
        self.audit(thorough=True)
        for box in self.boxes:
            assert all(run.has_ended for run in box.runs), f"execs of {box.id} never end"
        self.client.close()

    def finish_box(self, box: Box) -> None:
        if self.get(box) == "PAUSED":
            self.unpause(box)
        for run in box.runs:
            if run.is_endless and not run.has_ended and not box.is_gone:
                self.cancel(box, run)
        end = time.monotonic() + SETTLE
        for run in box.runs:
            while not run.has_ended and self.get(box) != "STOPPED":
                assert time.monotonic() < end, f"{run.id} of {box.id} does not end: {run.last}"
                self.get_run(box, run)
                time.sleep(0.003)

    # What it may do: one of the methods below.

    def act(self, favourite: str) -> None:
        favourites = [name for name in ACTIONS if name in favourite.split()]
        name = self.random.choice(favourites or list(ACTIONS))
        self.note(name)
        getattr(self, f"do_{name}")()

    def do_create(self) -> None:
        if len([box for box in self.boxes if not box.is_gone]) >= BOXES:
            self.do_delete()
        self.create()

    def do_expire(self) -> None:
        """One that stops or goes by itself."""
        spec = {"max_lifetime": seconds(self.random.choice([0.02, 0.1]))}
        if self.random.random() < 0.5:
            spec["lifetime_action"] = sandbox_pb2.LIFETIME_ACTION_DELETE
        self.wait(self.create(**spec), "DELETED")

    def do_idle(self) -> None:
        self.wait(self.create(idle_ttl=seconds(self.random.choice([0.01, 0.05]))), "STOPPED")

    def do_exec(self) -> None:
        box = self.pick("PENDING", "READY")
        if box and len(box.runs) < RUNS:
            run = self.make_run(box)
            self.ask_again_and_again(lambda: self.start(box, run))
            if run.id and self.random.random() < 0.3:
                self.start(box, run)
        elif not box or len(box.runs) >= RUNS:
            self.do_create()

    def do_run(self) -> None:
        """The call that waits for the end; a repeated one takes it up again."""
        box = self.pick("READY")
        if not box or len(box.runs) >= RUNS:
            return
        run = self.add_run(box, "sleep 0.02; cat", stdout=b"input")
        request = exec_pb2.RunCommandRequest(sandbox_id=box.id, request_id=run.token, spec=self.spec_of(run))
        request.input = b"input"
        self.ask_again_and_again(lambda: self.run(box, run, request))

    def run(self, box: Box, run: Run, request) -> None:
        answer = self.ask(self.client.execs.RunCommand, request)
        if answer:
            run.hear(box, answer.exec)
            assert run.has_ended
            if state_name(answer.exec) == "EXITED" and answer.stdout != run.stdout:
                # A repeated call may come when the sandbox, and with it what it had printed, is being removed.
                seen = self.ask(self.client.sandboxes.GetSandbox, sandbox_pb2.GetSandboxRequest(sandbox_id=box.id))
                is_going = bool(seen) and state_name(seen.sandbox) in ("DELETING", "DELETED")
                assert is_going, f"the output of {run.id} of {box.id} is {answer.stdout!r}"
        else:
            box.runs.remove(run)

    def do_once(self) -> None:
        """A one-shot, which goes by itself; a repeated one is taken up again, or is over."""
        token = f"{self.name}-{self.number()}"
        box, run = Box(None), Run(token, "sleep 0.02; cat", stdout=b"input")
        box.expires = box.may_stop = True
        box.runs.append(run)
        self.boxes.append(box)
        labels = {"n": "0", "once": token}
        request = sandbox_exec_pb2.ExecRequest(argv=run.argv, input=b"input", request_id=token, labels=labels)
        self.ask_again_and_again(lambda: self.once(box, run, request))

    def once(self, box: Box, run: Run, request) -> None:
        data = b""
        try:
            for step in self.client.one_shots.Exec(request, timeout=LIMIT):
                if step.HasField("started"):
                    assert box.id in ("", step.started.sandbox_id), f"{box.id} is run again: {step}"
                    box.id = step.started.sandbox_id
                elif step.HasField("output"):
                    data += step.output.data
                else:
                    assert (step.exit.exit_code, data) == (0, run.stdout) or box.may_fail, f"{box.id}: {data!r} {step}"
        except grpc.RpcError as error:
            told = Refusal(error)
            self.note(f"once: {told.code} {told.reason}")
            if told.code == "UNAVAILABLE" and not told.reason:
                raise Gone from error
            assert told.reason == "REQUEST_ID_REUSED" or box.may_fail, f"{box.id}: {told.reason}: {told.message}"
        listing = sandbox_pb2.ListSandboxesRequest(selector=f"once={run.token}", states=range(1, 9))
        [sandbox] = self.ask(self.client.sandboxes.ListSandboxes, listing, late=set()).sandboxes
        box.hear(sandbox)
        listing = exec_pb2.ListExecsRequest(sandbox_id=box.id)
        [found] = self.ask(self.client.execs.ListExecs, listing, late=set()).execs
        run.hear(box, found)

    def do_look(self) -> None:
        box = self.pick()
        if box:
            self.audit_box(box, thorough=False)

    def do_wait(self) -> None:
        box = self.pick("PENDING", "STOPPING")
        if box:
            self.wait(box, "READY", "STOPPED")

    def do_cancel(self) -> None:
        box = self.pick("READY", "PENDING")
        if not box:
            return
        runs = [run for run in box.runs if not run.has_ended]
        if not runs and len(box.runs) < RUNS:
            run = self.make_run(box)
            self.ask_again_and_again(lambda: self.start(box, run))
            runs = [run] if run.id else []
        if runs:
            self.cancel(box, self.random.choice(runs))

    def cancel(self, box: Box, run: Run) -> None:
        run.may_be_cancelled = True
        request = exec_pb2.CancelExecRequest(sandbox_id=box.id, exec_id=run.id, grace=seconds(0))
        run.hear(box, self.ask(self.client.execs.CancelExec, request, late=set()).exec)
        assert run.has_ended or run.last.HasField("cancel_time")

    def do_pause(self) -> None:
        box = self.pick("READY")
        if not box or not self.wait(box, "READY", "PAUSED"):
            return
        box.paused = None
        if self.change(box, "PauseSandbox"):
            box.paused = True
            self.settle_pause(box, "PAUSED")

    def do_unpause(self) -> None:
        box = self.pick("PAUSED")
        if box:
            self.unpause(box)

    def unpause(self, box: Box) -> None:
        box.paused = None
        if self.change(box, "UnpauseSandbox"):
            box.paused = False
            self.settle_pause(box, "READY")

    def settle_pause(self, box: Box, state: str) -> None:
        """Another request would be refused until it is done."""
        if self.random.random() < 0.8:
            self.wait(box, state)

    def do_update(self) -> None:
        box = self.pick()
        if not box:
            return
        label = str(self.number())
        request = sandbox_pb2.UpdateSandboxRequest(sandbox_id=box.id)
        request.spec.labels["n"] = label
        request.update_mask.paths.append("labels")
        box.labels.add(label)
        answer = self.ask(self.client.sandboxes.UpdateSandbox, request)
        if answer:
            box.labels = {label}
            box.hear(answer.sandbox)

    def do_stop(self) -> None:
        box = self.pick("READY", "PENDING", "PAUSED")
        if box:
            box.may_stop = True
            self.change(box, "StopSandbox", grace=seconds(0))

    def do_resume(self) -> None:
        box = self.pick("STOPPED", "STOPPING")
        if box and self.wait(box, "STOPPED"):
            request_id = f"{self.name}-{self.number()}"
            self.ask_again_and_again(lambda: self.change(box, "ResumeSandbox", request_id=request_id))

    def do_delete(self) -> None:
        box = self.pick()
        if box:
            self.delete(box)
            if self.random.random() < 0.5:
                self.wait(box, "DELETED")

    def delete(self, box: Box) -> None:
        box.may_stop = True
        self.change(box, "DeleteSandbox")
        box.was_deleted = True

    def do_retake(self) -> None:
        """An id is given once."""
        gone = [box for box in self.boxes if box.is_gone]
        if gone:
            request = sandbox_pb2.CreateSandboxRequest(sandbox_id=self.random.choice(gone).id)
            assert self.ask(self.client.sandboxes.CreateSandbox, request, late={"ID_TAKEN"}) is None

    def do_kill_keeper(self) -> None:
        box = self.pick("READY", "PENDING", "PAUSED", "STOPPING")
        if box:
            self.kill_keeper(box)
            if self.random.random() < 0.5:
                self.get(box)

    def kill_keeper(self, box: Box) -> None:
        pid = self.daemon.keeper_pids().get(box.id)
        if pid:
            box.may_fail = box.may_stop = True
            self.note(f"kills the keeper of {box.id}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.keepers_killed += 1

    def do_ruin(self) -> None:
        """A sandbox that cannot be started again."""
        box = self.pick("STOPPED", "READY")
        if not box or box.is_ruined:
            return
        box.may_stop = True
        if box.state == "READY":
            self.change(box, "StopSandbox", grace=seconds(0))
        if not self.wait(box, "STOPPED"):
            return
        files = self.daemon.sandbox_folder(box.id) / "fs"
        if not files.exists():
            return  # it was stopped before it had any
        box.may_fail = box.is_ruined = True
        files.rename(files.with_name("ruined"))
        files.write_bytes(b"")
        request_id = f"{self.name}-{self.number()}"
        self.ask_again_and_again(lambda: self.change(box, "ResumeSandbox", request_id=request_id))


ACTIONS = [name.removeprefix("do_") for name in vars(Actor) if name.startswith("do_")]


class Watcher:
    """Watches all events, in each life from where it was."""

    def __init__(self, daemon: KilledDaemon):
        self.daemon = daemon
        self.seen: list = []

    def live(self) -> None:
        client = Client(self.daemon.socket)
        request = sandbox_pb2.WatchEventsRequest(after_cursor=self.seen[-1].cursor if self.seen else 0)
        try:
            for step in client.sandboxes.WatchEvents(request, timeout=10 * LIMIT):
                if step.HasField("event"):
                    self.seen.append(step.event)
        except grpc.RpcError as error:
            told = Refusal(error)
            assert told.code == "UNAVAILABLE" and not told.reason, f"the watch ended: {told.code} {told.reason}"
        finally:
            client.close()
