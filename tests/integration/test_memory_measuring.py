# SPDX-License-Identifier: Apache-2.0
"""The limit of memory where no cgroup enforces it: the keeper measures. What would hide memory from it is counted, or
is not possible."""

import pytest
from hutch.v1 import exec_pb2
from hutchd import MIB, state_name, wait_until
from test_limits import hits, usage
from user_daemon import UserDaemon

LIMIT = 64 * MIB
OUT_OF_MEMORY = exec_pb2.EXEC_END_REASON_OUT_OF_MEMORY

# What programs begin with: hold(n) has n MiB of private memory.
BEGIN = """
import ctypes, mmap, os, socket, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
held = []
def hold(mebibytes):
    held.append(bytearray(os.urandom(1)) * (mebibytes << 20))
"""

HOG = "hold(256); time.sleep(1000)"

# More than the limit together, most of it where the numbers of no process have it.
HIDDEN = {
    "a deleted file in /dev/shm": """
        file = os.open('/dev/shm/x', os.O_RDWR | os.O_CREAT)
        os.unlink('/dev/shm/x')
        try:
            for _ in range(80): os.write(file, bytes(1 << 20))
        except OSError: pass
        hold(40); time.sleep(1000)""",
    "files in /tmp": """
        with open('/tmp/x', 'wb') as file: file.write(bytes(40 << 20))
        hold(40); time.sleep(1000)""",
    "a mapped file in /dev/shm": """
        file = os.open('/dev/shm/x', os.O_RDWR | os.O_CREAT)
        os.ftruncate(file, 30 << 20)
        mapped = mmap.mmap(file, 30 << 20)
        for at in range(0, 30 << 20, 4096): mapped[at] = 1
        mapped.madvise(mmap.MADV_DONTNEED)
        hold(50); time.sleep(1000)""",
    "System V shared memory": """
        libc.shmat.restype = ctypes.c_void_p
        for _ in range(10):
            at = libc.shmat(libc.shmget(0, 8 << 20, 0o1600), None, 0)
            ctypes.memset(at, 1, 8 << 20)
            libc.shmdt(ctypes.c_void_p(at))
        time.sleep(1000)""",
    "messages": """
        text = ctypes.create_string_buffer(b'1234567' + bytes(8192))
        for _ in range(6000):
            queue = libc.msgget(0, 0o1600)
            for _ in range(2): libc.msgsnd(queue, text, 8000, 0o4000)
        time.sleep(1000)""",
    "semaphores": """
        for _ in range(100): libc.semget(0, 32000, 0o1600)
        time.sleep(1000)""",
    "sockets": """
        for _ in range(450):
            pair = socket.socketpair()
            held.append(pair)
            pair[0].setblocking(False)
            pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
            try:
                while True: pair[0].send(bytes(32 << 10))
            except BlockingIOError: pass
        time.sleep(1000)""",
    "sockets whose other end is gone": """
        for _ in range(800):
            ours, other = socket.socketpair()
            held.append(other)
            ours.setblocking(False)
            try:
                while True: ours.send(bytes(64))
            except BlockingIOError: pass
            ours.close()
        time.sleep(1000)""",
    "connections": """
        server = socket.create_server(('127.0.0.1', 0))
        for _ in range(40):
            ours = socket.create_connection(server.getsockname())
            held.append((ours, server.accept()[0]))
            ours.setblocking(False)
            try:
                while True: ours.send(bytes(1 << 20))
            except BlockingIOError: pass
        time.sleep(1000)""",
    "a process whose first thread has ended": """
        def grow():
            time.sleep(0.3)
            hold(100)
            time.sleep(1000)
        threading.Thread(target=grow).start()
        libc.syscall(60, 0)""",
    "many processes": """
        for _ in range(5):
            if os.fork() == 0:
                hold(20)
                time.sleep(1000)
        time.sleep(1000)""",
    "a process that left its parents": """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                hold(100)
                time.sleep(1000)
            os._exit(0)
        time.sleep(1000)""",
    "page tables": """
        for _ in range(30):
            area = mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | 0x4000, prot=mmap.PROT_READ)
            area.madvise(15)
            held.append(area)
            for at in range(0, 1 << 40, 1 << 30): area[at]
        time.sleep(1000)""",
}

# What is not possible, with the error.
IMPOSSIBLE = {
    "memfd_create": "os.memfd_create('x')",
    "memfd_secret": "assert libc.syscall(447, 0) >= 0",
    "a shared mapping": "mmap.mmap(-1, 4096)",
    "a shared mapping of /dev/zero": "mmap.mmap(os.open('/dev/zero', os.O_RDWR), 4096)",
    "a shared mapping of /dev/zero that is read": """
mmap.mmap(os.open('/dev/zero', os.O_RDONLY), 4096, prot=mmap.PROT_READ)""",
    "vmsplice": "assert libc.vmsplice(os.pipe()[1], 0, 0, 0) >= 0",
}

