# SPDX-License-Identifier: Apache-2.0
"""Folders and files of the host in sandboxes: mounts, and the workspace when it is one. Of root's daemon and of those
of an ordinary user."""

import ctypes
import os
import shutil
import socket
import tempfile
from pathlib import Path

import grpc
import pytest
from hutchd import Daemon, Refusal, refused, state_name
from sandbox_files import Files
from user_daemon import UID, UserDaemon

NOBODY, NOGROUP = 65534, 65534
SOURCE_INVALID = 39


class Host:
    """Files of the host, which belong to an ordinary user, and a daemon that may have those in @folder/open."""

    def __init__(self, kind: str):
        self.folder = Path(tempfile.mkdtemp(prefix="sources-of-hutch-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.open, self.closed = self.folder / "open", self.folder / "closed"
        for path in (self.open, self.closed):
            path.mkdir()
            self.give(path)
        rules = {"sources": {"read": [str(self.open)], "write": [str(self.open)]}}
        self.is_root = kind == "root"
        if self.is_root:
            self.daemon = Daemon(rules)
        else:
            self.daemon = UserDaemon({"one id": 0, "subordinate ids": 2}[kind], config=rules)
            passwd = self.daemon.folder / "passwd"
            text = passwd.read_text(encoding="utf-8").replace(f":{UID}:{UID}::/:", f":{UID}:{UID}::{self.open}:")
            passwd.write_text(text, encoding="utf-8")

    @staticmethod
    def give(path: Path) -> Path:
        os.chown(path, UID, UID, follow_symlinks=False)
        return path

    def make(self, name: str, text: str | None = None, mode: int = 0o700) -> Path:
        """A folder of the user's, or a file when it has a text."""
        path = self.open / name
        if text is None:
            path.mkdir()
        else:
            path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return self.give(path)


@pytest.fixture(scope="module", name="host", params=["root", "one id", "subordinate ids"])
def make_host(request):
    host = Host(request.param)
    host.daemon.begin()
    yield host
    host.daemon.finish()
    shutil.rmtree(host.folder)


@pytest.fixture(name="daemon")
def daemon_of_host(host):
    return host.daemon


@pytest.fixture(name="project")
def make_project(host):
    """A folder that only its owner may read, with a file in it."""
    path = host.make("project")
    host.make("project/file", "text\n", 0o600)
    yield path
    shutil.rmtree(path)


@pytest.fixture(name="mounted")
def make_mounted(daemon):
    """Makes sandboxes that go with the test."""
    made = []

    def ready(*mounts: tuple, **spec) -> str:
        listed = [{"source": str(one[0]), "target": one[1], "writable": "rw" in one} for one in mounts]
        made.append(daemon.create(mounts=listed, **spec).id)
        sandbox = daemon.wait(made[-1], "READY", "FAILED")
        assert state_name(sandbox) == "READY", sandbox.state_message
        return made[-1]

    yield ready
    daemon.remove(*made)


def fails(daemon, sandbox: str, script: str, **spec) -> str:
    """What @script says when it fails."""
    ran = daemon.run(sandbox, "sh", "-c", script, **spec)
    assert ran.exec.result.exit_code != 0, ran
    return ran.stderr.decode()


# ---- Reading and writing ----


def test_a_folder_is_read_only_unless_asked_otherwise(daemon, mounted, project):
    sandbox = mounted((project, "/data"))
    assert daemon.shell(sandbox, "cat /data/file; stat -c %u:%g /data /data/file") == "text\n" + "1000:1000\n" * 2
    assert "Read-only" in fails(daemon, sandbox, "echo x > /data/file")
    assert "Read-only" in fails(daemon, sandbox, "touch /data/other")
    assert (project / "file").read_text(encoding="utf-8") == "text\n"


def test_a_writable_folder_is_the_owners(daemon, mounted, project):
    sandbox = mounted((project, "/data", "rw"))
    daemon.shell(sandbox, "cd /data && echo more >> file && mkdir made && echo new > made/file")
    assert (project / "file").read_text(encoding="utf-8") == "text\nmore\n"
    for path in (project / "made", project / "made/file"):
        assert (path.stat().st_uid, path.stat().st_gid) == (UID, UID)


def test_a_file_is_mounted_as_one(daemon, mounted, host, project):
    other = host.make("project/other", "other\n")
    sandbox = mounted((project / "file", "/etc/deep/er/file"), (other, "/home/agent/.config/tool/rc", "rw"))
    assert daemon.shell(sandbox, "cat /etc/deep/er/file ~/.config/tool/rc") == "text\nother\n"
    daemon.shell(sandbox, "echo mine > ~/.config/tool/rc; touch ~/.config/mine; rm ~/.config/mine")
    assert other.read_text(encoding="utf-8") == "mine\n"
    assert fails(daemon, sandbox, "rm -f /etc/deep/er/file ~/.config/tool/rc")


def test_the_workspace_can_be_a_folder_of_the_host(daemon, mounted, project):
    sandbox = mounted(workspace={"source": str(project)})
    assert daemon.shell(sandbox, "pwd; cat file; echo x > new") == "/workspace\ntext\n"
    assert (project / "new").read_text(encoding="utf-8") == "x\n"
    sandbox = mounted(workspace={"source": str(project), "read_only": True, "target": "/src"})
    assert daemon.shell(sandbox, "pwd; cat file") == "/src\ntext\n"
    assert "Read-only" in fails(daemon, sandbox, "touch /src/x")


def test_mounts_can_be_in_each_other(daemon, mounted, host, project):
    host.make("project/inner")
    other = host.make("project/other")
    host.make("project/other/deep", "deep\n")
    sandbox = mounted((other, "/a/inner"), (project, "/a"), (project, "/workspace/x/y", "rw"))
    assert daemon.shell(sandbox, "cat /a/file /a/inner/deep /workspace/x/y/file") == "text\ndeep\ntext\n"


def test_mounts_are_there_under_a_read_only_root(daemon, mounted, project):
    sandbox = mounted((project, "/data", "rw"), (project, "/home/agent/x"), limits={"read_only_root": True})
    daemon.shell(sandbox, "cat /data/file ~/x/file; touch /data/made")
    for place in ("/x", "/home/agent/y", "/home/agent/x/y"):
        assert "Read-only" in fails(daemon, sandbox, f"touch {place}")


def test_mounts_come_again_with_a_resume(daemon, mounted, project):
    sandbox = mounted((project, "/data/here", "rw"))
    daemon.stop(sandbox, 0)
    daemon.wait(sandbox, "STOPPED")
    (project / "file").write_text("changed\n", encoding="utf-8")
    daemon.resume(sandbox)
    daemon.wait(sandbox, "READY")
    assert daemon.shell(sandbox, "cat /data/here/file") == "changed\n"
    assert daemon.get(sandbox).spec.mounts[0].source == str(project)


def test_file_methods_reach_into_mounts_and_no_further(daemon, mounted, host, project):
    (project / "up").symlink_to("../../closed")
    sandbox = mounted((project, "/data", "rw"), (project, "/fixed"))
    files = Files(daemon, sandbox)
    files.write("/data/made", b"new")
    assert (files.read("/fixed/made"), (project / "made").stat().st_uid) == (b"new", UID)
    with refused("FILE_READ_ONLY"):
        files.write("/fixed/more", b"new")
    with refused("FILE_NOT_FOUND"):
        files.write("/data/up/made", b"new")
    assert not (host.closed / "made").exists()


def test_as_many_as_allowed(daemon, mounted, project):
    sandbox = mounted(*[(project, f"/data/{i}") for i in range(64)])
    assert daemon.shell(sandbox, "cat /data/*/file | wc -l") == "64\n"


# ---- Walls ----


def test_nothing_above_a_source_is_reachable(daemon, mounted, host, project):
    (host.closed / "canary").write_text("canary", encoding="utf-8")
    (project / "up").symlink_to("../../closed/canary")
    (project / "absolute").symlink_to(host.closed / "canary")
    sandbox = mounted((project, "/data", "rw"))
    assert daemon.shell(sandbox, "ls /data/..") == daemon.shell(sandbox, "ls /")
    for name in ("up", "absolute"):
        assert "No such file" in fails(daemon, sandbox, f"cat /data/{name}")
    assert "sources-of-hutch" not in daemon.shell(sandbox, "ls /tmp /proc/self/root/tmp /proc/1/root 2>&1 || true")


@pytest.mark.parametrize("host", ["root"], indirect=True)
def test_files_of_others_are_nobodys(daemon, mounted, project):
    (project / "secret").write_text("secret", encoding="utf-8")
    (project / "secret").chmod(0o600)
    (project / "shared").write_text("shared", encoding="utf-8")
    (project / "shared").chmod(0o666)
    sandbox = mounted((project, "/data", "rw"))
    for user in ("1000", "root"):
        assert "denied" in fails(daemon, sandbox, "cat /data/secret", user=user)
    assert daemon.shell(sandbox, "cat /data/shared") == "shared"
    assert fails(daemon, sandbox, "echo x > /data/shared")
    assert fails(daemon, sandbox, "touch /data/x", user="root")


def test_programs_that_change_their_user_do_not_work(daemon, mounted, project):
    sandbox = mounted((project, "/data", "rw"))
    script = "cp /bin/id /data/id && chmod 6755 /data/id && /data/id -u"
    assert daemon.shell(sandbox, script) == "1000\n"
    fails(daemon, sandbox, "mknod /data/null c 1 3", user="root")
    flags = daemon.shell(sandbox, "grep ' /data ' /proc/self/mountinfo").split()[5].split(",")
    assert {"nosuid", "nodev", "rw"} <= set(flags)


def test_mounts_cannot_be_changed_from_inside(daemon, mounted, project):
    sandbox = mounted((project, "/data"))
    for command in ("mount -o remount,bind,rw /data", "umount /data", "unshare -Urm umount /data"):
        for user in ("1000", "root"):  # where there is one
            fails(daemon, sandbox, command, user=user)
    assert "Read-only" in fails(daemon, sandbox, "touch /data/x")


def test_a_target_that_became_a_symlink_is_not_followed(daemon, mounted, project):
    sandbox = mounted((project, "/workspace/a/b", "rw"))
    daemon.shell(sandbox, "cd /workspace && mv a c && ln -s /etc a")
    daemon.stop(sandbox, 0)
    daemon.wait(sandbox, "STOPPED")
    daemon.resume(sandbox)
    failed = daemon.wait(sandbox, "FAILED")
    assert (failed.state_reason, "/workspace/a/b" in failed.state_message) == (308, True), failed


def test_a_source_that_is_swapped_is_found_out_at_the_next_start(daemon, mounted, host, project):
    sandbox = mounted((project, "/data"))
    daemon.stop(sandbox, 0)
    daemon.wait(sandbox, "STOPPED")
    project.rename(host.open / "moved")
    try:
        project.symlink_to(host.closed)
        daemon.resume(sandbox)
        failed = daemon.wait(sandbox, "FAILED")
        assert (failed.state_reason, "symlink" in failed.state_message) == (39, True), failed
    finally:
        project.unlink()
        (host.open / "moved").rename(project)


# ---- Sockets of the host ----

CONNECT = """
import socket
try:
    socket.socket(socket.AF_UNIX).connect("/data/deep/host.sock")
    print("connected")
except OSError as error:
    print(type(error).__name__)
"""


def keeps_sockets() -> bool:
    """Whether the kernel's Landlock forbids to connect to sockets by their paths."""
    return ctypes.CDLL(None).syscall(444, None, 0, 1) >= 9


@pytest.fixture(name="listening")
def make_listening(host, project):
    """The project, with a socket of its owner's on which somebody of the host's listens."""
    folder = host.make("project/deep")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "host.sock"))
    listener.listen()
    host.give(folder / "host.sock")
    yield project
    listener.close()


