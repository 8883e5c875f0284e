# SPDX-License-Identifier: Apache-2.0
"""Spans of calls, by OpenTelemetry's API where it is installed. spec/behavior.md section 24."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from google.protobuf.message import Message

from hutch._version import VERSION

try:
    from opentelemetry import propagate, trace
except ImportError:
    trace = None  # type: ignore[assignment]

# Where a message may have what an attribute tells, by the names of its fields.
_FIELDS = {
    "sandbox.id": ("sandbox_id", "sandbox.id"),
    "sandbox.exec.id": ("exec_id", "exec.id"),
    "sandbox.request_id": ("request_id",),
    "sandbox.image": ("spec.image", "image"),
    "sandbox.runtime": ("spec.runtime", "sandbox.runtime"),
    "sandbox.file.path": ("path", "source", "file.path"),
    "sandbox.file.size": ("file.size_bytes",),
    "sandbox.file.count": ("removed", "entries"),
    "sandbox.exit_code": ("exec.result.exit_code", "exit.exit_code"),
}
_PARTS = ("header", "create", "attach")  # of a stream's first message, that tell what it is about


class Span:
    """A call as it is traced; does nothing without OpenTelemetry."""

    def __init__(self, span: Any = None) -> None:
        self._span = span
        self.metadata: tuple[tuple[str, str | bytes], ...] = ()
        if span:
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
            self.metadata = tuple(carrier.items())

    def note(self, message: Message) -> None:
        """Takes the attributes that a request or an answer tells."""
        if not self._span or not self._span.is_recording():
            return
        for key, value in attributes(message).items():
            self._span.set_attribute(key, value)


@contextmanager
def span(method: str, request: Message) -> Iterator[Span]:
    """A span around a call."""
    if trace is None:
        yield Span()
        return
    tracer = trace.get_tracer("hutch-client", VERSION)
    with tracer.start_as_current_span(f"hutch.{method}", kind=trace.SpanKind.CLIENT) as current:
        made = Span(current)
        made.note(request)
        yield made


def attributes(message: Message) -> dict[str, str | int]:
    """What a message tells by the attribute keys of the spec. Never arguments or environments."""
    for part in _PARTS:
        if part in message.DESCRIPTOR.fields_by_name and message.HasField(part):
            message = getattr(message, part)
    found = {key: _first(message, fields) for key, fields in _FIELDS.items()}
    program = _first(message, ("spec.argv", "argv"))
    if program:
        found["sandbox.command.executable"] = posixpath.basename(program[0])
    return {key: value for key, value in found.items() if value not in (None, "")}


def _first(message: Message, fields: tuple[str, ...]) -> Any:
    for field in fields:
        value: Any = message
        for name in field.split("."):
            if not isinstance(value, Message) or name not in value.DESCRIPTOR.fields_by_name:
                value = None
                break
            descriptor = value.DESCRIPTOR.fields_by_name[name]
            value = getattr(value, name) if not descriptor.has_presence or value.HasField(name) else None
        if value not in (None, ""):
            return value
    return None
