# SPDX-License-Identifier: Apache-2.0
"""The contract as the tests of this folder see it: its descriptors, and a walk over what messages are made of."""

import subprocess
import sys
from pathlib import Path

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

ROOT = Path(__file__).resolve().parents[2]

# Messages whose content the contract does not bound: values nest without limit, or hold any message at all.
OPEN_ENDED = {f"google.protobuf.{name}" for name in ("Any", "ListValue", "Struct", "Value")}


class Contract:
    """The .proto files below the folder @proto, compiled."""

    def __init__(self, proto: Path) -> None:
        names = sorted(str(file.relative_to(proto)) for file in proto.rglob("*.proto"))
        compiler = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={proto}"]
        options = ["--include_imports", "--include_source_info", "--descriptor_set_out=/dev/stdout"]
        compiled = subprocess.run([*compiler, *options, *names], stdout=subprocess.PIPE, check=True)
        pool = DescriptorPool()
        self.protos = {file.name: file for file in FileDescriptorSet.FromString(compiled.stdout).file}
        for file in self.protos.values():
            pool.Add(file)
        self.files = [pool.FindFileByName(name) for name in names]

    def messages(self) -> list[Descriptor]:
        """Every message, those within others excepted."""
        return [message for file in self.files for message in file.message_types_by_name.values()]

    def methods(self, package: str) -> list[MethodDescriptor]:
        services = [service for file in self.files for service in file.services_by_name.values()]
        return [method for service in services if service.file.package == package for method in service.methods]

    def comment(self, file: str, *path: int) -> str:
        """The comment above what stands at @path, in the words of SourceCodeInfo."""
        locations = self.protos[file].source_code_info.location
        return next(location.leading_comments for location in locations if tuple(location.path) == path).strip()


def submessages(message: Descriptor) -> list[FieldDescriptor]:
    return [field for field in message.fields if field.message_type]


def unbounded(messages: list[Descriptor]) -> list[str]:
    """Which of @messages, or of those they are made of, contain themselves or hold what is open-ended."""
    found, done = [], set()

    def visit(message: Descriptor, path: list[str]) -> None:
        if message.full_name in path:
            cycle = path[path.index(message.full_name) :]
            found.append("recursive: " + " -> ".join([*cycle, message.full_name]))
        elif message.full_name not in done:
            for field in submessages(message):
                if field.message_type.full_name in OPEN_ENDED:
                    found.append(f"{field.full_name} is a {field.message_type.full_name}")
                else:
                    visit(field.message_type, [*path, message.full_name])
            done.add(message.full_name)

    for message in messages:
        visit(message, [])
    return found