@pytest.mark.parametrize("kind", ["mount", "workspace"])
def test_a_socket_of_the_hosts_is_not_reached_by_a_read_only_mount(daemon, listening, kind):
    spec = {
        "mount": {"mounts": [{"source": str(listening), "target": "/data"}]},
        "workspace": {"workspace": {"source": str(listening), "target": "/data", "read_only": True}},
    }[kind]
    sandbox = daemon.wait(daemon.create(**spec).id, "READY", "FAILED")
    try:
        if keeps_sockets():
            assert daemon.run(sandbox.id, "python3", "-c", CONNECT).stdout == b"PermissionError\n"
        else:
            assert state_name(sandbox) == "FAILED"
            assert sandbox.state_reason == SOURCE_INVALID
            assert "'deep/host.sock'" in sandbox.state_message and "/data" in sandbox.state_message
    finally:
        daemon.remove(sandbox.id)


@pytest.mark.parametrize("kind", ["asked for", "workspace", "writable"])
def test_a_socket_of_the_hosts_is_reached_where_that_is_said(daemon, listening, kind):
    spec = {
        "asked for": {"mounts": [{"source": str(listening), "target": "/data", "sockets": True}]},
        "writable": {"mounts": [{"source": str(listening), "target": "/data", "writable": True}]},
        "workspace": {
            "workspace": {"source": str(listening), "target": "/data", "read_only": True, "sockets": True},
        },
    }[kind]
    sandbox = daemon.ready(**spec)
    try:
        assert daemon.run(sandbox, "python3", "-c", CONNECT).stdout == b"connected\n"
    finally:
        daemon.remove(sandbox)


