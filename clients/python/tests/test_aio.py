# SPDX-License-Identifier: Apache-2.0
"""What only asyncio has: many things at once, and cancellation."""

import asyncio

import pytest

from hutch import Cancelled
from hutch.aio import Client
from hutch.v1 import state_pb2


async def test_many_calls_share_a_client(address):
    async with Client(address) as client, await client.create() as sandbox:
        results = await asyncio.gather(*(sandbox.run(["echo", str(i)]) for i in range(20)))
        assert [result.stdout for result in results] == [f"{i}\n" for i in range(20)]


async def test_cancelling_a_task_ends_its_command(address):
    async with Client(address) as client, await client.create() as sandbox:
        task = asyncio.create_task(sandbox.run(["sleep", "60"], kill_grace=0))
        while not [one async for one in sandbox.list_execs(states=[state_pb2.EXEC_STATE_RUNNING])]:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        command = [one async for one in sandbox.list_execs()][0]
        assert (await command.wait()).state == state_pb2.EXEC_STATE_CANCELLED


@pytest.mark.rules("REMOTE-003")
async def test_closing_a_client_ends_what_is_under_way(address):
    async with Client(address) as other, await other.create() as sandbox:
        client = Client(address)
        watch = await client.watch(selector="nothing=there")
        stream = await client.sandbox(sandbox.id).start(["sleep", "60"], kill_grace=0)
        tasks = [
            asyncio.create_task(anext(watch)),
            asyncio.create_task(stream.collect()),
            asyncio.create_task(client.sandbox(sandbox.id).run(["sleep", "60"], kill_grace=0)),
        ]
        await asyncio.sleep(0.2)
        await client.close()
        for task in tasks:
            with pytest.raises(Cancelled):
                await task


async def test_a_one_shot_that_is_cancelled_leaves_nothing(address, unique):
    from hutch import SandboxSpec  # pylint: disable=import-outside-toplevel

    async with Client(address) as client:
        selector, spec = f"set={unique}", SandboxSpec(labels={"set": unique})
        task = asyncio.create_task(client.run(["sleep", "60"], spec))
        while not [one async for one in client.list(selector, states=[state_pb2.SANDBOX_STATE_READY])]:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gone = [state_pb2.SANDBOX_STATE_DELETING, state_pb2.SANDBOX_STATE_DELETED]
        assert len([one async for one in client.list(selector, states=gone)]) == 1
