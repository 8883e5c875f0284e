# SPDX-License-Identifier: Apache-2.0
"""The life of sandboxes, and what happens to them."""

import pytest

from hutch import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, SandboxSpec, Unimplemented
from hutch.aio import Client
from hutch.v1 import policy_pb2, sandbox_pb2, state_pb2


async def test_a_sandbox_lives_and_goes(address, unique):
    async with Client(address) as client:
        async with await client.create(SandboxSpec(labels={"team": "a"}), sandbox_id=unique) as sandbox:
            assert (sandbox.id, sandbox.state) == (unique, "READY")
            assert (await client.get(unique)).info.spec.labels == {"team": "a"}
            assert (await sandbox.pause()).id == sandbox.id
            await sandbox.wait("PAUSED")
            await sandbox.unpause()
            await sandbox.wait()
            await sandbox.update(labels={"team": "b"}, idle_ttl=0)
            assert sandbox.info.spec.labels == {"team": "b"}
            assert sandbox.info.spec.idle_ttl.ToNanoseconds() == 0
            await sandbox.stop(grace=0)
            assert (await sandbox.wait("STOPPED")).state == state_pb2.SANDBOX_STATE_STOPPED
            await sandbox.resume()
            assert (await sandbox.wait(timeout=30)).state == state_pb2.SANDBOX_STATE_READY
            assert (await sandbox.refresh(include_usage=True)).usage.memory_bytes > 0
        await sandbox.wait("DELETED")


async def test_sandboxes_are_listed_and_deleted_by_their_labels(address, unique):
    async with Client(address) as client:
        made = [await client.create(SandboxSpec(labels={"set": unique}), wait=False) for _ in range(3)]
        listed = [sandbox.id async for sandbox in client.list(f"set={unique}")]
        assert listed == [sandbox.id for sandbox in made]
        assert list(await client.delete_many(f"set={unique}")) == listed
        for sandbox in made:
            await sandbox.wait("DELETED")
        gone = client.list(f"set={unique}", states=[state_pb2.SANDBOX_STATE_DELETED])
        assert [sandbox.id async for sandbox in gone] == listed


async def test_errors_are_typed_and_tell_all(address, unique):
    async with Client(address) as client:
        with pytest.raises(NotFound) as missing:
            await client.get("nobody-here")
        assert (missing.value.code, missing.value.reason) == ("NOT_FOUND", "SANDBOX_NOT_FOUND")
        async with await client.create(sandbox_id=unique) as sandbox:
            with pytest.raises(AlreadyExists) as taken:
                await client.create(sandbox_id=unique)
            assert taken.value.reason == "ID_TAKEN"
            await sandbox.stop(grace=0)
            await sandbox.wait("STOPPED")
            with pytest.raises(FailedPrecondition) as wrong:
                await sandbox.pause()
            assert (wrong.value.reason, wrong.value.metadata["state"]) == ("SANDBOX_WRONG_STATE", "STOPPED")
            with pytest.raises(FailedPrecondition) as never:
                await sandbox.wait("READY")
            assert (never.value.reason, never.value.metadata) == ("SANDBOX_WRONG_STATE", {"state": "STOPPED"})


async def test_what_breaks_a_rule_is_refused_before_any_call():
    async with Client("unix:/nonexistent/socket") as client:
        spec = sandbox_pb2.SandboxSpec(labels={"hutch/x": "1", "-": ""}, env={"A=B": ""}, working_directory="a/../b")
        with pytest.raises(InvalidArgument) as refused:
            await client.create(spec, sandbox_id="x")
        assert [(one.field, one.reason) for one in refused.value.violations] == [
            ("sandbox_id", "ID_MALFORMED"),
            ("spec.env[A=B]", "ENV_NAME_MALFORMED"),
            ("spec.labels[-]", "LABEL_MALFORMED"),
            ("spec.labels[hutch/x]", "LABEL_RESERVED"),
            ("spec.working_directory", "PATH_NOT_ABSOLUTE"),
        ]
        for selector, reason in (("", "SELECTOR_EMPTY"), ("a b", "SELECTOR_MALFORMED")):
            with pytest.raises(InvalidArgument) as refused:
                await client.delete_many(selector)
            assert refused.value.reason == reason


async def test_what_the_daemon_does_not_serve_is_told_so(address):
    async with Client(address) as client:
        with pytest.raises(Unimplemented) as told:
            await client.delete_snapshot("some")
        assert told.value.reason == "METHOD_UNIMPLEMENTED"
        with pytest.raises(Unimplemented):
            await client.sandbox("some-sandbox").snapshot("some")
        with pytest.raises(Unimplemented):
            [image async for image in client.list_images()]
        with pytest.raises(Unimplemented):
            await client.import_image("some", b"bytes" * 300000)
        with pytest.raises(Unimplemented):
            await client.pull_image("some/image")
        with pytest.raises(Unimplemented):
            request = policy_pb2.GetPolicyRequest(sandbox_id="some-sandbox")
            await client.call("PolicyService/GetPolicy", request, policy_pb2.GetPolicyResponse)


async def test_events_are_watched_from_a_cursor(address, unique):
    async with Client(address) as client:
        async with await client.watch(selector=f"set={unique}") as watch:
            async with await client.create(SandboxSpec(labels={"set": unique})) as sandbox:
                pass
            seen = []
            async for event in watch:
                seen.append(event)
                if event.sandbox_state.to_state == state_pb2.SANDBOX_STATE_DELETED:
                    break
            assert {event.sandbox_id for event in seen} == {sandbox.id}
            assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
            assert watch.cursor == seen[-1].cursor
        async with await client.watch(selector=f"set={unique}", after_cursor=seen[1].cursor) as again:
            rest = []
            async for event in again:
                rest.append(event)
                if len(rest) == len(seen) - 2:
                    break
            assert rest == seen[2:]


async def test_a_watch_can_begin_with_what_is_there(address, unique):
    async with Client(address) as client:
        async with await client.create(SandboxSpec(labels={"set": unique})) as sandbox:
            async with await client.watch(selector=f"set={unique}", snapshot=True) as watch:
                assert [info.id for info in watch.snapshot] == [sandbox.id]
                await sandbox.stop(grace=0)
                async for event in watch:
                    assert event.sandbox_state.to_state == state_pb2.SANDBOX_STATE_STOPPING
                    break


async def test_the_daemon_tells_about_itself(address):
    async with Client(address) as client:
        await client.ping()
        info = await client.info()
        assert info.limits.max_request_bytes == 4 << 20
        assert info.caller == "uid:0"