def test_sockets_inside_are_nobody_elses_business(daemon, mounted, project):
    """Not even where a mount keeps those of the host."""
    script = """
import socket
listener = socket.socket(socket.AF_UNIX)
listener.bind("/workspace/own.sock")
listener.listen()
socket.socket(socket.AF_UNIX).connect("/workspace/own.sock")
print("connected")
"""
    sandbox = mounted((project, "/data"))
    assert daemon.run(sandbox, "python3", "-c", script).stdout == b"connected\n"


def test_sockets_have_a_meaning_only_with_a_source(daemon):
    with refused("FIELD_INVALID", "spec.workspace.sockets"):
        daemon.create(workspace={"sockets": True})


# ---- Rules ----


@pytest.mark.rules("FILE-016")
def test_sources_are_in_what_the_operator_allows(daemon, host, project):
    (host.open / "link").symlink_to("project")
    (host.open / "away").symlink_to(host.closed)
    os.mkfifo(host.open / "pipe")
    try:
        for source in ("link", "link/file", "away", "away/x", "pipe", "missing", "project/file/x"):
            with refused("SOURCE_INVALID", "spec.mounts[0].source"):
                daemon.create(mounts=[{"source": str(host.open / source), "target": "/x"}])
        for source in ("relative", "./x", "~nobody/x", f"{project}/../project", "~no", f"{project}/\x01"):
            with refused("SOURCE_INVALID", "spec.mounts[0].source"):
                daemon.create(mounts=[{"source": source, "target": "/x"}])
        for source in (host.closed, host.closed / "missing", "/", "/etc", f"{host.open}-more", host.folder, "~/x"):
            with refused("SOURCE_NOT_ALLOWED"):
                daemon.create(mounts=[{"source": str(source), "target": "/x"}])
        with refused("FIELD_REQUIRED", "spec.mounts[0].source"):
            daemon.create(mounts=[{"target": "/x"}])
        with refused("SOURCE_INVALID", "spec.workspace.source"):
            daemon.create(workspace={"source": str(host.open / "link")})
    finally:
        for name in ("link", "away", "pipe"):
            (host.open / name).unlink()


