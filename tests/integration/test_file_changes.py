# SPDX-License-Identifier: Apache-2.0
"""What a sandbox has changed against its image. Of root's daemon and of those of an ordinary user."""

import pytest
from hutch.v1 import file_pb2
from hutchd import refused
from sandbox_files import Files
from test_mounts import (  # noqa: F401  pylint: disable=unused-import
    daemon_of_host,
    make_host,
    make_mounted,
    make_project,
)


def changes_of(files: Files, path: str = "/", page_size: int = 0) -> list[file_pb2.ImageChange]:
    """All pages."""
    found, token = [], ""
    while True:
        page = files.changes(path, page_size=page_size, page_token=token)
        assert not page.incomplete
        found += page.changes
        token = page.next_page_token
        if not token:
            return found


def told(files: Files, path: str = "/", page_size: int = 0) -> list[str]:
    """Each as "A /path"."""
    letters = {
        file_pb2.IMAGE_CHANGE_TYPE_ADDED: "A",
        file_pb2.IMAGE_CHANGE_TYPE_MODIFIED: "M",
        file_pb2.IMAGE_CHANGE_TYPE_DELETED: "D",
    }
    return [f"{letters[change.type]} {change.path}" for change in changes_of(files, path, page_size)]


@pytest.fixture(name="sandbox")
def make_sandbox(daemon):
    sandbox_id = daemon.ready()
    yield sandbox_id
    daemon.remove(sandbox_id)


@pytest.fixture(name="files")
def make_files(daemon, sandbox):
    return Files(daemon, sandbox)


@pytest.mark.rules("FILE-019")
def test_a_new_sandbox_has_changed_nothing(daemon, sandbox, files):
    assert told(files) == []
    daemon.stop(sandbox)
    daemon.wait(sandbox, "STOPPED")
    daemon.resume(sandbox)
    daemon.wait(sandbox, "READY")
    assert told(files) == []


@pytest.mark.rules("FILE-019")
def test_what_is_new_is_told_with_what_is_there_now(daemon, sandbox, files):
    daemon.shell(sandbox, "mkdir ~/d /tmp/t; printf hello >~/d/f; chmod 640 ~/d/f; ln -s f ~/d/link; touch /tmp/t/x w")
    assert told(files) == [
        "A /tmp/t",
        "A /tmp/t/x",
        "A /home/agent/d",
        "A /home/agent/d/f",
        "A /home/agent/d/link",
        "A /workspace/w",
    ]
    for change in changes_of(files):
        assert change.file == files.stat(change.path)
    assert changes_of(files, "/home/agent/d/link")[0].file.symlink_target == "f"
    assert changes_of(files, "/home/agent/d/f")[0].file.size_bytes == 5


@pytest.mark.rules("FILE-019")
def test_a_path_is_that_and_what_is_below(daemon, sandbox, files):
    daemon.shell(sandbox, "mkdir -p a/b a-b; touch a/b/c a-b/d ~/h; ln -s a link")
    assert told(files, "a") == ["A /workspace/a", "A /workspace/a/b", "A /workspace/a/b/c"]
    assert told(files, "/workspace/a/b/c") == ["A /workspace/a/b/c"]
    assert told(files, "/home") == ["A /home/agent/h"]
    assert told(files, "link/b") == told(files, "/none/such") == []
    assert told(files, "/") == told(files)


@pytest.mark.rules("FILE-019")
def test_pages_have_everything_once(daemon, sandbox, files):
    daemon.shell(sandbox, "mkdir -p a/b c; touch a/b/1 a/b/2 a/x c/y d /tmp/t ~/h")
    everything = told(files)
    assert len(everything) == 10
    for page_size in (1, 2, 3, 7):
        assert told(files, page_size=page_size) == everything
    assert told(files, "a", page_size=1) == [line for line in everything if "/workspace/a" in line]


@pytest.mark.rules("FILE-019")
def test_what_the_image_has_is_modified_or_deleted(daemon, sandbox, files):
    """Only a root inside may change it; where there is one id, its user."""
    user = "root" if daemon.run(sandbox, "true", user="root").exec.result.exit_code == 0 else "agent"
    daemon.shell(sandbox, "echo x >>/etc/profile; rm /etc/mtab; chmod 775 /run; echo y >/etc/hostname", user=user)
    assert told(files) == ["A /etc/hostname", "D /etc/mtab", "M /etc/profile", "M /run"]
    daemon.shell(sandbox, "rm -r /var/tmp; mkdir /var/tmp; touch /var/tmp/new; rm -r /run", user=user)
    assert told(files, "/var") == ["M /var/tmp", "A /var/tmp/new"]
    assert told(files, "/run") == ["D /run"]
    daemon.shell(sandbox, "rm -r /var; mkdir /var; touch /var/file; ln -s x /run", user=user)
    assert told(files, "/var") == ["M /var", "A /var/file", "D /var/run", "D /var/tmp"]
    assert told(files, "/var", page_size=1) == told(files, "/var")
    assert told(files, "/run") == ["M /run"]


@pytest.mark.rules("FILE-019")
def test_what_was_copied_is_new_and_what_is_mounted_is_not_told(daemon, mounted, project, host):
    copied = mounted(copies=[{"source": str(project), "target": "/workspace/p"}])
    assert told(Files(daemon, copied)) == ["A /workspace/p", "A /workspace/p/file"]
    file = host.make("one", "text\n")
    sandbox = mounted((project, "/data/m", "rw"), (project, "/workspace/in", "rw"), (file, "/home/agent/one"))
    daemon.shell(sandbox, "touch /data/m/new in/new; touch mine")
    assert told(Files(daemon, sandbox)) == ["A /data", "A /workspace/mine"]
    file.unlink()
    (project / "new").unlink()


@pytest.mark.rules("FILE-019")
def test_a_read_only_root_has_what_can_be_written(daemon):
    sandbox = daemon.ready(limits={"read_only_root": True})
    daemon.shell(sandbox, "touch /tmp/t /var/tmp/v w")
    assert told(Files(daemon, sandbox)) == ["A /tmp/t", "A /var/tmp/v", "A /workspace/w"]
    daemon.remove(sandbox)


@pytest.mark.rules("FILE-019")
def test_what_may_not_be_read_is_told_to_be_left_out(daemon, sandbox, files):
    daemon.shell(sandbox, "mkdir closed; touch closed/f; chmod 0 closed")
    page = files.changes()
    assert page.incomplete and [change.path for change in page.changes] == ["/workspace/closed"]
    daemon.shell(sandbox, "chmod 700 closed; rm -r closed; d=d; for i in $(seq 70); do d=$d/d; done; mkdir -p $d")
    page = files.changes(page_size=1000)
    assert page.incomplete and len(page.changes) == 61


def test_what_is_asked_wrongly_is_refused(daemon, sandbox, files):
    daemon.shell(sandbox, "touch a b")
    token = files.changes(page_size=1).next_page_token
    with refused("PAGE_TOKEN_INVALID", "page_token"):
        files.changes("/tmp", page_token=token)
    with refused("PAGE_TOKEN_INVALID", "page_token"):
        files.changes(page_token="x")
    with refused("PATH_DOTDOT", "path"):
        files.changes("a/../b")
