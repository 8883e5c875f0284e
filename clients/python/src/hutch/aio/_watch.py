# SPDX-License-Identifier: Apache-2.0
"""Events without loss or doubles, whatever becomes of the connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType

from hutch._grpc_aio import Stream
from hutch.aio._calls import Calls, Resume
from hutch.errors import HutchError, SandboxUnavailable
from hutch.v1 import event_pb2, sandbox_pb2


class Watch:
    """Events as they happen: `async for event in watch`. It has no end but `close`.

    A lost connection is taken up again after the last event. `snapshot` has the sandboxes as they were at the
    beginning, when that was asked for; `cursor` is where to go on with another watch."""

    def __init__(self, calls: Calls, request: sandbox_pb2.WatchEventsRequest) -> None:
        self._calls = calls
        self._request = sandbox_pb2.WatchEventsRequest()
        self._request.CopyFrom(request)
        self._stream: Stream[sandbox_pb2.WatchEventsResponse] | None = None
        self._resume = Resume()
        self._started = False
        self.snapshot: list[sandbox_pb2.Sandbox] = []
        self.cursor = request.after_cursor

    async def start(self) -> Stream[sandbox_pb2.WatchEventsResponse]:
        """Begins, or goes on from the cursor, and waits until the watch stands."""
        if self._started:
            self._request.include_snapshot = False
            self._request.ClearField("after_sequence")
            self._request.after_cursor = self.cursor
        snapshot: list[sandbox_pb2.Sandbox] = []
        stream, answer = await self._calls.stream(
            "AgentSandboxService/WatchEvents", self._request, sandbox_pb2.WatchEventsResponse
        )
        self._stream = stream
        while answer is not None and not answer.HasField("started"):
            snapshot.append(answer.sandbox)
            answer = await stream.read()
        if answer is None:
            raise _ended()
        if not self._started:
            self.snapshot = snapshot
            self.cursor = answer.started.cursor
        self._started = True
        return stream

    def __aiter__(self) -> AsyncIterator[event_pb2.Event]:
        return self

    async def __anext__(self) -> event_pb2.Event:
        while True:
            stream = self._stream or await self.start()
            try:
                answer = await stream.read()
                if answer is None:
                    raise _ended()
            except HutchError as error:
                stream.cancel()
                await self._lost(error)
                continue
            if answer.HasField("progress"):
                self.cursor = answer.progress.cursor
                self._resume.progressed()
            elif answer.HasField("event"):
                self.cursor = answer.event.cursor
                self._resume.progressed()
                return answer.event

    async def _lost(self, error: HutchError) -> None:
        if error.reason == "WATCHER_LAGGED":
            self.cursor = max(self.cursor, int(error.metadata.get("cursor", "0")))
            error = _ended()
        await self._resume.pause(error)
        self._stream = None

    async def close(self) -> None:
        if self._stream is not None:
            self._stream.cancel()

    async def __aenter__(self) -> Watch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _ended() -> HutchError:
    return SandboxUnavailable("the daemon ended the watch", reason="STREAM_INCOMPLETE")
