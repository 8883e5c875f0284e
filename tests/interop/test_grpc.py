# SPDX-License-Identifier: Apache-2.0
"""gRPC by hand: requests, fields and messages that are wrong, or right in ways that no library sends."""

import gzip
import zlib

import pytest
from http2 import (
    MAX_FRAME,
    PREFACE,
    Error,
    Flag,
    Kind,
    Setting,
    frame,
    grpc_message,
    request_fields,
    settings,
)
from messages import MIB, SLEEP, Status, message, pb, unary_request

# Requests that are no gRPC


def test_other_methods_than_post_are_refused(connect):
    for method in "GET", "PUT", "HEAD", "OPTIONS":
        response = connect().call("EmptyCall", grpc_message(), {":method": method})
        assert (response.http_status, response.blocks[0]["allow"]) == ("405", "POST")


@pytest.mark.parametrize("content_type", ["text/plain", "application/grpcx", "application/json", "", None])
def test_other_content_types_are_refused(connect, content_type):
    assert connect().call("EmptyCall", grpc_message(), {"content-type": content_type}).http_status == "415"


@pytest.mark.parametrize("content_type", ["application/grpc+proto", "application/grpc;charset=utf-8"])
def test_variants_of_the_content_type_are_served(connect, content_type):
    assert connect().call("EmptyCall", grpc_message(), {"content-type": content_type}).grpc_status == Status.OK


@pytest.mark.parametrize(
    "path", ["/grpc.testing.TestService/Nothing", "/nobody.Service/EmptyCall", "/", "//", "/" + "x" * 10000]
)
def test_unknown_methods_are_unimplemented(connect, path):
    response = connect().call("", grpc_message(), {":path": path})
    assert (response.http_status, response.grpc_status, len(response.blocks)) == ("200", Status.UNIMPLEMENTED, 1)


MALFORMED_FIELDS = {
    "a pseudo header twice": request_fields("/x") + [(":path", "/y")],
    "a pseudo header behind others": request_fields("/x", {":path": None}) + [(":path", "/x")],
    "an unknown pseudo header": [(":what", "x")] + request_fields("/x"),
    "a pseudo header of responses": [(":status", "200")] + request_fields("/x"),
    "a path that is none": request_fields("*"),
    "no path": request_fields("/x", {":path": None}),
    "no method": request_fields("/x", {":method": None}),
    "no scheme": request_fields("/x", {":scheme": None}),
    "capital letters": request_fields("/x", {"X-Capital": "1"}),
    "an empty name": request_fields("/x", {"": "1"}),
    "a field of the connection": request_fields("/x", {"connection": "close"}),
    "te without trailers": request_fields("/x", {"te": "gzip"}),
    "a line break in a value": request_fields("/x", {"x-broken": "a\r\nb"}),
    "a NUL in a value": request_fields("/x", {"x-broken": "a\0b"}),
    "a space before a value": request_fields("/x", {"grpc-timeout": " 1S"}),
    "two content lengths": request_fields("/x") + [("content-length", "1"), ("content-length", "2")],
}


@pytest.mark.parametrize("name", MALFORMED_FIELDS)
def test_malformed_fields_reset_their_stream_only(connect, name):
    connection = connect()
    connection.send(connection.headers(1, MALFORMED_FIELDS[name], Flag.END_HEADERS | Flag.END_STREAM))
    response = connection.response(1)
    assert response.reset == Error.PROTOCOL_ERROR or response.http_status == "400"
    connection.next_stream = 3
    assert connection.call("EmptyCall", grpc_message()).grpc_status == Status.OK


def test_a_content_length_that_is_not_true_resets_the_stream(connect):
    connection = connect()
    assert connection.call("EmptyCall", grpc_message(), {"content-length": "4"}).reset == Error.PROTOCOL_ERROR
    assert connection.call("EmptyCall", grpc_message(), {"content-length": "5"}).grpc_status == Status.OK


# What gRPC's own fields say


def test_unknown_compression_is_told_what_is_known(connect):
    response = connect().call("EmptyCall", grpc_message(b"x", flag=1), {"grpc-encoding": "snappy"})
    assert response.grpc_status == Status.UNIMPLEMENTED
    assert set(response.blocks[-1]["grpc-accept-encoding"].split(",")) == {"identity", "gzip"}


