# SPDX-License-Identifier: Apache-2.0
"""File work: what each method does, and what it refuses."""

import itertools
import os
import time

import grpc
import pytest
from files import CHUNK, Files, error_of, messages, sha256
from keeper import wait_until

MIB = 1 << 20
NUMBERS = itertools.count()


@pytest.fixture(name="files", scope="module")
def make_files(keeper):
    return Files(keeper)


@pytest.fixture(name="folder")
def make_folder(files):
    """A new folder of the sandbox's user."""
    path = f"/workspace/test-{next(NUMBERS)}"
    files.make(path)
    yield path
    files.remove(path, recursive=True)


def shell(keeper, script: str) -> bytes:
    """What @script prints, run as the sandbox's user."""
    ran = keeper.shell(script, user="1000")
    assert ran.end.wait_status == 0, keeper.output(ran.exec_id, "err")
    return keeper.output(ran.exec_id)


def names(found) -> list[str]:
    return [file.name for file in found]


# ---- StatFile ----


def test_stat_tells_what_the_sandbox_itself_sees(keeper, files, folder):
    shell(keeper, f"cd {folder}; printf hello >file; chmod 640 file; ln file other; ln -s file link; mkfifo fifo")
    told = files.stat(f"{folder}/file")
    facts = shell(keeper, f"stat -c '%s %a %u %g %h %Y %b' {folder}/file").split()
    assert [told.size_bytes, told.mode, told.uid, told.gid, told.links] == [5, 0o640, 1000, 1000, 2]
    assert [told.modify_time.seconds, told.disk_bytes] == [int(facts[5]), int(facts[6]) * 512]
    assert (told.path, told.name, told.type) == (f"{folder}/file", "file", messages().FILE_TYPE_REGULAR)
    assert 0 < len(told.version) <= 64
    assert files.stat(f"{folder}/fifo").type == messages().FILE_TYPE_FIFO
    assert files.stat("/dev/null").type == messages().FILE_TYPE_CHARACTER_DEVICE
    assert files.stat("/").type == messages().FILE_TYPE_DIRECTORY


def test_times_are_such_as_a_timestamp_can_say(keeper, files):
    shell(keeper, "cd /dev/shm; touch -d @900000000000000.5 late; touch -d @-900000000000000.5 early")
    told = {file.name: file.modify_time for file in files.list("/dev/shm")}
    assert told["late"].ToJsonString() == "9999-12-31T23:59:59.999999999Z"
    assert told["early"].ToJsonString() == "0001-01-01T00:00:00Z"
    shell(keeper, "rm /dev/shm/late /dev/shm/early")


def test_stat_follows_a_link_only_when_asked(keeper, files, folder):
    shell(keeper, f"cd {folder}; mkdir target; ln -s target link; ln -s nowhere broken; ln -s loop loop")
    link = files.stat(f"{folder}/link")
    assert (link.type, link.symlink_target) == (messages().FILE_TYPE_SYMLINK, "target")
    assert files.stat(f"{folder}/link", follow_symlink=True).type == messages().FILE_TYPE_DIRECTORY
    assert files.stat(f"{folder}/link/").type == messages().FILE_TYPE_DIRECTORY
    assert files.stat(f"{folder}/broken").symlink_target == "nowhere"
    assert files.refused("stat", f"{folder}/broken", follow_symlink=True) == "FILE_NOT_FOUND"
    assert files.refused("stat", f"{folder}/loop", follow_symlink=True) == "SYMLINK_LOOP"


def test_a_slash_at_the_end_asks_for_a_folder(files, folder):
    files.write(f"{folder}/file")
    assert files.refused("stat", f"{folder}/file/") == "NOT_A_DIRECTORY"
    assert files.refused("read", f"{folder}/file/") == "NOT_A_DIRECTORY"
    assert files.refused("remove", f"{folder}/file/") == "NOT_A_DIRECTORY"
    assert files.refused("write", f"{folder}/new/") == "IS_A_DIRECTORY"
    assert files.refused("write", f"{folder}/file/", overwrite=True) == "NOT_A_DIRECTORY"
    assert files.stat(f"{folder}/").type == messages().FILE_TYPE_DIRECTORY


