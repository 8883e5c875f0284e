# SPDX-License-Identifier: Apache-2.0
"""The host's programs are in memory once, but nobody inside sees who else uses them or keeps others from it: sandboxes
have inodes of their own."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from hutch.v1 import error_pb2
from hutchd import Daemon, refused, wait_until

PYTHON = "/usr/bin/python3"
FILES = ("/usr/bin/env", "/etc/ld.so.cache")
FOLDERS = ("/usr", "/opt", "/etc/ssl/certs", "/etc/alternatives", "/etc/ld.so.conf.d")

# Says that it is ready, and goes on when it is told to.
WAIT = """
import os, sys, time
folder = sys.argv[1]
def wait():
    open(folder + "/ready", "w").close()
    while not os.path.exists(folder + "/go"):
        time.sleep(0.01)
"""

# Tells which programs others open meanwhile. One it opens itself, which is seen everywhere.
WATCH = (
    WAIT
    + """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
watch = libc.inotify_init1(0o4000)
assert libc.inotify_add_watch(watch, b"/usr/bin", 0x20) >= 0, os.strerror(ctypes.get_errno())
wait()
open("/usr/bin/id", "rb").close()
seen, data = set(), os.read(watch, 1 << 20)
while data:
    length = struct.unpack_from("iIII", data)[3]
    seen.add(data[16 : 16 + length].rstrip(bytes(1)).decode())
    data = data[16 + length :]
