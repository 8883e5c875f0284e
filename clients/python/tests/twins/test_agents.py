# SPDX-License-Identifier: Apache-2.0
"""What agents program against, and one-shots."""

import pytest

from hutch import ExecResult, FailedPrecondition, NotFound, SandboxSpec, SandboxUnavailable
from hutch.aio import Client, SandboxClient
from hutch.v1 import sandbox_pb2, state_pb2


async def test_an_agent_has_a_sandbox(address, unique, tmp_path):
    (tmp_path / "given").write_text("here\n")
    async with SandboxClient(address) as sandboxes:
        spec = SandboxSpec(name=unique, labels={"set": unique}, env={"A": "1"})
        async with await sandboxes.create(spec) as handle:
            assert handle.id == unique
            limits = handle.sandbox.info.effective.limits
            assert (limits.memory_bytes, limits.cpu_millis) == (512 << 20, 1000)
            ran = await handle.exec("echo", ["a b", "$A"])
            assert isinstance(ran, ExecResult)
            assert (ran.stdout, ran.stderr, ran.exit_code, ran.truncated, ran.ok) == ("a b $A\n", "", 0, False, True)
            assert (await handle.shell("echo $A; exit 7")).exit_code == 7
            late = await handle.shell("echo slow; sleep 60", timeout=5)
            assert late.exit_code == 124 and "slow" in late.output and "time" in late.output
            assert "slow" in await handle.logs(tail=2)
            assert [one.id for one in await sandboxes.list(f"set={unique}")] == [unique]
            assert (await sandboxes.get(unique)).id == unique
            await handle.stop()
            assert handle.sandbox.state == "STOPPED"
            await handle.kill()
            await sandboxes.remove(unique)
        with pytest.raises(NotFound):
            await sandboxes.get(f"{unique}-x")


def test_a_limit_is_asked_for_only_by_the_caller():
    assert not SandboxSpec().message().HasField("limits")
    assert SandboxSpec(memory=1 << 30).message().limits == sandbox_pb2.ResourceLimits(memory_bytes=1 << 30)
    assert SandboxSpec(cpus=0.5).message().limits == sandbox_pb2.ResourceLimits(cpu_millis=500)


async def test_an_agent_needs_no_cgroups(ordinary_daemon):
    """A daemon that cannot limit memory and CPU serves those who ask for no limit, and refuses the others."""
    async with SandboxClient(f"unix:{ordinary_daemon.socket}") as sandboxes:
        async with await sandboxes.create() as handle:
            assert (await handle.shell("echo here")).stdout == "here\n"
        assert (await sandboxes.run_python("print(6 * 7)")).stdout == "42\n"
        assert (await sandboxes.run_shell("echo shell")).stdout == "shell\n"
        with pytest.raises(FailedPrecondition) as told:
            await sandboxes.run_shell("true", SandboxSpec(cpus=1))
        assert told.value.reason == "LIMIT_NOT_ENFORCEABLE"


async def test_no_egress_is_no_network(address):
    async with SandboxClient(address) as sandboxes:
        code = "import socket\ntry: socket.create_connection(('192.0.2.1', 80), 2)\nexcept OSError: print('denied')"
        assert (await sandboxes.run_python(code)).stdout == "denied\n"
        with pytest.raises(FailedPrecondition):
            await sandboxes.run_shell("true", SandboxSpec(egress=["example.com"]))


async def test_one_shots_leave_nothing(address, unique):
    async with Client(address) as client:
        spec = SandboxSpec(labels={"set": unique})
        ran = await client.run(["cat"], spec, input=b"\0\xff")
        assert (ran.stdout_bytes, ran.ok) == (b"\0\xff", True)
        assert (await client.run_shell("echo $0 >&2; exit 9", spec)).exit_code == 9
        assert (await client.run_python("print(6 * 7)", spec)).stdout == "42\n"
        assert (await client.run(["sleep", "60"], spec, timeout=0.2, kill_grace=0)).exit_code == 124
        with pytest.raises(TypeError):
            await client.run("echo", spec)
        states = [state_pb2.SANDBOX_STATE_DELETING, state_pb2.SANDBOX_STATE_DELETED]
        gone = [sandbox async for sandbox in client.list(f"set={unique}", states=states)]
        assert len(gone) == 4
        assert {sandbox.id async for sandbox in client.list(f"set={unique}")} <= {sandbox.id for sandbox in gone}
        assert {sandbox.info.spec.idle_action for sandbox in gone} == {sandbox_pb2.IDLE_ACTION_DELETE}
        assert {sandbox.info.spec.idle_ttl.seconds for sandbox in gone} == {60}


async def test_a_command_runs_by_a_profile_in_one_call(address):
    async with Client(address) as client:
        argv = ["sh", "-c", "cat; echo e >&2; exit 5"]
        async with await client.exec_once(argv, profile="strict", input=b"in") as once:
            assert once.started.effective.profile == "strict"
            ended = await once.collect()
        assert (ended.stdout, ended.stderr, ended.exit_code) == ("in", "e\n", 5)
        assert once.exit is not None and once.exit.exit_code == 5
        late = await (await client.exec_once(["sleep", "60"], timeout=0.2)).collect()
        assert (late.exit_code, late.timed_out) == (124, True)
        await client.sandbox(once.started.sandbox_id).wait("DELETED")


async def test_without_a_runtime_there_is_a_clear_error(resting_daemon):
    async with SandboxClient(f"unix:{resting_daemon.socket}") as sandboxes:
        with pytest.raises(SandboxUnavailable) as told:
            await sandboxes.create()
        assert told.value.reason.endswith("UNAVAILABLE")
        with pytest.raises(SandboxUnavailable):
            await sandboxes.run_shell("true")


@pytest.mark.rules("CONN-008")
async def test_this_users_daemon_is_started_when_nobody_listens(user_daemon):
    async with Client() as client:
        assert (await client.info()).version
        user_daemon.stop()
        await client.ping()  # another one
    async with Client(f"unix:{user_daemon.socket}", start_daemon=False) as client:
        await client.ping()


async def test_without_a_daemon_there_is_a_clear_error(monkeypatch, tmp_path):
    async with Client(f"unix:{tmp_path}/none", timeout=20) as client:
        with pytest.raises(SandboxUnavailable) as told:
            await client.ping()
        assert told.value.reason == "DAEMON_UNREACHABLE"
    monkeypatch.setenv("HUTCH_SOCKET", f"{tmp_path}/none")
    monkeypatch.setenv("PATH", str(tmp_path))
    async with SandboxClient() as sandboxes:
        with pytest.raises(SandboxUnavailable, match="no program 'hutch'"):
            await sandboxes.run_shell("true")
    program = tmp_path / "hutch"
    program.write_text('#!/bin/sh\necho "$* $HUTCH_SOCKET: no such luck" >&2\nexit 3\n')
    program.chmod(0o755)
    async with SandboxClient() as sandboxes:
        with pytest.raises(SandboxUnavailable, match=f"daemon start {tmp_path}/none: no such luck"):
            await sandboxes.run_shell("true")
