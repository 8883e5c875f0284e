# SPDX-License-Identifier: Apache-2.0
"""FileService in a sandbox that runs: what each method does, and how it fails."""

import hashlib
import threading
import time
import uuid

import grpc
import pytest
from conformance import vectors
from google.protobuf import message as protobuf
from hutch.v1 import file_pb2
from hutchd import LIMIT, MIB, Refusal, field, refused, wait_until
from sandbox_files import Files, chunks_of, uploads
from test_vectors import by_name, bytes_of

FILE_TYPES = file_pb2.FileType


@pytest.fixture(scope="module", name="files")
def make_files(daemon, shared_sandbox):
    return Files(daemon, shared_sandbox)


@pytest.fixture(name="folder")
def make_folder(files) -> str:
    """The name of a folder in the workspace, for one test."""
    name = f"f-{uuid.uuid4().hex[:12]}"
    files.make(name)
    yield name
    files.remove(name, recursive=True)


@pytest.fixture(name="shell")
def make_shell(daemon, shared_sandbox, folder):
    """Runs a script in the test's folder."""
    return lambda script: daemon.shell(shared_sandbox, script, working_directory=f"/workspace/{folder}")


def type_name(info: file_pb2.FileInfo) -> str:
    return FILE_TYPES.Name(info.type).removeprefix("FILE_TYPE_")


# ---- Telling about things ----


@pytest.mark.rules("FILE-011")
def test_stat_tells_about_everything(files, folder, shell):
    shell("printf hello > plain; chmod 640 plain; ln -s plain link; mkfifo fifo; mkdir -m 700 inner; ln plain other")
    info = files.stat(f"{folder}/plain")
    assert (info.path, info.name, type_name(info)) == (f"/workspace/{folder}/plain", "plain", "REGULAR")
    assert (info.size_bytes, info.mode, info.links) == (5, 0o640, 2)
    assert (str(info.uid), str(info.gid)) == tuple(shell("stat -c '%u %g' plain").split())
    assert info.modify_time.seconds == int(shell("stat -c %Y plain"))
    assert 0 < len(info.version) <= 64
    link = files.stat(f"{folder}/link")
    assert (type_name(link), link.symlink_target) == ("SYMLINK", "plain")
    assert type_name(files.stat(f"{folder}/link", follow_symlink=True)) == "REGULAR"
    assert type_name(files.stat(f"{folder}/fifo")) == "FIFO"
    inner = files.stat(f"{folder}/inner")
    assert (type_name(inner), inner.mode) == ("DIRECTORY", 0o700)
    assert type_name(files.stat("/dev/null")) == "CHARACTER_DEVICE"
    root = files.stat("/")
    assert (root.path, type_name(root)) == ("/", "DIRECTORY")


@pytest.mark.rules("PATH-010", "PATH-015")
def test_what_is_not_there_or_is_something_else(files, folder):
    files.write(f"{folder}/plain", b"x")
    with refused("FILE_NOT_FOUND"):
        files.stat(f"{folder}/none")
    with refused("NOT_A_DIRECTORY"):
        files.stat(f"{folder}/plain/")
    with refused("NOT_A_DIRECTORY"):
        files.stat(f"{folder}/plain/below")
    with refused("NOT_A_DIRECTORY"):
        files.page(f"{folder}/plain")
    with refused("FILE_NOT_FOUND"):
        files.page(f"{folder}/none")
    assert type_name(files.stat(f"{folder}/")) == "DIRECTORY"


ACCEPTED = [
    case
    for case in vectors("paths")
    if "out" in case and case["in"].get("use") != "absolute" and case["in"].get("workspace", "/workspace") != "/"
]


@pytest.fixture(scope="module", name="places")
def make_places(daemon):
    """Sandboxes, by working directory and workspace."""
    made = {}
    for place in {place_of(case) for case in ACCEPTED}:
        directory, workspace = place
        made[place] = daemon.ready(working_directory=directory, workspace={"target": workspace})
    yield made
    daemon.remove(*made.values())


def place_of(case: dict) -> tuple[str, str]:
    return case["in"].get("working_directory", "/workspace"), case["in"].get("workspace", "/workspace")


