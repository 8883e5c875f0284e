# SPDX-License-Identifier: Apache-2.0
"""Every method of the contract: whether it is served, and what every text in its request must keep."""

import importlib
import os
from pathlib import Path

import pytest
from google.protobuf import descriptor as protobuf
from hutch.v1 import sandbox_pb2
from hutchd import LIMIT, ROOT, Client, Refusal, field, refused
from test_requests import SERVICES, UNSUPPORTED

import grpc


def all_methods() -> list[protobuf.MethodDescriptor]:
    files = sorted((ROOT / "clients/python/src/hutch/v1").glob("*_pb2.py"))
    modules = [importlib.import_module(f"hutch.v1.{file.stem}") for file in files]
    services = [service for module in modules for service in module.DESCRIPTOR.services_by_name.values()]
    return [method for service in services for method in service.methods]


def ask(client: Client, method: protobuf.MethodDescriptor, request: bytes) -> Refusal | None:
    """Calls a method with one request. Returns the error that it begins with."""
    ways = ["stream" if streams else "unary" for streams in (method.client_streaming, method.server_streaming)]
    stub = getattr(client.channel, "_".join(ways))(f"/{method.containing_service.full_name}/{method.name}", None, None)
    try:
        answer = stub(iter([request]) if method.client_streaming else request, timeout=LIMIT)
        if method.server_streaming:
            next(answer)
            answer.cancel()
        return None
    except grpc.RpcError as error:
        return Refusal(error)


@pytest.mark.rules("ERR-001", "ERR-007")
def test_a_method_is_served_or_says_that_it_is_not(own_daemon):
    served = []
    for method in all_methods():
        told = ask(own_daemon, method, b"")
        if told:
            told.check()
        if told is None or told.code != "UNIMPLEMENTED":
            served.append(f"{method.containing_service.name}/{method.name}")
        else:
            assert told.reason == "METHOD_UNIMPLEMENTED"
    assert {f"hutch.v1.{name.split('/')[0]}" for name in served} == set(SERVICES)
    folder = os.environ.get("HUTCH_CONFORMANCE_DIR")
    if folder:
        Path(folder, "methods-served.txt").write_text("\n".join(served) + "\n", encoding="utf-8")


@pytest.mark.parametrize("name", ["hutch.v1.AgentSandboxService/NoSuchMethod", "hutch.v1.NoSuchService/GetSandbox"])
@pytest.mark.rules("ERR-007")
def test_a_method_that_is_in_no_contract_is_not_served(daemon, name):
    with refused("METHOD_UNIMPLEMENTED"):
        daemon.channel.unary_unary(f"/{name}", None, None)(b"", timeout=LIMIT)


# ---- Fields ----

# What a sandbox is made by; of image, env and workspace only some values.
HONOURED = {
    "image",
    "runtime",
    "profile",
    "labels",
    "env",
    "command",
    "working_directory",
    "user",
    "workspace",
    "mounts",
    "copies",
    "tools",
    "capabilities",
    "limits",
    "idle_ttl",
    "max_lifetime",
    "lifetime_action",
    "idle_action",
}


@pytest.mark.rules("ERR-007")
def test_no_field_of_a_spec_is_taken_and_then_ignored():
    fields = set(sandbox_pb2.SandboxSpec.DESCRIPTOR.fields_by_name)
    assert fields == HONOURED | set(UNSUPPORTED)


def texts_of(message: protobuf.Descriptor, above: tuple = ()) -> list[tuple[protobuf.FieldDescriptor, ...]]:
    """The ways to every text in a message."""
    found = []
    for part in message.fields:
        way = *above, part
        if part.type == part.TYPE_STRING:
            found.append(way)
        elif part.type == part.TYPE_MESSAGE and part.message_type not in [one.message_type for one in above]:
            found += texts_of(part.message_type, way)
    return found


def encode(way: tuple[protobuf.FieldDescriptor, ...], text: bytes) -> bytes:
    """A message that has nothing but @text at @way."""
    for part in reversed(way):
        text = field(part.number, text)
    return text


def name_of(way: tuple[protobuf.FieldDescriptor, ...]) -> str:
    """The field at @way as violations name it; of a map the map."""
    names = []
    for part in way:
        if part.message_type and part.message_type.GetOptions().map_entry:
            return ".".join([*names, part.name])
        names.append(part.name + "[0]" * part.is_repeated)
    return ".".join(names)


OWN = {
    "FIELD_MASK_INVALID",
    "ID_MALFORMED",
    "LABEL_MALFORMED",
    "PAGE_TOKEN_INVALID",
    "REQUEST_ID_MALFORMED",
    "SELECTOR_MALFORMED",
}
NOT_UTF8 = OWN | {"FIELD_NOT_UTF8", "PATH_NOT_UTF8"}
NUL = OWN | {"ARGV_MALFORMED", "ENV_NAME_MALFORMED", "ENV_VALUE_MALFORMED", "FIELD_INVALID", "PATH_CONTROL_CHARACTER"}
BAD_TEXTS = {
    b"\xff": NOT_UTF8,
    b"abc\xc3": NOT_UTF8,
    b"\xc0\x80": NOT_UTF8,  # not the shortest form
    b"\xed\xa0\x80": NOT_UTF8,  # half of a pair of surrogates
    b"\xf4\x90\x80\x80": NOT_UTF8,  # above U+10FFFF
    b"\0": NUL,
    b"host\0more": NUL,
}
SERVED = [method for method in all_methods() if method.containing_service.full_name in SERVICES]


@pytest.mark.rules("TEXT-001", "TEXT-004")
@pytest.mark.parametrize("method", SERVED, ids=lambda method: method.name)
def test_every_text_is_utf8_and_has_no_nul(daemon, method):
    for way in texts_of(method.input_type):
        for text, reasons in BAD_TEXTS.items():
            told = ask(daemon, method, encode(way, text))
            if told and told.reason == "METHOD_UNIMPLEMENTED":
                return
            assert told, f"{text!r} was taken for {name_of(way)}"
            told.check()
            assert told.reason in reasons, (name_of(way), text, told.reason)
            assert told.fields[0][0].startswith(name_of(way))


def test_the_texts_of_a_request_are_found():
    names = {name_of(way) for way in texts_of(sandbox_pb2.CreateSandboxRequest.DESCRIPTOR)}
    assert names >= {"sandbox_id", "spec.labels", "spec.command[0]", "spec.workspace.target", "spec.mounts[0].source"}


# ---- What errors do not show ----

HIDDEN = "hidden-value"


@pytest.mark.rules("ERR-006")
@pytest.mark.parametrize(
    "env, reason",
    [
        ({"A": f"{HIDDEN}\0"}, "ENV_VALUE_MALFORMED"),
        ({"A=": HIDDEN}, "ENV_NAME_MALFORMED"),
        ({"A": f"secret://{HIDDEN} "}, "NAME_MALFORMED"),
        ({"A": HIDDEN * 20_000}, "ARGUMENTS_TOO_LARGE"),
        ({f"V{n}": HIDDEN * 10_000 for n in range(10)}, "ARGUMENTS_TOO_LARGE"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_no_error_shows_a_value_of_the_environment(daemon, shared_sandbox, env, reason):
    for ask_for in (lambda: daemon.create(env=env), lambda: daemon.run(shared_sandbox, "true", env=env)):
        with pytest.raises(grpc.RpcError) as caught:
            ask_for()
        assert Refusal(caught.value).reason == reason
        assert HIDDEN not in f"{caught.value.details()} {caught.value.trailing_metadata()}"
        assert HIDDEN not in str(caught.value)
