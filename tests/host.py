# SPDX-License-Identifier: Apache-2.0
"""What a host must have for the suites that make sandboxes: keeper, integration and crash; and how fast it is."""

import os
import subprocess
from pathlib import Path

import pytest

# How often as long as on an idle host everything may take: others work here too, and an emulated machine is slow.
PATIENCE = float(os.environ.get("HUTCH_TEST_PATIENCE", "3"))


def missing() -> str:
    """Why this host cannot make sandboxes; "" when it can."""
    if os.geteuid() != 0:
        return "not root"
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    trees = [left.split()[4] for left, right in (line.split(" - ") for line in mounts) if right.startswith("cgroup2 ")]
    if not trees or not os.access(trees[0], os.W_OK):
        return "no cgroup v2 tree that can be written to"
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount", "true"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"no user namespaces: {tried.stderr.strip()}" if tried.returncode else ""


@pytest.fixture(scope="session", autouse=True)
def _host_makes_sandboxes():
    """Skips every test of a suite where it cannot run."""
    if reason := missing():
        pytest.skip(f"THIS HOST CANNOT MAKE SANDBOXES, and nothing of this suite was tested: {reason}")
