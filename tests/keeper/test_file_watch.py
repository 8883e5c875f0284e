# SPDX-License-Identifier: Apache-2.0
"""Watching folders in a real sandbox."""

import itertools

import grpc
import pytest
from files import Files, messages, reason_of
from keeper import LIMIT

NUMBERS = itertools.count()


@pytest.fixture(name="files", scope="module")
def make_files(keeper):
    return Files(keeper)


@pytest.fixture(name="folder")
def make_folder(files):
    """A new folder of the sandbox's user."""
    path = f"/workspace/watch-{next(NUMBERS)}"
    files.make(path)
    yield path
    files.remove(path, recursive=True, ignore_missing=True)


def shell(keeper, script: str) -> None:
    ran = keeper.shell(script, user="1000")
    assert ran.end.wait_status == 0, keeper.output(ran.exec_id, "err")


def watch(files, path: str, **values):
    request = messages().WatchFilesRequest(path=path, **values)
    return files.stub.WatchFiles(request, timeout=LIMIT, metadata=files.metadata, wait_for_ready=True)


def read_until(stream, path: str) -> list[tuple[str, str]]:
    """The kinds and paths of changes, up to the one of @path."""
    told = []
    for item in stream:
        told.append((messages().FileChangeType.Name(item.change.type)[len("FILE_CHANGE_TYPE_") :], item.change.path))
        if item.change.path == path:
            break
    return told


def test_what_programs_and_callers_change_is_told(keeper, files, folder):
    files.make(f"{folder}/d")
    stream = watch(files, folder, recursive=True)
    assert next(stream).started.folders == 2
    shell(keeper, f"cd {folder}; echo hello >d/file; mv d/file moved; rm moved; mkdir new")
    files.write(f"{folder}/end")
    told = read_until(stream, f"{folder}/end")
    wanted = [("CREATED", "d/file"), ("MOVED", "moved"), ("DELETED", "moved"), ("CREATED", "new"), ("CREATED", "end")]
    told = [(kind, path.removeprefix(f"{folder}/")) for kind, path in told if kind != "WRITTEN"]
    assert told == wanted
    stream.cancel()


def test_many_watch_at_once_and_leave_room_for_others(keeper, files, folder):
    streams = [watch(files, folder) for _ in range(8)]
    for stream in streams:
        assert next(stream).started.folders == 1
    files.write(f"{folder}/end")
    for stream in streams:
        assert ("CREATED", f"{folder}/end") in read_until(stream, f"{folder}/end")
        stream.cancel()


def test_what_cannot_be_watched_is_told(files, folder):
    files.write(f"{folder}/file")
    for path, reason in [(f"{folder}/none", "FILE_NOT_FOUND"), (f"{folder}/file", "NOT_A_DIRECTORY")]:
        with pytest.raises(grpc.RpcError) as failed:
            next(watch(files, path))
        assert reason_of(failed.value) == reason


def test_a_watch_ends_when_its_folder_is_removed(files, folder):
    files.make(f"{folder}/top")
    stream = watch(files, f"{folder}/top")
    next(stream)
    files.remove(f"{folder}/top")
    with pytest.raises(grpc.RpcError) as failed:
        list(stream)
    assert reason_of(failed.value) == "FILE_NOT_FOUND"
