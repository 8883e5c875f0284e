# SPDX-License-Identifier: Apache-2.0
"""The table of ownership in spec/behavior.md, by every method that is served, for callers of each kind."""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor as protobuf
from google.protobuf import json_format, message_factory
from hutch.v1 import sandbox_pb2
from hutchd import LIMIT, Client, Daemon, Refusal, refused, state_name
from remote import Certificates, RemoteDaemon
from test_methods import all_methods

sys.path.append(str(Path(__file__).resolve().parents[1] / "spec"))

from spec import BEHAVIOR, table  # noqa: E402 pylint: disable=wrong-import-position

TABLE = table(BEHAVIOR, "ownership")
METHODS = {f"{method.containing_service.name}/{method.name}": method for method in all_methods()}
KINDS = ["owner", "other", "admin"]
OWNER, OTHER, NOGROUP = 65534, 4242, 65534

EMPTY_ARCHIVE = "AAAA" * 3413 + "AAA="  # 10240 zeros, in base64

# Of each row the messages of a call about the sandbox SANDBOX, its exec EXEC and its label; and whether it is for a
# sandbox of its own, because it leaves it in another state.
CALLS: dict[str, tuple[list[dict], bool]] = {
    "`AgentSandboxService/CreateSandbox`": ([{"spec": {}}], False),
    "`AgentSandboxService/CreateSandbox` with the id": ([{"sandboxId": "SANDBOX", "spec": {}}], False),
    "`AgentSandboxService/GetSandbox`": ([{"sandboxId": "SANDBOX"}], False),
    "`AgentSandboxService/ListSandboxes`": ([{}], False),
    "`AgentSandboxService/ListSandboxes` of all owners": ([{"allOwners": True}], False),
    "`AgentSandboxService/UpdateSandbox`": (
        [{"sandboxId": "SANDBOX", "spec": {"idleTtl": "900s"}, "updateMask": "idleTtl"}],
        False,
    ),
    "`AgentSandboxService/StopSandbox`": ([{"sandboxId": "SANDBOX"}], True),
    "`AgentSandboxService/ResumeSandbox`": ([{"sandboxId": "SANDBOX"}], False),
    "`AgentSandboxService/PauseSandbox`": ([{"sandboxId": "SANDBOX"}], True),
    "`AgentSandboxService/UnpauseSandbox`": ([{"sandboxId": "SANDBOX"}], False),
    "`AgentSandboxService/DeleteSandbox`": ([{"sandboxId": "SANDBOX"}], True),
    "`AgentSandboxService/DeleteSandboxes`": ([{"selector": "of=SANDBOX"}], True),
    "`AgentSandboxService/DeleteSandboxes` of all owners": ([{"selector": "of=SANDBOX", "allOwners": True}], True),
    "`AgentSandboxService/WatchEvents`": ([{"includeSnapshot": True}], False),
    "`AgentSandboxService/WatchEvents` of all owners": ([{"includeSnapshot": True, "allOwners": True}], False),
    "`AgentSandboxService/WatchEvents` by id": ([{"includeSnapshot": True, "sandboxIds": ["SANDBOX"]}], False),
    "`AgentSandboxService/WatchEvents` after a sequence": ([{"sandboxIds": ["SANDBOX"], "afterSequence": "1"}], False),
    "`ExecService/CreateExec`": ([{"sandboxId": "SANDBOX", "spec": {"argv": ["true"]}}], False),
    "`ExecService/GetExec`": ([{"sandboxId": "SANDBOX", "execId": "EXEC"}], False),
    "`ExecService/ListExecs`": ([{"sandboxId": "SANDBOX"}], False),
    "`ExecService/CancelExec`": ([{"sandboxId": "SANDBOX", "execId": "EXEC"}], False),
    "`ExecService/AttachExec`": ([{"attach": {"sandboxId": "SANDBOX", "execId": "EXEC"}}], False),
    "`ExecService/ReadExecOutput`": ([{"sandboxId": "SANDBOX", "execId": "EXEC"}], False),
    "`ExecService/RunCommand`": ([{"sandboxId": "SANDBOX", "spec": {"argv": ["true"]}}], False),
    "`FileService/UploadFile`": (
        [{"header": {"sandboxId": "SANDBOX", "path": "a", "overwrite": True}}, {"data": "AAAA"}],
        False,
    ),
    "`FileService/DownloadFile`": ([{"sandboxId": "SANDBOX", "path": "file"}], False),
    "`FileService/UploadArchive`": (
        [{"header": {"sandboxId": "SANDBOX", "path": "."}}, {"data": EMPTY_ARCHIVE}],
        False,
    ),
    "`FileService/DownloadArchive`": ([{"sandboxId": "SANDBOX", "path": "."}], False),
    "`FileService/ReadFile`": ([{"sandboxId": "SANDBOX", "path": "file"}], False),
    "`FileService/WriteFile`": ([{"sandboxId": "SANDBOX", "path": "b", "overwrite": True}], False),
    "`FileService/StatFile`": ([{"sandboxId": "SANDBOX", "path": "file"}], False),
    "`FileService/ListFiles`": ([{"sandboxId": "SANDBOX", "path": "."}], False),
    "`FileService/MakeDirectory`": ([{"sandboxId": "SANDBOX", "path": "c", "createParents": True}], False),
    "`FileService/MoveFile`": ([{"sandboxId": "SANDBOX", "source": "moved", "target": "moved-there"}], True),
    "`FileService/RemoveFile`": ([{"sandboxId": "SANDBOX", "path": "moved"}], True),
    "`FileService/WatchFiles`": ([{"sandboxId": "SANDBOX", "path": "."}], False),
    "`FileService/ListChanges`": ([{"sandboxId": "SANDBOX", "path": "."}], False),
    "`SandboxExecService/Exec`": ([{"argv": ["true"]}], False),
    "`SystemService/Ping`": ([{}], False),
    "`SystemService/GetInfo`": ([{}], False),
}


