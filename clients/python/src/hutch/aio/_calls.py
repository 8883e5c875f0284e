# SPDX-License-Identifier: Apache-2.0
"""Calls with everything that the contract asks of a client: deadlines, retries, request ids, sizes, tokens, spans."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable

from google.protobuf.message import Message

from hutch._connection import MESSAGE_BYTES_MAX, Endpoint, Options, find_endpoint
from hutch._grpc_aio import Channel, Lock, Metadata, Response, Stream, ask_token, run_program, sleep
from hutch._rules.checks import check_size
from hutch._rules.retry import Outcome, Retry
from hutch._status import cancelled
from hutch._telemetry import Span, span
from hutch.errors import HutchError, SandboxUnavailable, StreamIncomplete

UNARY_TIMEOUT = 60.0
_READING = ("Get", "List", "Watch", "Read", "Download", "Stat", "Ping")  # methods that only read begin so

Feed = Callable[[], AsyncIterator[Message]]
"""Makes the messages that follow a stream's first one."""


class Connection:
    """The one connection of a client, made when it is needed; to this user's daemon, which is started when allowed."""

    def __init__(self, options: Options) -> None:
        self.endpoint: Endpoint = find_endpoint(options)
        self.closed = False
        self._look = self.endpoint.start_daemon  # whether somebody listens
        self._channel: Channel | None = None
        self._lock = Lock()

    async def close(self) -> None:
        async with self._lock:
            self.closed = True
            if self._channel:
                await self._channel.close()

    async def connect(self) -> Channel:
        if self.closed:
            raise cancelled()
        async with self._lock:
            if self._look and not self.endpoint.somebody_listens():
                await self._start_daemon()
            self._look = False
            if self._channel is None:
                self._channel = Channel(self.endpoint)
            return self._channel

    def lost(self) -> None:
        """A call did not reach the daemon, which may have ended since."""
        self._look = self.endpoint.start_daemon

    async def _start_daemon(self) -> None:
        program = shutil.which("hutch")
        if not program:
            raise SandboxUnavailable(
                f"no daemon answers on {self.endpoint.socket_path}, and there is no program 'hutch' to start one",
                reason="DAEMON_UNREACHABLE",
            )
        environ = dict(os.environ) | {"HUTCH_SOCKET": self.endpoint.socket_path}
        status, words = await run_program(program, "daemon", "start", environ=environ)
        if status:
            raise SandboxUnavailable(
                f"the daemon could not be started: {words.strip() or f'exit status {status}'}",
                reason="DAEMON_UNREACHABLE",
            )


