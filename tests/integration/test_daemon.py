# SPDX-License-Identifier: Apache-2.0
"""The daemon as a program: its configuration, signals, sockets, store, and the service manager's protocols."""

import contextlib
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import threading
import time

import grpc
import pytest
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc
from host import PATIENCE
from hutch.v1 import exec_pb2, sandbox_pb2
from hutchd import BUILD, LIMIT, Client, Daemon, Refusal, refused, state_name, wait_until


@pytest.fixture(name="idle")
def make_idle():
    """A daemon that was not started; what the test starts is ended."""
    daemon = Daemon()
    yield daemon
    daemon.wipe()


# ---- Configuration ----


def check_config(daemon: Daemon, text: str):
    daemon.config_file.write_text(text, encoding="utf-8")
    return daemon.call("--check-config")


def test_the_printed_configuration_is_one(idle):
    printed = subprocess.run([BUILD / "hutchd", "--print-config"], capture_output=True, text=True, check=True).stdout
    assert "limits:" in printed and "sandboxes_per_caller" in printed
    assert check_config(idle, printed).returncode == 0
    uncommented = "\n".join(
        line.replace("# ", "", 1) if line.lstrip().startswith("# ") and line.rstrip().endswith(":") else line
        for line in printed.splitlines()
    )
    assert isinstance(yaml.safe_load(uncommented), (dict, type(None)))


@pytest.mark.parametrize(
    "text, line, word",
    [
        ("nosuch: 1\n", 1, "nosuch"),
        ("log:\n  level: info\n  nosuch: 1\n", 3, "nosuch"),
        ("limits:\n  sandboxes: many\n", 2, "sandboxes"),
        ("limits:\n  sandboxes: 0\n", 2, "sandboxes"),
        ("limits:\n  sandboxes: 99999999\n", 2, "sandboxes"),
        ("log:\n  level: loud\n", 2, "level"),
        ("\n\nshutdown_grace: 10\n", 3, "shutdown_grace"),
        ("limits:\n  exec_output: 64 MB\n", 2, "exec_output"),
        ("sandboxes:\n  allow_unenforced_limits: maybe\n", 2, "allow_unenforced_limits"),
        ("socket: ''\n", 1, "socket"),
        ("log:\n  level: info\n  level: debug\n", 3, "level"),
        ("limits: 5\n", 1, "limits"),
        ("socket: [a]\n", 1, "socket"),
        ("a: b: c\n", 1, ""),
        ("- a\n", 1, ""),
    ],
)
def test_what_is_wrong_in_the_configuration_is_told_with_its_line(idle, text, line, word):
    checked = check_config(idle, text)
    assert checked.returncode == 1
    assert f"config.yaml:{line}: " in checked.stderr and word in checked.stderr
    assert not idle.state.exists()


GOOD = ["", "# nothing\n", "limits:\n  sandboxes: 5\n", "shutdown_grace: 1m30s\n", "---\nsocket: /a\n"]


@pytest.mark.parametrize("text", GOOD)
def test_good_configurations(idle, text):
    checked = check_config(idle, text)
    assert checked.returncode == 0, checked.stderr


def test_a_configuration_that_is_named_must_be_there(idle):
    idle.config_file.unlink()
    ran = idle.call("--check-config")
    assert ran.returncode == 1 and "config.yaml" in ran.stderr


def test_a_daemon_does_not_start_with_a_bad_configuration(idle):
    idle.write_config({"nosuch": 1})
    ran = idle.call()
    assert ran.returncode == 1 and "nosuch" in ran.stderr


