# SPDX-License-Identifier: Apache-2.0
"""File work while somebody inside swaps what it works on, as fast as it can: nothing outside of the sandbox is ever
read or written, links are not followed where they must not be, and nothing waits."""

import os
import tarfile
import time

import grpc
import pytest
from files import Files, messages, reason_of
from keeper import LIMIT, wait_until
from test_archives import archive, entry, pack, unpack

SECONDS = float(os.environ.get("HUTCH_RACE_SECONDS", "1.5"))
ROUNDS = 20  # at the least, also where the host has no time for more
SECRET = b"canary: this is outside"

# Exchanges "swap" and "other" in a folder for ever.
SWAPPER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
os.chdir(sys.argv[1])
print("begin", flush=True)
while True:
    for i in range(1000):
        libc.syscall(316, -100, b"swap", -100, b"other", 2)  # renameat2, RENAME_EXCHANGE
    print("on", flush=True)
"""

# What any call may be answered while names change their meaning.
EXPECTED = {
    "FILE_NOT_FOUND",
    "FILE_EXISTS",
    "FILE_CHANGED",
    "FILE_BUSY",
    "FILE_PERMISSION",
    "NOT_A_DIRECTORY",
    "IS_A_DIRECTORY",
    "NOT_A_REGULAR_FILE",
    "DIRECTORY_NOT_EMPTY",
    "SYMLINK_LOOP",
    "CROSS_MOUNT",
    "FIELD_CONFLICT",
    "PATH_PROTECTED",
    "ARCHIVE_REFUSED",  # something of it would go through a link
}


@pytest.fixture(name="canary")
def make_canary(tmp_path):
    """A folder of the host that everybody may write; and what must be in it."""
    folder = tmp_path / "outside"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    for parent in list(folder.parents)[:-1]:
        parent.chmod(parent.stat().st_mode | 0o011)
    (folder / "file").write_bytes(SECRET)
    (folder / "file").chmod(0o666)
    (folder / "sub").mkdir(mode=0o777)
    (folder / "sub").chmod(0o777)
    (folder / "sub" / "file").write_bytes(SECRET)
    yield folder
    assert sorted(os.listdir(folder)) == ["file", "sub"]
    assert os.listdir(folder / "sub") == ["file"]
    assert (folder / "file").read_bytes() == SECRET
    assert (folder / "sub" / "file").read_bytes() == SECRET


class Swapping:
    """Something inside that swaps, while the test works."""

    def __init__(self, keeper, folder: str):
        self.keeper = keeper
        self.exec = keeper.start("python3", "-c", SWAPPER, folder, user="1000")
        wait_until(lambda: keeper.output(self.exec.exec_id).count(b"on") >= 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        before = self.keeper.output(self.exec.exec_id).count(b"on")
        wait_until(lambda: self.keeper.output(self.exec.exec_id).count(b"on") > before)  # it is still at it
        self.keeper.cancel(self.exec.exec_id, 0)
        self.keeper.wait(self.exec.exec_id)


def work(seconds: float, *actions) -> dict[str, int]:
    """Does all @actions again and again. Counts what they were answered."""
    answers: dict[str, int] = {}
    end, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < end or rounds < ROUNDS:
        rounds += 1
        for action in actions:
            try:
                action()
                answer = "OK"
            except grpc.RpcError as error:
                answer = reason_of(error)
                assert answer in EXPECTED, answer
            answers[answer] = answers.get(answer, 0) + 1
    return answers


def check(data: bytes) -> None:
    assert SECRET not in data


def all_methods(files: Files, path: str, own: str) -> list:
    """A call of every method on things in @path, a folder that may be another; @own is one that stays."""

    def list_all():
        for file in files.page(path, depth=3).files:
            check(file.name.encode())

    def watch():
        request = messages().WatchFilesRequest(path=path, recursive=True)
        call = files.stub.WatchFiles(request, timeout=LIMIT, metadata=files.metadata)
        assert next(call).WhichOneof("item") == "started"
        call.cancel()

    folder, entries = entry("packed", tarfile.DIRTYPE, 0o755), [(entry("packed/file"), b"a"), (entry("sub/file"), b"b")]
    packed = archive(folder, *entries)

    return [
        watch,
        lambda: files.call("ListChanges", messages().ListChangesRequest(path=path)),
        lambda: files.call("ListChanges", messages().ListChangesRequest(path="/")),
        lambda: check(pack(files, path)),
        lambda: unpack(files, path, packed, overwrite=True),
        lambda: unpack(files, f"{path}/sub", packed, overwrite=True, create_parents=True),
        lambda: files.remove(f"{path}/packed", recursive=True, ignore_missing=True),
        lambda: files.stat(f"{path}/file"),
        lambda: files.stat(f"{path}/sub/file", follow_symlink=True),
        lambda: check(files.read(f"{path}/file").data),
        lambda: check(files.download(f"{path}/sub/file")[1]),
        list_all,
        lambda: files.write(f"{path}/file", b"mine", overwrite=True),
        lambda: files.write(f"{path}/a/b/c", b"mine", create_parents=True, overwrite=True),
        lambda: files.upload(f"{path}/sub/file", b"mine", overwrite=True),
        lambda: files.upload(f"{path}/new", b"mine", overwrite=True),
        lambda: files.make(f"{path}/folder/folder", create_parents=True),
        lambda: files.move(f"{path}/new", f"{own}/moved", overwrite=True),
        lambda: files.move(f"{own}/moved", f"{path}/sub/back", overwrite=True),
        lambda: files.remove(f"{path}/a", recursive=True, ignore_missing=True),
        lambda: files.remove(f"{path}/sub", recursive=True, ignore_missing=True),
        lambda: files.make(f"{path}/sub", create_parents=True),
    ]


@pytest.mark.parametrize("way", ["absolute", "climbing", "root", "proc"])
def test_links_that_leave_lead_nowhere_whenever_they_come(start_keeper, canary, way):
    keeper = start_keeper()
    files = Files(keeper)
    targets = {
        "absolute": str(canary),
        "climbing": "../" * 40 + str(canary).lstrip("/"),
        "root": f"/proc/1/root/{canary}",
        "proc": f"/proc/{keeper.process.pid}/root/{canary}",
    }
    base = "/workspace/base"
    files.make(base)
    files.make(f"{base}/swap")
    made = keeper.run("ln", "-s", targets[way], f"{base}/other", user="1000")
    assert made.end.wait_status == 0
    with Swapping(keeper, base):
        answers = work(SECONDS, *all_methods(files, f"{base}/swap", base))
    assert answers["OK"] > 0 and answers["FILE_NOT_FOUND"] + answers.get("SYMLINK_LOOP", 0) > 0, answers


# Makes a folder and a link to what must stay, wherever they are gone, and exchanges them for ever.
REMAKER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
while True:
    for make in (lambda: os.makedirs(sys.argv[1]), lambda: os.chdir(sys.argv[1]), lambda: os.makedirs("swap/sub/new"),
                 lambda: os.symlink("/workspace/precious", "other")):
        try:
            make()
        except OSError:
            pass
    for i in range(50):
        libc.syscall(316, -100, b"swap", -100, b"other", 2)
    print("on", flush=True)
"""


