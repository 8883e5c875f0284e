# SPDX-License-Identifier: Apache-2.0
"""Folders and files of the host that are copied into sandboxes when these are created. Of root's daemon and of those of
an ordinary user."""

import contextlib
import os
import signal
import socket
import threading
from pathlib import Path

import pytest
from hutchd import all_processes, parent_of, refused, state_name, wait_until
from test_mounts import daemon_of_host, make_host, make_project  # noqa: F401  pylint: disable=unused-import

SYMLINK_LEAVES_TREE = 309


@pytest.fixture(name="created")
def make_created(daemon):
    """Makes sandboxes with copies, which go with the test."""
    made = []

    def create(*copies: tuple, state: str = "READY", **spec):
        listed = [{"source": str(one[0]), "target": one[1], "exclude": one[2:]} for one in copies]
        made.append(daemon.create(copies=listed, **spec).id)
        sandbox = daemon.wait(made[-1], "READY", "FAILED")
        assert state_name(sandbox) == state, sandbox.state_message
        return sandbox if state == "FAILED" else made[-1]

    yield create
    daemon.remove(*made)


@pytest.fixture(name="tree")
def make_tree(host, project):
    """The project with some of everything in it."""
    host.make("project/inner", mode=0o750)
    host.make("project/inner/program", "#!/bin/sh\necho ran\n", 0o6755)
    host.make("project/inner/empty", "", 0o400)
    os.link(project / "file", project / "inner/second")
    for name, target in (("inner/up", "../file"), ("dangling", "inner/none"), ("loop", "loop")):
        os.symlink(target, project / name)
        host.give(project / name)
    with (project / "sparse").open("wb") as sparse:
        sparse.truncate(64 << 20)
        sparse.seek(32 << 20)
        sparse.write(b"data")
    host.give(project / "sparse")
    os.mkfifo(project / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(project / "socket"))
    os.utime(project / "inner/empty", (1e9, 1e9))
    os.utime(project / "inner", (1e9, 1e9))
    return project


def test_a_tree_comes_as_it_is(daemon, created, tree):
    sandbox = created((tree, "/workspace/copy"))
    script = "find . | sort && stat -c '%n %u:%g %a' . file inner inner/* && inner/program"
    told = daemon.shell(sandbox, f"cd copy && {script}")
    names = ["dangling", "file", "inner", "inner/empty", "inner/program", "inner/second", "inner/up", "loop", "sparse"]
    assert told.splitlines() == [
        ".",
        *(f"./{name}" for name in names),
        ". 1000:1000 700",
        "file 1000:1000 600",
        "inner 1000:1000 750",
        "inner/empty 1000:1000 400",
        "inner/program 1000:1000 755",
        "inner/second 1000:1000 600",
        "inner/up 1000:1000 777",
        "ran",
    ]
    script = "cat file inner/up && stat -c %h file && stat -c %Y inner inner/empty && readlink dangling loop"
    assert daemon.shell(sandbox, f"cd copy && {script}").split() == [
        *("text", "text", "2", "1000000000", "1000000000", "inner/none", "loop")
    ]
    assert daemon.shell(sandbox, "cd copy && stat -c %s sparse && du -m sparse && tr -d '\\0' <sparse").split()[:2] == [
        str(64 << 20),
        "1",
    ]
    daemon.shell(sandbox, "cd copy && echo more >>file && rm -r inner")
    assert (tree / "file").read_text(encoding="utf-8") == "text\n"


def test_into_folders_that_are_there_and_files(daemon, created, tree):
    sandbox = created((tree, "/workspace"), (tree / "file", "/etc/hostname"), (tree / "file", "/home/agent/.a/b"))
    script = "cat file /etc/hostname ~/.a/b; stat -c %u . ~/.a /etc/hostname /etc"
    told = daemon.shell(sandbox, script).split()
    assert told[:-1] == ["text"] * 3 + ["1000"] * 3
    assert told[-1] == daemon.shell(sandbox, "stat -c %u /").strip()


def test_patterns_leave_things_out(daemon, created, tree):
    (tree / "away").symlink_to("/etc")
    sandbox = created((tree, "/workspace/copy", "away", "*.o", "inner/", "sparse", "/file"))
    assert daemon.shell(sandbox, "ls copy").split() == ["dangling", "loop"]


def test_copies_are_made_once(daemon, created, host, tree):
    sandbox = created((tree, "/workspace/copy"))
    daemon.shell(sandbox, "echo mine > copy/file")
    daemon.stop(sandbox, 0)
    daemon.wait(sandbox, "STOPPED")
    tree.rename(host.open / "moved")
    try:
        daemon.resume(sandbox)
        daemon.wait(sandbox, "READY")
        assert daemon.shell(sandbox, "cat copy/file") == "mine\n"
    finally:
        (host.open / "moved").rename(tree)


def test_mounts_can_be_in_copies(daemon, created, host, tree):
    other = host.make("project/other")
    host.make("project/other/x", "x\n")
    mounts = [{"source": str(other), "target": "/workspace/copy/inner"}]
    sandbox = created((tree, "/workspace/copy"), mounts=mounts, limits={"read_only_root": True})
    assert daemon.shell(sandbox, "cat copy/file copy/inner/x") == "text\nx\n"


