# SPDX-License-Identifier: Apache-2.0
"""Host patterns of egress rules. spec/behavior.md section 18."""

from __future__ import annotations

import re
import socket

from hutch.errors import HutchError, refusal

_NAME_MAX = 253
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")


def _is_ipv6(text: str) -> bool:
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    try:
        socket.inet_pton(socket.AF_INET6, text.split("%", 1)[0])
    except (OSError, ValueError):
        return False
    return True


def parse_name(text: str) -> str:
    """A DNS name as it is compared: in lower case, without the trailing dot."""
    name = text.removesuffix(".")
    if len(name) > _NAME_MAX or not _NAME.fullmatch(name):
        if _is_ipv6(text):
            raise refusal("HOST_PATTERN_ADDRESS", "this is an address: name addresses by CIDR")
        raise refusal("HOST_PATTERN_MALFORMED", "this is no DNS name: write other scripts in their xn-- form")
    name = name.lower()
    if _NUMBER.fullmatch(name.rsplit(".", 1)[-1]):
        raise refusal("HOST_PATTERN_ADDRESS", "this is an address: name addresses by CIDR")
    return name


def parse_pattern(text: str) -> str:
    """A pattern as it is compared."""
    wildcard = text.startswith("*.") and len(text) > 2
    rest = text[2:] if wildcard else text
    if "*" in rest:
        raise refusal("HOST_PATTERN_WILDCARD", "'*' is only the whole first label, above at least two others")
    name = parse_name(rest)
    if wildcard and "." not in name:
        raise refusal("HOST_PATTERN_WILDCARD", f"'{name}' is a top-level domain: two labels must follow '*'")
    return f"*.{name}" if wildcard else name


def pattern_covers(pattern: str, name: str) -> bool:
    """Whether a pattern covers a host's name. Raises for a malformed pattern; a malformed name is never covered."""
    wanted = parse_pattern(pattern)
    try:
        host = parse_name(name)
    except HutchError:
        return False
    return host.endswith(wanted[1:]) if wanted.startswith("*") else host == wanted


def check_egress(text: str) -> None:
    """An entry of SandboxSpec.egress: a pattern, with or without a port."""
    host, colon, port = text.rpartition(":")
    if colon and port.isascii() and port.isdigit() and 1 <= int(port) <= 65535:
        text = host
    parse_pattern(text)
