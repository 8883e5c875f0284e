# SPDX-License-Identifier: Apache-2.0
"""Commands: collected, streamed, with a terminal, by themselves."""

import pytest

from hutch import InvalidArgument, NotFound
from hutch.aio import Client
from hutch.v1 import exec_pb2, state_pb2


async def test_a_command_is_run_and_collected(address):
    async with Client(address) as client, await client.create() as sandbox:
        script = "cat; echo $A; pwd; echo oops >&2; exit 3"
        ran = await sandbox.run(["sh", "-c", script], input=b"in\n", env={"A": "b c"}, working_directory="/tmp")
        assert (ran.stdout, ran.stderr, ran.exit_code) == ("in\nb c\n/tmp\n", "oops\n", 3)
        assert (ran.ok, ran.truncated, ran.timed_out) == (False, False, False)
        assert ran.output == "in\nb c\n/tmp\noops\n"
        assert (await sandbox.run(["printf", r"\377\0"])).stdout_bytes == b"\xff\0"
        assert (await sandbox.run(["no-such-program"])).exit_code == 127


async def test_a_timeout_kills_the_command_and_says_so(address):
    async with Client(address) as client, await client.create() as sandbox:
        ran = await sandbox.run(["sh", "-c", "echo begun; sleep 60"], timeout=5, kill_grace=0)
        assert (ran.exit_code, ran.timed_out, ran.ok) == (124, True, False)
        assert ran.stdout == "begun\n"
        assert "time" in ran.message and ran.message in ran.output


async def test_much_output_is_cut_in_the_middle_and_told(address):
    async with Client(address) as client, await client.create() as sandbox:
        script = "echo first; head -c 100000 /dev/zero; echo last"
        ran = await sandbox.run(["sh", "-c", script], collect_limit=1000)
        assert ran.truncated and len(ran.stdout_bytes) == 1000
        assert ran.stdout_bytes.startswith(b"first\n") and ran.stdout_bytes.endswith(b"\0last\n")
        async with await sandbox.start(["sh", "-c", script]) as stream:
            streamed = await stream.collect(1000)
        assert (streamed.stdout_bytes, streamed.truncated) == (ran.stdout_bytes, True)


async def test_output_comes_as_it_is_printed_and_input_goes_in(address):
    async with Client(address) as client, await client.create() as sandbox:
        async with await sandbox.start(["cat"], stdin=True) as stream:
            await stream.write(b"one\n")
            async for chunk in stream:
                assert (chunk.stream, chunk.offset, chunk.data) == (exec_pb2.OUTPUT_STREAM_STDOUT, 0, b"one\n")
                break
            await stream.write(b"x" * 3_000_000)
            await stream.close_input()
            rest = await stream.collect()
            assert (len(rest.stdout_bytes), rest.exit_code) == (3_000_000, 0)
            assert stream.exec.state == state_pb2.EXEC_STATE_EXITED


async def test_a_terminal_has_a_size_that_changes(address):
    async with Client(address) as client, await client.create() as sandbox:
        script = "stty size; read line; stty size; read line"
        async with await sandbox.start(["sh", "-c", script], stdin=True, terminal=(30, 100)) as stream:
            text = b""
            async for chunk in stream:
                text += chunk.data
                if text.endswith(b"30 100\r\n"):
                    await stream.resize(40, 120)
                    await stream.write(b"\n")
                if text.endswith(b"40 120\r\n"):
                    await stream.write(b"\n")
            assert stream.exec.result.exit_code == 0


async def test_a_signal_reaches_the_command(address):
    async with Client(address) as client, await client.create() as sandbox:
        script = "trap 'echo caught; exit 5' USR1; echo ready; while :; do sleep 0.05; done"
        async with await sandbox.start(["sh", "-c", script]) as stream:
            async for chunk in stream:
                if chunk.data == b"ready\n":
                    await stream.signal(10)
            assert stream.exec.result.exit_code == 5


async def test_closing_a_stream_ends_the_command_that_it_started(address):
    async with Client(address) as client, await client.create() as sandbox:
        async with await sandbox.start(["sleep", "60"], kill_grace=0) as stream:
            exec_id = stream.exec.id
        ended = await sandbox.exec(exec_id).wait()
        assert ended.state == state_pb2.EXEC_STATE_CANCELLED


async def test_a_command_goes_on_by_itself_and_is_attached_again(address):
    async with Client(address) as client, await client.create() as sandbox:
        command = await sandbox.create_exec(
            ["sh", "-c", "echo one; read line; echo $line; exit 4"], stdin=True, exec_id="by-itself"
        )
        assert (command.id, command.sandbox_id) == ("by-itself", sandbox.id)
        async with await command.attach() as stream:
            async for chunk in stream:
                assert chunk.data == b"one\n"
                break
        async with await sandbox.exec("by-itself").attach(stdout_offset=4) as stream:
            await stream.write(b"two\n")
            ended = await stream.collect()
        assert (ended.stdout, ended.exit_code) == ("two\n", 4)
        assert (await command.wait()).result.exit_code == 4
        assert (await command.output().collect()).stdout == "one\ntwo\n"
        assert (await command.output(tail_lines=1).collect()).stdout == "two\n"
        assert [one.id async for one in sandbox.list_execs()] == ["by-itself"]
        assert [one.id async for one in sandbox.list_execs(states=[state_pb2.EXEC_STATE_RUNNING])] == []


async def test_output_is_followed_to_the_end(address):
    async with Client(address) as client, await client.create() as sandbox:
        command = await sandbox.create_exec(["sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.05; done"])
        followed = await command.output(follow=True).collect()
        assert (followed.stdout, followed.exit_code) == ("1\n2\n3\n", 0)


async def test_a_command_can_be_cancelled(address):
    async with Client(address) as client, await client.create() as sandbox:
        command = await sandbox.create_exec(["sleep", "60"])
        await command.cancel(grace=0)
        assert (await command.wait()).state == state_pb2.EXEC_STATE_CANCELLED
        with pytest.raises(NotFound) as missing:
            await sandbox.exec("not-there").refresh()
        assert missing.value.reason == "EXEC_NOT_FOUND"


async def test_commands_that_break_a_rule_are_refused_before_any_call():
    async with Client("unix:/nonexistent/socket") as client:
        sandbox = client.sandbox("some-sandbox")
        with pytest.raises(InvalidArgument) as refused:
            await sandbox.run([], env={"": "x"}, working_directory="..")
        assert [(one.field, one.reason) for one in refused.value.violations] == [
            ("spec.argv", "ARGV_EMPTY"),
            ("spec.env[]", "ENV_NAME_MALFORMED"),
            ("spec.working_directory", "PATH_DOTDOT"),
        ]
        with pytest.raises(InvalidArgument) as refused:
            await sandbox.start(["a\0b"])
        assert refused.value.violations[0].field == "create.spec.argv[0]"
        with pytest.raises(TypeError):
            await sandbox.run("echo hello")
