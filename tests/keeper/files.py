# SPDX-License-Identifier: Apache-2.0
"""Files of a sandbox, as the daemon asks its keeper for them."""

import hashlib

import grpc
from google.rpc import error_details_pb2, status_pb2
from keeper import LIMIT, Keeper

CHUNK = 256 * 1024
GIB = 1 << 30


def messages():
    """The messages; to be imported when there are stubs."""
    from hutch.v1 import file_pb2  # pylint: disable=import-outside-toplevel

    return file_pb2


def error_of(error: grpc.RpcError) -> error_details_pb2.ErrorInfo:
    """What the details of a failed call say."""
    info = error_details_pb2.ErrorInfo()
    for name, value in error.trailing_metadata() or ():
        if name == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                detail.Unpack(info)
    return info


def reason_of(error: grpc.RpcError) -> str:
    return error_of(error).reason or f"{error.code()}: {error.details()}"


class Files:
    """A client of a keeper's FileService, for one user."""

    def __init__(self, keeper: Keeper, user: str = "1000"):
        from hutch.v1 import file_pb2_grpc  # pylint: disable=import-outside-toplevel

        self.keeper = keeper
        self.metadata = [("hutch-user", user)]
        self.stub = file_pb2_grpc.FileServiceStub(keeper.channel)

    def call(self, method: str, request, key: str = "", timeout: float = LIMIT):
        """A unary call; @key: its fingerprint and name."""
        metadata = self.metadata + ([("hutch-key", key)] if key else [])
        return getattr(self.stub, method)(request, timeout=timeout, metadata=metadata, wait_for_ready=True)

    def stat(self, path: str, **values):
        return self.call("StatFile", messages().StatFileRequest(path=path, **values)).file

    def read(self, path: str, **values):
        return self.call("ReadFile", messages().ReadFileRequest(path=path, **values))

    def write(self, path: str, data: bytes = b"", key: str = "", **values):
        return self.call("WriteFile", messages().WriteFileRequest(path=path, data=data, **values), key).file

    def make(self, path: str, key: str = "", **values):
        return self.call("MakeDirectory", messages().MakeDirectoryRequest(path=path, **values), key).file

    def move(self, source: str, target: str, key: str = "", **values):
        request = messages().MoveFileRequest(source=source, target=target, **values)
        return self.call("MoveFile", request, key).file

    def remove(self, path: str, key: str = "", **values) -> int:
        return self.call("RemoveFile", messages().RemoveFileRequest(path=path, **values), key).removed

    def page(self, path: str, **values):
        return self.call("ListFiles", messages().ListFilesRequest(path=path, **values))

    def list(self, path: str, **values) -> list:
        """All pages of a listing."""
        found, token = [], ""
        while True:
            page = self.page(path, page_token=token, **values)
            found += page.files
            token = page.next_page_token
            if not token:
                return found

    def open(self, path: str, timeout: float | None = LIMIT, **values):
        """A download, as a stream."""
        request = messages().DownloadFileRequest(path=path, **({"max_size_bytes": 4 * GIB} | values))
        return self.stub.DownloadFile(request, timeout=timeout, metadata=self.metadata, wait_for_ready=True)

    def download(self, path: str, **values) -> tuple:
        """What is told about a file, and its bytes."""
        stream = self.open(path, **values)
        first = next(stream)
        return first.file, b"".join(item.data for item in stream)

    def upload(self, path: str, data=b"", key: str = "", **values):
        """Uploads bytes, or an iterable of them."""
        return self.begin_upload(path, data, key, **values).result(LIMIT)

    def begin_upload(self, path: str, data=b"", key: str = "", timeout: float = LIMIT, **values):
        chunks = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)] if isinstance(data, bytes) else data
        metadata = self.metadata + ([("hutch-key", key)] if key else [])
        header = messages().UploadFileHeader(path=path, **({"max_size_bytes": 4 * GIB} | values))

        def requests():
            yield messages().UploadFileRequest(header=header)
            for chunk in chunks:
                yield messages().UploadFileRequest(data=chunk)

        return self.stub.UploadFile.future(requests(), timeout=timeout, metadata=metadata, wait_for_ready=True)

    def refused(self, method: str, *args, **values) -> str:
        """The reason why a call fails."""
        try:
            getattr(self, method)(*args, **values)
        except grpc.RpcError as error:
            return reason_of(error)
        raise AssertionError(f"{method} {args} was not refused")


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
