# SPDX-License-Identifier: Apache-2.0
"""Commands in sandboxes: what they print as it comes, what they read, how they end."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence
from types import TracebackType

from hutch._grpc_aio import Stream
from hutch._results import MIB, ExecResult
from hutch._rules.checks import Checks
from hutch._rules.durations import Duration, to_message
from hutch._rules.output import Kept, share
from hutch.aio._calls import Calls, Resume, write
from hutch.aio._watch import Watch
from hutch.errors import HutchError, StreamIncomplete
from hutch.v1 import event_pb2, exec_pb2, sandbox_exec_pb2, sandbox_pb2

COLLECT_LIMIT = 16 * MIB
_STDIN_MAX = MIB  # bytes in one message
_CANCEL_TIMEOUT = 5.0


class Output:
    """What a command prints, in pieces as they come: `async for chunk in output`.

    A chunk has `stream`, `offset` (in bytes that the command wrote on that stream; a jump tells what was dropped) and
    `data`. After the last one `exec` tells how the command is, or how it ended."""

    def __init__(self, exec_: exec_pb2.Exec) -> None:
        self.exec = exec_
        self.ended = False  # the last message came

    async def _next(self) -> exec_pb2.OutputChunk | None:
        """The next chunk; None: there will be no more."""
        raise NotImplementedError

    def __aiter__(self) -> AsyncIterator[exec_pb2.OutputChunk]:
        return self

    async def __anext__(self) -> exec_pb2.OutputChunk:
        chunk = None if self.ended else await self._next()
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def collect(self, limit: int = COLLECT_LIMIT) -> ExecResult:
        """Reads to the end, and keeps head and tail of each stream, up to @limit bytes of both."""
        streams = {exec_pb2.OUTPUT_STREAM_STDOUT: Kept(limit), exec_pb2.OUTPUT_STREAM_STDERR: Kept(limit)}
        async for chunk in self:
            streams[chunk.stream].add(chunk.data, chunk.offset)
        out, err = streams.values()
        limits = share(limit, out.total, err.total)
        kept = [b"".join(stream.cut(own)) for stream, own in zip((out, err), limits)]
        truncated = len(kept[0]) < out.total or len(kept[1]) < err.total
        return ExecResult(kept[0], kept[1], truncated, self.exec)

    async def close(self) -> None:
        """Stops reading."""

    async def __aenter__(self) -> Output:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class ExecStream(Output):
    """A command that this client is attached to: its input, too.

    One that was started by this stream is cancelled when the stream is closed before its end. When the connection is
    lost it goes on, unless it is bound; one that was attached to goes on in any case."""

    def __init__(
        self, calls: Calls, stream: Stream[exec_pb2.AttachExecResponse], exec_: exec_pb2.Exec, owned: bool
    ) -> None:
        super().__init__(exec_)
        self._calls = calls
        self._stream = stream
        self._owned = owned  # the command ends with the stream

    async def _next(self) -> exec_pb2.OutputChunk | None:
        try:
            answer = await self._stream.read()
        except HutchError as error:
            self._owned = self._owned and error.code == "CANCELLED"
            raise
        if answer is None:
            raise StreamIncomplete("the daemon never told how the command ended", reason="STREAM_INCOMPLETE")
        if answer.HasField("ended"):
            self.exec = answer.ended
            self.ended = True
            self._stream.cancel()
            return None
        return answer.output

    async def write(self, data: bytes) -> None:
        """Feeds stdin; returns when the daemon takes more. After the command's end it goes nowhere."""
        for at in range(0, len(data), _STDIN_MAX):
            await write(self._stream, exec_pb2.AttachExecRequest(stdin=data[at : at + _STDIN_MAX]))

    async def close_input(self) -> None:
        """The end of stdin."""
        await write(self._stream, exec_pb2.AttachExecRequest(stdin_close=exec_pb2.StdinClose()))

    async def resize(self, rows: int, columns: int) -> None:
        """The terminal's new size."""
        size = exec_pb2.TerminalSize(rows=rows, columns=columns)
        await write(self._stream, exec_pb2.AttachExecRequest(resize=size))

    async def signal(self, number: int) -> None:
        """Sends a signal to the main process."""
        await write(self._stream, exec_pb2.AttachExecRequest(signal=number))

    async def close(self) -> None:
        """Detaches, and ends the command when it was started by this stream and has not ended."""
        self._stream.cancel()
        if self._owned and not self.ended:
            self._owned = False
            await cancel_quietly(self._calls, self.exec.sandbox_id, self.exec.id)

    async def __aenter__(self) -> ExecStream:
        return self


