# SPDX-License-Identifier: Apache-2.0
"""Floods: frames that cost their sender nothing. The connection ends, and nobody else notices."""

import itertools

import pytest
from http2 import Connection, Error, Flag, Kind, Setting, frame, grpc_message, rst_stream, settings, window_update
from messages import MIB, Status, fields_of_a_call, message, output_request, pb


def rapid_resets(connection: Connection):
    for stream in range(1, 100_001, 2):
        yield fields_of_a_call(connection, stream) + rst_stream(stream)


def resets_by_the_server(connection: Connection):
    """Streams that make the server reset them, which costs it as much."""
    for stream in range(1, 100_001, 2):
        yield fields_of_a_call(connection, stream) + window_update(stream, 0)


def endless_continuation(connection: Connection):
    yield fields_of_a_call(connection, 1, 0)
    block = connection.block([("x-more", "x" * 1000)])
    yield from itertools.repeat(frame(Kind.CONTINUATION, 0, 1, block), 50_000)


def empty_data(connection: Connection):
    yield fields_of_a_call(connection, 1)
    yield from itertools.repeat(frame(Kind.DATA, 0, 1) * 100, 1000)


def padded_data(connection: Connection):
    yield fields_of_a_call(connection, 1)
    yield from itertools.repeat(frame(Kind.DATA, Flag.PADDED, 1, b"\0") * 100, 1000)


FLOODS = {
    "rapid resets": rapid_resets,
    "resets by the server": resets_by_the_server,
    "CONTINUATION": endless_continuation,
    "empty CONTINUATION": lambda c: itertools.chain(
        [fields_of_a_call(c, 1, 0)], itertools.repeat(frame(Kind.CONTINUATION, 0, 1) * 100, 1000)
    ),
    "empty DATA": empty_data,
    "DATA of padding only": padded_data,
    "PING": lambda c: itertools.repeat(frame(Kind.PING, 0, 0, bytes(8)) * 100, 1000),
    "SETTINGS": lambda c: itertools.repeat(settings({Setting.INITIAL_WINDOW_SIZE: 65535}) * 100, 1000),
    "empty SETTINGS": lambda c: itertools.repeat(settings() * 100, 1000),
    "PRIORITY": lambda c: itertools.repeat(frame(Kind.PRIORITY, 0, 1, bytes(4) + b"\x10") * 100, 1000),
    "WINDOW_UPDATE": lambda c: itertools.repeat(window_update(0, 1) * 100, 1000),
}

# Nothing is to be done for these: they may be ignored.
TRICKLES = {
    "PING acknowledged": frame(Kind.PING, Flag.ACK, 0, bytes(8)),
    "SETTINGS acknowledged": frame(Kind.SETTINGS, Flag.ACK, 0),
    "frames of no known kind": frame(Kind.UNKNOWN, 0, 0, b"x"),
    "frames of no known kind on streams": frame(Kind.UNKNOWN, 0, 1, b"x"),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_the_connection(server, connect, name):
    before = server.memory()
    connection = connect()
    connection.flood(FLOODS[name](connection))
    assert server.memory() < before + MIB
    assert connection.end() not in (None, Error.NO_ERROR)


@pytest.mark.parametrize("name", TRICKLES)
def test_a_flood_of_nothing_does_no_harm(connect, name):
    busy, calm = connect(), connect()
    for _ in range(10):
        busy.flood(itertools.repeat(TRICKLES[name] * 100, 100))
        assert calm.call("EmptyCall", grpc_message()).grpc_status == Status.OK


def test_nobody_is_starved_by_a_flood(connect):
    """While one client sends as fast as it can, another one is served."""
    busy, calm = connect(), connect()
    body = message(pb.StreamingInputCallRequest(payload=pb.Payload(body=bytes(100)))) * 1000
    stream = busy.open("StreamingInputCall")
    for _ in range(50):
        busy.send_data(stream, body, end=False)
        assert calm.call("EmptyCall", grpc_message()).grpc_status == Status.OK
    busy.send_data(stream, b"")
    assert busy.response(stream).grpc_status == Status.OK


def test_ordinary_use_is_no_flood(connect):
    """Cancelled calls, a ping with each answer, windows opened in small steps: all of it is legal."""
    connection = connect()
    for _ in range(300):
        stream = connection.open("FullDuplexCall")
        connection.send_data(stream, output_request(100), end=False)
        connection.read_until(lambda: connection.responses[stream].data)
        connection.send(rst_stream(stream, Error.CANCEL))
        connection.send(frame(Kind.PING, 0, 0, bytes(8)))
    assert connection.call("EmptyCall", grpc_message()).grpc_status == Status.OK
    assert connection.goaway is None
