# SPDX-License-Identifier: Apache-2.0
"""hutch run with pipes: what goes in, what comes out, and how it ends."""

import os
import shutil
import subprocess
import threading

import pytest
from commandline import Hutch
from hutchd import LIMIT, Daemon, wait_until


def test_it_runs_a_command_and_has_its_output_and_exit_code(hutch):
    ended = hutch("run", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (ended.code, ended.out, ended.err) == (7, "out\n", "err\n")


@pytest.mark.parametrize("words", [["run", "--", "echo", "-n", "--help"], ["run", "echo", "-n", "--help"]])
def test_options_after_the_command_are_the_commands(hutch, words):
    assert hutch.ok(*words) == "--help"


def test_a_second_double_dash_is_the_commands(hutch):
    assert hutch.ok("run", "--", "sh", "-c", 'echo "$@"', "sh", "--", "-x") == "-- -x\n"


def test_piped_stdin_comes_through_unchanged(hutch):
    data = os.urandom(300_000)
    assert hutch("run", "cat", stdin=data).bytes == data
    assert hutch("run", "-i", "cat", stdin=b"hi\0\xff\n").bytes == b"hi\0\xff\n"


def test_large_output_comes_through_unchanged(hutch):
    ended = hutch("run", "sh", "-c", "seq 1 400000; seq 1 1000 >&2")
    assert ended.out == "".join(f"{n}\n" for n in range(1, 400001))
    assert ended.err == "".join(f"{n}\n" for n in range(1, 1001))


def test_output_to_a_file_is_whole(hutch, tmp_path):
    with open(tmp_path / "out", "wb") as file:
        assert hutch("run", "seq", "1", "300000", stdout=file).code == 0
    assert (tmp_path / "out").read_text() == "".join(f"{n}\n" for n in range(1, 300001))


@pytest.mark.parametrize("stdin", ["</dev/null", "<&-"])
def test_without_stdin_the_command_has_an_empty_one(hutch, stdin):
    command = f"{hutch.program} run -- sh -c 'cat; echo done' {stdin}"
    ended = subprocess.run(["bash", "-c", command], env=hutch.env, capture_output=True, timeout=LIMIT, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"done\n", b"")


def test_a_command_that_does_not_read_its_input_ends(hutch):
    assert hutch("run", "true", stdin=b"x" * 5_000_000).code == 0


@pytest.mark.parametrize(
    "words, code, err",
    [
        (["no-such-program"], 127, "no-such-program"),
        (["/etc/passwd"], 126, "/etc/passwd"),
        (["sh", "-c", "kill -9 $$"], 137, ""),
        (["sh", "-c", "kill -TERM $$"], 143, ""),
        (["--timeout", "300ms", "sleep", "60"], 124, ""),
        (["--workdir", "/no/such", "true"], 126, ""),
        (["--user", "nobody-there", "true"], 126, ""),
        (["--name", "a b", "true"], 125, "id"),
        (["--profile", "none-such", "true"], 125, "hutch info"),
        (["--runtime", "none-such", "true"], 125, "hutch info"),
        (["--image", "none-such", "true"], 125, "image"),
        (["-v", "/no/such:/x:ro", "true"], 125, "the source '/no/such' does not exist"),
        (["--mount", "type=bind,src=/no/such,dst=/x", "true"], 125, "the source '/no/such' does not exist"),
        (["-v", "./no-such:/x", "true"], 125, "/no-such' does not exist"),
        (["-v", "../no-such:/x", "true"], 125, "/no-such' does not exist"),
        (["-v", "/etc:/x", "true"], 125, "the source '/etc' belongs to root"),
        (["-v", "/proc:/x:ro", "true"], 125, "the source '/proc' is in a file system of the kernel's"),
    ],
)
def test_exit_codes_tell_who_failed(hutch, words, code, err):
    ended = hutch("run", *words)
    assert (ended.code, ended.out) == (code, "")
    assert err in ended.err


def test_a_program_that_is_not_there_is_told_in_one_line(hutch):
    told = hutch("run", "no-such-program").err
    assert told.startswith("hutch: ") and told.count("\n") == 1


def test_options_describe_the_sandbox(hutch, daemon, tmp_path):
    (tmp_path / "env").write_text("# comment\n\nFROM_FILE=1\nHOME_OF_CALLER\n")
    hutch.env["HOME_OF_CALLER"] = "/somewhere"
    hutch.env["MINE"] = "mine"
    options = {
        "--name": "run-options-1",
        "--image": "host",
        "--profile": "permissive",
        "--memory": "64m",
        "--cpus": "0.5",
        "--pids-limit": "50",
        "--disk": "1.5g",
        "--env": "A=b=c",
        "-e": "MINE",
        "-eNOT_THERE": None,
        "--env-file": str(tmp_path / "env"),
        "-w": "/tmp",
        "--user": "0",
        "--cap-add": "CHOWN",
        "--cap-add=CAP_SETUID": None,
        "--label": "app=web",
        "-l": "plain",
        "--idle-ttl": "1h30m",
        "--max-lifetime": "2h",
        "--runtime": "native",
        "--network": "none",
        "--read-only": None,
        "--keep": None,
        "-q": None,
    }
    words = [word for option, value in options.items() for word in (option, value) if word is not None]
    script = 'echo "$A $MINE $FROM_FILE $HOME_OF_CALLER ${NOT_THERE-unset}"; pwd; id -u; touch /x 2>&- || echo ro'
    assert hutch.ok("run", *words, "sh", "-c", script) == "b=c mine 1 /somewhere unset\n/tmp\n0\nro\n"

    spec = hutch.json("get", "run-options-1")["spec"]
    daemon.remove("run-options-1")
    assert spec["labels"] == {"app": "web", "plain": ""}
    assert spec["env"] == {"A": "b=c", "MINE": "mine", "FROM_FILE": "1", "HOME_OF_CALLER": "/somewhere"}
    assert (spec["idle_ttl"], spec["max_lifetime"]) == ("5400s", "7200s")
    assert spec["limits"] == {
        "memory_bytes": 64 << 20,
        "cpu_millis": 500,
        "max_processes": 50,
        "disk_bytes": 3 << 29,
        "no_network": True,
        "read_only_root": True,
    }
    assert (spec["image"], spec["profile"], spec["runtime"]) == ("host", "permissive", "native")
    assert spec["capabilities"] == ["CHOWN", "CAP_SETUID"]


@pytest.mark.parametrize(
    "size, number", [("16777216", 1 << 24), ("32M", 32 << 20), ("32MiB", 32 << 20), ("1gb", 1 << 30)]
)
def test_sizes_are_written_as_people_do(hutch, daemon, size, number):
    sandbox = hutch("create", "-q", "--profile", "permissive", "-m", size).out.strip()
    assert daemon.get(sandbox).spec.limits.memory_bytes == number
    daemon.remove(sandbox)


def test_a_limit_that_is_not_in_force_is_told(hutch, daemon, tmp_path):
    if "io_weight" in daemon.info().runtimes[0].not_enforced:
        spec = tmp_path / "spec.yaml"
        spec.write_text("limits: {io_weight: 200}", encoding="utf-8")
        told = hutch("run", "-f", str(spec), "true").err
        assert told == "hutch: io_weight is not enforced on this host\n"
        assert hutch("run", "-q", "-f", str(spec), "true").err == ""
    told = hutch("run", "--profile", "strict", "--memory", "64g", "true").err
    assert "memory_bytes is 268435456 instead of 68719476736: the profile allows no more" in told


SPEC = """
# what it is made of
image: host
env: {A: from the file, B: "2"}
labels:
  app: web
limits:
  max_open_files: 64
working_directory: /tmp
"""


@pytest.mark.parametrize("form", ["yaml", "json", "stdin"])
def test_a_spec_file_is_read_and_options_come_over_it(hutch, tmp_path, form):
    text = SPEC
    if form == "json":
        text = '{"env": {"A": "x", "B": "2"}, "limits": {"max_open_files": 64}, "workingDirectory": "/tmp"}'
    (tmp_path / "spec").write_text(text)
    file = "-" if form == "stdin" else str(tmp_path / "spec")
    script = "echo $A $B; ulimit -n; pwd"
    ended = hutch("run", "--file", file, "-e", "A=flag", "sh", "-c", script, stdin=text.encode())
    assert (ended.code, ended.out, ended.err) == (0, "flag 2\n64\n/tmp\n", "")


def test_a_wrong_spec_file_is_refused_with_its_line(hutch, tmp_path):
    (tmp_path / "spec").write_text("image: host\nlimits:\n  memory_byts: 5\n")
    told = hutch.refused("run", "--file", str(tmp_path / "spec"), "true", code=2)
    assert "line 3" in told and "memory_byts" in told and "memory_bytes" in told


def test_violations_stand_each_on_its_own_line(hutch):
    told = hutch.refused("run", "-l", "-x=1", "-w", "relative", "--image", "none-such", "true", code=125)
    assert len(told.strip().split("\n")) >= 3
    assert "  spec.working_directory: " in told and "  spec.labels" in told


def test_the_sandbox_is_gone_afterwards(hutch, daemon):
    hutch.ok("run", "--name", "one-shot-1", "--rm", "true")
    daemon.wait("one-shot-1", "DELETED")
    assert hutch("run", "false").code == 1
    assert hutch("run", "no-such-program").code == 127


def test_keep_keeps_it(hutch, daemon):
    ended = hutch("run", "--keep", "sh", "-c", "echo kept >/workspace/file")
    sandbox = ended.err.split()[-1]
    assert ended.err == f"hutch: kept the sandbox {sandbox}\n"
    assert hutch.ok("exec", sandbox, "cat", "/workspace/file") == "kept\n"
    daemon.remove(sandbox)


def test_an_id_is_not_used_twice(hutch, daemon):
    hutch.ok("run", "--name", "one-shot-2", "true")
    daemon.wait("one-shot-2", "DELETED")
    assert "--name" in hutch.refused("run", "--name", "one-shot-2", "true", code=125)


def test_a_reader_that_goes_away_ends_it_quietly(hutch, daemon):
    command = f"set -o pipefail; {hutch.program} run --name pipe-1 -- yes | head -1"
    ended = subprocess.run(["bash", "-c", command], env=hutch.env, capture_output=True, timeout=LIMIT, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (141, b"y\n", b"")
    daemon.wait("pipe-1", "DELETED")


def test_a_full_disk_is_told_and_nothing_is_left(hutch, daemon):
    with open("/dev/full", "wb") as full:
        ended = hutch("run", "--name", "full-1", "echo", "x", stdout=full)
    assert ended.code == 125 and "No space left" in ended.err
    daemon.wait("full-1", "DELETED")


def test_errors_that_nobody_reads_do_no_harm(hutch):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        ended = hutch("run", "sh", "-c", "seq 1 20000 >&2; echo done", stderr=closed)
    assert (ended.code, ended.out) == (0, "done\n")


def test_a_slow_reader_gets_all(hutch):
    process = hutch.start("run", "seq", "1", "200000")
    wait_until(lambda: process.poll() is None)
    read = []
    thread = threading.Thread(target=lambda: read.append(process.stdout.read()))
    threading.Event().wait(0.5)  # the pipe is full by now
    thread.start()
    thread.join(LIMIT)
    assert process.wait(LIMIT) == 0
    assert read[0].decode() == "".join(f"{n}\n" for n in range(1, 200001))
    process.stderr.close()


def test_output_is_whole_where_it_is_written_faster_than_read(hutch):
    """More than the daemon keeps of a command when nobody says anything."""
    command = f"{hutch.program} run -- head -c 200M /dev/zero | (sleep 1; wc -c)"
    ended = subprocess.run(["bash", "-c", command], env=hutch.env, capture_output=True, timeout=LIMIT, check=False)
    assert (ended.stdout.strip(), ended.stderr) == (str(200 << 20).encode(), b"")


def test_output_that_is_lost_is_told_and_is_a_failure():
    daemon = Daemon({"limits": {"exec_output": "64KiB", "max_exec_output": "64KiB"}})
    daemon.begin()
    hutch = Hutch(daemon.socket)
    running = hutch.start("run", "--name", "lost-1", "head", "-c", "20M", "/dev/zero")
    wait_until(lambda: '"EXITED"' in hutch("exec", "list", "-o", "json", "lost-1").out)  # before anybody reads
    out, err = running.communicate(timeout=LIMIT)
    whole = hutch("run", "cat", stdin=b"small")
    daemon.finish()
    lost = (20 << 20) - len(out)
    assert running.returncode == 125 and f"{lost} bytes of its output are lost".encode() in err
    assert (whole.code, whole.out, whole.err) == (0, "small", "")


def test_a_daemon_that_cannot_run_sandboxes_is_told_clearly():
    daemon = Daemon({"native": {"keeper": shutil.which("false")}})
    daemon.begin()
    ended = Hutch(daemon.socket)("run", "true")
    daemon.write_config({})  # so that it can delete again
    daemon.restart()
    daemon.finish()
    assert ended.code == 125 and "the sandbox failed" in ended.err and "hutch doctor" in ended.err
