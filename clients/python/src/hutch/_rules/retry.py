# SPDX-License-Identifier: Apache-2.0
"""When a call is tried again, and after which pause. spec/behavior.md section 9."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

ATTEMPTS = 6
INITIAL_MS = 500
MAX_MS = 8000


@dataclass(frozen=True)
class Outcome:
    """How a try ended, as far as retrying goes."""

    code: str
    safe: bool  # the call may be repeated
    sent: bool = True  # False: the request certainly was not
    answered: bool = False  # a stream that had its first answer
    connection_lost: bool = False

    def may_retry(self) -> bool:
        if self.answered or (self.code != "UNAVAILABLE" and not self.connection_lost):
            return False
        return self.safe or not self.sent


def _random32() -> int:
    return random.getrandbits(32)


class Retry:
    """The tries of one call. Times are in milliseconds."""

    def __init__(
        self,
        deadline: float | None = None,
        *,
        attempts: int = ATTEMPTS,
        initial_ms: int = INITIAL_MS,
        max_ms: int = MAX_MS,
        clock: Callable[[], float] = lambda: time.monotonic() * 1000,
        random32: Callable[[], int] = _random32,
    ) -> None:
        self.deadline = deadline
        self.tries = 1
        self._attempts = attempts
        self._initial_ms = initial_ms
        self._max_ms = max_ms
        self._clock = clock
        self._random32 = random32

    def next_pause(self) -> int | None:
        """How long to wait before the next try; None: there is none."""
        if self.tries >= self._attempts:
            return None
        base = 0 if self.tries == 1 else min(self._initial_ms << (self.tries - 2), self._max_ms)
        pause = base - base // 4 + (base // 2 * self._random32() >> 32)
        if self.deadline is not None and self._clock() + pause >= self.deadline:
            return None
        self.tries += 1
        return pause
