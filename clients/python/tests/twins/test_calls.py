# SPDX-License-Identifier: Apache-2.0
"""Deadlines, retries, request ids, resuming: what holds whatever becomes of a call. The daemon is a fake."""

import threading
import time

import pytest
from fake_daemon import Fake, refuse

from hutch import (
    Cancelled,
    DeadlineExceeded,
    HutchError,
    Internal,
    SandboxSpec,
    SandboxUnavailable,
    StreamIncomplete,
)
from hutch.aio import Client
from hutch.v1 import event_pb2, exec_pb2, file_pb2, sandbox_exec_pb2, sandbox_pb2, state_pb2, system_pb2


def create_request(messages) -> sandbox_pb2.CreateSandboxRequest:
    return sandbox_pb2.CreateSandboxRequest.FromString(next(messages))


@pytest.mark.rules("RETRY-005")
async def test_a_call_with_a_request_id_is_repeated_with_the_same_one(tmp_path):
    seen = []

    def create(messages, context):
        seen.append(create_request(messages).request_id)
        if len(seen) < 3:
            refuse(context, "UNAVAILABLE", "DRAINING")
        yield sandbox_pb2.CreateSandboxResponse(sandbox=sandbox_pb2.Sandbox(id="made")).SerializeToString()

    with Fake(tmp_path, CreateSandbox=create) as fake:
        async with Client(fake.address) as client:
            assert (await client.create(wait=False)).id == "made"
            await client.create(wait=False)
            await client.create(request_id="my-own", wait=False)
    assert len(set(seen[:3])) == 1 and len(set(seen)) == 3 and len(seen[0]) > 20
    assert seen[4] == "my-own"


async def test_what_is_not_safe_to_repeat_is_not_repeated(tmp_path):
    def pause(messages, context):
        next(messages)
        refuse(context, "UNAVAILABLE", "KEEPER_UNAVAILABLE")
        yield b""

    with Fake(tmp_path, PauseSandbox=pause) as fake:
        async with Client(fake.address) as client:
            with pytest.raises(SandboxUnavailable) as told:
                await client.sandbox("some-sandbox").pause()
            assert told.value.reason == "KEEPER_UNAVAILABLE"
            assert fake.calls == ["PauseSandbox"]


async def test_what_certainly_was_not_sent_is_repeated(tmp_path):
    def pause(messages, _context):
        next(messages)
        yield sandbox_pb2.PauseSandboxResponse(sandbox=sandbox_pb2.Sandbox(id="paused")).SerializeToString()

    fakes = []

    def begin() -> None:
        fakes.append(Fake(tmp_path, PauseSandbox=pause).__enter__())

    threading.Timer(0.3, begin).start()
    async with Client(f"unix:{tmp_path}/fake.sock") as client:
        assert (await client.sandbox("some-sandbox").pause()).id == "paused"
    assert fakes[0].calls == ["PauseSandbox"]
    fakes[0].__exit__()


async def test_other_errors_are_not_retried(tmp_path):
    def get_info(_messages, context):
        refuse(context, "INTERNAL", "IO_ERROR", what="disk")
        yield b""

    with Fake(tmp_path, GetInfo=get_info) as fake:
        async with Client(fake.address) as client:
            with pytest.raises(Internal) as told:
                await client.info()
            assert (told.value.reason, told.value.metadata) == ("IO_ERROR", {"what": "disk"})
            assert fake.calls == ["GetInfo"]


@pytest.mark.rules("DEADLINE-002")
async def test_the_deadline_is_sent_and_covers_all_tries(tmp_path):
    left = []

    def ping(_messages, context):
        left.append(context.time_remaining())
        refuse(context, "UNAVAILABLE", "STARTING")
        yield b""

    with Fake(tmp_path, Ping=ping) as fake:
        async with Client(fake.address, timeout=5.4) as client:
            begun = time.monotonic()
            with pytest.raises(SandboxUnavailable) as told:
                await client.ping()
            assert told.value.reason == "STARTING"
            assert time.monotonic() - begun < 5.4
            assert 2 <= len(left) <= 5 and left[0] < 5.5 and left[-1] < left[0] - 0.3, left  # the sixth would be late


@pytest.mark.rules("DEADLINE-001")
async def test_calls_have_a_deadline_and_streams_have_none(tmp_path):
    left = []

    def ping(_messages, context):
        left.append(context.time_remaining())
        yield system_pb2.PingResponse().SerializeToString()

    def watch(_messages, context):
        left.append(context.time_remaining())
        started = sandbox_pb2.WatchStarted(cursor=1)
        yield sandbox_pb2.WatchEventsResponse(started=started).SerializeToString()

    def get(messages, context):
        left.append(context.time_remaining())
        sandbox = sandbox_pb2.Sandbox(id="some-sandbox", state=state_pb2.SANDBOX_STATE_PENDING)
        yield sandbox_pb2.GetSandboxResponse(sandbox=sandbox).SerializeToString()

    with Fake(tmp_path, Ping=ping, WatchEvents=watch, GetSandbox=get) as fake:
        async with Client(fake.address) as client:
            await client.ping()
            await (await client.watch()).close()
            assert 55 < left[0] < 65 and (left[1] is None or left[1] > 1e6)

            def waiting(_messages, context):
                left.append(context.time_remaining())
                ready = event_pb2.SandboxStateChange(to_state=state_pb2.SANDBOX_STATE_READY)
                event = event_pb2.Event(cursor=2, sandbox_state=ready)
                yield from watch(_messages, context)
                yield sandbox_pb2.WatchEventsResponse(event=event).SerializeToString()

            fake.methods["WatchEvents"] = waiting
            await client.sandbox("some-sandbox").wait("READY")
            assert any(170 < one < 190 for one in left if one), left  # gRPC rounds up


