# SPDX-License-Identifier: Apache-2.0
"""Measures the Python clients, and the stubs that they are written on.

    python.py SOCKET SANDBOX hutch|aio|raw exec|up|down BYTES COUNT

Prints the microseconds that each took: a command; sending a file of BYTES from memory; taking it to nowhere."""

import asyncio
import sys
import time
from collections.abc import Iterator

import grpc

import hutch
import hutch.aio
from hutch.v1 import exec_pb2, exec_pb2_grpc, file_pb2, file_pb2_grpc

NAME = "measured"
PIECE = b"x" * (1 << 20)
ARGV = ["true"]


def pieces(size: int) -> Iterator[bytes]:
    for at in range(0, size, len(PIECE)):
        yield PIECE[: size - at]


def tell(seconds: float) -> None:
    print(seconds * 1e6)


def measure_sync(socket: str, sandbox: str, what: str, size: int, count: int) -> None:
    with hutch.Client(f"unix:{socket}") as client:
        box = client.sandbox(sandbox)
        for _ in range(count):
            started = time.perf_counter()
            if what == "exec":
                box.run(ARGV)
            elif what == "up":
                box.files.upload(NAME, pieces(size), size=size, overwrite=True, max_size=size)
            else:
                with box.files.download(NAME, max_size=size) as download:
                    assert sum(len(piece) for piece in download) == size
            tell(time.perf_counter() - started)


async def measure_async(socket: str, sandbox: str, what: str, size: int, count: int) -> None:
    async with hutch.aio.Client(f"unix:{socket}") as client:
        box = client.sandbox(sandbox)
        for _ in range(count):
            started = time.perf_counter()
            if what == "exec":
                await box.run(ARGV)
            elif what == "up":
                await box.files.upload(NAME, pieces(size), size=size, overwrite=True, max_size=size)
            else:
                came = 0
                async with box.files.download(NAME, max_size=size) as download:
                    async for piece in download:
                        came += len(piece)
                assert came == size
            tell(time.perf_counter() - started)


def requests(sandbox: str, size: int) -> Iterator[file_pb2.UploadFileRequest]:
    header = file_pb2.UploadFileHeader(
        sandbox_id=sandbox, path=NAME, size_bytes=size, overwrite=True, max_size_bytes=size
    )
    yield file_pb2.UploadFileRequest(header=header)
    for piece in pieces(size):
        yield file_pb2.UploadFileRequest(data=piece)


def measure_raw(socket: str, sandbox: str, what: str, size: int, count: int) -> None:
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        execs, files = exec_pb2_grpc.ExecServiceStub(channel), file_pb2_grpc.FileServiceStub(channel)
        for _ in range(count):
            started = time.perf_counter()
            if what == "exec":
                execs.RunCommand(exec_pb2.RunCommandRequest(sandbox_id=sandbox, spec=exec_pb2.ExecSpec(argv=ARGV)))
            elif what == "up":
                files.UploadFile(requests(sandbox, size))
            else:
                request = file_pb2.DownloadFileRequest(sandbox_id=sandbox, path=NAME, max_size_bytes=size)
                assert sum(len(answer.data) for answer in files.DownloadFile(request)) == size
            tell(time.perf_counter() - started)


def main() -> None:
    socket, sandbox, client, what, size, count = sys.argv[1:]
    arguments = (socket, sandbox, what, int(size), int(count))
    if client == "aio":
        asyncio.run(measure_async(*arguments))
    elif client == "hutch":
        measure_sync(*arguments)
    else:
        measure_raw(*arguments)


main()
