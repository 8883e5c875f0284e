# SPDX-License-Identifier: Apache-2.0
"""Folders as archives, in a real sandbox. Python's tarfile makes what is unpacked and reads what is packed."""

import gzip
import io
import itertools
import os
import tarfile
import threading

import grpc
import pytest
from files import CHUNK, GIB, Files, error_of, messages, reason_of
from keeper import LIMIT, wait_until

NUMBERS = itertools.count()


@pytest.fixture(name="files", scope="module")
def make_files(keeper):
    return Files(keeper)


@pytest.fixture(name="folder")
def make_folder(files):
    """A new folder of the sandbox's user."""
    path = f"/workspace/archive-{next(NUMBERS)}"
    files.make(path)
    yield path
    files.remove(path, recursive=True)


def shell(keeper, script: str) -> bytes:
    """What @script prints, run as the sandbox's user."""
    ran = keeper.shell(script, user="1000")
    assert ran.end.wait_status == 0, keeper.output(ran.exec_id, "err")
    return keeper.output(ran.exec_id)


def open_pack(files, path: str, **values):
    request = messages().DownloadArchiveRequest(path=path, **({"max_size_bytes": GIB} | values))
    return files.stub.DownloadArchive(request, timeout=LIMIT, metadata=files.metadata, wait_for_ready=True)


def pack(files, path: str, **values) -> bytes:
    return b"".join(item.data for item in open_pack(files, path, **values))


def unpack(files, path: str, data, **values):
    """Uploads an archive: bytes, or an iterable of them."""
    chunks = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)] if isinstance(data, bytes) else data
    header = messages().UploadArchiveHeader(path=path, **({"max_size_bytes": GIB} | values))

    def requests():
        yield messages().UploadArchiveRequest(header=header)
        for chunk in chunks:
            yield messages().UploadArchiveRequest(data=chunk)

    return files.stub.UploadArchive(requests(), timeout=LIMIT, metadata=files.metadata, wait_for_ready=True)


def archive(*entries: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes], mode: str = "w") -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=mode, format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            info, data = entry if isinstance(entry, tuple) else (entry, b"")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return target.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o644, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname, info.mtime = kind, mode, link, 1000000000.5
    return info


def refused(files, path: str, data: bytes, **values) -> tuple[str, str]:
    """The reason, and the entry that is named."""
    with pytest.raises(grpc.RpcError) as failed:
        unpack(files, path, data, **values)
    info = error_of(failed.value)
    return info.reason, info.metadata.get("entry", "")


def test_what_a_sandbox_holds_comes_out_as_it_is(keeper, files, folder):
    shell(
        keeper,
        f"cd {folder}; mkdir -m 750 d; printf hello >d/file; chmod 600 d/file; ln d/file d/other; ln -s file d/link;"
        "touch -d '2001-02-03 04:05:06.25 UTC' d/file; mkfifo fifo; printf ö >ö",
    )
    for compression in ("NONE", "GZIP", "ZSTD"):
        data = pack(files, folder, compression=f"ARCHIVE_COMPRESSION_{compression}")
        assert data[:2] == {"GZIP": b"\x1f\x8b", "ZSTD": b"\x28\xb5"}.get(compression, b"Pa")
        if compression == "ZSTD":
            continue
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            found = {info.name: info for info in tar.getmembers()}
            assert list(found) == ["d", "d/file", "d/link", "d/other", "ö"]
            assert (found["d"].mode, found["d/file"].mode, found["d/file"].uid) == (0o750, 0o600, 1000)
            assert tar.extractfile("d/other").read() == b"hello"
            assert (found["d/other"].type, found["d/other"].linkname) == (tarfile.LNKTYPE, "d/file")
            assert (found["d/link"].type, found["d/link"].linkname) == (tarfile.SYMTYPE, "file")
            assert found["d/file"].mtime == 981173106.25


