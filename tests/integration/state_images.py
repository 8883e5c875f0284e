# SPDX-License-Identifier: Apache-2.0
"""Daemons whose state folder is on a file system that is made for them."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hutchd import Daemon


def run_all(commands: list[list]) -> str:
    """Runs @commands up to the first that fails. Returns what that said; "" when none did."""
    for command in commands:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            return f"{command[0]}: {ended.stderr.strip()}"
    return ""


@contextlib.contextmanager
def daemon_on(what: str, try_mount: Callable[[Path, Path], str]) -> Iterator[Daemon]:
    """A daemon on what @try_mount mounts: it is given a file for an image and the state folder, and says what failed.
    Where it fails the test is skipped, for this host has no @what."""
    daemon = Daemon()
    daemon.state.mkdir(mode=0o700)
    mounted = False
    try:
        problem = try_mount(daemon.folder / "image", daemon.state)
        if problem:
            pytest.skip(f"this host has no {what}: {problem}")
        mounted = True
        daemon.state.chmod(0o700)
        daemon.begin()
        yield daemon
        daemon.remove(*daemon.ids())
        daemon.stop_daemon()
    finally:
        if daemon.process:
            daemon.kill()
        daemon.kill_keepers()
        if mounted:
            subprocess.run(["umount", "-l", daemon.state], check=True)
        daemon.wipe()
