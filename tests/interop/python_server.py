# SPDX-License-Identifier: Apache-2.0
"""A server of the interoperability tests on grpcio, for our client. It takes the options of interop-server, and says as
that does where it listens. Ends when it is killed."""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).parent / "proto"))
pb, services = grpc.protos_and_services("test.proto")

ECHO_INITIAL, ECHO_TRAILING = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"


def payload(size: int):
    return pb.Payload(body=bytes(size))


def echo_metadata(context: grpc.ServicerContext) -> None:
    received = dict(context.invocation_metadata())
    if ECHO_INITIAL in received:
        context.send_initial_metadata([(ECHO_INITIAL, received[ECHO_INITIAL])])
    if ECHO_TRAILING in received:
        context.set_trailing_metadata([(ECHO_TRAILING, received[ECHO_TRAILING])])


def echo_status(request, context: grpc.ServicerContext) -> None:
    """Ends the call when the request asks for a status."""
    if request.response_status.code:
        codes = {code.value[0]: code for code in grpc.StatusCode}
        context.abort(codes[request.response_status.code], request.response_status.message)


class TestService(services.TestServiceServicer):
    """What it does not define is answered with UNIMPLEMENTED. grpcio does not tell whether a message was compressed:
    what requests claim of that is not checked."""

    def EmptyCall(self, request, context):
        return pb.Empty()

    def UnaryCall(self, request, context):
        if request.response_compressed.value:
            context.set_compression(grpc.Compression.Gzip)
        echo_metadata(context)
        echo_status(request, context)
        return pb.SimpleResponse(payload=payload(request.response_size))

    def StreamingInputCall(self, request_iterator, context):
        total = sum(len(request.payload.body) for request in request_iterator)
        return pb.StreamingInputCallResponse(aggregated_payload_size=total)

    def StreamingOutputCall(self, request, context):
        context.set_compression(grpc.Compression.Gzip)
        yield from self.answers([request], context)

    def FullDuplexCall(self, request_iterator, context):
        echo_metadata(context)
        yield from self.answers(request_iterator, context)

    @staticmethod
    def answers(requests: Iterable, context: grpc.ServicerContext) -> Iterator:
        for request in requests:
            echo_status(request, context)
            for parameters in request.response_parameters:
                time.sleep(parameters.interval_us / 1e6)
                if not parameters.compressed.value:
                    context.disable_next_message_compression()
                yield pb.StreamingOutputCallResponse(payload=payload(parameters.size))


def credentials(options: argparse.Namespace) -> grpc.ServerCredentials:
    authority = options.client_ca.read_bytes() if options.client_ca else None
    pair = (options.key.read_bytes(), options.cert.read_bytes())
    return grpc.ssl_server_credentials([pair], authority, options.require_client_cert)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--unix", help="path of the socket")
    where.add_argument("--port", help="of 127.0.0.1; 0 is any free one")
    parser.add_argument("--cert", type=Path, help="file with a certificate; without it nothing is encrypted")
    parser.add_argument("--key", type=Path, help="file with its key")
    parser.add_argument("--client-ca", type=Path, help="file with who signs clients")
    parser.add_argument("--require-client-cert", action="store_true")
    options = parser.parse_args()

    server = grpc.server(ThreadPoolExecutor())
    services.add_TestServiceServicer_to_server(TestService(), server)
    address = f"unix:{options.unix}" if options.unix else f"127.0.0.1:{options.port}"
    if options.cert:
        port = server.add_secure_port(address, credentials(options))
    else:
        port = server.add_insecure_port(address)
    server.start()
    print("listening on", address if options.unix else f"127.0.0.1:{port}", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
