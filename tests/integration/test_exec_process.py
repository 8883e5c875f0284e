# SPDX-License-Identifier: Apache-2.0
"""What a command is started with, and how it ends: argv, environment, folder, user, stdin, exit codes."""

import hashlib
import json
import os
import pwd

import pytest
from hutch.v1 import error_pb2, exec_pb2, sandbox_pb2
from hutchd import ROOT, refused, seconds, state_name
from streams import PIPED, create_attached, run_to_end

DEFAULTS = ["HOME", "HUTCH_SANDBOX_ID", "LANG", "PATH", "USER"]
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ARGUMENT_MAX = 131071
ARGUMENTS_MAX = 1 << 20


def end_reason(made) -> str:
    return exec_pb2.ExecEndReason.Name(made.result.end_reason).removeprefix("EXEC_END_REASON_")


def failure(made) -> str:
    return error_pb2.Reason.Name(made.result.failure).removeprefix("REASON_")


def environment_of(daemon, sandbox_id: str, **spec) -> list[str]:
    return daemon.run(sandbox_id, "/usr/bin/cat", "/proc/self/environ", **spec).stdout.decode().split("\0")[:-1]


# ---- argv ----


@pytest.mark.rules("EXEC-002")
@pytest.mark.parametrize(
    "arguments",
    [
        ["plain"],
        [""],
        ["", "", ""],
        ["a b", " ", "\t", "\n", "a\nb"],
        ["$HOME", "`id`", "$(id)", "*", "?", "~", "[a-z]", "{a,b}", "!", "#", ";", "&", "|", ">", "\\", "'", '"'],
        ["-n", "--", "--help", "-"],
        ["é", "日本語", "🐇", "e\u0301", "\u202e", "\ufeff"],
        ["\x01", "\x1b[31m", "\x7f", "%s%n%d", "\\0"],
    ],
    ids=lambda arguments: ascii(arguments)[:40],
)
def test_arguments_arrive_as_they_are(daemon, shared_sandbox, arguments):
    ran = daemon.run(shared_sandbox, "sh", "-c", "cat /proc/$$/cmdline; exit 0", *arguments)
    expected = ["sh", "-c", "cat /proc/$$/cmdline; exit 0", *arguments]
    assert ran.stdout == b"".join(argument.encode() + b"\0" for argument in expected)


@pytest.mark.rules("EXEC-002")
def test_no_shell_reads_the_arguments(daemon, shared_sandbox):
    assert daemon.run(shared_sandbox, "echo", "$HOME", "&&", "false").stdout == b"$HOME && false\n"


@pytest.mark.rules("EXEC-002")
def test_a_program_without_a_slash_is_found_in_the_path_of_the_exec(daemon, sandbox):
    daemon.shell(sandbox, "mkdir bin; printf '#!/bin/sh\\necho mine\\n' > bin/ls; chmod +x bin/ls")
    assert daemon.run(sandbox, "ls", env={"PATH": "/nowhere:/workspace/bin:/usr/bin"}).stdout == b"mine\n"


@pytest.mark.rules("EXEC-002")
def test_a_program_with_a_slash_is_relative_to_the_working_directory(daemon, sandbox):
    daemon.shell(sandbox, "mkdir bin; printf '#!/bin/sh\\necho mine\\n' > bin/prog; chmod +x bin/prog")
    assert daemon.run(sandbox, "./prog", working_directory="bin").stdout == b"mine\n"
    assert daemon.run(sandbox, "bin/prog").stdout == b"mine\n"


def test_the_largest_argument_arrives(daemon, shared_sandbox):
    ran = daemon.run(shared_sandbox, "printf", "%s", "x" * ARGUMENT_MAX)
    assert ran.stdout == b"x" * ARGUMENT_MAX


def test_an_argument_that_is_too_large_is_refused(daemon, shared_sandbox):
    with refused("ARGUMENTS_TOO_LARGE") as told:
        daemon.start(shared_sandbox, "true", "x" * (ARGUMENT_MAX + 1))
    assert told.metadata == {"limit": "argument_bytes", "value": str(ARGUMENT_MAX)}


