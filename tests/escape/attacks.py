# SPDX-License-Identifier: Apache-2.0
"""Hostile programs, in Python. One that reaches its end has got what it wanted; an OSError, or fail(), is that it has
not. `host` is what the test tells about the host. They harm nothing where they succeed."""

from dataclasses import dataclass

PRELUDE = """
import ctypes, errno, fcntl, json, os, pty, signal, socket, struct, subprocess, sys, tempfile, time
libc = ctypes.CDLL(None, use_errno=True)
host = json.loads(sys.argv[1])

def call(number, *arguments):
    result = libc.syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in (number, *arguments)))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def fail(why):
    print(why)
    sys.exit(1)

def opened(path, flags=os.O_RDONLY):
    os.close(os.open(path, flags))

def end(error_type, error, trace):
    sys.__excepthook__(error_type, error, trace)
    if issubclass(error_type, OSError):
        print(errno.errorcode.get(error.errno, error.errno))
        sys.stdout.flush()
        os._exit(1)
    os._exit(2)

sys.excepthook = end
"""

# How to run a program without a wall. The rest of a sandbox stands, where it does not need Hutch.
NAMESPACES = "unshare -r -m -p -f --kill-child --mount-proc -n -i -u -C".split()
NO_FILTER = [*NAMESPACES, *"setpriv --no-new-privs --bounding-set -all --inh-caps -all".split()]
NO_DROP = NAMESPACES  # with all capabilities in the namespaces, and no filter
HOST: list[str] = []  # with none at all, as root
USER = "setpriv --reuid 1000 --regid 1000 --clear-groups".split()  # the same as a user


@dataclass
class Attack:
    name: str
    program: str
    inside: str  # how it fails: names of errors, or words of fail(), with spaces between
    without: list[str]
    user: str  # inside


def attack(name: str, inside: str, without: list[str], program: str, user: str = "root") -> Attack:
    return Attack(name, program, inside, without, user)


# ---- What the kernel is asked for ----

