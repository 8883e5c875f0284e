# SPDX-License-Identifier: Apache-2.0
"""Messages of the test service, as bytes for connections that are made by hand."""

import sys
from enum import IntEnum
from pathlib import Path

import grpc
from http2 import Connection, Flag, grpc_message, request_fields

sys.path.insert(0, str(Path(__file__).parent / "proto"))
pb = grpc.protos("test.proto")

MIB = 1 << 20


class Status(IntEnum):
    """Of calls."""

    OK = 0
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13


def message(content) -> bytes:
    """A protobuf message behind its prefix."""
    return grpc_message(content.SerializeToString())


def unary_request(size: int, **fields) -> bytes:
    return message(pb.SimpleRequest(response_size=size, **fields))


def output_request(*sizes: int, **fields) -> bytes:
    """Asks for answers of these sizes."""
    parameters = [pb.ResponseParameters(size=size, **fields) for size in sizes]
    return message(pb.StreamingOutputCallRequest(response_parameters=parameters))


# Asks for an answer that will not come before the test is over.
SLEEP = output_request(1, interval_us=600_000_000)


def fields_of_a_call(connection: Connection, stream: int, flags: int = Flag.END_HEADERS) -> bytes:
    """A frame that begins a call."""
    return connection.headers(stream, request_fields("/grpc.testing.TestService/FullDuplexCall"), flags)
