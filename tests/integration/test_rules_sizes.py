# SPDX-License-Identifier: Apache-2.0
"""Messages that say that they are large, or become it."""

import gzip

import pytest
from hutchd import LIMIT, MIB, field, refused
from test_output_large import Memory
from test_rules_execs import grpc_message, refusal_of

MOST = 4 * MIB  # bytes of a message
FLAT = 8 * MIB  # by how much the daemon's memory may grow
PARTS = 40 * MIB  # by how much it may for what a message unfolds to, which is 32 MiB


@pytest.mark.rules("SIZE-002")
@pytest.mark.parametrize("length", [MOST + 1, 1 << 30, (1 << 32) - 1])
def test_a_length_is_refused_before_the_message_comes(own_daemon, length):
    with Memory(own_daemon.process.pid) as memory:
        for _ in range(20):
            told = refusal_of(own_daemon, "SystemService/Ping", grpc_message(b"few bytes", length=length))
            assert told.reason == "MESSAGE_TOO_LARGE"
            assert dict(told.metadata) == {"limit": "max_request_bytes", "value": str(MOST)}
    assert memory.growth() < FLAT


@pytest.mark.rules("SIZE-002")
def test_a_message_that_is_compressed_is_no_larger(own_daemon):
    message = grpc_message(gzip.compress(bytes(3 * MOST)), flag=1)
    assert len(message) < 16384  # it fits into one frame
    with Memory(own_daemon.process.pid) as memory:
        for _ in range(5):
            told = refusal_of(own_daemon, "SystemService/Ping", message, grpc_encoding="gzip")
            assert told.reason == "MESSAGE_TOO_LARGE"
            assert dict(told.metadata) == {"limit": "max_request_bytes", "value": str(MOST)}
    assert memory.growth() < 2 * MOST


@pytest.mark.rules("SIZE-002")
@pytest.mark.parametrize("part", [field(7, b""), field(2, b""), field(3, b"")], ids=["messages", "texts", "maps"])
def test_what_a_message_unfolds_to_is_bounded(own_daemon, part):
    """Parts of two bytes take fifty times as much memory."""
    spec = part * ((MOST - 64) // len(part))
    create = own_daemon.channel.unary_unary("/hutch.v1.AgentSandboxService/CreateSandbox")
    with Memory(own_daemon.process.pid) as memory:
        for _ in range(3):
            with refused("MESSAGE_TOO_LARGE") as told:
                create(field(2, spec), timeout=LIMIT)
            assert told.metadata == {"limit": "message_memory_bytes", "value": str(32 * MIB)}
    assert memory.growth() < PARTS + 2 * MOST