@pytest.mark.parametrize(
    "arguments, why",
    [
        (["--nosuch"], "unknown option '--nosuch'"),
        (["-xy"], "unknown option '-x'"),
        (["extra"], "unexpected argument 'extra'"),
        (["--socket"], "--socket needs a value"),
        (["--socket", ""], "--socket cannot be empty"),
        (["--idle-exit="], "--idle-exit cannot be empty"),
        (["--version=3"], "--version takes no value"),
        (["--check-config", "--backup", "file"], "--check-config, --print-tokens-file and --backup exclude each other"),
    ],
)
def test_bad_arguments(arguments, why):
    ran = subprocess.run([BUILD / "hutchd", *arguments], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", f"hutchd: {why}; see hutchd --help\n")


@pytest.mark.parametrize("flag", ["--help", "--version", "--print-config"])
def test_what_cannot_be_written_is_told(flag):
    with open("/dev/full", "wb") as full:
        ran = subprocess.run([BUILD / "hutchd", flag], stdout=full, stderr=subprocess.PIPE, timeout=LIMIT, check=False)
    assert (ran.returncode, ran.stderr) == (1, b"hutchd: cannot write: No space left on device\n")


def test_help_and_version():
    for flag, word in (("--help", "--socket"), ("--version", "hutchd ")):
        ran = subprocess.run([BUILD / "hutchd", flag], capture_output=True, text=True, timeout=LIMIT, check=False)
        assert ran.returncode == 0 and word in ran.stdout and not ran.stderr


def is_served(path) -> bool:
    """Whether somebody listens: a socket is there a moment earlier."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def test_paths_by_flag_before_environment_before_configuration(idle):
    """The flags name one folder, the variables another, the configuration a third."""
    config, variables = idle.folder / "config", idle.folder / "variables"
    idle.write_config({"socket": f"{config}/s", "state": f"{config}/state"})
    command = [BUILD / "hutchd", "--config", idle.config_file]
    environment = {"HUTCH_SOCKET": f"{variables}/s", "HUTCH_STATE": f"{variables}/state"}

    def serves(path, extra, env) -> None:
        process = subprocess.Popen([*command, *extra], env=env, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: is_served(path), what=f"nobody listens at {path}")
            client = Client(path)
            assert client.info().version
            client.close()
        finally:
            process.terminate()
            assert process.wait(LIMIT) == 0

    serves(config / "s", [], {})
    serves(variables / "s", [], environment)
    assert (variables / "state/hutch.db").exists()
    serves(idle.socket, ["--socket", idle.socket, "--state", idle.state], environment)
    assert (idle.state / "hutch.db").exists()


@contextlib.contextmanager
def hutchd_of_nobody(idle):
    """The daemon of a user without root, who names nothing; his home is in the folder of @idle, and so is its log."""
    idle.folder.chmod(0o755)
    home = idle.folder / "home"
    for name in (home, home / "run", home / "state"):
        name.mkdir()
        os.chown(name, 65534, 65534)
    env = {
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(home / "run"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
    }
    nobody = {"user": 65534, "group": 65534, "extra_groups": []}
    with idle.log_file.open("wb") as log:
        process = subprocess.Popen([BUILD / "hutchd"], env=env, stderr=log, **nobody)
    try:
        wait_until(lambda: is_served(home / "run/hutch/hutchd.sock") or process.poll() is not None)
        assert process.poll() is None, idle.log()
        yield process
    finally:
        process.terminate()
        process.wait(LIMIT)


def test_a_user_without_root_has_folders_of_his_own(idle):
    with hutchd_of_nobody(idle):
        client = Client(idle.folder / "home/run/hutch/hutchd.sock")
        assert client.info().host.rootless
        client.close()
        assert (idle.folder / "home/state/hutch/hutch.db").exists()


def test_sighup_reads_limits_again(own_daemon):
    own_daemon.create()
    own_daemon.write_config({"limits": {"sandboxes": 1}})
    own_daemon.signal(signal.SIGHUP)
    wait_until(lambda: own_daemon.info().limits.sandboxes == 1)
    with refused("QUOTA_EXCEEDED"):
        own_daemon.create()
    own_daemon.write_config({"limits": {"sandboxes": 5}})
    own_daemon.signal(signal.SIGHUP)
    wait_until(lambda: own_daemon.info().limits.sandboxes == 5)
    own_daemon.create()


@pytest.mark.parametrize(
    "text, told",
    [
        ("limits:\n  sandboxes: 3\n  nosuch: 1\n", "config.yaml:3: limits.nosuch"),
        ("limits:\n  sandboxes: 3\n  - a\n", "config.yaml:3: "),
        (None, "config.yaml: No such file or directory"),
        ("/", "config.yaml: Is a directory"),
    ],
    ids=["unknown-key", "no-yaml", "gone", "folder"],
)
def test_sighup_with_a_bad_configuration_changes_nothing_and_says_so(start_daemon, text, told):
    daemon = start_daemon({"limits": {"sandboxes": 7}})
    daemon.config_file.unlink()
    if text == "/":
        daemon.config_file.mkdir()
    elif text:
        daemon.config_file.write_text(text, encoding="utf-8")
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: told in daemon.log())
    [line] = [line for line in daemon.log().splitlines() if told in line]
    assert "level=error" in line
    assert daemon.info().limits.sandboxes == 7

    if text == "/":
        daemon.config_file.rmdir()
    daemon.write_config({"limits": {"sandboxes": 9}})
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: daemon.info().limits.sandboxes == 9)


def test_sighup_misses_a_configuration_that_nobody_named_but_that_was_there(idle):
    """Without it the operator's limits would be gone."""
    config = idle.folder / "home/config/hutch/hutchd.yaml"
    with hutchd_of_nobody(idle) as process:
        client = Client(idle.folder / "home/run/hutch/hutchd.sock")
        config.parent.mkdir(parents=True)
        config.write_text("limits:\n  sandboxes: 7\n", encoding="utf-8")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: client.info().limits.sandboxes == 7)
        config.unlink()
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: f"{config}: No such file" in idle.log())
        assert client.info().limits.sandboxes == 7
        client.close()


