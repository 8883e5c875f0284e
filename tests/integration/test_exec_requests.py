# SPDX-License-Identifier: Apache-2.0
"""What ExecService refuses, and what may be repeated: bad input, ids, request ids, lists, quotas."""

import grp
import time

import grpc
import pytest
from google.protobuf import duration_pb2
from hutch.v1 import exec_pb2
from hutchd import LIMIT, exec_state, refused, seconds, state_name
from streams import PIPED, STDOUT, Attached, open_output

MIB = 1 << 20
OTHER_ID = "no-such-thing"


def violations(told) -> dict[str, str]:
    return dict(told.fields)


# ---- Bad input ----


def bad_spec() -> exec_pb2.ExecSpec:
    spec = exec_pb2.ExecSpec(
        working_directory="a/../b",
        env={"A=B": "x", "": "y", "SECRET": "secret://NOT A NAME"},
        unset_env=["good", "b=d"],
        user="a b",
        timeout=duration_pb2.Duration(seconds=-1),
        kill_grace=duration_pb2.Duration(seconds=601),
        terminal=exec_pb2.TerminalSize(rows=65536, columns=1),
        output_limit_bytes=1 << 60,
    )
    spec.stdin = 99
    return spec


SPEC_VIOLATIONS = {
    "spec.argv": "ARGV_EMPTY",
    "spec.env[A=B]": "ENV_NAME_MALFORMED",
    "spec.env[]": "ENV_NAME_MALFORMED",
    "spec.env[SECRET]": "NAME_MALFORMED",
    "spec.user": "FIELD_INVALID",
    "spec.working_directory": "PATH_DOTDOT",
    "spec.unset_env[1]": "ENV_NAME_MALFORMED",
    "spec.timeout": "DURATION_OUT_OF_RANGE",
    "spec.kill_grace": "FIELD_OUT_OF_RANGE",
    "spec.stdin": "FIELD_INVALID",
    "spec.terminal": "FIELD_OUT_OF_RANGE",
    "spec.output_limit_bytes": "FIELD_OUT_OF_RANGE",
}


def test_a_new_exec_is_told_all_its_violations_at_once(daemon):
    request = exec_pb2.CreateExecRequest(sandbox_id="x", exec_id="-y-y", request_id="a b", spec=bad_spec())
    with refused("ID_MALFORMED") as told:
        daemon.execs.CreateExec(request, timeout=LIMIT)
    ids = {"sandbox_id": "ID_MALFORMED", "exec_id": "ID_MALFORMED", "request_id": "REQUEST_ID_MALFORMED"}
    assert violations(told) == ids | SPEC_VIOLATIONS


def test_a_command_to_run_is_told_all_its_violations_at_once(daemon):
    request = exec_pb2.RunCommandRequest(
        sandbox_id="x", request_id="a b", spec=bad_spec(), input=bytes(3 * MIB + 1), output_limit_bytes=16 * MIB + 1
    )
    with refused("ID_MALFORMED") as told:
        daemon.execs.RunCommand(request, timeout=LIMIT)
    expected = {"sandbox_id": "ID_MALFORMED", "request_id": "REQUEST_ID_MALFORMED", "input": "FIELD_TOO_LONG"}
    expected |= {"output_limit_bytes": "FIELD_OUT_OF_RANGE"} | SPEC_VIOLATIONS
    got = violations(told)
    assert ("spec.terminal", "FIELD_INVALID") in told.fields
    assert {name: reason for name, reason in got.items() if name != "spec.terminal"} == {
        name: reason for name, reason in expected.items() if name != "spec.terminal"
    }


