# SPDX-License-Identifier: Apache-2.0
"""The services that gRPC defines itself, health and reflection, and the details of errors, as its official clients see
them."""

import signal
from queue import Queue
from threading import Thread

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from interop import LIMIT, ROOT
from messages import MIB, pb

TEST_SERVICE = "grpc.testing.TestService"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
INFO = "/grpc.reflection.{}.ServerReflection/ServerReflectionInfo"


@pytest.fixture(name="channel", params=["tcp", "unix"])
def open_channel(servers, request):
    with grpc.insecure_channel(servers[request.param].address) as channel:
        yield channel


@pytest.fixture(name="own_server")
def start_own_server(start_server):
    return start_server("--port", "0")


def health_of(channel, service: str) -> int:
    request = health_pb2.HealthCheckRequest(service=service)
    return health_pb2_grpc.HealthStub(channel).Check(request, timeout=LIMIT).status


class Watch:
    """A call of Watch, read by a thread of its own, so that a test can wait for a limited time."""

    def __init__(self, channel, service: str) -> None:
        request = health_pb2.HealthCheckRequest(service=service)
        self.call = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=LIMIT)
        self.queue = Queue()
        self.thread = Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self) -> None:
        try:
            for response in self.call:
                self.queue.put(response.status)
        except grpc.RpcError as error:
            self.queue.put(error.code())

    def next(self):
        """The next status, or how the call ended."""
        return self.queue.get(timeout=LIMIT)

    def cancel(self) -> None:
        self.call.cancel()
        self.thread.join(LIMIT)


# Health


@pytest.mark.parametrize("service", ["", TEST_SERVICE])
def test_what_is_served_is_healthy(channel, service):
    assert health_of(channel, service) == SERVING


def test_the_health_of_an_unknown_service_is_not_found(channel):
    with pytest.raises(grpc.RpcError) as failed:
        health_of(channel, "no.such.Service")
    assert failed.value.code() == grpc.StatusCode.NOT_FOUND


def test_who_watches_hears_of_every_change(own_server):
    with grpc.insecure_channel(own_server.address) as channel:
        watches = [Watch(channel, TEST_SERVICE) for _ in range(10)]
        unknown = Watch(channel, "no.such.Service")
        assert [watch.next() for watch in watches] == [SERVING] * 10
        assert unknown.next() == SERVICE_UNKNOWN
        for expected in (NOT_SERVING, SERVING, NOT_SERVING):
            own_server.process.send_signal(signal.SIGUSR2)
            assert [watch.next() for watch in watches] == [expected] * 10
            assert health_of(channel, TEST_SERVICE) == expected
        assert health_of(channel, "") == SERVING
        for watch in (*watches, unknown):
            watch.cancel()
            assert watch.next() == grpc.StatusCode.CANCELLED
    own_server.wait_for_quiet()


def test_who_watches_does_not_hold_up_the_end_of_the_server(own_server):
    with grpc.insecure_channel(own_server.address) as channel:
        watch = Watch(channel, TEST_SERVICE)
        assert watch.next() == SERVING
        own_server.terminate()
        assert watch.next() == NOT_SERVING
        assert watch.next() == grpc.StatusCode.UNAVAILABLE
    assert own_server.wait() == 0


# Reflection


def test_services_are_listed(channel):
    assert ProtoReflectionDescriptorDatabase(channel).get_services() == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        TEST_SERVICE,
    ]


def test_the_contract_can_be_read_from_the_server(channel):
    """All of it, by a pool that knows nothing but the server."""
    pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    for file in sorted((ROOT / "proto" / "hutch" / "v1").glob("*.proto")):
        assert pool.FindFileByName(f"hutch/v1/{file.name}").package == "hutch.v1"
    create = pool.FindMethodByName("hutch.v1.AgentSandboxService.CreateSandbox")
    assert create.input_type.full_name == "hutch.v1.CreateSandboxRequest"
    assert pool.FindMessageTypeByName("google.rpc.ErrorInfo").fields_by_name["reason"].number == 1


def test_the_protocol_of_the_keeper_is_not_told(channel):
    with pytest.raises(KeyError):
        DescriptorPool(ProtoReflectionDescriptorDatabase(channel)).FindFileByName("hutch/keeper/v1/keeper.proto")


def call_by_reflection(channel, method: str, **fields):
    """Calls @method with what the server tells of it, and nothing else known."""
    described = DescriptorPool(ProtoReflectionDescriptorDatabase(channel)).FindMethodByName(method)
    call = channel.unary_unary(
        f"/{described.containing_service.full_name}/{described.name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=GetMessageClass(described.output_type).FromString,
    )
    return call(GetMessageClass(described.input_type)(**fields), timeout=LIMIT)


def test_methods_can_be_called_by_what_reflection_tells(channel):
    assert call_by_reflection(channel, "grpc.health.v1.Health.Check", service=TEST_SERVICE).status == SERVING
    listed = call_by_reflection(channel, "grpc.health.v1.Health.List").statuses
    assert {name: entry.status for name, entry in listed.items()} == {"": SERVING, TEST_SERVICE: SERVING}


