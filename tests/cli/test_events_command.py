# SPDX-License-Identifier: Apache-2.0
"""hutch events: what has happened, and what happens."""

import contextlib
import json
import select
import socket
import threading
import time

import yaml
from commandline import Hutch
from hutchd import LIMIT


def test_what_happened_is_printed_and_it_ends(hutch, daemon, sandbox):
    hutch.ok("exec", sandbox, "true")
    expected = [event.cursor for event in daemon.history(sandbox)]
    told = hutch.json("events", sandbox)
    assert [int(event["cursor"]) for event in told] == expected
    assert [int(event["sequence"]) for event in told] == list(range(1, len(expected) + 1))
    assert hutch.yaml("events", sandbox) == told
    lines = hutch.ok("events", sandbox).strip().split("\n")
    assert [int(line.split()[0]) for line in lines] == expected
    assert "SANDBOX_CREATED" in lines[0] and "(new) -> PENDING" in lines[0] and sandbox in lines[0]
    assert "PENDING -> READY" in lines[1]


def test_since_a_cursor_and_since_a_while(hutch, daemon, sandbox):
    cursors = [event.cursor for event in daemon.history(sandbox)]
    told = hutch.json("events", sandbox, "--since", str(cursors[0]))
    assert [int(event["cursor"]) for event in told] == cursors[1:]
    assert [int(event["cursor"]) for event in hutch.json("events", sandbox, "--since", "1h")] == cursors
    assert hutch.json("events", sandbox, "--since", "0s") == []
    assert hutch.refused("events", "--since", "99999999999")


def test_by_type_and_by_selector(hutch, daemon):
    sandbox = daemon.ready(labels={"events": "selected"})
    told = hutch.json("events", "--selector", "events=selected", "--type", "sandbox_state_changed")
    assert [event["sandbox_state"]["to_state"] for event in told] == ["READY"]
    kinds = ["--type", "SANDBOX_CREATED", "--type", "SANDBOX_STATE_CHANGED"]
    assert len(hutch.json("events", "-l", "events=selected", *kinds)) == 2
    daemon.remove(sandbox)


def test_history_is_read_whole_however_slowly_it_comes(hutch, daemon, sandbox, tmp_path):
    """The last events are another sandbox's; those that are asked for come in two parts."""
    for number in range(10):
        daemon.update(sandbox, "labels", labels={"number": str(number)})
    daemon.remove(daemon.ready())
    expected = [event.cursor for event in daemon.history(sandbox)]
    with SlowSocket(tmp_path / "slow.sock", daemon.socket, sandbox.encode()) as slow:
        told = Hutch(slow.path).json("events", sandbox)
    assert slow.stalled
    assert [int(event["cursor"]) for event in told] == expected


class SlowSocket:
    """Carries a connection to a daemon, and makes a pause in the middle of what is answered to @word."""

    PAUSE = 2.5  # seconds

    def __init__(self, path, target, word: bytes):
        self.path, self.target, self.word = path, target, word
        self.asked = self.stalled = False
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()

    def __enter__(self) -> "SlowSocket":
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def serve(self) -> None:
        with contextlib.suppress(OSError):  # it was shut down
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.carry, args=[client], daemon=True).start()

    def carry(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(self.target))
        with client, server, contextlib.suppress(OSError):
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for end in ready:
                    data = end.recv(1 << 20)
                    if not data:
                        return
                    self.pass_on(data, server if end is client else client, end is server)

    def pass_on(self, data: bytes, to: socket.socket, is_answer: bool) -> None:
        self.asked = self.asked or (not is_answer and self.word in data)
        if is_answer and self.asked and not self.stalled and self.word in data:
            self.stalled = True
            to.sendall(data[: len(data) // 2])
            time.sleep(self.PAUSE)
            data = data[len(data) // 2 :]
        to.sendall(data)


def test_of_all_sandboxes(hutch, sandbox):
    told = hutch.json("events", "--since", "1h")
    assert sandbox in {event["sandbox_id"] for event in told}


def test_followed_events_are_lines_of_json(hutch, daemon, sandbox):
    following = hutch.start("events", sandbox, "--follow", "--since", "0", "-o", "json")
    first = json.loads(following.stdout.readline())
    assert (first["type"], first["sandbox_id"]) == ("SANDBOX_CREATED", sandbox)
    assert json.loads(following.stdout.readline())["sandbox_state"]["to_state"] == "READY"
    daemon.stop(sandbox)
    assert json.loads(following.stdout.readline())["sandbox_state"]["to_state"] == "STOPPING"
    following.terminate()
    following.communicate(timeout=LIMIT)


def test_followed_events_are_documents_of_yaml(hutch, sandbox):
    following = hutch.start("events", sandbox, "-f", "--since", "0", "-o", "yaml")
    text = b""
    while text.count(b"---\n") < 2:
        text += following.stdout.readline()
    assert yaml.safe_load(text.split(b"---\n")[1])["type"] == "SANDBOX_CREATED"
    following.terminate()
    following.communicate(timeout=LIMIT)


def test_following_begins_now_and_outlives_the_daemon(own):
    daemon, hutch = own
    daemon.remove(daemon.ready())
    following = hutch.start("events", "--follow", "-o", "json")
    sandboxes = [daemon.create().id]
    while not select.select([following.stdout], [], [], 0.2)[0]:  # the watch may not have begun before
        sandboxes.append(daemon.create().id)
        assert len(sandboxes) < 100
    first = json.loads(following.stdout.readline())
    assert first["sandbox_id"] in sandboxes
    daemon.restart(kill=True)
    late = daemon.create().id
    seen = [first]
    while seen[-1]["sandbox_id"] != late:
        seen.append(json.loads(following.stdout.readline()))
    cursors = [int(event["cursor"]) for event in seen]
    assert cursors == sorted(set(cursors))
    following.terminate()
    following.communicate(timeout=LIMIT)


def test_a_reader_that_goes_away_ends_it(hutch, sandbox):
    following = hutch.start("events", sandbox, "-f", "--since", "0")
    following.stdout.readline()
    following.stdout.close()
    hutch.ok("stop", sandbox)
    assert following.wait(LIMIT) == -13
    assert following.stderr.read() == b""
    following.stderr.close()