def test_paths_are_checked_by_the_keeper_too(files):
    assert files.refused("stat", "relative") == "PATH_NOT_ABSOLUTE"
    assert files.refused("stat", "/a/../b") == "PATH_DOTDOT"
    assert files.refused("stat", "") == "PATH_EMPTY"
    assert files.refused("stat", "/nothing/here") == "FILE_NOT_FOUND"
    assert files.refused("stat", "/etc/passwd/x") == "NOT_A_DIRECTORY"


# ---- Reading ----


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * MIB, 10 * MIB + 7])
def test_what_goes_up_comes_down(files, folder, size):
    data = os.urandom(size)
    uploaded = files.upload(f"{folder}/file", data, size_bytes=size, sha256=sha256(data))
    assert uploaded.sha256 == sha256(data)
    told, got = files.download(f"{folder}/file")
    assert got == data
    assert (told.size_bytes, told.version) == (size, uploaded.file.version)
    assert files.stat(f"{folder}/file").version == told.version


def test_ranges(files, folder):
    data = bytes(range(256)) * 4096
    files.upload(f"{folder}/file", data)
    for offset, length in [(0, 10), (5, 0), (1000, 5000), (len(data) - 3, 100), (len(data), 1), (300_000, 700_000)]:
        assert files.download(f"{folder}/file", offset=offset, length=length)[1] == data[offset : offset + length]
        assert files.read(f"{folder}/file", offset=offset, length=length).data == data[offset : offset + length]
    assert files.download(f"{folder}/file", offset=1_000_000)[1] == data[1_000_000:]
    assert files.refused("read", f"{folder}/file", offset=len(data) + 1) == "OFFSET_OUT_OF_RANGE"
    assert files.refused("download", f"{folder}/file", offset=1 << 63) == "OFFSET_OUT_OF_RANGE"


def test_files_without_a_size_are_read_to_their_end(keeper, files):
    expected = shell(keeper, "cat /proc/version")
    assert files.read("/proc/version").data == expected
    told, data = files.download("/proc/version")
    assert (told.size_bytes, data) == (0, expected)
    assert files.read("/proc/version", offset=5, length=4).data == expected[5:9]
    assert files.read("/proc/version", offset=len(expected)).data == b""
    assert files.refused("read", "/proc/version", offset=len(expected) + 1) == "OFFSET_OUT_OF_RANGE"
    assert files.refused("download", "/proc/version", max_size_bytes=3) == "FILE_TOO_LARGE"


def test_sparse_files_are_as_long_as_they_say(keeper, files, folder):
    shell(keeper, f"truncate -s 5M {folder}/sparse; printf end >>{folder}/sparse")
    told, data = files.download(f"{folder}/sparse")
    assert data == bytes(5 * MIB) + b"end"
    assert told.disk_bytes < told.size_bytes == len(data)


def test_limits_of_reading(files, folder):
    files.upload(f"{folder}/file", bytes(3 * MIB + 1))
    assert files.refused("read", f"{folder}/file") == "FILE_TOO_LARGE"
    assert len(files.read(f"{folder}/file", length=3 * MIB).data) == 3 * MIB
    assert len(files.read(f"{folder}/file", offset=1).data) == 3 * MIB
    assert files.refused("download", f"{folder}/file", max_size_bytes=3 * MIB) == "FILE_TOO_LARGE"
    assert len(files.download(f"{folder}/file", max_size_bytes=3 * MIB, offset=1)[1]) == 3 * MIB
    with pytest.raises(grpc.RpcError) as raised:
        files.download(f"{folder}/file", max_size_bytes=5)
    assert error_of(raised.value).metadata == {"limit": "max_size_bytes", "value": "5"}


