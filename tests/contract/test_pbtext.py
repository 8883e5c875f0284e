# SPDX-License-Identifier: Apache-2.0
"""What src/pbtext writes is what others read, and the other way round: Python's protobuf for JSON, PyYAML for YAML."""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest
import yaml
from contract import ROOT, Contract
from google.protobuf import json_format
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

PROGRAM = Path(os.environ.get("HUTCH_BUILD", ROOT / "build/gcc")) / "tests/unit/pbtext-convert"
CONTRACT = Contract(ROOT / "proto")
MESSAGES = {message.full_name: GetMessageClass(message) for message in CONTRACT.messages()}
PER_MESSAGE = 3

TEXTS = ["", "a", "yes", "No", "null", "~", "1", "-1.5", "1e3", "0x1f", "012", "12:30:45", "2024-01-02", ".inf", "="]
TEXTS += ["<<", "a: b", "a #b", " a", "a ", "- a", "?", "*a", "&a", "!a", "%a", "@a", "`a", "'", '"', "\\"]
TEXTS += ["a\nb", "a\nb\n", "a\n\n", "\na", " a\nb", "a \nb", "a\n b\n\n c", "a\tb", "\ta\nb", "a\n\tb", "a\r\nb"]
TEXTS += ["---\na", "\x01", "\x7f", "\x85", "\u2028", "\ufeff", "\ufffe", "\u00e9", "\U0001f407", "600s"]
TEXTS += ["{}", "[]", "a,b", "x" * 2000, "k " * 700]

# Bits, and whether there is a sign; the contract has no others.
NUMBERS = {
    FieldDescriptor.TYPE_INT32: (32, True),
    FieldDescriptor.TYPE_INT64: (64, True),
    FieldDescriptor.TYPE_UINT32: (32, False),
    FieldDescriptor.TYPE_UINT64: (64, False),
}


def convert(name: str, source: str, target: str, data: bytes) -> bytes:
    ended = subprocess.run([PROGRAM, name, source, target], input=data, capture_output=True, check=False, timeout=30)
    assert ended.returncode == 0, f"{ended.stderr.decode()}\n{data!r}"
    return ended.stdout


def random_number(chance: random.Random, bits: int, signed: bool) -> int:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    edges = [low, high, 0, 1, 1 << 53, (1 << 53) + 1]
    return min(max(chance.choice([*edges, chance.getrandbits(chance.randrange(1, bits))]), low), high)


def random_value(chance: random.Random, field: FieldDescriptor):
    if field.type == FieldDescriptor.TYPE_STRING:
        return chance.choice(TEXTS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return chance.randbytes(chance.randrange(8))
    if field.type == FieldDescriptor.TYPE_BOOL:
        return chance.random() < 0.5
    if field.type == FieldDescriptor.TYPE_ENUM:
        return chance.choice([*field.enum_type.values_by_number, 12345])
    return random_number(chance, *NUMBERS[field.type])


def fill(chance: random.Random, message: Message) -> Message:
    """Sets fields of @message at random. Durations and times are such that have a text."""
    name = message.DESCRIPTOR.full_name
    if name in ("google.protobuf.Duration", "google.protobuf.Timestamp"):
        far = [951782399, 1709251199, 253402300799, -62135596800]
        message.seconds = chance.choice([0, 1, 315575999, *(far if name.endswith("Timestamp") else [])])
        message.nanos = chance.choice([0, 1, 1000, 500000000, 999999999])
        return message
    if name == "google.protobuf.FieldMask":
        message.paths.extend(chance.sample(["labels", "idle_ttl", "spec.max_lifetime"], chance.randrange(4)))
        return message

    for field in message.DESCRIPTOR.fields:
        oneof = field.containing_oneof
        if chance.random() < 0.4 or (oneof and message.WhichOneof(oneof.name)):
            continue
        value = getattr(message, field.name)
        if field.message_type and field.message_type.GetOptions().map_entry:
            for _ in range(chance.randrange(4)):
                value[chance.choice(TEXTS)] = random_value(chance, field.message_type.fields_by_name["value"])
        elif field.message_type and field.is_repeated:
            for _ in range(chance.randrange(3)):
                fill(chance, value.add())
        elif field.message_type:
            fill(chance, value)
            value.SetInParent()
        elif field.is_repeated:
            value.extend(random_value(chance, field) for _ in range(chance.randrange(4)))
        else:
            setattr(message, field.name, random_value(chance, field))
    return message


def full_names(value, field: FieldDescriptor):
    """@value of @field as JSON, with the names of enums as the .proto files have them."""
    if isinstance(value, list):
        return [full_names(element, field) for element in value]
    if field.message_type and field.message_type.GetOptions().map_entry:
        return value
    if field.message_type and isinstance(value, dict):
        return {name: full_names(value[name], field.message_type.fields_by_name[name]) for name in value}
    if field.enum_type and isinstance(value, str):
        return full_name(value, field.enum_type)
    return value


def full_name(short: str, enum: EnumDescriptor) -> str:
    names = [name for name in enum.values_by_name if name == short or name.endswith(f"_{short}")]
    return min(names, key=len)


def canonical(text: bytes, message: Message) -> str:
    read = json.loads(text)
    fields = message.DESCRIPTOR.fields_by_name
    return json.dumps({name: full_names(value, fields[name]) for name, value in read.items()})


@pytest.mark.parametrize("name", MESSAGES)
def test_others_read_what_we_write_and_we_what_they_write(name):
    chance = random.Random(name)
    for _ in range(PER_MESSAGE):
        message = fill(chance, MESSAGES[name]())
        encoded = message.SerializeToString()

        ours = convert(name, "binary", "json", encoded)
        assert json_format.Parse(canonical(ours, message), MESSAGES[name]()) == message
        assert yaml.safe_load(convert(name, "binary", "yaml", encoded)) == json.loads(ours)

        for theirs in (json_format.MessageToJson(message), json_format.MessageToJson(message, indent=None)):
            assert MESSAGES[name].FromString(convert(name, "json", "binary", theirs.encode())) == message
        as_yaml = yaml.safe_dump(json_format.MessageToDict(message, preserving_proto_field_name=True))
        assert MESSAGES[name].FromString(convert(name, "yaml", "binary", as_yaml.encode())) == message


REFUSED = ["", "{", "1", '{"image": 1}', '{"image": "a",}', '{"image": "a", "image": "a"}', '{"unknown": 1}']
REFUSED += ["{'image': 1}", '{"command": [null]}', '{"limits": {"memory_bytes": -1}}', '{"mounts": [{"writable": 1}]}']


@pytest.mark.parametrize("text", REFUSED)
def test_what_python_refuses_we_refuse(text):
    with pytest.raises(json_format.ParseError):
        json_format.Parse(text, MESSAGES["hutch.v1.SandboxSpec"]())
    command = [PROGRAM, "hutch.v1.SandboxSpec", "json", "binary"]
    ended = subprocess.run(command, input=text.encode(), capture_output=True, check=False, timeout=30)
    assert ended.returncode == 1 and ended.stderr
