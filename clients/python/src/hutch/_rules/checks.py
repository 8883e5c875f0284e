# SPDX-License-Identifier: Apache-2.0
"""What a request must be before it is sent, with the daemon's reasons and names of fields. All that is wrong is told at
once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hutch._rules import hosts, names, paths, selectors
from hutch.errors import HutchError, InvalidArgument, Violation, refusal
from hutch.v1 import exec_pb2, sandbox_pb2

_KEY_SHOWN_MAX = 64


class Checks:
    """Collects violations; `done` raises them."""

    def __init__(self, above: str = "") -> None:
        self._above = above
        self._violations: list[Violation] = []

    def done(self) -> None:
        if not self._violations:
            return
        first = self._violations[0]
        more = f" (and {len(self._violations) - 1} more)" if len(self._violations) > 1 else ""
        raise InvalidArgument(
            f"{first.field}: {first.message}{more}", reason=first.reason, violations=tuple(self._violations)
        )

    def rule(self, field: str, rule: Callable[..., object], *arguments: str, **options: object) -> None:
        try:
            rule(*arguments, **options)
        except HutchError as error:
            self._violations.append(Violation(self._above + field, error.reason, error.message))

    def violation(self, field: str, reason: str, message: str) -> None:
        self._violations.append(Violation(self._above + field, reason, message))

    def required(self, field: str, text: str) -> bool:
        if not text:
            self.violation(field, "FIELD_REQUIRED", "the field is required")
        return bool(text)

    def id(self, field: str, text: str) -> None:
        if self.required(field, text):
            self.rule(field, names.check_id, text)

    def new_id(self, field: str, text: str) -> None:
        if text:
            self.rule(field, names.check_id, text)

    def request_id(self, text: str) -> None:
        if text:
            self.rule("request_id", names.check_request_id, text)

    def name(self, field: str, text: str) -> None:
        if self.required(field, text):
            self.rule(field, names.check_name, text)

    def selector(self, text: str, may_be_empty: bool = True) -> None:
        self.rule("selector", selectors.parse_selector, text)
        if not may_be_empty and not text.strip(" "):
            self.violation("selector", "SELECTOR_EMPTY", "an empty selector would hit everything")

    def path(self, field: str, path: str) -> None:
        """A path as far as a client can tell: it does not know where the sandbox has its workspace."""
        self.rule(field, paths.resolve_path, path, working_directory="/")

    def mode(self, field: str, mode: int | None) -> None:
        if mode is not None and not 0 <= mode <= 0o777:
            self.violation(field, "FIELD_INVALID", "a mode is 0 to 0777")

    def labels(self, field: str, labels: Mapping[str, str]) -> None:
        if len(labels) > names.LABELS_MAX:
            self.violation(field, "LABELS_TOO_MANY", f"{len(labels)} labels are too many: at most {names.LABELS_MAX}")
        for key, value in sorted(labels.items()):
            self.rule(f"{field}[{key[:_KEY_SHOWN_MAX]}]", names.check_own_label, key, value)

    def argv(self, field: str, argv: Iterable[str]) -> None:
        words = list(argv)
        if not words or not words[0]:
            self.violation(field, "ARGV_EMPTY", "there is no program to run")
        for i, word in enumerate(words):
            if "\0" in word:
                self.violation(f"{field}[{i}]", "ARGV_MALFORMED", "an argument contains no NUL")

    def env(self, field: str, env: Mapping[str, str]) -> None:
        for name, value in sorted(env.items()):
            self.rule(f"{field}[{name[:_KEY_SHOWN_MAX]}]", names.check_env_name, name)
            self.rule(f"{field}[{name[:_KEY_SHOWN_MAX]}]", names.check_env_value, value)

    def egress(self, field: str, egress: Iterable[str]) -> None:
        for i, host in enumerate(egress):
            self.rule(f"{field}[{i}]", hosts.check_egress, host)

    def sandbox_spec(self, spec: sandbox_pb2.SandboxSpec) -> None:
        if spec.command:
            self.argv("spec.command", spec.command)
        self.env("spec.env", spec.env)
        self.labels("spec.labels", spec.labels)
        if spec.working_directory:
            self.rule("spec.working_directory", paths.resolve_path, spec.working_directory, absolute=True)
        self.egress("spec.egress", spec.egress)

    def exec_spec(self, spec: exec_pb2.ExecSpec) -> None:
        self.argv("spec.argv", spec.argv)
        self.env("spec.env", spec.env)
        if spec.working_directory:
            self.rule("spec.working_directory", paths.resolve_path, spec.working_directory, working_directory="/")
        for i, name in enumerate(spec.unset_env):
            self.rule(f"spec.unset_env[{i}]", names.check_env_name, name)


def check_size(size: int, limit: int) -> None:
    """A message that is to be sent."""
    if size > limit:
        raise refusal(
            "MESSAGE_TOO_LARGE",
            f"the message has {size} bytes, and the daemon takes {limit}",
            limit="max_request_bytes",
            value=limit,
        )
