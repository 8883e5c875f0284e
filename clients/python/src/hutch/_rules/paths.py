# SPDX-License-Identifier: Apache-2.0
"""Paths inside a sandbox, without looking at any file system. spec/behavior.md section 2."""

from __future__ import annotations

from hutch.errors import refusal

PATH_BYTES_MAX = 4096
COMPONENT_BYTES_MAX = 255
WORKSPACE = "/workspace"


def is_control(character: str) -> bool:
    return character <= "\x1f" or "\x7f" <= character <= "\x9f"


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _size(path: str) -> int:
    """Its bytes, also of one that is not UTF-8, with what os.fsdecode() makes of such bytes."""
    try:
        return len(path.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return len(path.encode("utf-8", "surrogatepass"))


def _check_given(path: str, absolute: bool) -> None:
    if not path:
        raise refusal("PATH_EMPTY", "the path is empty")
    if _size(path) > PATH_BYTES_MAX:
        raise refusal("PATH_TOO_LONG", f"the path is longer than {PATH_BYTES_MAX} bytes")
    if any("\ud800" <= character <= "\udfff" for character in path):
        raise refusal("PATH_NOT_UTF8", "the path is not valid UTF-8")
    if any(map(is_control, path)):
        raise refusal("PATH_CONTROL_CHARACTER", "the path contains a control character")
    if absolute and not path.startswith("/"):
        raise refusal("PATH_NOT_ABSOLUTE", "the path must begin with '/'")
    components = path.split("/")
    if components[0] == "~":
        raise refusal("PATH_TILDE", 'the path begins with "~", which nothing here expands: write "./~" for such a name')
    if ".." in components:
        raise refusal("PATH_DOTDOT", 'the path must not have ".." as a component')
    if any(len(component.encode()) > COMPONENT_BYTES_MAX for component in components):
        raise refusal("PATH_COMPONENT_TOO_LONG", f"the path has a component of more than {COMPONENT_BYTES_MAX} bytes")


def resolve_path(
    path: str,
    *,
    working_directory: str = WORKSPACE,
    workspace: str = WORKSPACE,
    absolute: bool = False,
    removing: bool = False,
) -> tuple[str, bool]:
    """The absolute path, and whether it must be a directory's. Raises what the daemon would answer."""
    _check_given(path, absolute)
    names = _names(path) if path.startswith("/") else _names(working_directory) + _names(path)
    resolved = "/" + "/".join(names)
    if len(resolved.encode()) > PATH_BYTES_MAX:
        raise refusal("PATH_TOO_LONG", f"the path is longer than {PATH_BYTES_MAX} bytes once it is resolved")
    if removing and names == _names(workspace)[: len(names)]:
        raise refusal("PATH_PROTECTED", "the root, the workspace and what contains it cannot be removed or moved")
    return resolved, path.rsplit("/", 1)[-1] in ("", ".")
