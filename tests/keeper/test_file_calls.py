# SPDX-License-Identifier: Apache-2.0
"""Calls of file work: side by side, cancelled, repeated, resumed; and what becomes of the workers that do them."""

import concurrent.futures
import contextlib
import os
import queue
import signal
import time
from pathlib import Path

import grpc
import pytest
import sanitizers
from files import CHUNK, GIB, Files, error_of, messages, reason_of, sha256
from keeper import LIMIT, MIB, USER, wait_until

ONE = "1" * 64
TWO = "2" * 64


@pytest.fixture(name="files", scope="module")
def make_files(keeper):
    return Files(keeper)


@pytest.fixture(name="folder")
def make_folder(files):
    path = f"/workspace/calls-{time.monotonic_ns()}"
    files.make(path)
    yield path
    files.remove(path, recursive=True)


def names(files, folder: str) -> list[str]:
    return [file.name for file in files.list(folder)]


def workers_of(keeper) -> list[int]:
    """The processes that do file work, or wait for it."""
    found = []
    for pid in keeper.processes():
        try:
            if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").startswith("hutch-files"):
                found.append(pid)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def signal_workers(keeper, number: int) -> list[int]:
    """Those that were there to be signalled."""
    pids = workers_of(keeper)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # one that was idle for too long
            os.kill(pid, number)
    return pids


def resident(pid: int) -> int:
    """Its own memory, in bytes. 0: it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


class Slow:
    """Chunks of an upload that come one by one."""

    def __init__(self, *first: bytes):
        self.queue: queue.Queue = queue.Queue()
        for chunk in first:
            self.queue.put(chunk)

    def __iter__(self):
        return iter(self.queue.get, None)

    def end(self) -> None:
        self.queue.put(None)


def begin_slow(files, path: str, *chunks: bytes, **values):
    """An upload that has sent @chunks and goes on."""
    slow = Slow(*chunks)
    return files.begin_upload(path, slow, **values), slow


def fails_with(call) -> str:
    try:
        call.result(LIMIT)
    except grpc.RpcError as error:
        return reason_of(error)
    raise AssertionError("it succeeded")


# ---- Workers ----


def test_a_worker_is_used_again_and_goes_after_a_while(start_keeper):
    keeper = start_keeper()
    files = Files(keeper)
    for i in range(20):
        files.write(f"/workspace/{i}", b"x")
    workers = workers_of(keeper)
    assert len(workers) == 1
    Files(keeper, "0").stat("/")
    assert len(workers_of(keeper)) == 2
    wait_until(lambda: not workers_of(keeper))
    assert files.stat("/workspace/0").size_bytes == 1
    assert "Z (zombie)" not in Path(f"/proc/{keeper.process.pid}/status").read_text(encoding="utf-8")
    children = Path(f"/proc/{keeper.process.pid}/task/{keeper.process.pid}/children").read_text(encoding="utf-8")
    assert len(children.split()) == 2  # PID 1, and the worker of the last call


def test_a_worker_has_given_everything_up(keeper, files):
    allow_all = files.stat("/")  # has one be there
    assert allow_all
    (pid,) = workers_of(keeper)
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    )
    for which in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[which], 16) == 0, which
    assert status["NoNewPrivs"] == "1"
    uids, gids = status["Uid"].split(), status["Gid"].split()
    own = Path(f"/proc/{keeper.process.pid}/status").read_text(encoding="utf-8")
    keeper_uid = next(line for line in own.splitlines() if line.startswith("Uid:")).split()[1]
    assert set(uids[:3]) == {keeper_uid} and uids[3] not in (keeper_uid, "0")
    assert gids[3] != gids[0]
    descriptors = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    assert sorted(descriptors)[:3] == ["/"] * 3 and len(descriptors) == 4
    for kind in ("mnt", "user", "net", "ipc", "uts", "pid"):
        assert os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(f"/proc/{keeper.process.pid}/ns/{kind}")


def test_nobody_inside_can_signal_or_look_into_a_worker(keeper, files, folder):
    call, chunks = begin_slow(files, f"{folder}/file", b"x")  # has one be there, and stay
    wait_until(lambda: workers_of(keeper))
    script = """
