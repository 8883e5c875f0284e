# SPDX-License-Identifier: Apache-2.0
"""A daemon that does as a test tells it: a gRPC server whose methods are functions of the test."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2


class Fake(grpc.GenericRpcHandler):
    """Methods are given by name; each gets the messages (bytes) and the context, and gives messages."""

    def __init__(self, folder: Path, credentials: grpc.ServerCredentials | None = None, **methods) -> None:
        self.methods = methods
        self.calls: list[str] = []
        self.server = grpc.server(ThreadPoolExecutor(16), handlers=[self])
        if credentials:
            self.address = f"127.0.0.1:{self.server.add_secure_port('127.0.0.1:0', credentials)}"
        else:
            self.address = f"unix:{folder}/fake.sock"
            self.server.add_insecure_port(self.address)

    def service(self, handler_call_details):
        method = handler_call_details.method.rsplit("/", 1)[1]
        function = self.methods.get(method)
        if function is None:
            return None

        def run(messages, context):
            self.calls.append(method)
            yield from function(messages, context)

        return grpc.stream_stream_rpc_method_handler(run)

    def __enter__(self) -> "Fake":
        self.server.start()
        return self

    def __exit__(self, *_error) -> None:
        self.server.stop(None).wait()


def refuse(context: grpc.ServicerContext, code: str, reason: str, **metadata: str) -> None:
    """Ends the call as the daemon does."""
    status = status_pb2.Status(code=grpc.StatusCode[code].value[0], message="it says why")
    info = error_details_pb2.ErrorInfo(domain="hutch", reason=reason, metadata=metadata)
    status.details.append(any_pb2.Any())
    status.details[0].Pack(info)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode[code], status.message)
