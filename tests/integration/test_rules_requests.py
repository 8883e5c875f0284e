# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a request is told in full and at once, with the limits that it passed."""

import pytest
from google.protobuf import duration_pb2
from hutch.v1 import exec_pb2, sandbox_pb2
from hutchd import LIMIT, MIB, field, refused, seconds
from streams import PIPED, create_attached

NEGATIVE = duration_pb2.Duration(seconds=-1)


def raw(daemon, method: str, data: bytes):
    """Calls a method that has one answer with bytes as they are."""
    return daemon.channel.unary_unary(f"/hutch.v1.{method}")(data, timeout=LIMIT)


def number_of(message, name: str) -> int:
    return message.DESCRIPTOR.fields_by_name[name].number


# ---- Everything at once ----


def bad_sandbox() -> bytes:
    """A request with texts that cannot be read among fields that say what they must not."""
    good = sandbox_pb2.SandboxSpec(
        user="a b",
        profile="nosuch",
        idle_ttl=NEGATIVE,
        labels={"hutch/own": "", "fine": "not fine"},
        env={"A=B": ""},
        limits={"max_open_files": 1},
    )
    spec = good.SerializeToString()
    spec += field(1, b"ima\0ge") + field(2, b"\0") + field(2, b"\xff") + field(5, b"/\xc0\x80")
    spec += field(4, field(1, b"k\xff") + field(2, b"v v")) + field(4, field(1, b"key") + field(2, b"\xfe"))
    spec += field(3, field(1, b"NUL") + field(2, b"\0"))
    return field(1, b"sb-\xff") + field(2, spec) + field(3, b"a b")


SANDBOX_VIOLATIONS = {
    ("sandbox_id", "ID_MALFORMED"),
    ("request_id", "REQUEST_ID_MALFORMED"),
    ("spec.image", "FIELD_INVALID"),
    ("spec.command[0]", "ARGV_MALFORMED"),
    ("spec.command[1]", "FIELD_NOT_UTF8"),
    ("spec.working_directory", "PATH_NOT_UTF8"),
    ("spec.user", "FIELD_INVALID"),
    ("spec.profile", "PROFILE_UNKNOWN"),
    ("spec.idle_ttl", "DURATION_OUT_OF_RANGE"),
    ("spec.labels[hutch/own]", "LABEL_RESERVED"),
    ("spec.labels[fine]", "LABEL_MALFORMED"),
    ("spec.labels[2]", "LABEL_MALFORMED"),  # whose key cannot be shown
    ("spec.labels[k…]", "LABEL_MALFORMED"),  # its value
    ("spec.labels[key]", "LABEL_MALFORMED"),
    ("spec.env[A=B]", "ENV_NAME_MALFORMED"),
    ("spec.env[NUL]", "ENV_VALUE_MALFORMED"),
    ("spec.limits.max_open_files", "LIMIT_TOO_SMALL"),
}


@pytest.mark.rules("TEXT-003", "ERR-003")
def test_a_sandbox_with_unreadable_texts_is_told_all_that_is_wrong(daemon):
    before = daemon.ids()
    with refused("ID_MALFORMED") as told:
        raw(daemon, "AgentSandboxService/CreateSandbox", bad_sandbox())
    assert set(told.fields) == SANDBOX_VIOLATIONS
    assert len(told.fields) == len(SANDBOX_VIOLATIONS)
    assert f"(and {len(SANDBOX_VIOLATIONS) - 1} more)" in told.message
    assert daemon.ids() == before


def bad_exec() -> bytes:
    spec = exec_pb2.ExecSpec(unset_env=["A=B"], timeout=NEGATIVE, output_limit_bytes=1 << 60)
    texts = {"argv": b"\0true", "user": b"\xff"}
    return spec.SerializeToString() + b"".join(field(number_of(spec, name), text) for name, text in texts.items())


EXEC_VIOLATIONS = {
    ("sandbox_id", "ID_MALFORMED"),
    ("request_id", "REQUEST_ID_MALFORMED"),
    ("spec.argv[0]", "ARGV_MALFORMED"),
    ("spec.user", "FIELD_NOT_UTF8"),
    ("spec.unset_env[0]", "ENV_NAME_MALFORMED"),
    ("spec.timeout", "DURATION_OUT_OF_RANGE"),
    ("spec.output_limit_bytes", "FIELD_OUT_OF_RANGE"),
}


