# SPDX-License-Identifier: Apache-2.0
"""Tools: what programs have in the caller's home, in sandboxes. And that home itself. And what an operator names."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hutchd import refused
from test_mounts import daemon_of_host, make_host  # noqa: F401  pylint: disable=unused-import
from user_daemon import UID

of_the_user = pytest.mark.parametrize("host", ["one id", "subordinate ids"], indirect=True)


@pytest.fixture(name="caller")
def make_caller(host):
    """The user, whose home is the folder that the daemon may read. For tests that are @of_the_user."""
    host.make(".gitconfig", "[user]\n  name = Somebody\n", 0o600)
    host.make(".config")
    host.make(".config/git")
    host.make(".config/git/ignore", "*.o\n")
    host.make(".real")
    host.make(".real/auth.json", "{}", 0o600)
    (host.open / ".codex").symlink_to(".real")
    yield host.daemon.client(UID)
    for name in (".config", ".real"):
        shutil.rmtree(host.open / name)
    for name in (".gitconfig", ".codex"):
        (host.open / name).unlink()


def test_info_lists_them(daemon):
    assert list(daemon.info().tools) == ["claude", "codex", "git", "npm", "uv"]


@of_the_user
def test_what_there_is_of_them_is_read_only_at_home(daemon, caller):
    sandbox = caller.ready(tools=["git", "codex"])
    told = caller.shell(sandbox, "git config --global user.name; cat ~/.config/git/ignore ~/.codex/auth.json")
    assert told == "Somebody\n*.o\n{}"
    for file in (".gitconfig", ".config/git/x", ".codex/auth.json"):
        assert caller.run(sandbox, "sh", "-c", f"echo x >>~/{file}").exec.result.exit_code != 0
    caller.shell(sandbox, "touch ~/.config/mine")
    daemon.remove(sandbox)


@of_the_user
def test_mounts_come_before_them_and_go_into_them(daemon, caller, host):
    host.make(".real/inner")
    mine = host.make("mine", "mine\n")
    mounts = [
        {"source": "~/mine", "target": "/home/agent/.gitconfig"},
        {"source": "~/.config/git", "target": "/home/agent/.codex/inner", "writable": True},
    ]
    sandbox = caller.ready(tools=["git", "codex"], mounts=mounts)
    assert caller.shell(sandbox, "cat ~/.gitconfig; ls ~/.codex/inner; touch ~/.codex/inner/made") == "mine\nignore\n"
    daemon.remove(sandbox)
    mine.unlink()


@of_the_user
def test_what_is_not_there_is_refused(caller):
    with refused("TOOL_UNKNOWN", "spec.tools[0]", "spec.tools[1]"):
        caller.create(tools=["none-such", "uv"])
    with refused("FIELD_INVALID", "spec.tools[1]"):
        caller.create(tools=["git", "git"])
    with refused("FIELD_OUT_OF_RANGE", "spec.tools"):
        caller.create(tools=["git"] * 33)


def test_what_is_not_allowed_is_refused(daemon):
    """The home of who calls here is root's, in which the daemon may not read."""
    with refused("SOURCE_NOT_ALLOWED"):
        daemon.create(tools=["git"])


# ---- The operator's ----


@pytest.fixture(name="tree")
def make_tree():
    """A folder that only root may read, in no folder that callers may."""
    folder = Path(tempfile.mkdtemp(prefix="tools-of-hutch-", dir="/tmp"))
    (folder / "program").mkdir(mode=0o700)
    (folder / "program" / "file").write_text("text\n", encoding="utf-8")
    (folder / "config").write_text("config\n", encoding="utf-8")
    (folder / "link").symlink_to("/etc")
    yield folder
    shutil.rmtree(folder)


def test_the_operator_names_others(start_daemon, tree):
    parts = [f"{tree}/program", f"{tree}/config", "~/.none-such"]
    daemon = start_daemon({"tools": {"lint": parts, "git": [f"{tree}/config"], "linked": [f"{tree}/link"]}})
    assert list(daemon.info().tools) == ["claude", "codex", "git", "npm", "uv", "lint", "linked"]
    sandbox = daemon.ready(tools=["lint"])
    assert daemon.shell(sandbox, f"cat {tree}/program/file {tree}/config") == "text\nconfig\n"
    assert daemon.run(sandbox, "touch", f"{tree}/program/new").exec.result.exit_code != 0
    sandbox = daemon.ready(tools=["git"])
    assert daemon.shell(sandbox, f"ls {tree}") == "config\n"
    with refused("TOOL_UNKNOWN", "spec.tools[0]"):
        daemon.create(tools=["linked"])


def test_what_is_in_homes_is_not_allowed_by_its_name(start_daemon):
    daemon = start_daemon({"tools": {"mine": ["~/.profile"]}, "sources": {"read": []}})
    with refused("SOURCE_NOT_ALLOWED"):
        daemon.create(tools=["mine"])
