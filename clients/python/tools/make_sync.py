# SPDX-License-Identifier: Apache-2.0
"""Makes the sync twin of hutch.aio: make_sync.py SOURCE TARGET, both folders.

The two differ in the words of asynchronous Python only, which are taken out or replaced token by token; what else
differs stands in hutch/_grpc_aio.py and hutch/_grpc_sync.py, by the same names."""

import io
import re
import sys
import tokenize
from pathlib import Path

NAMES = {
    "AsyncIterable": "Iterable",
    "AsyncIterator": "Iterator",
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "_grpc_aio": "_grpc_sync",
    "aio": "sync",
}
TEXTS = [("async for", "for"), ("async with", "with"), ("await ", "")]


def sync_text(text: str) -> str:
    """A string, which may be a docstring with code in it."""
    for old, new in TEXTS:
        text = text.replace(old, new)
    return text


def sync_source(source: str) -> str:
    """The source without its asynchronous words. Everything else keeps its place."""
    lines = source.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for token, after in reversed(list(zip(tokens, tokens[1:]))):
        (row, start), (last, end) = token.start, token.end
        if token.type == tokenize.STRING:
            block = "".join(lines[row - 1 : last])
            cut = len(block) - len(lines[last - 1]) + end
            changed = block[:start] + sync_text(block[start:cut]) + block[cut:]
            lines[row - 1 : last] = changed.splitlines(keepends=True)
        elif token.string in ("async", "await"):
            lines[row - 1] = lines[row - 1][:start] + lines[row - 1][after.start[1] :]
        elif token.type == tokenize.NAME and token.string in NAMES:
            lines[row - 1] = lines[row - 1][:start] + NAMES[token.string] + lines[row - 1][end:]
    return "".join(lines)


def main(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.glob("*.py")):
        text = sync_source(file.read_text(encoding="utf-8"))
        if file.name == "__init__.py":
            about = '"""The sync client, made from hutch.aio. Import it from `hutch`."""'
            text = re.sub(r'""".*?"""', about, text, count=1)
        (target / file.name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
