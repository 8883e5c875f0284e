# SPDX-License-Identifier: Apache-2.0
"""What a keeper may still do on the host once its sandbox stands."""

import os
from pathlib import Path

import pytest
from keeper import UID_BASE, protocol, wait_until

OWN_ID = UID_BASE + 65535  # the last of the range
ALLOW_ALL = (0x06).to_bytes(2, "little") + bytes(2) + (0x7FFF0000).to_bytes(4, "little")
NO_CAPABILITIES = {f"Cap{name}": "0" * 16 for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")}


def status_of(pid: int | str) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return {name: " ".join(value.split()) for name, value in (line.split(":", 1) for line in lines)}


def test_it_is_nobody_else_and_has_no_capability(keeper):
    keeper.run("true")
    status = status_of(keeper.process.pid)
    assert status["Name"] == "hutch-keeper"
    assert status["Uid"] == status["Gid"] == f"{OWN_ID} {OWN_ID} {OWN_ID} {OWN_ID}"
    assert status["Groups"] == ""
    assert status["NoNewPrivs"] == "1"
    assert NO_CAPABILITIES.items() <= status.items()


def test_it_cannot_be_looked_at_by_another_process_of_its_user(keeper):
    keeper.describe()
    assert Path(f"/proc/{keeper.process.pid}/mem").stat().st_uid == 0  # it is not dumpable


@pytest.mark.parametrize(
    "wrong", [{"cgroup": "/proc/none/x"}, {"state_folder": "/proc/sys/kernel"}], ids=["late", "early"]
)
def test_one_whose_start_failed_has_given_up_as_much(start_keeper, wrong):
    keeper = start_keeper({"keeper_filter": ALLOW_ALL} | wrong)
    assert keeper.describe().state == protocol().KEEPER_STATE_FAILED
    status = status_of(keeper.process.pid)
    assert status["Uid"] == status["Gid"] == f"{OWN_ID} {OWN_ID} {OWN_ID} {OWN_ID}"
    assert status["Groups"] == ""
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert NO_CAPABILITIES.items() <= status.items()
    assert Path(f"/proc/{keeper.process.pid}/mem").stat().st_uid == 0


def test_its_user_is_nobody_inside(keeper):
    ran = keeper.shell("cat /proc/self/uid_map; setpriv --reuid 65535 true || echo none")
    assert keeper.output(ran.exec_id).decode().split() == ["0", str(UID_BASE), "65535", "none"]


def test_it_owns_the_namespaces_and_what_it_has_to_write(keeper):
    keeper.describe()
    assert keeper.folder.stat().st_uid == OWN_ID
    assert keeper.box.stat().st_uid == (keeper.box / "cgroup.procs").stat().st_uid == OWN_ID
    # But not what would give the sandbox more.
    limits = [path for path in keeper.box.iterdir() if path.name.endswith((".max", ".weight"))]
    assert {path.stat().st_uid for path in limits} <= {0}
    own = Path(f"/proc/{keeper.process.pid}/cgroup").read_text(encoding="utf-8").splitlines()[-1]
    # One of its own is below that where controllers of version 2 do not allow processes in it.
    assert own.removesuffix("/keeper").endswith(f"/{keeper.cgroup.name}")


def test_without_root_it_stays_who_it_is_and_can_become_no_more(start_keeper):
    keeper = start_keeper({"uid_base": 1000, "uid_count": 1, "cgroup": ""}, user=1000)
    wait_until(lambda: "sandbox runs" in keeper.log() or "cannot build" in keeper.log())
    if "cannot build" in keeper.log():
        pytest.skip("this host lets only root make user namespaces")
    status = status_of(keeper.process.pid)
    assert status["Uid"].split() == ["1000"] * 4
    assert status["NoNewPrivs"] == "1"
    assert status["CapEff"] == status["CapPrm"] == "0" * 16
    assert os.stat(f"/proc/{keeper.process.pid}/mem").st_uid == 0


def test_a_list_of_system_calls_holds_for_it_and_what_it_starts(start_keeper):
    keeper = start_keeper({"keeper_filter": ALLOW_ALL})
    ran = keeper.shell("grep Seccomp: /proc/self/status")
    assert keeper.output(ran.exec_id) == b"Seccomp:\t2\n"
    assert status_of(keeper.process.pid)["Seccomp"] == "2"


def test_a_list_that_the_kernel_refuses_fails_the_start(start_keeper):
    keeper = start_keeper({"keeper_filter": b"\xff" * 8})
    assert "give up its rights" in keeper.describe().failure.message
    assert not keeper.processes()
