# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 by hand: a client that sends whatever it is told to, right or wrong, and reads what comes back."""

import select
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LIMIT = 60  # seconds to wait for the server
MAX_FRAME = 16384


class Kind(IntEnum):
    """Of frames."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9
    UNKNOWN = 0xEE


class Flag(IntFlag):
    """Of frames. What a bit means depends on the kind."""

    NONE = 0
    END_STREAM = 1
    ACK = 1
    END_HEADERS = 4
    PADDED = 8


class Error(IntEnum):
    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9


class Setting(IntEnum):
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


def frame(kind: int, flags: int, stream: int, body: bytes = b"", length: int | None = None) -> bytes:
    """A frame; @length is what its head says when that is not the truth."""
    length = len(body) if length is None else length
    return struct.pack(">I", length)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def settings(values: dict[int, int] | None = None) -> bytes:
    return frame(Kind.SETTINGS, 0, 0, b"".join(struct.pack(">HI", *item) for item in (values or {}).items()))


def window_update(stream: int, increment: int) -> bytes:
    return frame(Kind.WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))


def rst_stream(stream: int, code: int = Error.CANCEL) -> bytes:
    return frame(Kind.RST_STREAM, 0, stream, struct.pack(">I", code))


def grpc_message(data: bytes = b"", flag: int = 0, length: int | None = None) -> bytes:
    """A message behind its prefix; @length is what the prefix says when that is not the truth."""
    return struct.pack(">BI", flag, len(data) if length is None else length) + data


def request_fields(path: str, changes: dict[str, str | None] | None = None) -> list[tuple[str, str]]:
    """The fields of a gRPC request, with @changes: other values for some, None for no such field, more behind them."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    } | (changes or {})
    return [(name, value) for name, value in fields.items() if value is not None]


@dataclass
class Frame:
    kind: int
    flags: int
    stream: int
    body: bytes


@dataclass
class Response:
    """What came on a stream so far."""

    blocks: list[dict[str, str]] = field(default_factory=list)  # header blocks
    data: bytes = b""
    reset: int | None = None
    ended: bool = False

    @property
    def http_status(self) -> str:
        return self.blocks[0][":status"]

    @property
    def grpc_status(self) -> int:
        """The status, which stands in the last block, and nowhere else."""
        assert self.ended and all("grpc-status" not in block for block in self.blocks[:-1]), self
        return int(self.blocks[-1]["grpc-status"])

    @property
    def messages(self) -> list[tuple[int, bytes]]:
        """Flags and messages; all are whole."""
        found, rest = [], self.data
        while rest:
            flag, length = struct.unpack(">BI", rest[:5])
            assert len(rest) >= 5 + length
            found.append((flag, rest[5 : 5 + length]))
            rest = rest[5 + length :]
        return found


