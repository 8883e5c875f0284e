# SPDX-License-Identifier: Apache-2.0
"""Certificates, made by the program openssl."""

import subprocess
from pathlib import Path

NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


class Folder:
    """Authorities and what they signed, as files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def cert(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def openssl(self, *arguments: str | Path) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def make_authority(self, name: str) -> None:
        subject = ["-subj", f"/CN={name}", "-days", "2"]
        self.openssl("req", "-x509", *NEW_KEY, "-keyout", self.key(name), *subject, "-out", self.cert(name))

    def make(self, name: str, extension: str, authority: str = "ca", days: int = 2, subject: str = "") -> None:
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text(extension + "\n", encoding="ascii")
        self.openssl("req", *NEW_KEY, "-keyout", self.key(name), "-subj", subject or f"/CN={name}", "-out", request)
        signer = ["-CA", self.cert(authority), "-CAkey", self.key(authority), "-days", str(days)]
        self.openssl("x509", "-req", "-in", request, *signer, "-extfile", extensions, "-out", self.cert(name))
