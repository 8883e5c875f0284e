# SPDX-License-Identifier: Apache-2.0
"""What the contract offers, and the conventions that all of it keeps."""

import keyword
import re

import grpc
import pytest
from contract import ROOT, Contract, submessages, unbounded

# Every method of the public services; * marks a stream, before the name of requests and after it of answers.
SURFACE = {
    "AgentSandboxService": """CreateSandbox GetSandbox ListSandboxes UpdateSandbox StopSandbox ResumeSandbox
        PauseSandbox UnpauseSandbox DeleteSandbox DeleteSandboxes WatchEvents* CreateSnapshot ListSnapshots
        DeleteSnapshot""",
    "ExecService": "CreateExec GetExec ListExecs CancelExec *AttachExec* ReadExecOutput* RunCommand",
    "SandboxExecService": "Exec*",
    "FileService": """*UploadFile DownloadFile* *UploadArchive DownloadArchive* ReadFile WriteFile StatFile ListFiles
        MakeDirectory MoveFile RemoveFile WatchFiles* ListChanges""",
    "PolicyService": "GetPolicy SetPolicy ListDenials",
    "ProviderService": """CreateProvider GetProvider ListProviders UpdateProvider DeleteProvider AttachProvider
        DetachProvider""",
    "PortService": "ExposeService GetService ListServices DeleteService *ForwardTcp*",
    "ImageService": "*ImportImage PullImage* ListImages RemoveImage",
    "SystemService": "Ping GetInfo",
}

# The methods that make, start or move something, of which a repeat would do so again, or fail for having done so.
CREATING = set(
    """CreateSandbox ResumeSandbox CreateSnapshot CreateExec AttachExec RunCommand Exec UploadFile UploadArchive
    WriteFile MakeDirectory MoveFile RemoveFile CreateProvider ExposeService ImportImage PullImage""".split()
)

CONTRACT = Contract(ROOT / "proto")
METHODS = CONTRACT.methods("hutch.v1")


def named(pattern: str) -> list:
    """Parameters: the methods whose names begin with @pattern, by their full names."""
    found = [method for method in METHODS if re.match(pattern, method.name)]
    assert found
    return [pytest.param(method, id=method.full_name.removeprefix("hutch.v1.")) for method in found]


def type_of(message, name: str) -> str:
    """The type of a field, as it stands in the .proto file; "" when there is none."""
    field = message.fields_by_name.get(name)
    if not field:
        return ""
    scalars = {field.TYPE_UINT32: "uint32", field.TYPE_STRING: "string"}
    return field.message_type.full_name if field.message_type else scalars.get(field.type, "another type")


def test_the_public_services_are_these_and_no_others():
    offered: dict[str, list[str]] = {}
    for method in METHODS:
        stream = "*" * method.client_streaming + method.name + "*" * method.server_streaming
        offered.setdefault(method.containing_service.name, []).append(stream)
    assert offered == {service: methods.split() for service, methods in SURFACE.items()}


def test_what_makes_or_starts_something_has_a_request_id():
    """In the request itself, or in the message that begins a stream of requests."""

    def has_request_id(method) -> bool:
        messages = [method.input_type]
        if method.client_streaming:
            messages += [field.message_type for field in submessages(method.input_type)]
        return any(type_of(message, "request_id") == "string" for message in messages)

    names = {method.name for method in METHODS}
    assert {method.name for method in METHODS if has_request_id(method)} == CREATING
    verbs = "Create|Resume|Run|Exec|Upload|Write|Make|Expose|Import|Pull"
    assert {name for name in names if re.match(verbs, name)} <= CREATING


def test_no_field_is_a_word_that_python_or_c_reserves():
    """Go and TypeScript write fields in another case."""
    reserved = set(keyword.kwlist) | set(
        """auto break case char const continue default do double else enum extern float for goto if inline int long
        register return short signed sizeof static struct switch typedef union unsigned void volatile while""".split()
    )
    fields = [field for message in CONTRACT.messages() for field in message.fields]
    assert [field.full_name for field in fields if field.name in reserved] == []


@pytest.mark.parametrize("method", named("List"))
def test_list_is_paged(method):
    assert type_of(method.input_type, "page_size") == "uint32"
    assert type_of(method.input_type, "page_token") == "string"
    assert type_of(method.output_type, "next_page_token") == "string"
    assert [field.name for field in method.output_type.fields if field.is_repeated]


@pytest.mark.parametrize("method", named("Update"))
def test_update_names_the_fields_it_changes(method):
    assert type_of(method.input_type, "update_mask") == "google.protobuf.FieldMask"


def test_no_message_is_unbounded():
    """The C decoder has no limit to the depth of messages, so none may nest without end. All messages are walked, not
    only requests: what keepers and daemons answer is decoded in C too."""
    assert unbounded(CONTRACT.messages()) == []


@pytest.mark.parametrize(
    "body, problems",
    [
        ("message A { A a = 1; }", ["recursive: t.A -> t.A"]),
        ("message A { repeated B b = 1; } message B { A a = 1; }", ["recursive: t.A -> t.B -> t.A"]),
        ("message A { oneof x { B b = 1; } } message B { B b = 1; }", ["recursive: t.B -> t.B"]),
        ("message A { map<string, A> a = 1; }", ["recursive: t.A -> t.A.AEntry -> t.A"]),
        ("message A { message B { A a = 1; } B b = 1; }", ["recursive: t.A -> t.A.B -> t.A"]),
        ("message A { google.protobuf.Any a = 1; }", ["t.A.a is a google.protobuf.Any"]),
        ("message A { B b = 1; } message B { google.protobuf.Struct s = 1; }", ["t.B.s is a google.protobuf.Struct"]),
        ("message A { repeated google.protobuf.Value v = 1; }", ["t.A.v is a google.protobuf.Value"]),
        ("message A { google.protobuf.ListValue v = 1; }", ["t.A.v is a google.protobuf.ListValue"]),
        ("message A { B b = 1; B c = 2; C d = 3; } message B { C c = 1; } message C { string s = 1; }", []),
    ],
)
def test_what_is_unbounded_is_found(tmp_path, body, problems):
    imports = 'import "google/protobuf/any.proto"; import "google/protobuf/struct.proto";'
    (tmp_path / "t.proto").write_text(f'syntax = "proto3"; package t; {imports} {body}', encoding="utf-8")
    assert unbounded(Contract(tmp_path).messages()[:1]) == problems


def reasons() -> list[tuple[str, int, str]]:
    """The name, number and gRPC code of every reason; the code is the first word of its comment."""
    file = "hutch/v1/error.proto"
    enums = CONTRACT.protos[file].enum_type
    index, enum = next((i, enum) for i, enum in enumerate(enums) if enum.name == "Reason")
    comments = [CONTRACT.comment(file, 5, index, 2, i) for i in range(len(enum.value))]
    return [
        (value.name.removeprefix("REASON_"), value.number, comment.partition(":")[0])
        for value, comment in zip(enum.value, comments)
        if value.number
    ]


def test_the_comment_of_every_reason_begins_with_its_code():
    codes = {code.name for code in grpc.StatusCode} - {"OK", "UNKNOWN"}
    assert [reason for reason in reasons() if reason[2] not in codes] == []


def test_the_model_has_the_same_reasons():
    header = (ROOT / "src" / "model" / "reason.h").read_text(encoding="utf-8")
    table = re.findall(r"^ +X\((\w+), (\d+), (\w+)\)", header, re.MULTILINE)
    assert [(name, int(number), code) for name, number, code in table] == reasons()
