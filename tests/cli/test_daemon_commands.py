# SPDX-License-Identifier: Apache-2.0
"""The daemon of this user: started when it is needed, once, and ended when it is told to."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from commandline import BUILD, Hutch
from host import PATIENCE
from hutchd import Daemon, all_processes, parent_of, wait_until
from user_daemon import UID


def daemons_of(folder: Path) -> list[int]:
    """The daemons that listen in @folder. What they fork to start a keeper is none."""
    found = []
    for pid in all_processes():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if os.path.basename(words[0]) == b"hutchd" and str(folder).encode() in b" ".join(words):
                found.append(pid)
    with contextlib.suppress(OSError):  # one is gone meanwhile
        return [pid for pid in found if parent_of(pid) not in found]
    return daemons_of(folder)


@pytest.fixture(name="cold")
def make_cold():
    """The command line where nothing was started before."""
    folder = Path(tempfile.mkdtemp(prefix="hutch-test-", dir="/tmp"))
    hutch = Hutch(folder / "hutchd.sock", HUTCH_STATE=str(folder / "state"))
    yield hutch
    for pid in daemons_of(folder):
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not daemons_of(folder))
    daemon = Daemon(folder=folder)
    daemon.begin()
    daemon.finish()
    shutil.rmtree(folder, ignore_errors=True)


def test_run_starts_a_daemon_says_so_once_and_it_stays(cold):
    first = cold("run", "echo", "hi")
    assert (first.code, first.out) == (0, "hi\n")
    assert re.fullmatch(r"hutch: started a daemon on \S+hutchd\.sock\n", first.err)
    assert cold.ok("run", "echo", "again") == "again\n"
    folder = Path(cold.env["HUTCH_SOCKET"]).parent
    assert len(daemons_of(folder)) == 1


@pytest.mark.parametrize("words", [["list", "-q"], ["create", "-q"], ["info"], ["events"]])
def test_other_commands_start_one_too(cold, words):
    ended = cold(*words)
    assert ended.code == 0
    assert len(daemons_of(Path(cold.env["HUTCH_SOCKET"]).parent)) == 1


@pytest.mark.parametrize("words", [["version"], ["daemon", "status"], ["doctor"], ["__complete", "get", ""]])
def test_those_that_only_look_start_none(cold, words):
    assert cold(*words).code in (0, 1)
    assert daemons_of(Path(cold.env["HUTCH_SOCKET"]).parent) == []


def test_start_status_stop(cold):
    socket = cold.env["HUTCH_SOCKET"]
    status = cold("daemon", "status")
    assert (status.code, status.out, status.err) == (1, f"no daemon runs on {socket}\n", "")
    assert cold.ok("daemon", "start") == f"started a daemon on {socket}\n"
    assert cold.ok("daemon", "start") == f"a daemon is there already on {socket}\n"
    [pid] = daemons_of(Path(socket).parent)
    assert cold.ok("daemon", "status") == f"a daemon runs on {socket}, with the pid {pid}\n"
    expected = {"running": True, "pid": pid, "socket": socket}
    assert cold.json("daemon", "status") == cold.yaml("daemon", "status") == expected
    sandbox = cold.ok("create", "--wait").strip()
    assert cold.ok("daemon", "stop", "--timeout", "60s") == f"stopped the daemon on {socket}\n"
    assert cold.ok("daemon", "stop") == f"there was no daemon on {socket}\n"
    assert json.loads(cold("daemon", "status", "-o", "json").out)["running"] is False
    ended = cold("exec", sandbox, "echo", "still here")  # and the next one finds the sandbox
    assert (ended.code, ended.out) == (0, "still here\n")


def test_one_that_was_started_ends_when_it_is_of_no_use(cold):
    cold.env["HUTCH_IDLE_EXIT"] = "3s"  # enough for hutch to connect
    assert cold("run", "true").code == 0
    wait_until(lambda: not daemons_of(Path(cold.env["HUTCH_SOCKET"]).parent))


def test_a_daemon_elsewhere_is_not_started(cold):
    told = cold.refused("--address", "127.0.0.1:1", "daemon", "start", code=2)
    assert "is no Unix socket" in told


def test_two_hundred_at_once_from_nothing_start_exactly_one(cold):
    running = [cold.start("run", "--", "echo", str(n)) for n in range(200)]
    results = [process.communicate(timeout=100 * PATIENCE) + (process.returncode,) for process in running]
    assert [code for _, _, code in results] == [0] * 200, [err for _, err, code in results if code][:3]
    assert [out for out, _, _ in results] == [f"{n}\n".encode() for n in range(200)]
    notes = b"".join(err for _, err, _ in results)
    assert notes.count(b"\n") == notes.count(b"hutch: started a daemon on") == 1
    assert len(daemons_of(Path(cold.env["HUTCH_SOCKET"]).parent)) == 1
    wait_until(lambda: cold.ok("list", "-q") == "")


def test_version(hutch):
    told = hutch.ok("version")
    assert re.fullmatch(r"hutch (\d+\.\d+\.\d+)\nhutchd \1\n", told)
    assert hutch.ok("--version") == told
    assert hutch.json("version") == hutch.yaml("version")
    assert set(hutch.json("version")) == {"client", "daemon"}


def test_info(hutch, daemon):
    told = hutch.ok("info")
    for word in ("Version", "Address", "Profiles", "Runtimes", "native (available)", "default, strict"):
        assert word in told
    assert re.search(r"disk limits:? +by (quotas|measuring): ", told)
    info = hutch.json("info")
    assert (info["version"], info["instance_id"]) == (daemon.info().version, daemon.instance)
    assert hutch.yaml("info")["host"]["kernel"] == info["host"]["kernel"] == os.uname().release


def test_doctor_is_content_with_this_machine(hutch):
    ended = hutch("doctor")
    lines = ended.out.strip().split("\n")
    assert re.split(r"  +", lines[0]) == ["CHECK", "IS", "FOUND", "WHAT TO DO"]
    checks = {re.split(r"  +", line)[0]: re.split(r"  +", line)[1] for line in lines[1:]}
    names = "kernel namespaces seccomp landlock cgroups overlayfs socket processes hutchd hutch-keeper daemon runtime"
    assert {*names.split(), "state folder", "open files", "disk limits"} <= set(checks)
    assert {checks[name] for name in "kernel namespaces overlayfs hutchd hutch-keeper daemon".split()} == {"ok"}
    assert (ended.code == 1) == ("bad" in checks.values())
    assert ended.err == ""


def cgroups_of_doctors() -> list[Path]:
    mounts = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
    trees = [left.split()[4] for left, right in (line.split(" - ") for line in mounts) if right.startswith("cgroup")]
    return [path for tree in trees for path in Path(tree).rglob("hutch-doctor-*")]


def test_doctor_tries_what_a_daemon_would_have_and_leaves_nothing(hutch, daemon, tmp_path):
    """With a daemon and without one it says the same of cgroups: they have one function for it."""
    alone = Hutch(tmp_path / "s.sock", HUTCH_STATE=str(tmp_path))
    findings = [{one["check"]: one for one in json.loads(each("doctor", "-o", "json").out)} for each in (hutch, alone)]
    assert findings[0]["cgroups"] == findings[1]["cgroups"]
    enforced = not {"memory_bytes", "cpu_millis"} & set(daemon.info().runtimes[0].not_enforced)
    assert (findings[0]["cgroups"]["is"] == "ok") == enforced
    assert "limits" not in findings[1] and not cgroups_of_doctors()


def test_info_says_why_a_limit_is_not_enforced(hutch, daemon):
    told = hutch.ok("info")
    for one in daemon.info().runtimes[0].unenforced:
        assert one.limit in told and one.why in told and one.fix in told


def is_command(text: str) -> bool:
    """Whether it can be pasted into a shell; or names a file and its key."""
    words = text.split()
    known = shutil.which(words[0]) or words[0] in ("export", "echo", "hutch", "sudo", "systemd-run")
    ran = subprocess.run(["sh", "-n", "-c", text], check=False, capture_output=True)
    return bool(re.match(r"\S+\.yaml: \S+: ", text) or (known and ran.returncode == 0))


def test_doctor_for_programs(hutch):
    ended = hutch("doctor", "-o", "json")
    findings = json.loads(ended.out)
    assert all(set(finding) == {"check", "is", "found", "mend"} for finding in findings)
    assert all(is_command(finding["mend"]) for finding in findings if finding["mend"])
    assert len(hutch.yaml("doctor")) == len(findings)


def test_doctor_says_how_disk_limits_are_kept_and_how_to_have_quotas(hutch, daemon):
    [found] = [one for one in json.loads(hutch("doctor", "-o", "json").out) if one["check"] == "disk limits"]
    assert found["is"] == "ok"
    if "disk-quota" in daemon.info().runtimes[0].features:
        assert found["found"].startswith("by quotas")
    else:
        assert found["found"].startswith("by measuring")
        assert "mkfs.ext4 -q -O quota,project" in found["mend"] and "prjquota" in found["mend"]


def test_doctor_says_what_there_is_of_landlock(hutch, daemon):
    [found] = [one for one in json.loads(hutch("doctor", "-o", "json").out) if one["check"] == "landlock"]
    features = daemon.info().runtimes[0].features
    assert (found["is"] == "ok") == ("landlock" in features)
    assert ("6.12" in found["found"]) == ("landlock" in features and "landlock-scopes" not in features)


def test_doctor_says_what_is_bad_and_ends_with_1(tmp_path):
    hutch = Hutch(tmp_path / "no" / "s.sock", HUTCH_STATE="/proc/nowhere")
    ended = hutch("doctor", "-o", "json")
    bad = {finding["check"]: finding for finding in json.loads(ended.out) if finding["is"] == "bad"}
    assert ended.code == 1 and bad["state folder"]["mend"].startswith("export HUTCH_STATE=/")
    assert list(tmp_path.iterdir()) == []


def test_doctor_misses_the_programs(tmp_path):
    shutil.copy(BUILD / "hutch", tmp_path / "hutch")
    hutch = Hutch(tmp_path / "s.sock")
    hutch.program = tmp_path / "hutch"
    findings = {finding["check"]: finding for finding in json.loads(hutch("doctor", "-o", "json").out)}
    assert findings["hutchd"]["is"] == findings["hutch-keeper"]["is"] == "bad"
    assert findings["hutchd"]["mend"] == findings["hutch-keeper"]["mend"] == "make install"
    (tmp_path / "hutchd").write_text("#!/bin/sh\necho hutchd 0.0.1\n")
    (tmp_path / "hutchd").chmod(0o755)
    findings = {finding["check"]: finding for finding in json.loads(hutch("doctor", "-o", "json").out)}
    assert "hutchd 0.0.1" in findings["hutchd"]["found"]


def test_doctor_of_a_user_without_folders():
    """Who has no home, and for whom somebody else has made the folder of the socket."""
    hutch = Hutch()
    hutch.env.pop("HOME", None)
    taken = Path(f"/tmp/hutch-{UID}")
    taken.mkdir(mode=0o755)
    try:
        with tempfile.TemporaryDirectory(prefix="hutch-test-", dir="/tmp") as folder:
            os.chmod(folder, 0o755)
            hutch.program = Path(shutil.copy(BUILD / "hutch", folder))
            ended = hutch("doctor", "-o", "json", user=UID, group=UID, extra_groups=[])
    finally:
        taken.rmdir()
    findings = {finding["check"]: finding for finding in json.loads(ended.out)}
    assert ended.code == 1
    assert str(taken) in findings["socket"]["found"]
    for check, name in {"socket": "HUTCH_SOCKET", "state folder": "HUTCH_STATE"}.items():
        assert findings[check]["mend"].startswith(f"export {name}=/") and is_command(findings[check]["mend"])
