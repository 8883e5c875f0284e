# SPDX-License-Identifier: Apache-2.0
"""Folders and files of this machine in sandboxes, by the command line."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from commandline import Hutch
from hutchd import Daemon

OWNER = 54399  # somebody who is not root


@pytest.fixture(scope="module", name="folder")
def make_folder():
    """A folder of somebody's, with a file and a folder in it."""
    folder = Path(tempfile.mkdtemp(prefix="sources-of-hutch-", dir="/tmp"))
    (folder / "file").write_text("text\n", encoding="utf-8")
    (folder / "inner").mkdir()
    for path in (folder, folder / "file", folder / "inner"):
        os.chown(path, OWNER, OWNER)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module", name="hutch")
def start_daemon(folder):
    daemon = Daemon({"sources": {"read": [str(folder)], "write": [str(folder)]}})
    daemon.begin()
    yield Hutch(daemon.socket)
    daemon.finish()


@pytest.mark.parametrize(
    "options",
    [("-v", "{}:/data"), ("--mount", "type=bind,src={},dst=/data"), ("--workspace", "{}", "--workdir", "/workspace")],
)
def test_folders_are_writable_as_in_docker(hutch, folder, options):
    place = "." if "--workspace" in options else "/data"
    ended = hutch("run", *(word.format(folder) for word in options), "sh", "-c", f"cat {place}/file; >{place}/made")
    assert (ended.code, ended.out) == (0, "text\n"), ended.err
    (folder / "made").unlink()


@pytest.mark.parametrize("options", [("-v", "{}:/data:ro"), ("--mount", "type=bind,src={},dst=/data,ro")])
def test_and_read_only_when_that_is_said(hutch, folder, options):
    ended = hutch("run", *(word.format(folder) for word in options), "sh", "-c", "cat /data/file; >/data/made")
    assert (ended.code, ended.out) == (2, "text\n")
    assert "Read-only" in ended.err


def test_copies_are_the_sandboxs_own(hutch, folder):
    ended = hutch("run", "--copy", f"{folder}:/data", "sh", "-c", "cat /data/file; echo x >>/data/file; ls /data/inner")
    assert (ended.code, ended.out) == (0, "text\n"), ended.err
    assert (folder / "file").read_text(encoding="utf-8") == "text\n"
    assert hutch("run", "--copy", "nowhere", "true").code == 2


def test_a_refused_source_is_told(hutch, folder):
    (folder / "link").symlink_to("inner")
    for source, word in (("link", "symlink"), ("none", "does not exist")):
        ended = hutch("run", "-v", f"{folder}/{source}:/data", "true")
        assert (ended.code, word in ended.err) == (125, True), ended.err
    (folder / "link").unlink()