def test_a_variable_that_is_too_large_is_refused(daemon, shared_sandbox):
    daemon.shell(shared_sandbox, "test ${#A} = 131069", env={"A": "x" * (ARGUMENT_MAX - 2)})
    with refused("ARGUMENTS_TOO_LARGE"):
        daemon.start(shared_sandbox, "true", env={"A": "x" * (ARGUMENT_MAX - 1)})


def arguments_of_size(size: int) -> list[str]:
    """Arguments that count @size bytes, each with its NUL."""
    count, rest = divmod(size, 100_000)
    return ["x" * 99_999] * count + ["x" * (rest - 1)] * bool(rest)


def test_as_much_argv_and_environment_as_is_allowed_arrives(daemon, shared_sandbox):
    env = {"A": "x" * 1000}
    first = ["sh", "-c", 'printf %s "$*" | wc -c', "sh"]
    used = sum(len(argument) + 1 for argument in first) + len("A=") + 1001
    arguments = arguments_of_size(ARGUMENTS_MAX - used - 4096)  # the defaults count, too
    ran = daemon.run(shared_sandbox, *first, *arguments, env=env)
    assert int(ran.stdout) == sum(map(len, arguments)) + len(arguments) - 1


def test_more_argv_than_is_allowed_is_refused(daemon, shared_sandbox):
    with refused("ARGUMENTS_TOO_LARGE") as told:
        daemon.start(shared_sandbox, "true", *arguments_of_size(ARGUMENTS_MAX))
    assert told.metadata == {"limit": "arguments_bytes", "value": str(ARGUMENTS_MAX)}


@pytest.mark.parametrize("count", [5_000, 20_000, 60_000, 130_000])
def test_many_small_arguments_arrive(daemon, shared_sandbox, count):
    ran = daemon.run(shared_sandbox, "sh", "-c", "echo $#", "sh", *["a"] * count)
    assert int(ran.stdout) == count


def test_more_parts_than_the_daemon_takes_are_refused(daemon, shared_sandbox):
    with refused("MESSAGE_TOO_LARGE") as told:
        daemon.start(shared_sandbox, *[""] * 1_000_000)
    assert told.metadata == {"limit": "message_memory_bytes", "value": str(32 << 20)}


def test_many_arguments_arrive(daemon, shared_sandbox):
    ran = daemon.run(shared_sandbox, "sh", "-c", "echo $#", "sh", *["file-name"] * 90_000)
    assert ran.stdout == b"90000\n"


def test_the_environment_of_the_sandbox_counts_into_the_limit(daemon):
    sandbox = daemon.ready(env={f"V{i}": "x" * 100_000 for i in range(6)})
    with refused("ARGUMENTS_TOO_LARGE"):
        daemon.start(sandbox, "true", *arguments_of_size(500_000))
    daemon.shell(sandbox, "true", unset_env=[f"V{i}" for i in range(6)])
    daemon.remove(sandbox)


# ---- The environment ----


@pytest.mark.rules("ENV-004")
def test_the_defaults_and_nothing_of_the_daemon_are_in_the_environment(daemon, shared_sandbox):
    assert environment_of(daemon, shared_sandbox) == [
        "HOME=/home/agent",
        f"HUTCH_SANDBOX_ID={shared_sandbox}",
        "LANG=C.UTF-8",
        f"PATH={DEFAULT_PATH}",
        "USER=agent",
    ]


@pytest.mark.rules("ENV-004")
def test_a_terminal_brings_TERM(daemon, shared_sandbox):  # pylint: disable=invalid-name
    ended, output = run_to_end(
        daemon, shared_sandbox, "printenv", "TERM", terminal=exec_pb2.TerminalSize(rows=24, columns=80)
    )
    assert ended.result.exit_code == 0
    assert output.stdout == b"xterm-256color\r\n"


