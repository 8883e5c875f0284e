# SPDX-License-Identifier: Apache-2.0
"""What gRPC tells, as this library's errors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from hutch.errors import Cancelled, HutchError, Violation, make_error

# What gRPC itself finds on this side has no details; these are its reasons.
_LOCAL_REASONS = {
    "CANCELLED": "CALL_CANCELLED",
    "DEADLINE_EXCEEDED": "DEADLINE_EXCEEDED",
    "UNAVAILABLE": "DAEMON_UNREACHABLE",
}
# gRPC's words for a call that had no connection, and for one that the server refused to look at (REFUSED_STREAM).
_NOT_SENT = ("failed to connect to all addresses", "Received RST_STREAM with error code 7")


def to_error(code: str, text: str, trailers: Iterable[tuple[str, str | bytes]]) -> HutchError:
    """The error that a call ended with."""
    details = _Details()
    for key, value in trailers:
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            details = _Details.parse(value)
    reason = details.reason or _LOCAL_REASONS.get(code, "")
    error = make_error(code, reason, text, details.metadata, details.violations)
    error.sent = not (code == "UNAVAILABLE" and not details.reason and text.startswith(_NOT_SENT))
    return error


@dataclass
class _Details:
    """What comes with an error beside its code and message."""

    reason: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    violations: tuple[Violation, ...] = ()

    @classmethod
    def parse(cls, value: bytes) -> _Details:
        made = cls()
        try:
            for detail in status_pb2.Status.FromString(value).details:
                info, request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
                if detail.Unpack(info):
                    made.reason, made.metadata = info.reason, dict(info.metadata)
                elif detail.Unpack(request):
                    made.violations = tuple(
                        Violation(one.field, one.reason, one.description) for one in request.field_violations
                    )
        except DecodeError:
            pass  # the code and the message will do
        return made


def cancelled() -> HutchError:
    return Cancelled("the call was cancelled", reason="CALL_CANCELLED")