def method_of(row: str) -> protobuf.MethodDescriptor:
    return METHODS[re.match(r"`(\w+/\w+)`", row)[1]]


@dataclass
class Sandbox:
    """One that a call is about."""

    id: str
    exec: str


@dataclass
class Setting:
    """A daemon, its callers, and what belongs to the owner."""

    daemon: Daemon
    callers: dict[str, Client]
    shared: Sandbox | None = None

    def make(self) -> Sandbox:
        owner = self.callers["owner"]
        made = owner.ready()
        owner.update(made, "labels", labels={"of": made})
        owner.shell(made, "touch file moved")
        return Sandbox(made, owner.wait_exec(made, owner.start(made, "true").id).id)

    def sandbox_for(self, own: bool) -> Sandbox:
        if own:
            return self.make()
        self.shared = self.shared or self.make()
        return self.shared


def filled(value, sandbox: Sandbox):
    """@value with the sandbox in its place."""
    if isinstance(value, dict):
        return {key: filled(each, sandbox) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, sandbox) for each in value]
    if isinstance(value, str):
        return value.replace("SANDBOX", sandbox.id).replace("EXEC", sandbox.exec)
    return value


def call(client: Client, method: protobuf.MethodDescriptor, messages: list[dict]) -> Callable:
    request_type = message_factory.GetMessageClass(method.input_type)
    answer_type = message_factory.GetMessageClass(method.output_type)
    requests = [json_format.ParseDict(message, request_type()) for message in messages]
    ways = ["stream" if streams else "unary" for streams in (method.client_streaming, method.server_streaming)]
    stub = getattr(client.channel, "_".join(ways))(
        f"/{method.containing_service.full_name}/{method.name}",
        request_type.SerializeToString,
        answer_type.FromString,
    )
    return stub(iter(requests) if method.client_streaming else requests[0], timeout=LIMIT)


def read(answer, method: protobuf.MethodDescriptor) -> str:
    """What was answered, of a stream up to where it stands."""
    if not method.server_streaming:
        return str(answer)
    told = ""
    for step in answer:
        told += str(step)
        if "started" in step.DESCRIPTOR.fields_by_name and step.HasField("started"):
            break
    answer.cancel()
    return told


def outcome(client: Client, row: str, sandbox: Sandbox) -> str:
    """What comes of the call, in the words of the table."""
    method = method_of(row)
    try:
        told = read(call(client, method, filled(CALLS[row][0], sandbox)), method)
    except grpc.RpcError as error:
        refusal = Refusal(error)
        refusal.check()
        return f"`{refusal.reason}`"
    selects = method.name in ("ListSandboxes", "DeleteSandboxes", "WatchEvents") and "sequence" not in row
    return "unseen" if selects and sandbox.id not in told else "works"


def test_every_method_is_in_the_table():
    assert {method_of(row) for row in TABLE} == set(METHODS.values())
    assert all(set(cells) == set(KINDS) for cells in TABLE.values())


