# SPDX-License-Identifier: Apache-2.0
"""Serves SystemService on the Unix socket that the command line names, and asks it: a sample of how the generated
Python code is used, type-checked and run by test_stubs.py."""

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
from hutch.v1 import sandbox_pb2, system_pb2, system_pb2_grpc


class System(system_pb2_grpc.SystemServiceServicer):
    def Ping(self, request: system_pb2.PingRequest, context: grpc.ServicerContext) -> system_pb2.PingResponse:
        return system_pb2.PingResponse()

    def GetInfo(self, request: system_pb2.GetInfoRequest, context: grpc.ServicerContext) -> system_pb2.GetInfoResponse:
        caps = sandbox_pb2.ResourceLimits(memory_bytes=0)
        return system_pb2.GetInfoResponse(version="1.2.3", limits=system_pb2.ServerLimits(caps=caps))


def main(address: str) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    system_pb2_grpc.add_SystemServiceServicer_to_server(System(), server)
    server.add_insecure_port(address)
    server.start()
    try:
        with grpc.insecure_channel(address) as channel:
            stub = system_pb2_grpc.SystemServiceStub(channel)
            answer: system_pb2.PingResponse = stub.Ping(system_pb2.PingRequest(), timeout=10)
            info = stub.GetInfo(system_pb2.GetInfoRequest(), timeout=10)
            limits = info.limits.caps
            print(answer == system_pb2.PingResponse(), info.version)
            print(limits.HasField("memory_bytes"), limits.HasField("disk_bytes"))
    finally:
        server.stop(None).wait()


if __name__ == "__main__":
    main(f"unix:{sys.argv[1]}")
