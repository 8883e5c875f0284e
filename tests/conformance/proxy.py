# SPDX-License-Identifier: Apache-2.0
"""A proxy between a client and the daemon that does harm at chosen points.

It reads the frames of HTTP/2, so it knows which method each stream is for and how far it has come. A fault waits for
such a moment, once, or as often as it says:

    {"method": "ExecService/RunCommand", "at": "answer", "do": "cut"}

    at   connect   somebody connects (there is no method yet)
         request   a call begins; the daemon has not seen it
         sent      its whole request, or the first message of a stream of them, went to the daemon
         answer    the first of its answer comes; the client has not seen it
         message   `bytes` of its answer (1) went to the client; what is beyond them has not
         upload    `bytes` of its request went to the daemon; what is beyond them has not
    do   cut       close both connections
         reset     end the stream, for the client with the `code` of HTTP/2 (CANCEL), for the daemon with CANCEL
         goaway    tell the client that this stream and later ones were not looked at, and close
         delay     wait `ms`
         refuse    close a connection at once
         double    send the same request once more, on a connection of its own; its answer is thrown away
         finish    end the stream as if all was well, behind the whole frame
         hold      wait until the case releases it

The number of `times` is 1; 0 is as often as it comes, or never. Header blocks are written anew, so what is thrown away
confuses nobody's tables."""

import fcntl
import socket
import struct
import termios
import threading
import time
from pathlib import Path

import hpack
from google.protobuf.message_factory import GetMessageClass
from host import PATIENCE
from values import SERVICES

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY, CONTINUATION = 0, 1, 3, 4, 7, 9
END_STREAM, END_HEADERS, PADDED, PRIORITY = 1, 4, 8, 0x20
NO_ERROR, REFUSED_STREAM, CANCEL = 0, 7, 8
CODES = {"REFUSED_STREAM": REFUSED_STREAM, "CANCEL": CANCEL, "INTERNAL_ERROR": 2, "ENHANCE_YOUR_CALM": 11}
MAX_TABLE = 1 << 20  # of a header table, which its reader may have announced
LIMIT = 60 * PATIENCE  # seconds
KEPT = 1 << 20  # bytes of a stream, at least


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def read_timeout(text: str) -> int:
    """Milliseconds of a grpc-timeout."""
    units = {"H": 3_600_000, "M": 60_000, "S": 1000, "m": 1, "u": 1e-3, "n": 1e-6}
    return int(int(text[:-1]) * units[text[-1]])


def wait_until_read(sock: socket.socket) -> None:
    """Until who is at the other end of a Unix socket has read all that was sent."""
    end = time.monotonic() + LIMIT
    while struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0" * 4))[0] and time.monotonic() < end:
        time.sleep(0.005)


def is_streaming(method: str) -> bool:
    """Whether its clients send several messages."""
    service, name = method.split("/")
    return service in SERVICES and SERVICES[service].methods_by_name[name].client_streaming


def count_messages(data: bytes) -> int:
    """How many whole messages there are in what came of a stream."""
    count, end = 0, 5
    while end <= len(data) and (end := end + int.from_bytes(data[end - 4 : end], "big")) <= len(data):
        count, end = count + 1, end + 5
    return count


def read_request_id(method: str, sent: bytes) -> str:
    """The request id in the first message of a request."""
    service, name = method.split("/")
    length = int.from_bytes(sent[1:5], "big")
    message = GetMessageClass(SERVICES[service].methods_by_name[name].input_type).FromString(sent[5 : 5 + length])
    for part in ("header", "create"):  # where streams have it
        message = getattr(message, part, message)
    return message.request_id


class Cut(Exception):
    """The connection is to be closed."""


class Stream:
    """A call, as far as it has come."""

    def __init__(self, method: str):
        self.method = method
        self.sent = bytearray()  # the first of its request
        self.n_answered = 0  # bytes of its answer
        self.answer = bytearray()  # the first of it
        self.has_answer = False
        self.is_dead = False  # nothing of it is passed on any more
        self.has_reached = False  # the daemon
        self.headers: list[tuple[str, str]] = []


class Side:
    """One of the two directions of a connection."""

    def __init__(self, source: socket.socket, target: socket.socket):
        self.source = source.makefile("rb")
        self.target = target
        self.decoder = hpack.Decoder()
        self.decoder.max_allowed_table_size = MAX_TABLE
        self.encoder = hpack.Encoder()
        self.encoder.header_table_size = 0

    def read(self) -> tuple[int, int, int, bytes]:
        head = self.source.read(9)
        if len(head) < 9:
            raise Cut
        length = int.from_bytes(head[:3], "big")
        body = self.source.read(length)
        if len(body) < length:
            raise Cut
        return head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF, body

    def read_block(self, flags: int, body: bytes) -> list[tuple[str, str]]:
        """The fields of a header block that begins with @body."""
        pad = body[0] if flags & PADDED else 0
        body = body[bool(flags & PADDED) : len(body) - pad]
        body = body[5 if flags & PRIORITY else 0 :]
        while not flags & END_HEADERS:
            _, flags, _, more = self.read()
            body += more
        return self.decoder.decode(body)

    def block(self, fields: list[tuple[str, str]], flags: int, stream: int) -> bytes:
        return frame(HEADERS, flags & END_STREAM | END_HEADERS, stream, self.encoder.encode(fields))


