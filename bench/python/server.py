# SPDX-License-Identifier: Apache-2.0
"""The server of echo.proto on grpcio and asyncio: server.py PORT PATH."""

import asyncio
import sys

import echo_pb2
import echo_pb2_grpc
import grpc


class Echo(echo_pb2_grpc.EchoServicer):
    async def Unary(self, request, context):
        return echo_pb2.Message(payload=request.payload)

    async def Download(self, request, context):
        message = echo_pb2.Message(payload=bytes(request.size))
        while True:
            yield message

    async def Hold(self, requests, context):
        async for _ in requests:
            pass
        return
        yield  # which makes this a stream


async def main(port: str, path: str) -> None:
    server = grpc.aio.server()
    echo_pb2_grpc.add_EchoServicer_to_server(Echo(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    await server.wait_for_termination()


asyncio.run(main(*sys.argv[1:]))
