# SPDX-License-Identifier: Apache-2.0
"""Requests to AgentSandboxService and SystemService that are wrong, and requests that come twice."""

import pytest
from google.protobuf import duration_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from hutch.v1 import exec_pb2, policy_pb2, policy_pb2_grpc, sandbox_pb2, system_pb2
from hutchd import LIMIT, MIB, Refusal, refused, state_name, wait_until

import grpc

SERVICE = "/hutch.v1.AgentSandboxService/"
SERVICES = [
    "hutch.v1.AgentSandboxService",
    "hutch.v1.ExecService",
    "hutch.v1.SandboxExecService",
    "hutch.v1.FileService",
    "hutch.v1.SystemService",
]
DAY = 86400


def spec(**fields) -> sandbox_pb2.CreateSandboxRequest:
    return sandbox_pb2.CreateSandboxRequest(spec=sandbox_pb2.SandboxSpec(**fields))


def raw(daemon, method: str, request: bytes):
    """Calls @method with bytes as they are."""
    call = daemon.channel.unary_unary(SERVICE + method, lambda data: data, lambda data: data)
    return call(request, timeout=LIMIT)


# ---- What is wrong with a spec ----

BAD_SPECS = {
    "id too short": (sandbox_pb2.CreateSandboxRequest(sandbox_id="abc"), "ID_MALFORMED", "sandbox_id"),
    "id with a slash": (sandbox_pb2.CreateSandboxRequest(sandbox_id="../../etc"), "ID_MALFORMED", "sandbox_id"),
    "id too long": (sandbox_pb2.CreateSandboxRequest(sandbox_id="a" * 201), "ID_MALFORMED", "sandbox_id"),
    "request id": (sandbox_pb2.CreateSandboxRequest(request_id="a b"), "REQUEST_ID_MALFORMED", "request_id"),
    "request id too long": (
        sandbox_pb2.CreateSandboxRequest(request_id="a" * 129),
        "REQUEST_ID_MALFORMED",
        "request_id",
    ),
    "label key": (spec(labels={"-a": "b"}), "LABEL_MALFORMED", "spec.labels[-a]"),
    "label value": (spec(labels={"a": "b c"}), "LABEL_MALFORMED", "spec.labels[a]"),
    "reserved label": (spec(labels={"hutch/x": "1"}), "LABEL_RESERVED", "spec.labels[hutch/x]"),
    "many labels": (spec(labels={f"l{n}": "" for n in range(65)}), "LABELS_TOO_MANY", "spec.labels"),
    "env name": (spec(env={"A=B": "c"}), "ENV_NAME_MALFORMED", "spec.env[A=B]"),
    "env without name": (spec(env={"": "c"}), "ENV_NAME_MALFORMED", "spec.env[]"),
    "env with NUL": (spec(env={"A": "a\0b"}), "ENV_VALUE_MALFORMED", "spec.env[A]"),
    "command without program": (spec(command=["", "x"]), "ARGV_EMPTY", "spec.command[0]"),
    "command with NUL": (spec(command=["true", "a\0b"]), "ARGV_MALFORMED", "spec.command[1]"),
    "relative directory": (spec(working_directory="x"), "PATH_NOT_ABSOLUTE", "spec.working_directory"),
    "directory that climbs": (spec(working_directory="/x/../y"), "PATH_DOTDOT", "spec.working_directory"),
    "directory with a newline": (spec(working_directory="/a\n"), "PATH_CONTROL_CHARACTER", "spec.working_directory"),
    "long directory": (spec(working_directory="/a" * 2049), "PATH_TOO_LONG", "spec.working_directory"),
    "long component": (spec(working_directory="/" + "a" * 256), "PATH_COMPONENT_TOO_LONG", "spec.working_directory"),
    "user": (spec(user="a b"), "FIELD_INVALID", "spec.user"),
    "profile": (spec(profile="nosuch"), "PROFILE_UNKNOWN", "spec.profile"),
    "runtime": (spec(runtime="nosuch"), "RUNTIME_UNKNOWN", "spec.runtime"),
    "lifetime action": (spec(lifetime_action=77), "FIELD_INVALID", "spec.lifetime_action"),
    "idle action": (spec(idle_action=77), "FIELD_INVALID", "spec.idle_action"),
    "image too long": (spec(image="a" * 513), "FIELD_TOO_LONG", "spec.image"),
    "image and snapshot": (spec(image="host", snapshot="x"), "FIELD_CONFLICT", "spec.snapshot"),
    "negative ttl": (spec(idle_ttl=duration_pb2.Duration(seconds=-1)), "DURATION_OUT_OF_RANGE", "spec.idle_ttl"),
    "ttl of eleven years": (
        spec(idle_ttl=duration_pb2.Duration(seconds=11 * 365 * DAY)),
        "DURATION_OUT_OF_RANGE",
        "spec.idle_ttl",
    ),
    "lifetime": (
        spec(max_lifetime=duration_pb2.Duration(seconds=1 << 60)),
        "DURATION_OUT_OF_RANGE",
        "spec.max_lifetime",
    ),
    "open files": (spec(limits={"max_open_files": 15}), "LIMIT_TOO_SMALL", "spec.limits.max_open_files"),
    "tmp": (spec(limits={"tmp_bytes": 65535}), "LIMIT_TOO_SMALL", "spec.limits.tmp_bytes"),
    "memory": (spec(limits={"memory_bytes": 8 * MIB - 1}), "LIMIT_TOO_SMALL", "spec.limits.memory_bytes"),
    "exec timeout": (
        spec(limits={"exec_timeout": duration_pb2.Duration(nanos=999_999)}),
        "LIMIT_TOO_SMALL",
        "spec.limits.exec_timeout",
    ),
    "weight": (spec(limits={"cpu_weight": 10001}), "FIELD_OUT_OF_RANGE", "spec.limits.cpu_weight"),
    "workspace at the root": (spec(workspace={"target": "/"}), "FIELD_INVALID", "spec.workspace.target"),
    "read-only workspace of its own": (
        spec(workspace={"read_only": True}),
        "FIELD_INVALID",
        "spec.workspace.read_only",
    ),
}


