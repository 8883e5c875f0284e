# SPDX-License-Identifier: Apache-2.0
"""The process that waits for the next exec: who has started two in a row starts a third."""

import os
import re
import signal
import time
from pathlib import Path

import pytest
from keeper import protocol, wait_until
from test_execs import assert_not_started, exit_code
from test_rights import ALLOW_ALL

AGENT = "1000"


def number_inside(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"^NSpid:.*\t(\d+)$", status, re.MULTILINE)[1])


def waiting(keeper) -> list[int]:
    """Processes of the sandbox beside its first."""
    found = []
    for pid in keeper.processes():
        try:
            number = number_inside(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if number != 1:
            found.append(pid)
    return found


def run(keeper, *argv, **values):
    """Runs and forgets, as the daemon does."""
    ended = keeper.run(*argv, **({"user": AGENT} | values))
    keeper.forget(ended.exec_id)
    return ended


def say(keeper, script: str, **values) -> str:
    ended = run(keeper, "sh", "-c", script, **values)
    assert exit_code(ended) == 0
    return keeper.output(ended.exec_id).decode()


def prepare(keeper, **values) -> int:
    """Has a process wait: its number inside."""
    for _ in range(2):
        run(keeper, "true", **values)
    wait_until(lambda: len(waiting(keeper)) == 1)
    return number_inside(waiting(keeper)[0])


def test_what_waits_cannot_be_looked_at_whatever_the_host_says_of_dumps(start_keeper):
    setting = Path("/proc/sys/fs/suid_dumpable")
    before = setting.read_text(encoding="utf-8")
    keeper = start_keeper({"seccomp_filter": ALLOW_ALL})
    setting.write_text("1", encoding="utf-8")  # who becomes another user is dumpable
    try:
        prepare(keeper)
        folder = Path(f"/proc/{waiting(keeper)[0]}")
        wait_until(lambda: "\nSeccomp:\t2" in (folder / "status").read_text(encoding="utf-8"))
    finally:
        setting.write_text(before, encoding="utf-8")
    assert (folder / "mem").stat().st_uid == 0


def test_one_exec_alone_has_none_wait(start_keeper):
    keeper = start_keeper()
    run(keeper, "true")
    keeper.describe()
    assert waiting(keeper) == []


def test_the_first_exec_is_the_process_that_waited_when_it_was_expected(start_keeper):
    keeper = start_keeper()
    assert keeper.describe().state == protocol().KEEPER_STATE_RUNNING
    for _ in range(2):
        keeper.stub.ExpectExec(protocol().ExpectExecRequest(user=AGENT))
        wait_until(lambda: len(waiting(keeper)) == 1)
    number = number_inside(waiting(keeper)[0])
    assert say(keeper, "echo $$") == f"{number}\n"


@pytest.mark.parametrize("user", ["", "nobody-knows", "x" * 3000])
def test_one_of_nobody_does_not_stay(start_keeper, user):
    keeper = start_keeper()
    keeper.stub.ExpectExec(protocol().ExpectExecRequest(user=user), wait_for_ready=True)
    wait_until(lambda: waiting(keeper) == [])
    assert say(keeper, "echo here") == "here\n"


def test_the_third_exec_is_the_process_that_waited(start_keeper):
    keeper = start_keeper()
    number = prepare(keeper)
    values = {"env": {"COLOR": "blue"}, "working_directory": "/tmp", "set_home": True, "set_user": True}
    assert say(keeper, "echo $$ $COLOR $PWD $HOME $USER; umask", **values).split() == [
        str(number),
        "blue",
        "/tmp",
        *say(keeper, "getent passwd 1000 | cut -d: -f6,1 --output-delimiter=' '").split()[::-1],
        "0022",
    ]


def test_what_waits_is_as_what_is_started_at_once(start_keeper):
    """Everything that can be told of a process is the same, whether it waited or not."""
    script = (
        "grep -vE '^(Pid|PPid|Tgid|NS|Vm|Rss|Cpus|Mems|Threads|volu|nonvol|Name|Seccomp_filters|HugetlbPages)' "
        "/proc/self/status; cat /proc/self/limits /proc/self/cgroup; ls /proc/self/fd; readlink /proc/self/ns/*; "
        "ps -o sid=,pgid=,tty= -p $$ | tr -s ' ' | wc -w; test $(ps -o sid= -p $$) -eq $$ && echo leads"
    )
    keeper = start_keeper()
    at_once = say(keeper, script)
    run(keeper, "true")
    wait_until(lambda: len(waiting(keeper)) == 1)
    strip = re.compile(r"cgroup:\[\d+\]")  # each has one of its own
    assert strip.sub("", say(keeper, script)) == strip.sub("", at_once)


def test_it_does_not_count(start_keeper):
    keeper = start_keeper()
    prepare(keeper)
    assert keeper.stub.GetUsage(protocol().GetUsageRequest()).processes == 0


def test_it_is_gone_after_a_while(start_keeper):
    keeper = start_keeper()
    prepare(keeper)
    wait_until(lambda: waiting(keeper) == [])
    wait_until(lambda: not any(name.startswith("exec-") for name in os.listdir(keeper.box)))
    assert say(keeper, "echo again") == "again\n"


def test_one_that_may_come_at_any_time_is_waited_for_until_it_is_to_come_soon(start_keeper):
    keeper = start_keeper()
    keeper.stub.ExpectExec(protocol().ExpectExecRequest(user=AGENT, patiently=True))
    wait_until(lambda: len(waiting(keeper)) == 1)
    (pid,) = waiting(keeper)
    time.sleep(6)  # longer than for one that is to come soon
    assert waiting(keeper) == [pid]
    keeper.stub.ExpectExec(protocol().ExpectExecRequest(user=AGENT))
    wait_until(lambda: not waiting(keeper))
    assert say(keeper, "echo here") == "here\n"


def test_none_waits_while_something_runs(start_keeper):
    keeper = start_keeper()
    long = keeper.start("sleep", "1000", user=AGENT).exec_id
    for _ in range(3):
        run(keeper, "true")
    assert len(waiting(keeper)) == 1
    names = "import glob; print(*[open(path).read() for path in glob.glob('/proc/[0-9]*/comm')], sep='')"
    ended = run(keeper, "python3", "-c", names)
    assert sorted(keeper.output(ended.exec_id).decode().split()) == ["init", "python3", "sleep"]
    keeper.cancel(long, 0)
    keeper.wait(long)


def test_none_waits_beside_what_an_exec_left(start_keeper):
    keeper = start_keeper()
    say(keeper, "sleep 1000 > /dev/null 2>&1 &")
    for _ in range(3):
        run(keeper, "true")
    assert len(waiting(keeper)) == 1


def test_none_waits_where_it_is_not_known_what_runs(start_keeper):
    keeper = start_keeper({"cgroup": ""})
    for _ in range(3):
        run(keeper, "true")
        keeper.stub.ExpectExec(protocol().ExpectExecRequest(user=AGENT))
    children = Path(f"/proc/{keeper.process.pid}/task/{keeper.process.pid}/children").read_text(encoding="utf-8")
    assert len(children.split()) == 1  # PID 1


@pytest.mark.parametrize("values", [{"user": "0"}, {"terminal": {"rows": 3, "columns": 4}}, {"user": "0:5"}])
def test_who_is_another_is_started_anew(start_keeper, values):
    keeper = start_keeper()
    number = prepare(keeper)
    ended = run(keeper, "sh", "-c", "echo $$; id -u; id -g; test -t 1 && stty size", **values)
    words = keeper.output(ended.exec_id).decode().split()
    assert int(words[0]) != number
    uid, _, gid = values.get("user", AGENT).partition(":")
    assert words[1:3] == [uid, gid or uid]
    assert words[3:] == (["3", "4"] if "terminal" in values else [])


def test_a_user_who_has_changed_is_started_anew(start_keeper):
    keeper = start_keeper()
    name = say(keeper, "id -un")[:-1]
    say(keeper, f"echo 'late:x:777:{name}' >> /etc/group", user="0")
    prepare(keeper, user=name)
    assert "777" in say(keeper, "id -G", user=name).split()
    wait_until(lambda: len(waiting(keeper)) == 1)
    first = next(pid for pid in keeper.processes() if number_inside(pid) == 1)  # it is inside for sure
    with open(f"/proc/{first}/root/etc/group", "a", encoding="utf-8") as group:
        group.write(f"later:x:778:{name}\n")
    assert "778" in say(keeper, "id -G", user=name).split()


def test_arguments_that_are_too_long_for_it(start_keeper):
    keeper = start_keeper()
    number = prepare(keeper)
    long = "x" * 100_000
    ended = run(keeper, "sh", "-c", "echo $$ ${#LONG} ${#1}", "sh", long, env={"LONG": long})
    words = keeper.output(ended.exec_id).decode().split()
    assert int(words[0]) != number and words[1:] == ["100000", "100000"]


def test_input_reaches_it(start_keeper):
    keeper = start_keeper()
    number = prepare(keeper)
    ended = run(keeper, "sh", "-c", "echo $$; cat", input=b"some bytes")
    assert keeper.output(ended.exec_id) == f"{number}\nsome bytes".encode()


def test_failures_are_told_as_ever(start_keeper):
    keeper = start_keeper()
    prepare(keeper)
    ended = run(keeper, "no-such-program")
    assert_not_started(ended, "FILE_NOT_FOUND", 2)
    assert ended.end.program_not_found
    wait_until(lambda: len(waiting(keeper)) == 1)
    ended = run(keeper, "true", working_directory="/no/such/folder")
    assert_not_started(ended, "FILE_NOT_FOUND", 2)
    assert "/no/such/folder" in ended.end.failure.message


def test_one_that_is_killed_is_missed_by_nobody(start_keeper):
    keeper = start_keeper()
    for _ in range(5):
        prepare(keeper)
        os.kill(waiting(keeper)[0], signal.SIGKILL)
        wait_until(lambda: waiting(keeper) == [])
        assert say(keeper, "echo here") == "here\n"


def test_a_pause_and_the_end_have_none_wait(start_keeper):
    keeper = start_keeper()
    prepare(keeper)
    keeper.pause(True)
    assert waiting(keeper) == []
    keeper.pause(False)
    prepare(keeper)
    keeper.shut_down()
    keeper.process.wait()
    assert not keeper.cgroup.exists() or not keeper.processes()


def test_it_does_not_wait_where_the_one_before_was_killed(start_keeper):
    """Linux 6.18 kills whoever is cloned into a cgroup that was ever killed."""
    keeper = start_keeper()
    killed = keeper.start("sleep", "1000", user=AGENT)
    keeper.cancel(killed.exec_id, 0)
    keeper.wait(killed.exec_id)
    keeper.forget(killed.exec_id)
    keeper.stub.ExpectExec(protocol().ExpectExecRequest(user=AGENT))
    wait_until(lambda: len(waiting(keeper)) == 1)
    number = number_inside(waiting(keeper)[0])
    assert say(keeper, "echo $$") == f"{number}\n"


def test_what_the_one_before_used_is_not_counted_again(start_keeper):
    keeper = start_keeper()
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    for _ in range(2):
        assert run(keeper, "python3", "-c", busy).end.cpu_time.ToNanoseconds() >= 500_000_000
    wait_until(lambda: len(waiting(keeper)) == 1)
    assert run(keeper, "true").end.cpu_time.ToNanoseconds() < 500_000_000


def test_a_keeper_that_is_killed_takes_it_along(start_keeper):
    keeper = start_keeper()
    prepare(keeper)
    pid = waiting(keeper)[0]
    keeper.process.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
