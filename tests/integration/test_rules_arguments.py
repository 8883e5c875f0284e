# SPDX-License-Identifier: Apache-2.0
"""How much a process may be started with: to the byte."""

import pytest
from hutchd import refused, state_name
from test_exec_process import failure

ARGUMENT_MAX = 131071  # without its NUL
ARGUMENTS_MAX = 1 << 20  # each with its NUL
TOO_MANY = {"limit": "arguments_bytes", "value": str(ARGUMENTS_MAX)}


def filled(size: int, *argv: str) -> list[str]:
    """Arguments of @size bytes in all, each with its NUL: @argv, and what fills them up."""
    made, left = list(argv), size - sum(len(one) + 1 for one in argv)
    while left > 0:
        made.append("x" * (min(left, ARGUMENT_MAX + 1) - 1))
        left -= len(made[-1]) + 1
    return made


@pytest.mark.rules("ENV-006")
@pytest.mark.parametrize("what", ["argument", "variable", "variable of the sandbox"])
def test_one_has_131071_bytes(daemon, sandbox, what):
    def run(size: int):
        if what == "argument":
            return daemon.run(sandbox, "true", "x" * size)
        env = {"NAME": "x" * (size - len("NAME="))}
        if what == "variable":
            return daemon.run(sandbox, "true", env=env)
        made = daemon.ready(env=env)
        try:
            return daemon.run(made, "true")
        finally:
            daemon.remove(made)

    assert run(ARGUMENT_MAX).exec.result.exit_code == 0
    with refused("ARGUMENTS_TOO_LARGE") as told:
        run(ARGUMENT_MAX + 1)
    assert told.metadata == {"limit": "argument_bytes", "value": str(ARGUMENT_MAX)}


@pytest.mark.rules("ENV-006")
def test_all_together_have_a_mebibyte(daemon, sandbox):
    """The defaults count, too. Some of them only the inside knows."""
    variables = daemon.run(sandbox, "cat", "/proc/self/environ").stdout.split(b"\0")[:-1]
    room = ARGUMENTS_MAX - sum(len(one) + 1 for one in variables)
    inside = sum(len(one) + 1 for one in variables if one.startswith((b"HOME=", b"USER=")))
    assert inside > 0

    script = "cat /proc/$$/cmdline /proc/$$/environ | wc -c"
    assert daemon.run(sandbox, *filled(room, "sh", "-c", script)).stdout == b"%d\n" % ARGUMENTS_MAX
    for more in (1, inside):
        ended = daemon.run(sandbox, *filled(room + more, "true")).exec
        assert (state_name(ended), failure(ended), ended.result.exit_code) == ("FAILED", "ARGUMENTS_TOO_LARGE", 126)
    with refused("ARGUMENTS_TOO_LARGE") as told:
        daemon.run(sandbox, *filled(room + inside + 1, "true"))
    assert told.metadata == TOO_MANY
    without = {"unset_env": ["HOME", "USER"]}
    assert daemon.run(sandbox, *filled(room + inside, "true"), **without).exec.result.exit_code == 0
    with refused("ARGUMENTS_TOO_LARGE"):
        daemon.run(sandbox, *filled(room + inside + 1, "true"), **without)


@pytest.mark.rules("ENV-006")
def test_what_a_sandbox_and_an_exec_give_counts_together(daemon):
    half = {f"V{n}": "x" * 100_000 for n in range(6)}
    made = daemon.ready(env=half)
    other = {name.replace("V", "W"): value for name, value in half.items()}
    with refused("ARGUMENTS_TOO_LARGE") as told:
        daemon.run(made, "true", env=other)
    assert told.metadata == TOO_MANY
    assert daemon.run(made, "true", env=half).exec.result.exit_code == 0  # which overrides
    assert daemon.run(made, "true", env=other, unset_env=list(half)).exec.result.exit_code == 0
    daemon.remove(made)


@pytest.mark.rules("ENV-006")
def test_the_command_of_a_sandbox_is_bound_as_well(daemon):
    with refused("ARGUMENTS_TOO_LARGE") as told:
        daemon.create(command=filled(ARGUMENTS_MAX + 1, "true"))
    assert told.metadata == TOO_MANY
    made = daemon.ready(command=filled(ARGUMENTS_MAX, "true"))  # the defaults come on top
    ended = daemon.wait_exec(made, "main")
    assert (state_name(ended), failure(ended)) == ("FAILED", "ARGUMENTS_TOO_LARGE")
    daemon.remove(made)
