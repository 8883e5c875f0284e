# SPDX-License-Identifier: Apache-2.0
"""Which daemon is meant, and how it is connected to. spec/behavior.md section "Connecting"."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import ssl
import stat
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc

from hutch._rules.names import check_name
from hutch._version import VERSION
from hutch.errors import FailedPrecondition, HutchError, InvalidArgument, NotFound, refusal

MESSAGE_BYTES_MAX = 4 << 20  # that the daemon takes
ANSWER_BYTES_MAX = 17 << 20  # that it sends
_TCP = re.compile(r"(?:dns:(?:///)?)?(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_SESSIONS, _SHARED = "/run/user", "/tmp"  # where users may have folders for sockets
_CONTEXT_KEYS = {"address", "ca_file", "certificate_file", "key_file", "server_name", "token"}

Token = str | Callable[[], str | Awaitable[str]]
"""A bearer token, or what is asked for one before each call."""


@dataclass(frozen=True)
class Options:
    """What the caller says about the connection."""

    address: str = ""
    context: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    server_name: str = ""
    token: Token = ""
    token_in_clear_text: bool = False
    insecure: bool = False
    start_daemon: bool | None = None


@dataclass(frozen=True)
class Endpoint:
    """A daemon, and how to connect to it."""

    target: str  # as gRPC has it
    socket_path: str = ""  # of a Unix socket; empty: TCP
    tls: bool = False
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    server_name: str = ""
    token: Token = ""
    start_daemon: bool = False

    def credentials(self) -> grpc.ChannelCredentials | None:
        """None: clear text."""
        if not self.tls:
            return None
        root = _read(self.ca_file) if self.ca_file else _system_roots()
        key = _read(self.key_file) if self.key_file else None
        certificate = _read(self.certificate_file) if self.certificate_file else None
        return grpc.ssl_channel_credentials(root, key, certificate)

    def channel_options(self) -> list[tuple[str, str | int]]:
        options: list[tuple[str, str | int]] = [
            ("grpc.primary_user_agent", f"hutch-python/{VERSION}"),
            ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
            ("grpc.max_send_message_length", -1),  # checked before, with a better answer
            ("grpc.use_local_subchannel_pool", 1),  # clients share no connection
            ("grpc.enable_retries", 1),  # only of what certainly was not sent; the rules for the rest are ours
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2_000),
            ("grpc.keepalive_time_ms", 60_000),
            ("grpc.keepalive_timeout_ms", 20_000),
        ]
        if self.server_name:
            options.append(("grpc.ssl_target_name_override", self.server_name))
            options.append(("grpc.default_authority", self.server_name))
        elif self.socket_path:
            options.append(("grpc.default_authority", "localhost"))
        return options

    def somebody_listens(self) -> bool:
        """Whether a Unix socket has a daemon; True also where one may not ask: the call will tell."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(self.socket_path)
            except (FileNotFoundError, ConnectionRefusedError):
                return False
            except OSError:
                return True
        return True


def find_endpoint(options: Options, environ: Mapping[str, str] = os.environ) -> Endpoint:
    """The daemon that the caller, the environment or the contexts file name; else that of this user."""
    if options.address and options.context:
        raise refusal("FIELD_CONFLICT", "give an address or a context, not both")
    if bool(options.certificate_file) != bool(options.key_file):
        raise refusal("FIELD_CONFLICT", "a certificate file and a key file belong together")

    address = options.address
    if not address and not options.context:
        address = environ.get("HUTCH_ADDRESS", "")
    explicit = bool(address)
    if explicit:
        options = _with_environment(options, environ)
    elif not options.context and environ.get("HUTCH_SOCKET"):
        address = f"unix:{os.path.abspath(environ['HUTCH_SOCKET'])}"
    else:
        context = _read_contexts(environ).find(options.context or environ.get("HUTCH_CONTEXT", ""))
        if context:
            address = context["address"]
            options = replace(options, insecure=False, **_missing(options, context))
    if not address:
        address = f"unix:{_default_socket(environ)}"

    start = not explicit if options.start_daemon is None else options.start_daemon
    return _endpoint(address, replace(options, start_daemon=start))


def _endpoint(address: str, options: Options) -> Endpoint:
    path = address.removeprefix("unix:")
    if path != address:
        if not path.startswith("/") or "\0" in path:
            raise refusal("ADDRESS_MALFORMED", "the path of a Unix socket is absolute: unix:/path")
        return Endpoint(target=address, socket_path=path, start_daemon=bool(options.start_daemon))

    found = _TCP.fullmatch(address)
    if not found or not 1 <= int(found["port"]) <= 65535:
        raise refusal("ADDRESS_MALFORMED", "an address is unix:/path, host:port, dns:host:port or [::1]:port")
    if options.token and options.insecure and not options.token_in_clear_text:
        raise refusal("TOKEN_IN_CLEAR_TEXT", "the token would be sent over a connection that is not encrypted")
    return Endpoint(
        target=f"dns:///{found['host']}:{found['port']}",
        tls=not options.insecure,
        ca_file=options.ca_file,
        certificate_file=options.certificate_file,
        key_file=options.key_file,
        server_name=options.server_name,
        token=options.token,
    )


def _missing(options: Options, values: Mapping[str, str]) -> dict[str, Any]:
    """Those of @values that the caller gives none for; certificate and key count as one."""
    own_pair = bool(options.certificate_file)
    return {
        key: value
        for key, value in values.items()
        if key != "address" and not getattr(options, key) and not (own_pair and key in ("certificate_file", "key_file"))
    }


