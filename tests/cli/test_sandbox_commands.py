# SPDX-License-Identifier: Apache-2.0
"""create, list, get, update, stop, resume, pause, unpause, delete and wait, in all their forms."""

import json
import re

import pytest
import yaml
from commandline import Hutch
from hutchd import LIMIT, wait_until

HEADER = ["ID", "STATE", "IMAGE", "EXECS", "CREATED", "LABELS"]


@pytest.fixture(name="made")
def make_sandboxes(hutch, daemon):
    """Two sandboxes that the command line made, with the label suite=cli."""
    ids = [hutch.ok("create", "--wait", "-l", "suite=cli", "-l", f"number={n}").strip() for n in (1, 2)]
    yield ids
    daemon.remove(*(one for one in ids if one in daemon.ids()))


def test_create_prints_the_id_or_the_sandbox(hutch, daemon):
    plain = hutch.ok("create")
    assert re.fullmatch(r"sb-[a-z0-9]{20}\n", plain)
    told = hutch.json("create", "--name", "cli-create-1", "-l", "a=b")
    assert (told["id"], told["state"], told["spec"]["labels"]) == ("cli-create-1", "PENDING", {"a": "b"})
    assert hutch.yaml("create", "--name", "cli-create-2", "--wait")["state"] == "READY"
    daemon.remove(plain.strip(), "cli-create-1", "cli-create-2")


def test_create_runs_a_command_as_main(hutch, daemon):
    sandbox = hutch.ok("create", "--wait", "--timeout", "1h", "--", "sh", "-c", "echo from main").strip()
    daemon.wait_exec(sandbox, "main")
    assert hutch.ok("exec", "logs", sandbox, "main") == "from main\n"
    assert hutch.json("get", sandbox)["effective"]["limits"]["exec_timeout"] == "3600s"
    daemon.remove(sandbox)


def test_list_is_a_table(hutch, made):
    lines = hutch.ok("list", "--selector", "suite=cli").rstrip("\n").split("\n")
    assert lines[0].split() == HEADER
    rows = [re.split(r"  +", line) for line in lines[1:]]
    assert [row[0] for row in rows] == made
    assert rows[0][1:4] == ["READY", "default", "0"] and rows[0][5] == "number=1,suite=cli"
    assert re.fullmatch(r"now|\d+ (seconds?|minutes?) ago", rows[0][4])
    assert len({line.index(word) for line, word in zip(lines, ("STATE", "READY", "READY"))}) == 1
    assert hutch.ok("ps", "-l", "suite=cli") == "\n".join(lines) + "\n"


def test_list_of_nothing_is_its_header(hutch):
    assert hutch.ok("list", "-l", "no=such").split() == HEADER
    assert hutch.json("list", "-l", "no=such") == [] == hutch.yaml("list", "-l", "no=such")
    assert hutch.ok("list", "-l", "no=such", "-q") == ""