def test_each_layer_of_the_environment_is_over_the_one_before(daemon):
    sandbox = daemon.ready(env={"A": "sandbox", "B": "sandbox", "LANG": "sandbox", "HOME": "/tmp"})
    unset = ["PATH", "A", "NOT_THERE"]
    got = environment_of(daemon, sandbox, env={"B": "exec", "C": "", "USER": "me"}, unset_env=unset)
    assert got == ["B=exec", "C=", "HOME=/tmp", f"HUTCH_SANDBOX_ID={sandbox}", "LANG=sandbox", "USER=me"]
    daemon.remove(sandbox)


def test_defaults_of_the_user_can_be_unset(daemon, shared_sandbox):
    got = environment_of(daemon, shared_sandbox, unset_env=DEFAULTS)
    assert got == []


ENV_CASES = json.loads((ROOT / "spec/vectors/env.json").read_text(encoding="utf-8"))["cases"]
EXEC_ENV_CASES = [case for case in ENV_CASES if len(case["in"].get("layers", [])) == 1]


def secret_free(case: dict) -> bool:
    return not any(str(value).startswith("secret://") for value in case["in"]["layers"][0].values())


@pytest.mark.vectors("env")
@pytest.mark.parametrize("case", list(filter(secret_free, EXEC_ENV_CASES)), ids=lambda case: case["name"])
def test_the_environment_of_an_exec_follows_the_vectors(daemon, shared_sandbox, case):
    env, unset = case["in"]["layers"][0], case["in"].get("unset", [])
    unset = [name for name in DEFAULTS if name not in env] + unset
    if "error" in case:
        with refused(case["error"]["reason"]):
            daemon.start(shared_sandbox, "true", env=env, unset_env=unset)
        return
    assert environment_of(daemon, shared_sandbox, env=env, unset_env=unset) == case["out"]["env"]


# ---- The working directory ----


@pytest.mark.rules("EXEC-009")
def test_the_working_directory_is_the_workspace(daemon, shared_sandbox):
    assert daemon.shell(shared_sandbox, "pwd") == "/workspace\n"


@pytest.mark.rules("EXEC-009")
def test_the_working_directory_is_the_exec_s_or_the_sandbox_s(daemon):
    sandbox = daemon.ready(working_directory="/tmp")
    assert daemon.shell(sandbox, "pwd; mkdir sub") == "/tmp\n"
    assert daemon.shell(sandbox, "pwd", working_directory="sub") == "/tmp/sub\n"
    assert daemon.shell(sandbox, "pwd", working_directory="/usr/./bin//") == "/usr/bin\n"
    daemon.remove(sandbox)


def test_the_working_directory_is_the_workspace_wherever_that_is(daemon):
    sandbox = daemon.ready(workspace={"target": "/srv/code"})
    assert daemon.shell(sandbox, "pwd; touch here") == "/srv/code\n"
    daemon.remove(sandbox)


@pytest.mark.rules("EXEC-009")
def test_a_missing_working_directory_fails_the_exec(daemon, shared_sandbox):
    ended = daemon.run(shared_sandbox, "true", working_directory="missing").exec
    assert (state_name(ended), failure(ended), end_reason(ended)) == ("FAILED", "FILE_NOT_FOUND", "NOT_STARTED")
    assert ended.result.message and not ended.HasField("start_time") and ended.HasField("end_time")


def test_a_working_directory_that_is_a_file_fails_the_exec(daemon, shared_sandbox):
    ended = daemon.run(shared_sandbox, "true", working_directory="/etc/passwd").exec
    assert (state_name(ended), failure(ended)) == ("FAILED", "NOT_A_DIRECTORY")


def test_a_working_directory_that_the_user_may_not_enter_fails_the_exec(daemon, sandbox):
    daemon.shell(sandbox, "mkdir -m 0 closed")
    ended = daemon.run(sandbox, "true", working_directory="closed").exec
    assert (state_name(ended), failure(ended)) == ("FAILED", "FILE_PERMISSION")


