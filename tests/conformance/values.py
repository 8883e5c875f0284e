# SPDX-License-Identifier: Apache-2.0
"""Answers of drivers as values that can be compared: messages of the contract in one form, whichever way a language
writes them, and without what is different each time."""

import base64
import io
import re
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "clients/python/src"))

# pylint: disable=wrong-import-position
from google.protobuf import json_format  # noqa: E402
from google.protobuf.descriptor import Descriptor, FieldDescriptor  # noqa: E402
from google.protobuf.message_factory import GetMessageClass  # noqa: E402
from hutch.v1 import (  # noqa: E402
    event_pb2,
    exec_pb2,
    file_pb2,
    image_pb2,
    policy_pb2,
    port_pb2,
    provider_pb2,
    sandbox_exec_pb2,
    sandbox_pb2,
    system_pb2,
)

MODULES = (exec_pb2, file_pb2, image_pb2, policy_pb2, port_pb2, provider_pb2, sandbox_exec_pb2, sandbox_pb2, system_pb2)
SERVICES = {name: service for module in MODULES for name, service in module.DESCRIPTOR.services_by_name.items()}

# The messages in answers, by their keys there.
MESSAGES = {
    "sandbox": sandbox_pb2.Sandbox,
    "sandboxes": sandbox_pb2.Sandbox,
    "exec": exec_pb2.Exec,
    "execs": exec_pb2.Exec,
    "file": file_pb2.FileInfo,
    "files": file_pb2.FileInfo,
    "events": event_pb2.Event,
    "changes": file_pb2.FileChange,
    "differences": file_pb2.ImageChange,
    "info": system_pb2.GetInfoResponse,
    "started": sandbox_exec_pb2.ExecStarted,
    "exit": sandbox_exec_pb2.ExecExit,
    "snapshot": sandbox_pb2.Snapshot,
    "snapshots": sandbox_pb2.Snapshot,
    "image": image_pb2.Image,
    "images": image_pb2.Image,
}

# What is different each time, beside times: left out of transcripts.
VOLATILE = {
    "hutch.v1.Sandbox": {"idle_deadline", "sequence", "usage", "active_execs"},
    "hutch.v1.Event": {"cursor", "sequence"},
    "hutch.v1.ExecResult": {"cpu_time", "peak_memory_bytes"},
    "hutch.v1.FileInfo": {"version", "disk_bytes"},
    "hutch.v1.FileChange": {"file_type"},  # of what may be gone when it is looked at
    "hutch.v1.GetInfoResponse": {"sandboxes", "active_execs"},
}
# What was just accepted may be further on already; where a case knows how far, it says so.
UNSETTLED = {"exec.create": {"state", "start_time", "stdout_bytes", "stderr_bytes"}}
UNSETTLED["exec.cancel"] = UNSETTLED["exec.list"] = UNSETTLED["exec.create"] | {"end_time", "result"}
UNSETTLED |= {f"sandbox.{op}": {"state", "state_time"} for op in ("create", "get", "list", "update")}
MADE = re.compile(r"\b(sb|ex)-[a-z0-9]{20}\b")


def is_message(field: FieldDescriptor) -> bool:
    return field.message_type is not None and not field.message_type.full_name.startswith("google.protobuf.")


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def enum_name(field: FieldDescriptor, value: str) -> str:
    """The full name of an enum's value, which may lack the prefix that its type gives it."""
    names = field.enum_type.values_by_name
    return value if value in names else next((name for name in names if name.endswith(f"_{value}")), value)


def with_full_names(descriptor: Descriptor, value: dict) -> dict:
    """A message's JSON with the full names of enum values."""
    found = {}
    for name, item in value.items():
        field = descriptor.fields_by_name.get(name)
        items = item if isinstance(item, list) else [item]
        if field is not None and field.enum_type is not None:
            items = [enum_name(field, one) if isinstance(one, str) else one for one in items]
        elif field is not None and is_message(field) and not is_map(field):
            items = [with_full_names(field.message_type, one) for one in items]
        found[name] = items if isinstance(item, list) else items[0]
    return found


def read_message(kind, value: dict) -> dict:
    """A message as JSON, in protobuf's own form. Raises ParseError for what is none."""
    message = json_format.ParseDict(with_full_names(kind.DESCRIPTOR, value), kind())
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def response_class(method: str):
    service, name = method.split("/")
    return GetMessageClass(SERVICES[service].methods_by_name[name].output_type)


def read_answer(op: str, args: dict, ok: dict) -> dict:
    """What a command answered with, its messages in protobuf's own form."""
    found = dict(ok)
    for name, value in ok.items():
        kind = response_class(args["method"]) if op == "raw.call" else MESSAGES.get(name)
        if kind is not None and isinstance(value, list):
            found[name] = [read_message(kind, one) for one in value]
        elif kind is not None and value is not None:
            found[name] = read_message(kind, value)
    return found


def is_bytes(value) -> bool:
    return isinstance(value, dict) and {"len", "sha256"} <= value.keys()


def content(value: dict) -> bytes:
    return base64.b64decode(value["base64"])


def tar_entries(data: bytes) -> list[str]:
    """What is in an archive, one line for each, by name."""
    entries = []
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isreg() else None
            text = file.read().decode("latin-1") if file else member.linkname
            entries.append(f"{member.name} {member.type.decode()} {member.mode:o} {text}")
    return sorted(entries)


# ---- Transcripts ----


def settled(descriptor: Descriptor, value: dict) -> dict:
    """A message without what is different each time."""
    found = {}
    for name, item in value.items():
        field = descriptor.fields_by_name[name]
        if name in VOLATILE.get(descriptor.full_name, ()):
            continue
        if field.message_type is not None and field.message_type.full_name == "google.protobuf.Timestamp":
            item = "<time>"
        elif is_message(field) and not is_map(field):
            item = [settled(field.message_type, one) for one in item] if isinstance(item, list) else settled(
                field.message_type, item
            )
        found[name] = item
    return found


class Transcript:
    """What a language answered in a case, step by step, with names in the place of ids."""

    def __init__(self, names: dict[str, str]):
        self.names = dict(names)  # of what has other ids in each language
        self.lines: list = []

    def add(self, op: str, args: dict, answer: dict) -> None:
        if "error" in answer:
            error = dict(answer["error"])
            if error["code"] == "UNAVAILABLE":
                error["reason"] = "<connection>"  # what broke first is a matter of luck
            self.lines.append(self.named({"op": op, "error": error}))
            return
        ok = {name: self.value(op, args, name, value) for name, value in answer["ok"].items() if name != "cursor"}
        self.lines.append(self.named({"op": op, "ok": ok}))

    def value(self, op: str, args: dict, name: str, value):
        kind = response_class(args["method"]) if op == "raw.call" else MESSAGES.get(name)
        if op == "file.archive_download" and name == "data":
            return tar_entries(content(value))
        if kind is None:
            return value
        values = [settled(kind.DESCRIPTOR, one) for one in (value if isinstance(value, list) else [value])]
        for one in values:
            for volatile in UNSETTLED.get(op, ()):
                one.pop(volatile, None)
        return values if isinstance(value, list) else values[0]

    def named(self, value):
        """@value with names in the place of ids."""
        if isinstance(value, dict):
            return {self.named(key): self.named(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.named(item) for item in value]
        if not isinstance(value, str):
            return value
        for text, name in self.names.items():
            value = value.replace(text, name)
        return MADE.sub(lambda match: self.names.setdefault(match[0], f"<{match[1]} {len(self.names)}>"), value)
