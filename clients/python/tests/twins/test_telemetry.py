# SPDX-License-Identifier: Apache-2.0
"""Spans of calls, where OpenTelemetry's API is installed."""

import subprocess
import sys

import pytest
from fake_daemon import Fake, refuse
from recorder import record

from hutch import Internal
from hutch.aio import Client
from hutch.v1 import exec_pb2, file_pb2, sandbox_pb2


@pytest.mark.rules("OTEL-001", "OTEL-002", "OTEL-003")
async def test_calls_are_spans_and_carry_their_trace(tmp_path, monkeypatch):
    headers = []

    def create(messages, context):
        next(messages)
        headers.append(dict(context.invocation_metadata()))
        if len(headers) == 1:
            refuse(context, "UNAVAILABLE", "STARTING")
        sandbox = sandbox_pb2.Sandbox(id="made-one", runtime="native")
        yield sandbox_pb2.CreateSandboxResponse(sandbox=sandbox).SerializeToString()

    def run(messages, _context):
        next(messages)
        answer = exec_pb2.RunCommandResponse(exec=exec_pb2.Exec(id="ran-one"))
        answer.exec.result.exit_code = 3
        yield answer.SerializeToString()

    def download(messages, _context):
        next(messages)
        info = file_pb2.FileInfo(path="/a/b", size_bytes=7)
        yield file_pb2.DownloadFileResponse(file=info).SerializeToString()

    def remove(messages, _context):
        next(messages)
        yield file_pb2.RemoveFileResponse(removed=4).SerializeToString()

    spans = record(monkeypatch)
    methods = {"CreateSandbox": create, "RunCommand": run, "DownloadFile": download, "RemoveFile": remove}
    with Fake(tmp_path, **methods) as fake:
        async with Client(fake.address) as client:
            spec = sandbox_pb2.SandboxSpec(image="debian", env={"KEY": "secret-value"})
            sandbox = await client.create(spec, request_id="request-1", wait=False)
            await sandbox.run(["/usr/bin/curl", "--header", "secret-argument"], request_id="request-2")
            await sandbox.files.download("/a/b").read()
            await sandbox.files.remove("/a", recursive=True, request_id="request-3")
    assert [(span.tracer, span.name) for span in spans] == [
        ("hutch-client", "hutch.AgentSandboxService/CreateSandbox"),
        ("hutch-client", "hutch.ExecService/RunCommand"),
        ("hutch-client", "hutch.FileService/DownloadFile"),
        ("hutch-client", "hutch.FileService/RemoveFile"),
    ]
    assert [span.attributes for span in spans] == [
        {
            "sandbox.id": "made-one",
            "sandbox.request_id": "request-1",
            "sandbox.image": "debian",
            "sandbox.runtime": "native",
        },
        {
            "sandbox.id": "made-one",
            "sandbox.exec.id": "ran-one",
            "sandbox.request_id": "request-2",
            "sandbox.command.executable": "curl",
            "sandbox.exit_code": 3,
        },
        {"sandbox.id": "made-one", "sandbox.file.path": "/a/b", "sandbox.file.size": 7},
        {
            "sandbox.id": "made-one",
            "sandbox.file.path": "/a",
            "sandbox.file.count": 4,
            "sandbox.request_id": "request-3",
        },
    ]
    assert all(span.ended for span in spans)
    told = {one["traceparent"] for one in headers}  # of both tries
    assert told == {f"00-{spans[0].trace_id:032x}-{spans[0].span_id:016x}-01"}


async def test_errors_are_noted(tmp_path, monkeypatch):
    def ping(_messages, context):
        refuse(context, "INTERNAL", "IO_ERROR")
        yield b""

    spans = record(monkeypatch)
    with Fake(tmp_path, Ping=ping) as fake:
        async with Client(fake.address) as client:
            with pytest.raises(Internal):
                await client.ping()
    assert [type(error) for error in spans[0].errors] == [Internal]


def test_it_works_without_opentelemetry():
    code = "import sys; sys.modules['opentelemetry'] = None; import hutch; print(hutch.Client('unix:/x'))"
    path = ":".join(sys.path)
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, check=True, stdout=subprocess.PIPE)
