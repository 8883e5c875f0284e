# SPDX-License-Identifier: Apache-2.0
"""What the shells complete."""

import select
import shutil
import signal
import subprocess
import time

import pytest
from commandline import LIMIT, Hutch, Terminal
from host import PATIENCE


def complete(hutch: Hutch, *words: str) -> list[str]:
    return [line.split("\t")[0] for line in hutch.ok("__complete", "--", *words).split("\n") if line]


def test_commands(hutch):
    assert complete(hutch, "un") == ["unpause"]
    assert {"run", "list", "exec", "doctor"} <= set(complete(hutch, ""))
    assert not [word for word in complete(hutch, "") if " " in word or word.startswith("_")]
    assert complete(hutch, "daemon", "st") == ["start", "stop", "status"]
    assert "logs" in complete(hutch, "exec", "l")
    assert complete(hutch, "help", "unp") == ["unpause"]


def test_options_and_their_values(hutch):
    assert complete(hutch, "run", "--mem") == ["--memory"]
    assert complete(hutch, "list", "-o", "") == complete(hutch, "list", "--output", "") == ["table", "json", "yaml"]
    assert complete(hutch, "list", "--state", "ST") == ["STOPPING", "STOPPED"]
    assert complete(hutch, "run", "--env-file", "x") == [":files"]
    assert complete(hutch, "list", "--output=j") == ["json"]
    assert complete(hutch, "--so") == ["--socket"]
    assert complete(hutch, "--socket", "x") == complete(hutch, "--socket=x") == [":files"]
    assert complete(hutch, "--socket", "x", "--ca=y", "unp") == ["unpause"]
    assert complete(hutch, "completion", "") == ["bash", "zsh", "fish"]
    assert "strict" in complete(hutch, "run", "--profile", "s")


def test_programs_come_after_the_options(hutch, sandbox):
    assert complete(hutch, "run", "l") == [":programs"]
    assert complete(hutch, "run", "--", "-") == [":programs"]
    assert complete(hutch, "run", "ls", "-") == [":files"]
    assert complete(hutch, "exec", sandbox, "l") == [":programs"]


def test_ids_from_the_live_daemon(hutch, sandbox):
    assert sandbox in complete(hutch, "get", "")
    assert complete(hutch, "delete", sandbox[:10]) == [sandbox]
    assert hutch.ok("__complete", "get", sandbox) == f"{sandbox}\tREADY\n"
    one = hutch.ok("exec", "-d", sandbox, "true").strip()
    assert one in complete(hutch, "exec", "logs", sandbox, "")
    assert complete(hutch, "get", sandbox, "") == []


def test_without_a_daemon_there_are_no_ids_and_none_is_started(tmp_path):
    hutch = Hutch(tmp_path / "none.sock", HUTCH_STATE=str(tmp_path / "state"))
    assert complete(hutch, "get", "") == []
    assert list(tmp_path.iterdir()) == []


def test_a_daemon_that_does_not_answer_does_not_keep_the_shell(own):
    daemon, hutch = own
    daemon.signal(signal.SIGSTOP)
    started = time.monotonic()
    assert complete(hutch, "get", "") == []
    took = time.monotonic() - started
    daemon.signal(signal.SIGCONT)
    assert took < 5 * PATIENCE


