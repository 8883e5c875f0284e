# SPDX-License-Identifier: Apache-2.0
"""Kills daemons: campaign.py SEED TARGET..., where a target is a failpoint, "NAME:HITS", or "-" for a random moment.

The last line of its output says in JSON what it did. A run with the same words does the same, as far as the clocks of
the processes let it."""

import contextlib
import json
import random
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter

from daemon import LIMIT, Client, KilledDaemon, wait_until
from host import PATIENCE
from load import ACTIONS, Actor, Gone, Watcher
from told import check_history
from hutch.v1 import exec_pb2, sandbox_pb2

RANDOM = "-"
FINISH = "the end"  # of a state folder
ACTORS = 2
LIVES = 25  # of one state folder
WARM = 2  # sandboxes that the daemon keeps ready
# What the load does more often, to come to a failpoint soon.
WAYS = {
    "once": "once",
    "exec": "create exec run cancel",
    "cancel": "create cancel wait",
    "pause": "create wait pause unpause",
    "lost": "create wait kill_keeper",
    "start-failed": "create wait ruin",
    "recover": "create wait exec",
    "clean": "create stop wait kill_keeper",
    "stop": "create wait stop",
    "resume": "create wait stop resume",
    "remove": "create delete",
    "delete": "create delete",
    "update": "create update",
    "idle": "idle",
    "lifetime": "expire",
    "start": "create",
}