def ask(channel, version: str, *questions: dict) -> list:
    """The answers to @questions, all asked in one call. Both versions have the same messages."""
    info = channel.stream_stream(
        INFO.format(version),
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    requests = [reflection_pb2.ServerReflectionRequest(**question) for question in questions]
    answers = list(info(iter(requests), timeout=LIMIT))
    assert [answer.original_request for answer in answers] == requests
    return answers


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_a_file_comes_with_its_imports_which_come_once(channel, version):
    first, second = ask(
        channel,
        version,
        {"file_containing_symbol": "hutch.v1.AgentSandboxService.CreateSandbox"},
        {"file_by_filename": "hutch/v1/exec.proto"},
    )
    files = [FileDescriptorProto.FromString(file) for file in first.file_descriptor_response.file_descriptor_proto]
    assert files[0].name == "hutch/v1/sandbox.proto"
    assert {name for file in files for name in file.dependency} == {file.name for file in files[1:]}
    again = [FileDescriptorProto.FromString(file) for file in second.file_descriptor_response.file_descriptor_proto]
    assert again[0].name == "hutch/v1/exec.proto"
    assert not {file.name for file in again[1:]} & {file.name for file in files}


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
@pytest.mark.parametrize(
    "question, code",
    [
        ({"file_by_filename": "no/such.proto"}, grpc.StatusCode.NOT_FOUND),
        ({"file_containing_symbol": "no.such.Symbol"}, grpc.StatusCode.NOT_FOUND),
        ({"all_extension_numbers_of_type": "hutch.v1.Sandbox"}, grpc.StatusCode.NOT_FOUND),
        (
            {"file_containing_extension": {"containing_type": "hutch.v1.Sandbox", "extension_number": 1}},
            grpc.StatusCode.NOT_FOUND,
        ),
        ({}, grpc.StatusCode.UNIMPLEMENTED),
    ],
)
def test_what_cannot_be_answered_is_an_answer_too(channel, version, question, code):
    refusal, services = ask(channel, version, question, {"list_services": ""})
    assert refusal.error_response.error_code == code.value[0]
    assert len(services.list_services_response.service) == 4


# Details of errors


def status_of(channel, method: str = "UnaryCall", message: bytes = b"", **options) -> tuple[grpc.StatusCode, Status]:
    """How a call fails that must: by its code, and by its details, which say the same."""
    with pytest.raises(grpc.RpcError) as failed:
        channel.unary_unary(f"/{TEST_SERVICE}/{method}")(message, **{"timeout": LIMIT} | options)
    status = Status.FromString(dict(failed.value.trailing_metadata())["grpc-status-details-bin"])
    assert (status.code, status.message) == (failed.value.code().value[0], failed.value.details())
    return failed.value.code(), status


def failing_request(message: str) -> bytes:
    return pb.SimpleRequest(response_status=pb.EchoStatus(code=3, message=message)).SerializeToString()


def test_errors_have_details(channel):
    code, status = status_of(channel, message=failing_request("that is wrong"), metadata=[("x-test-details", "yes")])
    assert (code, status.message) == (grpc.StatusCode.INVALID_ARGUMENT, "that is wrong")

    info, request = ErrorInfo(), BadRequest()
    assert len(status.details) == 2
    assert status.details[0].Unpack(info)
    assert status.details[1].Unpack(request)
    assert info == ErrorInfo(reason="AS_ASKED", domain="interop", metadata={"sandbox": "sb-1"})
    assert [(violation.field, violation.reason) for violation in request.field_violations] == [
        ("spec.mounts[2].target", "PATH_DOTDOT")
    ]


@pytest.mark.parametrize(
    "call, code, reason",
    [
        ({"message": failing_request("wrong: 100 %\n ☺")}, grpc.StatusCode.INVALID_ARGUMENT, "AS_ASKED"),
        ({"message": failing_request("☺" * 1000)}, grpc.StatusCode.INVALID_ARGUMENT, "AS_ASKED"),
        ({"method": "NoSuchCall"}, grpc.StatusCode.UNIMPLEMENTED, "METHOD_UNIMPLEMENTED"),
        ({"method": "é" * 150}, grpc.StatusCode.UNIMPLEMENTED, "METHOD_UNIMPLEMENTED"),
        ({"message": bytes(5 * MIB)}, grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE"),
    ],
    ids=["a handler", "a handler with much to say", "no such method", "no such method by far", "too large"],
)
def test_every_error_tells_its_reason(channel, call, code, reason):
    found, status = status_of(channel, **call)
    info = ErrorInfo()
    assert found == code
    assert len(status.details) == 1
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain) == (reason, "hutch")
    if reason == "MESSAGE_TOO_LARGE":
        assert info.metadata == {"limit": "max_request_bytes", "value": str(4 * MIB)}