@pytest.mark.parametrize("timeout", ["", "1", "S", "1s", "-1S", "+1S", "1.5S", "123456789S", "1 S", "1SS", "0x1S"])
def test_malformed_timeouts_fail_the_call(connect, timeout):
    assert connect().call("EmptyCall", grpc_message(), {"grpc-timeout": timeout}).grpc_status == Status.INTERNAL


@pytest.mark.parametrize("timeout", ["99999999H", "99999999S", "5000m", "5000000u", "99999999n"])
def test_timeouts_of_every_unit_are_understood(connect, timeout):
    """At once: so many nanoseconds are a tenth of a second."""
    assert connect().call_at_once("EmptyCall", grpc_message(), {"grpc-timeout": timeout}).grpc_status == Status.OK


@pytest.mark.parametrize("timeout", ["100m", "1n", "0S"])
def test_the_server_ends_calls_at_their_deadline(connect, timeout):
    connection = connect()
    stream = connection.open("FullDuplexCall", {"grpc-timeout": timeout})
    connection.send_data(stream, SLEEP, end=False)
    response = connection.response(stream)
    assert response.grpc_status == Status.DEADLINE_EXCEEDED


@pytest.mark.parametrize("value", ["!", "QUI=x", "Q", "QQ=Q", "QUJD====", "QU JD"])
def test_malformed_binary_metadata_fails_the_call(connect, value):
    assert connect().call("EmptyCall", grpc_message(), {"x-test-bin": value}).grpc_status == Status.INTERNAL


@pytest.mark.parametrize("value", ["q6ur", "q6s=", "q6s", "qw", ""])
def test_binary_metadata_with_and_without_padding_is_echoed(connect, value):
    response = connect().call("UnaryCall", unary_request(1), {"x-grpc-test-echo-trailing-bin": value})
    assert response.grpc_status == Status.OK
    assert response.blocks[-1]["x-grpc-test-echo-trailing-bin"].rstrip("=") == value.rstrip("=")


@pytest.mark.parametrize("name", ["grpc-status", "grpc-message", "grpc-made-up", "grpc-tags-bin"])
def test_reserved_metadata_is_no_metadata(connect, name):
    assert connect().call("EmptyCall", grpc_message(), {name: "!"}).grpc_status == Status.OK


def test_header_lists_may_be_as_large_as_announced_and_no_larger(connect):
    connection = connect()
    limit = connection.peer_settings[Setting.MAX_HEADER_LIST_SIZE]

    def call(size: int) -> int:
        stream, connection.next_stream = connection.next_stream, connection.next_stream + 2
        block = connection.block(request_fields("/grpc.testing.TestService/EmptyCall", {"x-large": "x" * size}))
        pieces = [block[i : i + MAX_FRAME] for i in range(0, len(block), MAX_FRAME)]
        for i, piece in enumerate(pieces, 1):
            kind, flags = Kind.CONTINUATION if i > 1 else Kind.HEADERS, Flag.END_HEADERS if i == len(pieces) else 0
            connection.send(frame(kind, flags, stream, piece))
        connection.send(frame(Kind.DATA, Flag.END_STREAM, stream, grpc_message()))
        return connection.response(stream).grpc_status

    assert call(limit - 1000) == Status.OK
    assert call(limit) == Status.RESOURCE_EXHAUSTED
    assert call(10) == Status.OK


def test_a_bomb_of_fields_is_not_kept(server, connect):
    """Fields that take a byte each once the first is known, and say 3,000 bytes each."""
    connection = connect()
    server.forget_peak()
    before = server.peak()
    block = connection.block(request_fields("/grpc.testing.TestService/EmptyCall"))
    block += connection.block([("x-bomb", "x" * 3000)] * 10_000)
    assert len(block) < MAX_FRAME
    connection.send(frame(Kind.HEADERS, Flag.END_HEADERS | Flag.END_STREAM, 1, block))
    assert connection.response(1).grpc_status == Status.RESOURCE_EXHAUSTED
    assert server.peak() < before + MIB