@pytest.mark.vectors("paths")
@by_name(ACCEPTED)
def test_paths_mean_what_the_vectors_say(daemon, places, case):
    """Each is asked about: what is there tells its path, and what is not is named by it."""
    wanted = case["out"]["path"]
    request = field(1, places[place_of(case)].encode()) + field(2, bytes_of(case, "path"))
    stat = daemon.channel.unary_unary("/hutch.v1.FileService/StatFile", None, file_pb2.StatFileResponse.FromString)
    try:
        assert stat(request, timeout=LIMIT).file.path == wanted
    except grpc.RpcError as error:
        told = Refusal(error)
        assert told.reason in ("FILE_NOT_FOUND", "PATH_TOO_LONG" if len(wanted.encode()) >= 4095 else "")
        assert len(wanted) > 900 or wanted in told.message


# ---- Reading ----


@pytest.mark.rules("FILE-008")
def test_ranges_are_read(files, folder):
    data = bytes(range(256)) * 40
    files.write(f"{folder}/data", data)
    for offset, length in [(0, None), (0, 0), (1, 5), (10000, 1000), (len(data), None), (len(data), 7), (5, 1 << 21)]:
        more = {"offset": offset} | ({} if length is None else {"length": length})
        wanted = data[offset : None if length is None else offset + length]
        assert files.read(f"{folder}/data", **more) == wanted
        assert files.fetch(f"{folder}/data", **more)[1] == wanted
    for ask in (files.read, files.fetch):
        with refused("OFFSET_OUT_OF_RANGE"):
            ask(f"{folder}/data", offset=len(data) + 1)


@pytest.mark.rules("FILE-008")
def test_files_without_a_size_are_read_to_their_end(files):
    status = files.read("/proc/self/status")
    assert b"Uid:" in status
    assert b"Uid:" in files.fetch("/proc/self/status")[1]


def test_what_is_too_large_for_one_answer(files, folder, shell):
    shell(f"head -c {3 * MIB} /dev/zero > fits; head -c {3 * MIB + 1} /dev/zero > more")
    assert len(files.read(f"{folder}/fits")) == 3 * MIB
    assert len(files.read(f"{folder}/more", length=3 * MIB)) == 3 * MIB
    with refused("FILE_TOO_LARGE"):
        files.read(f"{folder}/more")


@pytest.mark.rules("FILE-009")
def test_only_regular_files_are_read_and_written(files, folder, shell):
    shell("mkfifo fifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")' || true; mkdir inner")
    for path in [f"{folder}/fifo", "/dev/null", "/dev/zero"]:
        for ask in (files.read, files.fetch):
            with refused("NOT_A_REGULAR_FILE"):
                ask(path)
    for ask in (files.read, files.fetch):
        with refused("IS_A_DIRECTORY"):
            ask(f"{folder}/inner")


@pytest.mark.rules("FILE-007")
def test_versions_are_compared_before_any_byte(files, folder, shell):
    version = files.write(f"{folder}/a", b"one").version
    about, data = files.fetch(f"{folder}/a", expected_version=version)
    assert (data, about.version, about.size_bytes, about.mode) == (b"one", version, 3, 0o644)
    assert about.HasField("modify_time")
    assert files.read(f"{folder}/a", expected_version=version) == b"one"
    shell("printf two > a")
    for ask in (files.read, files.fetch):
        with refused("FILE_CHANGED"):
            ask(f"{folder}/a", expected_version=version)
    with refused("FILE_CHANGED"):
        files.write(f"{folder}/a", b"three", overwrite=True, expected_version=version)
    assert files.read(f"{folder}/a") == b"two"


@pytest.mark.rules("FILE-011")
def test_reading_follows_symlinks_inside(files, folder, shell):
    shell("printf inside > a; ln -s a relative; ln -s $PWD/a absolute; ln -s loop loop; ln -s ../../../../none up")
    assert files.read(f"{folder}/relative") == files.fetch(f"{folder}/absolute")[1] == b"inside"
    with refused("SYMLINK_LOOP"):
        files.read(f"{folder}/loop")
    with refused("FILE_NOT_FOUND"):
        files.read(f"{folder}/up")


# ---- Writing ----


