# SPDX-License-Identifier: Apache-2.0
"""An agent's loop: it writes a program, runs it, and mends it when it fails."""

from hutch import SandboxClient, SandboxSpec

ATTEMPTS = ["print(1 / 0)", "print(sum(range(10)))"]  # what a model would write

with SandboxClient() as sandboxes, sandboxes.create(SandboxSpec(labels={"example": "agent"})) as box:
    for attempt in ATTEMPTS:
        box.sandbox.files.write("attempt.py", attempt, overwrite=True)
        result = box.exec("python3", ["attempt.py"], timeout=10)
        if result.ok:
            print("works:", result.stdout.strip())
            break
        print("failed:", result.stderr.strip().splitlines()[-1])
