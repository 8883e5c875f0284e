# SPDX-License-Identifier: Apache-2.0
"""What FileService refuses before anything happens: fields, sizes, streams out of order, sandboxes and states; and
every path of the vectors, by every field that has a path."""

import pytest
from conformance import vectors
from sandbox_files import Files
from hutch.v1 import file_pb2
from hutchd import LIMIT, MIB, RestingDaemon, field, refused
from test_vectors import by_name, bytes_of, reason_of, violations

NOBODY, NOGROUP = 65534, 65534
GIB = 1024 * MIB


@pytest.fixture(name="files")
def make_files(daemon, shared_sandbox):
    return Files(daemon, shared_sandbox)


# ---- Paths ----

# Of every path: its method, its field, and the number of that.
PATHS = [
    ("StatFile", "path", 2),
    ("ReadFile", "path", 2),
    ("WriteFile", "path", 2),
    ("ListFiles", "path", 2),
    ("MakeDirectory", "path", 2),
    ("DownloadFile", "path", 2),
    ("DownloadArchive", "path", 2),
    ("WatchFiles", "path", 2),
    ("ListChanges", "path", 2),
    ("MoveFile", "target", 3),
]
REMOVED = [("RemoveFile", "path", 2), ("MoveFile", "source", 2)]
HEADERS = ["UploadFile", "UploadArchive"]
STREAMED = {"DownloadFile", "DownloadArchive", "WatchFiles"}
# The root can be no sandbox's workspace.
CASES = [
    case for case in vectors("paths") if case["in"].get("use") != "absolute" and case["in"].get("workspace") != "/"
]


@pytest.fixture(scope="module", name="places")
def make_places(daemon):
    """Sandboxes, by their working directory and workspace."""
    made = {}
    for place in {place_of(case) for case in CASES}:
        directory, workspace = place
        made[place] = daemon.create(working_directory=directory, workspace={"target": workspace}).id
    yield made
    daemon.remove(*made.values())


def place_of(case: dict) -> tuple[str, str]:
    """The working directory and the workspace that a case has."""
    return case["in"].get("working_directory", "/workspace"), case["in"].get("workspace", "/workspace")


def ask_raw(client, method: str, request: bytes):
    """Calls a method with bytes as they are; of a stream, the first answer."""
    path = f"/hutch.v1.FileService/{method}"
    if method in HEADERS:
        return client.channel.stream_unary(path)(iter([field(1, request)]), timeout=LIMIT)
    if method in STREAMED:
        return next(client.channel.unary_stream(path)(request, timeout=LIMIT))
    return client.channel.unary_unary(path)(request, timeout=LIMIT)


@pytest.mark.vectors("paths")
@by_name([case for case in CASES if "error" in case and case["in"].get("use") != "remove"])
def test_a_path_that_is_refused_is_refused_by_every_method(daemon, places, case):
    sandbox_id, data = places[place_of(case)].encode(), bytes_of(case, "path")
    for method, name, number in [*PATHS, *REMOVED]:
        request = field(1, sandbox_id) + field(number, data)
        assert violations(ask_raw, daemon, method, request)[name] == reason_of(case), method
    for method in HEADERS:
        told = violations(ask_raw, daemon, method, field(1, sandbox_id) + field(2, data))
        assert told == {"header.path": reason_of(case)}, method


@pytest.mark.vectors("paths")
@by_name([case for case in CASES if "error" in case and case["in"].get("use") == "remove"])
def test_what_is_protected_is_neither_removed_nor_moved(daemon, places, case):
    sandbox_id, data = places[place_of(case)].encode(), bytes_of(case, "path")
    for method, name, number in REMOVED:
        request = field(1, sandbox_id) + field(number, data)
        for recursive in (b"", b"\x18\x01") if method == "RemoveFile" else (b"",):
            assert violations(ask_raw, daemon, method, request + recursive)[name] == reason_of(case), method


# ---- Fields ----

