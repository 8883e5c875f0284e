# SPDX-License-Identifier: Apache-2.0
"""File work that is cut short at any moment, by whom ever, or has no room; and much of it. HUTCH_FILES_LONG=1 has each
test do as much as it is meant for, which takes minutes."""

import hashlib
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import grpc
import pytest
from hutch.v1 import file_pb2
from hutchd import LIMIT, MIB, Daemon, Refusal, is_alive, state_name, wait_until
from sandbox_files import Files
from test_file_transfers import LONG, UPLOADER, Gated, drafts

IS_LONG = os.environ.get("HUTCH_FILES_LONG") == "1"
GIB = 1024 * MIB


@pytest.fixture(name="files")
def make_files(daemon, sandbox):
    return Files(daemon, sandbox, timeout=1200 if IS_LONG else LONG)


# ---- Much ----


def sparse(size: int):
    """A file's pieces: some bytes at the beginning, in the middle and at the end, and zeros."""
    zeros, marks = bytes(MIB), {0, size // MIB // 2, (size - 1) // MIB}
    for number in range(size // MIB):
        yield (b"%08d" % number) * (MIB // 8) if number in marks else zeros


def test_a_large_file_goes_in_and_out_whole(daemon):
    size = 4 * GIB if IS_LONG else 64 * MIB
    sandbox = daemon.ready(limits={"disk_bytes": 2 * size})
    files = Files(daemon, sandbox, timeout=1200 if IS_LONG else LONG)
    digest = hashlib.sha256()
    for piece in sparse(size):
        digest.update(piece)
    answer = files.upload("big", sparse(size), size_bytes=size, sha256=digest.digest(), max_size_bytes=size)
    assert (answer.file.size_bytes, answer.sha256) == (size, digest.digest())
    assert files.digest("big", max_size_bytes=size) == (size, digest.hexdigest())
    daemon.remove(sandbox)


def test_many_small_files_go_in_and_out_as_an_archive(daemon, files):
    count = 100_000 if IS_LONG else 5_000
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for number in range(count):
            data = b"%d" % number
            info = tarfile.TarInfo(f"d{number % 100}/f{number}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    told = files.unpack("many", target.getvalue(), create_parents=True)
    assert told.entries == count
    assert daemon.shell(files.sandbox_id, "find many -type f | wc -l").strip() == str(count)
    back = files.pack("many", compression=file_pb2.ARCHIVE_COMPRESSION_ZSTD)
    assert files.unpack("again", back, create_parents=True).entries == count + 100
    packed = files.pack("again")
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        found = {info.name: tar.extractfile(info).read() for info in tar if info.isfile()}
    assert found == {f"d{number % 100}/f{number}": b"%d" % number for number in range(count)}


# ---- Ends ----


@pytest.mark.rules("FILE-002")
def test_a_client_is_killed_at_any_moment(daemon, files):
    """Either the old file or all of the new one is there, and nothing else."""
    whole = 8
    files.write("a", b"old")
    arguments = [":".join(sys.path), daemon.socket, files.sandbox_id, str(whole)]
    script = UPLOADER.replace("    time.sleep(1000)\n", "")
    for _ in range(100 if IS_LONG else 8):
        with subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE) as client:
            time.sleep(0.2 + random.random() * 0.5)
            client.kill()
        wait_until(lambda: drafts(daemon, files.sandbox_id) == "a\n")
        assert files.stat("a").size_bytes in (3, whole * MIB)


@pytest.mark.parametrize("moment", range(20 if IS_LONG else 4))
def test_the_daemon_is_killed_at_any_moment_and_the_upload_goes_on(own_daemon, moment):
    sandbox = own_daemon.ready()
    files = Files(own_daemon, sandbox, timeout=LONG)
    data = os.urandom(16 * MIB)
    files.write("a", b"old")
    upload = Gated(files, "a", upload_id="u", overwrite=True)
    upload.send(data[: (moment % 4) * 4 * MIB])
    time.sleep(random.random() * 0.2)
    own_daemon.restart(kill=True)
    upload.chunks.put(None)
    files = Files(own_daemon, sandbox, timeout=LONG)
    assert files.read("a") == b"old"
    try:
        there = files.stat(upload_id="u").size_bytes
    except grpc.RpcError as error:
        assert Refusal(error).reason == "UPLOAD_NOT_FOUND"  # it had not begun
        there = 0
    header = {"upload_id": "u", "resume_offset": there, "overwrite": True}
    answer = files.upload("a", [data[at : at + MIB] for at in range(there, len(data), MIB)], **header)
    assert answer.sha256 == hashlib.sha256(data).digest()
    assert drafts(own_daemon, sandbox) == "a\n"


@pytest.mark.rules("FILE-002")
@pytest.mark.parametrize("moment", range(20 if IS_LONG else 4))
def test_the_keeper_is_killed_at_any_moment(daemon, moment):
    """Its sandbox fails, and has the old file and nothing else."""
    sandbox = daemon.ready()
    files = Files(daemon, sandbox, timeout=LONG)
    files.write("a", b"old")
    folder = daemon.sandbox_folder(sandbox) / "fs" / "workspace"
    upload = Gated(files, "a", overwrite=True)
    upload.send(bytes((moment % 4) * 4 * MIB))
    time.sleep(random.random() * 0.2)
    keeper = daemon.keeper(sandbox)
    os.kill(keeper, signal.SIGKILL)
    with pytest.raises(grpc.RpcError):
        upload.call.result(LONG)
    upload.chunks.put(None)
    daemon.wait(sandbox, "FAILED")
    assert not is_alive(keeper)
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("a", b"old")]
    daemon.remove(sandbox)


# ---- Copies ----


@pytest.fixture(name="copying", scope="module")
def start_copying():
    """A daemon of whose host a folder may be copied."""
    folder = Path(tempfile.mkdtemp(prefix="copies-of-hutch-", dir="/tmp"))
    (folder / "tree").mkdir()
    for number in range(3000):
        (folder / "tree" / str(number)).write_bytes(b"x" * 5000)
    daemon = Daemon({"sources": {"read": [str(folder)]}})
    daemon.begin()
    yield daemon, str(folder / "tree")
    daemon.finish()
    shutil.rmtree(folder)


@pytest.mark.parametrize("limits", [{"disk_bytes": 4 * MIB}, {"disk_inodes": 1000}])
def test_copies_that_are_too_much_fail_the_sandbox(copying, limits):
    daemon, tree = copying
    sandbox = daemon.create(copies=[{"source": tree, "target": "/workspace/t"}], limits=limits).id
    failed = daemon.wait(sandbox, "READY", "FAILED")
    assert state_name(failed) == "FAILED" and "more than it may have on disk" in failed.state_message
    assert "/workspace/t" in failed.state_message
    daemon.remove(sandbox)


def test_the_keeper_is_killed_while_it_copies(copying):
    """The sandbox fails or is made whole; nothing of it is left when it is deleted."""
    daemon, tree = copying
    for _ in range(20 if IS_LONG else 3):
        sandbox = daemon.create(copies=[{"source": tree, "target": "/workspace/t"}]).id
        folder = daemon.sandbox_folder(sandbox) / "fs" / "workspace" / "t"
        wait_until(folder.exists)
        time.sleep(random.random() * 0.1)
        daemon.kill_keepers(sandbox)
        assert state_name(daemon.wait(sandbox, "FAILED")) == "FAILED"
        daemon.remove(sandbox)
        assert not daemon.leftovers(sandbox)


# ---- No room ----


@pytest.fixture(name="small")
def make_small(daemon):
    sandbox = daemon.ready(limits={"disk_bytes": 16 * MIB, "disk_inodes": 1000})
    yield Files(daemon, sandbox, timeout=LONG)
    daemon.remove(sandbox)


def is_full(files: Files) -> bool:
    try:
        files.write("probe", b"x", overwrite=True)
    except grpc.RpcError as error:
        assert Refusal(error).reason == "DISK_FULL", error
        return True
    return False


def test_an_archive_that_is_too_much_is_told(daemon, small):
    """It ends with the reason, or the sandbox is found to have too much afterwards. What came stays, and is whole."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for number in range(64):
            info = tarfile.TarInfo(f"f{number}")
            info.size = MIB
            tar.addfile(info, io.BytesIO(bytes(MIB)))
    try:
        small.unpack("t", target.getvalue(), create_parents=True)
    except grpc.RpcError as error:
        assert Refusal(error).reason == "DISK_FULL", error
    wait_until(lambda: is_full(small), limit=2 * LIMIT)  # found late while others remove files
    listed = small.page("t", page_size=1000).files
    assert listed and {file.size_bytes for file in listed} == {MIB}
    small.remove("t", recursive=True)
    wait_until(lambda: not is_full(small))
    assert set(drafts(daemon, small.sandbox_id).split()) <= {"probe"}