def bash_completes(hutch: Hutch, *words: str) -> list[str]:
    script = f"""
        PATH={hutch.program.parent}:$PATH
        eval "$(hutch completion bash)"
        COMP_WORDS=(hutch "$@") COMP_CWORD=$#
        compopt() {{ :; }}
        _hutch
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    ended = subprocess.run(
        ["bash", "-c", script, "bash", *words], env=hutch.env, capture_output=True, text=True, check=True
    )
    assert ended.stderr == ""
    return ended.stdout.split()


def test_bash_completes(hutch, sandbox, tmp_path):
    assert bash_completes(hutch, "unp") == ["unpause"]
    assert bash_completes(hutch, "get", sandbox[:8]) == [sandbox]
    assert bash_completes(hutch, "run", "--mem") == ["--memory"]
    assert bash_completes(hutch, "list", "-o", "") == ["table", "json", "yaml"]
    assert bash_completes(hutch, "list", "--output", "=", "j") == ["json"]
    (tmp_path / "a file").write_text("")
    assert bash_completes(hutch, "run", "--file", str(tmp_path / "a")) == f"{tmp_path}/a file".split()
    assert bash_completes(hutch, "cp", sandbox[:8]) == [f"{sandbox}:"]
    assert bash_completes(hutch, "cp", str(tmp_path / "a")) == f"{tmp_path}/a file".split()
    assert bash_completes(hutch, "cp", sandbox, ":", str(tmp_path / "a")) == []
    assert "true" in bash_completes(hutch, "run", "tru")
    assert bash_completes(hutch, "zzz", "") == []


def fish_completes(hutch: Hutch, home, line: str) -> list[str]:
    script = "hutch completion fish | source; complete -C $argv[1]"
    ended = subprocess.run(
        ["fish", "--no-config", "-c", script, line],
        env=hutch.env | {"PATH": f"{hutch.program.parent}:{hutch.env['PATH']}", "HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stderr == ""
    return [answer.split("\t")[0] for answer in ended.stdout.split("\n") if answer]


def test_fish_completes(hutch, sandbox, tmp_path):
    (tmp_path / "a file").write_text("")
    for line, answers in {
        "hutch unp": ["unpause"],
        f"hutch get {sandbox[:8]}": [sandbox],
        f"hutch --socket {hutch.env['HUTCH_SOCKET']} get {sandbox[:8]}": [sandbox],
        "hutch run --mem": ["--memory"],
        "hutch list -o ": ["json", "table", "yaml"],
        "hutch list --output=j": ["--output=json"],
        "hutch list --state ST": ["STOPPED", "STOPPING"],
        "hutch run --file a": ["a file"],
        "hutch run --file=a": ["--file=a file"],
        "hutch cp a": ["a file"],
        f"hutch cp {sandbox[:8]}": [f"{sandbox}:"],
        f"hutch cp {sandbox}:a": [],
        "hutch get zzz": [],
    }.items():
        assert fish_completes(hutch, tmp_path, line) == answers, line
    assert "true" in fish_completes(hutch, tmp_path, "hutch run tru")


ZSH_SET_UP = """
    PS1= PATH={program}:$PATH; cd {home}
    autoload -Uz compinit && compinit -D
    eval "$(hutch completion zsh)"
    show() {{ print -rn -- "$BUFFER" >shown.new; mv shown.new shown; BUFFER= }}
    zle -N show; bindkey '^X' show; bindkey '^I' complete-word
    touch ready
"""


class Zsh:
    """A shell on a terminal of its own, where somebody types and looks what became of it."""

    def __init__(self, hutch: Hutch, home):
        self.shown = home / "shown"
        self.terminal = Terminal(["zsh", "-f", "-i"], hutch.env | {"HOME": str(home)}, 24, 200)
        (home / "set-up").write_text(ZSH_SET_UP.format(program=hutch.program.parent, home=home))
        self.terminal.type(f". {home}/set-up\n")
        wait_for((home / "ready").exists, self.terminal)

    def completes(self, line: str) -> str:
        self.terminal.type(f"{line}\t\x18")
        wait_for(self.shown.exists, self.terminal)
        text = self.shown.read_text()
        self.shown.unlink()
        return text


def wait_for(what, terminal: Terminal) -> None:
    end = time.monotonic() + LIMIT
    while not what():
        assert time.monotonic() < end, terminal.seen
        if select.select([terminal.fd], [], [], 0.02)[0]:
            terminal.read()


def test_zsh_completes(hutch, sandbox, tmp_path):
    zsh = Zsh(hutch, tmp_path)
    (tmp_path / "a file").write_text("")
    with zsh.terminal:
        for line, completed in {
            "hutch unp": "hutch unpause ",
            f"hutch get {sandbox[:8]}": f"hutch get {sandbox} ",
            f"hutch --socket {hutch.env['HUTCH_SOCKET']} get {sandbox[:8]}": None,
            "hutch run --mem": "hutch run --memory ",
            "hutch list -o j": "hutch list -o json ",
            "hutch list --output=j": "hutch list --output=json ",
            "hutch list --state REA": "hutch list --state READY ",
            "hutch run --file a": "hutch run --file a\\ file ",
            "hutch run --file=a": "hutch run --file=a\\ file ",
            "hutch cp a": "hutch cp a\\ file ",
            f"hutch cp {sandbox[:8]}": f"hutch cp {sandbox}:",
            "hutch get zzz": "hutch get zzz",
        }.items():
            told = zsh.completes(line)
            assert told == (completed or f"{line[:-8]}{sandbox} "), line


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_valid(hutch, shell):
    script = hutch.ok("completion", shell)
    assert "__complete" in script
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell} on this machine")
    subprocess.run([shell, "-n"], input=script, text=True, check=True, capture_output=True)