def bad_call(request: type) -> bytes:
    """A request of an exec with the bad spec, whose sandbox and request ids are bad as well."""
    values = {"sandbox_id": b"\xff\xff\xff\xff", "request_id": b"a b", "spec": bad_exec()}
    return b"".join(field(number_of(request, name), value) for name, value in values.items())


@pytest.mark.rules("TEXT-003", "ERR-003")
def test_an_exec_with_unreadable_texts_is_told_all_that_is_wrong(daemon):
    for method, request in {"CreateExec": exec_pb2.CreateExecRequest, "RunCommand": exec_pb2.RunCommandRequest}.items():
        with refused("ID_MALFORMED") as told:
            raw(daemon, f"ExecService/{method}", bad_call(request))
        assert set(told.fields) == EXEC_VIOLATIONS, method
        assert len(told.fields) == len(EXEC_VIOLATIONS)
    attach = daemon.channel.stream_stream("/hutch.v1.ExecService/AttachExec")
    first = field(number_of(exec_pb2.AttachExecRequest, "create"), bad_call(exec_pb2.CreateExecRequest))
    with refused("ID_MALFORMED") as told:
        list(attach(iter([first]), timeout=LIMIT))
    assert set(told.fields) == {(f"create.{name}", reason) for name, reason in EXEC_VIOLATIONS}


@pytest.mark.rules("TEXT-003", "ERR-003")
@pytest.mark.parametrize(
    "method, request_type, more, violations",
    [
        (
            "ListSandboxes",
            sandbox_pb2.ListSandboxesRequest,
            {"states": [99], "page_token": "x"},
            {"selector": "SELECTOR_MALFORMED", "states[0]": "FIELD_INVALID", "page_token": "PAGE_TOKEN_INVALID"},
        ),
        (
            "UpdateSandbox",
            sandbox_pb2.UpdateSandboxRequest,
            {"update_mask": {"paths": ["image", "labels"]}, "spec": {"labels": {"/": ""}}},
            {
                "sandbox_id": "ID_MALFORMED",
                "update_mask.paths[0]": "FIELD_MASK_INVALID",
                "spec.labels[/]": "LABEL_MALFORMED",
            },
        ),
        (
            "StopSandbox",
            sandbox_pb2.StopSandboxRequest,
            {"grace": NEGATIVE},
            {"sandbox_id": "ID_MALFORMED", "grace": "DURATION_OUT_OF_RANGE"},
        ),
    ],
)
def test_other_requests_are_told_all_that_is_wrong(daemon, method, request_type, more, violations):
    first, *_ = violations
    bad = field(number_of(request_type, first), b"\xff\xff\xff\xff")
    with refused(violations[first]) as told:
        raw(daemon, f"AgentSandboxService/{method}", request_type(**more).SerializeToString() + bad)
    assert sorted(told.fields) == sorted(violations.items())


@pytest.mark.rules("TEXT-003", "ERR-003")
def test_a_watch_is_told_all_that_is_wrong(daemon):
    request = sandbox_pb2.WatchEventsRequest(types=[99], after_cursor=1, include_snapshot=True).SerializeToString()
    request += field(number_of(sandbox_pb2.WatchEventsRequest, "sandbox_ids"), b"\xff")
    watch = daemon.channel.unary_stream("/hutch.v1.AgentSandboxService/WatchEvents")
    with refused("ID_MALFORMED") as told:
        list(watch(request, timeout=LIMIT))
    assert dict(told.fields) == {
        "sandbox_ids[0]": "ID_MALFORMED",
        "types[0]": "FIELD_INVALID",
        "after_cursor": "FIELD_CONFLICT",
    }


def test_unreadable_texts_beside_input_are_refused_and_the_input_goes_nowhere(daemon, sandbox):
    """Of a message's items the last one counts, and the texts of them all."""
    with create_attached(daemon, sandbox, "cat", stdin=PIPED) as attached:
        made = attached.exec.id
        target = exec_pb2.AttachTarget(sandbox_id="Z" * 4).SerializeToString().replace(b"ZZZZ", b"\xff\xff\xff\xff")
        item = exec_pb2.AttachExecRequest
        bad = field(number_of(item, "attach"), target) + field(number_of(item, "stdin"), b"lost")
        first = item(attach=exec_pb2.AttachTarget(sandbox_id=sandbox, exec_id=made)).SerializeToString()
        attach = daemon.channel.stream_stream("/hutch.v1.ExecService/AttachExec")
        with refused("ID_MALFORMED", "attach.sandbox_id"):
            list(attach(iter([first, bad]), timeout=LIMIT))
        attached.close_stdin()
        attached.finish()
    assert attached.output.stdout == b""


