# SPDX-License-Identifier: Apache-2.0
"""exec, its commands, and shell."""

import re
import subprocess

import pytest
from hutchd import LIMIT, wait_until


def test_exec_runs_a_command(hutch, sandbox):
    ended = hutch("exec", sandbox, "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (ended.code, ended.out, ended.err) == (3, "out\n", "err\n")
    assert hutch.ok("exec", sandbox, "--", "echo", "--", "-x") == "-- -x\n"


def test_options_stand_on_either_side_of_the_id(hutch, sandbox):
    words = ["-e", "A=1", "--workdir", "/tmp", "-u", "0"]
    script = ["sh", "-c", 'echo "$A"; pwd; id -u']
    assert hutch.ok("exec", *words, sandbox, *script) == hutch.ok("exec", sandbox, *words, *script) == "1\n/tmp\n0\n"


def test_stdin_needs_interactive(hutch, sandbox):
    assert hutch.ok("exec", sandbox, "cat", stdin=b"x\n") == ""
    assert hutch.ok("exec", "-i", sandbox, "cat", stdin=b"x\n") == "x\n"
    data = bytes(range(256)) * 1000
    assert hutch("exec", "--interactive", sandbox, "cat", stdin=data).bytes == data


def test_a_loop_keeps_its_stdin(hutch, sandbox):
    script = f"printf '1\\n2\\n3\\n' | while read n; do {hutch.program} exec {sandbox} echo $n; done"
    ended = subprocess.run(["sh", "-c", script], env=hutch.env, capture_output=True, text=True, check=True)
    assert ended.stdout == "1\n2\n3\n"


def test_a_terminal_can_be_asked_for(hutch, sandbox):
    assert hutch.ok("exec", "-t", sandbox, "tty").startswith("/dev/pts/")
    assert hutch.ok("exec", "-it", sandbox, "sh", "-c", "stty size", stdin=b"").strip() == "24 80"
    assert hutch("exec", "--tty", "--no-tty", sandbox, "tty").code == 1
    assert hutch("exec", "-T", sandbox, "tty").out == "not a tty\n"


def test_env_file_and_timeout(hutch, sandbox, tmp_path):
    (tmp_path / "env").write_text("A=1\nB=two words\n")
    assert hutch.ok("exec", "--env-file", str(tmp_path / "env"), sandbox, "sh", "-c", "echo $A $B") == "1 two words\n"
    assert hutch("exec", "--timeout", "200ms", sandbox, "sleep", "60").code == 124


@pytest.mark.parametrize("words, code", [(["no-such-program"], 127), (["/etc/passwd"], 126), (["false"], 1)])
def test_exit_codes_are_those_of_run(hutch, sandbox, words, code):
    assert hutch("exec", sandbox, *words).code == code
    assert hutch("exec", "no-such-sandbox", *words).code == 125


def test_detach_prints_the_id(hutch, daemon, sandbox):
    plain = hutch.ok("exec", "-d", sandbox, "sh", "-c", "echo detached; exit 4")
    assert re.fullmatch(r"ex-[a-z0-9]{20}\n", plain)
    daemon.wait_exec(sandbox, plain.strip())
    assert hutch.ok("exec", "logs", sandbox, plain.strip()) == "detached\n"
    assert hutch.json("exec", "--detach", sandbox, "true")["spec"]["argv"] == ["true"]
    assert hutch.yaml("exec", "--detach", "-t", sandbox, "true")["spec"]["terminal"] == {}


def test_list_and_get(hutch, daemon, sandbox):
    one = hutch.ok("exec", "-d", sandbox, "sh", "-c", "exit 4").strip()
    daemon.wait_exec(sandbox, one)
    two = hutch.ok("exec", "-d", sandbox, "sleep", "600").strip()
    daemon.wait_exec(sandbox, two, "RUNNING")

    lines = hutch.ok("exec", "list", sandbox).strip().split("\n")
    assert lines[0].split() == ["ID", "STATE", "EXIT", "CREATED", "COMMAND"]
    assert re.fullmatch(rf"{one}  EXITED   4     (now|\d+ (seconds|minutes?) ago) +sh -c exit 4", lines[1])
    assert re.fullmatch(rf"{two}  RUNNING        (now|\d+ (seconds|minutes?) ago) +sleep 600", lines[2])
    for told in (hutch.json("exec", "list", sandbox), hutch.yaml("exec", "ls", sandbox)):
        assert [(each["id"], each["state"]) for each in told] == [(one, "EXITED"), (two, "RUNNING")]

    details = hutch.ok("exec", "get", sandbox, one)
    assert re.search(r"^State: +EXITED\nExit code: +4$", details, re.MULTILINE)
    assert hutch.json("exec", "get", sandbox, one)["result"]["exit_code"] == 4
    assert hutch.yaml("exec", "get", sandbox, two)["state"] == "RUNNING"
    assert "hutch exec list" in hutch.refused("exec", "get", sandbox, "no-such-exec")


def test_list_shows_commands_as_they_are_and_cuts_none_within_a_character(hutch, sandbox):
    hutch.ok("exec", sandbox, "true", "a,b", "c")
    hutch.ok("exec", sandbox, "true", "é" * 100)
    lines = hutch.ok("exec", "list", sandbox).strip().split("\n")
    assert lines[1].endswith("  true a,b c")
    assert lines[2].endswith("  true " + "é" * 52 + "...")


def test_cancel_ends_it(hutch, daemon, sandbox):
    script = "trap '' TERM; echo ready; while :; do sleep 1; done"
    one = hutch.ok("exec", "-d", sandbox, "sh", "-c", script).strip()
    wait_until(lambda: hutch.ok("exec", "logs", sandbox, one) == "ready\n")
    assert hutch.ok("exec", "cancel", "--grace", "0", sandbox, one) == f"{one}\n"
    assert daemon.wait_exec(sandbox, one).result.exit_code == 137
    assert hutch.json("exec", "cancel", sandbox, one)["state"] == "CANCELLED"
    assert hutch.yaml("exec", "cancel", sandbox, one)["state"] == "CANCELLED"


def test_logs_of_either_stream(hutch, daemon, sandbox):
    one = hutch.ok("exec", "-d", sandbox, "sh", "-c", "seq 1 5; echo err >&2").strip()
    daemon.wait_exec(sandbox, one)
    ended = hutch("exec", "logs", sandbox, one)
    assert (ended.out, ended.err) == ("1\n2\n3\n4\n5\n", "err\n")
    assert hutch("exec", "logs", "--stdout", sandbox, one).err == ""
    assert hutch("exec", "logs", "--stderr", sandbox, one).out == ""
    assert hutch("exec", "logs", "--stdout", "--stderr", sandbox, one).out == "1\n2\n3\n4\n5\n"
    assert hutch("exec", "logs", "--tail", "2", sandbox, one).out == "4\n5\n"
    assert hutch("exec", "logs", "-n", "0", sandbox, one).out == ""
    assert hutch("exec", "logs", "-n", "all", sandbox, one).out == "1\n2\n3\n4\n5\n"


def test_logs_say_so_when_nothing_is_kept_any_more(own):
    daemon, hutch = own
    daemon.write_config({"limits": {"output_per_sandbox": "1KiB"}})
    daemon.restart()
    sandbox = daemon.ready()
    ended = [hutch.ok("exec", "-d", sandbox, "head", "-c", "1000", "/dev/zero").strip() for _ in range(2)]
    for one in ended:
        daemon.wait_exec(sandbox, one)
    wait_until(lambda: daemon.get_exec(sandbox, ended[0]).result.stdout.dropped_bytes)
    old, new = (hutch("exec", "logs", sandbox, one) for one in ended)
    assert (old.code, old.out) == (0, "") and "none of its output is kept" in old.err
    assert (len(new.out), new.err) == (1000, "")


def test_logs_follow_to_the_end(hutch, sandbox):
    script = "for i in 1 2 3; do echo $i; sleep 0.2; done"
    one = hutch.ok("exec", "-d", sandbox, "sh", "-c", script).strip()
    assert hutch.ok("exec", "logs", "--follow", sandbox, one) == "1\n2\n3\n"
    assert hutch.ok("exec", "logs", "-f", "--tail", "1", sandbox, one) == "3\n"


def test_logs_that_are_followed_come_at_once(hutch, sandbox):
    one = hutch.ok("exec", "-d", sandbox, "sh", "-c", "echo first; sleep 600").strip()
    following = hutch.start("exec", "logs", "-f", sandbox, one)
    assert following.stdout.readline() == b"first\n"
    following.terminate()
    following.communicate(timeout=LIMIT)
    hutch.ok("exec", "cancel", sandbox, one)


def test_shell_runs_what_it_is_told(hutch, sandbox):
    ended = hutch("shell", sandbox, stdin=b"echo in $0; cd /tmp; pwd; exit 5\n")
    assert (ended.code, ended.out) == (5, "in bash\n/tmp\n")
    ended = hutch("shell", "-e", "A=1", "-w", "/usr", "-u", "0", "-i", "-T", sandbox, stdin=b"echo $A; pwd; id -u\n")
    assert (ended.code, ended.out) == (0, "1\n/usr\n0\n")


def test_a_command_whose_reader_goes_away_ends(hutch, daemon, sandbox):
    command = f"set -o pipefail; {hutch.program} exec {sandbox} -- yes | head -1"
    for _ in range(10):
        ended = subprocess.run(["bash", "-c", command], env=hutch.env, capture_output=True, timeout=LIMIT, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr) == (141, b"y\n", b"")
    wait_until(lambda: daemon.get(sandbox).active_execs == 0)


def test_many_execs_in_one_sandbox_at_once(hutch, sandbox):
    running = [hutch.start("exec", sandbox, "sh", "-c", f"sleep 0.1; echo {n}") for n in range(20)]
    assert [process.communicate(timeout=LIMIT)[0] for process in running] == [f"{n}\n".encode() for n in range(20)]
