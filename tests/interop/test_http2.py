# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 by hand: flow control, frames that are wrong or out of place, connections that end in the middle."""

import itertools
import os
import socket
import struct
import time

import pytest
from http2 import (
    LIMIT,
    MAX_FRAME,
    PREFACE,
    Connection,
    Error,
    Flag,
    Kind,
    Setting,
    frame,
    grpc_message,
    request_fields,
    rst_stream,
    settings,
    window_update,
)
from interop import check_service
from messages import MIB, SLEEP, Status, fields_of_a_call, message, output_request, pb, unary_request

# Flow control


def test_nothing_is_sent_into_a_window_of_zero(connect):
    connection = connect({Setting.INITIAL_WINDOW_SIZE: 0})
    connection.opens_windows = False
    stream = connection.open("UnaryCall")
    connection.send_data(stream, unary_request(1000))
    response = connection.responses[stream]
    connection.read_until(lambda: response.blocks)
    connection.read_for(0.3)
    assert (len(response.blocks), response.data, response.ended) == (1, b"", False)

    for size in 1, 4, 5, 100:
        before = len(response.data)
        connection.send(window_update(stream, size))
        connection.read_until(lambda: len(response.data) >= before + size)
        connection.read_for(0.1)
        assert len(response.data) == before + size

    connection.send(settings({Setting.INITIAL_WINDOW_SIZE: 65535}))
    assert connection.response(stream).grpc_status == Status.OK
    assert len(response.messages) == 1


def test_the_window_of_the_connection_holds_for_all_streams(connect):
    connection = connect({Setting.INITIAL_WINDOW_SIZE: MIB})
    connection.opens_windows = False
    streams = [connection.open("UnaryCall") for _ in range(3)]
    for stream in streams:
        connection.send_data(stream, unary_request(100_000))
    connection.read_until(lambda: connection.received() >= 65535)
    connection.read_for(0.3)
    assert connection.received() == 65535

    connection.send(window_update(0, MIB))
    for stream in streams:
        assert connection.response(stream).grpc_status == Status.OK


def test_who_does_not_read_gets_no_more_than_its_window(server, connect):
    """Endless answers wait for their reader, not in memory."""
    before = server.memory()
    connection = connect()
    connection.opens_windows = False
    for _ in range(4):
        connection.send_data(connection.open("StreamingOutputCall"), output_request(*[4 * MIB - 100] * 100))
    connection.read_until(lambda: connection.received() >= 65535)
    connection.read_for(0.5)
    assert connection.received() == 65535
    assert server.memory() < before + 4 * 6 * MIB


@pytest.mark.parametrize("size", [10_000, 3 * MIB])
def test_the_window_opens_only_when_the_handler_takes_messages(connect, size):
    """Be it for many messages or for a part of one."""
    connection = connect()
    stream = connection.open("FullDuplexCall")
    connection.send_data(stream, SLEEP, end=False)
    assert connection.call("EmptyCall", grpc_message()).grpc_status == Status.OK  # so that the handler has that
    connection.read_for(0.2)
    for piece in itertools.repeat(message(pb.StreamingOutputCallRequest(payload=pb.Payload(body=bytes(size))))):
        connection.send_data(stream, piece[: connection.credit[stream]], end=False)
        if connection.credit[stream] == 0:
            break
    connection.read_for(0.3)
    assert connection.credit[stream] == 0
    assert connection.call("EmptyCall", grpc_message()).grpc_status == Status.OK