async def test_a_deadline_that_passes_is_told(tmp_path):
    def ping(_messages, context):
        while context.is_active():
            time.sleep(0.01)
        yield system_pb2.PingResponse().SerializeToString()

    with Fake(tmp_path, Ping=ping) as fake:
        async with Client(fake.address) as client:
            with pytest.raises(DeadlineExceeded) as told:
                await client.with_timeout(0.1).ping()
            assert told.value.reason == "DEADLINE_EXCEEDED"


async def test_a_closed_client_makes_no_calls(tmp_path):
    client = Client(f"unix:{tmp_path}/none")
    await client.close()
    with pytest.raises(Cancelled):
        await client.ping()


@pytest.mark.rules("EVENT-003", "RETRY-006")
async def test_a_watch_goes_on_after_its_cursor(tmp_path):
    asked = []

    def watch(messages, context):
        request = sandbox_pb2.WatchEventsRequest.FromString(next(messages))
        after = request.after_cursor if request.HasField("after_cursor") else 10
        asked.append((after, request.include_snapshot))
        if request.include_snapshot:
            yield sandbox_pb2.WatchEventsResponse(sandbox=sandbox_pb2.Sandbox(id="there")).SerializeToString()
        started = sandbox_pb2.WatchStarted(cursor=after)
        yield sandbox_pb2.WatchEventsResponse(started=started).SerializeToString()
        for cursor in range(after + 1, after + 4):
            event = event_pb2.Event(cursor=cursor)
            yield sandbox_pb2.WatchEventsResponse(event=event).SerializeToString()
        if len(asked) == 2:
            refuse(context, "RESOURCE_EXHAUSTED", "WATCHER_LAGGED", cursor=str(after + 3))
        refuse(context, "UNAVAILABLE", "DRAINING")

    with Fake(tmp_path, WatchEvents=watch) as fake:
        async with Client(fake.address) as client, await client.watch(snapshot=True) as events:
            assert [info.id for info in events.snapshot] == ["there"]
            cursors = []
            async for event in events:
                cursors.append(event.cursor)
                if len(cursors) == 9:
                    break
    assert cursors == list(range(11, 20))
    assert asked == [(10, True), (13, False), (16, False)]


@pytest.mark.rules("RETRY-006")
async def test_an_output_read_goes_on_from_its_offsets(tmp_path):
    text = b"0123456789"
    asked = []

    def read(messages, context):
        request = exec_pb2.ReadExecOutputRequest.FromString(next(messages))
        asked.append((request.stdout_offset, request.HasField("tail_lines")))
        at = request.stdout_offset or 2
        chunk = exec_pb2.OutputChunk(stream=1, offset=at, data=text[at : at + 3])
        yield exec_pb2.ReadExecOutputResponse(output=chunk).SerializeToString()
        if at + 3 < len(text):
            refuse(context, "UNAVAILABLE", "DRAINING")
        yield exec_pb2.ReadExecOutputResponse(exec=exec_pb2.Exec(id="done")).SerializeToString()

    with Fake(tmp_path, ReadExecOutput=read) as fake:
        async with Client(fake.address) as client:
            output = client.sandbox("some-sandbox").exec("some-exec").output(tail_lines=3)
            told = [chunk.data async for chunk in output]
            assert (b"".join(told), output.exec.id) == (text[2:], "done")
    assert asked == [(0, True), (5, False), (8, False)]


async def test_a_download_goes_on_where_it_was_lost(tmp_path):
    text = bytes(range(100))
    asked = []

    def download(messages, context):
        request = file_pb2.DownloadFileRequest.FromString(next(messages))
        asked.append((request.offset, request.length, request.expected_version))
        info = file_pb2.FileInfo(version="v1", size_bytes=100)
        yield file_pb2.DownloadFileResponse(file=info).SerializeToString()
        end = min(request.offset + 30, request.offset + request.length)
        yield file_pb2.DownloadFileResponse(data=text[request.offset : end]).SerializeToString()
        if request.length > 30:
            refuse(context, "UNAVAILABLE", "DRAINING")

    with Fake(tmp_path, DownloadFile=download) as fake:
        async with Client(fake.address) as client:
            got = await client.sandbox("some-sandbox").files.download("x", offset=10, length=80).read()
    assert got == text[10:90]
    assert asked == [(10, 80, ""), (40, 50, "v1"), (70, 20, "v1")]


