# SPDX-License-Identifier: Apache-2.0
"""Transfers: sizes, many at once, clients that are slow or vanish, states that change, ends of daemon and keeper."""

import concurrent.futures
import hashlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time

import grpc
import pytest
from host import PATIENCE
from hutch.v1 import file_pb2
from hutchd import BUILD, LIMIT, MIB, Refusal, is_alive, memory_of, refused, seconds, state_name, wait_until
from sandbox_files import Files, chunks_of, uploads

LONG = int(100 * PATIENCE)  # seconds, for what moves much
GROWTH = 24 * MIB  # that a process may have while much passes through it
SIZES = [0, 1, 4095, 4096, MIB - 1, MIB, MIB + 1, 10 * MIB + 7, 200 * MIB]


@pytest.fixture(name="files")
def make_files(daemon, sandbox):
    return Files(daemon, sandbox, timeout=LONG)


def pattern(size: int, seed: int = 0) -> bytes:
    """Bytes that are the same nowhere."""
    block = b"".join(hashlib.sha256(b"%d %d" % (seed, n)).digest() for n in range(1024))
    return (block * (size // len(block) + 1))[:size]


class Gated:
    """An upload whose bytes come when the test says so."""

    def __init__(self, files: Files, path: str, **header):
        self.chunks: queue.SimpleQueue = queue.SimpleQueue()
        begin = file_pb2.UploadFileHeader(sandbox_id=files.sandbox_id, path=path, **header)
        self.call = files.stub.UploadFile.future(uploads(begin, iter(self.chunks.get, None)), timeout=LONG)

    def send(self, data: bytes) -> None:
        for chunk in chunks_of(data):
            self.chunks.put(chunk)

    def finish(self):
        self.chunks.put(None)
        return self.call.result(LONG)


# ---- Sizes ----


@pytest.mark.parametrize("size", SIZES)
def test_files_go_in_and_out_whole(daemon, files, size):
    data = pattern(size)
    digest = hashlib.sha256(data)
    answer = files.upload("big", chunks_of(data), size_bytes=size, sha256=digest.digest())
    assert (answer.file.size_bytes, answer.sha256) == (size, digest.digest())
    assert daemon.shell(files.sandbox_id, "sha256sum < big").split()[0] == digest.hexdigest()
    assert files.digest("big") == (size, digest.hexdigest())


@pytest.mark.rules("FILE-018")
def test_a_gibibyte_passes_through_little_memory(daemon, files):
    size, chunk = 1024 * MIB, pattern(MIB)
    digest = hashlib.sha256(chunk * 1024).hexdigest()
    processes = [daemon.process.pid, daemon.keeper(files.sandbox_id)]
    files.write("warm", b"x" * 3 * MIB)
    files.read("warm")
    before = [memory_of(pid) for pid in processes]
    seen = [0] * len(processes)

    def watch() -> None:
        for i, pid in enumerate(processes):
            seen[i] = max(seen[i], memory_of(pid))

    def chunks():
        for n in range(1024):
            if n % 64 == 0:
                watch()
            yield chunk

    files.upload("big", chunks(), max_size_bytes=size)
    call, got, received = files.download("big", max_size_bytes=size), hashlib.sha256(), 0
    assert next(call).file.size_bytes == size
    for step in call:
        got.update(step.data)
        received += len(step.data)
        if received % (64 * MIB) < MIB:
            watch()
    assert (received, got.hexdigest()) == (size, digest)
    assert all(now - then < GROWTH for now, then in zip(seen, before)), (before, seen)


@pytest.mark.rules("FILE-018")
def test_slow_readers_and_writers_cost_no_memory(daemon, files):
    daemon.shell(files.sandbox_id, f"head -c {100 * MIB} /dev/zero > big")
    processes = [daemon.process.pid, daemon.keeper(files.sandbox_id)]
    before = [memory_of(pid) for pid in processes]
    readers = [files.download("big") for _ in range(8)]
    for reader in readers:
        assert next(reader).HasField("file")
    time.sleep(2)  # for what could pile up
    after = [memory_of(pid) for pid in processes]
    # Each may have a few messages and windows on its way.
    assert all(now - then < 8 * 8 * MIB for now, then in zip(after, before)), (before, after)
    # Others are not held up by them.
    assert files.write("other", b"x").size_bytes == 1
    assert daemon.shell(files.sandbox_id, "cat other") == "x"
    for reader in readers:
        reader.cancel()


def test_what_waits_in_slow_calls_does_not_hold_up_the_sandbox(daemon, files):
    """More calls than fit into what the connection to a keeper may hold."""
    daemon.shell(files.sandbox_id, f"head -c {40 * MIB} /dev/zero > big")
    readers = [files.download("big") for _ in range(50)]
    for reader in readers:
        next(reader)
    time.sleep(1)
    assert daemon.shell(files.sandbox_id, "echo well") == "well\n"
    for reader in readers:
        reader.cancel()


def test_a_hundred_transfers_at_once(daemon):
    """In two sandboxes, as one has a limit of its own."""
    ids = [daemon.ready(), daemon.ready()]
    data = [pattern(MIB + 1000 * n, n) for n in range(100)]

    def move(n: int) -> bool:
        files = Files(daemon, ids[n % 2], timeout=LONG)
        files.upload(f"file-{n}", chunks_of(data[n], 100_000))
        return files.fetch(f"file-{n}")[1] == data[n]

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        assert all(pool.map(move, range(100)))
    daemon.remove(*ids)


# ---- Clients ----


def drafts(daemon, sandbox_id: str) -> str:
    """What stands in the workspace, temporary names included."""
    return daemon.shell(sandbox_id, "ls -A")


@pytest.mark.rules("FILE-002")
def test_an_upload_that_is_cancelled_leaves_nothing(daemon, files):
    files.write("a", b"old")
    upload = Gated(files, "a", overwrite=True)
    upload.send(pattern(5 * MIB))
    time.sleep(0.3)
    upload.call.cancel()
    upload.chunks.put(None)
    wait_until(lambda: drafts(daemon, files.sandbox_id) == "a\n")
    assert files.read("a") == b"old"


UPLOADER = """
import sys, time
sys.path[:0] = sys.argv[1].split(":")
from pathlib import Path
from hutchd import MIB, Client
from sandbox_files import Files

def chunks():
    for _ in range(int(sys.argv[4])):
        yield b"x" * MIB
    print("sent", flush=True)
    time.sleep(1000)

Files(Client(Path(sys.argv[2])), sys.argv[3]).upload("a", chunks(), overwrite=True)
"""


@pytest.mark.rules("FILE-002")
@pytest.mark.parametrize("megabytes", [0, 1, 5, 50])
def test_a_client_that_is_killed_leaves_nothing(daemon, files, megabytes):
    files.write("a", b"old")
    arguments = [":".join(sys.path), daemon.socket, files.sandbox_id, str(megabytes)]
    with subprocess.Popen([sys.executable, "-c", UPLOADER, *arguments], stdout=subprocess.PIPE) as client:
        assert client.stdout.readline() == b"sent\n"
        client.kill()
    wait_until(lambda: drafts(daemon, files.sandbox_id) == "a\n")
    assert files.read("a") == b"old"


def test_a_download_that_is_cancelled_ends_inside(daemon, files):
    daemon.shell(files.sandbox_id, f"head -c {100 * MIB} /dev/zero > big")
    for _ in range(20):
        call = files.download("big")
        next(call)
        call.cancel()
    assert files.stat("big").size_bytes == 100 * MIB


def test_a_deadline_ends_the_work(daemon, files):
    upload = file_pb2.UploadFileHeader(sandbox_id=files.sandbox_id, path="late")
    gate = threading.Event()

    def chunks():
        yield b"data"
        gate.wait(LIMIT)

    with pytest.raises(grpc.RpcError) as caught:
        files.stub.UploadFile(uploads(upload, chunks()), timeout=0.5)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    gate.set()
    wait_until(lambda: drafts(daemon, files.sandbox_id) == "")


def test_streams_of_a_caller_are_limited(start_daemon):
    daemon = start_daemon({"limits": {"streams_per_caller": 2}})
    files = Files(daemon, daemon.ready())
    daemon.shell(files.sandbox_id, f"head -c {20 * MIB} /dev/zero > big")
    calls = [files.download("big") for _ in range(2)]
    for call in calls:
        next(call)
    with refused("TOO_MANY_STREAMS"):
        files.fetch("big")
    with refused("TOO_MANY_STREAMS"):
        files.upload("a", [b"x"])
    assert files.stat("big").size_bytes == 20 * MIB  # one message is no stream
    calls[0].cancel()
    wait_until(lambda: reads(files, "big"))
    calls[1].cancel()


def reads(files: Files, path: str) -> bool:
    try:
        return bool(files.fetch(path))
    except grpc.RpcError as error:
        assert Refusal(error).reason == "TOO_MANY_STREAMS"
        return False


# ---- States ----


def test_file_work_waits_for_a_pending_sandbox(daemon):
    for _ in range(5):
        files = Files(daemon, daemon.create().id)
        assert files.upload("a", [b"early"]).file.size_bytes == 5
        assert files.read("a") == b"early"
        daemon.remove(files.sandbox_id)


def test_a_call_waits_no_longer_than_its_deadline(start_daemon, tmp_path):
    slow, gate = tmp_path / "hutch-keeper-slow", tmp_path / "gate"
    waits = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    slow.write_text(f'#!/bin/sh\n{waits}\nexec {BUILD}/hutch-keeper "$@"\n', encoding="utf-8")
    slow.chmod(0o755)
    daemon = start_daemon({"native": {"keeper": str(slow)}})
    sandbox_id = daemon.create().id
    with pytest.raises(grpc.RpcError) as caught:
        Files(daemon, sandbox_id, timeout=0.5).stat(".")
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    gate.touch()
    assert Files(daemon, sandbox_id).stat(".").path == "/workspace"


@pytest.mark.parametrize("how", ["stop", "delete"])
def test_file_work_ends_with_its_sandbox(daemon, how):
    sandbox_id = daemon.ready()
    files = Files(daemon, sandbox_id, timeout=LONG)
    upload = Gated(files, "a")
    upload.send(b"some")
    daemon.shell(sandbox_id, f"head -c {50 * MIB} /dev/zero > big")
    download = files.download("big")
    next(download)
    time.sleep(0.2)
    (daemon.stop if how == "stop" else daemon.delete)(sandbox_id)
    with refused("SANDBOX_WRONG_STATE"):
        upload.call.result(LIMIT)
    upload.chunks.put(None)
    with refused("SANDBOX_WRONG_STATE"):
        list(download)
    daemon.wait(sandbox_id, "STOPPED" if how == "stop" else "DELETED")
    if how == "stop":
        daemon.remove(sandbox_id)


def test_the_end_of_the_keeper_is_told(daemon):
    sandbox_id = daemon.ready()
    upload = Gated(Files(daemon, sandbox_id), "a")
    upload.send(b"some")
    time.sleep(0.2)
    keeper = daemon.keeper(sandbox_id)
    os.kill(keeper, signal.SIGKILL)
    with pytest.raises(grpc.RpcError) as caught:
        upload.call.result(LIMIT)
    assert Refusal(caught.value).reason in {"KEEPER_UNAVAILABLE", "SANDBOX_WRONG_STATE"}
    upload.chunks.put(None)
    daemon.wait(sandbox_id, "FAILED")
    assert not is_alive(keeper)
    daemon.remove(sandbox_id)


@pytest.mark.rules("LIFE-006")
def test_file_work_keeps_the_sandbox_awake(daemon):
    sandbox_id = daemon.ready(idle_ttl=seconds(1000))
    files = Files(daemon, sandbox_id)
    upload = Gated(files, "a")
    upload.send(b"some")
    wait_until(lambda: not daemon.get(sandbox_id).HasField("idle_deadline"))
    daemon.update(sandbox_id, "idle_ttl", idle_ttl=seconds(1))
    time.sleep(2.5)
    found = daemon.get(sandbox_id)
    assert state_name(found) == "READY" and not found.HasField("idle_deadline")
    daemon.update(sandbox_id, "idle_ttl", idle_ttl=seconds(1000))
    upload.finish()
    assert daemon.get(sandbox_id).HasField("idle_deadline")
    daemon.update(sandbox_id, "idle_ttl", idle_ttl=seconds(1))
    daemon.wait(sandbox_id, "STOPPED")
    daemon.remove(sandbox_id)


# ---- Restarts ----


@pytest.mark.parametrize("kill", [False, True], ids=["ended", "killed"])
def test_the_end_of_the_daemon_in_the_middle(own_daemon, kill):
    daemon, sandbox_id = own_daemon, own_daemon.ready()
    files = Files(daemon, sandbox_id)
    files.write("a", b"old")
    upload = Gated(files, "a", overwrite=True)
    upload.send(pattern(3 * MIB))
    time.sleep(0.3)
    daemon.restart(kill=kill)
    assert upload.call.exception(LIMIT).code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    upload.chunks.put(None)
    files = Files(daemon, sandbox_id)
    assert files.read("a") == b"old"
    wait_until(lambda: drafts(daemon, sandbox_id) == "a\n")
    data = pattern(3 * MIB)
    assert files.upload("a", chunks_of(data), overwrite=True).sha256 == hashlib.sha256(data).digest()


def test_draining_ends_streams(own_daemon):
    files = Files(own_daemon, own_daemon.ready())
    upload = Gated(files, "a", upload_id="up")
    upload.send(b"some")
    wait_until(lambda: received(files, "up") == 4)
    own_daemon.signal(signal.SIGTERM)
    with refused("DRAINING"):
        upload.call.result(LIMIT)
    upload.chunks.put(None)
    assert own_daemon.ended() == 0


# ---- Resuming ----


def test_a_broken_upload_is_resumed(daemon, files):
    data, name = pattern(8 * MIB + 5), "up-1"
    upload = Gated(files, "a", upload_id=name)
    upload.send(data[: 5 * MIB])
    wait_until(lambda: received(files, name) == 5 * MIB)
    upload.call.cancel()
    upload.chunks.put(None)
    found = files.stat(upload_id=name)
    assert (found.path, found.size_bytes) == ("/workspace/a", 5 * MIB)
    with refused("FILE_NOT_FOUND"):
        files.stat("a")
    answer = files.upload(
        "a",
        chunks_of(data[5 * MIB :]),
        upload_id=name,
        resume_offset=5 * MIB,
        size_bytes=len(data),
        sha256=hashlib.sha256(data).digest(),
    )
    assert answer.file.size_bytes == len(data)
    assert files.digest("a") == (len(data), hashlib.sha256(data).hexdigest())
    with refused("UPLOAD_NOT_FOUND"):
        files.stat(upload_id=name)


def received(files: Files, upload_id: str) -> int:
    """How much of an upload has come; -1: nothing is known of it."""
    try:
        return files.stat(upload_id=upload_id).size_bytes
    except grpc.RpcError as error:
        assert Refusal(error).reason == "UPLOAD_NOT_FOUND"
        return -1


@pytest.mark.rules("FILE-010")
@pytest.mark.parametrize("kill", [False, True], ids=["ended", "killed"])
def test_an_upload_is_resumed_after_the_end_of_the_daemon(own_daemon, kill):
    daemon, sandbox_id, data = own_daemon, own_daemon.ready(), pattern(6 * MIB)
    upload = Gated(Files(daemon, sandbox_id), "a", upload_id="up-2")
    upload.send(data[: 3 * MIB])
    wait_until(lambda: received(Files(daemon, sandbox_id), "up-2") == 3 * MIB)
    daemon.restart(kill=kill)
    upload.chunks.put(None)
    files = Files(daemon, sandbox_id)
    offset = received(files, "up-2")
    assert 0 <= offset <= 3 * MIB
    files.upload("a", chunks_of(data[offset:]), upload_id="up-2", resume_offset=offset)
    assert files.digest("a") == (len(data), hashlib.sha256(data).hexdigest())


def test_an_upload_goes_on_only_where_it_broke(files):
    upload = Gated(files, "a", upload_id="up-3")
    upload.send(b"x" * 1000)
    wait_until(lambda: received(files, "up-3") == 1000)
    upload.call.cancel()
    upload.chunks.put(None)
    with refused("OFFSET_OUT_OF_RANGE"):
        files.upload("a", [b"y"], upload_id="up-3", resume_offset=1001)
    assert files.upload("a", [b"new"], upload_id="up-3").file.size_bytes == 3
    assert files.read("a") == b"new"
    with refused("UPLOAD_NOT_FOUND"):
        files.upload("b", [b"y"], upload_id="up-none", resume_offset=5)