@pytest.mark.rules("FILE-017")
def test_targets_are_absolute_and_unique(daemon, project):
    source = str(project)
    cases = {
        "x": "PATH_NOT_ABSOLUTE",
        "/": "FIELD_INVALID",
        "/.": "FIELD_INVALID",
        "/proc": "FIELD_INVALID",
        "/dev/shm/x": "FIELD_INVALID",
        "/sys/x": "FIELD_INVALID",
        "/a/../b": "PATH_DOTDOT",
        "": "FIELD_REQUIRED",
    }
    for target, reason in cases.items():
        with refused(reason, "spec.mounts[0].target"):
            daemon.create(mounts=[{"source": source, "target": target}])
    with refused("TARGET_DUPLICATE", "spec.mounts[1].target"):
        daemon.create(mounts=[{"source": source, "target": "/x"}, {"source": source, "target": "//x/./"}])
    with refused("TARGET_DUPLICATE", "spec.mounts[0].target"):
        daemon.create(mounts=[{"source": source, "target": "/workspace"}], workspace={"source": source})
    with refused("FIELD_OUT_OF_RANGE", "spec.mounts"):
        daemon.create(mounts=[{"source": source, "target": f"/x/{i}"} for i in range(65)])


def test_what_is_roots_is_only_read(daemon, mounted, host):
    path = host.open / "of-root"
    path.mkdir()
    (path / "file").write_text("text", encoding="utf-8")
    try:
        with refused("SOURCE_NOT_ALLOWED"):
            daemon.create(mounts=[{"source": str(path), "target": "/x", "writable": True}])
        assert daemon.shell(mounted((path, "/x")), "cat /x/file") == "text"
    finally:
        shutil.rmtree(path)


