# SPDX-License-Identifier: Apache-2.0
"""What the tests of this folder take part in."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

# pylint: disable=wrong-import-position,unused-import
from conformance import pytest_configure, pytest_runtest_makereport  # noqa: E402,F401
from host import _host_makes_sandboxes  # noqa: E402,F401
from sanitizers import (  # noqa: E402,F401
    _nothing_for_the_sanitizers,
    _nothing_for_the_sanitizers_at_the_end,
)