class ExecOutput(Output):
    """The output of a command, also afterwards. A lost connection is taken up again where it was lost."""

    def __init__(self, calls: Calls, request: exec_pb2.ReadExecOutputRequest) -> None:
        super().__init__(exec_pb2.Exec(id=request.exec_id, sandbox_id=request.sandbox_id))
        self._calls = calls
        self._request = request
        self._resume = Resume()
        self._stream: Stream[exec_pb2.ReadExecOutputResponse] | None = None
        self._seen: set[int] = set()  # streams of which something came, so that their offset is known

    async def _next(self) -> exec_pb2.OutputChunk | None:
        while True:
            answer = None
            if self._stream is None:
                method = "ExecService/ReadExecOutput"
                self._stream, answer = await self._calls.stream(method, self._request, exec_pb2.ReadExecOutputResponse)
            else:
                try:
                    answer = await self._stream.read()
                except HutchError as error:
                    self._stream.cancel()
                    await self._lost(error)
                    continue
            if answer is None:
                raise StreamIncomplete("the daemon never told how the command is", reason="STREAM_INCOMPLETE")
            if answer.HasField("exec"):
                self.exec = answer.exec
                self.ended = True
                return None
            self._take(answer.output)
            return answer.output

    def _take(self, chunk: exec_pb2.OutputChunk) -> None:
        self._resume.progressed()
        self._seen.add(chunk.stream)
        end = chunk.offset + len(chunk.data)
        if chunk.stream == exec_pb2.OUTPUT_STREAM_STDERR:
            self._request.stderr_offset = end
        else:
            self._request.stdout_offset = end

    async def _lost(self, error: HutchError) -> None:
        # The last lines of both streams come at once. Of a stream that sent none, none were there; but where no lines
        # were to begin cannot be known.
        if self._request.HasField("tail_lines") and self._seen:
            if self._request.tail_lines == 0 and len(self._seen) == 1:
                raise error
            self._request.ClearField("tail_lines")
        await self._resume.pause(error)
        self._stream = None

    async def close(self) -> None:
        if self._stream is not None:
            self._stream.cancel()

    async def __aenter__(self) -> ExecOutput:
        return self


class OneShot(Output):
    """A command in a sandbox that exists only for it. `started` tells what took effect, `exit` how it ended."""

    def __init__(
        self, stream: Stream[sandbox_exec_pb2.ExecResponse], started: sandbox_exec_pb2.ExecStarted
    ) -> None:
        super().__init__(exec_pb2.Exec(sandbox_id=started.sandbox_id))
        self._stream = stream
        self.started = started
        self.exit: sandbox_exec_pb2.ExecExit | None = None

    async def _next(self) -> exec_pb2.OutputChunk | None:
        answer = await self._stream.read()
        if answer is None:
            raise StreamIncomplete("the daemon never told how the command ended", reason="STREAM_INCOMPLETE")
        if answer.HasField("exit"):
            self.exit = answer.exit
            self.exec.result.CopyFrom(answer.exit.result)
            self.exec.result.exit_code = answer.exit.exit_code
            self.ended = True
            self._stream.cancel()
            return None
        return answer.output

    async def close(self) -> None:
        """Ends the command, too."""
        self._stream.cancel()

    async def __aenter__(self) -> OneShot:
        return self