def test_what_python_packs_comes_in(keeper, files, folder):
    long = "/".join(["n" * 100] * 3)
    data = archive(
        entry("d", tarfile.DIRTYPE, 0o500),
        (entry("d/file", mode=0o4711), b"hello"),
        (entry("dö/implied"), b"x" * 70000),
        (entry(long), b"long"),
        entry("hard", tarfile.LNKTYPE, link="d/file"),
        entry("soft", tarfile.SYMTYPE, link="d/file"),
        mode="w:gz",
    )
    told = unpack(files, folder, data)
    assert (told.entries, told.size_bytes) == (6, 5 + 70000 + 4)
    facts = shell(keeper, f"cd {folder}; stat -c '%a %u %g %Y %h' d d/file dö/implied; cat soft hard; cat {long}")
    owned = "1000 1000 1000000000"
    assert facts.decode() == f"500 {owned} 2\n711 {owned} 2\n644 {owned} 1\nhellohellolong"
    shell(keeper, f"chmod 700 {folder}/d")


def test_all_goes_out_and_in_again(keeper, files, folder):
    look = (
        "cd {}; find . -mindepth 1 -printf '%P %y %m %T@ %l %n\\n' | sort;"
        "find . ! -type d -printf '%P %s\\n' | sort;"  # how large a folder is depends on its history
        "find . -type f | sort | xargs -d '\\n' cat | cksum"
    )
    shell(keeper, f"mkdir {folder}/a {folder}/b; cp -r /usr/include/linux {folder}/a/ || cp -r /etc/a* {folder}/a/")
    for compression in ("NONE", "GZIP", "ZSTD"):
        data = pack(files, f"{folder}/a", compression=f"ARCHIVE_COMPRESSION_{compression}")
        assert unpack(files, f"{folder}/b", data, overwrite=True).entries > 10
        assert shell(keeper, look.format(f"{folder}/a")) == shell(keeper, look.format(f"{folder}/b"))


def test_hostile_archives_are_refused_by_entry(keeper, files, folder):
    cases = [
        entry("../out"),
        entry("/etc/out"),
        entry("link", tarfile.SYMTYPE, link="../../etc/passwd"),
        entry("hard", tarfile.LNKTYPE, link="../../etc/passwd"),
        entry("device", tarfile.CHRTYPE),
        entry("block", tarfile.BLKTYPE),
        entry("fifo", tarfile.FIFOTYPE),
    ]
    for hostile in cases:
        data = archive((entry("good"), b"good"), hostile)
        assert refused(files, folder, data, overwrite=True) == ("ARCHIVE_REFUSED", hostile.name)
    assert shell(keeper, f"cd {folder}; ls -A; cat good") == b"good\ngood"
    # A link of the archive's own is not gone through either.
    for target in ("sub", "/workspace"):
        lead, sub = entry("lead", tarfile.SYMTYPE, link=target), entry("sub", tarfile.DIRTYPE, 0o755)
        data = archive(lead, sub, (entry("lead/x"), b"x"))
        assert refused(files, folder, data, overwrite=True) == ("ARCHIVE_REFUSED", "lead/x")
    bomb = gzip.compress(gzip.compress(archive((entry("zeros"), bytes(64 << 20)))))
    assert refused(files, folder, bomb) == ("ARCHIVE_REFUSED", "zeros")
    data = archive((entry("large"), b"x" * 100))
    assert refused(files, folder, data, max_size_bytes=99) == ("ARCHIVE_REFUSED", "large")
    assert refused(files, folder, os.urandom(3000))[0] == "ARCHIVE_REFUSED"


def test_links_do_not_leave_by_way_of_each_other(keeper, files, folder):
    """What a link leads to may be less deep than its name is."""
    lead = entry("a/b/c/lead", tarfile.SYMTYPE, link="../../..")
    for target in ("a/b/c/lead/../../../../etc/hostname", "a/..", "./a//../x"):
        out = entry("out", tarfile.SYMTYPE, link=target)
        assert refused(files, folder, archive(lead, out), overwrite=True) == ("ARCHIVE_REFUSED", "out"), target
    kept = [entry("a/b/up", tarfile.SYMTYPE, link="./.././../a/x"), entry("on", tarfile.SYMTYPE, link="a/b/c/lead")]
    assert unpack(files, folder, archive(lead, *kept), overwrite=True).entries == 3
    assert shell(keeper, f"cd {folder}; readlink a/b/up on; test on -ef .") == b"./.././../a/x\na/b/c/lead\n"


