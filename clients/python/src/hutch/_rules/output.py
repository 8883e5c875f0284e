# SPDX-License-Identifier: Apache-2.0
"""Bounded output: the head and the tail that are kept of a stream. spec/behavior.md section 12."""

from __future__ import annotations

from dataclasses import dataclass

from hutch.errors import refusal


@dataclass(frozen=True)
class Window:
    """What is kept of @total bytes: those before @head, and those from @tail_start on."""

    head: int
    tail_start: int
    total: int

    @property
    def dropped(self) -> int:
        return self.tail_start - self.head

    def seek(self, offset: int, finished: bool) -> tuple[int, int]:
        """Where reading at @offset goes on, and how many bytes there are in one piece from there."""
        if offset > self.total:
            if finished:
                raise refusal("OFFSET_OUT_OF_RANGE", f"offset {offset} is beyond the end of the output, {self.total}")
            return offset, 0
        if offset < self.head:
            return offset, self.head - offset
        offset = max(offset, self.tail_start)
        return offset, self.total - offset


def window(limit: int, total: int) -> Window:
    if total <= limit:
        return Window(total, total, total)
    return Window(limit - limit // 2, total - limit // 2, total)


def share(limit: int, stdout: int, stderr: int) -> tuple[int, int]:
    """How much of a limit over both streams each of them has."""
    return max(limit - limit // 2, limit - stderr), max(limit // 2, limit - stdout)


class Kept:
    """The bytes of a stream as they come: enough of its beginning and its end for every limit up to the given one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        self._gap = False  # something in the middle never came
        self.total = 0

    def add(self, data: bytes, offset: int | None = None) -> None:
        """More bytes; @offset tells where they stand, when something before them may be missing."""
        if offset is not None and offset != self.total:
            self._gap = True
            self._tail.clear()
            self.total = offset
        if not self._gap:
            self._head += data[: self._limit - len(self._head)]
        self._tail += data
        del self._tail[: max(0, len(self._tail) - self._limit)]
        self.total += len(data)

    def cut(self, limit: int | None = None) -> tuple[bytes, bytes]:
        """The head and the tail within @limit; the tail is empty when nothing is missing."""
        kept = window(self._limit if limit is None else limit, self.total)
        if not kept.dropped and not self._gap:
            return bytes(self._head), b""
        wanted = self.total - kept.tail_start if kept.dropped else len(self._tail)
        return bytes(self._head[: kept.head]), bytes(self._tail[len(self._tail) - wanted :])