print(*sorted(seen))
"""
)

# Tells which of the files and folders cannot be locked, and keeps the locks.
LOCK = """
import fcntl, json, os, sys
files = [os.open(path, os.O_RDONLY) for path in json.loads(sys.argv[2])]
taken = []
for path, file in zip(json.loads(sys.argv[2]), files):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        taken.append(path)
print(json.dumps(taken))
"""
HOLD = WAIT + LOCK + "wait()\n"


def paths() -> list[str]:
    """What there is of it. Of folders something in them as well."""
    found = [path for path in (*FILES, *FOLDERS) if os.path.exists(path)]
    full = [path for path in found if os.path.isdir(path) and os.listdir(path)]
    inside = [min(entry.path for entry in os.scandir(path)) for path in full]
    return found + [path for path in inside if os.path.isfile(path) or os.path.isdir(path)]


class Waiting:
    """A program that waits: of the host, or of a sandbox."""

    def __init__(self, folder, daemon, sandbox, program, *arguments):
        self.daemon, self.sandbox, self.folder = daemon, sandbox, Path(folder)
        command = [PYTHON, "-c", program, folder, *arguments]
        if sandbox:
            daemon.shell(sandbox, f"rm -f {folder}/ready {folder}/go")
            self.id = daemon.start(sandbox, *command).id
        else:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        wait_until(self.is_ready)

    def is_ready(self) -> bool:
        if not self.sandbox:
            return (self.folder / "ready").exists()
        return self.daemon.run(self.sandbox, "test", "-e", f"{self.folder}/ready").exec.result.exit_code == 0

    def finish(self) -> str:
        """What it has told."""
        if self.sandbox:
            self.daemon.shell(self.sandbox, f"touch {self.folder}/go")
            self.daemon.wait_exec(self.sandbox, self.id, "EXITED")
            output = self.daemon.sandbox_folder(self.sandbox) / f"{self.id}.out"
            return output.read_text(encoding="utf-8") if output.exists() else ""
        (self.folder / "go").touch()
        return self.process.communicate()[0]


@pytest.fixture(name="other")
def make_other_sandbox(daemon):
    other = daemon.ready(profile="strict")
    yield other
    daemon.remove(other)


def watch(daemon, sandbox, other, folder) -> set[str]:
    watching = Waiting(folder, daemon, sandbox, WATCH)
    with open("/usr/bin/yes", "rb"):
        daemon.run(other, "/usr/bin/tac", "/dev/null")
    return set(watching.finish().split())


def test_programs_that_others_start_are_not_seen(daemon, sandbox, other):
    seen = watch(daemon, sandbox, other, "/workspace")
    assert "id" in seen and not seen & {"yes", "tac"}, seen
    assert not watch(daemon, other, sandbox, "/workspace") & {"yes", "tac"}


def test_they_are_seen_without_the_wall(daemon, other, tmp_path):
    """The host sees all of it."""
    assert watch(daemon, None, other, str(tmp_path)) >= {"id", "yes", "tac"}


def test_locks_inside_keep_nobody_else_from_a_file(daemon, sandbox, other, tmp_path):
    wanted = json.dumps(paths())
    holding = Waiting("/workspace", daemon, sandbox, HOLD, wanted)
    others = daemon.run(other, PYTHON, "-c", LOCK, "", wanted).stdout.decode()
    hosts = subprocess.run([PYTHON, "-c", LOCK, "", wanted], capture_output=True, text=True, check=True).stdout
    assert (holding.finish(), others, hosts) == ("[]\n", "[]\n", "[]\n")

    holding = Waiting(str(tmp_path), daemon, None, HOLD, wanted)
    within = daemon.run(sandbox, PYTHON, "-c", LOCK, "", wanted).stdout.decode()
    hosts = subprocess.run([PYTHON, "-c", LOCK, "", wanted], capture_output=True, text=True, check=True).stdout
    assert (holding.finish(), within) == ("[]\n", "[]\n")
    assert json.loads(hosts) == paths()  # without the wall


def test_what_is_in_files_is_in_memory_once(daemon, sandbox):
    """The sandbox has one such process, this is the other one: what is shared is shared with the host."""
    waiting = Waiting("/workspace", daemon, sandbox, WAIT + "wait()\n")
    processes = [int(pid) for pid in os.listdir("/proc") if pid.isdigit()]
    maps = [Path(f"/proc/{pid}/cmdline") for pid in processes]
    scripts = [file.parent for file in maps if file.exists() and b"\0-c\0" in file.read_bytes()]
    ours = [folder for folder in scripts if is_of(folder, WAIT)]
    assert len(ours) == 1, ours
    text = (ours[0] / "smaps").read_text(encoding="utf-8")
    library = re.search(r"r-xp [^\n]*libc[.-][^\n]*\n(.*?)VmFlags", text, re.DOTALL)[1]
    waiting.finish()
    assert int(re.search(r"Shared_Clean: +(\d+)", library)[1]) > 0, library
    assert int(re.search(r"Private_Clean: +(\d+)", library)[1]) == 0, library


def is_of(process: Path, program: str) -> bool:
    return program.encode() in (process / "cmdline").read_bytes()


def test_the_daemon_says_so(daemon):
    assert "private-files" in daemon.info().runtimes[0].features


# ---- Where it cannot be had ----

MOUNTED = "/usr/games"  # something below one of the folders with programs


def apart(script: str) -> tuple:
    """Has the daemon see other mounts."""
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", script + ' && exec "$@"', "sh")


@pytest.fixture(name="apart_daemon")
def make_apart_daemon():
    daemon = Daemon()
    yield daemon
    daemon.finish()


def test_strict_is_refused_where_it_cannot_be_had(apart_daemon):
    daemon = apart_daemon.begin(wrapper=apart(f"mount -t tmpfs none {MOUNTED} && touch {MOUNTED}/seen"))
    assert "private-files" not in daemon.info().runtimes[0].features
    assert "sandboxes share inodes with the host" in daemon.log()
    with refused("FEATURE_UNSUPPORTED"):
        daemon.create(profile="strict")
    # Others have what is mounted there, too.
    sandbox = daemon.ready()
    assert daemon.shell(sandbox, f"ls {MOUNTED}") == "seen\n"
    log = (daemon.sandbox_folder(sandbox) / "keeper.log").read_text(encoding="utf-8")
    assert log.count("files of the host are shared") == 1


def test_strict_does_not_start_where_it_cannot_be_had_any_more(apart_daemon):
    daemon = apart_daemon.begin(wrapper=apart("true"))
    inside = ["nsenter", "-t", str(daemon.process.pid), "-m"]
    subprocess.run([*inside, "mount", "-t", "tmpfs", "none", MOUNTED], check=True)
    failed = daemon.wait(daemon.create(profile="strict").id, "FAILED")
    assert failed.state_reason == error_pb2.REASON_RUNTIME_UNAVAILABLE, failed
    assert "/usr" in failed.state_message
    daemon.ready()
