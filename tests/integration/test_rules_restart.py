# SPDX-License-Identifier: Apache-2.0
"""A restart, a crash and an upgrade of the daemon end nothing and lose nothing."""

import shutil
from pathlib import Path

import pytest
from hutchd import BUILD, Daemon, state_name, wait_until
from streams import read_output

# Prints all the while, until somebody tells it to end.
LINES = "i=0; until [ -e told ]; do echo line $i; i=$((i+1)); sleep 0.01; done; exit 7"


class InstalledDaemon(Daemon):
    """A daemon whose programs are in a folder of their own, where others can take their place."""

    def __init__(self):
        super().__init__()
        self.programs = self.folder / "first"
        self.install(self.programs)

    def install(self, folder: Path) -> None:
        folder.mkdir()
        for name in ("hutchd", "hutch-keeper"):
            shutil.copy2(BUILD / name, folder)
        self.write_config({"native": {"keeper": str(folder / "hutch-keeper")}})
        self.programs = folder

    def command(self, *arguments: str | Path) -> list:
        return [self.programs / "hutchd", *super().command(*arguments)[1:]]

    def upgrade(self) -> None:
        """Other files, elsewhere; the old ones are gone."""
        old = self.programs
        self.stop_daemon()
        self.install(self.folder / "second")
        shutil.rmtree(old)
        self.begin()


@pytest.fixture(name="installed")
def start_installed():
    daemon = InstalledDaemon()
    daemon.begin()
    yield daemon
    daemon.finish()


RESTARTS = {
    "restart": Daemon.restart,
    "crash": lambda daemon: daemon.restart(kill=True),
    "upgrade": InstalledDaemon.upgrade,
}


def settled(sandbox):
    """A sandbox without what counts down."""
    sandbox.ClearField("idle_deadline")
    return sandbox


def children_of(keeper: int) -> list[int]:
    """PID 1 of the sandbox and the processes of its execs, without what these start."""
    found = Path(f"/proc/{keeper}/task/{keeper}/children").read_text(encoding="ascii")
    return sorted(map(int, found.split()))


@pytest.mark.rules("LIFE-009")
@pytest.mark.parametrize("how", RESTARTS)
def test_nothing_ends_and_nothing_is_lost(installed, how):
    busy, paused, stopped, gone = (installed.ready(labels={"n": str(n)}) for n in range(4))
    installed.pause(paused)
    installed.wait(paused, "PAUSED")
    installed.stop(stopped, 0)
    installed.wait(stopped, "STOPPED")
    installed.remove(gone)
    ended = installed.run(busy, "sh", "-c", "echo out; echo err >&2; exit 3").exec
    running = installed.start(busy, "sh", "-c", LINES, request_id="once").id
    wait_until(lambda: installed.get_exec(busy, running).stdout_bytes)
    before = {one: settled(installed.get(one)) for one in (paused, stopped, gone)}
    keeper = installed.keeper(busy)
    processes = children_of(keeper)
    cursor = installed.pages()[0].cursor

    RESTARTS[how](installed)

    assert {one: settled(installed.get(one)) for one in before} == before
    assert state_name(installed.get(busy)) == "READY"
    assert installed.keeper(busy) == keeper and children_of(keeper) == processes
    assert installed.get_exec(busy, ended.id) == ended
    assert read_output(installed, busy, ended.id)[0].stdout == b"out\n"
    assert installed.start(busy, "sh", "-c", LINES, request_id="once").id == running
    assert state_name(installed.get_exec(busy, running)) == "RUNNING"
    (installed.sandbox_folder(busy) / "fs/workspace/told").touch()
    output, last = read_output(installed, busy, running, follow=True)
    assert (state_name(last), last.result.exit_code) == ("EXITED", 7)
    lines = output.stdout.splitlines()
    assert lines == [b"line %d" % n for n in range(len(lines))] and len(lines) > 1
    watch = installed.watch(after_cursor=cursor, sandbox_ids=[busy])
    [event] = watch.until(lambda event: event.exec_state.exec_id == running)
    watch.close()
    assert event.exec_state.result.exit_code == 7
    installed.unpause(paused)
    installed.resume(stopped)
    for one in (busy, paused, stopped):
        installed.wait(one, "READY")
        assert installed.shell(one, "echo well") == "well\n"