@pytest.fixture(scope="module", name="settings")
def make_settings(tmp_path_factory):
    """The same three callers by tokens over TLS, and by users on the socket."""
    remote = RemoteDaemon(Certificates(tmp_path_factory.mktemp("certificates")), admins=["token:admin"])
    tokens = {kind: remote.tokens.add(kind) for kind in KINDS}
    local = Daemon({"socket_group": "nogroup"})
    daemons = []
    try:
        for daemon in (remote, local):
            daemons.append(daemon.begin())
        local.folder.chmod(0o755)
        users = {"owner": local.client(OWNER, NOGROUP), "other": local.client(OTHER, NOGROUP), "admin": local}
        yield {
            "tokens": Setting(remote, {kind: remote.remote(token) for kind, token in tokens.items()}),
            "users": Setting(local, users),
        }
    finally:
        for daemon in daemons:
            daemon.finish()


def is_served(client: Client, method: protobuf.MethodDescriptor) -> bool:
    try:
        read(call(client, method, [{}]), method)
    except grpc.RpcError as error:
        return error.code() != grpc.StatusCode.UNIMPLEMENTED
    return True


@pytest.mark.parametrize("row", TABLE)
@pytest.mark.parametrize("by", ["tokens", "users"])
@pytest.mark.rules("AUTH-005", "AUTH-007")
def test_a_call_does_what_the_table_says(settings, by, row):
    setting = settings[by]
    if not is_served(setting.callers["owner"], method_of(row)):
        return
    assert row in CALLS, "it is served, and nobody asks for it here"
    found = {}
    for kind, caller in setting.callers.items():
        sandbox = setting.sandbox_for(CALLS[row][1])
        found[kind] = outcome(caller, row, sandbox)
        if found[kind] != "works":
            assert state_name(setting.callers["owner"].get(sandbox.id)) == "READY"
    assert found == TABLE[row]


def test_what_is_missing_and_what_is_of_others_looks_the_same(settings):
    other = settings["tokens"].callers["other"]
    theirs = settings["tokens"].sandbox_for(False).id
    missing = "sb-" + "x" * (len(theirs) - 3)
    told = []
    for one in (theirs, missing):
        with refused("SANDBOX_NOT_FOUND") as error:
            other.get(one)
        told.append((error.message.replace(one, "ID"), error.metadata))
    assert told[0] == told[1]


# ---- What is each caller's own ----


def test_request_ids_of_different_callers_do_not_meet(settings):
    callers = settings["tokens"].callers
    made = {callers[kind].create(request_id="the-same").id for kind in KINDS}
    assert len(made) == len(KINDS)
    assert callers["owner"].create(request_id="the-same").id in made
    sandbox = settings["tokens"].sandbox_for(False).id
    first = callers["owner"].start(sandbox, "true", request_id="again").id
    assert callers["owner"].start(sandbox, "true", request_id="again").id == first
    assert callers["admin"].start(sandbox, "true", request_id="again").id != first


def test_callers_of_different_kinds_with_one_name_are_different(settings):
    """A token can be called as a user, and is not that user."""
    daemon = settings["tokens"].daemon
    named_as_root = daemon.remote(daemon.tokens.add("0"))
    info = named_as_root.info()
    assert (info.caller, info.caller_is_admin) == ("token:0", False)
    with refused("SANDBOX_NOT_FOUND"):
        named_as_root.get(settings["tokens"].sandbox_for(False).id)


def test_a_page_token_of_another_caller_is_none(settings):
    callers = settings["tokens"].callers
    for _ in range(2):
        callers["owner"].create()
    page = callers["owner"].sandboxes.ListSandboxes(sandbox_pb2.ListSandboxesRequest(page_size=1), timeout=LIMIT)
    with refused("PAGE_TOKEN_INVALID"):
        callers["other"].ids(page_token=page.next_page_token)


def test_quotas_and_streams_are_each_callers_own(tmp_path_factory):
    limits = {"sandboxes_per_caller": 1, "streams_per_caller": 1}
    daemon = RemoteDaemon(Certificates(tmp_path_factory.mktemp("certificates")), limits=limits)
    tokens = [daemon.tokens.add("one"), daemon.tokens.add("other")]
    daemon.begin()
    try:
        callers = [daemon.remote(token) for token in tokens]
        watches = []
        for caller in callers:
            caller.create()
            with refused("QUOTA_EXCEEDED"):
                caller.create()
            watches.append(caller.watch())
            with refused("TOO_MANY_STREAMS"):
                caller.watch()
        # The same caller by another connection.
        with refused("TOO_MANY_STREAMS"):
            daemon.remote(tokens[0]).watch()
        for watch in watches:
            watch.close()
    finally:
        daemon.finish()