class Connection:
    """A connection. Without @polite it sends nothing of its own accord: no preface, no answers to what comes."""

    def __init__(self, sock: socket.socket, values: dict[int, int] | None = None, polite: bool = True) -> None:
        self.sock = sock
        self.sock.settimeout(LIMIT)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.polite = polite
        self.opens_windows = True
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder()
        self.unread = b""
        self.next_stream = 1
        self.responses: defaultdict[int, Response] = defaultdict(Response)  # by stream
        self.peer_settings: dict[int, int] = {}
        self.credit = {0: 65535}  # bytes that may be sent, by stream
        self.goaway: Frame | None = None
        self.pongs = 0
        if polite:
            self.send(PREFACE + settings(values))
            self.read_until(lambda: bool(self.peer_settings))

    def close(self) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def block(self, fields: Iterable[tuple[str, str]]) -> bytes:
        return self.encoder.encode(list(fields), huffman=False)

    def headers(self, stream: int, fields: Iterable[tuple[str, str]], flags: int = Flag.END_HEADERS) -> bytes:
        return frame(Kind.HEADERS, flags, stream, self.block(fields))

    def open(self, method: str, changes: dict[str, str | None] | None = None, flags: int = Flag.NONE) -> int:
        """Begins a call; returns its stream."""
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        self.credit[stream] = self.peer_settings.get(Setting.INITIAL_WINDOW_SIZE, 65535)
        fields = request_fields(f"/grpc.testing.TestService/{method}", changes)
        self.send(self.headers(stream, fields, Flag.END_HEADERS | flags))
        return stream

    def send_data(self, stream: int, data: bytes, end: bool = True) -> None:
        """Sends @data as the windows allow."""
        while True:
            size = min(len(data), MAX_FRAME, self.credit[0], self.credit[stream])
            if size == 0 and data:
                self.read_until(lambda: min(self.credit[0], self.credit[stream]) > 0)
                continue
            self.credit[0] -= size
            self.credit[stream] -= size
            last = size == len(data)
            self.send(frame(Kind.DATA, Flag.END_STREAM if end and last else 0, stream, data[:size]))
            data = data[size:]
            if last:
                return

    def call_at_once(self, method: str, body: bytes, changes: dict[str, str | None]) -> Response:
        """A whole call with the bytes of @body, which are few, sent in one piece."""
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        self.credit[0] -= len(body)
        fields = request_fields(f"/grpc.testing.TestService/{method}", changes)
        self.send(self.headers(stream, fields) + frame(Kind.DATA, Flag.END_STREAM, stream, body))
        return self.response(stream)

    def call(self, method: str, body: bytes = b"", changes: dict[str, str | None] | None = None) -> Response:
        """A whole call with the bytes of @body."""
        stream = self.open(method, changes)
        self.send_data(stream, body)
        return self.response(stream)

    def response(self, stream: int) -> Response:
        """The response on @stream, once it is complete."""
        response = self.responses[stream]
        self.read_until(lambda: response.ended or response.reset is not None)
        return response

    def received(self) -> int:
        """How many bytes of data have come, on all streams."""
        return sum(len(response.data) for response in self.responses.values())

    def read_until(self, done, limit: float = LIMIT) -> None:
        """Reads frames until @done."""
        deadline = time.monotonic() + limit
        while not done():
            if not self.read_frame(deadline):
                raise ConnectionError(f"the server closed the connection: {self.goaway}")

    def read_for(self, seconds: float) -> None:
        """Reads whatever comes in that time."""
        deadline = time.monotonic() + seconds
        try:
            while self.read_frame(deadline):
                pass
        except TimeoutError:
            pass

    def read_bytes(self, deadline: float) -> bool:
        """Reads some bytes; False at the end of the connection."""
        readable, _, _ = select.select([self.sock], [], [], max(0, deadline - time.monotonic()))
        if not readable:
            raise TimeoutError(f"nothing came in time; so far: {self.responses}")
        try:
            data = self.sock.recv(1 << 20)
        except ConnectionError:
            return False
        self.unread += data
        return bool(data)

    def read_frame(self, deadline: float) -> bool:
        """Reads one frame and does what it asks for; False at the end of the connection."""
        while len(self.unread) < 9 or len(self.unread) < 9 + int.from_bytes(self.unread[:3], "big"):
            if not self.read_bytes(deadline):
                return False
        length = int.from_bytes(self.unread[:3], "big")
        kind, flags, stream = self.unread[3], self.unread[4], int.from_bytes(self.unread[5:9], "big")
        body, self.unread = self.unread[9 : 9 + length], self.unread[9 + length :]
        self.take(Frame(kind, flags, stream, body))
        return True

    def take(self, got: Frame) -> None:
        response = self.responses[got.stream]
        if got.kind == Kind.HEADERS:
            assert got.flags & Flag.END_HEADERS
            response.blocks.append(dict(self.decoder.decode(got.body)))
        elif got.kind == Kind.DATA:
            response.data += got.body
            if self.opens_windows and got.body:
                self.answer(window_update(0, len(got.body)) + window_update(got.stream, len(got.body)))
        elif got.kind == Kind.RST_STREAM:
            response.reset = int.from_bytes(got.body, "big")
        elif got.kind == Kind.SETTINGS and not got.flags & Flag.ACK:
            self.peer_settings |= {
                int.from_bytes(got.body[i : i + 2], "big"): int.from_bytes(got.body[i + 2 : i + 6], "big")
                for i in range(0, len(got.body), 6)
            }
            self.answer(frame(Kind.SETTINGS, Flag.ACK, 0))
        elif got.kind == Kind.PING:
            if got.flags & Flag.ACK:
                self.pongs += 1
            else:
                self.answer(frame(Kind.PING, Flag.ACK, 0, got.body))
        elif got.kind == Kind.WINDOW_UPDATE:
            self.credit[got.stream] = self.credit.get(got.stream, 0) + int.from_bytes(got.body, "big")
        elif got.kind == Kind.GOAWAY:
            self.goaway = got
        if got.kind in (Kind.HEADERS, Kind.DATA) and got.flags & Flag.END_STREAM:
            response.ended = True

    def answer(self, data: bytes) -> None:
        if self.polite:
            try:
                self.send(data)
            except ConnectionError:
                pass  # what the server sent before it left is still to be read

    def flood(self, chunks: Iterable[bytes], limit: float = LIMIT) -> None:
        """Sends @chunks as fast as the server takes them, until they are used up or it has had enough."""
        deadline = time.monotonic() + limit
        self.sock.setblocking(False)
        for chunk in chunks:
            while chunk:
                readable, writable, _ = select.select([self.sock], [self.sock], [], max(0, deadline - time.monotonic()))
                if not readable and not writable:
                    raise TimeoutError("the server neither reads nor closes")
                try:
                    if readable and not self.read_bytes(deadline):
                        return
                    if writable:
                        chunk = chunk[self.sock.send(chunk) :]
                except ConnectionError:
                    return
        self.sock.settimeout(LIMIT)

    def end(self) -> int | None:
        """Waits until the server closes. The error code of its GOAWAY; None: there was none."""
        deadline = time.monotonic() + LIMIT
        while self.read_frame(deadline):
            pass
        return int.from_bytes(self.goaway.body[4:8], "big") if self.goaway else None
