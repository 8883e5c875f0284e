# SPDX-License-Identifier: Apache-2.0
"""Files: in and out, of any size, and what changes."""

import hashlib
import io
import tarfile

import pytest

from hutch import Aborted, AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, OutOfRange, ResourceExhausted
from hutch.aio import Client
from hutch.v1 import file_pb2

BIG = bytes(range(256)) * 12_000  # 3 MB


async def test_small_files_are_written_and_read(address):
    async with Client(address) as client, await client.create() as sandbox:
        files = sandbox.files
        info = await files.write("a/b.txt", "grün\n", create_parents=True, mode=0o640)
        assert (info.path, info.size_bytes, info.mode) == ("/workspace/a/b.txt", 6, 0o640)
        assert await files.read_text("a/b.txt") == "grün\n"
        assert await files.read("/workspace/a/b.txt", offset=1, length=2) == b"r\xc3"
        with pytest.raises(AlreadyExists) as there:
            await files.write("a/b.txt", b"")
        assert there.value.reason == "FILE_EXISTS"
        await files.write("a/b.txt", b"", overwrite=True, expected_version=info.version)
        with pytest.raises(Aborted) as changed:
            await files.read("a/b.txt", expected_version=info.version)
        assert changed.value.reason == "FILE_CHANGED"
        assert await files.read("a/b.txt") == b""
        with pytest.raises(ResourceExhausted) as large:
            await files.write("large", bytes(5 << 20))
        assert large.value.reason == "MESSAGE_TOO_LARGE"
        assert large.value.metadata == {"limit": "max_request_bytes", "value": str(4 << 20)}


async def test_files_of_any_size_go_up_and_down(address, tmp_path):
    async with Client(address) as client, await client.create() as sandbox:
        files = sandbox.files
        digest = hashlib.sha256(BIG).digest()
        local = tmp_path / "big"
        local.write_bytes(BIG)
        pieces = (BIG[at : at + 100_000] for at in range(0, len(BIG), 100_000))
        for name, source in (("bytes", BIG), ("path", local), ("file", io.BytesIO(BIG)), ("pieces", pieces)):
            info = await files.upload(name, source, size=len(BIG), sha256=digest)
            assert (info.path, info.size_bytes) == (f"/workspace/{name}", len(BIG))
        async with files.download("pieces") as download:
            assert await download.read() == BIG
            assert download.info is not None and download.info.size_bytes == len(BIG)
        assert await files.download("bytes", offset=1000, length=5).read() == BIG[1000:1005]
        assert await files.download("path").save(tmp_path / "back") == len(BIG)
        assert (tmp_path / "back").read_bytes() == BIG
        with pytest.raises(OutOfRange) as beyond:
            await files.download("path", offset=len(BIG) + 1).read()
        assert beyond.value.reason == "OFFSET_OUT_OF_RANGE"
        await files.upload("empty", b"")
        assert await files.download("empty").read() == b""


async def test_what_is_wrong_with_an_upload_is_told_and_leaves_nothing(address):
    async with Client(address) as client, await client.create() as sandbox:
        files = sandbox.files
        with pytest.raises(InvalidArgument) as wrong:
            await files.upload("wrong", BIG, sha256=bytes(32))
        assert wrong.value.reason == "CHECKSUM_MISMATCH"
        with pytest.raises(InvalidArgument) as short:
            await files.upload("wrong", BIG, size=len(BIG) + 1)
        assert short.value.reason == "SIZE_MISMATCH"
        with pytest.raises(NotFound) as parent:
            await files.upload("no/parent", iter([BIG, BIG, BIG]))
        assert parent.value.reason == "FILE_NOT_FOUND"
        assert [file.name async for file in files.list()] == []


