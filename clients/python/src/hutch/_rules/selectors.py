# SPDX-License-Identifier: Apache-2.0
"""Label selectors: their grammar, and whether labels match. spec/behavior.md section 4."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hutch._rules.names import check_label_key, check_label_value
from hutch.errors import HutchError, refusal

_BYTES_MAX = 4096
_REQUIREMENTS_MAX = 32
_VALUES_MAX = 64
_TOKEN = re.compile(r" *(?:(?P<word>[A-Za-z0-9_./-]+)|(?P<mark>==|!=|[=!,()])|(?P<end>$(?!\n)))")


@dataclass(frozen=True)
class Requirement:
    """One part of a selector: whether the value is, or is not, one of some; None stands for an absent key."""

    key: str
    values: frozenset[str | None] = field(default=frozenset({None}))
    negated: bool = True

    def matches(self, labels: Mapping[str, str]) -> bool:
        return (labels.get(self.key) in self.values) != self.negated


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.token = ""
        self.is_word = False
        self.advance()

    def advance(self) -> None:
        found = _TOKEN.match(self.text, self.at)
        if not found:
            raise self.failure("key, value or operator")
        self.token = found["word"] or found["mark"] or ""
        self.is_word = found["word"] is not None
        self.at = found.end()

    def failure(self, expected: str) -> HutchError:
        return refusal("SELECTOR_MALFORMED", f"the selector has no {expected} before character {self.at}")

    def take(self, mark: str) -> bool:
        if self.is_word or self.token != mark:
            return False
        self.advance()
        return True

    def key(self) -> str:
        try:
            check_label_key(self.token if self.is_word else "")
        except HutchError:
            raise self.failure("label's key") from None
        key = self.token
        self.advance()
        return key

    def value(self) -> str:
        try:
            check_label_value(self.token if self.is_word else "-")
        except HutchError:
            raise self.failure("label's value") from None
        value = self.token
        self.advance()
        return value

    def values(self) -> list[str]:
        if not self.take("("):
            raise self.failure("'('")
        values = [self.value()]
        while self.take(","):
            values.append(self.value())
        if not self.take(")"):
            raise self.failure("')'")
        if len(values) > _VALUES_MAX:
            raise refusal("SELECTOR_MALFORMED", f"a requirement of a selector has at most {_VALUES_MAX} values")
        return values

    def requirement(self) -> Requirement:
        if self.take("!"):
            return Requirement(self.key(), negated=False)
        key = self.key()
        if self.token in ("=", "==", "!="):
            negated = self.token == "!="
            self.advance()
            return Requirement(key, frozenset({self.value() if self.is_word else ""}), negated)
        if self.is_word and self.token in ("in", "notin"):
            negated = self.token == "notin"
            self.advance()
            return Requirement(key, frozenset(self.values()), negated)
        if self.is_word:
            raise self.failure("operator")
        return Requirement(key)


def parse_selector(text: str) -> list[Requirement]:
    """The requirements, none for an empty selector."""
    if len(text.encode("utf-8", "surrogatepass")) > _BYTES_MAX:
        raise refusal("SELECTOR_MALFORMED", f"a selector has at most {_BYTES_MAX} bytes")
    parser = _Parser(text)
    requirements: list[Requirement] = []
    if not parser.token:
        return requirements
    requirements.append(parser.requirement())
    while parser.take(","):
        requirements.append(parser.requirement())
    if parser.token:
        raise parser.failure("','")
    if len(requirements) > _REQUIREMENTS_MAX:
        raise refusal("SELECTOR_MALFORMED", f"a selector has at most {_REQUIREMENTS_MAX} requirements")
    return requirements
