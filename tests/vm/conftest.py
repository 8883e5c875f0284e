# SPDX-License-Identifier: Apache-2.0
"""What these tests share with those of the daemon."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "integration"))

from places import HAS_SYSTEMD  # noqa: E402  pylint: disable=wrong-import-position

collect_ignore = ["test_in_the_way.py" if HAS_SYSTEMD else "test_systemd.py"]
