# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as exceptions. Each gRPC code has a class of its own; the reason says which failure it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hutch.v1 import error_pb2

# The codes of hutch.v1.Reason, by the hundreds that its numbers are grouped in.
_CODES = (
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "RESOURCE_EXHAUSTED",
    "UNAVAILABLE",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "UNIMPLEMENTED",
    "DEADLINE_EXCEEDED",
    "CANCELLED",
    "INTERNAL",
    "DATA_LOSS",
)


@dataclass(frozen=True)
class Violation:
    """A field of a request that breaks a rule."""

    field: str
    reason: str
    message: str


class HutchError(Exception):
    """An error of the daemon's, or one that this library found before it asked.

    `code` is the name of the gRPC code, `reason` that of a hutch.v1.Reason without its prefix (empty when whatever is
    between here and the daemon told none), `metadata` what belongs to it, such as the state or the limit."""

    code: str = "UNKNOWN"
    _classes: ClassVar[dict[str, type[HutchError]]] = {}

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        reason: str = "",
        metadata: dict[str, str] | None = None,
        violations: tuple[Violation, ...] = (),
    ) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.reason = reason
        self.message = message
        self.metadata = metadata or {}
        self.violations = violations
        self.sent = True  # False: the request certainly did not reach a daemon

    def __init_subclass__(cls) -> None:
        HutchError._classes.setdefault(cls.code, cls)

    def __str__(self) -> str:
        return f"{self.message} ({self.reason or self.code})"

    def __reduce__(self) -> tuple[object, ...]:
        rest = {"code": self.code, "reason": self.reason, "metadata": self.metadata, "violations": self.violations}
        return _restore, (type(self), self.message, rest)


def _restore(cls: type[HutchError], message: str, rest: dict[str, object]) -> HutchError:
    return cls(message, **rest)  # type: ignore[arg-type]


class InvalidArgument(HutchError):
    """The request breaks a rule; `violations` has every field that does."""

    code = "INVALID_ARGUMENT"


class NotFound(HutchError):
    """There is no such sandbox, exec, file or other thing, or it is somebody else's."""

    code = "NOT_FOUND"


class AlreadyExists(HutchError):
    """The id or name is taken, or something stands at that path."""

    code = "ALREADY_EXISTS"


class FailedPrecondition(HutchError):
    """The state does not allow it; for sandboxes and execs `metadata["state"]` has the state."""

    code = "FAILED_PRECONDITION"


class Aborted(HutchError):
    """Somebody else changed it meanwhile."""

    code = "ABORTED"


class OutOfRange(HutchError):
    """A cursor or an offset is beyond what is there."""

    code = "OUT_OF_RANGE"


class ResourceExhausted(HutchError):
    """A limit or a quota is reached; `metadata` has its name and value."""

    code = "RESOURCE_EXHAUSTED"


class SandboxUnavailable(HutchError):
    """No daemon answers, or it cannot start sandboxes now."""

    code = "UNAVAILABLE"


class PermissionDenied(HutchError):
    """The caller, or the sandbox's user, may not do this."""

    code = "PERMISSION_DENIED"


class Unauthenticated(HutchError):
    """The credentials are missing, wrong or out of date."""

    code = "UNAUTHENTICATED"


class Unimplemented(HutchError):
    """This daemon does not serve the method."""

    code = "UNIMPLEMENTED"


class DeadlineExceeded(HutchError):
    """The call's deadline passed."""

    code = "DEADLINE_EXCEEDED"


class Cancelled(HutchError):
    """The call was cancelled, or its client was closed."""

    code = "CANCELLED"


class Internal(HutchError):
    """A fault of the daemon's; its log has the details."""

    code = "INTERNAL"


class StreamIncomplete(HutchError):
    """A stream ended before its end was told."""

    code = "DATA_LOSS"


def code_of_reason(reason: str) -> str:
    """The gRPC code that a reason belongs to; "UNKNOWN" for one that this version does not know."""
    number = error_pb2.Reason.Value(f"REASON_{reason}") if f"REASON_{reason}" in error_pb2.Reason.keys() else 0
    return _CODES[number // 100] if number else "UNKNOWN"


def make_error(
    code: str,
    reason: str,
    message: str,
    metadata: dict[str, str] | None = None,
    violations: tuple[Violation, ...] = (),
) -> HutchError:
    """The exception of the code's class."""
    cls = HutchError._classes.get(code, HutchError)  # pylint: disable=protected-access
    return cls(message, code=code, reason=reason, metadata=metadata, violations=violations)


def refusal(reason: str, message: str, **metadata: object) -> HutchError:
    """The exception for a reason that this library found itself."""
    return make_error(code_of_reason(reason), reason, message, {key: str(value) for key, value in metadata.items()})