def test_list_for_programs(hutch, made):
    for told in (hutch.json("list", "-l", "suite=cli"), hutch.yaml("list", "-l", "suite=cli")):
        assert [one["id"] for one in told] == made
        assert [one["spec"]["labels"]["number"] for one in told] == ["1", "2"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", hutch.json("list")[0]["create_time"])
    assert hutch.ok("list", "-l", "suite=cli", "--quiet").split() == made


def test_list_by_state(hutch, daemon, made):
    hutch.ok("stop", "--wait", made[0])
    assert hutch.ok("list", "-l", "suite=cli", "--state", "stopped", "-q").split() == made[:1]
    assert hutch.ok("list", "-l", "suite=cli", "--state", "READY,STOPPED", "-q").split() == made
    daemon.remove(made[0])
    assert hutch.ok("list", "-l", "suite=cli", "-q").split() == made[1:]
    assert hutch.ok("list", "-l", "suite=cli", "--all", "-q").split()[-2:] == made


def test_get_shows_one(hutch, made):
    details = dict(re.split(r": +", line, maxsplit=1) for line in hutch.ok("get", made[0]).strip().split("\n"))
    assert (details["Id"], details["State"], details["Labels"]) == (made[0], "READY", "number=1,suite=cli")
    assert details["Memory limit"] == "512 MiB"
    assert hutch.json("get", made[0]) == hutch.yaml("get", made[0])
    assert "usage" not in hutch.json("get", made[0])
    assert hutch.json("get", "--usage", made[0])["usage"]["measure_time"]
    assert "Measured" in hutch.ok("get", made[0], "--usage")


def test_json_and_yaml_are_what_the_readers_of_each_read(hutch, made):
    assert json.loads(hutch.ok("get", made[0], "-o", "json"))["id"] == made[0]
    assert yaml.safe_load(hutch.ok("get", made[0], "-oyaml"))["id"] == made[0]


@pytest.mark.parametrize("command", ["get", "stop", "resume", "pause", "unpause", "delete", "wait", "shell"])
def test_one_that_is_not_there_is_told_with_what_to_do(hutch, command):
    told = hutch.refused(command, "no-such-sandbox", code=125 if command == "shell" else 1)
    assert "hutch list" in told


def test_update_changes_labels_and_times(hutch, made):
    one = made[0]
    assert hutch.ok("update", one, "--label", "app=web", "--remove-label", "number", "--idle-ttl", "1h") == f"{one}\n"
    told = hutch.json("get", one)["spec"]
    assert (told["labels"], told["idle_ttl"]) == ({"suite": "cli", "app": "web"}, "3600s")
    assert hutch.json("update", one, "--max-lifetime", "3h")["spec"]["max_lifetime"] == "10800s"
    assert hutch.yaml("update", one, "-l", "app=other", "-l", "flag")["spec"]["labels"] == {
        "suite": "cli",
        "app": "other",
        "flag": "",
    }
    assert "nothing to change" in hutch.refused("update", one, code=2)
    assert "labels" in hutch.refused("update", one, "-l", "-bad-=1")


def test_stop_and_resume(hutch, daemon, made):
    assert hutch.ok("stop", "--wait", "--grace", "1s", *made).split() == made
    assert {one.state for one in map(daemon.get, made)} == {5}
    assert [one["state"] for one in hutch.json("resume", "--wait", *made)] == ["READY"] * 2
    assert [one["state"] for one in hutch.yaml("stop", "--grace", "0", *made)] == ["STOPPING"] * 2
    assert hutch.ok("wait", made[0], "--for", "STOPPED") == "STOPPED\n"
    assert "hutch resume" in hutch.refused("exec", made[0], "true", code=125)
    assert hutch.ok("start", made[0], "--wait").strip() == made[0]


def test_stop_with_no_grace_kills(hutch, daemon, made):
    daemon.start(made[0], "sh", "-c", "trap '' TERM; touch /tmp/ready; while :; do sleep 1; done")
    wait_until(lambda: daemon.run(made[0], "test", "-e", "/tmp/ready").exec.result.exit_code == 0)
    hutch.ok("stop", "--wait", "--grace", "0", made[0])


def test_pause_and_unpause(hutch, daemon, made):
    assert hutch.ok("pause", "--wait", *made).split() == made
    daemon.wait(made[0], "PAUSED")
    assert [one["state"] for one in hutch.json("unpause", "--wait", *made)] == ["READY"] * 2


def test_what_fails_does_not_keep_the_others(hutch, daemon, made):
    ended = hutch("stop", made[0], "no-such-sandbox", made[1])
    assert (ended.code, ended.out.split()) == (1, made)
    assert ended.err.startswith("hutch: no-such-sandbox: ") and ended.err.count("\n") == 1
    daemon.wait(made[1], "STOPPED")


def test_delete_by_id(hutch, daemon, made):
    assert hutch.ok("delete", "--wait", *made).split() == made
    assert {one.state for one in map(daemon.get, made)} == {8}
    assert [one["state"] for one in hutch.json("delete", *made)] == ["DELETED"] * 2


def test_delete_by_selector(hutch, daemon, made):
    told = hutch.refused("delete", "-l", "suite=cli,number=1")
    assert "--force" in told and made[0] in daemon.ids()
    assert hutch.ok("delete", "-l", "suite=cli,number=1", "--force", "--wait").split() == made[:1]
    assert made[1] in daemon.ids()


def test_delete_asks_a_person(hutch, daemon, made):
    for answer, deleted in (("n", False), ("", False), ("y", True)):
        with hutch.terminal("delete", "--selector", "suite=cli", "--wait") as terminal:
            terminal.expect(r"Delete 2 sandboxes\? \[y/N\] ")
            terminal.type(f"{answer}\n")
            assert terminal.ended() == (0 if deleted else 1)
        assert any(one in daemon.ids() for one in made) != deleted


def test_delete_all_deletes_all(own):
    daemon, hutch = own
    ids = [hutch.ok("create").strip() for _ in range(3)]
    assert hutch.refused("delete", "--all")
    assert hutch.ok("delete", "--all", "--force", "--wait").split() == ids
    assert daemon.ids() == [] and hutch.ok("delete", "--all") == ""


def test_wait_waits_for_states(hutch, made):
    assert hutch.ok("wait", made[0]) == "READY\n"
    assert hutch.json("wait", made[0], "--for", "READY,STOPPED")["state"] == "READY"
    waiting = hutch.start("wait", made[0], "--for", "stopped")
    hutch.ok("stop", made[0])
    assert waiting.communicate(timeout=LIMIT)[0] == b"STOPPED\n"
    told = hutch.refused("wait", made[1], "--for", "STOPPED", "--timeout", "200ms", code=124)
    assert made[1] in told
    assert hutch.refused("wait", made[0], "--for", "READY")  # it does not get there by itself


def test_a_caller_that_is_not_allowed_is_told(daemon):
    """Root may do everything, so the test becomes somebody else."""
    stranger = Hutch(daemon.socket)
    daemon.folder.chmod(0o755)
    try:
        ended = stranger("list", user=65534, group=65534, extra_groups=[])
    finally:
        daemon.folder.chmod(0o700)
    assert ended.code == 1 and ended.err.startswith("hutch: ") and ended.err.count("\n") == 1


def test_addresses_name_the_daemon(daemon, sandbox, tmp_path):
    elsewhere = Hutch(tmp_path / "none.sock", HUTCH_STATE="/dev/null/nowhere")
    address = f"unix:{daemon.socket}"
    for words in (["--socket", str(daemon.socket), "list"], ["list", "--socket", str(daemon.socket)]):
        assert sandbox in elsewhere.ok(*words, "-q").split()
    assert sandbox in elsewhere.ok("--address", address, "list", "-q").split()
    del elsewhere.env["HUTCH_SOCKET"]
    elsewhere.env["HUTCH_ADDRESS"] = address
    assert sandbox in elsewhere.ok("list", "-q").split()
