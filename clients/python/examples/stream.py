# SPDX-License-Identifier: Apache-2.0
"""Talks with a command that runs: output as it comes, input in answer to it."""

import asyncio

from hutch.aio import Client


async def main() -> None:
    script = "while read line; do echo you said $line; done; echo bye"
    async with Client() as client, await client.create() as box:
        async with await box.start(["sh", "-c", script], stdin=True, timeout=30) as stream:
            for word in ("hello", "again"):
                await stream.write(f"{word}\n".encode())
                chunk = await anext(stream)
                print(chunk.data.decode().strip())
            await stream.close_input()
            print((await stream.collect()).stdout.strip())


asyncio.run(main())