BAD = [
    (file_pb2.StatFileRequest(path="a", upload_id="a b"), [("upload_id", "FIELD_INVALID")]),
    (file_pb2.StatFileRequest(upload_id="a" * 129), [("upload_id", "FIELD_TOO_LONG")]),
    (file_pb2.ReadFileRequest(path="a", expected_version="v" * 65), [("expected_version", "FIELD_TOO_LONG")]),
    (file_pb2.WriteFileRequest(path="a", mode=0o4755), [("mode", "FIELD_INVALID")]),
    (file_pb2.WriteFileRequest(path="a", mode=0o1000), [("mode", "FIELD_INVALID")]),
    (file_pb2.MakeDirectoryRequest(path="a", mode=0o2755), [("mode", "FIELD_INVALID")]),
    (file_pb2.WriteFileRequest(path="a", request_id="a b"), [("request_id", "REQUEST_ID_MALFORMED")]),
    (file_pb2.ListFilesRequest(path="a", depth=65), [("depth", "FIELD_OUT_OF_RANGE")]),
    (file_pb2.ListFilesRequest(path="a", glob="*" * 4097), [("glob", "FIELD_TOO_LONG")]),
    (file_pb2.ListFilesRequest(path="a", page_token="x" * 30000), [("page_token", "PAGE_TOKEN_INVALID")]),
    (
        file_pb2.MoveFileRequest(source="..", target="~", request_id="?"),
        [("request_id", "REQUEST_ID_MALFORMED"), ("source", "PATH_DOTDOT"), ("target", "PATH_TILDE")],
    ),
    (
        file_pb2.DownloadArchiveRequest(
            path="", compression=9, include=["*"] * 257, exclude=["", "a" * 4097], ignore_file="a/b"
        ),
        [
            ("path", "PATH_EMPTY"),
            ("compression", "FIELD_INVALID"),
            ("include", "FIELD_TOO_LONG"),
            ("exclude[0]", "FIELD_INVALID"),
            ("exclude[1]", "FIELD_TOO_LONG"),
            ("ignore_file", "FIELD_INVALID"),
        ],
    ),
]


@pytest.mark.rules("FILE-005")
@pytest.mark.parametrize("request_, fields", BAD, ids=lambda value: getattr(value, "DESCRIPTOR", None) and "bad")
def test_every_bad_field_is_told_at_once(daemon, shared_sandbox, request_, fields):
    request_.sandbox_id = shared_sandbox
    method = type(request_).__name__.removesuffix("Request")
    with refused(fields[0][1]) as told:
        ask_raw(daemon, method, request_.SerializeToString())
    assert told.fields == fields


def test_every_bad_field_of_a_header_is_told_at_once(daemon, shared_sandbox):
    header = file_pb2.UploadFileHeader(
        sandbox_id=shared_sandbox, path="a\n", mode=0o6000, sha256=b"short", upload_id="/", request_id=" "
    )
    with refused("REQUEST_ID_MALFORMED") as told:
        ask_raw(daemon, "UploadFile", header.SerializeToString())
    assert told.fields == [
        ("header.request_id", "REQUEST_ID_MALFORMED"),
        ("header.path", "PATH_CONTROL_CHARACTER"),
        ("header.mode", "FIELD_INVALID"),
        ("header.sha256", "FIELD_INVALID"),
        ("header.upload_id", "FIELD_INVALID"),
    ]
    header = file_pb2.UploadFileHeader(sandbox_id=shared_sandbox, path="a", resume_offset=1)
    with refused("FIELD_INVALID", "header.resume_offset"):
        ask_raw(daemon, "UploadFile", header.SerializeToString())
    header = file_pb2.UploadArchiveHeader(sandbox_id=shared_sandbox, path="a", compression=7)
    with refused("FIELD_INVALID", "header.compression"):
        ask_raw(daemon, "UploadArchive", header.SerializeToString())


# ---- Sizes ----


