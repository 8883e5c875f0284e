# SPDX-License-Identifier: Apache-2.0
"""Requests from what callers give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from hutch._results import SandboxSpec
from hutch._rules.durations import Duration, to_message
from hutch.errors import HutchError, refusal
from hutch.v1 import error_pb2, exec_pb2, sandbox_pb2, state_pb2

if TYPE_CHECKING:
    from typing_extensions import Unpack

Command = Sequence[str] | exec_pb2.ExecSpec
"""A program and its arguments, passed on as they are; or all that the contract has for a command."""

Spec = SandboxSpec | sandbox_pb2.SandboxSpec

SANDBOX_STATES = {name.removeprefix("SANDBOX_STATE_"): value for name, value in state_pb2.SandboxState.items()}
EXEC_STATES = {name.removeprefix("EXEC_STATE_"): value for name, value in state_pb2.ExecState.items()}


class ExecOptions(TypedDict, total=False):
    """How a command runs. Durations are seconds or timedeltas."""

    working_directory: str
    env: Mapping[str, str]
    unset_env: Sequence[str]
    user: str
    timeout: Duration | None
    """When it passes, counted from its start, the command and all it started are killed: exit code 124."""
    kill_grace: Duration | None
    """Time between TERM and KILL."""
    output_limit: int
    """How many bytes to keep of each stream, head and tail."""


def exec_spec(command: Command, **options: Unpack[ExecOptions]) -> exec_pb2.ExecSpec:
    """The message for a command."""
    if isinstance(command, str):
        raise TypeError("a command is a list: use run_shell for a script, or ['sh', '-c', script]")
    spec = exec_pb2.ExecSpec()
    if isinstance(command, exec_pb2.ExecSpec):
        spec.CopyFrom(command)
    else:
        spec.argv.extend(command)
    if working_directory := options.get("working_directory"):
        spec.working_directory = working_directory
    spec.env.update(options.get("env", {}))
    spec.unset_env.extend(options.get("unset_env", ()))
    if user := options.get("user"):
        spec.user = user
    timeout, kill_grace = options.get("timeout"), options.get("kill_grace")
    if timeout is not None:
        spec.timeout.CopyFrom(to_message(timeout))
    if kill_grace is not None:
        spec.kill_grace.CopyFrom(to_message(kill_grace))
    if limit := options.get("output_limit"):
        spec.output_limit_bytes = limit
    return spec


def sandbox_spec(spec: Spec | None) -> sandbox_pb2.SandboxSpec:
    """A message that may be changed."""
    made = sandbox_pb2.SandboxSpec()
    if isinstance(spec, SandboxSpec):
        made.CopyFrom(spec.message())
    elif spec is not None:
        made.CopyFrom(spec)
    return made


# The states that a sandbox may come to from each by itself: when what was asked of it is done, when it fails, when its
# time has come.
_GOING = {"DELETING", "DELETED"}
_ENDING = {"STOPPING", "STOPPED", "FAILED"} | _GOING
_AHEAD = {
    "PENDING": {"READY", "PAUSED"} | _ENDING,
    "READY": {"PAUSED"} | _ENDING,
    "PAUSED": {"READY"} | _ENDING,
    "STOPPING": {"STOPPED", "FAILED"} | _GOING,
    "STOPPED": _GOING,
    "FAILED": _GOING,
    "DELETING": {"DELETED"},
    "DELETED": set(),
}


def sandbox_state_name(state: int) -> str:
    """"READY" for the number that messages have."""
    return state_pb2.SandboxState.Name(state).removeprefix("SANDBOX_STATE_")  # type: ignore[arg-type]


def why_failed(sandbox: sandbox_pb2.Sandbox) -> HutchError | None:
    """The reason of a FAILED sandbox as an error."""
    if sandbox.state != state_pb2.SANDBOX_STATE_FAILED or not sandbox.state_reason:
        return None
    reason = error_pb2.Reason.Name(sandbox.state_reason).removeprefix("REASON_")
    return refusal(reason, sandbox.state_message or "the sandbox could not be started", sandbox_id=sandbox.id)


def may_come_to(state: str, wanted: set[str]) -> bool:
    """Whether a sandbox in @state may come to one of @wanted without being asked."""
    return bool(_AHEAD.get(state, wanted) & wanted)