# What stays within the limit, and would not if it were counted several times.
MODEST = {
    "children that share": """
        hold(40)
        children = []
        for _ in range(10):
            children.append(os.fork())
            if children[-1] == 0:
                sum(held[0][::4096])
                time.sleep(1)
                os._exit(0)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 10""",
    "a child that has all of its parent's memory": """
        os.mkfifo('/tmp/way')
        if os.fork() == 0:
            time.sleep(1)
            os.open('/tmp/way', os.O_WRONLY)
            os._exit(0)
        hold(40)
        action = (os.POSIX_SPAWN_OPEN, 5, '/tmp/way', os.O_RDONLY, 0)
        child = os.posix_spawn('/bin/true', ['true'], {}, file_actions=[action])
        assert os.waitpid(child, 0)[1] == 0""",
    "processes that come and go": """
        import subprocess
        hold(40)
        for _ in range(100): subprocess.run(['true'], check=True)""",
    "memory that was given back": """
        for _ in range(20):
            hold(40)
            held.clear()""",
    "memory of a file": """
        with open('big', 'wb') as file: file.write(bytes(100 << 20))
        file = mmap.mmap(os.open('big', os.O_RDWR), 100 << 20)
        for at in range(0, 100 << 20, 4096): file[at] = 1""",
}


def program(text: str) -> tuple:
    lines = text.split("\n")
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return ("python3", "-c", BEGIN + "\n".join(line[indent:] for line in lines))


@pytest.fixture(scope="module", name="daemon", params=[0, 1], ids=["one id", "subordinate ids"])
def start_daemon(request):
    daemon = UserDaemon(request.param)
    daemon.begin()
    yield daemon
    daemon.finish()


@pytest.fixture(name="limited")
def make_limited(daemon):
    made = daemon.ready(limits={"memory_bytes": LIMIT, "tmp_bytes": 48 * MIB})
    yield made
    daemon.remove(made)


def test_it_says_how_memory_is_limited(daemon, limited):
    runtime = daemon.info().runtimes[0]
    assert "memory-accounting" in runtime.features
    assert "memory_bytes" not in runtime.not_enforced
    assert "memory_bytes" not in daemon.get(limited).effective.not_enforced


@pytest.mark.rules("PROF-006")
def test_a_hog_is_killed_and_nobody_else(daemon, limited):
    bystander = daemon.start(limited, "sleep", "1000").id
    hog = daemon.start(limited, *program(HOG)).id
    ended = daemon.wait_exec(limited, hog)
    assert ended.result.end_reason == OUT_OF_MEMORY, ended
    assert ended.result.signal == 9 and "out of memory" in ended.result.message
    [hit] = hits(daemon, limited, "memory_bytes")
    assert (hit.value, hit.count, hit.exec_id) == (LIMIT, 1, hog)
    assert state_name(daemon.get_exec(limited, bystander)) == "RUNNING"
    assert daemon.shell(limited, "echo alive") == "alive\n"


@pytest.mark.parametrize("where", HIDDEN)
def test_what_is_hidden_is_counted(daemon, limited, where):
    ended = daemon.wait_exec(limited, daemon.start(limited, *program(HIDDEN[where])).id)
    assert ended.result.end_reason == OUT_OF_MEMORY, ended


@pytest.mark.parametrize("way", IMPOSSIBLE)
def test_what_cannot_be_counted_is_not_there(daemon, limited, way):
    ran = daemon.run(limited, *program(f"print('tried', flush=True)\n{IMPOSSIBLE[way]}"))
    assert ran.stdout == b"tried\n" and ran.exec.result.exit_code == 1, ran


@pytest.mark.parametrize("what", MODEST)
def test_nothing_is_counted_twice(daemon, limited, what):
    ran = daemon.run(limited, *program(MODEST[what]))
    assert ran.exec.result.exit_code == 0, ran


def test_what_an_exec_left_is_killed_too(daemon, limited):
    left = """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(1)
                hold(256)
                time.sleep(1000)
            os._exit(0)"""
    assert daemon.run(limited, *program(left)).exec.result.exit_code == 0
    wait_until(lambda: [hit.exec_id for hit in hits(daemon, limited, "memory_bytes")] == [""])
    wait_until(lambda: daemon.shell(limited, "cat /proc/[0-9]*/comm | grep -c python || true") == "0\n")


def test_usage_has_memory(daemon, limited):
    exec_id = daemon.start(limited, *program("hold(30); print(1, flush=True); time.sleep(1000)")).id
    wait_until(lambda: daemon.get_exec(limited, exec_id).stdout_bytes)
    used = usage(daemon, limited)
    assert 30 * MIB < used.memory_bytes < 60 * MIB
    assert used.memory_bytes <= used.memory_peak_bytes <= LIMIT
    daemon.cancel(limited, exec_id, grace=0)
    daemon.wait_exec(limited, exec_id)
    wait_until(lambda: usage(daemon, limited).memory_bytes < 5 * MIB)