def test_only_regular_files_are_read(keeper, files, folder):
    shell(keeper, f"cd {folder}; mkfifo fifo; ln -s fifo link; ln -s /dev/zero zero; mkdir dir")
    shell(keeper, f"python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('{folder}/socket')\"")
    for method in ("read", "download"):
        for name in ("fifo", "link", "zero", "socket"):
            assert files.refused(method, f"{folder}/{name}") == "NOT_A_REGULAR_FILE"
        assert files.refused(method, f"{folder}/dir") == "IS_A_DIRECTORY"
        assert files.refused(method, "/dev/tty") == "NOT_A_REGULAR_FILE"
        assert files.refused(method, f"{folder}/none") == "FILE_NOT_FOUND"


def test_a_reader_of_a_fifo_does_not_notice(keeper, files, folder):
    """A process that waits for somebody to open the other end goes on waiting."""
    shell(keeper, f"mkfifo {folder}/fifo")
    waiting = keeper.start("sh", "-c", f"echo begin; echo data >{folder}/fifo; echo end", user="1000")
    wait_until(lambda: keeper.output(waiting.exec_id) == b"begin\n")
    assert files.refused("read", f"{folder}/fifo") == "NOT_A_REGULAR_FILE"
    assert files.refused("write", f"{folder}/fifo", b"x", overwrite=True) == "NOT_A_REGULAR_FILE"
    assert keeper.output(waiting.exec_id) == b"begin\n"
    shell(keeper, f"cat {folder}/fifo")
    assert keeper.wait(waiting.exec_id).end.wait_status == 0


def test_an_expected_version_must_be_there(files, folder):
    version = files.write(f"{folder}/file", b"one").version
    assert files.read(f"{folder}/file", expected_version=version).data == b"one"
    assert files.download(f"{folder}/file", expected_version=version)[1] == b"one"
    changed = files.write(f"{folder}/file", b"two", overwrite=True, expected_version=version).version
    assert changed != version
    for method in ("read", "download"):
        assert files.refused(method, f"{folder}/file", expected_version=version) == "FILE_CHANGED"
    assert files.refused("write", f"{folder}/file", overwrite=True, expected_version=version) == "FILE_CHANGED"
    assert files.refused("write", f"{folder}/new", expected_version=version) == "FILE_CHANGED"
    assert files.read(f"{folder}/file").data == b"two"


@pytest.mark.parametrize("change", ["printf x >>file", "truncate -s 1M file", "printf x | dd of=file conv=notrunc"])
def test_a_file_that_changes_while_it_is_read_is_told(keeper, files, folder, change):
    files.upload(f"{folder}/file", bytes(32 * MIB))
    stream = files.open(f"{folder}/file")
    next(stream), next(stream)
    shell(keeper, f"cd {folder}; {change}")
    with pytest.raises(grpc.RpcError) as raised:
        list(stream)
    assert error_of(raised.value).reason == "FILE_CHANGED"


def test_a_file_that_is_replaced_while_it_is_read_is_read_as_it_was(files, folder):
    data = os.urandom(16 * MIB)
    files.upload(f"{folder}/file", data)
    files.write(f"{folder}/new", b"new")
    stream = files.open(f"{folder}/file")
    got = next(stream).data + next(stream).data
    files.move(f"{folder}/new", f"{folder}/file", overwrite=True)
    with pytest.raises(grpc.RpcError) as raised:  # that it has lost its name is a change as well
        got += b"".join(item.data for item in stream)
    assert error_of(raised.value).reason == "FILE_CHANGED"
    assert data.startswith(got)


# ---- Writing ----


def test_modes_and_owners_of_what_is_written(keeper, files, folder):
    assert files.write(f"{folder}/a").mode == 0o644
    assert files.write(f"{folder}/b", mode=0o755).mode == 0o755
    assert files.write(f"{folder}/c", mode=0).mode == 0
    assert files.write(f"{folder}/b", b"x", overwrite=True).mode == 0o755
    assert files.write(f"{folder}/b", b"x", overwrite=True, mode=0o600).mode == 0o600
    assert files.upload(f"{folder}/d", b"x", mode=0o700).file.mode == 0o700
    assert files.make(f"{folder}/e").mode == 0o755
    assert files.make(f"{folder}/f", mode=0o711).mode == 0o711
    assert files.write(f"{folder}/g/h/i", create_parents=True).links == 1
    owners = shell(keeper, f"find {folder} -printf '%U:%G\\n' | sort -u")
    assert owners == b"1000:1000\n"
    assert shell(keeper, f"stat -c %a {folder}/g {folder}/g/h") == b"755\n755\n"