def test_more_than_the_window_is_an_error_of_flow_control(connect):
    connection = connect()
    stream = connection.open("FullDuplexCall")
    connection.send_data(stream, SLEEP, end=False)
    size = connection.peer_settings[Setting.INITIAL_WINDOW_SIZE] + 10 * MAX_FRAME
    connection.flood(itertools.repeat(frame(Kind.DATA, 0, stream, bytes(MAX_FRAME)), size // MAX_FRAME))
    try:
        assert connection.response(stream).reset == Error.FLOW_CONTROL_ERROR
    except ConnectionError:
        assert connection.end() == Error.FLOW_CONTROL_ERROR


def test_empty_messages_that_nobody_takes_are_bounded(server, connect):
    """Each costs the server many times the five bytes that it takes from the window."""
    before = server.memory()
    connection = connect()
    piece = grpc_message() * 3000
    for _ in range(10):
        stream = connection.open("FullDuplexCall")
        connection.send_data(stream, SLEEP, end=False)
        connection.read_for(0.05)
        while connection.credit[stream] > len(piece):
            connection.send_data(stream, piece, end=False)
    connection.read_for(0.2)
    assert server.memory() < before + 96 * MIB


def test_a_stream_window_that_overflows_ends_its_stream(connect):
    connection = connect()
    stream = connection.open("FullDuplexCall")
    connection.send(window_update(stream, 0x7FFFFFFF))
    assert connection.response(stream).reset == Error.FLOW_CONTROL_ERROR
    assert connection.call("EmptyCall", grpc_message()).grpc_status == Status.OK


def test_settings_that_overflow_a_window_end_the_connection(connect):
    connection = connect()
    stream = connection.open("FullDuplexCall")
    connection.send(window_update(stream, 0x7FFFFFFF - 65535))
    connection.send(settings({Setting.INITIAL_WINDOW_SIZE: 65536}))
    try:
        assert connection.response(stream).reset == Error.FLOW_CONTROL_ERROR
    except ConnectionError:
        assert connection.end() == Error.FLOW_CONTROL_ERROR


@pytest.mark.parametrize("size", [50_000, 500_000])
def test_data_for_calls_that_are_over_gives_the_window_back(connect, size):
    """Clients send on for a while; what is thrown away must not use up the connection's window."""
    connection = connect()
    connection.read_for(0.1)
    for _ in range(2 * connection.credit[0] // size):
        stream = connection.open("StreamingInputCall")
        connection.send_data(stream, grpc_message(flag=9) + bytes(size), end=False)
        assert connection.response(stream).grpc_status == Status.INTERNAL


# Frames out of place


def test_data_on_a_closed_stream_does_no_harm_to_others(connect):
    connection = connect()
    stream = connection.open("EmptyCall")
    connection.send_data(stream, grpc_message())
    assert connection.response(stream).grpc_status == Status.OK
    connection.send(frame(Kind.DATA, 0, stream, b"more"))
    try:
        assert connection.call("EmptyCall", grpc_message()).grpc_status == Status.OK
        assert connection.responses[stream].reset in (None, Error.STREAM_CLOSED)
    except ConnectionError:
        assert connection.end() == Error.STREAM_CLOSED


def test_data_behind_the_end_of_a_request_ends_the_stream(connect):
    connection = connect()
    stream = connection.open("StreamingOutputCall")
    connection.send_data(stream, SLEEP)
    connection.send(frame(Kind.DATA, 0, stream, b"more"))
    try:
        assert connection.response(stream).reset == Error.STREAM_CLOSED
    except ConnectionError:
        assert connection.end() == Error.STREAM_CLOSED


CONNECTION_ERRORS = {
    "DATA before HEADERS": (lambda c: frame(Kind.DATA, 0, 1, b"x"), Error.PROTOCOL_ERROR),
    "DATA on stream 0": (lambda c: frame(Kind.DATA, 0, 0, b"x"), Error.PROTOCOL_ERROR),
    "DATA on a stream of the server's": (lambda c: frame(Kind.DATA, 0, 2, b"x"), Error.PROTOCOL_ERROR),
    "DATA larger than allowed": (
        lambda c: frame(Kind.DATA, 0, 1, bytes(c.peer_settings[Setting.MAX_FRAME_SIZE] + 1)),
        Error.FRAME_SIZE_ERROR,
    ),
    "a frame announced as large as can be": (lambda c: frame(Kind.DATA, 0, 1, length=0xFFFFFF), Error.FRAME_SIZE_ERROR),
    "padding longer than its frame": (
        lambda c: fields_of_a_call(c, 1) + frame(Kind.DATA, Flag.PADDED, 1, bytes([200]) + b"short"),
        Error.PROTOCOL_ERROR,
    ),
    "padding as long as its frame": (
        lambda c: fields_of_a_call(c, 1) + frame(Kind.DATA, Flag.PADDED, 1, bytes([6]) + b"short"),
        Error.PROTOCOL_ERROR,
    ),
    "padding without its length": (
        lambda c: fields_of_a_call(c, 1) + frame(Kind.DATA, Flag.PADDED, 1),
        Error.PROTOCOL_ERROR,
    ),
    "HEADERS on stream 0": (lambda c: fields_of_a_call(c, 0), Error.PROTOCOL_ERROR),
    "HEADERS on a stream of the server's": (lambda c: fields_of_a_call(c, 2), Error.PROTOCOL_ERROR),
    "HEADERS with too much padding": (
        lambda c: frame(Kind.HEADERS, Flag.END_HEADERS | Flag.PADDED, 1, b"\x09x"),
        Error.PROTOCOL_ERROR,
    ),
    "HEADERS that HPACK cannot read": (
        lambda c: frame(Kind.HEADERS, Flag.END_HEADERS, 1, b"\xff" * 20),
        Error.COMPRESSION_ERROR,
    ),
    "HEADERS with an index of nothing": (
        lambda c: frame(Kind.HEADERS, Flag.END_HEADERS, 1, b"\xfe"),
        Error.COMPRESSION_ERROR,
    ),
    "HEADERS cut by another frame": (
        lambda c: fields_of_a_call(c, 1, 0) + frame(Kind.PING, 0, 0, bytes(8)),
        Error.PROTOCOL_ERROR,
    ),
    "CONTINUATION of another stream": (
        lambda c: fields_of_a_call(c, 1, 0) + frame(Kind.CONTINUATION, Flag.END_HEADERS, 3),
        Error.PROTOCOL_ERROR,
    ),
    "CONTINUATION of nothing": (lambda c: frame(Kind.CONTINUATION, Flag.END_HEADERS, 1), Error.PROTOCOL_ERROR),
    "PUSH_PROMISE": (lambda c: frame(Kind.PUSH_PROMISE, Flag.END_HEADERS, 1, b"\0\0\0\2"), Error.PROTOCOL_ERROR),
    "RST_STREAM on stream 0": (lambda c: rst_stream(0), Error.PROTOCOL_ERROR),
    "RST_STREAM before HEADERS": (lambda c: rst_stream(1), Error.PROTOCOL_ERROR),
    "RST_STREAM too short": (
        lambda c: fields_of_a_call(c, 1) + frame(Kind.RST_STREAM, 0, 1, b"abc"),
        Error.FRAME_SIZE_ERROR,
    ),
    "WINDOW_UPDATE before HEADERS": (lambda c: window_update(1, 1), Error.PROTOCOL_ERROR),
    "WINDOW_UPDATE of the connection by 0": (lambda c: window_update(0, 0), Error.PROTOCOL_ERROR),
    "WINDOW_UPDATE too short": (lambda c: frame(8, 0, 0, b"abc"), Error.FRAME_SIZE_ERROR),
    "WINDOW_UPDATE beyond the largest window": (lambda c: window_update(0, 0x7FFFFFFF), Error.FLOW_CONTROL_ERROR),
    "SETTINGS on a stream": (lambda c: frame(Kind.SETTINGS, 0, 1), Error.PROTOCOL_ERROR),
    "SETTINGS cut": (lambda c: frame(Kind.SETTINGS, 0, 0, b"abc"), Error.FRAME_SIZE_ERROR),
    "SETTINGS acknowledged with a body": (
        lambda c: frame(Kind.SETTINGS, Flag.ACK, 0, bytes(6)),
        Error.FRAME_SIZE_ERROR,
    ),
    "SETTINGS with a bad ENABLE_PUSH": (lambda c: settings({Setting.ENABLE_PUSH: 2}), Error.PROTOCOL_ERROR),
    "SETTINGS with a bad INITIAL_WINDOW_SIZE": (
        lambda c: settings({Setting.INITIAL_WINDOW_SIZE: 1 << 31}),
        Error.FLOW_CONTROL_ERROR,
    ),
    "SETTINGS with a small MAX_FRAME_SIZE": (lambda c: settings({Setting.MAX_FRAME_SIZE: 100}), Error.PROTOCOL_ERROR),
    "SETTINGS with a large MAX_FRAME_SIZE": (
        lambda c: settings({Setting.MAX_FRAME_SIZE: 1 << 24}),
        Error.PROTOCOL_ERROR,
    ),
    "PING on a stream": (lambda c: frame(Kind.PING, 0, 1, bytes(8)), Error.PROTOCOL_ERROR),
    "PING too short": (lambda c: frame(Kind.PING, 0, 0, bytes(7)), Error.FRAME_SIZE_ERROR),
    "PRIORITY on stream 0": (lambda c: frame(Kind.PRIORITY, 0, 0, bytes(5)), Error.PROTOCOL_ERROR),
    "PRIORITY too short": (lambda c: frame(Kind.PRIORITY, 0, 1, bytes(4)), Error.FRAME_SIZE_ERROR),
    "GOAWAY on a stream": (lambda c: frame(Kind.GOAWAY, 0, 1, bytes(8)), Error.PROTOCOL_ERROR),
    "GOAWAY too short": (lambda c: frame(Kind.GOAWAY, 0, 0, bytes(7)), Error.FRAME_SIZE_ERROR),
}


@pytest.mark.parametrize("name", CONNECTION_ERRORS)
def test_frames_that_break_the_protocol_end_the_connection(connect, name):
    make, code = CONNECTION_ERRORS[name]
    connection = connect()
    connection.send(make(connection))
    assert connection.end() == code


def test_unknown_frames_flags_and_settings_are_ignored(connect):
    connection = connect()
    connection.send(frame(0xEE, 0xFF, 0, b"what") + frame(0xEE, 0xFF, 77, b"ever"))
    connection.send(settings({0xEEEE: 7, Setting.MAX_CONCURRENT_STREAMS: 0, Setting.MAX_HEADER_LIST_SIZE: 0}))
    connection.send(frame(Kind.PING, 0xFE, 0, b"pingpong"))
    connection.read_until(lambda: connection.pongs == 1)
    assert connection.call("EmptyCall", grpc_message()).grpc_status == Status.OK


def test_padding_is_no_part_of_messages_and_gives_the_window_back(connect):
    connection = connect()
    connection.read_for(0.1)
    padding = frame(Kind.DATA, Flag.PADDED, 1, b"\xff" + grpc_message() + bytes(255))
    stream = connection.open("StreamingInputCall")
    for _ in range(2 * connection.credit[0] // len(padding)):
        if connection.credit[0] < len(padding) or connection.credit[stream] < len(padding):
            connection.read_until(lambda: min(connection.credit[0], connection.credit[stream]) > len(padding))
        connection.credit[0] -= len(padding) - 9
        connection.credit[stream] -= len(padding) - 9
        connection.send(padding)
    connection.send_data(stream, b"")
    assert connection.response(stream).grpc_status == Status.OK


def test_streams_up_to_the_limit_are_served(connect):
    connection = connect()
    streams = [
        connection.open("FullDuplexCall") for _ in range(connection.peer_settings[Setting.MAX_CONCURRENT_STREAMS])
    ]
    for stream in streams:
        connection.send_data(stream, b"")
    for stream in streams:
        assert connection.response(stream).grpc_status == Status.OK
    assert connection.call("EmptyCall", grpc_message()).grpc_status == Status.OK


def test_streams_beyond_the_limit_are_refused(connect):
    connection = connect()
    for _ in range(connection.peer_settings[Setting.MAX_CONCURRENT_STREAMS]):
        connection.open("FullDuplexCall")
    refused = connection.open("EmptyCall")
    try:
        assert connection.response(refused).reset == Error.REFUSED_STREAM
    except ConnectionError:
        assert connection.end() == Error.PROTOCOL_ERROR


def test_a_stream_older_than_the_newest_cannot_be_opened(connect):
    connection = connect()
    connection.send(
        fields_of_a_call(connection, 5) + fields_of_a_call(connection, 3, Flag.END_HEADERS | Flag.END_STREAM)
    )
    connection.next_stream = 7
    try:
        assert connection.call("EmptyCall", grpc_message()).grpc_status == Status.OK
        assert 3 not in connection.responses
    except ConnectionError:
        assert connection.end() == Error.PROTOCOL_ERROR


# What is no HTTP/2


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0" * 100,
        os.urandom(1000),
        PREFACE[:-1] + b"x" + settings(),
        PREFACE + frame(Kind.PING, 0, 0, bytes(8)),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ],
    ids=["zeros", "noise", "a preface with a typo", "no settings", "TLS", "SSH"],
)
def test_garbage_instead_of_the_preface_ends_the_connection(connect, garbage):
    connection = connect(polite=False)
    connection.flood([garbage])
    connection.end()


@pytest.mark.parametrize("request_line", ["GET / HTTP/1.1", "POST /grpc.testing.TestService/EmptyCall HTTP/1.1"])
def test_http_1_is_not_spoken(connect, request_line):
    connection = connect(polite=False)
    connection.send(f"{request_line}\r\nHost: localhost\r\n\r\n".encode())
    deadline = time.monotonic() + LIMIT
    while connection.read_bytes(deadline):
        pass


# Connections that are dropped


def conversation(connection: Connection) -> bytes:
    """What a client sends that makes each kind of call."""
    whole = PREFACE + settings({Setting.INITIAL_WINDOW_SIZE: 100}) + window_update(0, 100)
    whole += frame(Kind.SETTINGS, Flag.ACK, 0)
    bodies = {
        "UnaryCall": unary_request(200_000, payload=pb.Payload(body=bytes(50))),
        "StreamingInputCall": message(pb.StreamingInputCallRequest(payload=pb.Payload(body=bytes(20)))) * 2,
        "StreamingOutputCall": output_request(100_000, 100_000, 100_000),
        "FullDuplexCall": output_request(50_000) + SLEEP,
    }
    for stream, (method, body) in zip(itertools.count(1, 2), bodies.items()):
        whole += connection.headers(stream, request_fields(f"/grpc.testing.TestService/{method}"))
        whole += frame(Kind.DATA, 0, stream, body[:7]) + frame(Kind.DATA, Flag.END_STREAM, stream, body[7:])
    return whole


@pytest.mark.parametrize("how", ["closed", "reset"])
def test_connections_may_be_dropped_in_the_middle_of_everything(server, connect, how):
    connection = connect(polite=False)
    whole = conversation(connection)
    connection.close()

    sizes = []
    for _ in range(3):
        for cut in range(len(whole) + 1):
            sock = server.connect()
            if how == "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.sendall(whole[:cut])
            sock.close()
            if cut % 10 == 0:
                server.wait_for_quiet()
        check_service(server)
        sizes.append(server.memory())
    assert sizes[-1] < sizes[0] + 20_000  # less than 20 bytes for each connection


def test_half_closed_connections_are_answered_and_closed(connect):
    """A client that sends no more may still read."""
    connection = connect()
    stream = connection.open("EmptyCall")
    connection.send_data(stream, grpc_message())
    connection.sock.shutdown(socket.SHUT_WR)
    connection.polite = False
    connection.end()
    assert connection.responses[stream].grpc_status == Status.OK


# The end


def test_a_drained_server_finishes_what_runs_and_takes_nothing_new(start_server):
    server = start_server("--port", "0")
    connection, idle = Connection(server.connect()), Connection(server.connect())
    stream = connection.open("StreamingOutputCall")
    connection.send_data(stream, output_request(10, 10, 10, interval_us=300_000))
    connection.read_until(lambda: connection.responses[stream].data)

    server.terminate()
    connection.read_until(lambda: connection.goaway is not None)
    with pytest.raises(ConnectionRefusedError):
        server.connect().close()
    assert idle.end() == Error.NO_ERROR
    response = connection.response(stream)
    assert (response.grpc_status, len(response.messages)) == (Status.OK, 3)
    assert connection.end() == Error.NO_ERROR
    assert server.wait() == 0


def test_a_drained_server_cuts_what_does_not_end(start_server):
    server = start_server("--port", "0")
    connection = Connection(server.connect())
    connection.send_data(connection.open("FullDuplexCall"), SLEEP, end=False)
    connection.read_for(0.2)
    server.terminate()
    connection.end()
    assert server.wait() == 0