@pytest.mark.parametrize("below", ["tree", "tree/d/d/d"])
def test_a_removal_never_goes_through_a_link(start_keeper, below):
    """What a link in the tree leads to, in the same sandbox and of the same user, stays."""
    keeper = start_keeper()
    files = Files(keeper)
    files.make("/workspace/precious/sub", create_parents=True)
    for number in range(20):
        files.write(f"/workspace/precious/sub/{number}", b"x")
    swapping = keeper.start("python3", "-c", REMAKER, f"/workspace/base/{below}", user="1000")
    wait_until(lambda: keeper.output(swapping.exec_id).count(b"on") >= 1)
    work(2 * SECONDS, lambda: files.remove("/workspace/base/tree", recursive=True, ignore_missing=True))
    keeper.cancel(swapping.exec_id, 0)
    keeper.wait(swapping.exec_id)
    kept = {file.name for file in files.list("/workspace/precious/sub")}
    assert kept >= set(map(str, range(20)))  # the other one makes folders there


def test_folders_that_are_moved_away_are_not_followed_out_of_the_tree(start_keeper):
    keeper = start_keeper()
    files = Files(keeper)
    script = """
import os
os.makedirs("/workspace/base/tree"); os.makedirs("/workspace/base/keep")
os.chdir("/workspace/base/tree")
for i in range(200):
    os.mkdir("d"); os.chdir("d")
    for j in range(5): open(str(j), "w").close()
"""
    assert keeper.run("python3", "-c", script, user="1000").end.wait_status == 0
    mover = """
import os, ctypes
os.chdir("/workspace/base")
print("on", flush=True)
while True:
    try:
        os.rename("tree/" + "d/" * 20 + "d", "keep/d"); os.rename("keep/d", "tree/" + "d/" * 20 + "d")
    except OSError:
        pass
"""
    files.write("/workspace/base/keep/file", b"x")
    moving = keeper.start("python3", "-c", mover, user="1000")
    wait_until(lambda: keeper.output(moving.exec_id).count(b"on") >= 1)
    for _ in range(20):
        try:
            files.remove("/workspace/base/tree", recursive=True, ignore_missing=True)
            break
        except grpc.RpcError as error:
            assert reason_of(error) in EXPECTED
    keeper.cancel(moving.exec_id, 0)
    keeper.wait(moving.exec_id)
    assert files.read("/workspace/base/keep/file").data == b"x"


