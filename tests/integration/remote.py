# SPDX-License-Identifier: Apache-2.0
"""Daemons that serve over TCP, and who calls them: certificates, tokens and clients."""

import datetime
import hashlib
import re
import secrets
import sys
import time
from pathlib import Path

import grpc
from hutchd import OPTIONS, Client, Daemon

sys.path.append(str(Path(__file__).resolve().parents[1]))

from certificate_files import Folder  # noqa: E402 pylint: disable=wrong-import-position

FAR = 10**9  # seconds

# An authority whose certificates can end at any second; `openssl x509` counts days.
AUTHORITY = """
[ca]
default_ca = authority
[authority]
database = index.txt
new_certs_dir = .
default_md = sha256
rand_serial = yes
policy = subjects
[subjects]
commonName = supplied
"""


class Certificates(Folder):
    """What a daemon and its clients have: two authorities that know nothing of each other, and what they signed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.make_authority("ca")
        self.make_authority("other-ca")
        self.make("server", "subjectAltName=IP:127.0.0.1,DNS:localhost")
        self.make("new-server", "subjectAltName=IP:127.0.0.1,DNS:localhost")
        self.make("alice", "extendedKeyUsage=clientAuth", subject="/O=Example/CN=alice")
        self.make("bob", "extendedKeyUsage=clientAuth")
        self.make("expired", "extendedKeyUsage=clientAuth", days=-1)
        self.make("stranger", "extendedKeyUsage=clientAuth", authority="other-ca")

    def make_short(self, name: str, seconds: float) -> None:
        """A client's certificate that ends so soon."""
        self.make(name, "extendedKeyUsage=clientAuth")
        config = self.folder / "authority.cnf"
        config.write_text(AUTHORITY, encoding="ascii")
        (self.folder / "index.txt").touch()
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
        files = ["-in", self.folder / f"{name}.csr", "-extfile", self.folder / f"{name}.ext", "-out", self.cert(name)]
        authority = ["-config", config, "-cert", self.cert("ca"), "-keyfile", self.key("ca")]
        self.openssl("ca", "-batch", "-notext", *authority, *files, "-enddate", f"{end:%Y%m%d%H%M%SZ}")

    def server(self, name: str = "server") -> dict:
        """Keys of the configuration."""
        return {"certificate": str(self.cert(name)), "key": str(self.key(name))}

    def credentials(self, name: str | None = None, ca: str = "ca") -> grpc.ChannelCredentials:
        """Those of a client that trusts @ca and shows @name."""
        if name is None:
            return grpc.ssl_channel_credentials(self.cert(ca).read_bytes())
        return grpc.ssl_channel_credentials(
            self.cert(ca).read_bytes(), self.key(name).read_bytes(), self.cert(name).read_bytes()
        )


class TokenFile:
    """A file of tokens, as hutchd reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[str, str] = {}
        self.save()

    def save(self) -> None:
        """Replaces the file, as `hutch token` does."""
        draft = self.path.with_suffix(".new")
        draft.write_text("# tokens\n" + "".join(self.lines.values()), encoding="ascii")
        draft.chmod(0o600)
        draft.rename(self.path)

    def add(self, name: str, expires: float | None = None) -> str:
        """A new token, which expires after so many seconds."""
        token = f"hutch_{name}_{secrets.token_hex(32)}"
        digest = hashlib.sha256(token.encode()).hexdigest()
        end = "-" if expires is None else at(time.time() + expires)
        self.lines[name] = f"{name} {digest} {at(time.time())} {end}\n"
        self.save()
        return token

    def revoke(self, name: str) -> None:
        del self.lines[name]
        self.save()


def at(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


class RemoteClient(Client):
    """Somebody who calls over TCP. With a token it is in every call."""

    def __init__(self, port: int, credentials: grpc.ChannelCredentials | None, token: str | None = None):
        address = f"127.0.0.1:{port}"
        if credentials is None:
            self.channel = grpc.insecure_channel(address, OPTIONS)
        else:
            self.channel = grpc.secure_channel(address, credentials, OPTIONS)
        if token is not None:
            self.channel = grpc.intercept_channel(self.channel, WithHeader(f"Bearer {token}"))
        self.add_stubs()


class WithHeader(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Puts a header into every call, also where a token would not be sent: in clear text."""

    def __init__(self, value: str):
        self.value = value

    def go_on(self, call, details, request):
        metadata = [*(details.metadata or ()), ("authorization", self.value)]
        # pylint: disable=protected-access
        return call(details._replace(metadata=metadata), request)

    intercept_unary_unary = go_on
    intercept_unary_stream = go_on
    intercept_stream_unary = go_on
    intercept_stream_stream = go_on


class RemoteDaemon(Daemon):
    """A daemon that also serves over TCP, on a port of its own. `listen` is its section of the configuration."""

    def __init__(self, certificates: Certificates, listen: dict | None = None, **config):
        super().__init__()
        self.certificates = certificates
        self.tokens = TokenFile(self.folder / "tokens")
        self.configure(listen, **config)

    def configure(self, listen: dict | None = None, **config) -> None:
        section = {"addresses": ["127.0.0.1:0"], "tokens_file": str(self.tokens.path)}
        section |= self.certificates.server() if listen is None else listen
        self.write_config({"listen": section} | config)

    @property
    def port(self) -> int:
        """The one of its last start."""
        return int(re.findall(r'msg="serving over TCP".* port=(\d+)', self.log())[-1])

    def remote(self, token: str | None = None, certificate: str | None = None, tls: bool = True) -> RemoteClient:
        credentials = self.certificates.credentials(certificate) if tls else None
        made = RemoteClient(self.port, credentials, token)
        self.clients.append(made)
        return made