# Messages


def test_a_prefix_may_be_split_anywhere(connect):
    """Between frames, and between the segments that carry them."""
    connection = connect()
    body = unary_request(3, payload=pb.Payload(body=b"0123456789"))
    for cut in range(len(body) + 1):
        stream = connection.open("UnaryCall")
        connection.send_data(stream, body[:cut], end=False)
        connection.send_data(stream, body[cut:])
        assert connection.response(stream).grpc_status == Status.OK

    stream = connection.open("UnaryCall")
    for byte in body:
        connection.send_data(stream, bytes([byte]), end=False)
    connection.send_data(stream, b"")
    assert connection.response(stream).grpc_status == Status.OK


def test_streams_may_be_interleaved_byte_by_byte(connect):
    connection = connect()
    body = message(pb.StreamingInputCallRequest(payload=pb.Payload(body=bytes(30)))) * 2
    streams = [connection.open("StreamingInputCall") for _ in range(20)]
    for byte in body:
        for stream in streams:
            connection.send_data(stream, bytes([byte]), end=False)
    for stream in streams:
        connection.send_data(stream, b"")
    for stream in streams:
        response = connection.response(stream)
        assert response.grpc_status == Status.OK
        assert pb.StreamingInputCallResponse.FromString(response.messages[0][1]).aggregated_payload_size == 60


def test_frames_may_come_in_segments_of_one_byte(connect):
    connection = connect(polite=False)
    conversation = PREFACE + settings() + frame(Kind.SETTINGS, Flag.ACK, 0)
    conversation += connection.headers(1, request_fields("/grpc.testing.TestService/EmptyCall"))
    conversation += frame(Kind.DATA, Flag.END_STREAM, 1, grpc_message())
    for byte in conversation:
        connection.send(bytes([byte]))
    assert connection.response(1).grpc_status == Status.OK


def test_messages_may_be_empty(connect):
    connection = connect()
    response = connection.call("StreamingInputCall", grpc_message() * 10000)
    assert response.grpc_status == Status.OK
    assert pb.StreamingInputCallResponse.FromString(response.messages[0][1]).aggregated_payload_size == 0


def test_a_message_may_be_larger_than_every_window(connect):
    body = unary_request(4 * MIB - 100, payload=pb.Payload(body=bytes(4 * MIB - 100)))
    response = connect().call("UnaryCall", body)
    assert response.grpc_status == Status.OK
    assert len(response.messages[0][1]) > 4 * MIB - 100


@pytest.mark.parametrize("length", [4 * MIB + 1, 0x7FFFFFFF, 0xFFFFFFFF])
@pytest.mark.parametrize("method", ["UnaryCall", "StreamingInputCall"])
def test_a_message_that_is_announced_too_large_is_refused_before_it_comes(server, connect, method, length):
    connection = connect()
    server.forget_peak()
    before = server.peak()
    stream = connection.open(method)
    connection.send_data(stream, grpc_message(length=length), end=False)
    response = connection.response(stream)
    assert response.grpc_status == Status.RESOURCE_EXHAUSTED
    connection.read_until(lambda: response.reset == Error.NO_ERROR)
    assert server.peak() < before + MIB


@pytest.mark.parametrize("flag", [2, 0x80, 0xFF])
def test_unknown_flags_of_messages_fail_the_call(connect, flag):
    assert connect().call("EmptyCall", grpc_message(flag=flag)).grpc_status == Status.INTERNAL


def test_a_compressed_message_without_compression_fails_the_call(connect):
    assert connect().call("EmptyCall", grpc_message(gzip.compress(b""), flag=1)).grpc_status == Status.INTERNAL


def test_an_uncompressed_message_in_a_compressed_call_is_served(connect):
    assert connect().call("EmptyCall", grpc_message(), {"grpc-encoding": "gzip"}).grpc_status == Status.OK