@pytest.mark.rules("SIZE-001")
def test_what_is_past_a_limit_is_told_with_the_limit(files):
    def expect(limit: str, value: int, ask, *arguments, **more):
        with refused("FILE_TOO_LARGE") as told:
            ask(*arguments, **more)
        assert told.metadata == {"limit": limit, "value": str(value)}

    expect("small_file_bytes", 3 * MIB, files.write, "a", b"x" * (3 * MIB + 1))
    expect("small_file_bytes", 3 * MIB, files.read, "a", length=3 * MIB + 1)
    expect("file_bytes", 256 * MIB, files.upload, "a", [], size_bytes=256 * MIB + 1)
    expect("max_size_bytes", 300 * MIB, files.upload, "a", [], size_bytes=300 * MIB + 1, max_size_bytes=300 * MIB)
    expect("max_file_bytes", 64 * GIB, files.upload, "a", [], max_size_bytes=64 * GIB + 1)
    expect("max_file_bytes", 64 * GIB, files.fetch, "a", max_size_bytes=64 * GIB + 1)
    expect("max_file_bytes", 64 * GIB, files.pack, "a", max_size_bytes=64 * GIB + 1)
    expect("max_file_bytes", 64 * GIB, files.unpack, "a", b"", max_size_bytes=64 * GIB + 1)


# ---- Streams ----


@pytest.mark.parametrize("kind", ["File", "Archive"])
def test_an_upload_begins_with_its_header(daemon, kind):
    upload = daemon.channel.stream_unary(f"/hutch.v1.FileService/Upload{kind}")
    for reason, messages in [
        ("STREAM_ORDER", []),
        ("STREAM_ORDER", [field(2, b"data")]),
        ("STREAM_ORDER", [b""]),
        ("FIELD_INVALID", [b"\xff"]),
    ]:
        with refused(reason):
            upload(iter(messages), timeout=LIMIT)


# ---- Sandboxes ----


def asks(files: Files) -> list:
    """Every method, asked for something that could be."""
    return [
        lambda: files.stat("a"),
        lambda: files.read("a"),
        lambda: files.write("a"),
        lambda: files.page("."),
        lambda: files.make("a"),
        lambda: files.move("a", "b"),
        lambda: files.remove("a"),
        lambda: files.upload("a", [b"data"]),
        lambda: files.fetch("a"),
        lambda: files.unpack("a", b"data"),
        lambda: files.pack("."),
        lambda: next(files.watch(".")),
    ]


@pytest.mark.rules("AUTH-005")
def test_a_sandbox_of_others_is_not_there(start_daemon):
    daemon = start_daemon({"socket_group": "nogroup"})
    daemon.folder.chmod(0o755)
    sandbox_id = daemon.ready()
    stranger = daemon.client(NOBODY, NOGROUP)
    for files in (Files(stranger, sandbox_id), Files(daemon, "sb-none")):
        for ask in asks(files):
            with refused("SANDBOX_NOT_FOUND"):
                ask()
    # What is wrong with a request is told before.
    with refused("PATH_DOTDOT", "path"):
        Files(daemon, "sb-none").stat("..")
    with refused("FIELD_REQUIRED", "sandbox_id"):
        Files(daemon, "").stat("a")
    with refused("ID_MALFORMED", "sandbox_id"):
        Files(daemon, "x y").stat("a")


def expect_state(files: Files, state: str) -> None:
    for ask in asks(files):
        with refused("SANDBOX_WRONG_STATE") as told:
            ask()
        assert told.metadata["state"] == state


def test_there_is_no_file_work_in_a_sandbox_that_does_not_run(daemon):
    sandbox_id = daemon.ready()
    files = Files(daemon, sandbox_id)
    daemon.pause(sandbox_id)
    daemon.wait(sandbox_id, "PAUSED")
    expect_state(files, "PAUSED")
    daemon.stop(sandbox_id)
    daemon.wait(sandbox_id, "STOPPED")
    expect_state(files, "STOPPED")
    daemon.delete(sandbox_id)
    daemon.wait(sandbox_id, "DELETED")
    expect_state(files, "DELETED")


def test_there_is_no_file_work_in_a_sandbox_that_failed():
    daemon = RestingDaemon()
    try:
        daemon.begin()
        sandbox_id = daemon.create().id
        daemon.wait(sandbox_id, "FAILED")
        expect_state(Files(daemon, sandbox_id), "FAILED")
    finally:
        daemon.wipe()