def test_sighup_tells_of_keys_that_are_read_at_the_start_only(own_daemon):
    own_daemon.write_config({"limits": {"watch_buffer": 77}})
    own_daemon.signal(signal.SIGHUP)
    wait_until(lambda: "watch_buffer" in own_daemon.log())


def test_json_logs(start_daemon):
    daemon = start_daemon({"log": {"format": "json", "level": "debug"}})
    daemon.info()
    for line in daemon.log().splitlines():
        assert yaml.safe_load(line)["msg"]


# ---- One daemon for one state ----


def test_a_second_daemon_is_refused_with_the_pid_of_the_first(daemon):
    ran = daemon.call()
    assert ran.returncode == 1
    assert str(daemon.process.pid) in ran.stderr and str(daemon.state) in ran.stderr
    assert daemon.info().version  # the first one's socket is as it was


def test_a_socket_left_by_a_killed_daemon_is_in_nobodys_way(own_daemon):
    own_daemon.kill()
    assert own_daemon.socket.exists()
    own_daemon.begin()


def test_a_file_that_is_no_socket_is_not_overwritten(idle):
    idle.socket.write_text("precious", encoding="utf-8")
    ran = idle.call()
    assert ran.returncode == 1 and str(idle.socket) in ran.stderr
    assert idle.socket.read_text(encoding="utf-8") == "precious"
    with sqlite3.connect(idle.state / "hutch.db") as store:
        [[idle.instance]] = store.execute("SELECT value FROM facts WHERE name = 'instance_id'")
    assert not idle.cgroup() and not idle.limit_groups(), "a start that failed leaves cgroups"


def test_a_socket_that_is_served_is_not_taken_over(daemon, idle):
    """By a daemon with another state folder."""
    idle.socket = daemon.socket
    ran = idle.call()
    assert ran.returncode == 1 and str(daemon.socket) in ran.stderr
    assert daemon.info().version


# ---- The end ----


def test_sigterm_lets_sandboxes_run_on(own_daemon):
    sandbox_id = own_daemon.ready()
    running = own_daemon.start(sandbox_id, "sleep", "1000").id
    own_daemon.wait_exec(sandbox_id, running, "RUNNING")
    own_daemon.stop_daemon()
    assert own_daemon.processes(sandbox_id)
    own_daemon.begin()
    assert state_name(own_daemon.get_exec(sandbox_id, running)) == "RUNNING"
    assert state_name(own_daemon.get(sandbox_id)) == "READY"


