# SPDX-License-Identifier: Apache-2.0
"""What the kernel has only so many of, for the whole host or for each of its users. Three sandboxes take all that they
can get, and a process of an ordinary user on the host, the daemon's where that is one, still gets one. Where the wall
is missing, one program takes all of them, and the witness none: else it would show nothing."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from host import PATIENCE
from hutchd import Daemon, wait_until
from user_daemon import UID, UserDaemon

LIMIT = 30 * PATIENCE  # seconds
PYTHON = "/usr/bin/python3"
USER = f"setpriv --reuid {UID} --regid {UID} --clear-groups".split()
SANDBOXES = 3

PRELUDE = """
import ctypes, errno, fcntl, mmap, os, resource, select, signal, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = libc.mmap.restype = ctypes.c_void_p

def checked(result):
    if result is None or result < 0 or result == 2**64 - 1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def call(number, *arguments):
    return checked(libc.syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in (number, *arguments))))

def as_many(one, most=200000):
    got = []
    try:
        while len(got) < most:
            got.append(one())
    except OSError:
        pass
    return got

def requests(n):
    context = ctypes.c_ulong()
    call(206, n, ctypes.byref(context))

def watcher():
    return checked(libc.inotify_init1(0))

def watch(fd, paths):
    for path in paths:
        checked(libc.inotify_add_watch(fd, path.encode(), 0x400))

def watch_all():
    paths = [os.path.join(top, name) for top, _, names in os.walk("/usr/lib/python3") for name in names][:4000]
    # One instance is left to others: it is watches that are to be none.
    as_many(lambda: watch(watcher(), paths), 100)

def signal_that_waits():
    signal.pthread_sigmask(signal.SIG_BLOCK, [40])
    checked(libc.sigqueue(os.getpid(), 40, ctypes.c_void_p(1)))

def timer():
    timer_id = ctypes.c_void_p()
    checked(libc.timer_create(1, None, ctypes.byref(timer_id)))

names = iter(range(10**9))

def queue():
    name = b"/hutch-numbers-%d-%d" % (os.getpid(), next(names))
    fd = checked(libc.mq_open(name, 0o302, 0o600, None))
    libc.mq_unlink(name)
    return fd

def segment(flags=0o600, lock=False):
    block = checked(libc.shmget(0, ctypes.c_size_t(65536), 0o1000 | flags))
    address = libc.shmat(block, None, 0)
    libc.shmctl(block, 0, None)  # it goes with this process
    if lock:
        checked(libc.shmctl(block, 11, None))
    checked(address)

def huge_page():
    page = checked(libc.mmap(None, ctypes.c_size_t(2 << 20), 3, 0x40022, -1, 0))
    ctypes.memset(page, 1, 1)

def epoll(n):
    poll = select.epoll()
    ends.append(poll)
    for fd in fds[:n]:
        poll.register(fd)

def pipe():
    return os.pipe()

def full_pipe():
    ends = os.pipe()
    fcntl.fcntl(ends[0], 1032) == 65536 or sys.exit("a small pipe")  # F_GETPIPE_SZ

def in_flight(n):
    left, right = socket.socketpair()
    ends.extend((left, right))
    for _ in range(n):
        socket.send_fds(left, [b"x"], [0])

ends = []
fds = []
"""


@dataclass
class Number:
    name: str
    all: str  # takes as many as there are
    one: str
    is_users: bool = False  # the user's, whose daemon cannot bound it: docs/running.md says so


NUMBERS = [
    Number("requests of asynchronous I/O", "as_many(lambda: requests(512))", "requests(1)"),
    Number("inotify instances", "as_many(watcher)", "watcher()"),
    Number("inotify watches", "watch_all()", "watch(watcher(), ['/'])"),
    Number("signals that wait", "as_many(signal_that_waits)", "signal_that_waits()"),
    Number("timers", "as_many(timer)", "timer()"),
    Number("message queues", "as_many(queue)", "queue()"),
    Number("shared memory", "as_many(segment)", "segment()"),
    Number("locked memory", "as_many(lambda: segment(lock=True))", "segment(lock=True)"),
    Number("huge pages", "as_many(huge_page)", "huge_page()"),
    Number("buffers of pipes", "as_many(pipe)", "full_pipe()", True),
    Number(
        "epoll watches",
        "fds += as_many(lambda: os.pipe()[0], 400); as_many(lambda: epoll(400), 400)",
        "fds.append(os.pipe()[0]); epoll(1)",
        True,
    ),
    Number("descriptors under way", "as_many(lambda: in_flight(200), 20)", "in_flight(1)", True),
]

# What of the host is made so small that it can be taken, or so large that there is something to take.
SETTINGS = {"huge pages": ("vm/nr_hugepages", "8"), "epoll watches": ("fs/epoll/max_user_watches", "50000")}


@contextlib.contextmanager
def setting(name: str):
    path, value = SETTINGS.get(name, ("", ""))
    file = Path("/proc/sys", path)
    if not path:
        yield
        return
    if not file.exists():
        pytest.skip(f"this kernel has no {path}")
    before = file.read_text(encoding="ascii")
    file.write_text(value, encoding="ascii")
    try:
        if file.read_text(encoding="ascii").strip() != value:
            pytest.skip(f"this host has no room for {name}")
        yield
    finally:
        file.write_text(before, encoding="ascii")


def program(body: str, files: int = 20000) -> str:
    """With as many descriptors as the host gives, at most @files."""
    own = f"""