@pytest.mark.parametrize("thing", ["mkfifo other", "ln -s /dev/zero other", "ln -s /dev/tty other", "mkdir other"])
def test_nothing_waits_for_what_is_no_file(start_keeper, thing):
    keeper = start_keeper()
    files = Files(keeper)
    files.make("/workspace/base")
    files.write("/workspace/base/swap", b"x" * 100_000)
    assert keeper.shell(f"cd /workspace/base; {thing}", user="1000").end.wait_status == 0
    with Swapping(keeper, "/workspace/base"):
        answers = work(
            SECONDS,
            lambda: files.read("/workspace/base/swap"),
            lambda: files.download("/workspace/base/swap"),
            lambda: files.stat("/workspace/base/swap", follow_symlink=True),
        )
    assert answers["OK"] > 0 and set(answers) <= {"OK", "NOT_A_REGULAR_FILE", "IS_A_DIRECTORY", "FILE_CHANGED"}


def test_a_file_that_is_written_all_the_time_is_whole_or_told(start_keeper):
    """Files that are replaced are read as one or the other, never mixed; those that are changed in place are told."""
    keeper = start_keeper()
    files = Files(keeper)
    files.make("/workspace/base")
    files.upload("/workspace/base/swap", b"a" * 3_000_000)
    files.upload("/workspace/base/other", b"b" * 2_000_000)

    def read_whole():
        data = files.download("/workspace/base/swap")[1]
        assert data in (b"a" * 3_000_000, b"b" * 2_000_000)

    with Swapping(keeper, "/workspace/base"):
        work(SECONDS, read_whole)


def test_a_place_that_is_swapped_is_written_whole(start_keeper):
    keeper = start_keeper()
    files = Files(keeper)
    base = "/workspace/base"
    for name in ("swap", "other"):
        files.make(f"{base}/{name}", create_parents=True)
    with Swapping(keeper, base):
        answers = work(SECONDS, lambda: files.upload(f"{base}/swap/file", b"x" * 400_000, overwrite=True))
    assert answers["OK"] > 0
    for file in files.list(base, depth=2):
        if file.type == messages().FILE_TYPE_REGULAR:
            assert (file.name, file.size_bytes) == ("file", 400_000)
