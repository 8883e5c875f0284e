# SPDX-License-Identifier: Apache-2.0
"""What only the sync client has: threads. And clients that vanish."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from host import PATIENCE

from hutch import Cancelled, Client
from hutch.v1 import sandbox_pb2, state_pb2

SOURCE = Path(__file__).resolve().parents[1] / "src"
VANISHING = """
import hutch
from hutch.v1 import sandbox_pb2

spec = sandbox_pb2.SandboxSpec(labels={"set": "SET"})
spec.idle_ttl.seconds = 5
with hutch.Client("ADDRESS") as client:
    print(client.run(["sleep", "100"], spec, timeout=5, kill_grace=0).exit_code)
"""


def test_many_threads_share_a_client(address):
    with Client(address) as client, client.create() as sandbox, ThreadPoolExecutor(10) as pool:
        results = pool.map(lambda i: sandbox.run(["echo", str(i)]).stdout, range(30))
        assert list(results) == [f"{i}\n" for i in range(30)]


@pytest.mark.rules("REMOTE-003")
def test_closing_a_client_while_others_read_is_safe(address):
    with Client(address) as other, other.create() as sandbox:
        client = Client(address)
        stream = client.sandbox(sandbox.id).start(["sleep", "60"], kill_grace=0)
        watch = client.watch(selector="nothing=there")
        once = client.exec_once(["sleep", "60"])
        ended = []

        def read(function) -> None:
            try:
                function()
            except Cancelled as error:
                ended.append(error)

        readers = (stream.collect, lambda: next(watch), once.collect, lambda: client.run(["sleep", "60"]))
        threads = [threading.Thread(target=read, args=(function,)) for function in readers]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        client.close()
        for thread in threads:
            thread.join(20 * PATIENCE)
        assert len(ended) == len(threads)


def test_the_one_shot_of_a_client_that_is_killed_is_removed(address, unique):
    code = VANISHING.replace("SET", unique).replace("ADDRESS", address)
    environ = os.environ | {"PYTHONPATH": str(SOURCE)}
    with Client(address) as client, subprocess.Popen([sys.executable, "-c", code], env=environ) as process:
        while not (found := list(client.list(f"set={unique}", states=[state_pb2.SANDBOX_STATE_READY]))):
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert found[0].info.spec.idle_action == sandbox_pb2.IDLE_ACTION_DELETE
        found[0].wait("DELETED", timeout=50 * PATIENCE)
