# SPDX-License-Identifier: Apache-2.0
"""Runs one case of the interoperability tests with grpcio. Exits with 0 when the case passed."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import grpc

sys.path.insert(0, str(Path(__file__).parent / "proto"))
pb, services = grpc.protos_and_services("test.proto")

LIMIT = 60  # seconds
METADATA = (
    ("x-grpc-test-echo-initial", "test_initial_metadata_value"),
    ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab"),
)
REQUEST_SIZES = (27182, 8, 1828, 45904)
RESPONSE_SIZES = (31415, 9, 2653, 58979)
STATUS_MESSAGE = "test status message"
SPECIAL_STATUS_MESSAGE = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"

Stub = services.TestServiceStub


def payload(size: int):
    return pb.Payload(body=bytes(size))


def output_request(response_size: int, request_size: int, **fields):
    return pb.StreamingOutputCallRequest(
        response_parameters=[pb.ResponseParameters(size=response_size, **fields)], payload=payload(request_size)
    )


def expect(got, expected) -> None:
    if got != expected:
        raise AssertionError(f"got {got!r:.200}, expected {expected!r:.200}")


def expect_zeros(got, size: int) -> None:
    expect(len(got.body), size)
    expect(got.body, bytes(size))


def expect_status(call: Callable, code: grpc.StatusCode, details: str | None = None) -> None:
    try:
        call()
    except grpc.RpcError as error:
        expect(error.code(), code)
        if details is not None:
            expect(error.details(), details)
    else:
        raise AssertionError(f"the call did not fail; expected {code}")


class Requests:
    """The requests of a stream, sent one by one."""

    def __init__(self) -> None:
        self.queue: SimpleQueue = SimpleQueue()

    def send(self, request) -> None:
        self.queue.put(request)

    def close(self) -> None:
        self.queue.put(None)

    def __iter__(self) -> Iterator:
        return iter(self.queue.get, None)


def empty_unary(stub: Stub) -> None:
    expect(stub.EmptyCall(pb.Empty(), timeout=LIMIT), pb.Empty())


def large_unary(stub: Stub) -> None:
    reply = stub.UnaryCall(pb.SimpleRequest(response_size=314159, payload=payload(271828)), timeout=LIMIT)
    expect_zeros(reply.payload, 314159)


def client_streaming(stub: Stub) -> None:
    requests = (pb.StreamingInputCallRequest(payload=payload(size)) for size in REQUEST_SIZES)
    expect(stub.StreamingInputCall(requests, timeout=LIMIT).aggregated_payload_size, 74922)


def server_streaming(stub: Stub) -> None:
    parameters = [pb.ResponseParameters(size=size) for size in RESPONSE_SIZES]
    replies = stub.StreamingOutputCall(pb.StreamingOutputCallRequest(response_parameters=parameters), timeout=LIMIT)
    expect([len(reply.payload.body) for reply in replies], list(RESPONSE_SIZES))


def ping_pong(stub: Stub) -> None:
    requests = Requests()
    replies = stub.FullDuplexCall(iter(requests), timeout=LIMIT)
    for response_size, request_size in zip(RESPONSE_SIZES, REQUEST_SIZES):
        requests.send(output_request(response_size, request_size))
        expect_zeros(next(replies).payload, response_size)
    requests.close()
    expect(list(replies), [])


def empty_stream(stub: Stub) -> None:
    expect(list(stub.FullDuplexCall(iter(()), timeout=LIMIT)), [])


def custom_metadata(stub: Stub) -> None:
    def check(call) -> None:
        expect(METADATA[0] in call.initial_metadata(), True)
        expect(METADATA[1] in call.trailing_metadata(), True)

    request = pb.SimpleRequest(response_size=314159, payload=payload(271828))
    reply, call = stub.UnaryCall.with_call(request, timeout=LIMIT, metadata=METADATA)
    expect_zeros(reply.payload, 314159)
    check(call)

    call = stub.FullDuplexCall(iter([output_request(314159, 271828)]), timeout=LIMIT, metadata=METADATA)
    expect([len(reply.payload.body) for reply in call], [314159])
    check(call)


def status_code_and_message(stub: Stub) -> None:
    status = pb.EchoStatus(code=2, message=STATUS_MESSAGE)
    unary, duplex = pb.SimpleRequest(response_status=status), pb.StreamingOutputCallRequest(response_status=status)
    expect_status(lambda: stub.UnaryCall(unary, timeout=LIMIT), grpc.StatusCode.UNKNOWN, STATUS_MESSAGE)
    expect_status(
        lambda: list(stub.FullDuplexCall(iter([duplex]), timeout=LIMIT)), grpc.StatusCode.UNKNOWN, STATUS_MESSAGE
    )


def special_status_message(stub: Stub) -> None:
    request = pb.SimpleRequest(response_status=pb.EchoStatus(code=2, message=SPECIAL_STATUS_MESSAGE))
    expect_status(lambda: stub.UnaryCall(request, timeout=LIMIT), grpc.StatusCode.UNKNOWN, SPECIAL_STATUS_MESSAGE)


def unimplemented_method(stub: Stub) -> None:
    expect_status(lambda: stub.UnimplementedCall(pb.Empty(), timeout=LIMIT), grpc.StatusCode.UNIMPLEMENTED)


def unimplemented_service(stub: "services.UnimplementedServiceStub") -> None:
    expect_status(lambda: stub.UnimplementedCall(pb.Empty(), timeout=LIMIT), grpc.StatusCode.UNIMPLEMENTED)


def cancel_after_begin(stub: Stub) -> None:
    requests = Requests()
    call = stub.StreamingInputCall.future(iter(requests), timeout=LIMIT)
    call.cancel()
    requests.close()
    expect(call.cancelled(), True)
    expect(call.code(), grpc.StatusCode.CANCELLED)


def cancel_after_first_response(stub: Stub) -> None:
    requests = Requests()
    replies = stub.FullDuplexCall(iter(requests), timeout=LIMIT)
    requests.send(output_request(31415, 27182))
    expect_zeros(next(replies).payload, 31415)
    replies.cancel()
    expect_status(lambda: next(replies), grpc.StatusCode.CANCELLED)
    requests.close()


def timeout_on_sleeping_server(stub: Stub) -> None:
    requests = Requests()
    requests.send(output_request(31415, 27182, interval_us=5_000_000))
    expect_status(lambda: next(stub.FullDuplexCall(iter(requests), timeout=0.001)), grpc.StatusCode.DEADLINE_EXCEEDED)
    requests.close()


def client_compressed_unary(stub: Stub) -> None:
    def call(expected: bool, compression: grpc.Compression) -> None:
        request = pb.SimpleRequest(
            expect_compressed=pb.BoolValue(value=expected), response_size=314159, payload=payload(271828)
        )
        reply = stub.UnaryCall(request, timeout=LIMIT, compression=compression)
        expect_zeros(reply.payload, 314159)

    expect_status(lambda: call(True, grpc.Compression.NoCompression), grpc.StatusCode.INVALID_ARGUMENT)
    call(True, grpc.Compression.Gzip)
    call(False, grpc.Compression.NoCompression)


def server_compressed_unary(stub: Stub) -> None:
    for wanted in True, False:
        request = pb.SimpleRequest(
            response_compressed=pb.BoolValue(value=wanted), response_size=314159, payload=payload(271828)
        )
        expect_zeros(stub.UnaryCall(request, timeout=LIMIT).payload, 314159)


def client_compressed_streaming(stub: Stub) -> None:
    """grpcio compresses all messages of a call or none: what the case sends in one call goes in two."""

    def call(expected: bool, size: int, compression: grpc.Compression) -> None:
        request = pb.StreamingInputCallRequest(expect_compressed=pb.BoolValue(value=expected), payload=payload(size))
        reply = stub.StreamingInputCall(iter([request]), timeout=LIMIT, compression=compression)
        expect(reply.aggregated_payload_size, size)

    expect_status(lambda: call(True, 27182, grpc.Compression.NoCompression), grpc.StatusCode.INVALID_ARGUMENT)
    call(True, 27182, grpc.Compression.Gzip)
    call(False, 45904, grpc.Compression.NoCompression)


def server_compressed_streaming(stub: Stub) -> None:
    parameters = [
        pb.ResponseParameters(size=31415, compressed=pb.BoolValue(value=True)),
        pb.ResponseParameters(size=92653, compressed=pb.BoolValue(value=False)),
    ]
    replies = stub.StreamingOutputCall(pb.StreamingOutputCallRequest(response_parameters=parameters), timeout=LIMIT)
    for size in 31415, 92653:
        expect_zeros(next(replies).payload, size)
    expect(list(replies), [])


CASES = (
    empty_unary,
    large_unary,
    client_streaming,
    server_streaming,
    ping_pong,
    empty_stream,
    custom_metadata,
    status_code_and_message,
    special_status_message,
    unimplemented_method,
    unimplemented_service,
    cancel_after_begin,
    cancel_after_first_response,
    timeout_on_sleeping_server,
    client_compressed_unary,
    server_compressed_unary,
    client_compressed_streaming,
    server_compressed_streaming,
)


def connect(options: argparse.Namespace) -> grpc.Channel:
    if not options.ca:
        return grpc.insecure_channel(options.target)

    def read(path: str | None) -> bytes | None:
        return Path(path).read_bytes() if path else None

    credentials = grpc.ssl_channel_credentials(read(options.ca), read(options.key), read(options.cert))
    return grpc.secure_channel(options.target, credentials)


def main() -> int:
    cases = {case.__name__: case for case in CASES}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True, help="what to connect to, as gRPC names it")
    parser.add_argument("--case", required=True, choices=cases)
    parser.add_argument("--ca", help="file with the certificates to trust; without it nothing is encrypted")
    parser.add_argument("--cert", help="file with a client certificate")
    parser.add_argument("--key", help="file with its key")
    options = parser.parse_args()

    with connect(options) as channel:
        stub = services.UnimplementedServiceStub if options.case == "unimplemented_service" else Stub
        try:
            cases[options.case](stub(channel))
        except grpc.RpcError as error:
            print(f"{error.code().name}: {error.details()}", file=sys.stderr)
            return 1
        except AssertionError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # as the interpreter ends, a call not yet collected may wait for a thread that is gone already
