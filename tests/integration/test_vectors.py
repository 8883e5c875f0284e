# SPDX-License-Identifier: Apache-2.0
"""The vectors of spec/, asked of the daemon through the contract.

Those of states and output stand with their subject, as do environments of one layer. What cannot be asked is nowhere:
an empty text where that means none, names and the removal of paths as long as no method takes them, more layers of the
environment than sandbox and exec."""

import base64
import json
import signal
import sqlite3

import pytest
from conformance import vectors
from google.protobuf import message as protobuf
from hutch.v1 import exec_pb2, sandbox_pb2
from hutchd import LIMIT, Client, Daemon, Refusal, RestingDaemon, field, refused, seconds, wait_until
from test_exec_process import DEFAULTS, environment_of

import grpc

NOBODY, NOGROUP = 65534, 65534
SANDBOXES = "AgentSandboxService"
CREATED = sandbox_pb2.CreateSandboxResponse
CLAMPED_BY = {"profile": sandbox_pb2.CLAMPED_BY_PROFILE, "operator": sandbox_pb2.CLAMPED_BY_OPERATOR}


@pytest.fixture(scope="module", name="resting")
def start_resting():
    daemon = RestingDaemon()
    yield daemon.begin()
    daemon.wipe()


def by_name(cases: list[dict]):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case["name"])


def reason_of(case: dict) -> str | None:
    return case.get("error", {}).get("reason")


def bytes_of(case: dict, key: str) -> bytes:
    """An input, which need not be UTF-8."""
    encoded = case["in"].get(f"{key}_base64")
    return case["in"][key].encode() if encoded is None else base64.b64decode(encoded)


def with_bytes(request: protobuf.Message, data: bytes) -> bytes:
    """@request as it is sent, with @data for its text of as many Z."""
    sent, place = request.SerializeToString(), b"Z" * len(data)
    assert not data or sent.count(place) == 1
    return sent.replace(place, data) if data else sent


def call(client: Client, method: str, request: bytes, answer: type[protobuf.Message]):
    """Calls a method that has one answer with bytes as they are."""
    return client.channel.unary_unary(f"/hutch.v1.{method}", None, answer.FromString)(request, timeout=LIMIT)


def violations(ask, *arguments) -> dict[str, str]:
    """The fields that are told to be wrong, each with its reason."""
    with pytest.raises(grpc.RpcError) as caught:
        ask(*arguments)
    told = Refusal(caught.value)
    told.check()
    assert told.code == "INVALID_ARGUMENT"
    return dict(told.fields)


# ---- Ids: asked for with another field that is wrong, so that nothing happens ----


@pytest.mark.vectors("ids")
@by_name([case for case in vectors("ids") if case["in"]["kind"] == "id"])
def test_ids(daemon, case):
    data = bytes_of(case, "text")
    sent = with_bytes(sandbox_pb2.WatchEventsRequest(sandbox_ids=["Z" * len(data)], types=[99]), data)
    watch = daemon.channel.unary_stream(f"/hutch.v1.{SANDBOXES}/WatchEvents", None, None)
    found = violations(next, watch(sent, timeout=LIMIT))
    assert found.get("sandbox_ids[0]") == reason_of(case)


@pytest.mark.rules("ID-001")
def test_ids_are_case_sensitive(resting):
    resting.create("sb-Case")
    resting.create("sb-case")
    with refused("SANDBOX_NOT_FOUND"):
        resting.get("SB-CASE")


@pytest.mark.vectors("ids")
@by_name([case for case in vectors("ids") if case["in"]["kind"] == "request-id" and case["in"].get("text") != ""])
def test_request_ids(daemon, case):
    data = bytes_of(case, "text")
    request = sandbox_pb2.CreateSandboxRequest(request_id="Z" * len(data), spec={"profile": "none"})
    found = violations(call, daemon, f"{SANDBOXES}/CreateSandbox", with_bytes(request, data), CREATED)
    assert found.get("request_id") == reason_of(case)


# ---- Labels and selectors ----


@pytest.mark.vectors("labels")
@by_name(vectors("labels"))
def test_labels(daemon, case):
    spec = sandbox_pb2.SandboxSpec(profile="none").SerializeToString()
    label = field(1, bytes_of(case, "key")) + field(2, bytes_of(case, "value"))
    found = violations(call, daemon, f"{SANDBOXES}/CreateSandbox", field(2, spec + field(4, label)), CREATED)
    found.pop("spec.profile", None)
    assert list(found.values()) == [reason_of(case)] * ("error" in case)


@pytest.mark.rules("LABEL-004")
def test_an_object_has_at_most_64_labels(resting):
    labels = {f"label-{n}": "" for n in range(64)}
    sandbox = resting.create(labels=labels).id
    assert len(resting.update(sandbox, "labels", labels=labels).spec.labels) == 64
    with refused("LABELS_TOO_MANY", "spec.labels"):
        resting.create(labels=labels | {"more": ""})
    with refused("LABELS_TOO_MANY", "spec.labels"):
        resting.update(sandbox, "labels", labels=labels | {"more": ""})