def test_sigterm_answers_what_was_asked_before(own_daemon):
    create = own_daemon.sandboxes.CreateSandbox
    futures = [create.future(sandbox_pb2.CreateSandboxRequest(), timeout=LIMIT) for _ in range(50)]
    own_daemon.signal(signal.SIGTERM)
    answered = set()
    for future in futures:
        try:
            answered.add(future.result().sandbox.id)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE, error
    assert own_daemon.ended() == 0
    own_daemon.begin()
    assert answered <= set(own_daemon.ids())


def test_sigterm_ends_watches_with_draining(own_daemon):
    watch = own_daemon.watch()
    own_daemon.signal(signal.SIGTERM)
    with refused("DRAINING"):
        watch.next()
    assert own_daemon.ended() == 0


def test_sigterm_waits_for_run_command_or_tells_that_it_does_not(own_daemon):
    sandbox_id = own_daemon.ready()
    request = exec_pb2.RunCommandRequest(sandbox_id=sandbox_id)
    request.spec.argv.extend(["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done"])
    future = own_daemon.execs.RunCommand.future(request, timeout=LIMIT)
    wait_until(lambda: own_daemon.get(sandbox_id).active_execs)
    own_daemon.signal(signal.SIGTERM)
    wait_until(lambda: "asked to end" in own_daemon.log())
    (own_daemon.sandbox_folder(sandbox_id) / "fs/workspace/go").touch()
    try:
        assert future.result().exec.result.exit_code == 0
    except grpc.RpcError as error:
        assert Refusal(error).reason == "DRAINING"
    assert own_daemon.ended() == 0


def test_a_connection_that_says_nothing_does_not_hold_up_the_end(start_daemon):
    daemon = start_daemon({"shutdown_grace": "300ms"})
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(daemon.socket))
        daemon.info()
        started = time.monotonic()
        daemon.stop_daemon()
        assert time.monotonic() - started < 5 * PATIENCE


def test_a_second_sigterm_ends_at_once(start_daemon):
    daemon = start_daemon({"shutdown_grace": "1h"})
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(daemon.socket))
        silent.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        daemon.info()
        daemon.signal(signal.SIGTERM)
        wait_until(lambda: "asked to end" in daemon.log())
        if daemon.process.poll() is None:
            daemon.signal(signal.SIGTERM)
        daemon.ended()


def test_the_log_shows_no_crash_and_ends_properly(own_daemon):
    own_daemon.stop_daemon()
    assert "level=error" not in own_daemon.log()
    assert own_daemon.log().splitlines()[-1].endswith("msg=ended")
    assert not own_daemon.socket.exists()


# ---- The service manager ----


class Manager:
    """Speaks the service manager's side of its protocols."""

    def __init__(self, daemon: Daemon):
        self.daemon = daemon
        self.path = daemon.folder / "manager"
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(self.path))
        self.notify.settimeout(LIMIT)

    def next(self) -> str:
        return self.notify.recv(1000).decode()

    def close(self) -> None:
        self.notify.close()


@pytest.fixture(name="manager")
def make_manager(idle):
    manager = Manager(idle)
    yield manager
    manager.close()


