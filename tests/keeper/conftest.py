# SPDX-License-Identifier: Apache-2.0
"""Keepers for the tests."""

import contextlib
import itertools
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from keeper import Keeper, cgroup_mount, make_stubs

sys.path.append(str(Path(__file__).resolve().parents[1]))

# pylint: disable=wrong-import-position,unused-import
from host import _host_makes_sandboxes  # noqa: E402,F401
from sanitizers import (  # noqa: E402,F401
    _nothing_for_the_sanitizers,
    _nothing_for_the_sanitizers_at_the_end,
)

NUMBERS = itertools.count()


@pytest.fixture(scope="session", name="stubs", autouse=True)
def _stubs(tmp_path_factory):
    make_stubs(tmp_path_factory.mktemp("stubs"))


@pytest.fixture(scope="session", name="cgroups")
def make_cgroups():
    """A folder of the cgroup tree for this session."""
    folder = cgroup_mount() / f"hutch-test-keeper-{os.getpid()}"
    folder.mkdir()
    yield folder
    folder.rmdir()


@contextlib.contextmanager
def make_folder():
    """One that other users can reach as well. Those of pytest are closed to them whenever another run of it begins."""
    folder = Path(tempfile.mkdtemp(prefix="hutch-test-keeper-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start_keepers(folder, cgroups):
    keepers = []

    def start(config: dict | None = None, user: int | None = None) -> Keeper:
        number = next(NUMBERS)
        name = f"sandbox-{number}"
        keepers.append(Keeper(folder / "sandboxes" / name, cgroups / name, config or {}, user))
        return keepers[-1]

    yield start
    for keeper in keepers:
        if keeper.process.poll() is None:
            keeper.kill()
        elif keeper.cgroup.exists():
            keeper.clean()


@pytest.fixture(name="start_keeper")
def make_start_keeper(cgroups):
    """Starts keepers that end with the test."""
    with make_folder() as folder:
        yield from start_keepers(folder, cgroups)


@pytest.fixture(scope="module", name="keeper")
def start_shared_keeper(cgroups):
    """A keeper for all tests of a file, which must have nothing running at their end."""
    with make_folder() as folder:
        starting = start_keepers(folder, cgroups)
        shared = next(starting)()
        try:
            yield shared
            assert [one for one in shared.describe().execs if not one.HasField("end")] == []
        finally:
            next(starting, None)


@pytest.fixture(name="user")
def become_a_user():
    """Who asks, once they have been asked to become a user."""
    yield lambda uid: (os.setegid(uid), os.seteuid(uid))
    os.seteuid(0)
    os.setegid(0)
