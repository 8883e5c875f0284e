# SPDX-License-Identifier: Apache-2.0
"""hutch where things are not as usual."""

import re
import resource

import pytest
from commandline import LIMIT, Hutch


@pytest.mark.parametrize("variable", ["HOME", "PATH", "LANG"])
def test_no_variable_is_needed(hutch, sandbox, variable):
    hutch.env.pop(variable)
    assert sandbox in hutch.ok("list", "--quiet")


@pytest.mark.parametrize("files", range(5, 17))
def test_too_few_descriptors_are_an_error(hutch, files):
    limits = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))}
    ended = hutch("list", **limits)
    assert ended.code in (0, 1), ended
    assert ended.code == 0 or "oo many open files" in ended.err
    assert ended.code == 0 or files < 16


@pytest.mark.parametrize("command", ["events", "watch"])
def test_what_is_followed_ends_when_it_cannot_be_written(hutch, sandbox, command):
    with open("/dev/full", "wb") as full:
        process = hutch.start(command, *(["--follow"] if command == "events" else []), sandbox, stdout=full)
    try:
        while process.poll() is None:
            hutch.ok("exec", sandbox, "touch", "something")
        assert process.wait(LIMIT) == 1
        assert process.stderr.read().endswith(b"hutch: cannot write: No space left on device\n")
    finally:
        process.kill()
        process.wait()


def test_events_stand_in_columns(own):
    daemon, hutch = own
    for name in ("short", "a-little-longer"):
        hutch.ok("create", "--name", name, "--wait")
    lines = [line for line in hutch.ok("events").split("\n") if "SANDBOX_CREATED" in line]
    assert len({line.index("SANDBOX_CREATED") for line in lines}) == 1, lines
    daemon.remove("short", "a-little-longer")


def test_a_failure_has_one_line_when_one_field_is_to_blame(hutch):
    told = hutch.refused("create", "--label", "a=\x1b[31m")
    assert told.count("\n") == 1 and "spec.labels[a]: " in told and "\x1b" not in told


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_what_failed_prints_no_empty_list(hutch, form):
    for command in ("diff", "ls", "list", "exec list"):
        words = command.split() + (["--selector", "=="] if command == "list" else ["no-such-sandbox"])
        assert hutch.refused(*words, "--output", form)


def test_no_tool_of_that_name_says_where_they_are_listed(hutch):
    assert "'hutch info' lists the tools" in hutch.refused("run", "--tool", "none-such", "true", code=125)
    assert re.search(r"^Tools: .*\bgit\b", hutch.ok("info"), re.MULTILINE)


def test_no_context_of_that_name_says_where_they_are_listed(tmp_path):
    hutch = Hutch(XDG_CONFIG_HOME=str(tmp_path))
    assert "'hutch context list' shows" in hutch.refused("--context", "none", "list")
