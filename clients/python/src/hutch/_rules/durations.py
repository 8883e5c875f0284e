# SPDX-License-Identifier: Apache-2.0
"""Durations as text and as messages. spec/behavior.md section 6."""

from __future__ import annotations

import re
from datetime import timedelta

from google.protobuf import duration_pb2

from hutch.errors import refusal

SECOND = 1_000_000_000
_MAX = 315_576_000 * SECOND
_UNITS = {
    "d": 86_400 * SECOND,
    "h": 3_600 * SECOND,
    "m": 60 * SECOND,
    "s": SECOND,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}
_PART = re.compile(r"([0-9]+)(?:\.([0-9]+))?([a-z]+)")

Duration = float | timedelta
"""How durations are given: seconds, or a timedelta."""


def parse_duration(text: str) -> int:
    """The nanoseconds that a text such as "1h30m" or "1.5s" stands for."""
    malformed = refusal("DURATION_MALFORMED", "a duration is written as in '1h30m', '1.5s', '250ms' or '0'")
    if text == "0":
        return 0
    total, at, units = 0, 0, list(_UNITS)
    while at < len(text) or not at:
        part = _PART.match(text, at)
        if not part or part[3] not in units or (part[2] and part.end() != len(text)):
            raise malformed
        units = units[units.index(part[3]) + 1 :]
        at = part.end()
        scale = 10 ** len(part[2] or "")
        value = int(part[1] + (part[2] or "")) * _UNITS[part[3]]
        if value % scale:
            raise malformed
        total += value // scale
    return _in_range(total)


def format_duration(nanoseconds: int) -> str:
    """As protobuf's JSON writes it: "5400s", "1.500s"."""
    seconds, fraction = divmod(nanoseconds, SECOND)
    digits = f"{fraction:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{seconds}.{digits}s" if digits else f"{seconds}s"


def _in_range(nanoseconds: int) -> int:
    if not 0 <= nanoseconds <= _MAX:
        raise refusal("DURATION_OUT_OF_RANGE", "a duration is 0 to 315576000 seconds (ten years)")
    return nanoseconds


def to_message(duration: Duration) -> duration_pb2.Duration:
    """The message for seconds or a timedelta."""
    if isinstance(duration, timedelta):
        nanoseconds = (duration.days * 86_400 + duration.seconds) * SECOND + duration.microseconds * 1_000
    else:
        nanoseconds = round(duration * SECOND) if abs(duration) < 1e12 else -1
    message = duration_pb2.Duration()
    message.FromNanoseconds(_in_range(nanoseconds))
    return message


def to_seconds(duration: Duration) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else duration
