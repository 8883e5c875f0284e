# SPDX-License-Identifier: Apache-2.0
"""hutch top: what sandboxes use, in pipes and on a terminal."""

import json
import os
import re
import signal

import pytest
import yaml
from commandline import Hutch
from hutch.v1 import sandbox_pb2
from hutchd import LIMIT, MIB, wait_until

ENTER, LEAVE, CLEAR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[H\x1b[J"
COLUMNS = ["SANDBOX", "STATE", "CPU", "MEMORY / LIMIT", "PROCS / LIMIT", "DISK / LIMIT", "EXECS", "AGE"]
HOG = "x = bytearray(30 << 20)\nwhile True: pass"


def rows(text: str) -> dict[str, list[str]]:
    """A table by the ids of its sandboxes."""
    header, *lines = (re.split(r" {2,}", line.rstrip()) for line in text.splitlines())
    assert header == COLUMNS
    assert all(len(line) == len(COLUMNS) for line in lines)
    return {line[0]: line[1:] for line in lines}


@pytest.fixture(scope="module", name="pair")
def make_pair(daemon):
    """A sandbox that is busy with 30 MiB and one that is not, which is older."""
    idle = daemon.ready("top-a-idle", limits={"memory_bytes": 64 * MIB})
    busy = daemon.ready("top-b-busy", limits={"memory_bytes": 128 * MIB, "max_processes": 20, "cpu_millis": 300})
    daemon.start(busy, "python3", "-c", HOG)
    measure = sandbox_pb2.GetSandboxRequest(sandbox_id=busy, include_usage=True)
    wait_until(lambda: daemon.sandboxes.GetSandbox(measure).sandbox.usage.memory_bytes > 30 * MIB)
    yield idle, busy
    daemon.remove(idle, busy)


def test_without_a_terminal_it_is_a_table_once(hutch, pair):
    idle, busy = pair

    def has_its_share(table: dict[str, list[str]]) -> bool:
        return 10 < float(table[busy][1].rstrip("%")) < 50  # of 30, when the host has that for it

    table = wait_until(lambda: next(filter(has_its_share, [rows(hutch.ok("top"))]), None))
    assert list(table)[0] == busy  # by CPU
    state, _, memory, processes, disk, execs, age = table[busy]
    assert (state, execs) == ("READY", "1")
    used, unit, _, limit = memory.split(" ", 3)
    assert 30 <= float(used) < 60 and (unit, limit) == ("MiB", "128 MiB")
    assert processes == "1 / 20"
    assert re.fullmatch(r"(-|[\d.]+ \w+) / (-|[\d.]+ \w+)", disk)
    assert re.fullmatch(r"\d+[sm]", age)
    # That somebody asks may have its files measured, which is its own time.
    assert table[idle][0] == "READY" and float(table[idle][1].rstrip("%")) < 1 and table[idle][5] == "0"
    assert rows(hutch.ok("top", "--once")).keys() == table.keys()


def test_named_ones_only(hutch, pair):
    idle, busy = pair
    assert list(rows(hutch.ok("top", idle))) == [idle]
    assert set(rows(hutch.ok("top", busy, idle))) == {idle, busy}
    assert "no-such-box" in hutch.refused("top", idle, "no-such-box")


@pytest.mark.parametrize("key", ["cpu", "memory", "processes", "execs"])
def test_what_has_most_comes_first(hutch, pair, key):
    assert list(rows(hutch.ok("top", "--sort", key, *pair))) == [*reversed(pair)]


@pytest.mark.parametrize("key", ["age", "id", "state", "disk"])
def test_names_come_in_order_and_the_oldest_first(hutch, pair, key):
    assert list(rows(hutch.ok("top", "--sort", key, *reversed(pair)))) == [*pair]


def test_sandboxes_that_do_not_run_use_nothing(hutch, daemon):
    sandbox = daemon.ready("top-stopped")
    daemon.stop(sandbox, grace=0)
    daemon.wait(sandbox, "STOPPED")
    state, cpu, memory, processes, *_ = rows(hutch.ok("top", sandbox))[sandbox]
    assert (state, cpu, memory[0], processes[0]) == ("STOPPED", "-", "-", "-")
    assert rows(hutch.ok("top"))[sandbox][0] == "STOPPED"
    daemon.remove(sandbox)


def test_programs_get_the_messages(hutch, pair):
    told = {one["id"]: one for one in hutch.json("top", "--sort", "id")}
    assert int(told[pair[1]]["usage"]["memory_bytes"]) > 30 * MIB
    assert told[pair[1]]["effective"]["limits"]["max_processes"] == 20
    [one] = hutch.yaml("top", pair[0])
    assert one["id"] == pair[0] and "measure_time" in one["usage"]


def test_several_times(hutch, pair):
    tables = hutch.ok("top", "-n", "3", "--interval", "50ms", pair[0])
    assert tables.count("SANDBOX") == tables.count(pair[0]) == 3
    documents = list(yaml.safe_load_all(hutch.ok("top", "-n2", "-d50ms", "-o", "yaml", pair[0])))
    assert [[one["id"] for one in document] for document in documents] == [[pair[0]]] * 2
    text = hutch.ok("top", "-n2", "-d50ms", "-o", "json", pair[0])
    first, end = json.JSONDecoder().raw_decode(text)
    assert first[0]["id"] == json.loads(text[end:])[0]["id"] == pair[0]


def test_wrong_options_are_told(hutch):
    assert "number from 1" in hutch.refused("top", "-n", "0", code=2)
    assert "number from 1" in hutch.refused("top", "-n", "two", code=2)
    assert "exclude" in hutch.refused("top", "-n", "2", "--once", code=2)
    assert "interval" in hutch.refused("top", "--interval", "soon", code=2)
    assert "sort" in hutch.refused("top", "--sort", "colour", code=2)


def test_no_sandboxes_are_an_empty_table(own):
    _, hutch = own
    assert rows(hutch.ok("top")) == {}
    assert hutch.json("top") == []


def test_many_sandboxes_are_measured_at_once(own):
    """More than are asked for at a time; the daemon keeps nothing of the questions."""
    daemon, hutch = own
    made = [daemon.create(f"top-many-{i}").id for i in range(70)]
    for one in made:
        daemon.wait(one, "READY")
    hutch.ok("top", "-n", "20", "-d", "1ms")
    before = daemon.memory()
    table = rows(hutch.ok("top", "-n", "20", "-d", "1ms", "--sort", "id").split("SANDBOX")[-1].join(["SANDBOX", ""]))
    assert list(table) == sorted(made)
    assert all(row[1].endswith("%") and row[2][0] != "-" for row in table.values())
    assert daemon.memory() < before + MIB


# ---- On a terminal ----


def screens(seen: str) -> list[list[str]]:
    """What was on the screen, without colours, one after the other."""
    plain = re.sub(r"\x1b\[\d*m", "", seen)
    return [screen.rstrip("\r\n").split("\r\n") for screen in plain.split(CLEAR)[1:]]


def test_it_refreshes_until_q_and_leaves_the_screen_as_it_was(hutch, pair):
    with hutch.terminal("top", "--interval", "100ms") as terminal:
        terminal.expect(re.escape(ENTER))
        for _ in range(3):
            terminal.expect(re.escape(CLEAR))
            terminal.expect(pair[1])
        assert not terminal.is_restored()
        terminal.type("x")
        terminal.expect(re.escape(CLEAR))
        terminal.type("q")
        assert terminal.ended() == 0
        assert terminal.is_restored()
        assert terminal.seen.endswith("\x1b[?25h" + LEAVE)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_it_and_the_terminal_is_restored(hutch, pair, number, code):
    with hutch.terminal("top") as terminal:
        terminal.expect(pair[1])
        if number == signal.SIGINT:
            terminal.type("\x03")
        else:
            terminal.process.send_signal(number)
        assert terminal.ended() == code
        assert terminal.is_restored()
        assert terminal.seen.endswith(LEAVE)


def test_so_many_times_on_a_terminal(hutch, pair):
    with hutch.terminal("top", "-n", "2", "-d", "50ms", *pair, columns=120) as terminal:
        assert terminal.ended() == 0
        shown = screens(terminal.seen.removesuffix("\x1b[?25h" + LEAVE))
        assert len(shown) == 2
        assert shown[0][0] == "2 sandboxes, 2 shown, by cpu, every 0.05 s; q: end"
        assert set(rows("\n".join(shown[0][1:]))) == set(pair)


def test_once_on_a_terminal_is_plain_and_stays(hutch, pair):
    with hutch.terminal("top", "--once", *pair, columns=200) as terminal:
        assert terminal.ended() == 0
        assert ENTER not in terminal.seen and "\x1b[32mREADY\x1b[0m" in terminal.seen
        assert set(rows(re.sub(r"\x1b\[\d*m", "", terminal.seen).replace("\r", ""))) == set(pair)


def test_a_narrow_and_low_terminal_cuts(hutch, pair):
    with hutch.terminal("top", "-n", "1", "--sort", "id", rows=3, columns=25) as terminal:
        assert terminal.ended() == 0
        [shown] = screens(terminal.seen.removesuffix("\x1b[?25h" + LEAVE))
        assert len(shown) == 3
        assert shown[1].split() == ["SANDBOX", "STATE", "CPU"]
        assert all(len(line) <= 25 for line in shown)
        assert shown[2].startswith(pair[0])
    with hutch.terminal("top", "--once", *pair, columns=12) as terminal:
        assert terminal.ended() == 0
        assert all(len(line) <= 12 for line in re.sub(r"\x1b\[\d*m", "", terminal.seen).split("\r\n"))


def test_it_follows_the_size_of_the_terminal(hutch, pair):
    with hutch.terminal("top", "--interval", "10m", "--sort", "id", columns=30) as terminal:
        terminal.expect(pair[1])
        terminal.resize(24, 150)
        terminal.expect(r"AGE")
        terminal.type("q")
        assert terminal.ended() == 0


def test_no_colours_where_none_are_wanted(hutch, pair):
    hutch.env["NO_COLOR"] = "1"
    with hutch.terminal("top", "-n", "1", *pair) as terminal:
        assert terminal.ended() == 0
        assert not re.search(r"\x1b\[\d*m", terminal.seen)
    hutch.env["TERM"] = "dumb"
    with hutch.terminal("top", *pair, columns=200) as terminal:  # that has no screen to take
        assert terminal.ended() == 0
        assert "\x1b" not in terminal.seen


def test_a_daemon_that_is_gone_is_told_and_waited_for(own):
    daemon, hutch = own
    sandbox = daemon.ready("top-restarted")
    with hutch.terminal("top", "-d", "100ms") as terminal:
        terminal.expect(sandbox)
        daemon.kill()
        terminal.expect(re.escape(CLEAR) + r"[^\r]*(connect|reach|daemon)[^\r]*\r\n.*\r\n.*" + sandbox)
        daemon.begin()
        terminal.expect(re.escape(CLEAR) + "1 sandboxes")
        terminal.type("q")
        assert terminal.ended() == 0


def test_a_reader_that_goes_away_ends_it(hutch, pair):
    process = hutch.start("top", "-n", "100000", "-d", "1ms", pair[0])
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(LIMIT) == -signal.SIGPIPE
    process.stderr.close()


def test_only_what_is_seen_is_measured(own):
    """Where the order is known before, sandboxes below the end of the screen are left alone."""
    daemon, hutch = own
    for i in range(6):
        daemon.ready(f"top-seen-{i}")
    for pid in (keepers := [daemon.keeper(f"top-seen-{i}") for i in range(2, 6)]):
        os.kill(pid, signal.SIGSTOP)
    try:
        with hutch.terminal("top", "--sort", "id", "-d", "50ms", rows=4) as terminal:
            for _ in range(3):
                terminal.expect("6 sandboxes, 2 shown")
                terminal.expect("top-seen-1")
            terminal.type("q")
            assert terminal.ended() == 0
        with hutch.terminal("top", "--sort", "cpu") as terminal:  # waits for those that do not answer
            terminal.expect(re.escape(ENTER))
            wait_until(lambda: not terminal.is_restored())
            terminal.type("q")
            assert terminal.ended() == 0
    finally:
        for pid in keepers:
            os.kill(pid, signal.SIGCONT)


def test_its_words_are_completed(hutch: Hutch, pair):
    assert pair[0] in hutch.ok("__complete", "--", "top", "")
    assert "memory" in hutch.ok("__complete", "--", "top", "--sort", "m")
    assert "--once" in hutch.ok("__complete", "--", "top", "--o")