# ---- The user ----


@pytest.mark.rules("EXEC-010")
@pytest.mark.parametrize(
    "user, expected",
    [
        ("", "1000:1000"),
        ("agent", "1000:1000"),
        ("1000", "1000:1000"),
        ("root", "0:0"),
        ("0", "0:0"),
        ("4321:1234", "4321:1234"),
        ("0:1000", "0:1000"),
    ],
)
def test_a_command_runs_as_its_user(daemon, shared_sandbox, user, expected):
    assert daemon.shell(shared_sandbox, "echo $(id -u):$(id -g)", user=user).strip() == expected


@pytest.mark.rules("EXEC-010")
def test_a_command_runs_as_the_sandbox_s_user_when_it_names_none(daemon):
    sandbox = daemon.ready(user="4321:1234")
    assert daemon.shell(sandbox, "echo $(id -u):$(id -g)") == "4321:1234\n"
    assert daemon.shell(sandbox, "echo $(id -u):$(id -g)", user="root") == "0:0\n"
    daemon.remove(sandbox)


@pytest.mark.rules("ENV-004")
def test_HOME_and_USER_are_the_user_s(daemon, shared_sandbox):  # pylint: disable=invalid-name
    assert daemon.shell(shared_sandbox, "echo $USER:$HOME", user="root") == "root:/root\n"
    assert daemon.shell(shared_sandbox, "echo $USER:$HOME") == "agent:/home/agent\n"


def test_an_unknown_user_fails_the_exec(daemon, shared_sandbox):
    ended = daemon.run(shared_sandbox, "true", user="nobody-knows").exec
    assert (state_name(ended), failure(ended), end_reason(ended)) == ("FAILED", "USER_NOT_FOUND", "NOT_STARTED")


@pytest.mark.rules("EXEC-010")
def test_users_are_looked_up_inside(daemon, sandbox):
    daemon.shell(sandbox, "echo 'made:x:777:888::/tmp:/bin/sh' >> /etc/passwd", user="root")
    assert daemon.shell(sandbox, "echo $(id -u):$(id -g):$HOME", user="made") == "777:888:/tmp\n"


@pytest.mark.rules("EXEC-010")
def test_users_of_the_host_are_not_known_inside(daemon, shared_sandbox):
    inside = {line.split(":")[0] for line in daemon.shell(shared_sandbox, "cat /etc/passwd").splitlines()}
    outside = [entry.pw_name for entry in pwd.getpwall() if entry.pw_name not in inside]
    assert outside
    for name in outside:
        ended = daemon.run(shared_sandbox, "true", user=name).exec
        assert (state_name(ended), failure(ended)) == ("FAILED", "USER_NOT_FOUND")


def test_a_command_gets_no_descriptor_but_its_three(daemon, shared_sandbox):
    assert daemon.shell(shared_sandbox, "ls /proc/self/fd").split() == ["0", "1", "2", "3"]  # 3 is ls's own


def test_no_signal_is_ignored_or_blocked(daemon, shared_sandbox):
    status = dict(line.split(":\t") for line in daemon.shell(shared_sandbox, "exec cat /proc/self/status").splitlines())
    assert [int(status[name], 16) for name in ("SigIgn", "SigBlk", "SigCgt")] == [0, 0, 0]


def test_the_umask_is_the_usual_one(daemon, shared_sandbox):
    assert daemon.shell(shared_sandbox, "umask").strip() == "0022"


# ---- stdin ----


@pytest.mark.rules("EXEC-007")
def test_stdin_is_empty_unless_asked_for(daemon, shared_sandbox):
    ended, output = run_to_end(daemon, shared_sandbox, "cat")
    assert (ended.result.exit_code, output.stdout) == (0, b"")