most = min({files}, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
"""
    return PRELUDE + own + body


def hog(number: Number) -> str:
    return program(f"{number.all}\nprint('ready', flush=True)\ntime.sleep({2 * LIMIT})", 4096)


def witness(number: Number) -> subprocess.CompletedProcess:
    command = [*USER, PYTHON, "-c", program(number.one, 1024)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)


@contextlib.contextmanager
def taken_inside(daemon, sandboxes, number, user):
    """All that some sandboxes can get is taken."""
    execs = [(sandbox, daemon.start(sandbox, PYTHON, "-c", hog(number), user=user).id) for sandbox in sandboxes]
    try:
        for sandbox, exec_id in execs:
            output = daemon.sandbox_folder(sandbox) / f"{exec_id}.out"
            wait_until(lambda output=output: output.exists() and "ready" in output.read_text("utf-8"), LIMIT)
        yield
    finally:
        for sandbox, exec_id in execs:
            daemon.cancel(sandbox, exec_id, grace=0)
            daemon.wait_exec(sandbox, exec_id)


@pytest.fixture(scope="module", name="sandboxes")
def make_sandboxes(daemon):
    made = [daemon.ready() for _ in range(SANDBOXES)]
    yield made
    for sandbox in made:
        daemon.delete(sandbox)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number.name)
def test_sandboxes_leave_some_to_the_host(daemon, sandboxes, number):
    if number.is_users and not daemon.has_users:
        pytest.skip("the user's, and agent is that user: docs/running.md says so")
    # Root inside may be the daemon's user.
    user = "root" if daemon.has_users and not number.is_users else "agent"
    with setting(number.name), taken_inside(daemon, sandboxes, number, user):
        told = witness(number)
        assert told.returncode == 0, told.stderr


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number.name)
def test_without_the_wall_one_program_takes_them_all(number):
    with setting(number.name):
        hostile = [*USER, PYTHON, "-c", hog(number)]
        with subprocess.Popen(hostile, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
            try:
                assert process.stdout.readline() == "ready\n"
                assert witness(number).returncode != 0
            finally:
                process.kill()
        assert witness(number).returncode == 0


# ---- Files of the host ----

LEASE = "import fcntl, sys, time\nfile = open(sys.argv[1])\nfcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)\n"
HOLD = LEASE + f"print('ready', flush=True)\ntime.sleep({2 * LIMIT})"


@contextlib.contextmanager
def folder_of_user():
    """With a file."""
    folder = Path(tempfile.mkdtemp(prefix="hutch-numbers-", dir="/tmp"))
    (folder / "file").write_text("x", encoding="ascii")
    for path in (folder, folder / "file"):
        os.chown(path, UID, UID)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def open_to_write(path: Path) -> None:
    """Or BlockingIOError, when a lease has to be broken first."""
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


@pytest.mark.parametrize("kind", [Daemon, UserDaemon])
def test_a_read_only_mount_holds_up_no_writer_of_the_host(kind):
    with folder_of_user() as folder:
        daemon = kind(config={"sources": {"read": [str(folder)]}}).begin()
        try:
            sandbox = daemon.ready(mounts=[{"source": str(folder), "target": "/mnt/x"}])
            ran = daemon.run(sandbox, PYTHON, "-c", LEASE, "/mnt/x/file", user="agent")
            assert b"PermissionError" in ran.stderr
            open_to_write(folder / "file")
        finally:
            daemon.finish()


def test_a_lease_holds_up_writers():
    with folder_of_user() as folder:
        holder = [*USER, PYTHON, "-c", HOLD, str(folder / "file")]
        with subprocess.Popen(holder, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout.readline() == "ready\n"
                with pytest.raises(BlockingIOError):
                    open_to_write(folder / "file")
            finally:
                process.kill()


# ---- Processors ----

AHEAD = """
import os
for ahead in (lambda: os.nice(-1), lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))):
    try:
        ahead()
        print("ahead")
    except PermissionError:
        print("refused")
"""
PRIVILEGED = ("prlimit", "--rtprio=10", "--nice=30")


class AudioDaemon(UserDaemon):
    """Its user may run ahead of others, as players of sound do."""

    def wrapper(self) -> tuple:
        return (*PRIVILEGED, *super().wrapper())


@pytest.fixture(name="_may_run_ahead")
def check_limits_can_be_raised():
    if subprocess.run([*PRIVILEGED, "true"], capture_output=True, check=False, timeout=LIMIT).returncode != 0:
        pytest.skip("root may not raise limits here (CAP_SYS_RESOURCE)")


def test_nobody_inside_runs_ahead_of_the_host(_may_run_ahead):
    daemon = AudioDaemon().begin()
    try:
        assert daemon.run(daemon.ready(), PYTHON, "-c", AHEAD).stdout == b"refused\n" * 2
    finally:
        daemon.finish()


def test_the_users_own_processes_run_ahead(_may_run_ahead):
    ran = subprocess.run([*PRIVILEGED, *USER, PYTHON, "-c", AHEAD], capture_output=True, check=True, timeout=LIMIT)
    assert ran.stdout.startswith(b"ahead\n")  # of the second some kernels say that the group has no time for it