@pytest.mark.rules("ERR-001")
@pytest.mark.parametrize("name", BAD_SPECS)
def test_create_refuses(daemon, name):
    request, reason, field = BAD_SPECS[name]
    before = daemon.ids()
    with refused(reason, field):
        daemon.sandboxes.CreateSandbox(request, timeout=LIMIT)
    assert daemon.ids() == before


def test_create_tells_every_violation_at_once(daemon):
    request = sandbox_pb2.CreateSandboxRequest(
        sandbox_id="x",
        request_id="?",
        spec=sandbox_pb2.SandboxSpec(
            labels={"hutch/a": "", "ok": "no way"},
            env={"A=": "x"},
            working_directory="..",
            profile="nosuch",
            idle_ttl=duration_pb2.Duration(seconds=-5),
            limits={"max_open_files": 1},
        ),
    )
    with refused("ID_MALFORMED") as error:
        daemon.sandboxes.CreateSandbox(request, timeout=LIMIT)
    assert set(error.fields) == {
        ("sandbox_id", "ID_MALFORMED"),
        ("request_id", "REQUEST_ID_MALFORMED"),
        ("spec.labels[hutch/a]", "LABEL_RESERVED"),
        ("spec.labels[ok]", "LABEL_MALFORMED"),
        ("spec.env[A=]", "ENV_NAME_MALFORMED"),
        ("spec.working_directory", "PATH_NOT_ABSOLUTE"),
        ("spec.profile", "PROFILE_UNKNOWN"),
        ("spec.idle_ttl", "DURATION_OUT_OF_RANGE"),
        ("spec.limits.max_open_files", "LIMIT_TOO_SMALL"),
    }
    assert len(error.fields) == 9