SELECTORS = vectors("selectors")


@pytest.fixture(scope="module", name="selected_from")
def make_selected_from(resting):
    """The sandboxes of the selectors: of their labels, in order, to their ids."""
    made = {}
    for case in SELECTORS:
        labels = case["in"]["labels"]
        if in_order(labels) not in made:
            # No caller can give it a label of the daemon's own: that is put into the store.
            given = {key.replace("hutch/", "owned/"): value for key, value in labels.items()}
            made[in_order(labels)] = resting.create(labels=given).id
            resting.wait(made[in_order(labels)], "FAILED")
    resting.kill()
    with sqlite3.connect(resting.state / "hutch.db") as store:
        for serial, labels, spec in store.execute("SELECT sandbox_serial, labels, spec FROM sandbox_specs").fetchall():
            changed = labels.replace("owned/", "hutch/"), spec.replace(b"owned/", b"hutch/"), serial
            store.execute("UPDATE sandbox_specs SET labels = ?, spec = ? WHERE sandbox_serial = ?", changed)
    store.close()
    resting.begin()
    return made


def in_order(labels: dict[str, str]) -> tuple:
    return tuple(sorted(labels.items()))


@pytest.fixture(scope="module", name="nobody")
def make_nobody(resting, selected_from):
    """A caller who has nothing that he could delete."""
    assert selected_from
    return resting.client(NOBODY, NOGROUP)


@pytest.mark.vectors("selectors")
@by_name(SELECTORS)
def test_selectors(resting, selected_from, nobody, case):
    data = bytes_of(case, "selector")
    listing = with_bytes(sandbox_pb2.ListSandboxesRequest(selector="Z" * len(data)), data)
    deleting = with_bytes(sandbox_pb2.DeleteSandboxesRequest(selector="Z" * len(data)), data)
    ask_list = resting, f"{SANDBOXES}/ListSandboxes", listing, sandbox_pb2.ListSandboxesResponse
    ask_delete = nobody, f"{SANDBOXES}/DeleteSandboxes", deleting, sandbox_pb2.DeleteSandboxesResponse
    if "error" in case:
        assert violations(call, *ask_list) == violations(call, *ask_delete) == {"selector": reason_of(case)}
        return
    page = call(*ask_list)
    matches = selected_from[in_order(case["in"]["labels"])] in [sandbox.id for sandbox in page.sandboxes]
    assert (matches, page.next_page_token) == (case["out"]["matches"], "")
    if case["out"]["empty"]:
        assert violations(call, *ask_delete) == {"selector": "SELECTOR_EMPTY"}
    else:
        assert not call(*ask_delete).sandbox_ids


# ---- The environment ----


@pytest.mark.vectors("env")
@by_name([case for case in vectors("env") if len(case["in"]["layers"]) in (0, 2)])
def test_environments_of_sandbox_and_exec(daemon, case):
    of_sandbox, of_exec = [*case["in"]["layers"], {}, {}][:2]
    unset = [name for name in DEFAULTS if name not in of_sandbox | of_exec] + case["in"].get("unset", [])
    if "error" in case:
        with refused(reason_of(case)):
            daemon.start(daemon.create(env=of_sandbox).id, "true", env=of_exec, unset_env=unset)
        return
    made = daemon.create(env=of_sandbox).id
    assert environment_of(daemon, made, env=of_exec, unset_env=unset) == case["out"]["env"]
    daemon.delete(made)


# ---- Paths ----

PATHS = [case for case in vectors("paths") if case["in"].get("use") != "remove" and case["in"].get("path") != ""]


@pytest.fixture(scope="module", name="places")
def make_places(daemon):
    """Sandboxes, by their working directory."""
    places = {case["in"].get("working_directory", "/workspace") for case in PATHS}
    made = {place: daemon.create(working_directory=place).id for place in sorted(places)}
    yield made
    daemon.remove(*made.values())


def resolve(daemon: Daemon, sandbox_id: str, path: bytes) -> str:
    """The working directory of a command that asks for @path."""
    spec = {"argv": ["true"], "working_directory": "Z" * len(path)}
    sent = with_bytes(exec_pb2.CreateExecRequest(sandbox_id=sandbox_id, spec=spec), path)
    return call(daemon, "ExecService/CreateExec", sent, exec_pb2.CreateExecResponse).exec.spec.working_directory


@pytest.mark.vectors("paths")
@by_name([case for case in PATHS if case["in"].get("use") != "absolute"])
def test_paths(daemon, places, case):
    asked = daemon, places[case["in"].get("working_directory", "/workspace")], bytes_of(case, "path")
    if "error" in case:
        assert violations(resolve, *asked) == {"spec.working_directory": reason_of(case)}
    else:
        assert resolve(*asked) == case["out"]["path"]