def test_what_is_there_is_not_replaced_unasked(keeper, files, folder):
    shell(keeper, f"cd {folder}; printf old >file; ln -s file link; mkdir dir; mkfifo fifo; ln -s none broken")
    for write in ("write", "upload"):
        for name in ("file", "link", "broken", "fifo"):
            assert files.refused(write, f"{folder}/{name}", b"new") == "FILE_EXISTS"
        for values in ({}, {"overwrite": True}):
            assert files.refused(write, f"{folder}/dir", b"new", **values) == "IS_A_DIRECTORY"
        assert files.refused(write, f"{folder}/fifo", b"new", overwrite=True) == "NOT_A_REGULAR_FILE"
        assert files.refused(write, f"{folder}/no/file", b"new") == "FILE_NOT_FOUND"
        assert files.refused(write, f"{folder}/file/file", b"new", create_parents=True) == "NOT_A_DIRECTORY"
    files.write(f"{folder}/link", b"new", overwrite=True)
    assert files.read(f"{folder}/link").data == b"new"
    assert files.stat(f"{folder}/link").type == messages().FILE_TYPE_REGULAR
    assert files.read(f"{folder}/file").data == b"old"
    assert names(files.list(folder)) == ["broken", "dir", "fifo", "file", "link"]


def test_uploads_that_are_not_what_was_announced_leave_nothing(files, folder):
    files.write(f"{folder}/file", b"old")
    cases = [
        ({"size_bytes": 4}, "SIZE_MISMATCH"),
        ({"size_bytes": 2}, "SIZE_MISMATCH"),
        ({"sha256": sha256(b"other")}, "CHECKSUM_MISMATCH"),
        ({"max_size_bytes": 2}, "FILE_TOO_LARGE"),
        ({"max_size_bytes": 4, "size_bytes": 5}, "FILE_TOO_LARGE"),
    ]
    for values, reason in cases:
        assert files.refused("upload", f"{folder}/file", b"new", overwrite=True, **values) == reason
        assert files.refused("upload", f"{folder}/new", b"new", **values) == reason
    assert names(files.list(folder)) == ["file"]
    assert files.read(f"{folder}/file").data == b"old"


def test_messages_of_an_upload_come_in_order(files, folder):
    def send(*items) -> str:
        try:
            files.stub.UploadFile(iter(items), timeout=30, metadata=files.metadata)
        except grpc.RpcError as error:
            return error_of(error).reason
        raise AssertionError("it was not refused")

    header = messages().UploadFileRequest(header={"path": f"{folder}/file", "max_size_bytes": 100})
    data = messages().UploadFileRequest(data=b"x")
    assert send() == "STREAM_ORDER"
    assert send(data) == "STREAM_ORDER"
    assert send(header, header) == "STREAM_ORDER"
    assert send(header, data, messages().UploadFileRequest()) == "STREAM_ORDER"
    assert names(files.list(folder)) == []


# ---- Folders ----


