# SPDX-License-Identifier: Apache-2.0
"""A tracer of OpenTelemetry's API that keeps its spans."""

import random
from contextlib import contextmanager

from opentelemetry import trace

import hutch._telemetry


class Recorded(trace.Span):
    """A span, and what it was told."""

    def __init__(self, tracer: str, name: str) -> None:
        self.tracer = tracer
        self.name = name
        self.attributes: dict = {}
        self.errors: list[BaseException] = []
        self.ended = False
        self.trace_id, self.span_id = random.getrandbits(128), random.getrandbits(64)

    def get_span_context(self) -> trace.SpanContext:
        return trace.SpanContext(self.trace_id, self.span_id, False, trace.TraceFlags(trace.TraceFlags.SAMPLED))

    def set_attribute(self, key, value) -> None:
        self.attributes[key] = value

    def set_attributes(self, attributes) -> None:
        self.attributes.update(attributes)

    def record_exception(self, exception, attributes=None, timestamp=None, escaped=False) -> None:
        self.errors.append(exception)

    def end(self, end_time=None) -> None:
        self.ended = True

    def is_recording(self) -> bool:
        return not self.ended

    def add_event(self, name, attributes=None, timestamp=None) -> None:
        pass

    def update_name(self, name) -> None:
        self.name = name

    def set_status(self, status, description=None) -> None:
        pass


class Tracer(trace.Tracer):
    """Gives such spans."""

    def __init__(self, name: str, spans: list[Recorded]) -> None:
        self.name = name
        self.spans = spans

    def start_span(self, name, *_args, **_options) -> Recorded:
        self.spans.append(Recorded(self.name, name))
        return self.spans[-1]

    @contextmanager
    def start_as_current_span(self, name, *_args, **_options):
        with trace.use_span(self.start_span(name), end_on_exit=True) as span:
            yield span


def record(monkeypatch) -> list[Recorded]:
    """The spans of the client from now on."""
    spans: list[Recorded] = []
    monkeypatch.setattr(hutch._telemetry.trace, "get_tracer", lambda name, *_version: Tracer(name, spans))
    return spans