@pytest.mark.vectors("paths")
@by_name([case for case in PATHS if case["in"].get("use") == "absolute"])
def test_absolute_paths(daemon, case):
    """Those of a sandbox's working directory and of its workspace."""
    path = bytes_of(case, "path")
    text = "Z" * len(path)
    specs = {"working_directory": {"working_directory": text}, "workspace.target": {"workspace": {"target": text}}}
    for name, spec in specs.items():
        sent = with_bytes(sandbox_pb2.CreateSandboxRequest(spec=spec), path)
        asked = call, daemon, f"{SANDBOXES}/CreateSandbox", sent, CREATED
        if "error" in case:
            assert violations(*asked) == {f"spec.{name}": reason_of(case)}
        elif case["in"]["path"] != "/" or "working_directory" in spec:  # the root can be no workspace
            made = call(*asked[1:]).sandbox.id
            assert resolve(daemon, made, b".") == case["out"]["path"]
            daemon.delete(made)


# ---- Durations ----

TTL_MAX = 3650 * 86400  # seconds that the configuration takes


@by_name([case for case in vectors("durations") if case.get("out", {}).get("seconds", 0) <= TTL_MAX])
def test_durations_of_the_configuration(resting, case):
    """Not results for the vectors: what is wrong is told without a reason here, and no duration is written out."""
    resting.configure(sandboxes={"idle_ttl": case["in"]["text"]})
    if "error" in case:
        checked = resting.call("--check-config")
        assert checked.returncode == 1 and "config.yaml:1: " in checked.stderr
        return
    resting.signal(signal.SIGHUP)
    wanted = case["out"]["seconds"] * 10**9 + case["out"]["nanos"]
    wait_until(lambda: resting.info().limits.default_idle_ttl.ToNanoseconds() == wanted)


# ---- Profiles ----

CAPS = {
    "memory_bytes": "memory",
    "cpu_millis": "cpu_millis",
    "max_processes": "processes",
    "max_open_files": "open_files",
    "disk_bytes": "disk",
    "tmp_bytes": "tmp",
    "exec_timeout_ms": "exec_timeout",
}
OTHER_LIMITS = ("disk_inodes", "cpu_weight", "io_weight")  # which the vectors do not have


@pytest.fixture(scope="module", name="capped")
def start_capped():
    """A daemon that takes limits that it cannot enforce. The caps are the test's."""
    daemon = RestingDaemon()
    daemon.configure(sandboxes={"allow_unenforced_limits": True})
    yield daemon.begin()
    daemon.wipe()


def set_caps(daemon: RestingDaemon, caps: dict) -> None:
    wanted = limits_of(caps)
    if daemon.info().limits.caps != wanted:
        texts = {CAPS[name]: f"{cap}ms" if name == "exec_timeout_ms" else cap for name, cap in caps.items()}
        daemon.configure(sandboxes={"allow_unenforced_limits": True}, caps=texts)
        daemon.signal(signal.SIGHUP)
        wait_until(lambda: daemon.info().limits.caps == wanted)


def limits_of(values: dict) -> sandbox_pb2.ResourceLimits:
    """Limits of the vectors as the contract has them."""
    limits = dict(values)
    if "exec_timeout_ms" in limits:
        limits["exec_timeout"] = seconds(limits.pop("exec_timeout_ms") / 1000)
    return sandbox_pb2.ResourceLimits(**limits)


def clamped_of(clamped: dict) -> sandbox_pb2.ClampedLimit:
    name, by = clamped["field"], CLAMPED_BY[clamped["by"]]
    texts = [json.dumps(clamped[key]) for key in ("requested", "effective")]
    if name == "exec_timeout_ms":
        name = "exec_timeout"
        texts = [seconds(int(text) / 1000).ToJsonString() for text in texts]
    return sandbox_pb2.ClampedLimit(field=name, requested=texts[0], effective=texts[1], by=by)


@pytest.mark.vectors("profiles", "PROF-002", "PROF-003", "PROF-004", "PROF-005")
@by_name(vectors("profiles"))
def test_profiles(capped, case):
    """Not results for the rule about their names, which is also about a service that is not served."""
    wanted = case["in"]
    set_caps(capped, wanted["caps"])
    if "error" in case:
        with refused(reason_of(case)):
            capped.create(profile=wanted["profile"], limits=limits_of(wanted["request"]))
        return
    effective = capped.create(profile=wanted["profile"], limits=limits_of(wanted["request"])).effective
    for name in OTHER_LIMITS:
        effective.limits.ClearField(name)
    assert effective.limits == limits_of(case["out"]["effective"])
    assert list(effective.clamped) == [clamped_of(clamped) for clamped in case["out"]["clamped"]]