UNSUPPORTED = {
    "image": {"image": "debian:12"},
    "companions": {"companions": [{"name": "db", "image": "x"}]},
    "ports": {"ports": [{"sandbox_port": 80}]},
    "gpus": {"gpus": {"count": 1}},
    "secrets": {"secrets": [{"name": "a", "env": "A"}]},
    "egress": {"egress": ["example.com"]},
    "policy": {"policy": policy_pb2.Policy()},
    "providers": {"providers": ["a"]},
    "snapshot": {"snapshot": "a"},
    "env": {"env": {"A": "secret://name"}},
}


@pytest.mark.rules("ERR-007")
@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_the_daemon_does_not_have_is_refused_not_ignored(daemon, name):
    with refused("FEATURE_UNSUPPORTED"):
        daemon.create(**UNSUPPORTED[name])


@pytest.mark.rules("ERR-007", "PROF-006")
def test_a_limit_that_cannot_be_enforced_is_refused(daemon):
    if "io_weight" not in daemon.info().runtimes[0].not_enforced:
        pytest.skip("this host enforces all limits")
    with refused("LIMIT_NOT_ENFORCEABLE"):
        daemon.create(limits={"io_weight": 200})


@pytest.mark.rules("PROF-006")
def test_a_limit_that_cannot_be_enforced_is_reported_where_the_operator_allows_it(start_daemon):
    daemon = start_daemon({"sandboxes": {"allow_unenforced_limits": True}, "caps": {"open_files": 512}})
    if "io_weight" not in daemon.info().runtimes[0].not_enforced:
        pytest.skip("this host enforces all limits")
    sandbox = daemon.create(limits={"io_weight": 200, "max_open_files": 4096}, profile="standard")
    assert sandbox.effective.limits.io_weight == 200
    assert "io_weight" in sandbox.effective.not_enforced
    [clamped] = sandbox.effective.clamped
    assert (clamped.field, clamped.requested, clamped.effective) == ("max_open_files", "4096", "512")
    assert clamped.by == sandbox_pb2.CLAMPED_BY_OPERATOR
    daemon.wait(sandbox.id, "READY")
    assert daemon.shell(sandbox.id, "ulimit -n").strip() == "512"


@pytest.mark.rules("PROF-003")
def test_what_a_profile_tightens_is_in_force(daemon):
    sandbox_id = daemon.ready(profile="strict", limits={"read_only_root": False})
    effective = daemon.get(sandbox_id).effective
    assert effective.profile == "strict"
    clamped = [(one.field, one.requested, one.effective) for one in effective.clamped]
    assert ("read_only_root", "false", "true") in clamped
    assert daemon.run(sandbox_id, "touch", "/etc/x", user="0").exec.result.exit_code != 0
    assert daemon.run(sandbox_id, "touch", "/workspace/x", "/tmp/x").exec.result.exit_code == 0
    assert daemon.run(sandbox_id, "sh", "-c", "cp /bin/true /tmp && /tmp/true").exec.result.exit_code == 126
    assert daemon.shell(sandbox_id, "ls /sys/class/net") == "lo\n"
    daemon.remove(sandbox_id)


# ---- The other methods ----

NEEDS_ID = {
    "GetSandbox": sandbox_pb2.GetSandboxRequest,
    "UpdateSandbox": sandbox_pb2.UpdateSandboxRequest,
    "StopSandbox": sandbox_pb2.StopSandboxRequest,
    "ResumeSandbox": sandbox_pb2.ResumeSandboxRequest,
    "PauseSandbox": sandbox_pb2.PauseSandboxRequest,
    "UnpauseSandbox": sandbox_pb2.UnpauseSandboxRequest,
    "DeleteSandbox": sandbox_pb2.DeleteSandboxRequest,
}


@pytest.mark.parametrize("method", NEEDS_ID)
@pytest.mark.parametrize("sandbox_id, reason", [("", "FIELD_REQUIRED"), ("-bad", "ID_MALFORMED")])
def test_an_id_is_required(daemon, method, sandbox_id, reason):
    with refused(reason) as error:
        getattr(daemon.sandboxes, method)(NEEDS_ID[method](sandbox_id=sandbox_id), timeout=LIMIT)
    assert ("sandbox_id", reason) in error.fields


