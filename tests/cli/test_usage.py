# SPDX-License-Identifier: Apache-2.0
"""What hutch says about itself and refuses, without any daemon."""

import os
import re
import subprocess
import time

import pytest
from commandline import ROOT, Hutch
from host import PATIENCE


@pytest.fixture(scope="module", name="alone")
def make_alone(tmp_path_factory):
    """The command line where no daemon is, and none may be started."""
    return Hutch(tmp_path_factory.mktemp("alone") / "none.sock", HUTCH_STATE="/dev/null/nowhere")


def commands_of(hutch: Hutch) -> list[str]:
    text = hutch.ok("help").split("Commands:\n")[1].split("\n\n")[0]
    return [re.match(r"  (\S+( \S+)?)  ", line)[1].strip() for line in text.split("\n")]


def options_of(hutch: Hutch, command: str) -> list[str]:
    return re.findall(r"^ +(?:-\w, )?--([\w-]+)", hutch.ok("help", *command.split()), re.MULTILINE)


def test_help_lists_every_command_of_the_issue(alone):
    expected = "run create list get top stop resume pause unpause delete update exec shell events wait info version"
    expected = expected.split() + ["doctor", "exec list", "exec get", "exec cancel", "exec logs", "completion", "help"]
    expected += ["daemon", "daemon start", "daemon stop", "daemon status"]
    expected += "cp ls cat stat mkdir mv rm diff watch".split()
    expected += ["token", *(f"token {name}" for name in ("create", "list", "revoke"))]
    expected += ["context", *(f"context {name}" for name in ("add", "use", "list", "show", "remove"))]
    assert sorted(commands_of(alone)) == sorted(expected)


def test_help_is_the_same_in_all_its_forms(alone):
    assert alone.ok("help") == alone.ok("--help") == alone.ok("-h")
    for command in commands_of(alone):
        words = command.split()
        told = alone.ok("help", *words)
        assert told == alone.ok(*words, "--help") == alone.ok(*words, "-h")
        assert told.startswith(f"Usage: hutch {command}")
        assert "--help" in told and "--socket" in told


def test_help_lines_fit_on_a_screen(alone):
    for command in ["", *commands_of(alone)]:
        assert max(map(len, alone.ok("help", *command.split()).split("\n"))) <= 110


@pytest.mark.parametrize(
    "words, meant",
    [
        ("lsit", "did you mean 'list'?"),
        ("lst", "did you mean 'list'?"),
        ("creat", "did you mean 'create'?"),
        ("ver", "did you mean 'version'?"),
        ("daemon stat", "did you mean 'daemon status'?"),
        ("run --memry 1g x", "did you mean '--memory'?"),
        ("list --selectro a", "did you mean '--selector'?"),
        ("list --state redy", "did you mean READY?"),
    ],
)
def test_a_mistyped_word_is_guessed(alone, words, meant):
    assert meant in alone.refused(*words.split(), code=2)


@pytest.mark.parametrize("words", ["fly", "x", "list --zzzz", "list -Z", "daemon", "daemon fly"])
def test_what_is_near_nothing_is_not_guessed(alone, words):
    told = alone.refused(*words.split(), code=2)
    assert "did you mean" not in told and "--help'" in told


