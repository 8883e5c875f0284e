# SPDX-License-Identifier: Apache-2.0
"""The daemon is killed at every failpoint and at random moments; nothing that was answered is lost, nothing is left.

HUTCH_CRASH_KILLS says how often, HUTCH_CRASH_SEED makes a run like an earlier one. A run with fewer kills than usual
leaves out some failpoints, and those that take long to reach."""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from campaign import RANDOM, SPECIAL
from daemon import all_failpoints
from host import PATIENCE

FULL = 500
KILLS = int(os.environ.get("HUTCH_CRASH_KILLS", FULL))
SEED = int(os.environ.get("HUTCH_CRASH_SEED", random.randrange(1 << 32)))
WORKERS = 4
HITS = (1, 2, 3)  # a failpoint kills when it is reached for the first, second and third time
TIMEOUT = (150 + KILLS) * PATIENCE  # seconds
# Nothing gets there yet: no limit is enforced that a keeper tells of.
UNREACHABLE = {"control.observe.limit-hit"}
FAILPOINTS = [name for name in all_failpoints() if name not in UNREACHABLE]


def make_plan() -> list[str]:
    """Where to kill, in an order that the seed gives."""
    chance = random.Random(SEED)
    plan = []
    for name in FAILPOINTS:
        once = name.startswith("control.recover.") or name == "control.timer.purge"  # in one life
        if name not in SPECIAL:
            plan += [f"{name}:{hits}" for hits in HITS[: 1 if once else None]] + 2 * [name]
    plan += [RANDOM] * (KILLS - len(plan))
    chance.shuffle(plan)
    return plan if KILLS >= FULL else plan[:KILLS]


def run_worker(seed: int, targets: list[str]) -> dict:
    command = [sys.executable, Path(__file__).with_name("campaign.py"), str(seed), *targets]
    worker = subprocess.run(command, stdout=subprocess.PIPE, timeout=TIMEOUT, check=True)
    return json.loads(worker.stdout.splitlines()[-1])


@pytest.fixture(scope="session", name="campaign")
def run_campaign() -> dict:
    plan = make_plan()
    share = -(-len(plan) // WORKERS)
    jobs = [plan[start : start + share] for start in range(0, len(plan), share)]
    jobs += [[name] for name in SPECIAL if KILLS >= FULL]
    with ThreadPoolExecutor(len(jobs)) as pool:
        results = list(pool.map(run_worker, [SEED + 1000000 * i for i in range(len(jobs))], jobs))
    whole = {
        "kills": sum(result["kills"] for result in results),
        "keepers": sum(result["keepers"] for result in results),
        "hits": sum((Counter(result["hits"]) for result in results), Counter()),
        "reached": {name for result in results for name in result["reached"]},
        "failures": [failure for result in results for failure in result["failures"]],
    }
    print(f"\nseed {SEED}: {whole['kills']} daemons killed, {whole['hits'].total()} of them at failpoints,")
    print(f"and {whole['keepers']} keepers; {len(whole['reached'])} failpoints reached")
    return whole


@pytest.mark.rules("EVENT-001", "EVENT-002", "EVENT-003", "EXEC-012")
def test_nothing_that_was_answered_is_lost_and_nothing_is_left(campaign):
    failures = campaign["failures"]
    assert not failures, "\n".join([f"HUTCH_CRASH_SEED={SEED}: {len(failures)} failures", *failures])


def test_the_daemon_was_killed_often_enough(campaign):
    print(f"{campaign['kills']} kills")
    assert campaign["kills"] >= KILLS
    assert campaign["keepers"] >= KILLS // 10


@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_the_daemon_was_killed_at(campaign, failpoint):
    assert campaign["hits"][failpoint] > 0, f"seed {SEED}: the load did not come to {failpoint}"


@pytest.mark.parametrize("failpoint", sorted(UNREACHABLE))
def test_the_daemon_does_not_come_to(campaign, failpoint):
    assert failpoint not in campaign["reached"], f"{failpoint} is reached: it is to be killed there, too"
