# SPDX-License-Identifier: Apache-2.0
"""What agents program against: few names, few choices. Everything else is reached by `client` and `sandbox`."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from hutch._connection import Token
from hutch._results import ExecResult, SandboxSpec
from hutch._rules.durations import Duration
from hutch.aio._client import Client
from hutch.aio._sandbox import Sandbox

_TIMEOUT = 300.0


class SandboxHandle:
    """A sandbox that an agent has. `sandbox` is the same with everything that the contract has."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    @property
    def id(self) -> str:
        return self.sandbox.id

    def __repr__(self) -> str:
        return f"SandboxHandle({self.id!r})"

    async def exec(self, cmd: str, args: Sequence[str] = (), timeout: Duration = _TIMEOUT) -> ExecResult:
        """Runs a program with its arguments, without any shell. A timeout is exit code 124."""
        return await self.sandbox.run([cmd, *args], timeout=timeout)

    async def shell(self, script: str, timeout: Duration = _TIMEOUT) -> ExecResult:
        """Runs a shell script."""
        return await self.exec("sh", ["-c", script], timeout)

    async def stop(self) -> None:
        """Ends all processes and keeps the files; returns when that is done."""
        await self.sandbox.stop()
        await self.sandbox.wait("STOPPED")

    async def kill(self) -> None:
        """The same without giving processes time to end."""
        await self.sandbox.stop(grace=0)
        await self.sandbox.wait("STOPPED")

    async def logs(self, tail: int = 100) -> str:
        """The last lines that each of its commands printed, oldest command first."""
        text = ""
        async for command in self.sandbox.list_execs():
            text += (await command.output(tail_lines=tail).collect()).output
        return "".join(text.splitlines(keepends=True)[-tail:]) if tail else ""

    async def __aenter__(self) -> SandboxHandle:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.sandbox.delete()


class SandboxClient:
    """Sandboxes for agents. It takes the address and token of a daemon as `Client` does, or a client that is there."""

    def __init__(
        self, address: str = "", *, token: Token = "", ca_file: str = "", client: Client | None = None
    ) -> None:
        self.client = client or Client(address, token=token, ca_file=ca_file)

    async def create(self, spec: SandboxSpec | None = None) -> SandboxHandle:
        """Creates a sandbox, and returns when commands can run in it. Its name, when the spec has one, is its id."""
        spec = spec or SandboxSpec()
        return SandboxHandle(await self.client.create(spec, sandbox_id=spec.name))

    async def get(self, sandbox_id: str) -> SandboxHandle:
        """A sandbox that is there."""
        return SandboxHandle(await self.client.get(sandbox_id))

    async def list(self, selector: str = "") -> Sequence[SandboxHandle]:
        """The sandboxes that are there, oldest first, or those with certain labels."""
        return [SandboxHandle(sandbox) async for sandbox in self.client.list(selector)]

    async def remove(self, sandbox_id: str) -> None:
        """Deletes a sandbox with all that is in it."""
        await self.client.sandbox(sandbox_id).delete()

    async def run_python(
        self, code: str, spec: SandboxSpec | None = None, timeout: Duration = _TIMEOUT
    ) -> ExecResult:
        """Runs Python code in a sandbox of its own, which is deleted whatever happens."""
        return await self.client.run_python(code, spec or SandboxSpec(), timeout=timeout)

    async def run_shell(
        self, script: str, spec: SandboxSpec | None = None, timeout: Duration = _TIMEOUT
    ) -> ExecResult:
        """Runs a shell script in a sandbox of its own, which is deleted whatever happens."""
        return await self.client.run_shell(script, spec or SandboxSpec(), timeout=timeout)

    async def close(self) -> None:
        """Ends the connection."""
        await self.client.close()

    async def __aenter__(self) -> SandboxClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