@pytest.mark.parametrize(
    "words, why",
    [
        ([], "no command given"),
        (["run"], "needs [--] COMMAND"),
        (["run", "--"], "needs [--] COMMAND"),
        (["exec", "some-id"], "needs ID"),
        (["get"], "needs ID"),
        (["get", "a", "b"], "does not take 'b'"),
        (["list", "-o"], "needs a value"),
        (["list", "-o", "xml"], "one of table|json|yaml"),
        (["list", "--output=toml"], "one of table|json|yaml"),
        (["list", "--all=yes"], "takes no value"),
        (["run", "--keep", "--rm", "true"], "exclude each other"),
        (["run", "--socket", "a", "--address", "b", "true"], "exclude each other"),
        (["run", "-m", "lots", "true"], "is no size"),
        (["run", "-m", "", "true"], "--memory cannot be empty; it is SIZE"),
        (["run", "--name=", "true"], "--name cannot be empty; it is ID"),
        (["run", "--workdir", "", "true"], "--workdir cannot be empty"),
        (["list", "--selector", ""], "--selector cannot be empty"),
        (["--socket", "", "list"], "--socket cannot be empty"),
        (["list", "--state", "READY,"], "there is no state ''"),
        (["list", "--socket", "a", "--token-file", "b"], "--socket and --token-file exclude each other"),
        (["run", "-m", "-5m", "true"], "is no size"),
        (["run", "-m", "99999999999999999g", "true"], "is no size"),
        (["run", "--cpus", "many", "true"], "is no number of cores"),
        (["run", "--cpus", "1.2345", "true"], "is no number of cores"),
        (["run", "--pids-limit", "-1", "true"], "--pids-limit"),
        (["run", "--network", "host", "true"], "only be 'none'"),
        (["run", "--timeout", "5", "true"], "--timeout"),
        (["run", "--timeout", "0", "true"], "--timeout must be more than 0"),
        (["run", "--once", "--timeout", "0s", "true"], "--timeout must be more than 0"),
        (["exec", "--timeout", "0", "some-id", "true"], "--timeout must be more than 0"),
        (["wait", "--timeout", "0", "some-id"], "--timeout must be more than 0"),
        (["daemon", "stop", "--timeout", "0"], "--timeout must be more than 0"),
        (["run", "--idle-ttl", "soon", "true"], "--idle-ttl"),
        (["run", "-v", "/etc", "true"], "is no mount"),
        (["run", "-v", "/etc:/x:rx", "true"], "is no mount"),
        (["run", "--mount", "type=tmpfs,dst=/x", "true"], "is no part of a mount"),
        (["run", "--mount", "type=bind,dst=/x", "true"], "needs src= and dst="),
        (["run", "--env-file", "/no/such/file", "true"], "cannot read /no/such/file"),
        (["run", "--env-file", "/etc", "true"], "cannot read /etc: Is a directory"),
        (["run", "--file", "/no/such/file", "true"], "cannot read /no/such/file"),
        (["delete"], "say which"),
        (["delete", "--all", "some-id"], "say which"),
        (["delete", "--selector", " "], "say --all"),
        (["stop", "--grace", "x", "some-id"], "--grace"),
        (["wait", "--for", "HAPPY", "some-id"], "there is no state 'HAPPY'"),
        (["events", "--since", "yesterday"], "a cursor, or a duration"),
        (["events", "--type", "SANDBOX_CRATED"], "SANDBOX_CREATED"),
        (["exec", "logs", "--tail", "-1", "some-id", "main"], "a number of lines"),
        (["exec", "--detach", "-i", "some-id", "true"], "exclude each other"),
        (["completion", "tcsh"], "bash, zsh and fish"),
        (["help", "fly"], "unknown command 'fly'"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(alone, words, why):
    told = alone.refused(*words, code=2)
    assert why in told and told.count("\n") == 1 and "--help'" in told


@pytest.mark.parametrize("words", ["{}", "help {}", "list --{}", "list -o {}", "exec ls a {}"])
def test_what_was_typed_does_not_reach_the_terminal_as_it_is(alone, words):
    told = alone.refused(*(word.format("\x1b[31m\nred") for word in words.split(" ")), code=2)
    assert "?[31m?red" in told and "\x1b" not in told


def test_a_closed_output_is_not_taken_for_another_file(alone):
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        ended = subprocess.run(["bash", "-c", f"{alone.program} help {closed}"], capture_output=True, check=False)
        assert ended.returncode == 0, closed


def test_output_that_cannot_be_written_is_told(alone):
    with open("/dev/full", "wb") as full:
        ended = alone("help", stdout=full)
    assert (ended.code, ended.err) == (1, "hutch: cannot write: No space left on device\n")


def test_a_reader_that_goes_away_ends_it_quietly(alone):
    ended = subprocess.run(
        ["bash", "-c", f"set -o pipefail; for i in 1 2 3 4; do {alone.program} help run; done | true"],
        capture_output=True,
        check=False,
    )
    assert ended.stderr == b""


def test_it_starts_in_a_few_milliseconds(alone):
    alone("--version")
    started = time.monotonic()
    for _ in range(20):
        subprocess.run([alone.program, "help"], stdout=subprocess.DEVNULL, check=True)
    assert (time.monotonic() - started) / 20 < 0.5 * PATIENCE  # a hang or a lookup; time itself is not tested


def test_it_links_only_what_it_needs(alone):
    linked = subprocess.run(["ldd", alone.program], capture_output=True, text=True, check=True).stdout
    for other in ("sqlite", "seccomp", "libcurl", "archive"):
        assert other not in linked


@pytest.mark.parametrize("page", ["docs/cli.md", "docs/man/hutch.1.md"])
def test_pages_name_every_command_and_option(alone, page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for command in commands_of(alone):
        assert re.search(rf"hutch {command}\b", text), command
        missing = [option for option in options_of(alone, command) if f"--{option}" not in text]
        assert not missing, f"{command}: {missing}"


def test_the_man_page_has_the_commands_as_hutch_tells_them(alone):
    text = (ROOT / "docs/man/hutch.1.md").read_text(encoding="utf-8")
    assert f"<!-- hutch __man -->\n{alone.ok('__man')}<!-- end -->\n" in text


def test_exit_codes_are_documented():
    text = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    codes = re.findall(r"= (\d+),", (ROOT / "src/cli/exit-codes.h").read_text(encoding="utf-8"))
    assert codes and all(f"`{code}`" in text or f"`{code} + " in text for code in codes)


def test_no_daemon_that_could_be_started_is_told_with_what_to_do(alone):
    told = alone.refused("list")
    assert "hutch daemon start" in told or "hutch doctor" in told
    assert alone.refused("run", "true", code=125)
    assert not os.path.exists(alone.env["HUTCH_SOCKET"])
