# SPDX-License-Identifier: Apache-2.0
"""The public interoperability cases of gRPC, run by its official clients against our server."""

import pytest
from interop import CASES, CLIENTS, Relay, run_client

pytestmark = pytest.mark.usefixtures("go_clients")

# Bytes of payloads that pass uncompressed, and so many of each direction at least; what is compressed is a few hundred.
UNCOMPRESSED = {
    "client_compressed_unary": (2 * 271828, 2 * 314159),
    "server_compressed_unary": (2 * 271828, 314159),
    "client_compressed_streaming": (27182 + 45904, 0),
    "server_compressed_streaming": (0, 92653),
}
OVERHEAD = 20000


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("transport", ["tcp", "unix"])
@pytest.mark.parametrize("client", CLIENTS)
def test_case(servers, client, transport, case):
    assert run_client(client, servers[transport].address, case) == ""


@pytest.mark.parametrize("case", UNCOMPRESSED)
@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_compressed_and_nothing_else_is_small_on_the_wire(servers, client, case):
    relay = Relay(servers["tcp"])
    assert run_client(client, relay.target, case) == ""
    relay.close()
    sent, received = UNCOMPRESSED[case]
    assert sent <= relay.sent < sent + OVERHEAD
    assert received <= relay.received < received + OVERHEAD
