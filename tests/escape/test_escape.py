# SPDX-License-Identifier: Apache-2.0
"""Hostile programs fail inside a sandbox, most as its root, and succeed where the wall is missing that they ran into:
else they would show nothing."""

import contextlib
import ctypes
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from attacks import CALLS, FILES, PRELUDE, PROCESSES, Attack
from host import PATIENCE

LIMIT = 30 * PATIENCE  # seconds
PYTHON = "/usr/bin/python3"
IPC_CREAT, IPC_RMID = 0o1000, 0
ATTACKS = CALLS + FILES + PROCESSES


@contextlib.contextmanager
def shared_memory(key: int):
    libc = ctypes.CDLL(None, use_errno=True)
    block = libc.shmget(key, 4096, IPC_CREAT | 0o666)
    assert block >= 0
    yield
    libc.shmctl(block, IPC_RMID, None)


@pytest.fixture(scope="module", name="host")
def make_host():
    """What an attacker might have learned, and things that are there to be got at."""
    name = f"hutch-escape-{os.getpid()}"
    with (
        socket.socket(socket.AF_UNIX) as abstract,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        shared_memory(os.getpid()),
        subprocess.Popen(["sleep", "3600"]) as process,
    ):
        abstract.bind(f"\0{name}")
        abstract.listen()
        try:
            yield {
                "abstract": name,
                "port": tcp.getsockname()[1],
                "pid": process.pid,
                "shm_key": os.getpid(),
                "name": socket.gethostname(),
                "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"),
                "machine_id": Path("/etc/machine-id").read_text(encoding="ascii"),
            }
        finally:
            process.kill()


def run_without(attack: Attack, host: dict) -> tuple[int, str]:
    """Runs it outside. A descriptor is left open for it, and a variable set."""
    left_open = os.open("/", os.O_PATH)
    try:
        ran = subprocess.run(
            [*attack.without, PYTHON, "-c", PRELUDE + attack.program, json.dumps(host)],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
            pass_fds=[left_open],
            env={"PATH": os.environ["PATH"], "SECRET_OF_THE_DAEMON": "1"},
        )
    finally:
        os.close(left_open)
    return ran.returncode, ran.stdout + ran.stderr


def is_refused_to_all(attack: Attack, text: str) -> bool:
    """Whether the kernel does not have it or, as Debian's does with counters, gives it to root only."""
    missing = text.startswith(("ENOSYS\n", "EPROTONOSUPPORT\n"))
    return missing or text.startswith("EACCES\n") and attack.name == "a counter of the processor"


def assert_fails(daemon, sandbox, user, host, attack):
    ran = daemon.run(sandbox, PYTHON, "-c", PRELUDE + attack.program, json.dumps(host), user=user)
    told = ran.stdout.decode()
    assert ran.exec.result.exit_code == 1, f"{told}\n{ran.stderr.decode()}"
    assert told.strip() in attack.inside.split() + [attack.inside], ran.stderr.decode()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_it_fails_inside_and_succeeds_without_the_wall(daemon, sandbox, host, attack):
    user = attack.user if daemon.has_users else "agent"  # who is the only one
    assert_fails(daemon, sandbox, user, host, attack)
    status, text = run_without(attack, host)
    if is_refused_to_all(attack, text):
        pytest.skip("this kernel does not have what is asked of it: the attack shows nothing here")
    assert status == 0, text


@pytest.mark.parametrize("daemon", ["root's", "a user's with subordinate ids"], indirect=True)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_it_fails_with_every_capability_that_can_be_had(daemon, capable, host, attack):
    assert_fails(daemon, capable, "root", host, attack)


def test_no_attack_is_there_twice():
    assert len({attack.program for attack in ATTACKS}) == len({attack.name for attack in ATTACKS}) == len(ATTACKS)
