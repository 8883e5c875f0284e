# SPDX-License-Identifier: Apache-2.0
"""A daemon on TCP: TLS, certificates, tokens."""

import pytest

from hutch import HutchError, SandboxUnavailable, Unauthenticated
from hutch.aio import Client


@pytest.mark.rules("CONN-003", "CONN-007")
async def test_a_daemon_is_reached_by_tls_and_token(remote_daemon):
    ca = str(remote_daemon.certificates.cert("ca"))
    address, token = f"127.0.0.1:{remote_daemon.port}", remote_daemon.tokens.add("python")
    async with Client(address, ca_file=ca, token=token) as client:
        assert (await client.info()).caller == "token:python"
        assert (await client.run(["echo", "far"])).stdout == "far\n"
        async with await client.watch() as watch:
            assert watch.cursor > 0
    asked = []

    def ask() -> str:
        asked.append(token)
        return token

    async with Client(address, ca_file=ca, token=ask) as client:
        await client.ping()
        await client.ping()
        assert len(asked) == 2
    async with Client(f"localhost:{remote_daemon.port}", ca_file=ca, token="wrong") as client:
        with pytest.raises(Unauthenticated) as told:
            await client.ping()
        assert told.value.reason == "CREDENTIALS_INVALID"
    other = str(remote_daemon.certificates.cert("other-ca"))
    for options in ({"ca_file": other}, {"ca_file": ca, "server_name": "elsewhere.test"}, {}):
        async with Client(address, token=token, timeout=5.4, **options) as client:
            with pytest.raises(SandboxUnavailable):
                await client.ping()
    async with Client(address, ca_file=ca, token=token, server_name="localhost") as client:
        await client.ping()


async def test_a_daemon_knows_a_certificate(remote_daemon):
    certificates = remote_daemon.certificates
    options = {"ca_file": str(certificates.cert("ca")), "certificate_file": str(certificates.cert("alice"))}
    async with Client(
        f"127.0.0.1:{remote_daemon.port}", key_file=str(certificates.key("alice")), **options
    ) as client:
        assert "alice" in (await client.info()).caller
    async with Client(f"127.0.0.1:{remote_daemon.port}", ca_file=options["ca_file"]) as client:
        with pytest.raises(HutchError) as told:
            await client.ping()
        assert told.value.reason == "CREDENTIALS_MISSING"


@pytest.mark.rules("AUTH-004")
async def test_a_token_in_clear_text_is_refused(remote_daemon):
    with pytest.raises(HutchError) as told:
        Client(f"127.0.0.1:{remote_daemon.port}", insecure=True, token="secret")
    assert told.value.reason == "TOKEN_IN_CLEAR_TEXT"
