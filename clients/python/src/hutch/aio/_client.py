# SPDX-License-Identifier: Apache-2.0
"""The client: sandboxes, events, one-shots, images, and the daemon itself."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from google.protobuf.message import Message

from hutch._connection import Options, Token
from hutch._grpc_aio import Response, Source, Stream, read_pieces
from hutch._results import MIB, ExecResult
from hutch._rules.checks import Checks
from hutch._rules.durations import Duration, to_message
from hutch._specs import Command, ExecOptions, Spec, exec_spec, sandbox_spec, why_failed
from hutch.aio._calls import UNARY_TIMEOUT, Calls, Connection
from hutch.aio._execs import OneShot
from hutch.aio._sandbox import Sandbox
from hutch.aio._watch import Watch
from hutch.errors import FailedPrecondition, HutchError, StreamIncomplete
from hutch.v1 import event_pb2, exec_pb2, image_pb2, sandbox_exec_pb2, sandbox_pb2, state_pb2, system_pb2

if TYPE_CHECKING:
    from typing_extensions import Unpack

_SERVICE = "AgentSandboxService"
_PAGE_SIZE = 1000
_ONE_SHOT_TIMEOUT = 300.0
_ONE_SHOT_IDLE_TTL = 60.0  # after which the daemon removes what a vanished client left


class Client:
    """A client of a daemon. It connects when it is first used: to the daemon that the arguments name, else the
    variables HUTCH_ADDRESS, HUTCH_SOCKET or HUTCH_CONTEXT, else the contexts file, else to this user's own, which is
    started when nobody listens. Use it with `async with`, or `close` it.

    - `address`: unix:/path, host:port, dns:host:port or [::1]:port; or `context`: a name in the contexts file
    - `ca_file`: whom to trust, instead of the system's certificates; `server_name`: what the certificate is for
    - `certificate_file`, `key_file`: this client's own certificate
    - `token`: a bearer token, or a function that is asked for one before each call. Never sent in clear text unless
      `token_in_clear_text` says so
    - `insecure`: TCP without TLS
    - `timeout`: seconds that a call with one answer may take, with all retries
    - `start_daemon`: whether to start this user's daemon; by default when no address was given"""

    def __init__(
        self,
        address: str = "",
        *,
        context: str = "",
        ca_file: str = "",
        certificate_file: str = "",
        key_file: str = "",
        server_name: str = "",
        token: Token = "",
        token_in_clear_text: bool = False,
        insecure: bool = False,
        timeout: float = UNARY_TIMEOUT,
        start_daemon: bool | None = None,
    ) -> None:
        options = Options(
            address=address,
            context=context,
            ca_file=ca_file,
            certificate_file=certificate_file,
            key_file=key_file,
            server_name=server_name,
            token=token,
            token_in_clear_text=token_in_clear_text,
            insecure=insecure,
            start_daemon=start_daemon,
        )
        self._calls = Calls(Connection(options), timeout)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection; what is under way ends with Cancelled."""
        await self._calls.connection.close()

    def with_timeout(self, timeout: float) -> Client:
        """The same client, on the same connection, with another deadline for each call: also for streams, which
        otherwise have none."""
        made = object.__new__(type(self))
        made._calls = Calls(self._calls.connection, timeout, timeout)
        return made

    async def call(self, method: str, request: Message, response: type[Response]) -> Response:
        """Any method of the contract with one message each way: call("PolicyService/GetPolicy", request,
        GetPolicyResponse), with the deadline, retries and errors of all others."""
        return await self._calls.unary(method, request, response)

    async def call_stream(
        self, method: str, request: Message, response: type[Response]
    ) -> tuple[Stream[Response], Response | None]:
        """Any method of the contract that streams: its first message is sent, and the first answer waited for."""
        return await self._calls.stream(method, request, response, more=True)

    # The daemon.

    async def ping(self) -> None:
        """Returns when the daemon answers."""
        await self._calls.unary("SystemService/Ping", system_pb2.PingRequest(), system_pb2.PingResponse)

    async def info(self) -> system_pb2.GetInfoResponse:
        """What the daemon is, what it can do, and which limits are in force."""
        return await self._calls.unary("SystemService/GetInfo", system_pb2.GetInfoRequest(), system_pb2.GetInfoResponse)

    # Sandboxes.

    async def create(
        self, spec: Spec | None = None, *, sandbox_id: str = "", request_id: str = "", wait: bool = True
    ) -> Sandbox:
        """Creates a sandbox, and waits until it is READY unless told otherwise. One that does not get there is deleted,
        and why is told: SandboxUnavailable when the daemon cannot start any."""
        message = sandbox_spec(spec)
        checks = Checks()
        checks.new_id("sandbox_id", sandbox_id)
        checks.sandbox_spec(message)
        checks.request_id(request_id)
        checks.done()
        request = sandbox_pb2.CreateSandboxRequest(sandbox_id=sandbox_id, spec=message, request_id=request_id)
        answer = await self._calls.unary(f"{_SERVICE}/CreateSandbox", request, sandbox_pb2.CreateSandboxResponse)
        sandbox = Sandbox(self._calls, answer.sandbox)
        if wait:
            await self._wait_ready(sandbox)
        return sandbox

    async def _wait_ready(self, sandbox: Sandbox) -> None:
        try:
            await sandbox.wait("READY")
        except BaseException:
            with contextlib.suppress(HutchError):
                await sandbox.refresh()
            failure = why_failed(sandbox.info)
            with contextlib.suppress(HutchError):
                await sandbox.delete()
            if failure:
                raise failure from None
            raise

    def sandbox(self, sandbox_id: str) -> Sandbox:
        """A sandbox by its id; nothing is asked yet."""
        return Sandbox(self._calls, sandbox_pb2.Sandbox(id=sandbox_id))

    async def get(self, sandbox_id: str) -> Sandbox:
        """A sandbox that is there, also a DELETED one until its history is purged."""
        sandbox = self.sandbox(sandbox_id)
        await sandbox.refresh()
        return sandbox

    async def list(
        self,
        selector: str = "",
        *,
        states: Sequence[state_pb2.SandboxState.ValueType] = (),
        all_owners: bool = False,
    ) -> AsyncIterator[Sandbox]:
        """The sandboxes that a selector selects, oldest first; DELETED ones only when @states names that."""
        checks = Checks()
        checks.selector(selector)
        checks.done()
        request = sandbox_pb2.ListSandboxesRequest(
            selector=selector, states=states, page_size=_PAGE_SIZE, all_owners=all_owners
        )
        while True:
            page = await self._calls.unary(f"{_SERVICE}/ListSandboxes", request, sandbox_pb2.ListSandboxesResponse)
            for info in page.sandboxes:
                yield Sandbox(self._calls, info)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def delete_many(self, selector: str, *, all_owners: bool = False) -> Sequence[str]:
        """Deletes every sandbox that a selector selects, which must not be empty, and returns their ids."""
        checks = Checks()
        checks.selector(selector, may_be_empty=False)
        checks.done()
        request = sandbox_pb2.DeleteSandboxesRequest(selector=selector, all_owners=all_owners)
        answer = await self._calls.unary(f"{_SERVICE}/DeleteSandboxes", request, sandbox_pb2.DeleteSandboxesResponse)
        return answer.sandbox_ids

    async def watch(
        self,
        *,
        sandbox_ids: Sequence[str] = (),
        selector: str = "",
        after_cursor: int | None = None,
        snapshot: bool = False,
        types: Sequence[event_pb2.EventType.ValueType] = (),
        all_owners: bool = False,
    ) -> Watch:
        """Watches events from now on, or from those after a cursor; with @snapshot the watch begins with the sandboxes
        as they are. Returns when the watch stands."""
        checks = Checks()
        for i, sandbox_id in enumerate(sandbox_ids):
            checks.id(f"sandbox_ids[{i}]", sandbox_id)
        checks.selector(selector)
        checks.done()
        request = sandbox_pb2.WatchEventsRequest(
            sandbox_ids=sandbox_ids,
            selector=selector,
            after_cursor=after_cursor,
            include_snapshot=snapshot,
            types=types,
            all_owners=all_owners,
        )
        watch = Watch(self._calls, request)
        await watch.start()
        return watch

    # One-shots.

    async def run(
        self,
        command: Command,
        spec: Spec | None = None,
        *,
        input: bytes = b"",  # pylint: disable=redefined-builtin
        **options: Unpack[ExecOptions],
    ) -> ExecResult:
        """Runs a command in a sandbox of its own, which is deleted whatever happens, also when this program crashes.
        The timeout is 5 minutes unless given: exit code 124."""
        message = sandbox_spec(spec)
        if not message.HasField("idle_ttl"):
            message.idle_ttl.CopyFrom(to_message(_ONE_SHOT_IDLE_TTL))
        message.idle_action = sandbox_pb2.IDLE_ACTION_DELETE
        options.setdefault("timeout", _ONE_SHOT_TIMEOUT)
        execution = exec_spec(command, **options)
        checks = Checks()
        checks.exec_spec(execution)
        checks.done()
        async with await self.create(message, wait=False) as sandbox:
            try:
                result = await sandbox.run(execution, input=input)
            except FailedPrecondition:
                if failure := why_failed(await sandbox.refresh()):
                    raise failure from None
                raise
            if result.exec.result.end_reason == exec_pb2.EXEC_END_REASON_SANDBOX_FAILED:
                if failure := why_failed(await sandbox.refresh()):
                    raise failure
            return result

    async def run_shell(
        self,
        script: str,
        spec: Spec | None = None,
        *,
        input: bytes = b"",  # pylint: disable=redefined-builtin
        **options: Unpack[ExecOptions],
    ) -> ExecResult:
        """Runs a shell script as `run` runs commands."""
        return await self.run(["sh", "-c", script], spec, input=input, **options)

    async def run_python(
        self,
        code: str,
        spec: Spec | None = None,
        *,
        input: bytes = b"",  # pylint: disable=redefined-builtin
        **options: Unpack[ExecOptions],
    ) -> ExecResult:
        """Runs Python code, by the sandbox's python3, as `run` runs commands."""
        return await self.run(["python3", "-c", code], spec, input=input, **options)

    async def exec_once(
        self,
        argv: Sequence[str] | sandbox_exec_pb2.ExecRequest,
        *,
        profile: str = "",
        image: str = "",
        env: Mapping[str, str] | None = None,
        working_directory: str = "",
        input: bytes = b"",  # pylint: disable=redefined-builtin
        timeout: Duration | None = None,
        egress: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> OneShot:
        """Runs a command in a sandbox that exists only for it, made by a profile, in one call. Its output comes as it
        is printed; closing the stream, or losing the connection, ends the command."""
        if isinstance(argv, sandbox_exec_pb2.ExecRequest):
            request = sandbox_exec_pb2.ExecRequest()
            request.CopyFrom(argv)
        else:
            request = sandbox_exec_pb2.ExecRequest(
                profile=profile,
                image=image,
                argv=argv,
                env=env or {},
                working_directory=working_directory,
                input=input,
                egress=egress,
                labels=labels or {},
            )
            if timeout is not None:
                request.timeout.CopyFrom(to_message(timeout))
        checks = Checks()
        checks.argv("argv", request.argv)
        checks.env("env", request.env)
        if request.working_directory:
            checks.path("working_directory", request.working_directory)
        checks.egress("egress", request.egress)
        checks.labels("labels", request.labels)
        checks.request_id(request.request_id)
        checks.done()
        stream, answer = await self._calls.stream("SandboxExecService/Exec", request, sandbox_exec_pb2.ExecResponse)
        if answer is None or not answer.HasField("started"):
            stream.cancel()
            raise StreamIncomplete("the daemon never told what took effect", reason="STREAM_INCOMPLETE")
        return OneShot(stream, answer.started)

    # Snapshots and images.

    async def list_snapshots(self, *, sandbox_id: str = "", selector: str = "") -> AsyncIterator[sandbox_pb2.Snapshot]:
        """The snapshots, oldest first."""
        checks = Checks()
        checks.new_id("sandbox_id", sandbox_id)
        checks.selector(selector)
        checks.done()
        request = sandbox_pb2.ListSnapshotsRequest(sandbox_id=sandbox_id, selector=selector, page_size=_PAGE_SIZE)
        while True:
            page = await self._calls.unary(f"{_SERVICE}/ListSnapshots", request, sandbox_pb2.ListSnapshotsResponse)
            for snapshot in page.snapshots:
                yield snapshot
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def delete_snapshot(self, name: str) -> None:
        """Removes a snapshot."""
        checks = Checks()
        checks.name("name", name)
        checks.done()
        request = sandbox_pb2.DeleteSnapshotRequest(name=name)
        await self._calls.unary(f"{_SERVICE}/DeleteSnapshot", request, sandbox_pb2.DeleteSnapshotResponse)

    async def import_image(
        self,
        name: str,
        source: Source,
        *,
        image_format: image_pb2.ImageFormat.ValueType = image_pb2.IMAGE_FORMAT_UNSPECIFIED,
        sha256: bytes = b"",
    ) -> image_pb2.Image:
        """Brings an image onto the daemon: a tar of a root file system, an OCI archive, or what `docker save` makes."""
        checks = Checks("header.")
        checks.required("name", name)
        checks.done()
        header = image_pb2.ImportImageHeader(name=name, format=image_format, sha256=sha256)

        async def feed() -> AsyncIterator[Message]:
            async for piece in read_pieces(source, MIB // 2):
                yield image_pb2.ImportImageRequest(data=piece)

        answer = await self._calls.send(
            "ImageService/ImportImage",
            image_pb2.ImportImageRequest(header=header),
            image_pb2.ImportImageResponse,
            feed,
        )
        return answer.image

    async def pull_image(self, reference: str, *, provider: str = "") -> image_pb2.Image:
        """Gets an image from a registry that the operator allows."""
        checks = Checks()
        checks.required("reference", reference)
        checks.done()
        request = image_pb2.PullImageRequest(reference=reference, provider=provider)
        stream, answer = await self._calls.stream("ImageService/PullImage", request, image_pb2.PullImageResponse)
        while answer is not None and not answer.HasField("image"):
            answer = await stream.read()
        if answer is None:
            raise StreamIncomplete("the daemon never told about the image", reason="STREAM_INCOMPLETE")
        return answer.image

    async def list_images(self) -> AsyncIterator[image_pb2.Image]:
        """The images that the daemon has, oldest first."""
        request = image_pb2.ListImagesRequest(page_size=_PAGE_SIZE)
        while True:
            page = await self._calls.unary("ImageService/ListImages", request, image_pb2.ListImagesResponse)
            for image in page.images:
                yield image
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def remove_image(self, reference: str) -> bool:
        """Takes an image's name away, and the image with its last name; returns whether the image went."""
        checks = Checks()
        checks.required("reference", reference)
        checks.done()
        request = image_pb2.RemoveImageRequest(reference=reference)
        return (await self._calls.unary("ImageService/RemoveImage", request, image_pb2.RemoveImageResponse)).removed