def _with_environment(options: Options, environ: Mapping[str, str]) -> Options:
    names = {
        "token": "HUTCH_TOKEN",
        "ca_file": "HUTCH_CA_FILE",
        "certificate_file": "HUTCH_CERTIFICATE_FILE",
        "key_file": "HUTCH_KEY_FILE",
    }
    values = {key: environ[name] for key, name in names.items() if environ.get(name)}
    if ("certificate_file" in values) != ("key_file" in values):
        raise refusal("FIELD_CONFLICT", "HUTCH_CERTIFICATE_FILE and HUTCH_KEY_FILE belong together")
    return replace(options, **_missing(options, values))


# ---- The socket of this user ----


def _default_socket(environ: Mapping[str, str]) -> str:
    if os.geteuid() == 0:
        return "/run/hutch/hutchd.sock"
    folder = _runtime_folder(environ)
    return f"{folder}/hutch/hutchd.sock" if folder else f"{_make_shared_folder()}/hutchd.sock"


def _runtime_folder(environ: Mapping[str, str]) -> str:
    """The one that XDG_RUNTIME_DIR names, unless it is somebody else's, as su leaves it; else that of a session; else
    there is none."""
    named, session = environ.get("XDG_RUNTIME_DIR", ""), f"{_SESSIONS}/{os.geteuid()}"
    with contextlib.suppress(OSError):
        if os.stat(named).st_uid != os.geteuid():
            named = ""
    if named.startswith("/"):
        return named
    with contextlib.suppress(OSError):
        info = os.lstat(session)
        if stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o022:
            return session
    return ""


def _make_shared_folder() -> str:
    """Where everybody may make folders, what is there may be anybody's: who listens in it would get what is meant for
    the daemon. It is made here, too, so that nobody else makes it before this client connects."""
    folder = f"{_SHARED}/hutch-{os.geteuid()}"
    mend = "set XDG_RUNTIME_DIR to a folder of your own, or HUTCH_SOCKET to a path"
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        info = os.lstat(folder)
    except OSError as error:
        raise refusal("FILE_PERMISSION", f"cannot make the folder {folder}: {error.strerror}; {mend}") from None
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
        facts = f"owner {info.st_uid}, mode {stat.S_IMODE(info.st_mode):04o}"
        words = f"{folder} is no folder of this user's alone ({facts}): have it removed, or {mend}"
        raise refusal("FILE_PERMISSION", words)
    return folder


# ---- Contexts ----


@dataclass(frozen=True)
class _Contexts:
    current: str
    contexts: dict[str, dict[str, str]]

    def find(self, name: str) -> dict[str, str] | None:
        name = name or self.current
        if name and name not in self.contexts:
            raise NotFound(f"there is no context '{name}'", reason="CONTEXT_NOT_FOUND")
        return self.contexts[name] if name else None


def _contexts_path(environ: Mapping[str, str]) -> Path | None:
    folder = environ.get("XDG_CONFIG_HOME", "")
    if folder.startswith("/"):
        return Path(folder, "hutch/contexts.json")
    home = environ.get("HOME", "")
    return Path(home, ".config/hutch/contexts.json") if home.startswith("/") else None


def _read_contexts(environ: Mapping[str, str]) -> _Contexts:
    path = _contexts_path(environ)
    try:
        if path is None:
            return _Contexts("", {})
        with path.open("rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise FailedPrecondition(
                    f"others than its owner may read or write {path}", reason="CONTEXTS_FILE_EXPOSED"
                )
            text = file.read()
    except FileNotFoundError:
        return _Contexts("", {})
    except OSError as error:
        raise _invalid(path, str(error)) from None
    try:
        return _parse_contexts(text)
    except (ValueError, HutchError) as error:
        raise _invalid(path, str(error)) from None


def _invalid(path: Path | None, why: str) -> HutchError:
    return FailedPrecondition(f"{path} is no contexts file: {why}", reason="CONTEXTS_FILE_INVALID")


def _no_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key is there twice")
    return made


def _parse_contexts(text: bytes) -> _Contexts:
    top = json.loads(text.decode(), object_pairs_hook=_no_doubles)
    if not isinstance(top, dict) or set(top) - {"current", "contexts"}:
        raise ValueError("it has the keys 'current' and 'contexts'")
    current, contexts = top.get("current", ""), top.get("contexts", {})
    if not isinstance(current, str) or not isinstance(contexts, dict):
        raise ValueError("'current' is a text and 'contexts' an object")
    for name, context in contexts.items():
        check_name(name)
        if not isinstance(context, dict) or set(context) - _CONTEXT_KEYS or "address" not in context:
            raise ValueError(f"context '{name}' has an address, and no keys but {', '.join(sorted(_CONTEXT_KEYS))}")
        if not all(isinstance(value, str) for value in context.values()):
            raise ValueError(f"all values of context '{name}' are texts")
        if ("certificate_file" in context) != ("key_file" in context):
            raise ValueError(f"certificate_file and key_file of context '{name}' belong together")
    return _Contexts(current, contexts)


# ---- Files ----


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidArgument(f"cannot read {path}: {error.strerror}", reason="FIELD_INVALID") from None


def _system_roots() -> bytes | None:
    """The certificates that the system trusts; None: gRPC's own, where the system has none in a file."""
    paths = ssl.get_default_verify_paths()
    for path in (paths.cafile, paths.capath and os.path.join(paths.capath, "ca-certificates.crt")):
        if path:
            with contextlib.suppress(OSError):
                return Path(path).read_bytes()
    return None
