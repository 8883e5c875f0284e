# SPDX-License-Identifier: Apache-2.0
"""gRPC as hutch.aio uses it. Its twin is _grpc_sync.py: what differs between the two stands in these files only."""

from __future__ import annotations

import asyncio
import inspect
import os
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any, BinaryIO, Generic, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from hutch._connection import Endpoint, Token
from hutch._status import cancelled, to_error
from hutch.errors import HutchError

Response = TypeVar("Response", bound=Message)
Metadata = tuple[tuple[str, str | bytes], ...]
Source = bytes | os.PathLike[str] | BinaryIO | Iterable[bytes] | AsyncIterable[bytes]
"""Bytes to send: all of them, a file by its path, an open one, or pieces."""

Lock = asyncio.Lock
sleep = asyncio.sleep


class Channel:
    """A connection to a daemon, which is made when it is needed."""

    def __init__(self, endpoint: Endpoint) -> None:
        credentials, options = endpoint.credentials(), endpoint.channel_options()
        if credentials:
            self._channel = grpc.aio.secure_channel(endpoint.target, credentials, options=options)
        else:
            self._channel = grpc.aio.insecure_channel(endpoint.target, options=options)
        self._calls: weakref.WeakSet[Any] = weakref.WeakSet()
        self.closed = False

    async def unary(
        self, method: str, request: Message, response: type[Response], timeout: float, metadata: Metadata
    ) -> Response:
        begin: Any = self._channel.unary_unary(
            f"/hutch.v1.{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        call = begin(request, timeout=timeout, metadata=metadata)
        self._calls.add(call)
        try:
            answer: Response = await call
            return answer
        except grpc.aio.AioRpcError as error:
            raise _error(error) from None
        except asyncio.CancelledError:
            if self.closed:
                raise cancelled() from None
            raise

    def stream(
        self, method: str, response: type[Response], timeout: float | None, metadata: Metadata
    ) -> Stream[Response]:
        begin: Any = self._channel.stream_stream(
            f"/hutch.v1.{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        call = begin(timeout=timeout, metadata=metadata)
        self._calls.add(call)
        return Stream(self, call)

    async def close(self) -> None:
        self.closed = True
        for call in list(self._calls):  # the channel itself does not find them all
            call.cancel()
        await self._channel.close()


class Stream(Generic[Response]):
    """A call with any number of messages each way."""

    def __init__(self, channel: Channel, call: Any) -> None:
        self._channel = channel
        self._call = call
        self._cancelled = False

    async def write(self, message: Message) -> bool:
        """Returns when the message is taken; False: the call is over, and reading tells why."""
        # Not by the call's own write(): when the call ends meanwhile, that puts an INTERNAL of its own over the status
        # that the daemon sent, a known fault of gRPC's.
        call = self._call
        try:
            await call._metadata_sent.wait()  # pylint: disable=protected-access
            if call.done():
                return False
            await call._cython_call.send_serialized_message(message.SerializeToString())
        except grpc.aio.InternalError:
            return False
        except asyncio.CancelledError:
            if self._was_ended_here():
                return False
            call.cancel()
            raise
        return True

    async def end_input(self) -> None:
        try:
            await self._call.done_writing()
        except grpc.aio.InternalError:
            pass  # it is over
        except asyncio.CancelledError:
            if not self._was_ended_here():
                raise

    async def read(self) -> Response | None:
        """The next message; None: the call ended well."""
        try:
            answer: Response | None = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise _error(error) from None
        except asyncio.CancelledError:
            if self._was_ended_here():
                raise cancelled() from None
            raise
        return answer if isinstance(answer, Message) else None  # else it is gRPC's mark of the end

    def cancel(self) -> None:
        self._cancelled = True
        self._call.cancel()

    def _was_ended_here(self) -> bool:
        return self._cancelled or self._channel.closed


def _error(error: grpc.aio.AioRpcError) -> HutchError:
    return to_error(error.code().name, error.details() or "", error.trailing_metadata() or ())


async def ask_token(token: Token) -> str:
    if isinstance(token, str):
        return token
    told = token()
    return await told if inspect.isawaitable(told) else told


async def run_program(*argv: str, environ: dict[str, str]) -> tuple[int, str]:
    """Runs a program to its end: its exit status, and what it wrote on stderr."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    return process.returncode or 0, errors.decode(errors="replace")


async def read_pieces(source: Source, size: int) -> AsyncIterator[bytes]:
    """What @source has, in pieces of at most @size bytes."""
    if isinstance(source, os.PathLike):
        with open(source, "rb") as file:
            async for piece in read_pieces(file, size):
                yield piece
    elif isinstance(source, bytes):
        for at in range(0, len(source), size):
            yield source[at : at + size]
    elif isinstance(source, AsyncIterable):
        async for given in source:
            async for piece in read_pieces(given, size):
                yield piece
    elif hasattr(source, "read"):
        while data := await asyncio.to_thread(source.read, size):
            yield data
    else:
        for given in source:
            async for piece in read_pieces(given, size):
                yield piece


async def write_file(file: BinaryIO, data: bytes) -> None:
    await asyncio.to_thread(file.write, data)
