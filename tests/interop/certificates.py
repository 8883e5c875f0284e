# SPDX-License-Identifier: Apache-2.0
"""Certificates for one run of the tests."""

import sys
from pathlib import Path

from interop import Tls

sys.path.append(str(Path(__file__).resolve().parents[1]))

from certificate_files import Folder  # noqa: E402 pylint: disable=wrong-import-position


class Certificates(Folder):
    """Two authorities that know nothing of each other, and what the first one signed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.make_authority("ca")
        self.make_authority("other-ca")
        self.make("server", "subjectAltName=IP:127.0.0.1")
        self.make("expired-server", "subjectAltName=IP:127.0.0.1", days=-1)
        self.make("misnamed-server", "subjectAltName=DNS:elsewhere.test")
        self.make("client", "extendedKeyUsage=clientAuth")
        self.make("expired-client", "extendedKeyUsage=clientAuth", days=-1)
        self.make("stranger", "extendedKeyUsage=clientAuth", authority="other-ca")

    def server(self, name: str = "server") -> list:
        """Arguments of a server that shows @name."""
        return ["--port", "0", "--cert", self.cert(name), "--key", self.key(name)]

    def client(self, name: str | None = None, ca: str = "ca") -> Tls:
        """A client that trusts @ca and shows @name."""
        return Tls(self.cert(ca), self.cert(name) if name else None, self.key(name) if name else None)