@pytest.mark.rules("TEXT-003", "ERR-003")
@pytest.mark.parametrize("count", [1, 2, 10, 40, 64, 65, 1000])
@pytest.mark.parametrize("readable", [True, False], ids=["readable", "unreadable"])
def test_violations_that_find_no_room_are_counted(daemon, count, readable):
    """Some 3 KB of them are told."""
    texts = [b"%04d=" % n if readable else b"\xff%04d" % n for n in range(count)]
    name = "unset_env"
    spec = exec_pb2.ExecSpec(argv=["true"]).SerializeToString()
    spec += b"".join(field(number_of(exec_pb2.ExecSpec, name), text) for text in texts[:256])
    extra = texts[256:]
    spec += b"".join(field(number_of(exec_pb2.ExecSpec, "env"), field(1, text)) for text in extra)
    request = exec_pb2.CreateExecRequest(sandbox_id="sb-any").SerializeToString() + field(3, spec)
    with refused("ENV_NAME_MALFORMED" if readable else "FIELD_NOT_UTF8") as told:
        raw(daemon, "ExecService/CreateExec", request)
    listed = [one for one, _ in told.fields]
    assert min(count, 20) <= len(listed) <= count
    if not extra:
        assert listed == [f"spec.{name}[{n}]" for n in range(len(listed))]
    assert told.message.endswith(f"(and {count - 1} more)") == (count > 1)


# ---- Limits ----


def passes(reason: str, limit: str, value: int, ask, name: str = ""):
    return pytest.param(reason, limit, value, ask, id=name or limit)


def update_labels(daemon, _sandbox, count: int):
    sandbox_id = daemon.create().id
    try:
        daemon.update(sandbox_id, "labels", labels={f"l{n}": "" for n in range(count)})
    finally:
        daemon.delete(sandbox_id)


def watch_ids(daemon, count: int):
    daemon.watch(sandbox_ids=["sb-any"] * count)


def attach_with_input(daemon, sandbox: str, data: bytes):
    with create_attached(daemon, sandbox, "cat", stdin=PIPED) as attached:
        attached.write(data)
        attached.finish()


def run_with_limit(daemon, sandbox: str, limit: int):
    spec = exec_pb2.ExecSpec(argv=["true"])
    request = exec_pb2.RunCommandRequest(sandbox_id=sandbox, spec=spec, output_limit_bytes=limit)
    daemon.execs.RunCommand(request, timeout=LIMIT)


def many_parts(daemon, _sandbox):
    raw(daemon, "AgentSandboxService/CreateSandbox", field(2, field(7, b"") * (1 << 20)))


LIMITS = [
    passes("LABELS_TOO_MANY", "labels", 64, lambda daemon, _: daemon.create(labels={f"l{n}": "" for n in range(65)})),
    passes("LABELS_TOO_MANY", "labels", 64, lambda daemon, one: update_labels(daemon, one, 65), "labels of an update"),
    passes("PATH_TOO_LONG", "path_bytes", 4096, lambda daemon, _: daemon.create(working_directory="/a" * 2049)),
    passes(
        "PATH_TOO_LONG",
        "path_bytes",
        4096,
        lambda daemon, one: daemon.start(one, "true", working_directory="a/" * 2048),
        "path_bytes once resolved",
    ),
    passes(
        "PATH_TOO_LONG",
        "path_bytes",
        4096,
        lambda daemon, _: raw(daemon, "AgentSandboxService/CreateSandbox", field(2, field(5, b"/\xff" * 2049))),
        "path_bytes of what is no text",
    ),
    passes(
        "PATH_COMPONENT_TOO_LONG",
        "path_component_bytes",
        255,
        lambda daemon, one: daemon.start(one, "true", working_directory="a" * 256),
    ),
    passes("ARGUMENTS_TOO_LARGE", "argument_bytes", 131071, lambda daemon, one: daemon.start(one, "x" * 131072)),
    passes(
        "ARGUMENTS_TOO_LARGE",
        "arguments_bytes",
        MIB,
        lambda daemon, one: daemon.start(one, *["x" * 131071] * 8, "more"),
    ),
    passes("LIMIT_TOO_SMALL", "max_open_files", 16, lambda daemon, _: daemon.create(limits={"max_open_files": 15})),
    passes("LIMIT_TOO_SMALL", "disk_inodes", 64, lambda daemon, _: daemon.create(limits={"disk_inodes": 63})),
    passes(
        "LIMIT_TOO_SMALL", "exec_timeout_ms", 1, lambda daemon, _: daemon.create(limits={"exec_timeout": seconds(0)})
    ),
    passes("FIELD_TOO_LONG", "image_bytes", 512, lambda daemon, _: daemon.create(image="i" * 513)),
    passes("FIELD_TOO_LONG", "unset_env", 256, lambda daemon, one: daemon.start(one, "true", unset_env=["A"] * 257)),
    passes("FIELD_TOO_LONG", "sandbox_ids", 1000, lambda daemon, _: watch_ids(daemon, 1001)),
    passes("FIELD_TOO_LONG", "stdin_bytes", MIB, lambda daemon, one: attach_with_input(daemon, one, b"x" * (MIB + 1))),
    passes(
        "FIELD_OUT_OF_RANGE", "run_output_bytes", 16 * MIB, lambda daemon, one: run_with_limit(daemon, one, 1 << 30)
    ),
    passes(
        "FIELD_OUT_OF_RANGE",
        "max_exec_output_bytes",
        16 << 30,
        lambda daemon, one: daemon.start(one, "true", output_limit_bytes=1 << 40),
    ),
    passes("MESSAGE_TOO_LARGE", "max_request_bytes", 4 * MIB, lambda daemon, _: daemon.create(user="x" * 4 * MIB)),
    passes("MESSAGE_TOO_LARGE", "message_memory_bytes", 32 * MIB, many_parts),
]