CALLS = [
    attack("a user namespace", "EPERM", NO_FILTER, "call(272, 0x10000000)"),
    attack("a user namespace by clone", "EPERM", NO_FILTER, "call(56, 0x10000000 | 17, 0, 0, 0, 0) or os._exit(0)"),
    attack(
        "a user namespace by clone3",
        "ENOSYS",
        NO_FILTER,
        "call(435, struct.pack('11Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88) or os._exit(0)",
    ),
    attack("a clock of its own", "EPERM", NO_DROP, "call(272, 0x80)"),
    attack("another namespace", "EPERM", NO_DROP, "call(308, os.open('/proc/self/ns/net', os.O_RDONLY), 0)"),
    attack("a ring of io_uring", "EPERM", NO_FILTER, "call(425, 2, bytes(120))"),
    attack("faults of its memory", "EPERM", NO_FILTER, "call(323, 1)"),
    attack("a key", "EPERM", NO_FILTER, "call(248, b'user', b'hutch-escape', b'x', 1, -2)"),
    attack("the session's keyring", "EPERM", NO_FILTER, "call(250, 0, -3, 1)"),
    attack("a keyring of its own", "EPERM", NO_FILTER, "call(250, 1, None)"),
    attack(
        "a counter of the processor",
        "EPERM",
        NO_FILTER,
        "call(298, struct.pack('IIQQQQQ', 1, 112, 0, 0, 0, 0, 0x60) + bytes(64), 0, -1, -1, 0)",
    ),
    attack("a map of bpf", "EPERM", HOST, "call(321, 0, struct.pack('IIII', 2, 4, 4, 1) + bytes(112), 128)"),
    attack(
        "another process's memory",
        "EPERM",
        NO_FILTER,
        """
target = ctypes.create_string_buffer(b"x" * 8, 8)
child = os.fork() or time.sleep(60)
part = struct.pack("QQ", ctypes.addressof(target), 8)
got = ctypes.create_string_buffer(8)
try:
    call(310, child, struct.pack("QQ", ctypes.addressof(got), 8), 1, part, 1, 0)
finally:
    os.kill(child, 9)
""",
    ),
    attack(
        "another process's descriptors",
        "EPERM",
        NO_FILTER,
        """
child = os.fork() or time.sleep(60)
try:
    call(438, os.pidfd_open(child), 0, 0)
finally:
    os.kill(child, 9)
""",
    ),
    attack("to compare processes", "EPERM", NO_FILTER, "call(312, os.getpid(), os.getpid(), 1, 0, 0)"),
    attack("a segment of its own", "EPERM", NO_FILTER, "call(154, 0, ctypes.create_string_buffer(64), 64)"),
    attack("notices of all files", "EPERM", NO_FILTER, "call(300, 0x200, 0)"),
    attack("memory at address 0", "EPERM", NO_FILTER, "call(135, 0x0100000)"),
    attack("memory that is all executable", "EPERM", NO_FILTER, "call(135, 0x0400000)"),
    attack("ports of the machine", "EPERM", HOST, "call(173, 0x80, 1, 1)"),
    attack("the kernel's log", "EPERM", HOST, "call(103, 10, None, 0)"),
    attack("the clock's state", "EPERM", NO_FILTER, "call(159, ctypes.create_string_buffer(208))"),
    attack("a packet socket", "EPERM", NO_DROP, "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    attack("a raw socket", "EPERM", NO_DROP, "socket.socket(socket.AF_INET, socket.SOCK_RAW, 6)"),
    attack("a raw socket of pings", "EPROTONOSUPPORT", NO_DROP, "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"),
    attack("multipath TCP", "EPROTONOSUPPORT", NO_FILTER, "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)"),
    attack("UDP-Lite", "EPROTONOSUPPORT", NO_FILTER, "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, 136)"),
    attack("netfilter", "EPERM", NO_FILTER, "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)"),
    attack("the kernel's events", "EPERM", NO_FILTER, "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)"),
    attack(
        "a network device",
        "EPERM",
        NO_DROP,
        """
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(link, 0x8914, struct.pack("16sH14x", b"lo", 0))
""",
    ),
    attack("old asynchronous I/O", "ENOSYS", NO_FILTER, "call(206, 1, ctypes.byref(ctypes.c_ulong()))"),
    attack("secret memory", "ENOSYS", NO_FILTER, "call(447, 0)"),
    attack("a file of huge pages", "ENOMEM ENOSYS", NO_FILTER, "call(319, b'x', 4)"),
    attack(
        "a filter that outlives its process",
        "EINVAL",
        NO_FILTER,
        """
allow = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
call(317, 1, 8, struct.pack("HxxxxxxQ", 1, ctypes.addressof(allow)))
""",
    ),
    attack(
        "a lease of a file",
        "EPERM",
        NO_FILTER,
        "fcntl.fcntl(tempfile.TemporaryFile(), fcntl.F_SETLEASE, fcntl.F_WRLCK)",
    ),
    attack(
        "a watch that nobody counts",
        "EPERM",
        NO_FILTER,
        "fcntl.fcntl(os.open('/tmp', os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_CREATE)",
    ),
    attack(
        "another driver of a terminal",
        "EPERM",
        HOST,
        """
master, slave = pty.openpty()
fcntl.ioctl(slave, 0x5423, struct.pack("i", 0))
""",
    ),
    attack(
        "input that nobody typed",
        "EPERM",
        HOST,
        """
master, slave = pty.openpty()
fcntl.ioctl(slave, 0x5412, b"x")
""",
    ),
    attack(
        "input that nobody typed, disguised",
        "EPERM",
        HOST,
        """
master, slave = pty.openpty()
call(16, slave, 0x5412 | 1 << 32, b"x")
""",
    ),
]

# ---- Files and mounts ----

FILES = [
    attack("a mount", "EPERM", NO_DROP, "call(165, b'x', b'/tmp', b'tmpfs', 0, None)"),
    attack("a mount, the new way", "EPERM", NO_DROP, "call(430, b'tmpfs', 0)"),
    attack("a clone of a mount", "EPERM", NO_DROP, "call(428, -100, b'/', 0x8001)"),
    attack(
        "other rights of a mount", "EPERM", NO_DROP, "call(442, -100, b'/proc', 0, struct.pack('4Q', 1, 0, 0, 0), 32)"
    ),
    attack("what is under a mount", "EPERM", NO_DROP, "call(166, b'/proc', 2)"),
    attack("a cgroup tree", "EPERM", NO_DROP, "call(165, b'x', b'/tmp', b'cgroup2', 0, None)"),
    attack("another root", "EPERM", NO_DROP, "os.chroot('/tmp')"),
    attack(
        "a file by its handle",
        "EPERM",
        HOST,
        """
handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
call(303, -100, b"/dev/shm", handle, ctypes.byref(ctypes.c_int()), 0)
call(304, os.open("/dev/shm", os.O_RDONLY), handle, 0)
""",
    ),
    attack(
        "a device",
        "EPERM",
        HOST,
        """
with tempfile.TemporaryDirectory() as folder:
    os.mknod(folder + "/mem", 0o20600, os.makedev(1, 1))
""",
    ),
    attack("the kernel's log as a device", "ENOENT", HOST, "opened('/dev/kmsg')"),
    attack(
        "a set-user-id program",
        "no effect",
        USER,
        """
with subprocess.Popen(["/usr/bin/passwd"], stdin=subprocess.DEVNULL, stdout=2) as program:
    os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
    text = open(f"/proc/{program.pid}/status").read()
"Uid:\\t1000\\t0\\t" in text or fail("no effect")
""",
        "agent",
    ),
    attack("a change to the host's programs", "EROFS", HOST, "tempfile.TemporaryFile(dir='/usr/bin').close()"),
    attack("the host's passwords", "ENOENT", HOST, "opened('/etc/shadow')"),
    attack("a uid of the host", "EINVAL", HOST, "os.setuid(0x7ffffff0)"),
    attack("how cores are dumped", "EACCES EROFS", HOST, "opened('/proc/sys/kernel/core_pattern', os.O_WRONLY)"),
    attack("how the kernel panics", "EACCES EROFS", HOST, "opened('/proc/sys/kernel/panic', os.O_WRONLY)"),
    attack("settings of its network", "EACCES EROFS", NO_DROP, "opened('/proc/sys/net/ipv4/ip_forward', os.O_WRONLY)"),
    attack("where interrupts go", "EACCES EROFS", HOST, "opened('/proc/irq/default_smp_affinity', os.O_WRONLY)"),
    attack(
        "settings in /sys", "EACCES EROFS", HOST, "opened('/sys/kernel/mm/transparent_hugepage/enabled', os.O_WRONLY)"
    ),
    attack("the host's keys", "empty", HOST, "open('/proc/key-users').read() or fail('empty')"),
    attack("the host's interrupts", "empty", HOST, "open('/proc/interrupts').read() or fail('empty')"),
    attack("the host's firmware", "empty", HOST, "os.listdir('/sys/firmware') or fail('empty')"),
    attack(
        "the host's boot id",
        "another",
        NO_FILTER,
        "open('/proc/sys/kernel/random/boot_id').read() == host['boot_id'] or fail('another')",
    ),
    attack(
        "the host's machine id",
        "another",
        NO_FILTER,
        "open('/etc/machine-id').read() == host['machine_id'] or fail('another')",
    ),
    attack("the host's name", "another", NO_FILTER, "socket.gethostname() == host['name'] or fail('another')"),
    attack("to be called otherwise", "EPERM", NO_DROP, "socket.sethostname('x')"),
]

# ---- Processes ----

PROCESSES = [
    attack("a process of the host", "ESRCH", HOST, "os.kill(host['pid'], 0)"),
    attack("a handle of a process of the host", "ESRCH", HOST, "os.pidfd_open(host['pid'])"),
    attack("the program of PID 1", "EACCES EPERM", NO_FILTER, "opened('/proc/1/exe')"),
    attack("the memory of PID 1", "EACCES EPERM", NO_FILTER, "opened('/proc/1/mem', os.O_RDWR)"),
    attack("the root of PID 1", "EACCES EPERM", NO_FILTER, "os.listdir('/proc/1/root/')"),
    attack("the environment of PID 1", "EACCES EPERM", NO_FILTER, "opened('/proc/1/environ')"),
    attack("the descriptors of PID 1", "EACCES EPERM", NO_FILTER, "os.listdir('/proc/1/fd')"),
    attack(
        "an abstract socket of the host",
        "ECONNREFUSED",
        HOST,
        "socket.socket(socket.AF_UNIX).connect('\\0' + host['abstract'])",
    ),
    attack("a port of the host", "ECONNREFUSED", HOST, "socket.create_connection(('127.0.0.1', host['port']))"),
    attack("shared memory of the host", "ENOENT", HOST, "call(29, host['shm_key'], 0, 0)"),
    attack("the daemon's environment", "nothing", HOST, "'SECRET_OF_THE_DAEMON' in os.environ or fail('nothing')"),
    attack(
        "a descriptor that was left open",
        "nothing",
        HOST,
        """
any(os.path.exists(f"/proc/self/fd/{fd}") for fd in range(3, 1024)) or fail("nothing")
""",
    ),
]