def test_making_folders(keeper, files, folder):
    shell(keeper, f"cd {folder}; mkdir dir; ln -s dir link; ln -s none broken; touch file")
    assert files.refused("make", f"{folder}/dir") == "FILE_EXISTS"
    assert files.refused("make", f"{folder}/no/dir") == "FILE_NOT_FOUND"
    assert files.refused("make", f"{folder}/file", create_parents=True) == "FILE_EXISTS"
    assert files.make(f"{folder}/dir", create_parents=True).type == messages().FILE_TYPE_DIRECTORY
    assert files.make(f"{folder}/link", create_parents=True).type == messages().FILE_TYPE_DIRECTORY
    assert files.make(f"{folder}/link/a/b/c/", create_parents=True).path == f"{folder}/link/a/b/c"
    assert files.stat(f"{folder}/dir/a/b/c").mode == 0o755
    assert files.refused("make", f"{folder}/broken/x", create_parents=True) == "FILE_NOT_FOUND"
    assert files.make("/", create_parents=True).path == "/"
    assert files.refused("make", "/") == "FILE_EXISTS"
    deep = "/".join([folder, *["d" * 200] * 15])
    assert files.make(deep, create_parents=True).path == deep


def test_listings_are_in_byte_order_of_paths(keeper, files, folder):
    shell(keeper, f"cd {folder}; mkdir -p a a-b a/b.c a/b B; touch a.txt a/x a/b/1 a/b.c/2 é a0 a-b/z .hidden")
    paths = [file.path.removeprefix(f"{folder}/") for file in files.list(folder, depth=64)]
    expected = shell(keeper, f"cd {folder}; find . -mindepth 1 -printf '%P\\n' | LC_ALL=C sort").decode().splitlines()
    assert paths == expected
    for page_size in (1, 2, 3, 5):
        paged = files.list(folder, depth=64, page_size=page_size)
        assert [file.path.removeprefix(f"{folder}/") for file in paged] == expected
    assert names(files.list(folder)) == [".hidden", "B", "a", "a-b", "a.txt", "a0", "é"]
    two = [file.path.removeprefix(f"{folder}/") for file in files.list(folder, depth=2)]
    assert two == [path for path in expected if path.count("/") < 2]


def test_globs_choose_entries(keeper, files, folder):
    shell(keeper, f"cd {folder}; mkdir -p src/lib docs; touch src/a.c src/lib/b.c docs/c.md d.c e.h")

    def matched(glob: str) -> list[str]:
        return [file.path.removeprefix(f"{folder}/") for file in files.list(folder, depth=9, glob=glob, page_size=1)]

    assert matched("*.c") == ["d.c"]
    assert matched("**/*.c") == ["d.c", "src/a.c", "src/lib/b.c"]
    assert matched("src/*") == ["src/a.c", "src/lib"]
    assert matched("?.h") == ["e.h"]
    assert matched("none") == []


def test_a_large_folder_is_listed_in_pages(keeper, files, folder):
    shell(keeper, f"cd {folder}; python3 -c 'for i in range(5000): open(f\"{{i * 7919 % 5000}}\", \"w\")'")
    page = files.page(folder, page_size=1000)
    assert len(page.files) == 1000 and page.next_page_token and not page.changed
    assert names(files.list(folder, page_size=777)) == sorted(map(str, range(5000)))
    assert len(files.page(folder).files) == 100


def test_listings_tell_of_changes_between_pages(files, folder):
    for name in "abc":
        files.make(f"{folder}/{name}")
    first = files.page(folder, page_size=1, depth=2)
    assert not first.changed
    assert not files.page(folder, page_size=1, depth=2, page_token=first.next_page_token).changed
    time.sleep(0.02)  # the kernel's clock for files ticks every few milliseconds
    files.make(f"{folder}/b/new")
    below = files.page(folder, page_size=9, depth=2, page_token=first.next_page_token)
    assert below.changed and names(below.files) == ["b", "new", "c"]
    files.make(f"{folder}/d")
    assert files.page(folder, page_size=1, depth=2, page_token=first.next_page_token).changed


def test_a_token_belongs_to_its_listing(files, folder):
    for name in "abc":
        files.make(f"{folder}/{name}")
    token = files.page(folder, page_size=1).next_page_token
    for values in ({"depth": 2}, {"glob": "*"}):
        assert files.refused("page", folder, page_token=token, **values) == "PAGE_TOKEN_INVALID"
    for bad in ("x", token[:-1] + "+", token[:20], token + "=", "A" * 100):
        assert files.refused("page", folder, page_token=bad) == "PAGE_TOKEN_INVALID"
    assert files.refused("page", f"{folder}/a", page_token=token) == "PAGE_TOKEN_INVALID"