@pytest.mark.rules("ERR-005")
@pytest.mark.parametrize("reason, limit, value, ask", LIMITS)
def test_past_a_limit_its_name_and_value_are_told(daemon, shared_sandbox, reason, limit, value, ask):
    with refused(reason) as told:
        ask(daemon, shared_sandbox)
    assert told.metadata == {"limit": limit, "value": str(value)}


@pytest.mark.rules("ERR-005")
def test_limits_of_the_operator_are_told_as_they_are_set(start_daemon):
    limits = {"sandboxes_per_caller": 2, "execs_per_sandbox": 3, "streams_per_caller": 4}
    daemon = start_daemon({"limits": limits, "sandboxes": {"max_lifetime": "1h"}})
    with refused("FIELD_OUT_OF_RANGE", "spec.max_lifetime") as told:
        daemon.create(max_lifetime=seconds(3601))
    assert told.metadata == {"limit": "max_lifetime", "value": "3600"}
    sandbox = daemon.ready(max_lifetime=seconds(3600))
    daemon.create()
    with refused("QUOTA_EXCEEDED") as told:
        daemon.create()
    assert told.metadata == {"limit": "sandboxes_per_caller", "value": "2"}
    for _ in range(3):
        daemon.start(sandbox, "sleep", "1000")
    with refused("QUOTA_EXCEEDED") as told:
        daemon.start(sandbox, "true")
    assert told.metadata == {"limit": "execs_per_sandbox", "value": "3"}
    watches = [daemon.watch() for _ in range(4)]
    with refused("TOO_MANY_STREAMS") as told:
        daemon.watch()
    assert told.metadata == {"limit": "streams_per_caller", "value": "4"}
    for watch in watches:
        watch.close()


@pytest.mark.rules("ERR-005")
def test_a_limit_that_cannot_be_enforced_is_named(daemon):
    for limit in daemon.info().runtimes[0].not_enforced:
        if limit in sandbox_pb2.ResourceLimits.DESCRIPTOR.fields_by_name:
            with refused("LIMIT_NOT_ENFORCEABLE") as told:
                daemon.create(limits={limit: 100 * MIB if "bytes" in limit else 5000})
            assert told.metadata == {"limit": limit, "value": str(100 * MIB if "bytes" in limit else 5000)}


@pytest.mark.rules("ERR-005")
def test_the_state_is_told_where_it_is_wrong(daemon, sandbox):
    daemon.pause(sandbox)
    daemon.wait(sandbox, "PAUSED")
    with refused("SANDBOX_WRONG_STATE") as told:
        daemon.start(sandbox, "true")
    assert told.metadata == {"state": "PAUSED"}


def test_the_limit_of_another_violation_is_not_told(daemon):
    """The metadata belong to the reason, which is that of the first."""
    with refused("ID_MALFORMED") as told:
        daemon.create("x", labels={f"l{n}": "" for n in range(65)})
    assert ("spec.labels", "LABELS_TOO_MANY") in told.fields and told.metadata == {}
