# SPDX-License-Identifier: Apache-2.0
"""The driver of the Python client (../../PROTOCOL.md): of hutch.aio, or with --sync of its twin, with the same commands
(operations.py), rewritten by the tool that makes the twin itself."""

import asyncio
import json
import sys
import threading
import traceback
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
sys.path[:0] = [str(HERE), str(ROOT / "clients/python/src"), str(ROOT / "clients/python/tools")]

# pylint: disable=wrong-import-position
from hutch import Cancelled, HutchError  # noqa: E402

PRINTING = threading.Lock()


def say(**line) -> None:
    with PRINTING:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def tell_error(error: BaseException) -> dict:
    if not isinstance(error, HutchError):
        text = "".join(traceback.format_exception(error))
        return {"code": "DRIVER", "reason": "EXCEPTION", "metadata": {"text": text}, "violations": []}
    return {
        "code": error.code,
        "reason": error.reason,
        "metadata": error.metadata,
        "violations": [{"field": one.field, "reason": one.reason} for one in error.violations],
    }


class Command:
    """A command on its way, as the operations see it."""

    def __init__(self, line: dict, clients: dict):
        self.id = line["id"]
        self.args = line.get("args", {})
        self.timeout = line["timeout_ms"] / 1000 if "timeout_ms" in line else None
        self.clients = clients
        self.name = line.get("client", "main")
        self.stream = None  # that ends when it is closed

    @property
    def client(self):
        client = self.clients[self.name]
        return client if self.timeout is None else client.with_timeout(self.timeout)

    def note(self) -> None:
        say(id=self.id, note="started")


class Unknown(Exception):
    """There is no such operation."""


def operation(module, line: dict):
    found = getattr(module, line["op"].replace(".", "_"), None)
    if found is None:
        metadata = {"text": line["op"]}
        say(id=line["id"], error={"code": "DRIVER", "reason": "UNKNOWN_OP", "metadata": metadata, "violations": []})
        raise Unknown
    return found


# ---- hutch.aio ----


async def run(function, command: Command) -> None:
    try:
        say(id=command.id, ok=await function(command))
    except asyncio.CancelledError:
        say(id=command.id, error=tell_error(Cancelled("the task was cancelled", reason="CALL_CANCELLED")))
    except Exception as error:  # pylint: disable=broad-exception-caught
        say(id=command.id, error=tell_error(error))


async def main() -> None:
    import operations  # pylint: disable=import-outside-toplevel

    loop = asyncio.get_running_loop()
    clients: dict = {}
    tasks: dict[int, asyncio.Task] = {}
    while text := await loop.run_in_executor(None, sys.stdin.buffer.readline):
        line = json.loads(text)
        if line["op"] == "cancel":
            tasks[line["args"]["id"]].cancel()
            say(id=line["id"], ok={})
            continue
        try:
            tasks[line["id"]] = loop.create_task(run(operation(operations, line), Command(line, clients)))
        except Unknown:
            pass
    for client in clients.values():
        await client.close()
    await asyncio.gather(*tasks.values())


# ---- The sync twin ----


def run_sync(function, command: Command) -> None:
    try:
        say(id=command.id, ok=function(command))
    except Exception as error:  # pylint: disable=broad-exception-caught
        say(id=command.id, error=tell_error(error))


def main_sync() -> None:
    from make_sync import sync_source  # pylint: disable=import-outside-toplevel

    operations = types.ModuleType("operations")
    source = sync_source((HERE / "operations.py").read_text(encoding="utf-8"))
    exec(compile(source, "operations.py", "exec"), operations.__dict__)  # pylint: disable=exec-used
    clients: dict = {}
    commands: dict[int, Command] = {}
    with ThreadPoolExecutor(64) as pool:
        for text in sys.stdin.buffer:
            line = json.loads(text)
            if line["op"] == "cancel":
                commands[line["args"]["id"]].stream.close()
                say(id=line["id"], ok={})
                continue
            try:
                command = commands[line["id"]] = Command(line, clients)
                pool.submit(run_sync, operation(operations, line), command)
            except Unknown:
                pass
        for client in clients.values():
            client.close()


if __name__ == "__main__":
    if "--sync" in sys.argv:
        main_sync()
    else:
        asyncio.run(main())