import os, signal
for name in os.listdir("/proc"):
    if name.isdigit() and open(f"/proc/{name}/comm").read().startswith("hutch-files"):
        for what in (lambda: os.kill(int(name), signal.SIGKILL), lambda: os.kill(int(name), signal.SIGSTOP),
                     lambda: os.listdir(f"/proc/{name}/fd"), lambda: open(f"/proc/{name}/mem", "rb"),
                     lambda: open(f"/proc/{name}/environ", "rb").read(), lambda: os.readlink(f"/proc/{name}/exe")):
            try:
                what(); print("possible")
            except PermissionError:
                print("refused")
"""
    for user in ("0", "1000"):
        ran = keeper.run("python3", "-c", script, user=user)
        assert keeper.output(ran.exec_id) == b"refused\n" * 6, keeper.output(ran.exec_id, "err")
    chunks.end()
    assert call.result(LIMIT).file.size_bytes == 1


def stream_error(stream) -> grpc.RpcError:
    try:
        list(stream)
    except grpc.RpcError as error:
        return error
    raise AssertionError("it succeeded")


def test_a_killed_worker_fails_its_call_and_no_other(keeper, files, folder):
    files.upload(f"{folder}/file", bytes(32 * MIB))
    stream = files.open(f"{folder}/file")
    next(stream)
    signal_workers(keeper, signal.SIGKILL)
    assert reason_of(stream_error(stream)) == "KEEPER_UNAVAILABLE"
    assert files.stat(f"{folder}/file").size_bytes == 32 * MIB


def test_a_stopped_worker_is_killed_when_its_call_is_cancelled(keeper, files, folder):
    call, _ = begin_slow(files, f"{folder}/file", b"x")
    wait_until(lambda: len(workers_of(keeper)) >= 1)
    stopped = signal_workers(keeper, signal.SIGSTOP)
    call.cancel()
    wait_until(lambda: not set(stopped) & set(workers_of(keeper)))
    assert names(files, folder) == []


def test_without_root_there_is_one_user_who_can_end_a_worker(start_keeper, user):
    keeper = start_keeper(config={"cgroup": "", "uid_base": USER, "uid_count": 1}, user=USER)
    files, root = Files(keeper), Files(keeper, "0")
    user(USER)
    files.upload("/workspace/file", bytes(32 * MIB), mode=0o600)
    assert files.stat("/workspace/file").uid == 1000
    assert root.refused("stat", "/") == "FILE_PERMISSION"
    assert files.refused("read", "/proc/self/environ") == "FILE_PERMISSION"
    stream = files.open("/workspace/file")
    next(stream)
    script = "cd /proc; for pid in [0-9]*; do grep -q hutch-files $pid/comm && kill -9 $pid; done; true"
    assert keeper.shell(script, user="1000").end.wait_status == 0
    assert reason_of(stream_error(stream)) == "KEEPER_UNAVAILABLE"
    assert files.remove("/workspace/file") == 1


# ---- Side by side ----


def test_a_hundred_calls_at_once(keeper, files, folder):
    def transfer(number: int) -> bool:
        data = os.urandom(number * 5003)
        files.upload(f"{folder}/{number}", data, sha256=sha256(data))
        return files.download(f"{folder}/{number}")[1] == data

    with concurrent.futures.ThreadPoolExecutor(100) as threads:
        assert all(threads.map(transfer, range(100)))
    assert len(names(files, folder)) == 100
    assert len(workers_of(keeper)) <= 64


def test_more_calls_than_workers_wait_for_their_turn(keeper, files, folder):
    slow = [begin_slow(files, f"{folder}/{i}", b"x") for i in range(64)]
    wait_until(lambda: len(workers_of(keeper)) == 64)
    waiting = [files.stub.StatFile.future(messages().StatFileRequest(path="/"), metadata=files.metadata, timeout=LIMIT)
               for _ in range(10)]  # fmt: skip
    cancelled = waiting.pop()
    cancelled.cancel()
    slow[0][1].end()
    for call in waiting:
        assert call.result().file.path == "/"
    for _, chunks in slow:
        chunks.end()
    for call, _ in slow:
        assert call.result(LIMIT).file.size_bytes == 1


# ---- Memory ----


# What a sanitizer has freed it keeps for a while.
without_sanitizers = pytest.mark.skipif(bool(sanitizers.LOGS), reason="sanitizers keep what was freed")


def make_large(keeper, path: str, size: int) -> None:
    ran = keeper.run("truncate", "-s", str(size), path, user="1000")
    assert ran.end.wait_status == 0


class Growth:
    """How much memory a keeper and its workers take beyond what they have now. A worker begins with its keeper's, which
    may have been more when it began."""

    def __init__(self, keeper):
        self.keeper = keeper
        self.before = resident(keeper.process.pid)
        self.workers = {pid: resident(pid) for pid in workers_of(keeper)}
        self.of_keeper, self.of_workers = 0, 0

    def look(self) -> None:
        self.of_keeper = max(self.of_keeper, resident(self.keeper.process.pid) - self.before)
        for pid in workers_of(self.keeper):
            self.of_workers = max(self.of_workers, resident(pid) - self.workers.get(pid, self.before))


@without_sanitizers
def test_memory_stays_flat_however_large_the_file_and_slow_the_reader(keeper, files, folder):
    make_large(keeper, f"{folder}/large", GIB)
    growth = Growth(keeper)
    stream = files.open(f"{folder}/large", timeout=300)
    total = 0
    next(stream)
    time.sleep(1)  # the reader does nothing
    growth.look()
    for number, item in enumerate(stream):
        total += len(item.data)
        if number % 512 == 0:
            time.sleep(0.01)
            growth.look()
    assert total == GIB
    assert growth.of_keeper < 8 * MIB
    assert growth.of_workers < 8 * MIB


@without_sanitizers
def test_memory_stays_flat_while_a_large_file_comes(keeper, files, folder):
    growth, size = Growth(keeper), 512 * MIB
    chunk = bytes(CHUNK)

    def chunks():
        for number in range(size // CHUNK):
            if number % 256 == 0:
                growth.look()
            yield chunk

    call = files.begin_upload(f"{folder}/large", chunks(), timeout=300)
    assert call.result(300).file.size_bytes == size
    assert growth.of_keeper + growth.of_workers < 16 * MIB


# ---- The end of calls ----


def test_a_cancelled_upload_leaves_nothing(files, folder):
    files.write(f"{folder}/old", b"old")
    for path, values in ((f"{folder}/new", {}), (f"{folder}/old", {"overwrite": True})):
        call, _ = begin_slow(files, path, *[os.urandom(CHUNK)] * 20, **values)
        time.sleep(0.1)
        call.cancel()
    wait_until(lambda: names(files, folder) == ["old"])
    assert files.read(f"{folder}/old").data == b"old"


def test_a_cancelled_removal_stops(keeper, files, folder):
    keeper.shell(f"mkdir {folder}/wide; cd {folder}/wide; seq 10000 | xargs touch", user="1000")
    request = messages().RemoveFileRequest(path=f"{folder}/wide", recursive=True)
    call = files.stub.RemoveFile.future(request, metadata=files.metadata)
    time.sleep(0.01)
    call.cancel()
    wait_until(lambda: len(workers_of(keeper)) <= 4)
    files.remove(f"{folder}/wide", recursive=True, ignore_missing=True)


def test_calls_end_with_their_sandbox(start_keeper):
    keeper = start_keeper()
    files = Files(keeper)
    files.upload("/workspace/file", bytes(64 * MIB))
    upload, _ = begin_slow(files, "/workspace/new", b"x")
    download = files.open("/workspace/file")
    next(download)
    keeper.shut_down(0)
    assert fails_with(upload) in ("SANDBOX_WRONG_STATE", "KEEPER_UNAVAILABLE")
    assert reason_of(stream_error(download)) in ("SANDBOX_WRONG_STATE", "KEEPER_UNAVAILABLE")
    assert keeper.process.wait(LIMIT) == 0


def test_calls_are_refused_while_the_sandbox_is_paused(start_keeper):
    keeper = start_keeper()
    files = Files(keeper)
    files.upload("/workspace/file", bytes(64 * MIB))
    stream = files.open("/workspace/file")
    next(stream)
    keeper.pause(True)
    with pytest.raises(grpc.RpcError) as raised:
        files.stat("/")
    assert error_of(raised.value).reason == "SANDBOX_WRONG_STATE"
    assert error_of(raised.value).metadata == {"state": "PAUSED"}
    keeper.pause(False)
    assert sum(len(item.data) for item in stream) == 64 * MIB


def test_a_full_disk_is_told_and_nothing_is_left(start_keeper):
    keeper = start_keeper({"limits": {"no_network": True, "tmp_bytes": 4 * MIB}})
    files = Files(keeper)
    files.write("/tmp/old", b"old")
    assert files.refused("upload", "/tmp/new", bytes(8 * MIB)) == "DISK_FULL"
    assert files.refused("upload", "/tmp/old", bytes(8 * MIB), overwrite=True) == "DISK_FULL"
    assert names(files, "/tmp") == ["old"]
    assert files.read("/tmp/old").data == b"old"
    files.upload("/tmp/new", bytes(3 * MIB))


def test_a_read_only_place_is_told(start_keeper):
    keeper = start_keeper({"limits": {"no_network": True, "read_only_root": True}})
    files = Files(keeper, "0")
    assert files.refused("write", "/file") == "FILE_READ_ONLY"
    assert files.refused("make", "/folder") == "FILE_READ_ONLY"
    assert files.refused("remove", "/etc/passwd") == "FILE_READ_ONLY"
    Files(keeper).write("/workspace/file")


# ---- Requests that are repeated ----


def test_a_repeated_request_gets_the_first_answer(files, folder):
    first = files.make(f"{folder}/dir", key=f"{ONE}:root/a")
    files.write(f"{folder}/dir/file")
    assert files.make(f"{folder}/dir", key=f"{ONE}:root/a") == first
    assert files.refused("make", f"{folder}/dir", key=f"{ONE}:root/b") == "FILE_EXISTS"
    assert files.refused("make", f"{folder}/dir", key=f"{TWO}:root/a") == "REQUEST_ID_REUSED"
    files.write(f"{folder}/file", b"1", key=f"{ONE}:root/w")
    files.remove(f"{folder}/file", key=f"{ONE}:root/r")
    assert files.remove(f"{folder}/file", key=f"{ONE}:root/r") == 1
    uploaded = files.upload(f"{folder}/up", b"data", key=f"{ONE}:root/u")
    assert files.upload(f"{folder}/up", b"data", key=f"{ONE}:root/u") == uploaded
    assert files.refused("make", f"{folder}/x", key="short") == "INTERNAL"


def test_a_request_that_failed_can_be_tried_again(files, folder):
    assert files.refused("make", f"{folder}/a/b", key=f"{ONE}:root/again") == "FILE_NOT_FOUND"
    files.make(f"{folder}/a")
    assert files.make(f"{folder}/a/b", key=f"{ONE}:root/again").name == "b"


def test_who_repeats_a_request_under_way_waits_for_its_answer(files, folder):
    same = {"key": f"{ONE}:root/slow", "upload_id": "slow"}
    call, chunks = begin_slow(files, f"{folder}/file", b"one", **same)
    wait_until(lambda: ".hutch-upload" in "".join(names(files, folder)))
    others = [begin_slow(files, f"{folder}/file", b"other", **same)[0] for _ in range(5)]
    time.sleep(0.1)
    assert not any(other.done() for other in others)
    assert files.refused("upload", f"{folder}/file", key=f"{TWO}:root/slow") == "REQUEST_ID_REUSED"
    chunks.end()
    answer = call.result(LIMIT)
    assert all(other.result(LIMIT) == answer for other in others)
    assert files.read(f"{folder}/file").data == b"one"


def test_who_waits_does_it_when_the_first_goes_away(files, folder):
    call, _ = begin_slow(files, f"{folder}/file", b"one", key=f"{ONE}:root/gone")
    time.sleep(0.1)
    second, chunks = begin_slow(files, f"{folder}/file", b"two", key=f"{ONE}:root/gone")
    third, _ = begin_slow(files, f"{folder}/file", b"three", key=f"{ONE}:root/gone")
    time.sleep(0.1)
    call.cancel()
    chunks.end()
    time.sleep(0.1)
    third.cancel()  # whichever of the two does it now
    assert second.result(LIMIT).file.size_bytes == 3
    assert files.read(f"{folder}/file").data == b"two"


def test_a_thousand_requests_are_remembered_and_no_more(files, folder):
    first = files.make(f"{folder}/dir", key=f"{ONE}:many/first")
    for number in range(1023):
        files.make(f"{folder}/dir", create_parents=True, key=f"{ONE}:many/{number}")
    assert files.make(f"{folder}/dir", key=f"{ONE}:many/first") == first
    files.make(f"{folder}/dir", create_parents=True, key=f"{ONE}:many/last")
    assert files.refused("make", f"{folder}/dir", key=f"{ONE}:many/first") == "FILE_EXISTS"


# ---- Uploads that are resumed ----


def break_upload(files, path: str, data: bytes, upload_id: str, **values) -> int:
    """An upload that breaks after @data. Returns how much of it is there."""
    chunks = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
    call, _ = begin_slow(files, path, *chunks, upload_id=upload_id, **values)

    def is_there() -> bool:
        try:
            return files.stat("", upload_id=upload_id).size_bytes == len(data)
        except grpc.RpcError:
            return False

    wait_until(is_there)
    call.cancel()
    told = files.stat("", upload_id=upload_id)
    assert told.path == path
    return told.size_bytes


def test_a_broken_upload_is_resumed(files, folder):
    data = os.urandom(3 * MIB)
    there = break_upload(files, f"{folder}/file", data[: 2 * MIB], "up-1")
    assert there == 2 * MIB
    assert files.refused("stat", f"{folder}/file") == "FILE_NOT_FOUND"
    values = {"upload_id": "up-1", "size_bytes": len(data), "sha256": sha256(data)}
    assert files.refused("upload", f"{folder}/file", b"", **values, resume_offset=there + 1) == "OFFSET_OUT_OF_RANGE"
    assert files.refused("upload", f"{folder}/other", b"", **values, resume_offset=there) == "FIELD_CONFLICT"
    done = files.upload(f"{folder}/file", data[MIB:], **values, resume_offset=MIB)
    assert (done.sha256, done.file.mode) == (sha256(data), 0o644)
    assert files.download(f"{folder}/file")[1] == data
    assert names(files, folder) == ["file"]
    assert files.refused("stat", "", upload_id="up-1") == "UPLOAD_NOT_FOUND"
    assert files.refused("upload", f"{folder}/file", **values, resume_offset=there) == "UPLOAD_NOT_FOUND"


def test_an_upload_can_begin_anew(files, folder):
    break_upload(files, f"{folder}/file", b"x" * 100, "up-2")
    files.upload(f"{folder}/file", b"y", upload_id="up-2")
    assert files.read(f"{folder}/file").data == b"y"
    assert names(files, folder) == ["file"]


def test_an_upload_with_an_id_that_is_refused_leaves_nothing(files, folder):
    assert files.refused("upload", f"{folder}/file", b"x", upload_id="up-3", size_bytes=2) == "SIZE_MISMATCH"
    assert names(files, folder) == []
    assert files.refused("stat", "", upload_id="up-3") == "UPLOAD_NOT_FOUND"


def test_one_call_writes_an_upload_at_a_time(files, folder):
    call, chunks = begin_slow(files, f"{folder}/file", b"x", upload_id="up-4")
    wait_until(lambda: ".hutch-upload" in "".join(names(files, folder)))
    assert files.refused("upload", f"{folder}/file", b"y", upload_id="up-4") == "FILE_BUSY"
    chunks.end()
    assert call.result(LIMIT).file.size_bytes == 1


def test_there_are_only_so_many_uploads(start_keeper):
    files = Files(start_keeper())
    for number in range(64):
        break_upload(files, f"/workspace/{number}", b"x", f"many-{number}")
    with pytest.raises(grpc.RpcError) as raised:
        files.upload("/workspace/64", b"x", upload_id="many-64")
    assert error_of(raised.value).reason == "QUOTA_EXCEEDED"
    assert error_of(raised.value).metadata == {"limit": "uploads", "value": "64"}
    files.upload("/workspace/0", b"y", upload_id="many-0", resume_offset=1)
    files.upload("/workspace/64", b"x", upload_id="many-64")


def test_uploads_outlive_the_keeper_and_are_collected(start_keeper):
    keeper = start_keeper()
    files = Files(keeper)
    break_upload(files, "/workspace/kept", b"x" * 100, "kept")
    break_upload(files, "/workspace/old", b"x" * 100, "old")
    keeper.process.kill()
    keeper.process.wait(LIMIT)
    uploads = (keeper.folder / "uploads").read_text(encoding="utf-8").splitlines()
    assert len(uploads) == 2
    uploads = [("1 " + line.split(" ", 1)[1]) if line.endswith("/old") else line for line in uploads]
    (keeper.folder / "uploads").write_text("\n".join([*uploads, "nonsense", "1 2 3", ""]), encoding="utf-8")
    keeper.start_again()
    files = Files(keeper)
    assert files.stat("", upload_id="kept").size_bytes == 100
    wait_until(lambda: len([name for name in names(files, "/workspace") if name.startswith(".hutch-upload")]) == 1)
    assert files.refused("stat", "", upload_id="old") == "UPLOAD_NOT_FOUND"
    files.upload("/workspace/kept", b"y", upload_id="kept", resume_offset=100)
    assert files.read("/workspace/kept").data == b"x" * 100 + b"y"
    assert names(files, "/workspace") == ["kept"]
