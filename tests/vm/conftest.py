# SPDX-License-Identifier: Apache-2.0
"""What these tests share with those of the daemon."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "integration"))
