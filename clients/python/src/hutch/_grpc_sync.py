# SPDX-License-Identifier: Apache-2.0
"""gRPC as the sync twin uses it. Its twin is _grpc_aio.py: what differs between the two stands in these files only."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Generic, TypeVar

import grpc
from google.protobuf.message import Message

from hutch._connection import Endpoint, Token
from hutch._status import cancelled, to_error
from hutch.errors import HutchError

Response = TypeVar("Response", bound=Message)
Metadata = tuple[tuple[str, str | bytes], ...]
Source = bytes | os.PathLike[str] | BinaryIO | Iterable[bytes]
"""Bytes to send: all of them, a file by its path, an open one, or pieces."""

Lock = threading.Lock
sleep = time.sleep


class Channel:
    """A connection to a daemon, which is made when it is needed."""

    def __init__(self, endpoint: Endpoint) -> None:
        credentials, options = endpoint.credentials(), endpoint.channel_options()
        if credentials:
            self._channel = grpc.secure_channel(endpoint.target, credentials, options=options)
        else:
            self._channel = grpc.insecure_channel(endpoint.target, options=options)
        self.closed = False

    def unary(
        self, method: str, request: Message, response: type[Response], timeout: float, metadata: Metadata
    ) -> Response:
        try:
            call = self._channel.unary_unary(
                f"/hutch.v1.{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=response.FromString,
            )
            answer: Response = call(request, timeout=timeout, metadata=metadata)
            return answer
        except grpc.RpcError as error:
            raise _error(error) from None
        except ValueError:
            if self.closed:  # gRPC's word for a call on a closed channel
                raise cancelled() from None
            raise

    def stream(
        self, method: str, response: type[Response], timeout: float | None, metadata: Metadata
    ) -> Stream[Response]:
        requests = _Requests()
        try:
            begin: Any = self._channel.stream_stream(f"/hutch.v1.{method}", response_deserializer=response.FromString)
            call = begin(requests, timeout=timeout, metadata=metadata)
        except ValueError:
            if self.closed:
                raise cancelled() from None
            raise
        if not call.add_callback(requests.abandon):
            requests.abandon()
        return Stream(call, requests)

    def close(self) -> None:
        self.closed = True
        self._channel.close()


class _Requests(Iterator[bytes]):
    """Messages, encoded, on their way to gRPC's thread, which takes them one by one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next: bytes | None = None
        self._ended = False  # no more will be written
        self._over = False  # none will be taken

    def put(self, message: bytes) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._ended or self._next is None)
            if self._over or self._ended:
                return False
            self._next = message
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._over or self._next is None)
            return not self._over

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def abandon(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def __next__(self) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._ended or self._next is not None)
            message, self._next = self._next, None
            self._changed.notify_all()
        if message is None or self._over:
            raise StopIteration
        return message


class Stream(Generic[Response]):
    """A call with any number of messages each way."""

    def __init__(self, call: Any, requests: _Requests) -> None:
        self._call = call
        self._requests = requests

    def write(self, message: Message) -> bool:
        """Returns when the message is taken; False: the call is over, and reading tells why."""
        # Encoded here, not in gRPC's thread: what one thread allocates and another frees goes back to the kernel each
        # time, and the pages of an upload would be made anew for every message.
        return self._requests.put(message.SerializeToString())

    def end_input(self) -> None:
        self._requests.end()

    def read(self) -> Response | None:
        """The next message; None: the call ended well."""
        try:
            answer: Response = next(self._call)
        except StopIteration:
            return None
        except grpc.RpcError as error:
            raise _error(error) from None
        return answer

    def cancel(self) -> None:
        self._call.cancel()


def _error(error: grpc.RpcError) -> HutchError:
    assert isinstance(error, grpc.Call)
    return to_error(error.code().name, error.details() or "", error.trailing_metadata() or ())


def ask_token(token: Token) -> str:
    told = token if isinstance(token, str) else token()
    if not isinstance(told, str):
        raise TypeError("the token callback of the sync client must return a str")
    return told


def run_program(*argv: str, environ: dict[str, str]) -> tuple[int, str]:
    """Runs a program to its end: its exit status, and what it wrote on stderr."""
    ended = subprocess.run(
        argv, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
    )
    return ended.returncode, ended.stderr.decode(errors="replace")


def read_pieces(source: Source, size: int) -> Iterator[bytes]:
    """What @source has, in pieces of at most @size bytes."""
    if isinstance(source, os.PathLike):
        with open(source, "rb") as file:
            yield from read_pieces(file, size)
    elif isinstance(source, bytes):
        for at in range(0, len(source), size):
            yield source[at : at + size]
    elif hasattr(source, "read"):
        while data := source.read(size):
            yield data
    else:
        for given in source:
            yield from read_pieces(given, size)


def write_file(file: BinaryIO, data: bytes) -> None:
    file.write(data)
