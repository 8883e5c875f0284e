# SPDX-License-Identifier: Apache-2.0
"""The contract is clean, and nothing that stands in the baseline has changed its meaning."""

import shutil
import subprocess
from pathlib import Path

import pytest
from contract import ROOT

BASELINE = ROOT / "spec" / "baseline" / "hutch.binpb"


def buf(*arguments: object, tree: Path = ROOT) -> str:
    """What buf has to say about the contract of @tree: "" for nothing."""
    command = ["buf", *map(str, arguments)]
    told = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert bool(told.returncode) == bool(told.stdout), f"exit status {told.returncode}: {told.stdout}"
    return told.stdout


@pytest.fixture(name="changed")
def change_copy(tmp_path):
    """Changes the first @old in a file of a copy of the contract to @new; returns the copy."""

    def change(file: str, old: str, new: str) -> Path:
        shutil.copytree(ROOT / "proto", tmp_path / "proto")
        shutil.copy(ROOT / "buf.yaml", tmp_path)
        proto = tmp_path / "proto" / "hutch" / file
        text = proto.read_text(encoding="utf-8")
        assert old in text
        proto.write_text(text.replace(old, new, 1), encoding="utf-8")
        return tmp_path

    return change


def test_lint_finds_nothing():
    assert buf("lint") == ""


def test_a_field_without_comment_is_found(changed):
    tree = changed("v1/system.proto", "message PingRequest {}", "message PingRequest {\n  string echo = 1;\n}")
    assert 'Field "echo" should have a non-empty comment' in buf("lint", tree=tree)


def test_format_is_bufs():
    assert buf("format", "--diff", "--exit-code") == ""


def test_another_format_is_found(changed):
    tree = changed("v1/system.proto", "message PingRequest {}", "message PingRequest { }")
    assert "+message PingRequest {}" in buf("format", "--diff", "--exit-code", tree=tree)


def test_nothing_in_the_baseline_is_broken():
    assert buf("breaking", "--against", BASELINE) == ""


@pytest.mark.parametrize(
    "file, old, new, problem",
    [
        ("v1/sandbox.proto", "  string id = 1;", "  string id = 99;", 'field "1" with name "id" on message "Sandbox"'),
        ("v1/sandbox.proto", "  string id = 1;", "", 'field "1" with name "id" on message "Sandbox" was deleted'),
        ("v1/sandbox.proto", "  string id = 1;", "  uint64 id = 1;", 'changed type from "string" to "uint64"'),
        ("v1/sandbox.proto", "  string id = 1;", "  string key = 1;", 'changed name from "id" to "key"'),
        ("v1/state.proto", "_READY = 2;", "_READY = 1002;", 'enum value "2" on enum "SandboxState" was deleted'),
        ("v1/system.proto", "  rpc Ping(PingRequest) returns (PingResponse);", "", 'RPC "Ping"'),
        ("keeper/v1/keeper.proto", "protocol_version = 1;", "protocol_version = 1001;", 'message "DescribeResponse"'),
    ],
    ids=["number", "removal", "type", "name", "enum", "method", "keeper"],
)
def test_a_breaking_change_is_found(changed, file, old, new, problem):
    assert problem in buf("breaking", "--against", BASELINE, tree=changed(file, old, new))


def test_what_is_new_breaks_nothing(changed):
    tree = changed("v1/system.proto", "message PingRequest {}", "message PingRequest {\n  string echo = 1;\n}")
    assert buf("breaking", "--against", BASELINE, tree=tree) == ""