def test_readiness_watchdog_and_stopping_are_told(idle, manager):
    started = time.monotonic()
    idle.spawn(env={"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "200000"})
    assert manager.next() == "READY=1"
    idle.connect()
    assert [manager.next() for _ in range(30)] == ["WATCHDOG=1"] * 30
    assert 30 * 0.05 < time.monotonic() - started < 30 * 0.6  # so many that a pause of the host's is little
    idle.signal(signal.SIGTERM)
    told = manager.next()
    while told == "WATCHDOG=1":
        told = manager.next()
    assert told == "STOPPING=1"
    assert idle.ended() == 0


def test_no_watchdog_where_none_is_asked_for(idle, manager):
    idle.spawn(env={"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1"})
    assert manager.next() == "READY=1"
    manager.notify.settimeout(0.3)
    with pytest.raises(TimeoutError):
        manager.next()
    idle.connect()
    idle.stop_daemon()


def test_an_abstract_notify_socket(idle):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        name = f"hutch-test-{os.getpid()}"
        notify.bind(f"\0{name}")
        notify.settimeout(LIMIT)
        idle.spawn(env={"NOTIFY_SOCKET": f"@{name}"})
        assert notify.recv(100) == b"READY=1"
        idle.connect()
        idle.stop_daemon()


def test_socket_activation(idle, manager):
    """The socket is the manager's: it is passed as descriptor 3, and stays when the daemon ends."""
    path = idle.folder / "activated.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        # LISTEN_PID is the pid of the daemon itself: bash knows it before it becomes the daemon.
        script = f'exec 3<&{listener.fileno()}; export LISTEN_PID=$$; exec "$@"'
        idle.spawn(
            env={"NOTIFY_SOCKET": str(manager.path), "LISTEN_FDS": "1"},
            wrapper=("bash", "-c", script, "bash"),
            pass_fds=(listener.fileno(),),
        )
        assert manager.next() == "READY=1"
        assert not idle.socket.exists()
        idle.socket = path
        idle.connect()
        sandbox_id = idle.ready()
        assert idle.shell(sandbox_id, "env | grep -c LISTEN || true").strip() == "0"
        idle.remove(sandbox_id)
        idle.stop_daemon()
        assert path.exists()


# ---- The store ----


def test_a_backup_of_a_running_daemon_can_be_restored(own_daemon):
    sandbox_id = own_daemon.ready("sb-kept", labels={"a": "b"})
    own_daemon.remove(sandbox_id)
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            own_daemon.update(other, "labels", labels={"n": str(time.monotonic_ns())})

    other = own_daemon.ready()
    own_daemon.stop(other, 0)
    own_daemon.wait(other, "STOPPED")
    thread = threading.Thread(target=churn)
    thread.start()
    try:
        backup = own_daemon.folder / "backup.db"
        ran = own_daemon.call("--backup", backup)
    finally:
        stop.set()
        thread.join()
    assert ran.returncode == 0, ran.stderr
    assert backup.stat().st_mode & 0o777 == 0o600
    with sqlite3.connect(backup) as store:
        assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store.close()
    assert own_daemon.call("--backup", backup).returncode == 1  # it is a new file, or none

    own_daemon.stop_daemon()
    for name in ("hutch.db", "hutch.db-wal", "hutch.db-shm"):
        (own_daemon.state / name).unlink(missing_ok=True)
    backup.rename(own_daemon.state / "hutch.db")
    own_daemon.begin()
    assert state_name(own_daemon.get("sb-kept")) == "DELETED"
    assert state_name(own_daemon.get(other)) == "STOPPED"
    with refused("ID_TAKEN"):
        own_daemon.create("sb-kept")


def test_a_backup_without_a_store_is_refused(idle):
    ran = idle.call("--backup", idle.folder / "backup.db")
    assert ran.returncode == 1 and ran.stderr
    assert not (idle.folder / "backup.db").exists()
    assert not (idle.state / "hutch.db").exists()


@pytest.mark.parametrize("damage", ["garbage", "middle", "newer"])
def test_a_store_that_cannot_be_used_is_refused_and_left_as_it_is(own_daemon, damage):
    for _ in range(5):
        own_daemon.remove(own_daemon.ready())
    own_daemon.stop_daemon()
    file = own_daemon.state / "hutch.db"
    good = file.read_bytes()
    if damage == "garbage":
        file.write_bytes(b"this is no database" * 1000)
    elif damage == "middle":
        file.write_bytes(good[:4096] + b"\xa5" * (len(good) - 4096))
    else:
        with sqlite3.connect(file) as store:
            store.execute("PRAGMA user_version = 9999")
        store.close()
    bad = file.read_bytes()
    ran = own_daemon.call()
    assert ran.returncode == 1
    assert str(file) in ran.stderr and len(ran.stderr) > len(str(file)) + 20
    assert file.read_bytes() == bad
    file.write_bytes(good)
    for suffix in ("-wal", "-shm"):
        (own_daemon.state / f"hutch.db{suffix}").unlink(missing_ok=True)


def test_an_empty_state_folder_makes_a_store(idle):
    idle.state.mkdir(mode=0o700)
    idle.begin()
    idle.stop_daemon()
    assert (idle.state / "hutch.db").stat().st_mode & 0o777 == 0o600


# ---- A full disk ----


@pytest.fixture(name="small")
def start_on_small_disk():
    """A daemon whose state is on 8 MiB."""
    daemon = Daemon()
    daemon.state.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "none", daemon.state], check=True)
    try:
        daemon.begin()
        yield daemon
        (daemon.state / "filler").unlink(missing_ok=True)
        daemon.remove(*daemon.ids())
        daemon.stop_daemon()
    finally:
        if daemon.process:
            daemon.kill()
        daemon.kill_keepers()
        subprocess.run(["umount", "-l", daemon.state], check=True)
        daemon.wipe()


