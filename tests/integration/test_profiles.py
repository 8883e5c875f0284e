# SPDX-License-Identifier: Apache-2.0
"""Profiles: what they give, what they lower, what GetSandbox tells of it, and that it holds inside; egress lists."""

import pytest
from hutch.v1 import sandbox_pb2
from hutchd import MIB, refused

FIELDS = ["memory_bytes", "cpu_millis", "max_processes", "max_open_files"]
PROFILES = ["strict", "standard", "permissive"]


def profile_of(daemon, name):
    return next(profile for profile in daemon.info().profiles if profile.name == name)


def values(limits) -> dict[str, int]:
    return {field: getattr(limits, field) for field in FIELDS}


@pytest.mark.rules("PROF-002", "PROF-004")
@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_gives_its_defaults_and_they_hold(daemon, name):
    profile = profile_of(daemon, name)
    sandbox = daemon.ready(profile=name)
    effective = daemon.get(sandbox).effective
    assert effective.profile == daemon.get(sandbox).spec.profile == name
    assert values(effective.limits) == values(profile.defaults)
    assert effective.limits.exec_timeout == profile.defaults.exec_timeout
    assert not effective.clamped
    assert not set(FIELDS).intersection(effective.not_enforced)
    assert daemon.shell(sandbox, "ulimit -n").strip() == str(effective.limits.max_open_files)
    strict = name == "strict"
    told = (effective.limits.read_only_root, effective.limits.tmp_noexec, effective.limits.no_network)
    assert told == (strict, strict, strict)
    assert (daemon.run(sandbox, "touch", "/etc/x", user="0").exec.result.exit_code != 0) == strict
    script = "cp /bin/true /tmp/true && /tmp/true"
    assert (daemon.run(sandbox, "sh", "-c", script).exec.result.exit_code != 0) == strict
    daemon.remove(sandbox)


@pytest.mark.rules("PROF-002", "PROF-004")
@pytest.mark.parametrize("name", PROFILES)
def test_what_a_profile_lowers_is_told_and_in_force(daemon, name):
    ceilings = profile_of(daemon, name).ceilings
    asked = {field: 2 * value for field, value in values(ceilings).items()}
    sandbox = daemon.ready(profile=name, limits=asked)
    effective = daemon.get(sandbox).effective
    assert values(effective.limits) == values(ceilings)
    told = {one.field: (int(one.requested), int(one.effective), one.by) for one in effective.clamped}
    by = sandbox_pb2.CLAMPED_BY_PROFILE
    assert told == {field: (asked[field], value, by) for field, value in values(ceilings).items()}
    assert daemon.shell(sandbox, "ulimit -n").strip() == str(ceilings.max_open_files)
    daemon.remove(sandbox)


@pytest.mark.rules("PROF-002", "PROF-004")
def test_what_the_operator_lowers_is_told_apart(start_daemon):
    daemon = start_daemon({"caps": {"memory": "64MiB", "processes": 30}})
    for name in PROFILES:
        sandbox = daemon.ready(profile=name, limits={"memory_bytes": 128 * MIB})
        effective = daemon.get(sandbox).effective
        assert (effective.limits.memory_bytes, effective.limits.max_processes) == (64 * MIB, 30)
        [told] = [one for one in effective.clamped if one.field == "memory_bytes"]
        assert (int(told.requested), int(told.effective)) == (128 * MIB, 64 * MIB)
        assert told.by == sandbox_pb2.CLAMPED_BY_OPERATOR


# ---- Egress ----


@pytest.mark.rules("EGRESS-001")
@pytest.mark.parametrize("rules", [["example.com"], ["*.example.com:8443"], ["a.example.com", "b.example.com:22"]])
@pytest.mark.parametrize("profile", ["", *PROFILES])
def test_hosts_to_reach_are_refused_while_nothing_reaches_them(daemon, rules, profile):
    before = daemon.ids()
    with refused("FEATURE_UNSUPPORTED") as error:
        daemon.create(egress=rules, profile=profile)
    assert error.code == "FAILED_PRECONDITION"
    assert "egress" in error.message
    assert daemon.ids() == before


def test_no_hosts_to_reach_are_none(daemon):
    sandbox = daemon.ready(egress=[])
    assert daemon.shell(sandbox, "ls /sys/class/net") == "lo\n"
    daemon.remove(sandbox)