async def test_folders_go_as_archives(address):
    async with Client(address) as client, await client.create() as sandbox:
        files = sandbox.files
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, text in (("one.txt", b"1"), ("two.log", b"22"), ("deep/three.txt", b"333")):
                entry = tarfile.TarInfo(name)
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text))
        told = await files.upload_archive("tree", packed.getvalue(), create_parents=True)
        assert (told.entries, told.size_bytes) == (3, 6)
        back = await files.download_archive("tree", exclude=["*.log"]).read()
        with tarfile.open(fileobj=io.BytesIO(back)) as archive:
            names = {member.name.removeprefix("./") for member in archive if member.isfile()}
        assert names == {"one.txt", "deep/three.txt"}
        with pytest.raises(InvalidArgument):
            await files.upload_archive("tree", b"this is no tar at all" * 100)


async def test_files_are_looked_after(address):
    async with Client(address) as client, await client.create() as sandbox:
        files = sandbox.files
        made = await files.mkdir("a/b/c", create_parents=True)
        assert made.type == file_pb2.FILE_TYPE_DIRECTORY
        await files.write("a/x", b"x")
        assert (await files.move("a/x", "a/b/y")).path == "/workspace/a/b/y"
        assert [file.path async for file in files.list("a", depth=3)] == [
            "/workspace/a/b",
            "/workspace/a/b/c",
            "/workspace/a/b/y",
        ]
        assert (await files.stat("a/b/y")).size_bytes == 1
        with pytest.raises(FailedPrecondition) as full:
            await files.remove("a")
        assert full.value.reason == "DIRECTORY_NOT_EMPTY"
        assert await files.remove("a", recursive=True) == 4
        assert await files.remove("a", ignore_missing=True) == 0
        many = {f"{i:04}" for i in range(1200)}
        await sandbox.run(["sh", "-c", "mkdir many && cd many && seq -w 0 1199 | xargs touch"])
        assert {file.name async for file in files.list("many")} == many


async def test_changes_are_watched(address):
    async with Client(address) as client, await client.create() as sandbox:
        async with await sandbox.files.watch("/workspace", recursive=True) as watch:
            await sandbox.run(["sh", "-c", "echo x > new && rm new"])
            seen = []
            async for change in watch:
                assert change is not None
                seen.append((file_pb2.FileChangeType.Name(change.type), change.path))
                if change.type == file_pb2.FILE_CHANGE_TYPE_DELETED:
                    break
            assert ("FILE_CHANGE_TYPE_CREATED", "/workspace/new") in seen
            assert seen[-1] == ("FILE_CHANGE_TYPE_DELETED", "/workspace/new")


async def test_a_broken_upload_is_resumed(address, unique):
    async with Client(address) as client, await client.create() as sandbox:
        files = sandbox.files

        def breaking():
            yield BIG[:1_000_000]
            raise KeyError("the source breaks")

        with pytest.raises(KeyError):
            await files.upload("resumed", breaking(), upload_id=unique)
        had = (await files.stat_upload(unique)).size_bytes
        assert 0 <= had <= 1_000_000
        digest = hashlib.sha256(BIG).digest()
        await files.upload("resumed", BIG[had:], upload_id=unique, resume_offset=had, sha256=digest)
        assert await files.download("resumed").read() == BIG


async def test_paths_that_break_a_rule_are_refused_before_any_call():
    async with Client("unix:/nonexistent/socket") as client:
        files = client.sandbox("some-sandbox").files
        with pytest.raises(InvalidArgument) as refused:
            await files.move("a/../b", "~/c")
        assert [(one.field, one.reason) for one in refused.value.violations] == [
            ("source", "PATH_DOTDOT"),
            ("target", "PATH_TILDE"),
        ]
        with pytest.raises(InvalidArgument) as refused:
            await files.remove("", recursive=True)
        assert refused.value.reason == "PATH_EMPTY"
        with pytest.raises(InvalidArgument) as refused:
            await files.upload("x\n", b"", mode=0o4755)
        assert [one.field for one in refused.value.violations] == ["header.path", "header.mode"]
        with pytest.raises(InvalidArgument) as refused:
            await files.write("\udcff", b"")
        assert refused.value.reason == "PATH_NOT_UTF8"
