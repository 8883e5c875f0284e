# SPDX-License-Identifier: Apache-2.0
"""The streams of execs, as the tests use them: being attached, and reading output."""

import queue

from hutch.v1 import exec_pb2
from hutchd import LIMIT, Client, state_name

STDOUT = exec_pb2.OUTPUT_STREAM_STDOUT
STDERR = exec_pb2.OUTPUT_STREAM_STDERR
PIPED = exec_pb2.STDIN_MODE_STREAM


class Output:
    """Output as it came, checked: every stream's offsets grow, and a jump is a gap."""

    def __init__(self, stdout_offset: int = 0, stderr_offset: int = 0):
        self.data = {STDOUT: bytearray(), STDERR: bytearray()}
        self.begin: dict[int, int] = {}  # where a stream's first byte stood
        self.end = {STDOUT: stdout_offset, STDERR: stderr_offset}
        self.gaps: list[tuple[int, int, int]] = []  # stream, from, to

    def add(self, chunk: exec_pb2.OutputChunk) -> None:
        assert 0 < len(chunk.data) <= 256 * 1024
        stream = chunk.stream
        if chunk.offset != self.end[stream]:
            assert chunk.offset > self.end[stream]
            self.gaps.append((stream, self.end[stream], chunk.offset))
        self.begin.setdefault(stream, chunk.offset)
        self.data[stream] += chunk.data
        self.end[stream] = chunk.offset + len(chunk.data)

    @property
    def stdout(self) -> bytes:
        return bytes(self.data[STDOUT])

    @property
    def stderr(self) -> bytes:
        return bytes(self.data[STDERR])


class Attached:
    """A client that is attached to an exec."""

    def __init__(self, client: Client, timeout: float = LIMIT, **first):
        self.requests: queue.SimpleQueue = queue.SimpleQueue()
        self.output = Output()
        self.exec = None  # as it was when the connection stood
        self.ended = None
        self.send(**first)
        self.call = client.execs.AttachExec(iter(self.requests.get, None), timeout=timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.detach()

    def send(self, **item) -> None:
        self.requests.put(exec_pb2.AttachExecRequest(**item))

    def write(self, data: bytes) -> None:
        self.send(stdin=data)

    def close_stdin(self) -> None:
        self.send(stdin_close=exec_pb2.StdinClose())

    def resize(self, rows: int, columns: int) -> None:
        self.send(resize=exec_pb2.TerminalSize(rows=rows, columns=columns))

    def half_close(self) -> None:
        self.requests.put(None)

    def detach(self) -> None:
        self.half_close()
        self.call.cancel()

    def attached(self):
        """Waits until the connection stands. Returns the exec as it is then."""
        step = next(self.call)
        assert step.HasField("attached")
        self.exec = step.attached
        return self.exec

    def step(self) -> bool:
        """Takes one step. Returns false after the last."""
        for step in self.call:
            assert self.ended is None
            if step.HasField("output"):
                self.output.add(step.output)
            else:
                assert step.HasField("ended")
                self.ended = step.ended
            return True
        return False

    def until(self, text: bytes) -> None:
        """Takes steps until stdout holds @text."""
        while text not in self.output.data[STDOUT]:
            assert self.step(), f"no {text!r} in {self.output.stdout!r}"

    def finish(self):
        """Takes all that comes. Returns the exec at its end."""
        while self.step():
            pass
        assert self.ended, "the stream ended without an end of the exec"
        return self.ended


def attach(client: Client, sandbox_id: str, exec_id: str, stdout_offset: int = 0, stderr_offset: int = 0) -> Attached:
    target = exec_pb2.AttachTarget(
        sandbox_id=sandbox_id, exec_id=exec_id, stdout_offset=stdout_offset, stderr_offset=stderr_offset
    )
    attached = Attached(client, attach=target)
    attached.output = Output(stdout_offset, stderr_offset)
    attached.attached()
    return attached


def create_attached(client: Client, sandbox_id: str, *argv: str, bound: bool = False, **spec) -> Attached:
    """Starts a command and is attached to it."""
    request = exec_pb2.CreateExecRequest(sandbox_id=sandbox_id, spec=exec_pb2.ExecSpec(argv=argv, **spec), bound=bound)
    attached = Attached(client, create=request)
    attached.attached()
    return attached


def open_output(client: Client, sandbox_id: str, exec_id: str, timeout: float = LIMIT, **request):
    """The call that reads an exec's output."""
    message = exec_pb2.ReadExecOutputRequest(sandbox_id=sandbox_id, exec_id=exec_id, **request)
    return client.execs.ReadExecOutput(message, timeout=timeout)


def read_output(client: Client, sandbox_id: str, exec_id: str, **request):
    """All output that a reader gets, and the exec that ends it."""
    output = Output(request.get("stdout_offset", 0), request.get("stderr_offset", 0))
    if "tail_lines" in request:
        output.end = {}
    last = None
    for step in open_output(client, sandbox_id, exec_id, **request):
        assert last is None, "something came after the exec"
        if step.HasField("exec"):
            last = step.exec
            continue
        output.end.setdefault(step.output.stream, step.output.offset)
        output.add(step.output)
    assert last is not None
    return output, last


def run_to_end(client: Client, sandbox_id: str, *argv: str, **spec):
    """Runs a command. Returns its exec, with its output."""
    made = client.start(sandbox_id, *argv, **spec)
    output, last = read_output(client, sandbox_id, made.id, follow=True)
    assert state_name(last) not in ("PENDING", "RUNNING")
    return last, output