class Connection:
    """A client's connection and its counterpart to the daemon."""

    def __init__(self, proxy: "Proxy", client: socket.socket):
        self.proxy = proxy
        self.client = client
        self.daemon = socket.socket(socket.AF_UNIX)
        self.daemon.connect(str(proxy.target))
        self.up = Side(client, self.daemon)
        self.down = Side(self.daemon, client)
        self.streams: dict[int, Stream] = {}
        self.lock = threading.Lock()  # of both sockets' writing
        self.is_greeted = threading.Event()  # the client, by the daemon: nothing else may come first
        self.has_greeted = False  # the client
        for run in (self.pump_up, self.pump_down):
            threading.Thread(target=self.pump, args=(run,), daemon=True).start()

    def pump(self, run) -> None:
        try:
            while True:
                run()
        except (Cut, OSError, ValueError):
            self.close()

    def close(self) -> None:
        for sock in (self.client, self.daemon):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def pass_on(self, side: Side, data: bytes) -> None:
        with self.lock:
            side.target.sendall(data)

    # ---- Faults ----

    def harm(self, number: int, stream: Stream, fault: dict) -> None:
        """Does what @fault says to a stream."""
        if fault["do"] == "cut":
            raise Cut
        self.is_greeted.wait(LIMIT)
        if fault["do"] == "delay":
            time.sleep(fault["ms"] / 1000)
        elif fault["do"] == "hold":
            self.proxy.hold()
        elif fault["do"] == "double":
            self.proxy.double(stream)
        elif fault["do"] == "goaway":
            last = struct.pack(">II", max(number - 2, 0), NO_ERROR)
            self.pass_on(self.down, frame(GOAWAY, 0, 0, last))
            wait_until_read(self.client)  # what comes with the end of the connection need not be
            raise Cut
        elif fault["do"] in ("reset", "finish"):
            stream.is_dead = True
            with self.lock:
                self.client.sendall(self.last_frame(number, fault))
            if fault["at"] != "request":
                self.pass_on(self.up, frame(RST_STREAM, 0, number, struct.pack(">I", CANCEL)))

    def last_frame(self, number: int, fault: dict) -> bytes:
        """What ends a stream for the client."""
        if fault["do"] == "finish":
            return self.down.block([("grpc-status", "0")], END_STREAM, number)
        return frame(RST_STREAM, 0, number, struct.pack(">I", CODES[fault.get("code", "CANCEL")]))

    def look(self, at: str, number: int, stream: Stream) -> None:
        fault = self.proxy.take_fault(at, stream.method)
        if fault:
            self.harm(number, stream, fault)

    def pass_part(self, side: Side, at: str, number: int, seen: int, body: bytes) -> bytes:
        """Where a fault waits for this DATA, passes on what comes before it. @seen bytes came earlier. Returns what is
        left to be passed on."""
        stream = self.streams[number]
        fault = self.proxy.take_fault(at, stream.method, seen + len(body))
        if not fault:
            return body
        part = body if fault["do"] == "finish" else body[: max(fault.get("bytes", 1) - seen, 0)]
        if part:
            self.pass_on(side, frame(DATA, 0, number, part))
            wait_until_read(side.target)  # before the end
        self.harm(number, stream, fault)
        return body[len(part) :]

    # ---- From the client ----

    def pump_up(self) -> None:
        if not self.has_greeted:
            if self.up.source.read(len(PREFACE)) != PREFACE:
                raise Cut
            self.has_greeted = True
            self.pass_on(self.up, PREFACE)
        kind, flags, number, body = self.up.read()
        if kind == HEADERS:
            self.begin_stream(number, flags, self.up.read_block(flags, body))
        elif kind == DATA and number in self.streams:
            self.pass_request(number, flags, body)
        elif number not in self.streams or not self.streams[number].is_dead:
            self.pass_on(self.up, frame(kind, flags, number, body))

    def begin_stream(self, number: int, flags: int, fields: list[tuple[str, str]]) -> None:
        path = dict(fields)[":path"]
        stream = self.streams[number] = Stream(path.removeprefix("/hutch.v1."))
        stream.headers = fields
        self.proxy.begun.append(stream)
        self.look("request", number, stream)
        if not stream.is_dead:
            stream.has_reached = True
            with self.lock:
                self.daemon.sendall(self.up.block(fields, flags, number))

    def pass_request(self, number: int, flags: int, body: bytes) -> None:
        stream = self.streams[number]
        if stream.is_dead:
            return
        rest = self.pass_part(self.up, "upload", number, len(stream.sent), body)
        if len(stream.sent) < KEPT:
            stream.sent += body
        is_sent = bool(stream.sent) if is_streaming(stream.method) else bool(flags & END_STREAM)
        fault = self.proxy.take_fault("sent", stream.method) if is_sent else None
        stream.is_dead = fault is not None and fault["do"] in ("cut", "reset")  # no answer is to come before that
        self.pass_on(self.up, frame(DATA, flags, number, rest))
        if fault:
            self.harm(number, stream, fault)

    # ---- From the daemon ----

    def pump_down(self) -> None:
        kind, flags, number, body = self.down.read()
        stream = self.streams.get(number)
        if kind == HEADERS:
            fields = self.down.read_block(flags, body)
            if not stream.has_answer:
                stream.has_answer = True
                self.look("answer", number, stream)
            if not stream.is_dead:
                with self.lock:
                    self.client.sendall(self.down.block(fields, flags, number))
            return
        if kind == DATA and not stream.is_dead:
            n_answered, stream.n_answered = stream.n_answered, stream.n_answered + len(body)
            if n_answered < KEPT:
                stream.answer += body
            body = self.pass_part(self.down, "message", number, n_answered, body)
        if stream is None or not stream.is_dead:
            self.pass_on(self.down, frame(kind, flags, number, body))
        self.is_greeted.set()


