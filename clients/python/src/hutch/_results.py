# SPDX-License-Identifier: Apache-2.0
"""What commands come to, and what sandboxes are asked to be: values that both clients share."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hutch.v1 import exec_pb2, sandbox_pb2

MIB = 1 << 20


@dataclass(frozen=True)
class ExecResult:
    """How a command ended, and what it printed.

    A command that fails is no error: look at `ok` or `exit_code`. A timeout is exit code 124, `timed_out`, and words in
    `message` and at the end of `output`. The exit code is None when it is not known, or nothing was started."""

    stdout_bytes: bytes
    stderr_bytes: bytes
    truncated: bool
    exec: exec_pb2.Exec

    @property
    def exit_code(self) -> int | None:
        result = self.exec.result
        return result.exit_code if result.HasField("exit_code") else None

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode(errors="replace")

    @property
    def timed_out(self) -> bool:
        return self.exec.result.end_reason == exec_pb2.EXEC_END_REASON_TIMED_OUT

    @property
    def message(self) -> str:
        """What happened beyond the exit code, for people: a timeout, a limit, why it could not be started."""
        told = self.exec.result.message
        return told or ("the command timed out and was killed" if self.timed_out else "")

    @property
    def output(self) -> str:
        """All it printed, stdout first, and what happened beyond that."""
        parts = [self.stdout, self.stderr, self.message and f"[{self.message}]\n"]
        text = ""
        for part in filter(None, parts):
            text += "\n" + part if text and not text.endswith("\n") else part
        return text


@dataclass(frozen=True)
class SandboxSpec:
    """What a sandbox shall be, for agents. `hutch.v1.sandbox_pb2.SandboxSpec` has all that can be asked for.

    `memory`, in bytes, and `cpus` are limits. None: the daemon's profile decides. A daemon that cannot enforce a limit
    refuses the sandbox. An empty `egress` denies all network. `workspace` is a folder of the daemon's host, which is
    mounted writable at /workspace; without one the workspace is an empty folder of the sandbox's own. Secrets are given
    by their names and are environment variables inside: "api-key" is API_KEY."""

    name: str = ""
    image: str = ""
    memory: int | None = None
    cpus: float | None = None
    workspace: str | os.PathLike[str] = ""
    secrets: Sequence[str] = ()
    egress: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    def message(self) -> sandbox_pb2.SandboxSpec:
        """The same as the contract has it."""
        spec = sandbox_pb2.SandboxSpec(image=self.image, egress=self.egress, labels=self.labels, env=self.env)
        if self.memory is not None:
            spec.limits.memory_bytes = self.memory
        if self.cpus is not None:
            spec.limits.cpu_millis = round(self.cpus * 1000)
        if self.workspace:
            spec.workspace.source = os.fspath(self.workspace)
        for name in self.secrets:
            spec.secrets.add(name=name, env=name.upper().replace("-", "_"))
        return spec