def fill(daemon: Daemon):
    """Takes all space, and returns the file that has it."""
    file = daemon.state / "filler"
    with file.open("wb", buffering=0) as stream:
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    stream.write(b"x" * size)
    return file


@pytest.mark.rules("ERR-006")
def test_a_full_disk_refuses_requests_loses_nothing_and_is_got_over(small):
    kept = small.ready(labels={"n": "0"})
    filler = fill(small)
    acknowledged = small.get(kept).sequence
    failures = 0
    for n in range(2000):  # the store's log has room for some
        try:
            acknowledged = small.update(kept, "labels", labels={"n": str(n), "pad": "x" * 63}).sequence
        except grpc.RpcError as error:
            told = Refusal(error)
            told.check()
            assert told.reason in ("STORE_UNAVAILABLE", "HOST_EXHAUSTED", "DISK_FULL"), (told.reason, told.message)
            failures += 1
            if failures > 5:
                break
    assert failures > 5
    try:
        small.create("sb-refused")
        raise AssertionError("a sandbox was created on a full disk")
    except grpc.RpcError as error:
        assert Refusal(error).reason in ("STORE_UNAVAILABLE", "HOST_EXHAUSTED", "DISK_FULL")
    assert small.info().version  # it still answers
    seen = small.get(kept)
    assert seen.sequence == acknowledged
    filler.unlink()

    def works() -> bool:
        try:
            small.update(kept, "labels", labels={"n": "after"})
            return True
        except grpc.RpcError:
            return False

    wait_until(works)
    assert small.get(kept).sequence == acknowledged + 1
    small.history(kept)
    assert small.run(kept, "true").exec.result.exit_code == 0
    small.restart(kill=True)
    assert dict(small.get(kept).spec.labels) == {"n": "after"}
    small.remove(small.ready("sb-refused"))  # its id was not taken


def test_a_limit_of_file_sizes_refuses_requests_and_is_got_over(own_daemon):
    kept, pid = own_daemon.ready(labels={"n": "0"}), own_daemon.process.pid
    unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, unlimited[1]))
    with refused("STORE_UNAVAILABLE"):
        own_daemon.update(kept, "labels", labels={"n": "1"})
    resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
    wait_until(lambda: dict(own_daemon.update(kept, "labels", labels={"n": "2"}).spec.labels) == {"n": "2"})
    assert own_daemon.process.pid == pid and own_daemon.process.poll() is None


def test_a_daemon_that_dies_on_a_full_disk_starts_again(small):
    kept = small.ready(labels={"n": "0"})
    filler = fill(small)
    small.kill()
    filler.unlink()
    small.begin()
    assert dict(small.get(kept).spec.labels) == {"n": "0"}


# ---- Health ----


def test_health_tells_of_the_end(own_daemon):
    stub = health_pb2_grpc.HealthStub(own_daemon.channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=LIMIT)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    own_daemon.signal(signal.SIGTERM)
    try:
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    except (grpc.RpcError, StopIteration) as error:
        assert isinstance(error, StopIteration) or error.code() == grpc.StatusCode.UNAVAILABLE
    assert own_daemon.ended() == 0