def test_an_empty_message_may_be_compressed(connect):
    response = connect().call("EmptyCall", grpc_message(gzip.compress(b""), flag=1), {"grpc-encoding": "gzip"})
    assert response.grpc_status == Status.OK


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"no gzip at all",
        zlib.compress(bytes(100)),
        gzip.compress(bytes(100))[:-1],
        gzip.compress(bytes(100))[:-8] + bytes(8),
        gzip.compress(bytes(100)) + b"x",
    ],
    ids=["nothing", "text", "zlib", "cut", "wrong sum", "more behind it"],
)
def test_broken_gzip_fails_the_call(connect, broken):
    response = connect().call("EmptyCall", grpc_message(broken, flag=1), {"grpc-encoding": "gzip"})
    assert response.grpc_status == Status.INTERNAL


def test_a_gzip_bomb_is_not_unpacked(server, connect):
    bomb = gzip.compress(bytes(400 * MIB), compresslevel=9)
    assert len(bomb) < MIB
    connection = connect()
    server.forget_peak()
    before = server.peak()
    for method in "EmptyCall", "StreamingInputCall":
        response = connection.call(method, grpc_message(bomb, flag=1), {"grpc-encoding": "gzip"})
        assert response.grpc_status == Status.RESOURCE_EXHAUSTED
    assert server.peak() < before + 32 * MIB


def test_answers_are_compressed_for_those_who_can_read_that(connect):
    body = unary_request(10000, response_compressed=pb.BoolValue(value=True))
    response = connect().call("UnaryCall", body, {"grpc-accept-encoding": "identity,deflate,gzip"})
    ((flag, data),) = response.messages
    assert (response.grpc_status, response.blocks[0]["grpc-encoding"], flag) == (Status.OK, "gzip", 1)
    assert len(pb.SimpleResponse.FromString(gzip.decompress(data)).payload.body) == 10000

    response = connect().call("UnaryCall", body, {"grpc-accept-encoding": "identity,deflate"})
    ((flag, data),) = response.messages
    assert (response.grpc_status, flag) == (Status.OK, 0)
    assert response.blocks[0].get("grpc-encoding", "identity") == "identity"
    assert len(pb.SimpleResponse.FromString(data).payload.body) == 10000


@pytest.mark.parametrize("count", [0, 2, 3])
def test_a_method_that_takes_one_message_takes_no_other_number(connect, count):
    connection = connect()
    assert connection.call("EmptyCall", grpc_message() * count).grpc_status == Status.UNIMPLEMENTED
    assert connection.call("EmptyCall", grpc_message()).grpc_status == Status.OK


def test_a_request_of_fields_alone_has_no_message(connect):
    connection = connect()
    assert connection.response(connection.open("EmptyCall", flags=Flag.END_STREAM)).grpc_status == Status.UNIMPLEMENTED
    assert connection.response(connection.open("FullDuplexCall", flags=Flag.END_STREAM)).grpc_status == Status.OK


@pytest.mark.parametrize("method", ["EmptyCall", "StreamingInputCall", "FullDuplexCall"])
def test_a_request_that_ends_in_the_middle_of_a_message_fails(connect, method):
    connection = connect()
    for cut in range(1, 8):
        body = grpc_message(b"\x08\x01\x10")[:cut]
        assert connection.call(method, body).grpc_status == Status.INTERNAL


def test_a_message_that_is_no_protobuf_fails_the_call(connect):
    connection = connect()
    for method in "EmptyCall", "UnaryCall", "StreamingInputCall", "StreamingOutputCall", "FullDuplexCall":
        assert connection.call(method, grpc_message(b"\xff" * 10)).grpc_status == Status.INTERNAL


def test_trailers_of_a_request_are_ignored(connect):
    connection = connect()
    stream = connection.open("EmptyCall")
    connection.send_data(stream, grpc_message(), end=False)
    connection.send(connection.headers(stream, [("x-trailer", "1")], Flag.END_HEADERS | Flag.END_STREAM))
    assert connection.response(stream).grpc_status == Status.OK


def test_trailers_that_do_not_end_the_request_are_malformed(connect):
    connection = connect()
    stream = connection.open("EmptyCall")
    connection.send_data(stream, grpc_message(), end=False)
    connection.send(connection.headers(stream, [("x-trailer", "1")]))
    assert connection.response(stream).reset == Error.PROTOCOL_ERROR
