# SPDX-License-Identifier: Apache-2.0
"""Ids, names, labels and environments. spec/behavior.md sections 3 to 5."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from hutch._rules.paths import is_control
from hutch.errors import refusal

LABELS_MAX = 64
_ENV_NAME_BYTES_MAX = 255
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{2,198}[A-Za-z0-9]")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"(?!.{254})[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")


def check_id(text: str) -> None:
    if not _ID.fullmatch(text):
        raise refusal(
            "ID_MALFORMED",
            "an id has 4 to 200 letters, digits, '_' and '-', and begins and ends with a letter or digit",
        )


def check_name(text: str) -> None:
    if not _NAME.fullmatch(text):
        raise refusal(
            "NAME_MALFORMED",
            "a name has 1 to 63 lower-case letters, digits and '-', and begins and ends with a letter or digit",
        )


def check_request_id(text: str) -> None:
    if not _REQUEST_ID.fullmatch(text):
        raise refusal("REQUEST_ID_MALFORMED", "a request id has 1 to 128 letters, digits, '-', '_', '.' and ':'")


def check_label_key(key: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if (slash and not _LABEL_PREFIX.fullmatch(prefix)) or not _LABEL_NAME.fullmatch(name):
        raise refusal(
            "LABEL_MALFORMED",
            "a label's key is a name of 1 to 63 letters, digits, '_', '-' and '.', or a lower-case DNS name, '/' and "
            "such a name",
        )


def check_label_value(value: str) -> None:
    if value and not _LABEL_NAME.fullmatch(value):
        raise refusal(
            "LABEL_MALFORMED",
            "a label's value has at most 63 letters, digits, '_', '-' and '.', and begins and ends with a letter or "
            "digit",
        )


def check_own_label(key: str, value: str) -> None:
    """A label that a caller sets."""
    check_label_key(key)
    if key.startswith("hutch/"):
        raise refusal("LABEL_RESERVED", "labels below 'hutch/' are the daemon's own")
    check_label_value(value)


def check_env_name(name: str) -> None:
    size = len(name.encode("utf-8", "surrogatepass"))
    if not 0 < size <= _ENV_NAME_BYTES_MAX or "=" in name or any(map(is_control, name)):
        raise refusal(
            "ENV_NAME_MALFORMED",
            f"the name of a variable has 1 to {_ENV_NAME_BYTES_MAX} bytes and no '=' and no control character",
        )


def check_env_value(value: str) -> None:
    if "\0" in value:
        raise refusal("ENV_VALUE_MALFORMED", "the value of a variable contains no NUL")
    if value.startswith("secret://"):
        check_name(value.removeprefix("secret://"))


def merge_env(layers: Iterable[Mapping[str, str]], unset: Iterable[str] = ()) -> dict[str, str]:
    """The environment that the layers make, lowest first, without the names in @unset, ordered by name."""
    merged: dict[str, str] = {}
    for layer in layers:
        for name, value in layer.items():
            check_env_name(name)
            if "\0" in value:
                raise refusal("ENV_VALUE_MALFORMED", "the value of a variable contains no NUL")
            merged[name] = value
    for name in unset:
        check_env_name(name)
        merged.pop(name, None)
    return dict(sorted(merged.items(), key=lambda item: item[0].encode()))
