# SPDX-License-Identifier: Apache-2.0
"""Capabilities: nobody inside has any, unless the sandbox asks for some of root's; and what they are good for."""

import pytest
from hutchd import refused

NAMES = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "NET_BIND_SERVICE", "SETGID", "SETUID"]
BITS = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "SETGID": 6, "SETUID": 7, "NET_BIND_SERVICE": 10}
SETS = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]

# What root does with each, and cannot do with all the others.
USES = {
    "CHOWN": "chown 1234 $(mktemp)",
    "DAC_OVERRIDE": "test -r /home/agent/closed",
    "FOWNER": "chmod 600 /home/agent/closed",
    "FSETID": "f=$(mktemp) && chown 0:1234 $f && chmod 2755 $f && test -g $f",
    "NET_BIND_SERVICE": "python3 -c \"import socket; socket.create_server(('127.0.0.1', 80))\"",
    "SETGID": 'python3 -c "import os; os.setgid(1234)"',
    "SETUID": 'python3 -c "import os; os.setuid(1234)"',
}


def mask(names) -> int:
    return sum(1 << BITS[name.removeprefix("CAP_")] for name in names)


def sets_of(daemon, sandbox, user, process="self") -> dict[str, int]:
    status = daemon.shell(sandbox, f"cat /proc/{process}/status", user=user)
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return {name: int(fields[name], 16) for name in SETS}


@pytest.fixture(scope="module", name="capable")
def make_capable(daemon):
    """A sandbox with all of them."""
    sandbox = daemon.ready(capabilities=NAMES)
    yield sandbox
    daemon.remove(sandbox)


@pytest.mark.rules("PROF-009")
@pytest.mark.parametrize("user", ["root", "agent", "1234:1234"])
def test_nobody_has_any(daemon, sandbox, user):
    assert set(sets_of(daemon, sandbox, user).values()) == {0}


@pytest.mark.rules("PROF-009")
def test_root_has_those_that_were_asked_for_and_others_none(daemon):
    asked = ["CHOWN", "CAP_SETUID"]
    sandbox = daemon.ready(capabilities=asked)
    assert list(daemon.get(sandbox).spec.capabilities) == asked
    assert sets_of(daemon, sandbox, "root") == dict.fromkeys(SETS, mask(asked)) | {"CapAmb": 0}
    for user in ("agent", "1234"):
        assert set(sets_of(daemon, sandbox, user).values()) == {0}
    assert set(sets_of(daemon, sandbox, "root", "1").values()) == {0}
    daemon.remove(sandbox)


@pytest.mark.parametrize("name", NAMES)
def test_they_are_good_for_what_they_are_for(daemon, capable, name):
    without = daemon.ready(capabilities=[other for other in NAMES if other != name])
    for one in (capable, without):
        daemon.shell(one, "touch ~/closed && chmod 0 ~/closed")
    assert daemon.run(capable, "sh", "-c", USES[name], user="root").exec.result.exit_code == 0
    assert daemon.run(without, "sh", "-c", USES[name], user="root").exec.result.exit_code != 0
    daemon.remove(without)


def test_they_last_over_stops_and_restarts(own_daemon):
    sandbox = own_daemon.ready(capabilities=["CHOWN"])
    own_daemon.restart(kill=True)
    own_daemon.shell(sandbox, USES["CHOWN"], user="root")
    own_daemon.stop(sandbox)
    own_daemon.wait(sandbox, "STOPPED")
    own_daemon.resume(sandbox)
    own_daemon.wait(sandbox, "READY")
    own_daemon.shell(sandbox, USES["CHOWN"], user="root")


@pytest.mark.rules("PROF-009")
@pytest.mark.parametrize("name", ["SYS_ADMIN", "KILL", "NET_ADMIN", "ALL", "chown", "CAP_CAP_CHOWN", "", "CAP_"])
def test_others_are_refused(daemon, name):
    with refused("FIELD_INVALID", "spec.capabilities[1]"):
        daemon.create(capabilities=["CHOWN", name])


def test_doubles_and_too_many_are_refused(daemon):
    with refused("FIELD_INVALID", "spec.capabilities[2]"):
        daemon.create(capabilities=["CHOWN", "SETUID", "CAP_CHOWN"])
    with refused("FIELD_OUT_OF_RANGE", "spec.capabilities"):
        daemon.create(capabilities=["X"] * 100_000)


@pytest.mark.rules("PROF-009")
def test_the_strict_profile_has_none(daemon):
    with refused("FIELD_CONFLICT", "spec.capabilities"):
        daemon.create(profile="strict", capabilities=["CHOWN"])
    daemon.remove(daemon.ready(profile="standard", capabilities=["CHOWN"]))


@pytest.mark.rules("PROF-009")
def test_the_operator_can_forbid_them(start_daemon):
    daemon = start_daemon({"sandboxes": {"allow_capabilities": False}})
    with refused("FEATURE_UNSUPPORTED"):
        daemon.create(capabilities=["CHOWN"])
    daemon.ready()