@pytest.mark.rules("EXEC-002", "ERR-001")
@pytest.mark.parametrize(
    "spec, field, reason",
    [
        ({}, "spec.argv", "ARGV_EMPTY"),
        ({"argv": [""]}, "spec.argv[0]", "ARGV_EMPTY"),
        ({"argv": ["", "a"]}, "spec.argv[0]", "ARGV_EMPTY"),
        ({"argv": ["true", "a\0b"]}, "spec.argv[1]", "ARGV_MALFORMED"),
        ({"argv": ["a\0b"]}, "spec.argv[0]", "ARGV_MALFORMED"),
        ({"argv": ["true"], "env": {"A": "a\0b"}}, "spec.env[A]", "ENV_VALUE_MALFORMED"),
        ({"argv": ["true"], "env": {"A\nB": ""}}, None, "ENV_NAME_MALFORMED"),
        ({"argv": ["true"], "env": {"A" * 256: ""}}, None, "ENV_NAME_MALFORMED"),
        ({"argv": ["true"], "unset_env": [""]}, "spec.unset_env[0]", "ENV_NAME_MALFORMED"),
        ({"argv": ["true"], "unset_env": ["A"] * 257}, "spec.unset_env", "FIELD_TOO_LONG"),
        ({"argv": ["true"], "working_directory": "a\0b"}, "spec.working_directory", "PATH_CONTROL_CHARACTER"),
        ({"argv": ["true"], "working_directory": "~/x"}, "spec.working_directory", "PATH_TILDE"),
        ({"argv": ["true"], "working_directory": "/" + "x" * 256}, "spec.working_directory", "PATH_COMPONENT_TOO_LONG"),
        ({"argv": ["true"], "working_directory": "/x" * 2049}, "spec.working_directory", "PATH_TOO_LONG"),
        ({"argv": ["true"], "user": "a:b:c"}, "spec.user", "FIELD_INVALID"),
        ({"argv": ["true"], "user": ":1"}, "spec.user", "FIELD_INVALID"),
        ({"argv": ["true"], "user": "1:"}, "spec.user", "FIELD_INVALID"),
        ({"argv": ["true"], "user": "4294967295"}, "spec.user", "FIELD_INVALID"),
        ({"argv": ["true"], "user": "-1"}, "spec.user", "FIELD_INVALID"),
        ({"argv": ["true"], "user": "a\0"}, "spec.user", "FIELD_INVALID"),
        ({"argv": ["true"], "timeout": duration_pb2.Duration(seconds=315576001)}, "spec.timeout", None),
        ({"argv": ["true"], "timeout": duration_pb2.Duration(nanos=-1)}, "spec.timeout", None),
        ({"argv": ["true"], "terminal": exec_pb2.TerminalSize(columns=70000)}, "spec.terminal", "FIELD_OUT_OF_RANGE"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_a_bad_spec_is_refused(daemon, shared_sandbox, spec, field, reason):
    request = exec_pb2.CreateExecRequest(sandbox_id=shared_sandbox, spec=exec_pb2.ExecSpec(**spec))
    with refused(reason or "DURATION_OUT_OF_RANGE") as told:
        daemon.execs.CreateExec(request, timeout=LIMIT)
    if field:
        assert [name for name, _ in told.fields] == [field]
    else:
        assert len(told.fields) == 1


def test_a_request_without_a_spec_is_refused(daemon, shared_sandbox):
    with refused("FIELD_REQUIRED", "spec"):
        daemon.execs.CreateExec(exec_pb2.CreateExecRequest(sandbox_id=shared_sandbox), timeout=LIMIT)
    with refused("FIELD_REQUIRED", "spec"):
        daemon.execs.RunCommand(exec_pb2.RunCommandRequest(sandbox_id=shared_sandbox), timeout=LIMIT)


def test_text_that_is_not_utf8_is_refused(daemon, shared_sandbox):
    good = exec_pb2.CreateExecRequest(sandbox_id=shared_sandbox, spec=exec_pb2.ExecSpec(argv=["true", "ab"]))
    bad = good.SerializeToString().replace(b"ab", b"\xff\xfe")
    method = daemon.channel.unary_unary("/hutch.v1.ExecService/CreateExec", None, None)
    with refused("FIELD_NOT_UTF8", "spec.argv[1]"):
        method(bad, timeout=LIMIT)


def test_bytes_that_are_no_message_are_refused(daemon):
    for name in ("CreateExec", "GetExec", "ListExecs", "CancelExec", "RunCommand"):
        with refused("FIELD_INVALID"):
            daemon.channel.unary_unary(f"/hutch.v1.ExecService/{name}", None, None)(b"\xff\xff\xff", timeout=LIMIT)
    with refused("FIELD_INVALID"):
        next(daemon.channel.unary_stream("/hutch.v1.ExecService/ReadExecOutput", None, None)(b"\xff", timeout=LIMIT))


def test_secrets_are_refused_as_long_as_there_are_none(daemon, shared_sandbox):
    with refused("FEATURE_UNSUPPORTED"):
        daemon.start(shared_sandbox, "true", env={"A": "secret://token"})


def call_all(client, sandbox_id: str, exec_id: str):
    """Every call that is about one exec, by name."""
    ids = {"sandbox_id": sandbox_id, "exec_id": exec_id}
    return {
        "GetExec": lambda: client.get_exec(sandbox_id, exec_id),
        "CancelExec": lambda: client.cancel(sandbox_id, exec_id),
        "ReadExecOutput": lambda: next(open_output(client, sandbox_id, exec_id)),
        "AttachExec": lambda: Attached(client, attach=exec_pb2.AttachTarget(**ids)).attached(),
    }


METHODS = ["GetExec", "CancelExec", "ReadExecOutput", "AttachExec"]


@pytest.mark.parametrize("method", METHODS)
def test_ids_are_checked(daemon, method):
    prefix = "attach." if method == "AttachExec" else ""
    with refused("ID_MALFORMED", f"{prefix}sandbox_id", f"{prefix}exec_id"):
        call_all(daemon, "a b!", "x")[method]()
    with refused("FIELD_REQUIRED", f"{prefix}sandbox_id", f"{prefix}exec_id"):
        call_all(daemon, "", "")[method]()


@pytest.mark.parametrize("method", METHODS)
def test_what_is_not_there_is_not_found(daemon, shared_sandbox, method):
    with refused("SANDBOX_NOT_FOUND"):
        call_all(daemon, OTHER_ID, OTHER_ID)[method]()
    with refused("EXEC_NOT_FOUND"):
        call_all(daemon, shared_sandbox, OTHER_ID)[method]()


def test_nothing_runs_in_a_sandbox_that_is_not_there(daemon):
    with refused("SANDBOX_NOT_FOUND"):
        daemon.start(OTHER_ID, "true")
    with refused("SANDBOX_NOT_FOUND"):
        daemon.run(OTHER_ID, "true")
    with refused("SANDBOX_NOT_FOUND"):
        daemon.execs.ListExecs(exec_pb2.ListExecsRequest(sandbox_id=OTHER_ID), timeout=LIMIT)


def test_a_cancel_s_grace_is_checked(daemon, shared_sandbox):
    made = daemon.start(shared_sandbox, "true")
    with refused("DURATION_OUT_OF_RANGE", "grace"):
        daemon.cancel(shared_sandbox, made.id, grace=-1)
    with refused("FIELD_OUT_OF_RANGE", "grace"):
        daemon.cancel(shared_sandbox, made.id, grace=601)


def test_a_reader_is_told_what_is_wrong(daemon, shared_sandbox):
    made = daemon.start(shared_sandbox, "true")
    with refused("FIELD_INVALID", "streams[1]", "streams[2]", "tail_lines") as told:
        call = open_output(
            daemon, shared_sandbox, made.id, streams=[STDOUT, 0, 7], tail_lines=1, stdout_offset=5, stderr_offset=1
        )
        next(call)
    assert violations(told)["tail_lines"] == "FIELD_CONFLICT"


def test_a_message_that_is_too_large_is_refused(daemon, shared_sandbox):
    with refused("MESSAGE_TOO_LARGE") as told:
        daemon.run(shared_sandbox, "cat", stdin=bytes(5 * MIB))
    assert told.metadata["value"] == str(4 * MIB)


def test_a_refused_exec_leaves_nothing(daemon, sandbox):
    with refused("ID_MALFORMED"):
        daemon.start(sandbox, "true", exec_id="x")
    with refused("ARGV_EMPTY"):
        daemon.start(sandbox, "", exec_id="not-made")
    with refused("EXEC_NOT_FOUND"):
        daemon.get_exec(sandbox, "not-made")
    assert not daemon.execs.ListExecs(exec_pb2.ListExecsRequest(sandbox_id=sandbox), timeout=LIMIT).execs


# ---- Ids ----


@pytest.mark.rules("ID-002")
def test_an_exec_gets_the_id_it_is_given_or_one_that_cannot_be_guessed(daemon, shared_sandbox):
    assert daemon.start(shared_sandbox, "true", exec_id="my-exec_1").id == "my-exec_1"
    made = daemon.start(shared_sandbox, "true").id
    assert made.startswith("ex-") and len(made) == 23 and made[3:].isalnum() and made.lower() == made


@pytest.mark.rules("ID-004")
def test_an_exec_s_id_is_taken_also_after_its_end(daemon, sandbox):
    daemon.start(sandbox, "true", exec_id="once")
    daemon.wait_exec(sandbox, "once")
    with refused("ID_TAKEN"):
        daemon.start(sandbox, "true", exec_id="once")


@pytest.mark.rules("ID-004")
def test_execs_of_two_sandboxes_may_have_one_id(daemon, sandbox, shared_sandbox):
    for one in (sandbox, shared_sandbox):
        daemon.start(one, "true", exec_id="the-same")
    assert daemon.get_exec(sandbox, "the-same").sandbox_id == sandbox


def test_main_is_the_sandbox_s_own_where_it_has_a_command(daemon):
    sandbox = daemon.create(command=["true"]).id
    with refused("ID_TAKEN"):
        daemon.start(sandbox, "true", exec_id="main")
    daemon.remove(sandbox)


def test_an_exec_shows_what_was_asked_for(daemon, shared_sandbox):
    spec = exec_pb2.ExecSpec(
        argv=["sh", "-c", "true"],
        working_directory="/tmp",
        env={"A": "1", "B": "2"},
        unset_env=["C"],
        user="1000",
        timeout=seconds(9.5),
        kill_grace=seconds(0.25),
        stdin=PIPED,
        terminal=exec_pb2.TerminalSize(rows=5, columns=6),
        output_limit_bytes=1000,
    )
    request = exec_pb2.CreateExecRequest(sandbox_id=shared_sandbox, spec=spec)
    made = daemon.execs.CreateExec(request, timeout=LIMIT).exec
    assert made.spec == spec and made.sandbox_id == shared_sandbox
    assert state_name(made) in ("PENDING", "RUNNING")
    assert not made.HasField("result") and not made.HasField("end_time")
    assert daemon.wait_exec(shared_sandbox, made.id).spec == spec


# ---- Request ids ----


@pytest.mark.rules("IDEM-001")
def test_a_repeated_request_id_runs_nothing_twice(daemon, sandbox):
    env = {f"V{i}": str(i) for i in range(20)}
    first = daemon.start(sandbox, "sh", "-c", "echo x >> count", request_id="r:1", env=env)
    for names in (sorted(env), sorted(env, reverse=True)):  # maps have no order
        again = daemon.start(sandbox, "sh", "-c", "echo x >> count", request_id="r:1", env={n: env[n] for n in names})
        assert again.id == first.id
    daemon.wait_exec(sandbox, first.id)
    after = daemon.start(sandbox, "sh", "-c", "echo x >> count", request_id="r:1", env=env)
    assert (after.id, state_name(after)) == (first.id, "EXITED")
    assert daemon.shell(sandbox, "wc -l < count").strip() == "1"


@pytest.mark.rules("IDEM-002")
def test_a_request_id_with_another_request_is_refused(daemon, sandbox):
    made = daemon.start(sandbox, "true", request_id="r:2")
    for argv, extra in ((["false"], {}), (["true"], {"env": {"A": "1"}}), (["true"], {"exec_id": "another"})):
        with refused("REQUEST_ID_REUSED"):
            daemon.start(sandbox, *argv, request_id="r:2", **extra)
    assert [one.id for one in list_execs(daemon, sandbox)] == [made.id]


@pytest.mark.rules("IDEM-001")
def test_request_ids_of_two_methods_have_nothing_to_do_with_each_other(daemon, sandbox):
    made = daemon.start(sandbox, "true", request_id="r:3")
    assert run_again(daemon, sandbox, "r:3").exec.id != made.id


def run_again(daemon, sandbox, request_id, *argv, **request):
    spec = exec_pb2.ExecSpec(argv=argv or ["true"])
    message = exec_pb2.RunCommandRequest(sandbox_id=sandbox, request_id=request_id, spec=spec, **request)
    return daemon.execs.RunCommand(message, timeout=LIMIT)


@pytest.mark.rules("IDEM-001", "IDEM-002")
def test_a_repeated_run_gets_the_first_answer(daemon, sandbox):
    argv = ["sh", "-c", "cat; echo x >> count; wc -l < count; echo err >&2; exit 3"]
    first = run_again(daemon, sandbox, "r:4", *argv, input=b"in")
    assert first.exec.result.exit_code == 3
    assert run_again(daemon, sandbox, "r:4", *argv, input=b"in") == first
    with refused("REQUEST_ID_REUSED"):
        run_again(daemon, sandbox, "r:4", *argv, input=b"other")


@pytest.mark.rules("IDEM-001")
def test_a_repeated_run_joins_the_first(daemon, sandbox):
    argv = ["sh", "-c", "echo x >> count; sleep 0.3; cat count"]
    spec = exec_pb2.ExecSpec(argv=argv)
    message = exec_pb2.RunCommandRequest(sandbox_id=sandbox, request_id="r:5", spec=spec)
    calls = [daemon.execs.RunCommand.future(message, timeout=LIMIT) for _ in range(5)]
    answers = [call.result() for call in calls]
    assert {answer.stdout for answer in answers} == {b"x\n"}
    assert len({answer.exec.id for answer in answers}) == 1


@pytest.mark.rules("IDEM-001")
def test_attaching_by_create_may_be_repeated(daemon, sandbox):
    spec = exec_pb2.ExecSpec(argv=["sh", "-c", "echo x >> count; cat count"])
    request = exec_pb2.CreateExecRequest(sandbox_id=sandbox, request_id="r:6", spec=spec)
    ids = set()
    for _ in range(2):
        with Attached(daemon, create=request) as attached:
            ids.add(attached.attached().id)
            attached.finish()
        assert attached.output.stdout == b"x\n"
    assert len(ids) == 1


# ---- Lists ----


def list_execs(daemon, sandbox_id: str, **filters) -> list:
    found = []
    request = exec_pb2.ListExecsRequest(sandbox_id=sandbox_id, **filters)
    while True:
        page = daemon.execs.ListExecs(request, timeout=LIMIT)
        found += page.execs
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


@pytest.mark.rules("LIST-001")
def test_execs_are_listed_oldest_first_in_pages(daemon, sandbox):
    made = [daemon.start(sandbox, "true").id for _ in range(25)]
    daemon.wait_exec(sandbox, made[-1])
    running = daemon.start(sandbox, "sleep", "100").id
    for page_size in (0, 1, 7, 1000, 5000):
        assert [one.id for one in list_execs(daemon, sandbox, page_size=page_size)] == [*made, running]
    page = daemon.execs.ListExecs(exec_pb2.ListExecsRequest(sandbox_id=sandbox, page_size=7), timeout=LIMIT)
    assert len(page.execs) == 7
    daemon.cancel(sandbox, running, grace=0)


def test_execs_are_listed_by_state(daemon, sandbox):
    daemon.run(sandbox, "true")
    daemon.run(sandbox, "missing-program")
    running = daemon.start(sandbox, "sleep", "100").id
    daemon.wait_exec(sandbox, running, "RUNNING")
    states = {
        name: [state_name(one) for one in list_execs(daemon, sandbox, states=[exec_state(name)])]
        for name in ("PENDING", "RUNNING", "EXITED", "CANCELLED", "FAILED")
    }
    assert states == {
        "PENDING": [],
        "RUNNING": ["RUNNING"],
        "EXITED": ["EXITED"],
        "CANCELLED": [],
        "FAILED": ["FAILED"],
    }
    both = list_execs(daemon, sandbox, states=[exec_state("RUNNING"), exec_state("FAILED")], page_size=1)
    assert [state_name(one) for one in both] == ["FAILED", "RUNNING"]
    daemon.cancel(sandbox, running, grace=0)


@pytest.mark.rules("LIST-002")
def test_a_page_token_belongs_to_its_filter(daemon, sandbox, shared_sandbox):
    for _ in range(3):
        daemon.start(sandbox, "true")
    token = daemon.execs.ListExecs(exec_pb2.ListExecsRequest(sandbox_id=sandbox, page_size=1), timeout=LIMIT)
    for bad in (
        {"sandbox_id": sandbox, "page_token": token.next_page_token, "states": [exec_state("EXITED")]},
        {"sandbox_id": shared_sandbox, "page_token": token.next_page_token},
        {"sandbox_id": sandbox, "page_token": "made up"},
        {"sandbox_id": sandbox, "page_token": token.next_page_token + "A"},
    ):
        with refused("PAGE_TOKEN_INVALID", "page_token"):
            daemon.execs.ListExecs(exec_pb2.ListExecsRequest(**bad), timeout=LIMIT)


def test_a_list_s_violations_are_told_at_once(daemon):
    request = exec_pb2.ListExecsRequest(sandbox_id="x", page_token="?")
    request.states.extend([0, 77])
    with refused("ID_MALFORMED", "sandbox_id", "states[0]", "states[1]", "page_token"):
        daemon.execs.ListExecs(request, timeout=LIMIT)


def test_a_page_of_large_execs_is_cut(daemon, sandbox):
    """A page has at most 8 MiB, whatever its size in execs."""
    argument = "x" * 100_000
    for _ in range(12):
        daemon.start(sandbox, "true", *[argument] * 10)
    page = daemon.execs.ListExecs(exec_pb2.ListExecsRequest(sandbox_id=sandbox), timeout=LIMIT)
    assert page.next_page_token and page.ByteSize() <= 8 * MIB
    assert len(list_execs(daemon, sandbox)) == 12


# ---- Owners and quotas ----


@pytest.mark.rules("AUTH-005")
def test_the_execs_of_others_are_not_to_be_found(start_daemon):
    daemon = start_daemon({"socket_group": "users"})
    daemon.folder.chmod(0o755)
    other = daemon.client(uid=4242, gid=grp.getgrnam("users").gr_gid)
    sandbox = daemon.ready()
    made = daemon.start(sandbox, "sleep", "100")
    for call in call_all(other, sandbox, made.id).values():
        with refused("SANDBOX_NOT_FOUND"):
            call()
    for call in (other.start, other.run):
        with refused("SANDBOX_NOT_FOUND"):
            call(sandbox, "true")
    with refused("SANDBOX_NOT_FOUND"):
        other.execs.ListExecs(exec_pb2.ListExecsRequest(sandbox_id=sandbox), timeout=LIMIT)
    own = other.ready()
    assert other.shell(own, "echo mine") == "mine\n"
    assert daemon.shell(own, "echo of an admin") == "of an admin\n"


def test_the_quota_on_the_execs_of_a_sandbox_is_told(start_daemon):
    daemon = start_daemon({"limits": {"execs_per_sandbox": 2, "execs": 3}})
    first, second = daemon.ready(), daemon.ready()
    running = [daemon.start(first, "sleep", "100") for _ in range(2)]
    with refused("QUOTA_EXCEEDED") as told:
        daemon.start(first, "true")
    assert told.metadata == {"limit": "execs_per_sandbox", "value": "2"}
    with refused("QUOTA_EXCEEDED"):
        daemon.run(first, "true")
    daemon.start(second, "sleep", "100")
    with refused("QUOTA_EXCEEDED") as told:
        daemon.start(second, "true")
    assert told.metadata == {"limit": "execs", "value": "3"}
    daemon.cancel(first, running[0].id, grace=0)
    daemon.wait_exec(first, running[0].id)
    assert daemon.shell(first, "echo again") == "again\n"


def test_the_quota_on_streams_is_told(start_daemon):
    daemon = start_daemon({"limits": {"streams_per_caller": 3}})
    sandbox = daemon.ready()
    made = daemon.start(sandbox, "sh", "-c", "echo; sleep 100")
    calls = [open_output(daemon, sandbox, made.id, follow=True) for _ in range(3)]
    for call in calls:
        next(call)
    with refused("TOO_MANY_STREAMS"):
        next(open_output(daemon, sandbox, made.id, follow=True))
    with refused("TOO_MANY_STREAMS"):
        Attached(daemon, attach=exec_pb2.AttachTarget(sandbox_id=sandbox, exec_id=made.id)).attached()
    calls[0].cancel()
    end = time.monotonic() + LIMIT
    while True:
        try:
            next(open_output(daemon, sandbox, made.id, follow=True))
            break
        except grpc.RpcError:
            assert time.monotonic() < end
