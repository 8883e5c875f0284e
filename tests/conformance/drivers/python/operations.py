# SPDX-License-Identifier: Apache-2.0
"""The commands of ../../PROTOCOL.md by hutch.aio."""

import base64
import hashlib

from google.protobuf import json_format, message_factory

from hutch._rules.durations import parse_duration
from hutch.aio import Client
from hutch.v1 import (
    exec_pb2,
    file_pb2,
    image_pb2,
    policy_pb2,
    port_pb2,
    provider_pb2,
    sandbox_exec_pb2,
    sandbox_pb2,
    state_pb2,
    system_pb2,
)

BASE64_MAX = 65_536
MODULES = (exec_pb2, file_pb2, image_pb2, policy_pb2, port_pb2, provider_pb2, sandbox_exec_pb2, sandbox_pb2, system_pb2)
SERVICES = {name: service for module in MODULES for name, service in module.DESCRIPTOR.services_by_name.items()}


# ---- Values ----


def to_json(message) -> dict:
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def to_bytes(value) -> bytes:
    if isinstance(value, dict):
        return base64.b64decode(value["repeat"]) * value["times"]
    return base64.b64decode(value)


def tell_bytes(data: bytes) -> dict:
    told = {"len": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    if len(data) <= BASE64_MAX:
        told["base64"] = base64.b64encode(data).decode()
    return told


def seconds(text: str) -> float:
    return parse_duration(text) / 1e9


def numbers(enum, names: list) -> list:
    return [enum.Value(name) for name in names]


def given(args: dict, *names: str, **converted) -> dict:
    """Those of the arguments that are there, by name; @converted ones by a function."""
    found = {name: args[name] for name in names if name in args}
    return found | {name: convert(args[name]) for name, convert in converted.items() if name in args}


def exec_spec(args: dict) -> exec_pb2.ExecSpec:
    return json_format.ParseDict(args.get("spec", {}), exec_pb2.ExecSpec())


def sandbox_spec(args: dict) -> sandbox_pb2.SandboxSpec:
    return json_format.ParseDict(args.get("spec", {}), sandbox_pb2.SandboxSpec())


# ---- Clients and the daemon ----


async def client_connect(command) -> dict:
    command.clients[command.name] = Client(**command.args, start_daemon=False)
    return {}


async def client_close(command) -> dict:
    await command.clients[command.name].close()
    return {}


async def system_ping(command) -> dict:
    await command.client.ping()
    return {}


async def system_info(command) -> dict:
    return {"info": to_json(await command.client.info())}


async def raw_call(command) -> dict:
    service, method = command.args["method"].split("/")
    found = SERVICES[service].methods_by_name[method]
    request = message_factory.GetMessageClass(found.input_type)()
    json_format.ParseDict(command.args.get("request", {}), request)
    response = message_factory.GetMessageClass(found.output_type)
    return {"response": to_json(await command.client.call(command.args["method"], request, response))}


# ---- Sandboxes ----


def sandbox_of(command):
    return command.client.sandbox(command.args["sandbox_id"])


async def sandbox_create(command) -> dict:
    options = given(command.args, "sandbox_id", "request_id")
    spec = sandbox_spec(command.args) if "spec" in command.args else None
    return {"sandbox": to_json((await command.client.create(spec, wait=False, **options)).info)}


async def sandbox_get(command) -> dict:
    return {"sandbox": to_json((await command.client.get(command.args["sandbox_id"])).info)}


async def sandbox_list(command) -> dict:
    options = given(command.args, "selector", states=lambda names: numbers(state_pb2.SandboxState, names))
    return {"sandboxes": [to_json(sandbox.info) async for sandbox in command.client.list(**options)]}


async def sandbox_update(command) -> dict:
    options = given(command.args, "labels", idle_ttl=seconds)
    return {"sandbox": to_json(await sandbox_of(command).update(**options))}


async def sandbox_stop(command) -> dict:
    return {"sandbox": to_json(await sandbox_of(command).stop(**given(command.args, grace=seconds)))}


async def sandbox_resume(command) -> dict:
    return {"sandbox": to_json(await sandbox_of(command).resume())}


async def sandbox_pause(command) -> dict:
    return {"sandbox": to_json(await sandbox_of(command).pause())}


async def sandbox_unpause(command) -> dict:
    return {"sandbox": to_json(await sandbox_of(command).unpause())}


async def sandbox_delete(command) -> dict:
    return {"sandbox": to_json(await sandbox_of(command).delete())}


async def sandbox_delete_many(command) -> dict:
    return {"count": len(await command.client.delete_many(command.args["selector"]))}


async def sandbox_wait(command) -> dict:
    states = [name.removeprefix("SANDBOX_STATE_") for name in command.args["states"]]
    sandbox = command.clients[command.name].sandbox(command.args["sandbox_id"])
    return {"sandbox": to_json(await sandbox.wait(*states, timeout=command.timeout))}


# ---- Execs ----


def exec_of(command):
    return sandbox_of(command).exec(command.args["exec_id"])


def tell_result(result) -> dict:
    return {
        "stdout": tell_bytes(result.stdout_bytes),
        "stderr": tell_bytes(result.stderr_bytes),
        "truncated": result.truncated,
    }


class Told:
    """What came on a stream of output."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.start = None
        self.end = 0
        self.gaps = []

    def add(self, chunk: exec_pb2.OutputChunk) -> None:
        if self.start is None:
            self.start = chunk.offset
        elif chunk.offset != self.end:
            self.gaps.append({"offset": self.end, "length": chunk.offset - self.end})
        self.end = chunk.offset + len(chunk.data)
        self.data += chunk.data

    def tell(self) -> dict:
        return tell_bytes(bytes(self.data)) | {"start": self.start or 0, "gaps": self.gaps}


class Reader:
    """Reads a stream of output and does the steps of its input in between."""

    def __init__(self, command, stream) -> None:
        self.command = command
        self.stream = command.stream = stream
        self.told = {exec_pb2.OUTPUT_STREAM_STDOUT: Told(), exec_pb2.OUTPUT_STREAM_STDERR: Told()}
        self.noted = False

    async def until(self, text: bytes | None = None) -> None:
        """Reads until stdout contains @text, or to the end."""
        while text is None or text not in self.told[exec_pb2.OUTPUT_STREAM_STDOUT].data:
            try:
                chunk = await self.stream.__anext__()
            except StopAsyncIteration:
                return
            if not self.noted:
                self.command.note()
                self.noted = True
            self.told[chunk.stream].add(chunk)

    async def step(self, step: dict) -> None:
        if "stdin" in step:
            await self.stream.write(to_bytes(step["stdin"]))
        elif "close" in step:
            await self.stream.close_input()
        elif "resize" in step:
            await self.stream.resize(step["resize"]["rows"], step["resize"]["columns"])
        elif "signal" in step:
            await self.stream.signal(step["signal"])
        else:
            await self.until(step["after"].encode())

    async def read(self) -> dict:
        async with self.stream:
            for step in self.command.args.get("input", []):
                await self.step(step)
            await self.until()
        out, err = self.told.values()
        return {"stdout": out.tell(), "stderr": err.tell()}


async def read_exec(command, stream) -> dict:
    told = await Reader(command, stream).read()
    return told | {"exec": to_json(stream.exec)}


async def exec_run(command) -> dict:
    options = given(command.args, "request_id", input=to_bytes)
    result = await sandbox_of(command).run(exec_spec(command.args), **options)
    return tell_result(result) | {"exec": to_json(result.exec)}


async def exec_create(command) -> dict:
    options = given(command.args, "exec_id", "request_id")
    return {"exec": to_json((await sandbox_of(command).create_exec(exec_spec(command.args), **options)).info)}


async def exec_get(command) -> dict:
    return {"exec": to_json(await exec_of(command).refresh())}


async def exec_list(command) -> dict:
    options = given(command.args, states=lambda names: numbers(state_pb2.ExecState, names))
    return {"execs": [to_json(one.info) async for one in sandbox_of(command).list_execs(**options)]}


async def exec_cancel(command) -> dict:
    return {"exec": to_json(await exec_of(command).cancel(**given(command.args, grace=seconds)))}


async def exec_start(command) -> dict:
    options = given(command.args, "exec_id", "request_id", "bound")
    return await read_exec(command, await sandbox_of(command).start(exec_spec(command.args), **options))


async def exec_attach(command) -> dict:
    options = given(command.args, "stdout_offset", "stderr_offset")
    return await read_exec(command, await exec_of(command).attach(**options))


async def exec_output(command) -> dict:
    options = given(
        command.args,
        "stdout_offset",
        "stderr_offset",
        "follow",
        "tail_lines",
        streams=lambda names: numbers(exec_pb2.OutputStream, names),
    )
    return await read_exec(command, exec_of(command).output(**options))


# ---- Events ----


async def events_watch(command) -> dict:
    options = given(command.args, "sandbox_ids", "selector", "after_cursor", "snapshot")
    events = []
    async with await command.client.watch(**options) as watch:
        command.stream = watch
        while len(events) != command.args.get("count"):
            event = await watch.__anext__()
            if not events:
                command.note()
            events.append(event)
            state = state_pb2.SandboxState.Name(event.sandbox_state.to_state)
            if event.HasField("sandbox_state") and state == command.args.get("until"):
                break
        return {
            "events": [to_json(event) for event in events],
            "sandboxes": [to_json(info) for info in watch.snapshot],
            "cursor": watch.cursor,
        }


# ---- Files ----


def files_of(command):
    return sandbox_of(command).files


async def file_read(command) -> dict:
    info, data = await files_of(command).read_with_info(command.args["path"])
    return {"file": to_json(info), "data": tell_bytes(data)}


async def file_write(command) -> dict:
    args = command.args
    options = given(args, "mode", "create_parents", "overwrite", "expected_version")
    return {"file": to_json(await files_of(command).write(args["path"], to_bytes(args["data"]), **options))}


async def file_upload(command) -> dict:
    args = command.args
    options = given(args, "mode", "create_parents", "overwrite", "upload_id", "resume_offset", sha256=to_bytes)
    if "size_bytes" in args:
        options["size"] = args["size_bytes"]
    if "max_size_bytes" in args:
        options["max_size"] = args["max_size_bytes"]
    return {"file": to_json(await files_of(command).upload(args["path"], to_bytes(args["data"]), **options))}


async def file_upload_stat(command) -> dict:
    return {"file": to_json(await files_of(command).stat_upload(command.args["upload_id"]))}


async def file_download(command) -> dict:
    options = given(command.args, "offset", "length", "expected_version")
    if "max_size_bytes" in command.args:
        options["max_size"] = command.args["max_size_bytes"]
    async with files_of(command).download(command.args["path"], **options) as download:
        command.stream = download
        data = await download.read()
        return {"file": to_json(download.info), "data": tell_bytes(data)}


async def file_archive_upload(command) -> dict:
    args = command.args
    options = given(args, "create_parents", "overwrite", compression=file_pb2.ArchiveCompression.Value)
    answer = await files_of(command).upload_archive(args["path"], to_bytes(args["data"]), **options)
    return {"entries": answer.entries}


async def file_archive_download(command) -> dict:
    args = command.args
    options = given(args, "include", "exclude", "ignore_file", compression=file_pb2.ArchiveCompression.Value)
    return {"data": tell_bytes(await files_of(command).download_archive(args["path"], **options).read())}


async def file_stat(command) -> dict:
    options = given(command.args, "follow_symlink")
    return {"file": to_json(await files_of(command).stat(command.args["path"], **options))}


async def file_list(command) -> dict:
    options = given(command.args, "depth", "glob")
    pages = [page async for page in files_of(command).list_pages(command.args["path"], **options)]
    files = [to_json(file) for page in pages for file in page.files]
    return {"files": files, "changed": any(page.changed for page in pages)}


async def file_changes(command) -> dict:
    pages = [page async for page in files_of(command).change_pages(command.args["path"])]
    differences = [to_json(change) for page in pages for change in page.changes]
    return {"differences": differences, "incomplete": any(page.incomplete for page in pages)}


async def file_mkdir(command) -> dict:
    options = given(command.args, "mode", "create_parents")
    return {"file": to_json(await files_of(command).mkdir(command.args["path"], **options))}


async def file_move(command) -> dict:
    options = given(command.args, "overwrite", "create_parents")
    return {"file": to_json(await files_of(command).move(command.args["source"], command.args["target"], **options))}


async def file_remove(command) -> dict:
    options = given(command.args, "recursive", "ignore_missing")
    return {"removed": await files_of(command).remove(command.args["path"], **options)}


async def file_watch(command) -> dict:
    changes = []
    async with await files_of(command).watch(command.args["path"], **given(command.args, "recursive")) as watch:
        command.stream = watch
        command.note()
        while len(changes) < command.args["count"]:
            changes.append(to_json(await watch.__anext__()))
    return {"changes": changes}


# ---- One-shots ----


async def once_exec(command) -> dict:
    request = json_format.ParseDict(command.args["request"], sandbox_exec_pb2.ExecRequest())
    stream = await command.client.exec_once(request)
    told = await Reader(command, stream).read()
    return told | {"started": to_json(stream.started), "exit": to_json(stream.exit)}


async def once(command, function, what) -> dict:
    options = given(command.args, "env", input=to_bytes, timeout=seconds)
    spec = sandbox_spec(command.args) if "spec" in command.args else None
    result = await function(what, spec, **options)
    return tell_result(result) | {"exit_code": result.exit_code}


async def once_run(command) -> dict:
    return await once(command, command.client.run, command.args["argv"])


async def once_run_shell(command) -> dict:
    return await once(command, command.client.run_shell, command.args["script"])


async def once_run_python(command) -> dict:
    return await once(command, command.client.run_python, command.args["code"])


# ---- Snapshots and images ----


async def snapshot_create(command) -> dict:
    return {"snapshot": to_json(await sandbox_of(command).snapshot(**given(command.args, "name")))}


async def snapshot_list(command) -> dict:
    options = given(command.args, "sandbox_id")
    return {"snapshots": [to_json(one) async for one in command.client.list_snapshots(**options)]}


async def snapshot_delete(command) -> dict:
    await command.client.delete_snapshot(command.args["name"])
    return {}


async def image_import(command) -> dict:
    args = command.args
    return {"image": to_json(await command.client.import_image(args["name"], to_bytes(args["data"])))}


async def image_pull(command) -> dict:
    return {"image": to_json(await command.client.pull_image(command.args["reference"]))}


async def image_list(command) -> dict:
    return {"images": [to_json(one) async for one in command.client.list_images()]}


async def image_remove(command) -> dict:
    await command.client.remove_image(command.args["reference"])
    return {}