@pytest.mark.rules("EXEC-007")
def test_stdin_takes_what_is_sent_until_it_is_closed(daemon, shared_sandbox):
    with create_attached(daemon, shared_sandbox, "cat", stdin=PIPED) as attached:
        attached.write(b"first\n")
        attached.until(b"first\n")
        attached.write(b"\0\xff\n")
        attached.write(b"no newline")
        attached.close_stdin()
        ended = attached.finish()
    assert ended.result.exit_code == 0
    assert attached.output.stdout == b"first\n\0\xff\nno newline"


def test_much_input_goes_through(daemon, shared_sandbox):
    block = os.urandom(1 << 20)
    with create_attached(daemon, shared_sandbox, "sha256sum", stdin=PIPED) as attached:
        for _ in range(32):
            attached.write(block)
        attached.close_stdin()
        attached.finish()
    assert attached.output.stdout.split()[0] == hashlib.sha256(block * 32).hexdigest().encode()


@pytest.mark.rules("EXEC-007")
def test_a_process_that_does_not_read_its_stdin_stalls_only_its_sender(daemon, sandbox):
    block = bytes(1 << 20)
    memory = daemon.memory()
    with create_attached(daemon, sandbox, "sleep", "100", stdin=PIPED) as stalled:
        for _ in range(64):
            stalled.write(block)
        for _ in range(20):
            assert daemon.shell(sandbox, "echo well") == "well\n"
        assert daemon.memory() - memory < 16 << 20
    daemon.cancel(sandbox, stalled.exec.id, grace=0)


def test_a_process_may_end_before_it_has_read_its_stdin(daemon, shared_sandbox):
    with create_attached(daemon, shared_sandbox, "head", "-c", "3", stdin=PIPED) as attached:
        for _ in range(8):
            attached.write(b"x" * (1 << 20))
        ended = attached.finish()
    assert (ended.result.exit_code, attached.output.stdout) == (0, b"xxx")


# ---- stdout and stderr ----


@pytest.mark.rules("EXEC-008")
def test_stdout_and_stderr_are_separate_pipes(daemon, shared_sandbox):
    _, output = run_to_end(
        daemon, shared_sandbox, "sh", "-c", "echo out; echo err >&2; for i in 0 1 2; do test -t $i && echo $i; done"
    )
    assert (output.stdout, output.stderr) == (b"out\n", b"err\n")


# ---- How it ends ----


@pytest.mark.rules("EXEC-003")
@pytest.mark.parametrize("code", [0, 1, 2, 124, 126, 127, 128, 137, 255])
def test_an_exit_code_is_the_process_s_own(daemon, shared_sandbox, code):
    ended = daemon.run(shared_sandbox, "sh", "-c", f"exit {code}").exec
    assert (state_name(ended), ended.result.exit_code, ended.result.signal) == ("EXITED", code, 0)
    assert end_reason(ended) == "EXITED"


@pytest.mark.rules("EXEC-003")
@pytest.mark.parametrize("number", [1, 2, 3, 6, 9, 11, 13, 15, 34, 64])
def test_a_process_that_a_signal_ended_has_128_and_its_number(daemon, shared_sandbox, number):
    ended = daemon.run(shared_sandbox, "sh", "-c", f"kill -{number} $$; sleep 10").exec
    assert (state_name(ended), ended.result.exit_code, ended.result.signal) == ("EXITED", 128 + number, number)
    assert end_reason(ended) == "EXITED"


@pytest.mark.rules("EXEC-003")
@pytest.mark.parametrize("program", ["no-such-program", "/no/such/program", "./missing", "/usr/bin/missing/x"])
def test_a_program_that_is_not_there_fails_with_127(daemon, shared_sandbox, program):
    ended = daemon.run(shared_sandbox, program).exec
    assert (state_name(ended), ended.result.exit_code, end_reason(ended)) == ("FAILED", 127, "NOT_STARTED")
    assert failure(ended) == "FILE_NOT_FOUND"
    assert program in ended.result.message


