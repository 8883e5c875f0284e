# SPDX-License-Identifier: Apache-2.0
"""Reads one call of Download with grpcio for a while, and prints how many bytes came in a second:
client.py PATH SIZE SECONDS."""

import sys
import time

import echo_pb2
import echo_pb2_grpc
import grpc


def main(path: str, size: str, seconds: str) -> None:
    with grpc.insecure_channel(f"unix:{path}") as channel:
        call = echo_pb2_grpc.EchoStub(channel).Download(echo_pb2.DownloadRequest(size=int(size)))
        next(call)
        started, count = time.monotonic(), 0
        while time.monotonic() - started < int(seconds):
            count += len(next(call).payload)
        print(f"{count / (time.monotonic() - started):.0f}")
        call.cancel()


main(*sys.argv[1:])