@pytest.mark.rules("FILE-004", "FILE-006")
def test_writes_replace_only_when_told(files, folder, shell):
    for write in (
        lambda path, **more: files.write(path, b"new", **more),
        lambda path, **more: files.upload(path, [b"new"], **more),
    ):
        shell("rm -rf a link target inner x; printf old > a; printf kept > target; ln -s target link; mkdir inner")
        with refused("FILE_EXISTS"):
            write(f"{folder}/a")
        assert shell("cat a") == "old"
        write(f"{folder}/a", overwrite=True)
        assert shell("cat a") == "new"
        with refused("FILE_EXISTS"):
            write(f"{folder}/link")
        write(f"{folder}/link", overwrite=True)
        assert shell("test -L link || cat link; cat target") == "newkept"
        with refused("IS_A_DIRECTORY"):
            write(f"{folder}/inner", overwrite=True)
        with refused("FILE_NOT_FOUND"):
            write(f"{folder}/x/y/z")
        write(f"{folder}/x/y/z", create_parents=True)
        assert shell("cat x/y/z; stat -c %a x x/y") == "new755\n755\n"


@pytest.mark.rules("FILE-005")
def test_modes_and_owners(daemon, files, folder, shared_sandbox, shell):
    own = shell("id -u; id -g").split()
    assert files.write(f"{folder}/plain").mode == 0o644
    assert files.upload(f"{folder}/upload", []).file.mode == 0o644
    assert files.make(f"{folder}/inner").mode == 0o755
    assert files.write(f"{folder}/open", mode=0o777).mode == 0o777
    assert files.make(f"{folder}/closed", mode=0o700).mode == 0o700
    assert files.write(f"{folder}/none", mode=0).mode == 0
    files.write(f"{folder}/open", overwrite=True)
    assert files.stat(f"{folder}/open").mode == 0o777
    owners = daemon.shell(shared_sandbox, f"stat -c '%u %g' {folder}/* | sort -u").split()
    assert owners == own


@pytest.mark.rules("FILE-001")
def test_work_is_done_as_the_sandboxs_user(daemon):
    sandbox_id = daemon.ready(user="1234:2345")
    files = Files(daemon, sandbox_id)
    with refused("FILE_PERMISSION"):
        files.write("/etc/mine")
    daemon.shell(sandbox_id, "printf secret > /tmp/roots; chmod 600 /tmp/roots", user="0")
    for ask in (files.read, files.fetch):
        with refused("FILE_PERMISSION"):
            ask("/tmp/roots")
    info = files.write("/tmp/mine")
    assert (info.uid, info.gid) == (1234, 2345)
    daemon.remove(sandbox_id)


WRONG = {"SIZE_MISMATCH": ["header.size_bytes"], "CHECKSUM_MISMATCH": ["header.sha256"]}


@pytest.mark.rules("FILE-002", "FILE-003")
def test_an_upload_that_does_not_match_leaves_nothing(files, folder, shell):
    data, digest = b"some bytes", hashlib.sha256(b"some bytes").digest()
    shell("printf old > a")
    for reason, more in [
        ("SIZE_MISMATCH", {"size_bytes": 9}),
        ("SIZE_MISMATCH", {"size_bytes": 11}),
        ("CHECKSUM_MISMATCH", {"sha256": b"\0" * 32}),
        ("CHECKSUM_MISMATCH", {"sha256": b"\0" * 32, "size_bytes": 10}),
        ("FILE_TOO_LARGE", {"max_size_bytes": 9}),
    ]:
        for path in ("a", "b"):
            with refused(reason, *WRONG.get(reason, ())):
                files.upload(f"{folder}/{path}", chunks_of(data, 3), overwrite=True, **more)
    assert shell("ls -A; cat a").split() == ["a", "old"]
    answer = files.upload(f"{folder}/b", chunks_of(data, 3), size_bytes=10, sha256=digest)
    assert (answer.sha256, answer.file.size_bytes, answer.file.path) == (digest, 10, f"/workspace/{folder}/b")
    assert files.fetch(f"{folder}/b")[1] == data


@pytest.mark.rules("FILE-002")
def test_an_upload_is_seen_when_it_is_whole(files, folder, shell):
    gate = threading.Event()

    def chunks():
        yield b"first "
        gate.wait(LIMIT)
        yield b"second"

    shell("printf old > a")
    header = file_pb2.UploadFileHeader(sandbox_id=files.sandbox_id, path=f"{folder}/a", overwrite=True)
    call = files.stub.UploadFile.future(uploads(header, chunks()), timeout=LIMIT)
    time.sleep(0.3)
    assert shell("cat a") == "old"
    gate.set()
    call.result(LIMIT)
    assert shell("cat a; ls -A | wc -l") == "first second1\n"


