# SPDX-License-Identifier: Apache-2.0
"""Files of a sandbox."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from types import TracebackType

from google.protobuf.message import Message

from hutch._grpc_aio import Source, Stream, read_pieces, write_file
from hutch._results import MIB
from hutch._rules.checks import Checks
from hutch.aio._calls import Calls, Resume
from hutch.errors import HutchError, SandboxUnavailable, StreamIncomplete
from hutch.v1 import file_pb2

_DATA_MAX = MIB // 2  # bytes in one message; the daemon takes 1 MiB
_PAGE_SIZE = 1000


class Download:
    """The bytes of a file or an archive, in pieces as they come: `async for data in download`.

    `info` is about the file, from the first piece on. A lost connection is taken up again where it was lost; archives
    cannot be."""

    def __init__(self, calls: Calls, method: str, request: Message) -> None:
        self._calls = calls
        self._method = method
        self._request = request
        self._stream: Stream[file_pb2.DownloadFileResponse] | Stream[file_pb2.DownloadArchiveResponse] | None = None
        self._resume = Resume()
        self._ended = False
        self.info: file_pb2.FileInfo | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._ended:
            if self._stream is None:
                answer = await self._begin()
            else:
                try:
                    answer = await self._stream.read()
                except HutchError as error:
                    await self._lost(error)
                    continue
            if data := self._take(answer):
                return data
        raise StopAsyncIteration

    async def _begin(self) -> Message | None:
        answer: Message | None
        if isinstance(self._request, file_pb2.DownloadArchiveRequest):
            self._stream, answer = await self._calls.stream(
                self._method, self._request, file_pb2.DownloadArchiveResponse
            )
        else:
            self._stream, answer = await self._calls.stream(self._method, self._request, file_pb2.DownloadFileResponse)
        return answer

    def _take(self, answer: Message | None) -> bytes:
        """The bytes that a message has."""
        if answer is None:
            self._ended = True
            if isinstance(self._request, file_pb2.DownloadFileRequest) and self.info is None:
                raise StreamIncomplete("the daemon never told about the file", reason="STREAM_INCOMPLETE")
            return b""
        if isinstance(answer, file_pb2.DownloadArchiveResponse):
            return answer.data
        assert isinstance(answer, file_pb2.DownloadFileResponse)
        if answer.HasField("file"):
            self.info = self.info or answer.file
            return b""
        data = answer.data  # a copy, each time it is asked for
        self._resume.progressed()
        self._advance(len(data))
        return data

    def _advance(self, size: int) -> None:
        assert isinstance(self._request, file_pb2.DownloadFileRequest) and self.info is not None
        self._request.offset += size
        self._request.expected_version = self.info.version
        if self._request.HasField("length"):
            self._request.length = max(0, self._request.length - size)

    async def _lost(self, error: HutchError) -> None:
        assert self._stream is not None
        self._stream.cancel()
        if isinstance(self._request, file_pb2.DownloadArchiveRequest):
            raise error
        await self._resume.pause(error)
        self._stream = None

    async def read(self) -> bytes:
        """All that is left, in memory."""
        data = bytearray()
        async for piece in self:
            data += piece
        return bytes(data)

    async def save(self, path: str | os.PathLike[str]) -> int:
        """Writes all that is left into a file of this machine, and returns how many bytes that were."""
        size = 0
        with open(path, "wb") as file:
            async for piece in self:
                await write_file(file, piece)
                size += len(piece)
        return size

    async def close(self) -> None:
        """Stops reading."""
        if self._stream is not None:
            self._stream.cancel()

    async def __aenter__(self) -> Download:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class FileWatch:
    """What changes below a folder: `async for change in watch`. None stands for changes that came too fast and were
    lost: look at the folder anew."""

    def __init__(self, stream: Stream[file_pb2.WatchFilesResponse], folders: int) -> None:
        self._stream = stream
        self.folders = folders

    def __aiter__(self) -> AsyncIterator[file_pb2.FileChange | None]:
        return self

    async def __anext__(self) -> file_pb2.FileChange | None:
        answer = await self._stream.read()
        if answer is None:
            raise SandboxUnavailable("the daemon ended the watch", reason="STREAM_INCOMPLETE")
        return answer.change if answer.HasField("change") else None

    async def close(self) -> None:
        self._stream.cancel()

    async def __aenter__(self) -> FileWatch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Files:
    """The files of one sandbox. Paths are absolute, or stand below its working directory; ".." is refused."""

    def __init__(self, calls: Calls, sandbox_id: str) -> None:
        self._calls = calls
        self._id = sandbox_id

    def _check(self, *paths: tuple[str, str], mode: int | None = None, above: str = "") -> None:
        checks = Checks(above)
        checks.id("sandbox_id", self._id)
        for field, path in paths:
            checks.path(field, path)
        checks.mode("mode", mode)
        checks.done()

    async def read(
        self, path: str, *, offset: int = 0, length: int | None = None, expected_version: str = ""
    ) -> bytes:
        """The bytes of a small file (3 MiB), or of a part of one."""
        return (await self.read_with_info(path, offset=offset, length=length, expected_version=expected_version))[1]

    async def read_with_info(
        self, path: str, *, offset: int = 0, length: int | None = None, expected_version: str = ""
    ) -> tuple[file_pb2.FileInfo, bytes]:
        """The same, and about the file."""
        self._check(("path", path))
        request = file_pb2.ReadFileRequest(
            sandbox_id=self._id, path=path, offset=offset, length=length, expected_version=expected_version
        )
        answer = await self._calls.unary("FileService/ReadFile", request, file_pb2.ReadFileResponse)
        return answer.file, answer.data

    async def read_text(self, path: str, encoding: str = "utf-8") -> str:
        """A small file as text."""
        return (await self.read(path)).decode(encoding)

    async def write(
        self,
        path: str,
        data: bytes | str,
        *,
        mode: int | None = None,
        create_parents: bool = False,
        overwrite: bool = False,
        expected_version: str = "",
        request_id: str = "",
    ) -> file_pb2.FileInfo:
        """Writes a small file (3 MiB): all of it or nothing. A text is written as UTF-8."""
        self._check(("path", path), mode=mode)
        request = file_pb2.WriteFileRequest(
            sandbox_id=self._id,
            path=path,
            data=data.encode() if isinstance(data, str) else data,
            mode=mode,
            create_parents=create_parents,
            overwrite=overwrite,
            expected_version=expected_version,
            request_id=request_id,
        )
        return (await self._calls.unary("FileService/WriteFile", request, file_pb2.WriteFileResponse)).file

    async def upload(
        self,
        path: str,
        source: Source,
        *,
        mode: int | None = None,
        size: int | None = None,
        sha256: bytes = b"",
        create_parents: bool = False,
        overwrite: bool = False,
        upload_id: str = "",
        resume_offset: int = 0,
        max_size: int = 0,
    ) -> file_pb2.FileInfo:
        """Writes a file of any size: all of it or nothing. With an @upload_id one that broke can be gone on with, from
        the size that `stat_upload` tells."""
        self._check(("path", path), mode=mode, above="header.")
        header = file_pb2.UploadFileHeader(
            sandbox_id=self._id,
            path=path,
            mode=mode,
            size_bytes=size,
            sha256=sha256,
            create_parents=create_parents,
            overwrite=overwrite,
            upload_id=upload_id,
            resume_offset=resume_offset,
            max_size_bytes=max_size,
        )

        async def feed() -> AsyncIterator[Message]:
            async for piece in read_pieces(source, _DATA_MAX):
                yield file_pb2.UploadFileRequest(data=piece)

        answer = await self._calls.send(
            "FileService/UploadFile",
            file_pb2.UploadFileRequest(header=header),
            file_pb2.UploadFileResponse,
            feed,
        )
        return answer.file

    def download(
        self,
        path: str,
        *,
        offset: int = 0,
        length: int | None = None,
        expected_version: str = "",
        max_size: int = 0,
    ) -> Download:
        """The bytes of a file of any size, or of a part of it."""
        self._check(("path", path))
        request = file_pb2.DownloadFileRequest(
            sandbox_id=self._id,
            path=path,
            offset=offset,
            length=length,
            expected_version=expected_version,
            max_size_bytes=max_size,
        )
        return Download(self._calls, "FileService/DownloadFile", request)

    async def upload_archive(
        self,
        path: str,
        source: Source,
        *,
        compression: file_pb2.ArchiveCompression.ValueType = file_pb2.ARCHIVE_COMPRESSION_UNSPECIFIED,
        create_parents: bool = False,
        overwrite: bool = False,
        max_size: int = 0,
    ) -> file_pb2.UploadArchiveResponse:
        """Unpacks a tar (plain, gzip or zstd) into a folder."""
        self._check(("path", path), above="header.")
        header = file_pb2.UploadArchiveHeader(
            sandbox_id=self._id,
            path=path,
            compression=compression,
            create_parents=create_parents,
            overwrite=overwrite,
            max_size_bytes=max_size,
        )

        async def feed() -> AsyncIterator[Message]:
            async for piece in read_pieces(source, _DATA_MAX):
                yield file_pb2.UploadArchiveRequest(data=piece)

        return await self._calls.send(
            "FileService/UploadArchive",
            file_pb2.UploadArchiveRequest(header=header),
            file_pb2.UploadArchiveResponse,
            feed,
        )

    def download_archive(
        self,
        path: str,
        *,
        compression: file_pb2.ArchiveCompression.ValueType = file_pb2.ARCHIVE_COMPRESSION_UNSPECIFIED,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        ignore_file: str = "",
        max_size: int = 0,
    ) -> Download:
        """A folder as a tar."""
        self._check(("path", path))
        request = file_pb2.DownloadArchiveRequest(
            sandbox_id=self._id,
            path=path,
            compression=compression,
            include=include,
            exclude=exclude,
            ignore_file=ignore_file,
            max_size_bytes=max_size,
        )
        return Download(self._calls, "FileService/DownloadArchive", request)

    async def stat(self, path: str, *, follow_symlink: bool = False) -> file_pb2.FileInfo:
        """About what stands at a path."""
        self._check(("path", path))
        request = file_pb2.StatFileRequest(sandbox_id=self._id, path=path, follow_symlink=follow_symlink)
        return (await self._calls.unary("FileService/StatFile", request, file_pb2.StatFileResponse)).file

    async def stat_upload(self, upload_id: str) -> file_pb2.FileInfo:
        """About an upload that broke: its size is what the daemon has of it."""
        checks = Checks()
        checks.id("sandbox_id", self._id)
        checks.required("upload_id", upload_id)
        checks.done()
        request = file_pb2.StatFileRequest(sandbox_id=self._id, upload_id=upload_id)
        return (await self._calls.unary("FileService/StatFile", request, file_pb2.StatFileResponse)).file

    async def list(self, path: str = ".", *, depth: int = 0, glob: str = "") -> AsyncIterator[file_pb2.FileInfo]:
        """A folder's entries, in byte order of their paths."""
        async for page in self.list_pages(path, depth=depth, glob=glob):
            for file in page.files:
                yield file

    async def list_pages(
        self, path: str = ".", *, depth: int = 0, glob: str = "", page_size: int = _PAGE_SIZE
    ) -> AsyncIterator[file_pb2.ListFilesResponse]:
        """The same in pages, which tell when the folder changed in between."""
        self._check(("path", path))
        request = file_pb2.ListFilesRequest(
            sandbox_id=self._id, path=path, depth=depth, glob=glob, page_size=page_size
        )
        while True:
            page = await self._calls.unary("FileService/ListFiles", request, file_pb2.ListFilesResponse)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def changes(self, path: str = "/") -> AsyncIterator[file_pb2.ImageChange]:
        """In which files of its own the sandbox differs from its image."""
        async for page in self.change_pages(path):
            for change in page.changes:
                yield change

    async def change_pages(
        self, path: str = "/", *, page_size: int = _PAGE_SIZE
    ) -> AsyncIterator[file_pb2.ListChangesResponse]:
        """The same in pages, which tell when something had to be left out."""
        self._check(("path", path))
        request = file_pb2.ListChangesRequest(sandbox_id=self._id, path=path, page_size=page_size)
        while True:
            page = await self._calls.unary("FileService/ListChanges", request, file_pb2.ListChangesResponse)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def mkdir(
        self, path: str, *, mode: int | None = None, create_parents: bool = False, request_id: str = ""
    ) -> file_pb2.FileInfo:
        """Makes a folder."""
        self._check(("path", path), mode=mode)
        request = file_pb2.MakeDirectoryRequest(
            sandbox_id=self._id, path=path, mode=mode, create_parents=create_parents, request_id=request_id
        )
        return (await self._calls.unary("FileService/MakeDirectory", request, file_pb2.MakeDirectoryResponse)).file

    async def move(
        self,
        source: str,
        target: str,
        *,
        overwrite: bool = False,
        create_parents: bool = False,
        request_id: str = "",
    ) -> file_pb2.FileInfo:
        """Renames a file or folder; @target is the new path itself."""
        self._check(("source", source), ("target", target))
        request = file_pb2.MoveFileRequest(
            sandbox_id=self._id,
            source=source,
            target=target,
            overwrite=overwrite,
            create_parents=create_parents,
            request_id=request_id,
        )
        return (await self._calls.unary("FileService/MoveFile", request, file_pb2.MoveFileResponse)).file

    async def remove(
        self, path: str, *, recursive: bool = False, ignore_missing: bool = False, request_id: str = ""
    ) -> int:
        """Removes a file or folder, and returns how many things that were."""
        self._check(("path", path))
        request = file_pb2.RemoveFileRequest(
            sandbox_id=self._id,
            path=path,
            recursive=recursive,
            ignore_missing=ignore_missing,
            request_id=request_id,
        )
        return (await self._calls.unary("FileService/RemoveFile", request, file_pb2.RemoveFileResponse)).removed

    async def watch(self, path: str = ".", *, recursive: bool = False) -> FileWatch:
        """Watches a folder; returns when changes from then on are told."""
        self._check(("path", path))
        request = file_pb2.WatchFilesRequest(sandbox_id=self._id, path=path, recursive=recursive)
        stream, answer = await self._calls.stream("FileService/WatchFiles", request, file_pb2.WatchFilesResponse)
        if answer is None:
            raise SandboxUnavailable("the daemon ended the watch", reason="STREAM_INCOMPLETE")
        return FileWatch(stream, answer.started.folders)
