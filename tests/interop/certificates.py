# SPDX-License-Identifier: Apache-2.0
"""Certificates for one run of the tests."""

import subprocess
from pathlib import Path

from interop import Tls

NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


class Certificates:
    """Two authorities that know nothing of each other, and what the first one signed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.make_authority("ca")
        self.make_authority("other-ca")
        self.make("server", "subjectAltName=IP:127.0.0.1")
        self.make("expired-server", "subjectAltName=IP:127.0.0.1", days=-1)
        self.make("misnamed-server", "subjectAltName=DNS:elsewhere.test")
        self.make("client", "extendedKeyUsage=clientAuth")
        self.make("expired-client", "extendedKeyUsage=clientAuth", days=-1)
        self.make("stranger", "extendedKeyUsage=clientAuth", authority="other-ca")

    def cert(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def server(self, name: str = "server") -> list:
        """Arguments of a server that shows @name."""
        return ["--port", "0", "--cert", self.cert(name), "--key", self.key(name)]

    def client(self, name: str | None = None, ca: str = "ca") -> Tls:
        """A client that trusts @ca and shows @name."""
        return Tls(self.cert(ca), self.cert(name) if name else None, self.key(name) if name else None)

    def openssl(self, *arguments: str | Path) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def make_authority(self, name: str) -> None:
        subject = ["-subj", f"/CN={name}", "-days", "2"]
        self.openssl("req", "-x509", *NEW_KEY, "-keyout", self.key(name), *subject, "-out", self.cert(name))

    def make(self, name: str, extension: str, authority: str = "ca", days: int = 2) -> None:
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text(extension + "\n", encoding="ascii")
        self.openssl("req", *NEW_KEY, "-keyout", self.key(name), "-subj", f"/CN={name}", "-out", request)
        signer = ["-CA", self.cert(authority), "-CAkey", self.key(authority), "-days", str(days)]
        self.openssl("x509", "-req", "-in", request, *signer, "-extfile", extensions, "-out", self.cert(name))