class Proxy:
    """Listens at `address` in @folder until it is closed."""

    def __init__(self, folder: Path, target: Path, tcp: bool = False):
        self.target = target
        self.faults: list[dict] = []
        self.begun: list[Stream] = []  # all calls
        self.n_connections = 0
        self.n_held = 0
        self.released = threading.Event()
        self.lock = threading.Lock()
        self.open: list[Connection] = []
        if tcp:
            self.listener = socket.create_server(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        else:
            path = folder / "proxy.sock"
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(str(path))
            self.listener.listen()
            self.address = f"unix:{path}"
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.n_connections += 1
            if self.take_fault("connect", ""):
                sock.close()
                continue
            try:
                self.open.append(Connection(self, sock))
            except OSError:
                sock.close()

    def arm(self, fault: dict) -> None:
        with self.lock:
            self.faults.append(dict(fault))

    def take_fault(self, at: str, method: str, n_bytes: int = 0) -> dict | None:
        """The fault that waits for this moment."""
        with self.lock:
            for fault in self.faults:
                if fault["at"] != at or fault.get("method", method) != method or n_bytes < fault.get("bytes", 0):
                    continue
                if fault.get("times", 1) != 0:
                    fault["times"] = fault.get("times", 1) - 1
                    if fault["times"] == 0:
                        self.faults.remove(fault)
                return fault
        return None

    def outstanding(self) -> list[dict]:
        """The faults that were to happen, and did not."""
        return [fault for fault in self.faults if fault.get("times", 1) != 0]

    def hold(self) -> None:
        self.n_held += 1
        self.released.wait(LIMIT)

    # ---- What was seen ----

    def requests(self, method: str) -> int:
        """How often a client has called it."""
        return len(self.calls(method))

    def reached(self, method: str) -> int:
        """How many of these calls the daemon was told of."""
        return sum(stream.has_reached for stream in self.calls(method))

    def messages(self, method: str) -> int:
        """How many of these calls came with anything of a message."""
        return sum(bool(stream.sent) for stream in self.calls(method))

    def answers(self, method: str) -> int:
        """How many whole messages the daemon has answered them with, as far as they are kept."""
        return sum(count_messages(bytes(stream.answer)) for stream in self.calls(method))

    def request_ids(self, method: str) -> int:
        """How many different request ids they had; one that is empty counts for none."""
        return len({read_request_id(method, bytes(stream.sent)) for stream in self.calls(method)} - {""})

    def timeouts(self, method: str) -> list[int]:
        """The deadlines that came with them, in milliseconds; 0: none."""
        return [read_timeout(dict(stream.headers).get("grpc-timeout", "0m")) for stream in self.calls(method)]

    def tokens(self, method: str) -> list[str]:
        return [dict(stream.headers).get("authorization", "") for stream in self.calls(method)]

    def calls(self, method: str) -> list[Stream]:
        return [stream for stream in self.begun if stream.method == method]

    # ---- Doubles ----

    def double(self, stream: Stream) -> None:
        """Sends the request of @stream once more, and waits until it is answered."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(LIMIT)
            sock.connect(str(self.target))
            side = Side(sock, sock)
            sock.sendall(PREFACE + frame(SETTINGS, 0, 0) + side.block(stream.headers, 0, 1))
            sock.sendall(frame(DATA, END_STREAM, 1, bytes(stream.sent)))
            while True:
                kind, flags, number, _ = side.read()
                if kind == SETTINGS and not flags & 1:
                    sock.sendall(frame(SETTINGS, 1, 0))
                if number == 1 and flags & END_STREAM or kind in (RST_STREAM, GOAWAY):
                    return

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(LIMIT)
        for connection in self.open:
            connection.close()
        self.released.set()