@pytest.mark.rules("EXEC-003")
def test_a_program_that_cannot_be_executed_fails_with_126(daemon, sandbox):
    daemon.shell(sandbox, "echo nothing > plain; chmod 755 plain; echo x > closed; mkdir -p folder")
    for program in ("./closed", "./folder", "/workspace", "/etc/passwd"):
        ended = daemon.run(sandbox, program).exec
        assert (state_name(ended), ended.result.exit_code, end_reason(ended)) == ("FAILED", 126, "NOT_STARTED"), program
        assert failure(ended) != "UNSPECIFIED" and ended.result.message
    ended = daemon.run(sandbox, "./plain").exec
    assert (state_name(ended), ended.result.exit_code) == ("FAILED", 126)  # no shell is put before it


def test_a_script_without_its_interpreter_fails_with_126(daemon, sandbox):
    daemon.shell(sandbox, "printf '#!/no/such/interpreter\\n' > script; chmod +x script")
    ended = daemon.run(sandbox, "./script").exec
    assert (state_name(ended), ended.result.exit_code) == ("FAILED", 126)


def test_a_program_in_PATH_that_cannot_be_executed_is_passed_over(daemon, sandbox):  # pylint: disable=invalid-name
    daemon.shell(sandbox, "mkdir bin; echo x > bin/true; echo x > bin/only")
    assert daemon.run(sandbox, "true", env={"PATH": "/workspace/bin:/usr/bin"}).exec.result.exit_code == 0
    ended = daemon.run(sandbox, "only", env={"PATH": "/workspace/bin:/usr/bin"}).exec
    assert (state_name(ended), ended.result.exit_code) == ("FAILED", 126)


@pytest.mark.rules("EXEC-002")
def test_outside_of_PATH_a_program_must_have_a_slash(daemon, shared_sandbox):  # pylint: disable=invalid-name
    ended = daemon.run(shared_sandbox, "true", env={"PATH": "/nowhere"}).exec
    assert (state_name(ended), ended.result.exit_code) == ("FAILED", 127)
    assert daemon.run(shared_sandbox, "/usr/bin/true", unset_env=["PATH"]).exec.result.exit_code == 0


def test_an_exec_tells_its_times_and_what_it_used(daemon, shared_sandbox):
    memory = "head -c 20000000 /dev/zero | tail -c 20000000 > /dev/null"
    script = f"i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; {memory}"
    ended = daemon.run(shared_sandbox, "sh", "-c", script).exec
    create, start, end = (stamp.ToNanoseconds() for stamp in (ended.create_time, ended.start_time, ended.end_time))
    assert create <= start < end
    used = ended.result.cpu_time.ToNanoseconds()
    assert 10e6 < used < 2 * (end - start) + 50e6
    assert ended.result.peak_memory_bytes == 0 or ended.result.peak_memory_bytes > 10e6


@pytest.mark.rules("LIFE-012")
def test_the_command_of_a_sandbox_runs_as_main(daemon):
    sandbox = daemon.ready(command=["sh", "-c", "echo hello; exit 3"])
    ended = daemon.wait_exec(sandbox, "main")
    assert (state_name(ended), ended.result.exit_code) == ("EXITED", 3)
    assert state_name(daemon.get(sandbox)) == "READY"
    daemon.remove(sandbox)


def test_a_sandbox_s_limit_on_execs_holds_for_those_that_ask_for_more(daemon):
    limits = sandbox_pb2.ResourceLimits(exec_timeout=seconds(0.2))
    sandbox = daemon.ready(limits=limits)
    for spec in ({}, {"timeout": seconds(0)}, {"timeout": seconds(100)}):
        ended, _ = run_to_end(daemon, sandbox, "sleep", "100", **spec)
        assert (state_name(ended), ended.result.exit_code) == ("TIMED_OUT", 124)
    daemon.remove(sandbox)


def test_open_files_are_limited_as_the_sandbox_says(daemon):
    sandbox = daemon.ready(limits=sandbox_pb2.ResourceLimits(max_open_files=64))
    assert daemon.shell(sandbox, "ulimit -n") == "64\n"
    daemon.remove(sandbox)