@pytest.mark.rules("FILE-017")
@pytest.mark.parametrize("target", ["/etc/passwd", "../closed", "inner/../../x", "inner/deep/top/../../x"])
def test_symlinks_that_leave_are_refused_with_their_name(created, host, tree, target):
    host.make("project/inner/deep")
    os.symlink("../..", tree / "inner/deep/top")
    os.symlink(target, tree / "leaves")
    failed = created((tree, "/workspace/copy"), state="FAILED")
    assert (failed.state_reason, "'leaves'" in failed.state_message) == (SYMLINK_LEAVES_TREE, True), failed


def test_what_cannot_be_read_is_told(created, tree):
    (tree / "inner/secret").write_text("secret", encoding="utf-8")
    (tree / "inner/secret").chmod(0o600)  # root's
    failed = created((tree, "/workspace/copy"), state="FAILED")
    assert "'inner/secret'" in failed.state_message


@pytest.mark.rules("FILE-016", "FILE-017")
def test_rules_of_copies(daemon, host, project):
    source = str(project)
    with refused("SOURCE_NOT_ALLOWED"):
        daemon.create(copies=[{"source": str(host.closed), "target": "/x"}])
    with refused("SOURCE_NOT_ALLOWED"):
        daemon.create(copies=[{"source": "/", "target": "/x"}])
    with refused("SOURCE_INVALID", "spec.copies[0].source"):
        daemon.create(copies=[{"source": f"{source}/none", "target": "/x"}])
    for target in ("/", "/proc/x"):
        with refused("FIELD_INVALID", "spec.copies[0].target"):
            daemon.create(copies=[{"source": source, "target": target}])
    mounts = [{"source": source, "target": "/x"}]
    with refused("TARGET_DUPLICATE", "spec.copies[0].target"):
        daemon.create(mounts=mounts, copies=[{"source": source, "target": "/x/"}])
    with refused("FIELD_CONFLICT", "spec.copies[0].target"):
        daemon.create(mounts=mounts, copies=[{"source": source, "target": "/x/y"}])
    with refused("FIELD_OUT_OF_RANGE", "spec.copies"):
        daemon.create(copies=[{"source": source, "target": f"/x/{i}"} for i in range(65)])
    with refused("FIELD_OUT_OF_RANGE", "spec.copies[0].exclude"):
        daemon.create(copies=[{"source": source, "target": "/x", "exclude": ["x"] * 257}])
    with refused("FIELD_TOO_LONG", "spec.copies[0].exclude"):
        daemon.create(copies=[{"source": source, "target": "/x", "exclude": ["x" * 300000]}])


def test_a_source_that_changes_meanwhile_gives_nothing_from_outside(daemon, created, host, project):
    """Its owner swaps folders and files for symlinks to a canary, as fast as it can."""
    (host.closed / "secret").write_text("canary", encoding="utf-8")
    host.give(host.closed / "secret")
    for i in range(200):
        host.make(f"project/{i:03}")
        host.make(f"project/{i:03}/secret", "plain")
    done = threading.Event()

    def swap():
        while not done.is_set():
            for i in range(200):
                folder = project / f"{i:03}"
                folder.rename(project / "moved")
                folder.symlink_to("../../closed")
                folder.unlink()
                (project / "moved").rename(folder)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(5):
            sandbox = daemon.create(copies=[{"source": str(project), "target": "/workspace/copy"}]).id
            if state_name(daemon.wait(sandbox, "READY", "FAILED")) == "READY":
                assert "canary" not in daemon.shell(sandbox, "find copy -type f -exec cat {} +")
            else:
                assert daemon.get(sandbox).state_reason == SYMLINK_LEAVES_TREE
            daemon.remove(sandbox)
    finally:
        done.set()
        thread.join()
    assert daemon.shell(created((project, "/workspace/copy")), "cat copy/*/secret") == "plain" * 200


def init_of(keeper: int) -> int:
    """PID 1 of its sandbox; 0: there is none."""
    for pid in all_processes():
        with contextlib.suppress(OSError):  # it has ended
            if parent_of(pid) == keeper and Path(f"/proc/{pid}/comm").read_text(encoding="utf-8") == "init\n":
                return pid
    return 0


def test_what_is_being_built_can_be_waited_for_and_ended_and_can_die(daemon, host, project):
    for i in range(4000):
        host.make(f"project/{i}", "x")
    copies = [{"source": str(project), "target": "/workspace/copy"}]
    waited, ended, killed = (daemon.create(copies=copies).id for _ in range(3))
    daemon.delete(ended)
    assert state_name(daemon.get(ended)) == "DELETING"
    keeper = daemon.keeper(killed)
    wait_until(lambda: init_of(keeper))
    os.kill(init_of(keeper), signal.SIGKILL)
    assert state_name(daemon.wait(killed, "READY", "FAILED")) == "FAILED"
    assert daemon.shell(waited, "ls copy | wc -l") == f"{len(list(project.iterdir()))}\n"
    daemon.wait(ended, "DELETED")
    daemon.remove(waited, killed)
    for sandbox in (waited, ended, killed):
        assert daemon.leftovers(sandbox) == []