def test_uploads_have_an_order(daemon, files, folder, shell):
    upload = daemon.channel.stream_unary("/hutch.v1.FileService/UploadFile")
    header = field(1, field(1, files.sandbox_id.encode()) + field(2, f"{folder}/a".encode()))
    for reason, messages in [
        ("STREAM_ORDER", [header, header]),
        ("STREAM_ORDER", [header, field(2, b"data"), header]),
        ("FIELD_REQUIRED", [header, b""]),
        ("FIELD_INVALID", [header, b"\xff"]),
        ("FIELD_TOO_LONG", [header, field(2, b"x" * (MIB + 1))]),
    ]:
        with refused(reason):
            upload(iter(messages), timeout=LIMIT)
    wait_until(lambda: shell("ls -A") == "")
    # What this daemon does not know is left out, and what stands there twice counts once, as protobuf has it.
    upload(iter([header, field(2, b"lost") + field(15, b"?") + field(2, b"data"), field(2, b"x" * MIB)]), timeout=LIMIT)
    assert shell("head -c 5 a; stat -c %s a") == f"datax{MIB + 4}\n"


# ---- Folders ----


@pytest.mark.rules("FILE-014")
def test_listings_are_ordered_and_paged(files, folder, shell):
    shell("for i in $(seq 250); do : > n$i; done; mkdir inner; : > inner/x; printf '' > \"$(printf 'bad\\377')\"")
    names, token, pages = [], "", 0
    while not pages or token:
        page = files.page(folder, page_token=token, page_size=100)
        names += [file.name for file in page.files]
        assert len(page.files) <= 100 and not page.changed
        token, pages = page.next_page_token, pages + 1
    assert len(names) == 252 and pages == 3
    listed = [name.encode() for name in names if not name.startswith("bad")]
    assert listed == sorted(listed)
    bad = next(file for file in files.page(folder, page_size=1000).files if file.name_bytes)
    assert (bad.name, bad.name_bytes) == ("bad\ufffd", b"bad\xff")
    assert len(files.page(folder).files) == 100
    deep = files.names(folder, depth=2, page_size=1000)
    assert f"/workspace/{folder}/inner/x" in deep and len(deep) == 253
    first = files.page(folder, page_size=10)
    shell(": > new")
    assert files.page(folder, page_size=10, page_token=first.next_page_token).changed
    with refused("PAGE_TOKEN_INVALID", "page_token"):
        files.page(folder, page_token="no such token")


def test_folders_are_made(files, folder):
    info = files.make(f"{folder}/a")
    assert (info.path, type_name(info), info.mode) == (f"/workspace/{folder}/a", "DIRECTORY", 0o755)
    with refused("FILE_EXISTS"):
        files.make(f"{folder}/a")
    with refused("FILE_NOT_FOUND"):
        files.make(f"{folder}/x/y")
    assert files.make(f"{folder}/x/y", create_parents=True).path == f"/workspace/{folder}/x/y"
    assert files.make(f"{folder}/x/y", create_parents=True).path == f"/workspace/{folder}/x/y"
    files.write(f"{folder}/plain")
    with refused("FILE_EXISTS"):
        files.make(f"{folder}/plain")


def test_things_are_moved(files, folder, shell):
    shell("printf one > a; printf two > b; ln -s a link; mkdir -p inner/deep full; : > full/x")
    assert files.move(f"{folder}/a", f"{folder}/c").path == f"/workspace/{folder}/c"
    with refused("FILE_EXISTS"):
        files.move(f"{folder}/c", f"{folder}/b")
    files.move(f"{folder}/c", f"{folder}/b", overwrite=True)
    assert shell("cat b; ls") == "one" + "b\nfull\ninner\nlink\n"
    files.move(f"{folder}/link", f"{folder}/moved")
    assert shell("readlink moved") == "a\n"
    files.move(f"{folder}/inner", f"{folder}/x/y/inner", create_parents=True)
    assert shell("ls x/y/inner") == "deep\n"
    with refused("FILE_NOT_FOUND"):
        files.move(f"{folder}/none", f"{folder}/n")
    with refused("FILE_NOT_FOUND"):
        files.move(f"{folder}/b", f"{folder}/no/such/b")
    with refused("CROSS_MOUNT"):
        files.move(f"{folder}/b", "/tmp/b")