def test_names_that_are_no_text_are_shown(keeper, files, folder):
    shell(keeper, f"cd {folder}; touch $(printf 'a\\377b'); mkdir $(printf '\\300'); touch $(printf '\\300/x')")
    found = files.list(folder, depth=2, page_size=1)
    assert [file.name_bytes for file in found] == [b"a\xffb", b"\xc0", b""]
    assert names(found) == ["a\ufffdb", "\ufffd", "x"]
    assert found[2].path == f"{folder}/\ufffd/x"


def test_what_cannot_be_listed(keeper, files, folder):
    shell(keeper, f"cd {folder}; touch file; mkdir -m 0 closed; ln -s . self")
    assert files.refused("list", f"{folder}/file") == "NOT_A_DIRECTORY"
    assert files.refused("list", f"{folder}/none") == "FILE_NOT_FOUND"
    assert files.refused("list", f"{folder}/closed") == "FILE_PERMISSION"
    assert names(files.list(f"{folder}/self", depth=64)) == ["closed", "file", "self"]


# ---- Moving and removing ----


def test_moving(keeper, files, folder):
    shell(keeper, f"cd {folder}; printf 1 >one; printf 2 >two; mkdir -p dir/sub empty; ln -s one link")
    assert files.move(f"{folder}/one", f"{folder}/dir/one").path == f"{folder}/dir/one"
    assert files.refused("move", f"{folder}/two", f"{folder}/dir/one") == "FILE_EXISTS"
    files.move(f"{folder}/two", f"{folder}/dir/one", overwrite=True)
    assert files.read(f"{folder}/dir/one").data == b"2"
    assert files.move(f"{folder}/link", f"{folder}/other").symlink_target == "one"
    assert files.refused("move", f"{folder}/dir", f"{folder}/empty") == "FILE_EXISTS"
    assert files.refused("move", f"{folder}/dir", f"{folder}/empty", overwrite=True) == "IS_A_DIRECTORY"
    assert files.refused("move", f"{folder}/other", f"{folder}/empty", overwrite=True) == "IS_A_DIRECTORY"
    assert files.refused("move", f"{folder}/dir", f"{folder}/other", overwrite=True) == "NOT_A_DIRECTORY"
    assert files.refused("move", f"{folder}/dir", f"{folder}/dir/sub/x") == "FIELD_CONFLICT"
    assert files.refused("move", f"{folder}/none", f"{folder}/x") == "FILE_NOT_FOUND"
    assert files.refused("move", f"{folder}/other", f"{folder}/no/x") == "FILE_NOT_FOUND"
    assert files.refused("move", f"{folder}/other/", f"{folder}/x") == "NOT_A_DIRECTORY"
    assert files.refused("move", f"{folder}/other", f"{folder}/x/") == "NOT_A_DIRECTORY"
    files.move(f"{folder}/dir/", f"{folder}/new/place/", create_parents=True)
    assert names(files.list(f"{folder}/new", depth=3)) == ["place", "one", "sub"]


def test_moving_stays_in_its_mount(files, folder):
    files.write(f"{folder}/file")
    assert files.refused("move", f"{folder}/file", "/dev/shm/file") == "CROSS_MOUNT"
    assert files.refused("remove", "/dev", recursive=True) in ("FILE_BUSY", "FILE_PERMISSION", "CROSS_MOUNT")


def test_the_root_and_the_workspace_are_protected(keeper, files, folder):
    shell(keeper, f"cd {folder}; ln -s / root; ln -s /workspace work; mkdir moved")
    for path in ("/", "/workspace", "/workspace/", f"{folder}/root/workspace"):
        assert files.refused("remove", path, recursive=True) == "PATH_PROTECTED"
        assert files.refused("move", path, f"{folder}/x") == "PATH_PROTECTED"
    assert files.remove(f"{folder}/work") == 1
    assert files.stat("/workspace").type == messages().FILE_TYPE_DIRECTORY