class World:
    """A state folder and all that happens there."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.daemon = KilledDaemon()
        self.daemon.write_config({"sandboxes": {"warm": WARM}})
        self.actors = [Actor(self.daemon, f"a{i}", self.random.getrandbits(64)) for i in range(ACTORS)]
        self.watcher = Watcher(self.daemon)
        self.problems: list[str] = []

    def live(self, failpoint: str) -> bool:
        """One life of the daemon. Tells whether it was ended by @failpoint."""
        name = failpoint.split(":")[0]
        if name in SPECIAL:
            return SPECIAL[name](self, failpoint)
        if not self.daemon.start_life(failpoint):
            assert failpoint, "the daemon died by itself"
            return True

        over = threading.Event()
        way = next((way for word, way in WAYS.items() if word in name), " ".join(ACTIONS))
        threads = [self.thread(actor.live, over, way) for actor in self.actors] + [self.thread(self.watcher.live)]
        hit = self.wait_for_end(self.length_of_life(failpoint))
        if not hit and not failpoint and self.random.random() < 0.3:
            self.kill_keepers()
        self.daemon.end_life()
        over.set()
        for thread in threads:
            thread.join(LIMIT)
            assert not thread.is_alive(), "a client hangs"
        assert not self.problems, self.problems[0]
        assert failpoint or not hit, "the daemon died by itself"
        return hit

    def length_of_life(self, failpoint: str) -> float:
        """How long to wait for @failpoint. The load comes to most of them some time."""
        name, _, hits = failpoint.partition(":")
        if not name:
            return self.random.uniform(0, 0.25)
        if "recover" in name:  # when it starts, or not at all
            return 1.2 * PATIENCE
        return 6 * PATIENCE if hits in ("", "1") else 1.2

    # Failpoints that the load cannot come to.

    def live_unclaimed(self, failpoint: str) -> bool:
        """A call of RunCommand is cut off, and nobody repeats it."""
        actor = self.begin_special()
        box = actor.create()
        actor.wait(box, "READY")
        run = actor.add_run(box, "exec sleep 1000")
        run.is_endless = True
        request = exec_pb2.RunCommandRequest(sandbox_id=box.id, request_id=run.token, spec=actor.spec_of(run))
        call = actor.client.execs.RunCommand.future(request)
        run.id = wait_until(lambda: [e.exec_state.exec_id for e in self.watcher.seen if e.HasField("exec_state")])[0]
        self.daemon.end_life()
        assert call.exception(LIMIT), "a killed daemon answered"

        assert self.daemon.start_life(failpoint)
        return self.end_special(60 + 15 * PATIENCE)

    def live_pause_failed(self, failpoint: str) -> bool:
        """The kernel does not freeze a sandbox."""
        actor = self.begin_special(failpoint)
        self.daemon.connect()
        box = actor.create()
        actor.wait(box, "READY")
        freezer = self.daemon.cgroup(box.id) / "box/cgroup.freeze"
        subprocess.run(["mount", "--bind", "/dev/full", freezer], check=True)
        try:
            actor.change(box, "PauseSandbox")
            return self.end_special(10 * PATIENCE)
        finally:
            subprocess.run(["umount", freezer], check=True)

    def live_unknown(self, failpoint: str) -> bool:
        """An exec is durable, and so is that its sandbox is READY, and the daemon dies before it has asked for it."""
        actor = self.begin_special()
        box = actor.create()
        actor.wait(box, "READY")
        self.daemon.end_life()
        assert self.daemon.start_life("control.converge.exec")
        actor.client = Client(self.daemon.socket)
        run_ = actor.make_run(box)
        with contextlib.suppress(Gone):
            actor.ask_again_and_again(lambda: actor.start(box, run_))
        assert self.end_special(10 * PATIENCE), "the exec was not asked for"
        return not self.daemon.start_life(failpoint) or self.end_special(10 * PATIENCE)

    def live_warm(self, failpoint: str) -> bool:
        """After a create without an id there is quiet enough for others to be made ready."""
        actor = self.begin_special(failpoint)
        while actor.create().create.sandbox_id:
            pass
        return self.end_special(10 * PATIENCE)

    def begin_special(self, failpoint: str = "") -> Actor:
        assert self.daemon.start_life(failpoint)
        self.thread(self.watcher.live)
        actor = self.actors[0]
        actor.client = Client(self.daemon.socket)
        return actor

    def end_special(self, limit: float) -> bool:
        hit = self.wait_for_end(limit)
        self.daemon.end_life()
        return hit

    def thread(self, function, *arguments) -> threading.Thread:
        def run() -> None:
            try:
                function(*arguments)
            except BaseException:  # pylint: disable=broad-exception-caught
                self.problems.append(traceback.format_exc())

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def wait_for_end(self, limit: float) -> bool:
        """Tells whether the daemon ended by itself within @limit."""
        end = time.monotonic() + limit
        while self.daemon.process.poll() is None and not self.problems:
            if time.monotonic() > end:
                return False
            time.sleep(0.002)
        return self.daemon.process.poll() is not None

    def kill_keepers(self) -> None:
        """The keepers of some sandboxes die with the daemon."""
        for actor in self.actors:
            box = actor.pick("READY", "PENDING", "PAUSED", "STOPPING")
            if box:
                actor.kill_keeper(box)

    def replay(self) -> list:
        """All events, by a watch from the beginning."""
        client = self.daemon.client()
        last = client.watch().cursor
        request = sandbox_pb2.WatchEventsRequest(after_cursor=0)
        events = []
        if last > 0:
            for step in client.sandboxes.WatchEvents(request, timeout=LIMIT):
                if step.HasField("event"):
                    events.append(step.event)
                    if step.event.cursor >= last:
                        break
        return events

    def finish(self) -> None:
        """Nothing is lost and, when all sandboxes are deleted, nothing is left."""
        self.daemon.write_config({})
        assert self.daemon.start_life()
        self.daemon.connect()
        watching = self.thread(self.watcher.live)
        for actor in self.actors:
            actor.finish()

        boxes = [box for actor in self.actors for box in actor.boxes]
        listed = self.daemon.ids(states=list(range(1, 9)))
        assert sorted(listed) == sorted(box.id for box in boxes), "what is listed is not what was made"
        events = self.replay()
        check_history(events, boxes)
        wait_until(lambda: len(self.watcher.seen) >= len(events), what="the watcher misses events at the end")
        assert self.watcher.seen == events, "a watcher that went on from its cursor saw other events than there are"
        end = time.monotonic() + LIMIT
        while (left := self.daemon.leftovers()) and time.monotonic() < end:
            time.sleep(0.01)
        assert not left, f"everything is deleted, and this is left: {left}"
        self.daemon.end_life()
        watching.join(LIMIT)
        assert not self.problems, self.problems[0]

    @property
    def keepers_killed(self) -> int:
        return sum(actor.keepers_killed for actor in self.actors)


SPECIAL = {
    "control.timer.unclaimed": World.live_unclaimed,
    "control.observe.pause-failed": World.live_pause_failed,
    "control.warm.ready": World.live_warm,
    "control.warm.started": World.live_warm,
    "control.observe.exec-unknown": World.live_unknown,
}


def run(seed: int, targets: list[str]) -> dict:
    """Kills a daemon at each of @targets. Returns what came of it."""
    kills, keepers, hits, reached, failures = 0, 0, Counter(), set(), []
    for number, first in enumerate(range(0, len(targets), LIVES)):
        world = World(seed + number)
        target = ""
        try:
            for target in [*targets[first : first + LIVES], FINISH]:
                if target == FINISH:
                    world.finish()
                elif world.live(target.removeprefix(RANDOM)):
                    hits[target.split(":")[0]] += 1
                kills += 1
        except Exception:  # pylint: disable=broad-exception-caught
            words = " ".join(targets[first : first + LIVES])
            where = f"at {target} of: campaign.py {seed + number} {words}\nlogs in {world.daemon.keep_logs()}"
            failures.append(f"{where}\n{traceback.format_exc()}")
        keepers += world.keepers_killed
        reached |= world.daemon.failpoints_reached()
        world.daemon.wipe()
    return {"kills": kills, "keepers": keepers, "hits": hits, "reached": sorted(reached), "failures": failures}


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), sys.argv[2:])))
