# SPDX-License-Identifier: Apache-2.0
"""Archives and watches, by the daemon: what is packed and unpacked elsewhere is the same here, and changes are told."""

import io
import tarfile
import threading

import pytest
from hutch.v1 import file_pb2
from hutchd import LIMIT, MIB, field, refused, wait_until
from sandbox_files import Files


@pytest.fixture(name="files")
def make_files(daemon, sandbox):
    return Files(daemon, sandbox)


def archive_of(entries: dict[str, bytes | None], mode: str = "w") -> bytes:
    """A tar stream of files, and folders where there are no bytes."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode, format=tarfile.PAX_FORMAT) as archive:
        for name, data in entries.items():
            info = tarfile.TarInfo(name)
            info.mode = 0o755 if data is None else 0o640
            info.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            info.size = len(data or b"")
            archive.addfile(info, io.BytesIO(data or b""))
    return made.getvalue()


def names_in(packed: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return [member.name.rstrip("/") for member in archive]


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_what_is_packed_elsewhere_is_unpacked(daemon, files, mode):
    packed = archive_of({"a": b"one", "inner": None, "inner/b": b"x" * 3 * MIB}, mode)
    answer = files.unpack("here", packed, create_parents=True)
    assert (answer.entries, answer.size_bytes) == (3, 3 * MIB + 3)
    assert daemon.shell(files.sandbox_id, "cat here/a; stat -c '%a %s' here/inner/b") == f"one640 {3 * MIB}\n"
    with refused("FILE_EXISTS"):
        files.unpack("here", packed)
    files.unpack("here", packed, overwrite=True)


@pytest.mark.parametrize("compression", ["NONE", "GZIP"])
def test_what_is_packed_here_is_unpacked_elsewhere(daemon, files, compression):
    daemon.shell(files.sandbox_id, "mkdir -p t/inner; printf one > t/a; printf two > t/inner/b")
    daemon.shell(files.sandbox_id, "ln -s a t/link; : > t/c.log")
    kind = file_pb2.ArchiveCompression.Value(f"ARCHIVE_COMPRESSION_{compression}")
    packed = files.pack("t", compression=kind)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        found = {member.name.removeprefix("./").rstrip("/"): member for member in archive}
        assert found["link"].linkname == "a"
        assert archive.extractfile(found["inner/b"]).read() == b"two"
    assert "c.log" not in {name.removeprefix("./") for name in names_in(files.pack("t", exclude=["*.log"]))}
    with refused("FILE_NOT_FOUND"):
        files.pack("none")


@pytest.mark.parametrize("name", ["../out", "/abs", "a/../../out"])
def test_entries_that_climb_are_refused_by_name(files, name):
    with refused("ARCHIVE_REFUSED", "data") as told:
        files.unpack("here", archive_of({"fine": b"", name: b"bad"}), create_parents=True)
    assert told.metadata["entry"] == name
    assert files.read("here/fine") == b""  # what was unpacked before stays


def test_archives_have_limits(files):
    packed = archive_of({"big": b"\0" * 2 * MIB}, "w:gz")
    with pytest.raises(Exception) as caught:
        files.unpack("here", packed, create_parents=True, max_size_bytes=MIB)
    assert caught.value.code().name in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")


def test_the_order_of_an_archives_stream(daemon, files):
    upload = daemon.channel.stream_unary("/hutch.v1.FileService/UploadArchive")
    header = field(1, field(1, files.sandbox_id.encode()) + field(2, b"here") + b"\x20\x01")
    for reason, messages in [
        ("STREAM_ORDER", [header, header]),
        ("FIELD_REQUIRED", [header, b""]),
        ("FIELD_TOO_LONG", [header, field(2, b"x" * (MIB + 1))]),
    ]:
        with refused(reason):
            upload(iter(messages), timeout=LIMIT)


# ---- Watches ----


class Changes:
    """A watch, read by a thread of its own."""

    def __init__(self, files: Files, path: str, **more):
        self.call = files.watch(path, **more)
        assert next(self.call).WhichOneof("item") == "started"
        self.seen: list[tuple[str, str, str]] = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        try:
            for step in self.call:
                change = step.change
                kind = file_pb2.FileChangeType.Name(change.type).removeprefix("FILE_CHANGE_TYPE_")
                self.seen.append((kind, change.path, change.old_path))
        except Exception:  # pylint: disable=broad-exception-caught
            pass  # it was cancelled

    def has(self, kind: str, path: str, old_path: str = "") -> bool:
        return (kind, path, old_path) in self.seen


@pytest.mark.rules("FILE-015")
def test_changes_are_told(daemon, files):
    files.make("w")
    changes = Changes(files, "w", recursive=True)
    files.write("w/a", b"x")
    daemon.shell(files.sandbox_id, "printf more >> w/a; mkdir w/inner")
    wait_until(lambda: changes.has("CREATED", "/workspace/w/inner"))
    daemon.shell(files.sandbox_id, ": > w/inner/deep; mv w/a w/b; rm w/b")
    for wanted in [
        ("WRITTEN", "/workspace/w/a"),
        ("CREATED", "/workspace/w/inner/deep"),
        ("MOVED", "/workspace/w/b", "/workspace/w/a"),
        ("DELETED", "/workspace/w/b"),
    ]:
        wait_until(lambda wanted=wanted: changes.has(*wanted), what=f"{wanted} not in {changes.seen}")
    changes.call.cancel()


def test_a_watch_needs_a_folder(files):
    files.write("plain")
    for path, reason in [("none", "FILE_NOT_FOUND"), ("plain", "NOT_A_DIRECTORY")]:
        with refused(reason):
            next(files.watch(path))