def test_removing(keeper, files, folder):
    shell(keeper, f"cd {folder}; touch file; mkdir -p dir/a/b empty; touch dir/a/1 dir/2; ln -s dir link; ln -s / r")
    assert files.refused("remove", f"{folder}/none") == "FILE_NOT_FOUND"
    assert files.remove(f"{folder}/none", ignore_missing=True) == 0
    assert files.remove(f"{folder}/no/ne", ignore_missing=True) == 0
    assert files.remove(f"{folder}/file") == 1
    assert files.remove(f"{folder}/empty") == 1
    assert files.refused("remove", f"{folder}/dir") == "DIRECTORY_NOT_EMPTY"
    assert files.remove(f"{folder}/link", recursive=True) == 1
    assert files.remove(f"{folder}/r", recursive=True) == 1
    assert files.remove(f"{folder}/dir", recursive=True) == 5
    assert names(files.list(folder)) == []


def test_removing_a_deep_tree(keeper, files, folder):
    depth = 3000
    script = f"""
import os
os.chdir("{folder}"); os.mkdir("deep"); os.chdir("deep")
for i in range({depth}):
    os.mkdir("d"); open("f", "w").close(); os.symlink("/", "l"); os.chdir("d")
"""
    ran = keeper.run("python3", "-c", script, user="1000")
    assert ran.end.wait_status == 0, keeper.output(ran.exec_id, "err")
    assert files.remove(f"{folder}/deep", recursive=True) == 3 * depth + 1


def test_removing_a_wide_tree(keeper, files, folder):
    shell(keeper, f"mkdir {folder}/wide; cd {folder}/wide; seq 3000 | xargs touch; seq 4000 5000 | xargs mkdir")
    assert files.remove(f"{folder}/wide", recursive=True) == 3000 + 1001 + 1


# ---- As whom ----


def test_permissions_inside_hold(keeper, files, folder):
    files.write(f"{folder}/secret", b"x", mode=0o600)
    other = Files(keeper, "1234:1234")
    assert other.refused("read", f"{folder}/secret") == "FILE_PERMISSION"
    assert other.refused("write", f"{folder}/new") == "FILE_PERMISSION"
    assert other.refused("remove", f"{folder}/secret") == "FILE_PERMISSION"
    assert other.stat(f"{folder}/secret").mode == 0o600
    assert files.refused("read", "/etc/shadow") in ("FILE_PERMISSION", "FILE_NOT_FOUND")
    for path in ("/proc/self/environ", "/proc/self/mem", "/proc/1/environ"):
        assert files.refused("read", path) == "FILE_PERMISSION"
    root = Files(keeper, "0")
    root.write("/root-file", b"x", mode=0o600)
    assert files.refused("read", "/root-file") == "FILE_PERMISSION"
    assert root.refused("read", "/proc/self/environ") == "FILE_PERMISSION"
    assert root.stat("/root-file").uid == 0
    root.remove("/root-file")


def test_groups_are_those_of_the_user(keeper, files, folder):
    shell(keeper, f"printf x >{folder}/file; chmod 640 {folder}/file")
    assert Files(keeper, "1234:1000").read(f"{folder}/file").data == b"x"
    assert Files(keeper, "1234").refused("read", f"{folder}/file") == "FILE_PERMISSION"
    assert Files(keeper, "agent").read(f"{folder}/file").data == b"x"


def test_an_unknown_user_is_told(keeper):
    assert Files(keeper, "nobody-here").refused("stat", "/") == "USER_NOT_FOUND"
    assert Files(keeper, "nobody-here").refused("stat", "/") == "USER_NOT_FOUND"


def test_magic_links_lead_nowhere(files):
    for path in ("/proc/self/fd/3", "/proc/self/root/etc/passwd", "/proc/self/cwd", "/proc/1/root/etc/passwd"):
        assert files.refused("read", path) in ("SYMLINK_LOOP", "FILE_PERMISSION"), path
