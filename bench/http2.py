# SPDX-License-Identifier: Apache-2.0
"""As much of an HTTP/2 client as it takes to hold connections and calls open, and to check a server's answer."""

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, ACK, END_HEADERS = 1, 1, 4
LIMIT = 10  # seconds


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def request_headers(path: str) -> bytes:
    """A header block of literals that no dictionary remembers."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    strings = [text.encode() for field in fields.items() for text in field]
    pairs = zip(strings[::2], strings[1::2])
    return b"".join(b"\0" + bytes([len(k)]) + k + bytes([len(v)]) + v for k, v in pairs)


class Connection:
    def __init__(self, port: int):
        self.socket = socket.create_connection(("127.0.0.1", port), LIMIT)
        self.stream = -1
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0))
        while self.read_frame()[:2] != (SETTINGS, 0):
            pass
        self.socket.sendall(frame(SETTINGS, ACK, 0))

    def read(self, size: int) -> bytes:
        data = self.socket.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            raise ConnectionError("the server has closed the connection")
        return data

    def read_frame(self) -> tuple[int, int, int, bytes]:
        head = self.read(9)
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        return kind, flags, stream, self.read(int.from_bytes(head[:3], "big"))

    def open(self, path: str) -> None:
        """Starts a call, and leaves it open."""
        self.stream += 2
        self.socket.sendall(frame(HEADERS, END_HEADERS, self.stream, request_headers(path)))

    def call(self, path: str, body: bytes) -> bytes:
        """The body of the answer to a unary call."""
        self.open(path)
        self.socket.sendall(frame(DATA, END_STREAM, self.stream, body))
        answer = b""
        while True:
            kind, flags, stream, payload = self.read_frame()
            if stream == self.stream and kind == DATA:
                answer += payload
            if stream == self.stream and kind in (DATA, HEADERS) and flags & END_STREAM:
                return answer

    def close(self) -> None:
        self.socket.close()
