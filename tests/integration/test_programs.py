# SPDX-License-Identifier: Apache-2.0
"""Ordinary programs work inside: the list of allowed system calls has what they use."""

import pytest
from hutchd import LIMIT

PYTHON = {
    "threads": """
import threading
done = []
threads = [threading.Thread(target=done.append, args=(i,)) for i in range(20)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(done))
""",
    "asyncio": """
import asyncio
async def serve(reader, writer):
    writer.write(await reader.readline())
    await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"20\\n")
    print((await reader.readline()).decode().strip())
asyncio.run(main())
""",
    "subprocesses": """
import asyncio, subprocess
async def main():
    made = [await asyncio.create_subprocess_exec("echo", "1", stdout=subprocess.PIPE) for _ in range(20)]
    print(sum([int((await one.communicate())[0]) for one in made]))
asyncio.run(main())
""",
    "pools": """
import multiprocessing
def count(i):
    return 1
if __name__ == "__main__":
    for method in "fork", "spawn", "forkserver":
        with multiprocessing.get_context(method).Pool(2) as pool:
            total = sum(pool.map(count, range(20)))
    print(total)
""",
    "shared memory": """
from multiprocessing import shared_memory
block = shared_memory.SharedMemory(create=True, size=20)
again = shared_memory.SharedMemory(block.name)
print(again.size)
again.close()
block.close()
block.unlink()
""",
    "files": """
import mmap, os, shutil, tempfile
with tempfile.TemporaryDirectory() as folder:
    with open(folder + "/a", "wb") as file:
        file.write(b"x" * 20)
        os.posix_fallocate(file.fileno(), 0, 20)
    os.link(folder + "/a", folder + "/b")
    os.mkfifo(folder + "/fifo")
    shutil.copy2(folder + "/b", folder + "/c")
    with open(folder + "/c", "rb") as file:
        print(len(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)))
""",
    "terminals": """
import pty, os
pid, fd = pty.fork()
if pid == 0:
    os.execlp("stty", "stty", "size")
import termios, fcntl
print(20 if os.read(fd, 100) else 0)
""",
}

PROGRAM = """
#include <pthread.h>
#include <stdio.h>
static void *run(void *n) { return n; }
int main(void) {
        pthread_t thread;
        void *got;
        pthread_create(&thread, NULL, run, (void *) 42);
        pthread_join(thread, &got);
        printf("%ld\\n", (long) got);
}
"""


def run(daemon, sandbox: str, script: str, needs: str = "", **spec) -> str:
    """What @script prints. Skips the test where the host has no @needs, for then there is none inside."""
    if needs and daemon.run(sandbox, "sh", "-c", f"command -v {needs}", **spec).exec.result.exit_code != 0:
        pytest.skip(f"this host has no {needs}")
    return daemon.shell(sandbox, script, **spec)


@pytest.mark.parametrize("name", PYTHON)
def test_python(daemon, sandbox, name):
    daemon.run(sandbox, "tee", "/workspace/program.py", stdin=PYTHON[name].encode())
    assert run(daemon, sandbox, "/usr/bin/python3 program.py", "/usr/bin/python3") == "20\n"


def test_a_shell_with_pipes_jobs_and_traps(daemon, shared_sandbox):
    script = "trap 'echo end' EXIT; sleep 0.1 & wait; seq 1 100 | sort -n | tail -n 1; ulimit -c 0; umask 077"
    assert daemon.run(shared_sandbox, "bash", "-c", script).stdout == b"100\nend\n"


def test_git(daemon, sandbox):
    script = """
        git init -q one && cd one && git config user.email a@b && git config user.name a
        echo x > file && git add file && git commit -q -m first && git gc -q && git fsck
        cd .. && git clone -q one two && git -C two log --format=%s
    """
    assert run(daemon, sandbox, script, "git") == "first\n"


def test_a_compiler_and_what_it_makes(daemon, sandbox):
    daemon.run(sandbox, "tee", "/workspace/program.c", stdin=PROGRAM.encode())
    assert run(daemon, sandbox, "gcc -O2 -pthread -o program program.c && ./program", "gcc") == "42\n"


def test_make_in_parallel(daemon, sandbox):
    daemon.run(sandbox, "tee", "/workspace/Makefile", stdin=b"all: a b c\n\na b c:\n\t@sleep 0.1\n\t@touch $@\n")
    assert run(daemon, sandbox, "make -s -j3 && ls", "make") == "Makefile\na\nb\nc\n"


def test_node(daemon, shared_sandbox):
    script = """node -e '
        const { Worker } = require("worker_threads");
        const { execSync } = require("child_process");
        new Worker("require(\\"fs\\").readdirSync(\\"/\\")", { eval: true }).on("exit", (code) =>
            require("dns").lookup("localhost", () => console.log(code, String(execSync("echo 42")).trim())));
    '"""
    assert run(daemon, shared_sandbox, script, "node") == "0 42\n"


def test_go(daemon, sandbox):
    program = b'package main\n\nimport "fmt"\n\nfunc main() {\n\tc := make(chan int)\n\tgo func() { c <- 42 }()\n'
    program += b"\tfmt.Println(<-c)\n}\n"
    daemon.run(sandbox, "tee", "/workspace/main.go", stdin=program)
    path = {"PATH": "/usr/local/go/bin:/usr/bin:/bin", "GOTOOLCHAIN": "local", "GOFLAGS": "-p=2"}
    assert run(daemon, sandbox, "go run main.go", "go", env=path, timeout=3 * LIMIT) == "42\n"


def test_java(daemon, sandbox):
    program = b"class Main { public static void main(String[] a) throws Exception {\n"
    program += b"Thread t = new Thread(() -> System.out.println(42)); t.start(); t.join(); } }\n"
    daemon.run(sandbox, "tee", "/workspace/Main.java", stdin=program)
    assert run(daemon, sandbox, "java Main.java", "javac") == "42\n"


def test_a_debugger(daemon, sandbox):
    assert "42" in run(daemon, sandbox, "gdb -batch -ex run -ex 'print 40 + 2' /bin/true", "gdb")


def test_a_tracer(daemon, shared_sandbox):
    assert run(daemon, shared_sandbox, "strace -f -o /dev/null sh -c 'echo 42; true'", "strace") == "42\n"


def test_a_terminal_multiplexer(daemon, sandbox):
    script = """
        tmux -S /tmp/s new-session -d 'echo 42 > /workspace/out; sleep 60' && while ! test -s out; do sleep 0.05; done
        cat out; tmux -S /tmp/s kill-server
    """
    assert run(daemon, sandbox, script, "tmux") == "42\n"


def test_a_database_and_archives(daemon, sandbox):
    assert run(daemon, sandbox, "sqlite3 db 'create table t(a); insert into t values(42); select a from t'", "sqlite3")
    assert daemon.shell(sandbox, "mkdir d && echo 42 > d/f && tar czf a.tgz d && rm -r d && tar xzf a.tgz && cat d/f")


def test_tools_of_networks(daemon, shared_sandbox):
    assert "LOOPBACK" in run(daemon, shared_sandbox, "ip link", "ip")
    assert run(daemon, shared_sandbox, "openssl rand -hex 4", "openssl")
