# SPDX-License-Identifier: Apache-2.0
"""One sandbox: its life, its commands, its files."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from google.protobuf.field_mask_pb2 import FieldMask

from hutch._results import ExecResult
from hutch._rules.checks import Checks
from hutch._rules.durations import Duration, to_message, to_seconds
from hutch._specs import Command, ExecOptions, exec_spec, may_come_to, sandbox_state_name
from hutch.aio._calls import Calls
from hutch.aio._execs import Exec, ExecStream, start
from hutch.aio._files import Files
from hutch.aio._watch import Watch
from hutch.errors import FailedPrecondition
from hutch.v1 import event_pb2, exec_pb2, sandbox_pb2, state_pb2

if TYPE_CHECKING:
    from typing_extensions import Unpack

_SERVICE = "AgentSandboxService"
_WAIT_TIMEOUT = 180.0
_KILL_GRACE = 5.0
_PAGE_SIZE = 1000


class Sandbox:
    """A sandbox. `info` is what the daemon told last; with `async with` it is deleted at the end.

    Requests return when they are accepted; the work goes on, and `wait` waits for it."""

    def __init__(self, calls: Calls, info: sandbox_pb2.Sandbox) -> None:
        self._calls = calls
        self.info = info
        self.files = Files(calls, info.id)

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def state(self) -> str:
        """The state as last told: "READY"."""
        return sandbox_state_name(self.info.state)

    def __repr__(self) -> str:
        return f"Sandbox({self.id!r})"

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.delete()

    def _check(self) -> None:
        checks = Checks()
        checks.id("sandbox_id", self.id)
        checks.done()

    # Its life.

    async def refresh(self, *, include_usage: bool = False) -> sandbox_pb2.Sandbox:
        """Asks how it is."""
        self._check()
        request = sandbox_pb2.GetSandboxRequest(sandbox_id=self.id, include_usage=include_usage)
        answer = await self._calls.unary(f"{_SERVICE}/GetSandbox", request, sandbox_pb2.GetSandboxResponse)
        self.info = answer.sandbox
        return self.info

    async def wait(self, *states: str, timeout: Duration | None = None) -> sandbox_pb2.Sandbox:
        """Waits until it is in one of @states ("READY" when none is named), 180 s unless told otherwise, without
        polling. Fails when it has come to a state that it does not leave for one of these by itself."""
        wanted = set(states or ("READY",))
        deadline = time.monotonic() + (_WAIT_TIMEOUT if timeout is None else to_seconds(timeout))
        calls = Calls(self._calls.connection, self._calls.timeout, max(deadline - time.monotonic(), 0.0))
        if timeout is not None:
            calls.timeout = min(calls.timeout, to_seconds(timeout))
        self._check()
        request = sandbox_pb2.GetSandboxRequest(sandbox_id=self.id)
        answer = await calls.unary(f"{_SERVICE}/GetSandbox", request, sandbox_pb2.GetSandboxResponse)
        self.info = answer.sandbox
        if not _has_come(self.info.state, wanted):
            await self._watch_for(calls, wanted)
            calls.timeout = min(self._calls.timeout, max(deadline - time.monotonic(), 0.0))
            answer = await calls.unary(f"{_SERVICE}/GetSandbox", request, sandbox_pb2.GetSandboxResponse)
            self.info = answer.sandbox
        return self.info

    async def _watch_for(self, calls: Calls, wanted: set[str]) -> None:
        request = sandbox_pb2.WatchEventsRequest(
            sandbox_ids=[self.id],
            after_sequence=self.info.sequence,
            types=[event_pb2.EVENT_TYPE_SANDBOX_STATE_CHANGED],
        )
        async with Watch(calls, request) as watch:
            async for event in watch:
                if _has_come(event.sandbox_state.to_state, wanted):
                    return

    async def update(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        idle_ttl: Duration | None = None,
        max_lifetime: Duration | None = None,
        lifetime_action: sandbox_pb2.LifetimeAction.ValueType | None = None,
        idle_action: sandbox_pb2.IdleAction.ValueType | None = None,
    ) -> sandbox_pb2.Sandbox:
        """Changes what is given: the labels as a whole, times to live (0: for ever)."""
        checks = Checks()
        checks.id("sandbox_id", self.id)
        request = sandbox_pb2.UpdateSandboxRequest(sandbox_id=self.id, update_mask=FieldMask())
        paths = request.update_mask.paths
        if labels is not None:
            checks.labels("spec.labels", labels)
            request.spec.labels.update(labels)
            paths.append("labels")
        if idle_ttl is not None:
            request.spec.idle_ttl.CopyFrom(to_message(idle_ttl))
            paths.append("idle_ttl")
        if max_lifetime is not None:
            request.spec.max_lifetime.CopyFrom(to_message(max_lifetime))
            paths.append("max_lifetime")
        if lifetime_action is not None:
            request.spec.lifetime_action = lifetime_action
            paths.append("lifetime_action")
        if idle_action is not None:
            request.spec.idle_action = idle_action
            paths.append("idle_action")
        checks.done()
        answer = await self._calls.unary(f"{_SERVICE}/UpdateSandbox", request, sandbox_pb2.UpdateSandboxResponse)
        self.info = answer.sandbox
        return self.info

    async def stop(self, grace: Duration | None = None) -> sandbox_pb2.Sandbox:
        """Ends all processes and keeps the files."""
        self._check()
        request = sandbox_pb2.StopSandboxRequest(sandbox_id=self.id)
        if grace is not None:
            request.grace.CopyFrom(to_message(grace))
        answer = await self._calls.unary(f"{_SERVICE}/StopSandbox", request, sandbox_pb2.StopSandboxResponse)
        self.info = answer.sandbox
        return self.info

    async def resume(self) -> sandbox_pb2.Sandbox:
        """Starts a stopped sandbox again on its files."""
        self._check()
        request = sandbox_pb2.ResumeSandboxRequest(sandbox_id=self.id)
        answer = await self._calls.unary(f"{_SERVICE}/ResumeSandbox", request, sandbox_pb2.ResumeSandboxResponse)
        self.info = answer.sandbox
        return self.info

    async def pause(self) -> sandbox_pb2.Sandbox:
        """Freezes all processes where they are."""
        self._check()
        request = sandbox_pb2.PauseSandboxRequest(sandbox_id=self.id)
        answer = await self._calls.unary(f"{_SERVICE}/PauseSandbox", request, sandbox_pb2.PauseSandboxResponse)
        self.info = answer.sandbox
        return self.info

    async def unpause(self) -> sandbox_pb2.Sandbox:
        """Lets frozen processes go on."""
        self._check()
        request = sandbox_pb2.UnpauseSandboxRequest(sandbox_id=self.id)
        answer = await self._calls.unary(f"{_SERVICE}/UnpauseSandbox", request, sandbox_pb2.UnpauseSandboxResponse)
        self.info = answer.sandbox
        return self.info

    async def delete(self) -> sandbox_pb2.Sandbox:
        """Ends all processes and removes everything but the sandbox's history."""
        self._check()
        request = sandbox_pb2.DeleteSandboxRequest(sandbox_id=self.id)
        answer = await self._calls.unary(f"{_SERVICE}/DeleteSandbox", request, sandbox_pb2.DeleteSandboxResponse)
        self.info = answer.sandbox
        return self.info

    async def snapshot(
        self, name: str = "", *, labels: Mapping[str, str] | None = None, request_id: str = ""
    ) -> sandbox_pb2.Snapshot:
        """Keeps the file system as it is now, to start other sandboxes from."""
        checks = Checks()
        checks.id("sandbox_id", self.id)
        if name:
            checks.name("name", name)
        checks.labels("labels", labels or {})
        checks.done()
        request = sandbox_pb2.CreateSnapshotRequest(
            sandbox_id=self.id, name=name, labels=labels or {}, request_id=request_id
        )
        answer = await self._calls.unary(f"{_SERVICE}/CreateSnapshot", request, sandbox_pb2.CreateSnapshotResponse)
        return answer.snapshot

    # Its commands.

    async def run(
        self,
        command: Command,
        *,
        input: bytes = b"",  # pylint: disable=redefined-builtin
        collect_limit: int = 0,
        request_id: str = "",
        **options: Unpack[ExecOptions],
    ) -> ExecResult:
        """Runs a command to its end and collects what it prints, up to 16 MiB. For commands that take no longer than
        the call's deadline of 60 s, or their own @timeout; when the call is given up, the command is killed."""
        spec = exec_spec(command, **options)
        self._check_exec(spec, request_id)
        request = exec_pb2.RunCommandRequest(
            sandbox_id=self.id,
            spec=spec,
            input=input,
            output_limit_bytes=collect_limit,
            request_id=request_id,
        )
        answer = await self._calls.unary(
            "ExecService/RunCommand", request, exec_pb2.RunCommandResponse, self._run_timeout(spec)
        )
        truncated = answer.stdout_summary.truncated or answer.stderr_summary.truncated
        return ExecResult(answer.stdout, answer.stderr, truncated, answer.exec)

    def _run_timeout(self, spec: exec_pb2.ExecSpec) -> float:
        """The command's own timeout is allowed for."""
        timeout = self._calls.timeout
        if self._calls.stream_timeout is None and spec.timeout.ToNanoseconds():
            grace = spec.kill_grace.ToNanoseconds() / 1e9 if spec.HasField("kill_grace") else _KILL_GRACE
            timeout += spec.timeout.ToNanoseconds() / 1e9 + grace
        return timeout

    async def start(
        self,
        command: Command,
        *,
        stdin: bool = False,
        terminal: tuple[int, int] | None = None,
        bound: bool = False,
        exec_id: str = "",
        request_id: str = "",
        **options: Unpack[ExecOptions],
    ) -> ExecStream:
        """Starts a command and connects to it: output as it comes, stdin, a terminal of (rows, columns), signals. It is
        cancelled when the stream is closed before its end; one that is @bound also when the connection is lost."""
        request = self._create_request(command, stdin, terminal, exec_id, request_id, options, "create.")
        request.bound = bound
        return await start(self._calls, request)

    async def create_exec(
        self,
        command: Command,
        *,
        stdin: bool = False,
        terminal: tuple[int, int] | None = None,
        exec_id: str = "",
        request_id: str = "",
        **options: Unpack[ExecOptions],
    ) -> Exec:
        """Starts a command that goes on by itself, whatever becomes of this client."""
        request = self._create_request(command, stdin, terminal, exec_id, request_id, options)
        answer = await self._calls.unary("ExecService/CreateExec", request, exec_pb2.CreateExecResponse)
        return Exec(self._calls, answer.exec)

    def _create_request(
        self,
        command: Command,
        stdin: bool,
        terminal: tuple[int, int] | None,
        exec_id: str,
        request_id: str,
        options: ExecOptions,
        above: str = "",
    ) -> exec_pb2.CreateExecRequest:
        spec = exec_spec(command, **options)
        if stdin:
            spec.stdin = exec_pb2.STDIN_MODE_STREAM
        if terminal is not None:
            spec.terminal.rows, spec.terminal.columns = terminal
        self._check_exec(spec, request_id, exec_id, above)
        return exec_pb2.CreateExecRequest(sandbox_id=self.id, exec_id=exec_id, spec=spec, request_id=request_id)

    def _check_exec(
        self, spec: exec_pb2.ExecSpec, request_id: str, exec_id: str = "", above: str = ""
    ) -> None:
        checks = Checks(above)
        checks.id("sandbox_id", self.id)
        checks.new_id("exec_id", exec_id)
        checks.exec_spec(spec)
        checks.request_id(request_id)
        checks.done()

    def exec(self, exec_id: str) -> Exec:
        """A command by its id; nothing is asked yet."""
        return Exec(self._calls, exec_pb2.Exec(id=exec_id, sandbox_id=self.id))

    async def list_execs(
        self, *, states: Sequence[state_pb2.ExecState.ValueType] = ()
    ) -> AsyncIterator[Exec]:
        """Its commands, oldest first."""
        self._check()
        request = exec_pb2.ListExecsRequest(sandbox_id=self.id, states=states, page_size=_PAGE_SIZE)
        while True:
            page = await self._calls.unary("ExecService/ListExecs", request, exec_pb2.ListExecsResponse)
            for info in page.execs:
                yield Exec(self._calls, info)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token


def _has_come(state: int, wanted: set[str]) -> bool:
    """Whether a sandbox has come to where it is waited for; fails when it will not by itself."""
    name = sandbox_state_name(state)
    if name not in wanted and not may_come_to(name, wanted):
        raise FailedPrecondition(
            f"the sandbox is {name}, and does not leave that by itself for what is waited for",
            reason="SANDBOX_WRONG_STATE",
            metadata={"state": name},
        )
    return name in wanted