@pytest.mark.parametrize("method", [name for name in NEEDS_ID if name != "UpdateSandbox"])
def test_an_unknown_id_is_not_found(daemon, method):
    with refused("SANDBOX_NOT_FOUND"):
        getattr(daemon.sandboxes, method)(NEEDS_ID[method](sandbox_id="sb-unknown"), timeout=LIMIT)


@pytest.mark.parametrize("method", [*NEEDS_ID, "CreateSandbox", "ListSandboxes", "DeleteSandboxes"])
@pytest.mark.parametrize("data", [b"\xff", b"\x0a\xff", b"\x0a\x05ab"])
def test_what_is_no_message_is_refused(daemon, method, data):
    with pytest.raises(grpc.RpcError) as error:
        raw(daemon, method, data)
    assert error.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL)
    assert Refusal(error.value).reason
    assert daemon.system.Ping(system_pb2.PingRequest(), timeout=LIMIT) == system_pb2.PingResponse()


@pytest.mark.parametrize("text", [b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"])
def test_text_that_is_not_utf8_is_refused(daemon, text):
    """The fields are CreateSandboxRequest.spec, SandboxSpec.image."""
    with refused("FIELD_NOT_UTF8", "spec.image"):
        raw(daemon, "CreateSandbox", bytes([0x12, len(text) + 2, 0x0A, len(text)]) + text)


def test_text_with_nul_is_refused(daemon):
    with refused("FIELD_INVALID", "spec.image"):
        raw(daemon, "CreateSandbox", b"\x12\x06\x0a\x04ho\0s")


def test_a_message_that_is_too_large_is_refused(daemon):
    with refused("MESSAGE_TOO_LARGE") as error:
        daemon.create(labels={"a": "x" * (4 * MIB)})
    assert error.metadata["value"] == str(4 * MIB)


BAD_UPDATES = {
    "no mask": ((), {}, "FIELD_MASK_INVALID", "update_mask"),
    "unknown": (("nosuch",), {}, "FIELD_MASK_INVALID", "update_mask.paths[0]"),
    "unchangeable": (("labels", "image"), {}, "FIELD_MASK_INVALID", "update_mask.paths[1]"),
    "label": (("labels",), {"labels": {"hutch/a": "x"}}, "LABEL_RESERVED", "spec.labels[hutch/a]"),
    "ttl": (
        ("idle_ttl",),
        {"idle_ttl": duration_pb2.Duration(seconds=-1)},
        "DURATION_OUT_OF_RANGE",
        "spec.idle_ttl",
    ),
    "action": (("lifetime_action",), {"lifetime_action": 9}, "FIELD_INVALID", "spec.lifetime_action"),
    "idle action": (("idle_action",), {"idle_action": 9}, "FIELD_INVALID", "spec.idle_action"),
}


@pytest.mark.rules("ERR-001", "LIST-004")
@pytest.mark.parametrize("name", BAD_UPDATES)
def test_update_refuses(daemon, shared_sandbox, name):
    mask, fields, reason, field = BAD_UPDATES[name]
    before = daemon.get(shared_sandbox)
    with refused(reason, field):
        daemon.update(shared_sandbox, *mask, **fields)
    assert daemon.get(shared_sandbox).sequence == before.sequence


@pytest.mark.parametrize("grace, reason", [(-1, "DURATION_OUT_OF_RANGE"), (601, "FIELD_OUT_OF_RANGE")])
def test_stop_refuses_a_bad_grace(daemon, shared_sandbox, grace, reason):
    with refused(reason, "grace"):
        daemon.stop(shared_sandbox, grace)
    assert state_name(daemon.get(shared_sandbox)) == "READY"


BAD_LISTS = {
    "selector": ({"selector": "a in ()"}, "SELECTOR_MALFORMED", "selector"),
    "state": ({"states": [99]}, "FIELD_INVALID", "states[0]"),
    "token": ({"page_token": "xyz"}, "PAGE_TOKEN_INVALID", "page_token"),
    "all": ({"selector": ",", "states": [1, 99], "page_token": "?"}, "SELECTOR_MALFORMED", "selector"),
}


@pytest.mark.rules("ERR-001")
@pytest.mark.parametrize("name", BAD_LISTS)
def test_list_refuses(daemon, name):
    filters, reason, field = BAD_LISTS[name]
    with refused(reason) as error:
        daemon.all(**filters)
    assert error.fields[0][0] == field
    assert len(error.fields) == (3 if name == "all" else 1)


@pytest.mark.rules("SELECT-005")
@pytest.mark.parametrize("selector", ["", "   "])
def test_deleting_by_an_empty_selector_is_refused(daemon, selector):
    with refused("SELECTOR_EMPTY", "selector"):
        daemon.sandboxes.DeleteSandboxes(sandbox_pb2.DeleteSandboxesRequest(selector=selector), timeout=LIMIT)


BAD_WATCHES = {
    "selector": ({"selector": "="}, "SELECTOR_MALFORMED", "selector"),
    "id": ({"sandbox_ids": ["good-id", "x"]}, "ID_MALFORMED", "sandbox_ids[1]"),
    "many ids": ({"sandbox_ids": [f"sb-{n}" for n in range(1001)]}, "FIELD_TOO_LONG", "sandbox_ids"),
    "type": ({"types": [99]}, "FIELD_INVALID", "types[0]"),
    "snapshot and cursor": ({"include_snapshot": True, "after_cursor": 0}, "FIELD_CONFLICT", None),
    "sequence of many": ({"after_sequence": 0, "sandbox_ids": ["sb-a1", "sb-b1"]}, "FIELD_INVALID", None),
    "sequence of none": ({"after_sequence": 0}, "FIELD_INVALID", None),
    "sequence and cursor": (
        {"after_sequence": 0, "after_cursor": 0, "sandbox_ids": ["sb-a1"]},
        "FIELD_CONFLICT",
        None,
    ),
    "cursor": ({"after_cursor": 1 << 60}, "CURSOR_INVALID", "after_cursor"),
}


@pytest.mark.rules("ERR-001", "EVENT-006")
@pytest.mark.parametrize("name", BAD_WATCHES)
def test_watch_refuses(daemon, name):
    request, reason, field = BAD_WATCHES[name]
    with refused(reason) as error:
        next(daemon.sandboxes.WatchEvents(sandbox_pb2.WatchEventsRequest(**request), timeout=LIMIT))
    if field:
        assert error.fields[0][0] == field


@pytest.mark.rules("EVENT-006")
def test_a_sequence_that_was_never_given_out_is_refused(daemon, shared_sandbox):
    with refused("CURSOR_INVALID"):
        daemon.watch(sandbox_ids=[shared_sandbox], after_sequence=1 << 40)


def test_methods_of_other_services_are_unimplemented(daemon):
    with refused("METHOD_UNIMPLEMENTED"):
        policies = policy_pb2_grpc.PolicyServiceStub(daemon.channel)
        policies.GetPolicy(policy_pb2.GetPolicyRequest(sandbox_id="any-one"), timeout=LIMIT)
    with refused("METHOD_UNIMPLEMENTED"):
        raw(daemon, "NoSuchMethod", b"")


# ---- The daemon about itself ----


@pytest.mark.rules("LIFE-005")
def test_info(daemon):
    info = daemon.info()
    assert info.version and info.instance_id and info.start_time.seconds
    assert info.caller == "uid:0" and info.caller_is_admin
    assert info.limits.max_request_bytes == 4 * MIB
    assert info.limits.default_idle_ttl.seconds == 600
    assert info.limits.history_retention.seconds == 15 * DAY
    assert [runtime.name for runtime in info.runtimes] == ["native"]
    assert info.runtimes[0].available and "pause" in info.runtimes[0].features
    assert {profile.name for profile in info.profiles} >= {"default", "strict", "standard", "permissive"}
    assert info.host.kernel and info.host.cpus and info.host.memory_bytes and not info.host.rootless


def test_info_counts_sandboxes_and_execs(own_daemon):
    sandbox_id = own_daemon.ready()
    exec_id = own_daemon.start(sandbox_id, "sleep", "100").id
    assert (own_daemon.info().sandboxes, own_daemon.info().active_execs) == (1, 1)
    own_daemon.cancel(sandbox_id, exec_id, 0)
    own_daemon.wait_exec(sandbox_id, exec_id)
    own_daemon.remove(sandbox_id)
    assert (own_daemon.info().sandboxes, own_daemon.info().active_execs) == (0, 0)


@pytest.mark.parametrize("service", ["", *SERVICES])
def test_health(daemon, service):
    stub = health_pb2_grpc.HealthStub(daemon.channel)
    answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=LIMIT)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection(daemon):
    database = ProtoReflectionDescriptorDatabase(daemon.channel)
    names = set(database.get_services())
    assert set(SERVICES) <= names
    assert "CreateSandbox" in str(database.FindFileContainingSymbol("hutch.v1.AgentSandboxService"))


# ---- Requests that come twice ----


@pytest.mark.rules("IDEM-001")
def test_the_same_create_again_gets_the_same_sandbox(daemon):
    first = daemon.create(request_id="create-1", labels={"a": "1"})
    again = daemon.create(request_id="create-1", labels={"a": "1"})
    assert again.id == first.id
    daemon.remove(first.id)
    assert daemon.create(request_id="create-1", labels={"a": "1"}).id == first.id


@pytest.mark.rules("IDEM-001")
def test_the_order_of_maps_makes_no_difference(daemon):
    """Maps and fields have no order on the wire."""

    def labels(*names: str) -> bytes:
        entries = [b"\x0a\x01%b\x12\x01x" % name.encode() for name in names]
        body = b"".join(b"\x22" + bytes([len(entry)]) + entry for entry in entries)
        return b"\x12" + bytes([len(body)]) + body

    request_id = b"\x1a\x05map-1"
    requests = [labels("a", "b", "c") + request_id, request_id + labels("c", "a", "b")]
    answers = [raw(daemon, "CreateSandbox", request) for request in requests]
    ids = {sandbox_pb2.CreateSandboxResponse.FromString(answer).sandbox.id for answer in answers}
    assert len(ids) == 1
    daemon.remove(*ids)


@pytest.mark.rules("IDEM-001")
def test_a_repeat_has_its_answer_whatever_changed_meanwhile(own_daemon, tmp_path):
    """What the first request was accepted for, no new one would be."""
    daemon, source = own_daemon, tmp_path / "source"
    source.mkdir()
    daemon.write_config({"sources": {"read": [str(tmp_path)]}})
    daemon.restart()
    mounts = [{"source": str(source), "target": "/data"}]
    sandbox = daemon.create(request_id="create-1", mounts=mounts).id
    daemon.wait(sandbox, "READY")
    run = exec_pb2.RunCommandRequest(sandbox_id=sandbox, request_id="run-1", output_limit_bytes=MIB)
    run.spec.argv.append("true")
    ran = daemon.execs.RunCommand(run, timeout=LIMIT)
    started = daemon.start(sandbox, "true", request_id="exec-1", output_limit_bytes=MIB)

    source.rmdir()
    limits = {"sandboxes": 1, "run_output": "1KiB", "max_exec_output": "1KiB"}
    daemon.write_config({"limits": limits, "sources": {"read": []}})
    daemon.restart()
    with refused("SOURCE_NOT_ALLOWED"):
        daemon.create(mounts=mounts)
    with refused("QUOTA_EXCEEDED"):
        daemon.create()
    with refused("FIELD_OUT_OF_RANGE"):
        daemon.start(sandbox, "true", output_limit_bytes=MIB)
    assert daemon.create(request_id="create-1", mounts=mounts).id == sandbox
    assert daemon.start(sandbox, "true", request_id="exec-1", output_limit_bytes=MIB).id == started.id
    assert daemon.execs.RunCommand(run, timeout=LIMIT).exec.id == ran.exec.id


@pytest.mark.rules("IDEM-002")
def test_another_request_with_the_same_request_id_is_refused(daemon):
    first = daemon.create(request_id="create-2", labels={"a": "1"})
    with refused("REQUEST_ID_REUSED"):
        daemon.create(request_id="create-2", labels={"a": "2"})
    daemon.remove(first.id)


@pytest.mark.rules("IDEM-001")
def test_request_ids_of_different_methods_do_not_meet(daemon):
    first = daemon.ready(request_id="shared-id")
    daemon.stop(first, 0)
    daemon.wait(first, "STOPPED")
    daemon.resume(first, request_id="shared-id")
    daemon.wait(first, "READY")
    daemon.remove(first)


@pytest.mark.rules("IDEM-001")
def test_a_late_repeat_of_a_resume_does_not_resume_again(daemon):
    sandbox_id = daemon.ready()
    for _ in range(2):
        daemon.stop(sandbox_id, 0)
        daemon.wait(sandbox_id, "STOPPED")
        daemon.resume(sandbox_id, request_id="resume-1")
    assert state_name(daemon.get(sandbox_id)) == "STOPPED"
    daemon.remove(sandbox_id)


def test_a_refused_request_leaves_its_request_id_free(daemon):
    with refused("PROFILE_UNKNOWN"):
        daemon.create(request_id="create-3", profile="nosuch")
    daemon.remove(daemon.create(request_id="create-3").id)


def test_request_ids_are_remembered_across_restarts(own_daemon):
    first = own_daemon.create("sb-once", request_id="r1")
    own_daemon.restart(kill=True)
    assert own_daemon.create("sb-once", request_id="r1").id == first.id
    with refused("REQUEST_ID_REUSED"):
        own_daemon.create("sb-other", request_id="r1")


@pytest.mark.rules("ID-003")
def test_an_id_is_taken_for_ever(own_daemon):
    own_daemon.ready("sb-mine")
    with refused("ID_TAKEN"):
        own_daemon.create("sb-mine")
    own_daemon.remove("sb-mine")
    with refused("ID_TAKEN"):
        own_daemon.create("sb-mine")
    own_daemon.restart()
    with refused("ID_TAKEN"):
        own_daemon.create("sb-mine")


@pytest.mark.rules("ID-003", "LIFE-005")
def test_an_id_is_taken_also_when_its_history_is_purged(start_daemon):
    daemon = start_daemon({"limits": {"history_retention": "100ms"}})
    daemon.ready("sb-mine")
    daemon.delete("sb-mine")

    def is_purged() -> bool:
        try:
            daemon.get("sb-mine")
        except grpc.RpcError as error:
            return Refusal(error).reason == "SANDBOX_NOT_FOUND"
        return False

    wait_until(is_purged)
    assert "sb-mine" not in daemon.ids(states=[8])
    with refused("ID_TAKEN"):
        daemon.create("sb-mine")
    daemon.restart()
    with refused("ID_TAKEN"):
        daemon.create("sb-mine")


@pytest.mark.rules("ID-002")
def test_the_longest_and_the_shortest_id_work(daemon):
    for sandbox_id in ("a" * 200, "Ab-9"):
        daemon.ready(sandbox_id)
        assert daemon.shell(sandbox_id, "echo $HUTCH_SANDBOX_ID").strip() == sandbox_id
        daemon.remove(sandbox_id)


def test_generated_ids_have_their_form_and_differ(daemon):
    ids = [daemon.create().id for _ in range(5)]
    assert len(set(ids)) == 5
    for one in ids:
        assert one.startswith("sb-") and len(one) == 23 and one[3:].isalnum() and one.islower()
    daemon.remove(*ids)