def test_absolute_links_are_kept_and_read_from_the_root_inside(keeper, files, folder):
    """As a virtual environment of Python has them."""
    data = archive(entry("bin/sh", tarfile.SYMTYPE, link="/bin/sh"), entry("out", tarfile.SYMTYPE, link="/../../etc"))
    assert unpack(files, folder, data).entries == 2
    told = shell(keeper, f"cd {folder}; bin/sh -c 'echo $0'; readlink out; test out -ef /etc")
    assert told == b"bin/sh\n/../../etc\n"
    packed = pack(files, folder)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert tar.getmember("out").linkname == "/../../etc"


def test_names_of_refused_entries_are_told_whole(files, folder):
    name = "/".join(["../" + "n" * 100, "m" * 100])
    assert refused(files, folder, archive(entry(name))) == ("ARCHIVE_REFUSED", name)


def test_permissions_inside_hold(keeper, files, folder):
    assert refused(files, "/etc", archive((entry("x"), b"x"))) == ("FILE_PERMISSION", "x")
    shell(keeper, f"mkdir -m 0 {folder}/private")
    with pytest.raises(grpc.RpcError) as failed:
        pack(files, folder)
    assert (reason_of(failed.value), error_of(failed.value).metadata["entry"]) == ("FILE_PERMISSION", "private")
    assert pack(files, folder, exclude=["private"]) == bytes(1024)
    shell(keeper, f"rmdir {folder}/private")
    # /proc and /dev are other mounts.
    with tarfile.open(fileobj=io.BytesIO(pack(files, "/", exclude=["/*", "!/proc", "!/dev"]))) as tar:
        assert tar.getnames() == ["dev", "proc"]


def test_an_upload_that_ends_early_leaves_nothing_half(keeper, files, folder):
    data = archive((entry("first"), b"first"), (entry("large"), os.urandom(4 << 20)))
    sent, stop = threading.Event(), threading.Event()

    def chunks():
        yield data[: 1 << 20]
        sent.set()
        stop.wait(LIMIT)

    header = messages().UploadArchiveHeader(path=folder, max_size_bytes=GIB)

    def requests():
        yield messages().UploadArchiveRequest(header=header)
        for chunk in chunks():
            yield messages().UploadArchiveRequest(data=chunk)

    call = files.stub.UploadArchive.future(requests(), timeout=LIMIT, metadata=files.metadata)
    assert sent.wait(LIMIT)
    wait_until(lambda: b"first" in shell(keeper, f"ls -A {folder}"))
    call.cancel()
    stop.set()
    wait_until(lambda: shell(keeper, f"ls -A {folder}") == b"first\n")


def test_a_reader_that_goes_away_stops_the_packing(keeper, files, folder):
    shell(keeper, f"head -c 200M /dev/zero >{folder}/zeros")
    stream = open_pack(files, folder)
    next(stream)
    stream.cancel()
    # The sandbox still does file work.
    assert files.stat(f"{folder}/zeros").size_bytes == 200 << 20


def sparse_head(name: bytes, kind: bytes, size: int) -> bytes:
    head = bytearray(512)
    head[0 : len(name)], head[100:108], head[124:136] = name, b"0000644\0", b"%011o\0" % size
    head[156:157], head[257:265], head[148:156] = kind, b"ustar\x0000", b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def test_an_archive_that_takes_too_much_memory_costs_its_call_only(files, folder):
    # The map of a sparse file, which libarchive keeps in memory, without end.
    items = (b"GNU.sparse.major=1", b"GNU.sparse.minor=0", b"GNU.sparse.name=s", b"GNU.sparse.realsize=9")
    text = b"".join(b"%d %s\n" % (len(item) + 4, item) for item in items)
    target, count = io.BytesIO(), 20_000_000
    with gzip.GzipFile(fileobj=target, mode="wb", compresslevel=1) as out:
        out.write(sparse_head(b"x", b"x", len(text)) + text.ljust(512, b"\0") + sparse_head(b"s", b"0", 1 << 30))
        out.write(b"%d\n" % count)
        for _ in range(count // 10000):
            out.write(b"0\n0\n" * 10000)
    with pytest.raises(grpc.RpcError):
        unpack(files, folder, target.getvalue())
    assert files.list(folder) == []