@pytest.mark.rules("EXEC-013", "REMOTE-002")
async def test_a_stream_without_its_end_is_an_error(tmp_path):
    def attach(messages, _context):
        next(messages)
        yield exec_pb2.AttachExecResponse(attached=exec_pb2.Exec(id="some")).SerializeToString()
        yield exec_pb2.AttachExecResponse(output=exec_pb2.OutputChunk(stream=1, data=b"x")).SerializeToString()

    def once(messages, _context):
        next(messages)
        started = sandbox_exec_pb2.ExecStarted(sandbox_id="some")
        yield sandbox_exec_pb2.ExecResponse(started=started).SerializeToString()

    def whole(messages, context):
        yield from once(messages, context)
        yield sandbox_exec_pb2.ExecResponse(exit=sandbox_exec_pb2.ExecExit(exit_code=3)).SerializeToString()
        while context.is_active():
            time.sleep(0.01)  # the client stops reading at the exit

    with Fake(tmp_path, AttachExec=attach, Exec=once) as fake:
        async with Client(fake.address) as client:
            stream = await client.sandbox("some-sandbox").start(["true"])
            with pytest.raises(StreamIncomplete) as told:
                await stream.collect()
            assert (told.value.code, told.value.reason) == ("DATA_LOSS", "STREAM_INCOMPLETE")
            with pytest.raises(StreamIncomplete):
                await (await client.exec_once(["true"])).collect()
            calls = len(fake.calls)
            with pytest.raises(HutchError) as empty:
                await client.exec_once([])
            assert (empty.value.reason, len(fake.calls)) == ("ARGV_EMPTY", calls)
            fake.methods["Exec"] = whole
            assert (await (await client.exec_once(["true"])).collect()).exit_code == 3


async def test_an_upload_is_not_repeated_once_its_bytes_are_taken(tmp_path):
    got = []

    def upload(messages, context):
        parts = [file_pb2.UploadFileRequest.FromString(message) for message in messages]
        got.append((parts[0].header.request_id, b"".join(part.data for part in parts)))
        refuse(context, "UNAVAILABLE", "KEEPER_UNAVAILABLE")
        yield b""

    with Fake(tmp_path, UploadFile=upload) as fake:
        async with Client(fake.address) as client:
            with pytest.raises(SandboxUnavailable):
                await client.sandbox("some-sandbox").files.upload("x", b"bytes")
    assert len(got) == 1 and got[0][0] and got[0][1] == b"bytes"


@pytest.mark.rules("SECRET-001")
async def test_secrets_are_names_that_the_client_does_not_resolve(tmp_path, monkeypatch):
    seen = []

    def create(messages, _context):
        request = create_request(messages)
        seen.append((dict(request.spec.env), list(request.spec.secrets)))
        yield sandbox_pb2.CreateSandboxResponse().SerializeToString()

    monkeypatch.setenv("API_KEY", "of this process")
    with Fake(tmp_path, CreateSandbox=create) as fake:
        async with Client(fake.address) as client:
            await client.create(SandboxSpec(env={"KEY": "secret://api-key"}, secrets=["api-key"]), wait=False)
            assert seen == [
                ({"KEY": "secret://api-key"}, [sandbox_pb2.SecretBinding(name="api-key", env="API_KEY")])
            ]
            for name in ("", "../x", "API_KEY", "a/b"):
                with pytest.raises(HutchError) as told:
                    await client.create(SandboxSpec(env={"KEY": f"secret://{name}"}))
                assert told.value.reason == "NAME_MALFORMED"
            assert fake.calls == ["CreateSandbox"]


@pytest.mark.rules("SIZE-003")
async def test_large_messages_are_taken_and_too_large_ones_not_sent(tmp_path):
    def run(messages, _context):
        next(messages)
        yield exec_pb2.RunCommandResponse(stdout=bytes((17 << 20) - 100)).SerializeToString()

    with Fake(tmp_path, RunCommand=run) as fake:
        async with Client(fake.address) as client:
            sandbox = client.sandbox("some-sandbox")
            assert len((await sandbox.run(["true"])).stdout_bytes) == (17 << 20) - 100
            with pytest.raises(HutchError) as told:
                await sandbox.run(["true"], input=bytes(4 << 20))
            assert told.value.reason == "MESSAGE_TOO_LARGE"
            assert fake.calls == ["RunCommand"]


@pytest.mark.rules("EXEC-014")
async def test_a_timeout_is_the_commands_own(tmp_path):
    seen = []

    def run(messages, context):
        request = exec_pb2.RunCommandRequest.FromString(next(messages))
        seen.append((request.spec.timeout.ToMilliseconds(), context.time_remaining()))
        yield exec_pb2.RunCommandResponse().SerializeToString()

    with Fake(tmp_path, RunCommand=run) as fake:
        async with Client(fake.address) as client:
            await client.sandbox("some-sandbox").run(["true"], timeout=100.5)
    assert seen[0][0] == 100_500 and seen[0][1] > 150
