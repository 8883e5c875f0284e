# SPDX-License-Identifier: Apache-2.0
"""Files of a sandbox, as the tests use them."""

import hashlib
from collections.abc import Iterable, Iterator

from hutch.v1 import file_pb2, file_pb2_grpc
from hutchd import LIMIT, MIB, Client

CHUNK = MIB  # bytes in a message


def chunks_of(data: bytes, size: int = CHUNK) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def uploads(header: file_pb2.UploadFileHeader, chunks: Iterable[bytes]) -> Iterator[file_pb2.UploadFileRequest]:
    yield file_pb2.UploadFileRequest(header=header)
    for chunk in chunks:
        yield file_pb2.UploadFileRequest(data=chunk)


class Files:
    """The files of one sandbox, for one client."""

    def __init__(self, client: Client, sandbox_id: str, timeout: float = LIMIT):
        self.stub = file_pb2_grpc.FileServiceStub(client.channel)
        self.sandbox_id = sandbox_id
        self.timeout = timeout

    def stat(self, path: str = "", **more) -> file_pb2.FileInfo:
        request = file_pb2.StatFileRequest(sandbox_id=self.sandbox_id, path=path, **more)
        return self.stub.StatFile(request, timeout=self.timeout).file

    def read(self, path: str, **more) -> bytes:
        request = file_pb2.ReadFileRequest(sandbox_id=self.sandbox_id, path=path, **more)
        return self.stub.ReadFile(request, timeout=self.timeout).data

    def write(self, path: str, data: bytes = b"", **more) -> file_pb2.FileInfo:
        request = file_pb2.WriteFileRequest(sandbox_id=self.sandbox_id, path=path, data=data, **more)
        return self.stub.WriteFile(request, timeout=self.timeout).file

    def page(self, path: str, **more) -> file_pb2.ListFilesResponse:
        request = file_pb2.ListFilesRequest(sandbox_id=self.sandbox_id, path=path, **more)
        return self.stub.ListFiles(request, timeout=self.timeout)

    def names(self, path: str, **more) -> list[str]:
        return [file.path for file in self.page(path, **more).files]

    def make(self, path: str, **more) -> file_pb2.FileInfo:
        request = file_pb2.MakeDirectoryRequest(sandbox_id=self.sandbox_id, path=path, **more)
        return self.stub.MakeDirectory(request, timeout=self.timeout).file

    def move(self, source: str, target: str, **more) -> file_pb2.FileInfo:
        request = file_pb2.MoveFileRequest(sandbox_id=self.sandbox_id, source=source, target=target, **more)
        return self.stub.MoveFile(request, timeout=self.timeout).file

    def remove(self, path: str, **more) -> int:
        request = file_pb2.RemoveFileRequest(sandbox_id=self.sandbox_id, path=path, **more)
        return self.stub.RemoveFile(request, timeout=self.timeout).removed

    def upload(self, path: str, chunks: Iterable[bytes], **header) -> file_pb2.UploadFileResponse:
        begin = file_pb2.UploadFileHeader(sandbox_id=self.sandbox_id, path=path, **header)
        return self.stub.UploadFile(uploads(begin, chunks), timeout=self.timeout)

    def download(self, path: str, **more):
        """The call; its first answer is about the file."""
        request = file_pb2.DownloadFileRequest(sandbox_id=self.sandbox_id, path=path, **more)
        return self.stub.DownloadFile(request, timeout=self.timeout)

    def fetch(self, path: str, **more) -> tuple[file_pb2.FileInfo, bytes]:
        """A file, by its stream."""
        call = self.download(path, **more)
        about = next(call)
        assert about.WhichOneof("item") == "file"
        data = bytearray()
        for step in call:
            assert step.WhichOneof("item") == "data" and len(step.data) <= MIB
            data += step.data
        return about.file, bytes(data)

    def digest(self, path: str, **more) -> tuple[int, str]:
        """The size and the checksum of a file that need not fit into memory."""
        call, size, digest = self.download(path, **more), 0, hashlib.sha256()
        next(call)
        for step in call:
            size += len(step.data)
            digest.update(step.data)
        return size, digest.hexdigest()

    def unpack(self, path: str, archive: bytes, **header) -> file_pb2.UploadArchiveResponse:
        begin = file_pb2.UploadArchiveHeader(sandbox_id=self.sandbox_id, path=path, **header)

        def requests():
            yield file_pb2.UploadArchiveRequest(header=begin)
            for chunk in chunks_of(archive):
                yield file_pb2.UploadArchiveRequest(data=chunk)

        return self.stub.UploadArchive(requests(), timeout=self.timeout)

    def pack(self, path: str, **more) -> bytes:
        request = file_pb2.DownloadArchiveRequest(sandbox_id=self.sandbox_id, path=path, **more)
        return b"".join(step.data for step in self.stub.DownloadArchive(request, timeout=self.timeout))

    def watch(self, path: str, **more):
        request = file_pb2.WatchFilesRequest(sandbox_id=self.sandbox_id, path=path, **more)
        return self.stub.WatchFiles(request, timeout=self.timeout)

    def changes(self, path: str = "/", **more) -> file_pb2.ListChangesResponse:
        request = file_pb2.ListChangesRequest(sandbox_id=self.sandbox_id, path=path, **more)
        return self.stub.ListChanges(request, timeout=self.timeout)
