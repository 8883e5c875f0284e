# SPDX-License-Identifier: Apache-2.0
"""Hostile programs, which take all that they can get. They run inside, say "ready" when they are at their worst, with
what they got, and go on. All of them end by themselves after a while, so that a wall that does not hold fails a test
and not the machine."""

PRELUDE = """
import ctypes, os, resource, select, signal, socket, sys, time

libc = ctypes.CDLL(None, use_errno=True)
END = time.monotonic() + float(sys.argv[1])

def going():
    return time.monotonic() < END

def ready(*what):
    print("ready", *what, flush=True)

def rest():
    while going():
        time.sleep(0.05)
    os._exit(0)

def child(function, *arguments):
    '''A process that does this and rests; None when there can be no more.'''
    try:
        pid = os.fork()
    except OSError:
        return None
    if pid == 0:
        try:
            function(*arguments)
            rest()
        finally:
            os._exit(0)
    return pid

def as_many(function, most=100000):
    '''What @function gives until it fails, and why it does.'''
    got = []
    try:
        while len(got) < most and going():
            got.append(function())
    except OSError as error:
        return got, os.strerror(error.errno)
    return got, "no end"

def call(name, *arguments):
    '''A call of libc, or OSError.'''
    result = getattr(libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result
"""

ABUSES = {
    # Processes.
    "fork bomb": """
ready()
while going():
    try:
        os.fork()
    except OSError:
        pass
""",
    "zombie maker": """
def make(double):
    try:
        if double:
            os.fork()  # it has no parent any more, soon
    finally:
        os._exit(0)

made = 0
while going():
    try:
        if os.fork() == 0:
            make(made % 2)
        made += 1
    except OSError:  # there are as many as there can be
        try:
            while os.waitpid(-1, os.WNOHANG)[0] > 0:
                pass
        except ChildProcessError:
            pass
    if made == 2000:
        ready()
        made += 1
""",
    "signal storm": """
LEFT_OUT = (signal.SIGKILL, signal.SIGSTOP, 32, 33)
for number in range(1, 65):
    if number not in LEFT_OUT:
        signal.signal(number, signal.SIG_IGN)

def storm():
    while going():
        for number in range(1, 65):
            if number not in LEFT_OUT:
                libc.kill(1, number)
                libc.kill(-1, number)
                libc.kill(0, number)

for _ in range(5):
    child(storm)
time.sleep(0.3)
ready()
rest()
""",
    "stopped tree": """
def stopped(depth):
    if depth:
        child(stopped, depth - 1)
    os.kill(os.getpid(), signal.SIGSTOP)

def half_born():
    if libc.vfork() == 0:  # its parent waits for it and hears nothing meanwhile
        libc.pause()

def traced(options):
    pid = os.fork()
    if pid == 0:
        libc.ptrace(0, 0, None, None)  # PTRACE_TRACEME
        os.kill(os.getpid(), signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)
    libc.ptrace(0x4200, pid, None, ctypes.c_void_p(options))  # PTRACE_SETOPTIONS
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_IGN)

child(stopped, 5)
child(half_born)
child(traced, 0)
child(traced, 0x7e)  # also when it forks, executes and ends
time.sleep(0.3)
ready()
rest()
""",
    "deaf to signals": """
for number in range(1, 65):
    if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
        signal.signal(number, signal.SIG_IGN)
for _ in range(3):
    if child(rest) is not None:
        child(os.setsid)
ready()
rest()
""",
    # Memory, of every kind.
    "memory hog": """
def hog():
    kept = []
    while going():
        kept.append(bytearray(4 << 20))

ready()
while going():
    child(hog)
    time.sleep(0.01)
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
""",
    "shared memory hog": """
def segment():
    key = call("shmget", 0, ctypes.c_size_t(1 << 20), 0o1600)
    libc.shmat.restype = ctypes.c_void_p
    ctypes.memset(libc.shmat(key, None, 0), 1, 1 << 20)
    return key

def hog():
    as_many(segment, 4096)
    with open("/dev/shm/big", "wb") as file:
        for _ in range(4096):
            file.write(bytes(1 << 20))

ready()
while going():
    pid = child(hog)
    while pid and os.waitpid(pid, 0)[0] == 0:
        pass
""",
    "message queue hog": """
def fill():
    key = call("msgget", 0, 0o1600)
    text = ctypes.create_string_buffer(b"\\1" + bytes(7) + bytes(8192))
    while libc.msgsnd(key, text, ctypes.c_size_t(8184), 0o4000) == 0:
        pass

def hog():
    as_many(fill, 32000)

names = iter(range(500))
queues, why = as_many(lambda: call("mq_open", b"/queue-%d" % next(names), 0o102, 0o600, None), 500)
child(hog)
time.sleep(0.3)
ready(len(queues), why)
rest()
""",
    "unix socket flood": """
def fill():
    here, there = socket.socketpair()
    here.setblocking(False)
    try:
        while True:
            here.send(bytes(65536))
    except OSError:
        return here, there

for _ in range(5):
    child(as_many, fill)
time.sleep(0.3)
ready()
rest()
""",
    "tcp flood": """
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen(1000)

def fill():
    here = socket.create_connection(server.getsockname())
    there, _ = server.accept()
    here.settimeout(0.05)
    try:
        while True:
            here.send(bytes(65536))
    except OSError:
        return here, there

kept, why = as_many(fill, 50)
ready(len(kept), why)
while going():
    more = as_many(fill)
    time.sleep(0.1)
""",
    "pipe hog": """
def fill():
    import fcntl
    _, end = os.pipe()
    try:
        fcntl.fcntl(end, 1031, 1 << 20)  # F_SETPIPE_SZ
    except OSError:
        pass
    os.set_blocking(end, False)
    try:
        while True:
            os.write(end, bytes(65536))
    except BlockingIOError:
        return end

for _ in range(10):
    child(as_many, fill)
time.sleep(0.3)
ready()
rest()
""",
    # What the kernel has a number of.
    "descriptor hog": """
def hog():
    as_many(lambda: os.open("/dev/null", os.O_RDONLY))
    rest()

kept, why = as_many(lambda: os.open("/dev/null", os.O_RDONLY))
for _ in range(30):
    child(hog)
time.sleep(0.3)
ready(len(kept), why)
rest()
""",
    "terminal hog": """
def hog():
    return as_many(lambda: os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))

for _ in range(5):
    child(hog)
time.sleep(0.3)
kept, why = hog()
ready(len(kept), why)
rest()
""",
    "watcher hog": """
def watch():
    fd = call("inotify_init1", 0)
    for name in os.listdir("/usr/bin")[:200]:
        libc.inotify_add_watch(fd, b"/usr/bin/" + name.encode(), 0xFFF)
    return fd

def epolls():
    poll = select.epoll()
    for end in as_many(os.pipe, 100)[0]:
        poll.register(end[0])
    return poll

child(lambda: as_many(epolls) and rest())
kept, why = as_many(watch)
ready(len(kept), why)
rest()
""",
    "signal queue hog": """
def timer():
    timer_id = ctypes.c_void_p()
    call("timer_create", 1, None, ctypes.byref(timer_id))

signal.pthread_sigmask(signal.SIG_BLOCK, [40, signal.SIGALRM])
timers, _ = as_many(timer, 1000)
kept, why = as_many(lambda: call("sigqueue", os.getpid(), 40, ctypes.c_void_p(1)), 1000000)
ready(len(kept), why)
rest()
""",
    "semaphore hog": """
kept, why = as_many(lambda: call("semget", 0, 32000, 0o1600), 32000)
ready(len(kept), why)
rest()
""",
    # Files.
    "deep tree": """
os.chdir("/workspace")
depth = 0
try:
    while depth < 1000:
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
        depth += 1
except OSError:
    pass
with open("bottom", "w") as file:
    file.write("x")
ready(depth)
rest()
""",
    "crowded folders": """
os.chdir("/workspace")
os.mkdir("many")
for i in range(20000):
    os.close(os.open("many/%d" % i, os.O_CREAT | os.O_WRONLY))
    if i % 10 == 0:
        os.symlink("/etc/passwd", "many/link-%d" % i)
        os.mkdir("many/folder-%d" % i)
        os.mkfifo("many/folder-%d/fifo" % i)
for name in (b"new\\nline", b"\\xff\\xfe", b"-rf", b"a" * 255, b" "):
    os.mkdir(b"many/" + name[:255])
os.symlink(".", "many/loop")
os.symlink("loop2", "many/loop2")
os.link("many/0", "many/hard")
for name in ("many/folder-0", "many/folder-10", "many"):
    os.chmod(name, 0)
ready()
rest()
""",
    "files that change": """
os.chdir("/workspace")
def churn(name):
    os.mkdir(name)
    while going():
        for step in (lambda: os.mkdir(name + "/a"), lambda: os.rename(name + "/a", name + "/b"),
                     lambda: os.symlink("/", name + "/a"), lambda: os.unlink(name + "/a"),
                     lambda: os.rmdir(name + "/b"), lambda: open(name + "/file", "w").close()):
            try:
                step()
            except OSError:
                pass

for i in range(4):
    child(churn, "churn-%d" % i)
time.sleep(0.2)
ready()
rest()
""",
    "mount attempts": """
done = 0
for i in range(5000):
    done += libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0
    done += libc.umount2(b"/proc", 2) == 0
    done += libc.unshare(0x10020000) == 0  # user and mount namespaces
    done += libc.syscall(430, b"tmpfs", 0) >= 0  # fsopen
    done += libc.syscall(428, -100, b"/", 1) >= 0  # open_tree
    done += libc.syscall(155, b"/tmp", b"/tmp") == 0  # pivot_root
    done += libc.syscall(250, 0, -3, 1) >= 0  # keyctl
    done += libc.syscall(248, b"user", b"key-%d" % i, b"x", 1, -3) >= 0  # add_key
ready(done)
rest()
""",
    # Output.
    "output flood": """
def flood(fd):
    while going():
        os.write(fd, b"y\\n" * 32768)

ready()
child(flood, 2)
flood(1)
""",
    "cpu hog": """
def burn():
    while going():
        libc.sched_yield()

for _ in range(8):
    child(burn)
ready()
burn()
""",
    "sync storm": """
def storm():
    file = os.open("/workspace/synced-%d" % os.getpid(), os.O_CREAT | os.O_RDWR)
    while going():
        os.pwrite(file, b"x", 0)
        os.fsync(file)
        os.sync()

for _ in range(3):
    child(storm)
time.sleep(0.2)
ready()
rest()
""",
}


def argv(name: str, seconds: float) -> list[str]:
    """The command that runs an abuse for so long at most."""
    return ["python3", "-c", PRELUDE + ABUSES[name], str(seconds)]