def test_read_and_write_are_allowed_apart(start_daemon, host, project):
    daemon = start_daemon({"sources": {"read": [str(host.open)], "write": []}})
    with refused("SOURCE_NOT_ALLOWED"):
        daemon.create(mounts=[{"source": str(project), "target": "/x", "writable": True}])
    daemon.ready(mounts=[{"source": str(project), "target": "/x"}])


def test_roots_daemon_allows_root_what_root_may_and_others_nothing_unless_told(start_daemon, project):
    daemon = start_daemon({"socket_group": "nogroup"})
    daemon.folder.chmod(0o755)
    mounts = [{"source": str(project), "target": "/x", "writable": True}, {"source": "/etc", "target": "/y"}]
    assert daemon.shell(daemon.ready(mounts=mounts), "cat /x/file; test -e /y/passwd") == "text\n"
    with refused("SOURCE_INVALID", "spec.mounts[0].source") as told:
        daemon.create(mounts=[{"source": "/no/such", "target": "/x"}])
    assert "does not exist" in told.message
    stranger = daemon.client(NOBODY, NOGROUP)
    for source in (str(project), "/no/such"):  # which of them is there is not told
        for writable, key in ((False, "sources.read"), (True, "sources.write")):
            with refused("SOURCE_NOT_ALLOWED") as told:
                stranger.create(mounts=[{"source": source, "target": "/x", "writable": writable}])
            assert f"{key} in {daemon.config_file}" in told.message


def test_an_ordinary_users_daemon_allows_what_the_user_may(project):
    daemon = UserDaemon()
    try:
        daemon.begin()
        sandbox = daemon.ready(mounts=[{"source": str(project), "target": "/x", "writable": True}])
        assert daemon.shell(sandbox, "cat /x/file; touch /x/made") == "text\n"
        for source in (daemon.state, daemon.state / "hutch.db", daemon.socket, daemon.folder, Path("/")):
            with pytest.raises(grpc.RpcError) as error:
                daemon.create(mounts=[{"source": str(source), "target": "/x"}])
            assert Refusal(error.value).reason == "SOURCE_NOT_ALLOWED", source
    finally:
        daemon.finish()