class Exec:
    """A command that runs by itself in a sandbox, or ran. `info` is what the daemon told last."""

    def __init__(self, calls: Calls, info: exec_pb2.Exec) -> None:
        self._calls = calls
        self.info = info

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def sandbox_id(self) -> str:
        return self.info.sandbox_id

    def __repr__(self) -> str:
        return f"Exec({self.sandbox_id!r}, {self.id!r})"

    def _check(self, above: str = "") -> None:
        checks = Checks(above)
        checks.id("sandbox_id", self.sandbox_id)
        checks.id("exec_id", self.id)
        checks.done()

    async def refresh(self) -> exec_pb2.Exec:
        """Asks how it is."""
        self._check()
        request = exec_pb2.GetExecRequest(sandbox_id=self.sandbox_id, exec_id=self.id)
        self.info = (await self._calls.unary("ExecService/GetExec", request, exec_pb2.GetExecResponse)).exec
        return self.info

    async def cancel(self, grace: Duration | None = None) -> exec_pb2.Exec:
        """Ends it with all that it started. Returns when that is accepted."""
        self._check()
        request = exec_pb2.CancelExecRequest(sandbox_id=self.sandbox_id, exec_id=self.id)
        if grace is not None:
            request.grace.CopyFrom(to_message(grace))
        self.info = (await self._calls.unary("ExecService/CancelExec", request, exec_pb2.CancelExecResponse)).exec
        return self.info

    async def attach(self, *, stdout_offset: int = 0, stderr_offset: int = 0) -> ExecStream:
        """Connects to its input and output; it goes on when the stream is closed."""
        self._check("attach.")
        target = exec_pb2.AttachTarget(
            sandbox_id=self.sandbox_id, exec_id=self.id, stdout_offset=stdout_offset, stderr_offset=stderr_offset
        )
        return await attach(self._calls, exec_pb2.AttachExecRequest(attach=target), owned=False)

    def output(
        self,
        *,
        follow: bool = False,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
        streams: Sequence[exec_pb2.OutputStream.ValueType] = (),
        tail_lines: int | None = None,
    ) -> ExecOutput:
        """What it printed, and with @follow what it prints until its end."""
        self._check()
        request = exec_pb2.ReadExecOutputRequest(
            sandbox_id=self.sandbox_id,
            exec_id=self.id,
            streams=streams,
            stdout_offset=stdout_offset,
            stderr_offset=stderr_offset,
            follow=follow,
            tail_lines=tail_lines,
        )
        return ExecOutput(self._calls, request)

    async def wait(self) -> exec_pb2.Exec:
        """Waits for its end, without polling."""
        get = sandbox_pb2.GetSandboxRequest(sandbox_id=self.sandbox_id)
        told = await self._calls.unary("AgentSandboxService/GetSandbox", get, sandbox_pb2.GetSandboxResponse)
        request = sandbox_pb2.WatchEventsRequest(
            sandbox_ids=[self.sandbox_id],
            after_sequence=told.sandbox.sequence,
            types=[event_pb2.EVENT_TYPE_EXEC_STATE_CHANGED],
        )
        if (await self.refresh()).HasField("result"):
            return self.info
        async with Watch(self._calls, request) as watch:
            async for event in watch:
                if event.exec_state.exec_id == self.id and event.exec_state.HasField("result"):
                    break
        return await self.refresh()


async def attach(calls: Calls, request: exec_pb2.AttachExecRequest, owned: bool) -> ExecStream:
    """Opens a stream and waits until the connection stands."""
    method = "ExecService/AttachExec"
    stream, answer = await calls.stream(method, request, exec_pb2.AttachExecResponse, more=True)
    if answer is None or not answer.HasField("attached"):
        stream.cancel()
        raise StreamIncomplete("the daemon never told about the command", reason="STREAM_INCOMPLETE")
    return ExecStream(calls, stream, answer.attached, owned)


async def start(calls: Calls, create: exec_pb2.CreateExecRequest) -> ExecStream:
    """Starts a command and connects to it. It has its id from here, so that it can be ended before it is known to have
    begun."""
    create.exec_id = create.exec_id or f"ex-{secrets.token_hex(10)}"
    try:
        return await attach(calls, exec_pb2.AttachExecRequest(create=create), owned=True)
    except HutchError:
        raise
    except BaseException:
        await cancel_quietly(calls, create.sandbox_id, create.exec_id)
        raise


async def cancel_quietly(calls: Calls, sandbox_id: str, exec_id: str) -> None:
    """Ends a command of which nobody will hear again."""
    request = exec_pb2.CancelExecRequest(sandbox_id=sandbox_id, exec_id=exec_id)
    with contextlib.suppress(HutchError):
        await calls.unary("ExecService/CancelExec", request, exec_pb2.CancelExecResponse, _CANCEL_TIMEOUT)