@pytest.mark.rules("FILE-012")
def test_things_are_removed(files, folder, shell):
    shell("printf one > a; ln -s keep link; mkdir keep; : > keep/x")
    shell("mkdir -p full/1/2/3; : > full/1/y; ln -s ../keep full/l")
    assert files.remove(f"{folder}/a") == 1
    assert files.remove(f"{folder}/link") == 1
    with refused("FILE_NOT_FOUND"):
        files.remove(f"{folder}/a")
    assert files.remove(f"{folder}/a", ignore_missing=True) == 0
    with refused("DIRECTORY_NOT_EMPTY"):
        files.remove(f"{folder}/full")
    assert files.remove(f"{folder}/full", recursive=True) == 6
    assert shell("find . | sort").split() == [".", "./keep", "./keep/x"]


# ---- Requests that come twice ----


@pytest.mark.rules("IDEM-001", "IDEM-002")
def test_a_repeated_request_is_done_once(files, folder, shell):
    make = {"request_id": uuid.uuid4().hex}
    assert files.make(f"{folder}/a", **make) == files.make(f"{folder}/a", **make)
    with refused("REQUEST_ID_REUSED"):
        files.make(f"{folder}/b", **make)
    write = {"request_id": uuid.uuid4().hex}
    first = files.write(f"{folder}/file", b"one", **write)
    shell("printf other > file")
    assert files.write(f"{folder}/file", b"one", **write) == first
    assert shell("cat file") == "other"
    with refused("REQUEST_ID_REUSED"):
        files.write(f"{folder}/file", b"two", **write)
    remove = {"request_id": uuid.uuid4().hex}
    assert files.remove(f"{folder}/file", **remove) == files.remove(f"{folder}/file", **remove) == 1
    move = {"request_id": uuid.uuid4().hex}
    assert files.move(f"{folder}/a", f"{folder}/c", **move) == files.move(f"{folder}/a", f"{folder}/c", **move)
    upload = {"request_id": uuid.uuid4().hex}
    first = files.upload(f"{folder}/up", [b"bytes"], **upload)
    assert files.upload(f"{folder}/up", [b"bytes"], **upload) == first
    with refused("REQUEST_ID_REUSED"):
        files.make(f"{folder}/d", **write)


# ---- What comes back ----


def test_answers_are_of_the_contract(daemon, files, folder):
    """Nothing that the contract does not know comes out, whatever the keeper says."""
    files.write(f"{folder}/a", b"x")
    request = file_pb2.ListFilesRequest(sandbox_id=files.sandbox_id, path=folder)
    answer = file_pb2.ListFilesResponse()
    raw = daemon.channel.unary_unary("/hutch.v1.FileService/ListFiles")(request.SerializeToString(), timeout=LIMIT)
    answer.ParseFromString(raw)
    again = answer.SerializeToString(deterministic=True)
    answer.DiscardUnknownFields()
    assert isinstance(answer, protobuf.Message) and answer.SerializeToString(deterministic=True) == again


@pytest.mark.rules("FILE-020")
def test_of_those_who_expect_a_version_one_replaces_it(files, folder):
    version = files.write(f"{folder}/f", b"old").version
    for turn in range(10):
        outcomes = []

        def replace(number: int, more: dict, told: list, data: bytes):
            try:
                told.append(files.write(f"{folder}/f", data + b"-%d" % number, **more))
            except grpc.RpcError as error:
                assert Refusal(error).reason == "FILE_CHANGED"

        more = {"overwrite": True, "expected_version": version}
        threads = [threading.Thread(target=replace, args=(number, more, outcomes, b"%d" % turn)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(outcomes) == 1
        version = files.stat(f"{folder}/f").version
        assert version == outcomes[0].version


@pytest.mark.rules("FILE-020")
def test_who_holds_the_folder_is_not_waited_for_for_ever(daemon, files, folder, shared_sandbox):
    version = files.write(f"{folder}/f", b"old").version
    holder = daemon.start(shared_sandbox, "flock", f"/workspace/{folder}", "sleep", "1000")
    wait_until(lambda: daemon.run(shared_sandbox, "flock", "-n", f"/workspace/{folder}", "true").exec.result.exit_code)
    with refused("FILE_BUSY"):
        files.write(f"{folder}/f", b"new", overwrite=True, expected_version=version)
    assert files.write(f"{folder}/f", b"new", overwrite=True).size_bytes == 3
    daemon.cancel(shared_sandbox, holder.id, 0)