class Calls:
    """The calls of one client."""

    def __init__(self, connection: Connection, timeout: float, stream_timeout: float | None = None) -> None:
        self.connection = connection
        self.timeout = timeout
        self.stream_timeout = stream_timeout

    async def unary(
        self, method: str, request: Message, response: type[Response], timeout: float | None = None
    ) -> Response:
        """Sends a message and returns the answer. The deadline covers all tries and the pauses between them."""
        fill_request_id(request)
        check_size(request.ByteSize(), MESSAGE_BYTES_MAX)
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        retry = Retry(deadline * 1000)
        with span(method, request) as trace:
            while True:
                channel = await self.connection.connect()
                metadata = await self._metadata(trace)
                left = max(deadline - time.monotonic(), 0.0)
                try:
                    answer = await channel.unary(method, request, response, left, metadata)
                    trace.note(answer)
                    return answer
                except HutchError as error:
                    await self._pause(error, retry, is_safe(method, request))

    async def stream(
        self, method: str, request: Message, response: type[Response], more: bool = False
    ) -> tuple[Stream[Response], Response | None]:
        """Sends the first message of a stream and waits for the first answer; None: the stream ended well without any.
        Until then it is tried again as other calls are. @more messages may follow, after the first answer."""
        fill_request_id(request)
        deadline = None if self.stream_timeout is None else time.monotonic() + self.stream_timeout
        retry = Retry(None if deadline is None else deadline * 1000)
        # Attaching only reads; what it creates has a request id.
        safe = method == "ExecService/AttachExec" or is_safe(method, request)
        with span(method, request) as trace:
            while True:
                stream = await self._open(method, response, deadline, trace)
                try:
                    await write(stream, request)
                    if not more:
                        await stream.end_input()
                    answer = await stream.read()
                    if answer is not None:
                        trace.note(answer)
                    return stream, answer
                except HutchError as error:
                    stream.cancel()
                    await self._pause(error, retry, safe)
                except BaseException:
                    stream.cancel()
                    raise

    async def send(
        self, method: str, request: Message, response: type[Response], feed: Feed
    ) -> Response:
        """Sends a first message and then all that @feed makes, and returns the one answer. It is tried again only when
        nothing was taken from @feed, which could not be asked for it again."""
        fill_request_id(request)
        deadline = None if self.stream_timeout is None else time.monotonic() + self.stream_timeout
        retry = Retry(None if deadline is None else deadline * 1000)
        with span(method, request) as trace:
            while True:
                fed = False
                stream = await self._open(method, response, deadline, trace)
                try:
                    if await write(stream, request):
                        fed = True
                        async for message in feed():
                            if not await write(stream, message):
                                break
                    await stream.end_input()
                    answer = await stream.read()
                    if answer is None:
                        raise StreamIncomplete("the daemon gave no answer", reason="STREAM_INCOMPLETE")
                    trace.note(answer)
                    return answer
                except HutchError as error:
                    stream.cancel()
                    await self._pause(error, retry, safe=not fed)
                except BaseException:
                    stream.cancel()
                    raise

    async def _open(
        self, method: str, response: type[Response], deadline: float | None, trace: Span
    ) -> Stream[Response]:
        """A stream to which nothing was sent yet."""
        channel = await self.connection.connect()
        metadata = await self._metadata(trace)
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        return channel.stream(method, response, left, metadata)

    async def _metadata(self, trace: Span) -> Metadata:
        token = await ask_token(self.connection.endpoint.token)
        return (*trace.metadata, ("authorization", f"Bearer {token}")) if token else trace.metadata

    async def _pause(self, error: HutchError, retry: Retry, safe: bool) -> None:
        """Waits before the next try; raises @error when there is none."""
        pause = None
        if not self.connection.closed and Outcome(error.code, safe, sent=error.sent).may_retry():
            pause = retry.next_pause()
        if pause is None:
            raise error
        self.connection.lost()
        await sleep(pause / 1000)


class Resume:
    """Going on with a stream that was lost, from where it came to: as often as it brought something in between."""

    def __init__(self) -> None:
        self._retry = Retry()

    def progressed(self) -> None:
        self._retry = Retry()

    async def pause(self, error: HutchError) -> None:
        """Waits before going on; raises @error when that makes no sense."""
        pause = self._retry.next_pause() if error.code == "UNAVAILABLE" else None
        if pause is None:
            raise error
        await sleep(pause / 1000)


async def write(stream: Stream[Response], message: Message) -> bool:
    """Writes a message that is not too large."""
    check_size(message.ByteSize(), MESSAGE_BYTES_MAX)
    return await stream.write(message)


def is_safe(method: str, request: Message) -> bool:
    """Whether a call may be repeated: it only reads, or carries a request id."""
    return method.split("/")[1].startswith(_READING) or _with_request_id(request) is not None


def fill_request_id(request: Message) -> None:
    """Puts a fresh request id into a request that has the field and none in it."""
    part = _with_request_id(request)
    if part is not None and not getattr(part, "request_id"):
        setattr(part, "request_id", f"py-{secrets.token_hex(16)}")


def _with_request_id(request: Message) -> Message | None:
    """The message that has the request id: the request, or the part that a stream begins with."""
    fields = request.DESCRIPTOR.fields_by_name
    if "request_id" in fields:
        return request
    for part in ("header", "create"):
        if part in fields and request.HasField(part):
            return _with_request_id(getattr(request, part))
    return None
