# SPDX-License-Identifier: Apache-2.0
"""Limits on disk against programs that want more: by measuring, which works everywhere, and by quotas."""

import array
import ctypes
import fcntl
import os
import signal
import struct
import subprocess
import time
from pathlib import Path

import grpc
import pytest
from hutch.v1 import event_pb2, exec_pb2, sandbox_pb2
from hutchd import LIMIT, MIB, Daemon, wait_until
from sandbox_files import Files
from state_images import daemon_on, run_all

FS_IOC_FSGETXATTR = 0x801C581F
SYS_QUOTACTL_FD, Q_GETQUOTA, PRJQUOTA = 443, 0x800007, 2
FOUND = 2 * LIMIT  # seconds: while others remove files of the disk, nobody may look for a minute and more

# All of these end, so that a limit that does not hold fails a test and not the machine.
BIG_FILE = """
import sys, time
with open(sys.argv[1], "wb", buffering=0) as file:
    for _ in range(1000):
        file.write(bytes(1 << 20))
        time.sleep(0.005)
time.sleep(1000)
"""
FAR_TOO_MUCH = """
import os, time
os.posix_fallocate(os.open("big", os.O_CREAT | os.O_WRONLY, 0o600), 0, 512 << 20)
time.sleep(1000)
"""
MANY_FILES = """
import os, sys, time
os.makedirs(sys.argv[1] + "/many")
for n in range(200000):
    os.close(os.open(f"{sys.argv[1]}/many/{n}", os.O_CREAT | os.O_WRONLY))
time.sleep(1000)
"""
SMALL_FILES = """
import os, sys, time
os.makedirs(sys.argv[1] + "/small")
for n in range(50000):
    with open(f"{sys.argv[1]}/small/{n}", "wb") as file:
        file.write(bytes(8192))
time.sleep(1000)
"""
DEEP_TREE = """
import os, time
for n in range(5000):  # folders have bytes, too: not so many that these are too much
    os.mkdir("d")
    os.chdir("d")
time.sleep(1000)
"""
DELETED_FILES = """
import os, time
files = []
for n in range(100):
    files.append(open("deleted", "wb"))
    os.unlink("deleted")
    files[-1].write(bytes(4 << 20))
    files[-1].flush()
    time.sleep(0.02)
time.sleep(1000)
"""
CHURN = """
import time
while True:
    with open("churn", "wb") as file:
        file.write(bytes(2 << 20))
    time.sleep(0.01)
"""
HARMLESS = """
import os, time
with open("sparse", "wb") as file:
    file.truncate(1 << 40)
with open("linked", "wb") as file:
    file.write(bytes(8 << 20))
for n in range(200):
    os.link("linked", f"link-{n}")
time.sleep(2.5)
"""


def hits(daemon, sandbox):
    """What was told of limits."""
    found = [one for one in daemon.history(sandbox) if one.type == event_pb2.EVENT_TYPE_LIMIT_HIT]
    return [one.limit_hit for one in found]


def usage(daemon, sandbox):
    request = sandbox_pb2.GetSandboxRequest(sandbox_id=sandbox, include_usage=True)
    return daemon.sandboxes.GetSandbox(request, timeout=LIMIT).sandbox.usage


def python(daemon, sandbox, script, *arguments, **spec):
    """Runs a hostile program to its end."""
    exec_id = daemon.start(sandbox, "python3", "-c", script, *arguments, **spec).id
    return daemon.wait_exec(sandbox, exec_id, limit=FOUND)


# ---- By measuring ----


@pytest.fixture(name="small")
def make_small(daemon):
    """A sandbox with little disk, where that is measured."""
    if "disk-quota" in daemon.info().runtimes[0].features:
        pytest.skip("the state folder has quotas")
    sandbox = daemon.ready(limits={"disk_bytes": 32 * MIB, "disk_inodes": 2000, "memory_bytes": 256 * MIB})
    yield sandbox
    daemon.remove(sandbox)


def assert_killed(daemon, sandbox, ended, limit, value):
    """An exec that was ended by a disk limit, which is told."""
    assert ended.result.end_reason == exec_pb2.EXEC_END_REASON_DISK_FULL, ended
    assert ended.result.signal == signal.SIGKILL
    assert "killed because its sandbox had more on disk" in ended.result.message
    words = "bytes on disk" if limit == "disk_bytes" else "files and folders on disk"
    assert f"the limit of {value} {words}" in ended.result.message
    assert {(hit.limit, hit.value, hit.count, hit.exec_id) for hit in hits(daemon, sandbox)} == {(limit, value, 1, "")}


def is_full(files: Files) -> bool:
    """Whether nothing can be written any more, for want of disk."""
    try:
        files.write("probe", b"x", overwrite=True)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
        return "more on disk" in error.details()
    return False


def test_what_callers_write_counts_as_well(daemon, small):
    files = Files(daemon, small)
    for number in range(48):
        try:
            files.write(f"part-{number}", bytes(MIB))
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
    wait_until(lambda: is_full(files), limit=FOUND)
    assert "disk_bytes" in {hit.limit for hit in hits(daemon, small)}
    for path in files.names("."):
        files.remove(path)
    wait_until(lambda: not is_full(files))


def test_a_long_upload_that_is_too_much_ends(daemon, small):
    files = Files(daemon, small)
    try:
        files.upload("big", (bytes(MIB) for _ in range(64)))
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
    else:
        wait_until(lambda: is_full(files), limit=FOUND)
        files.remove("big")
    wait_until(lambda: not is_full(files))


def test_disk_limits_are_in_force_and_told(daemon, small):
    info = daemon.info().runtimes[0]
    assert "disk-accounting" in info.features
    assert not {"disk_bytes", "disk_inodes"} & set(info.not_enforced)
    effective = daemon.get(small).effective
    assert (effective.limits.disk_bytes, effective.limits.disk_inodes) == (32 * MIB, 2000)
    assert not {"disk_bytes", "disk_inodes"} & set(effective.not_enforced)


@pytest.mark.rules("PROF-007", "PROF-008", "EXEC-011")
@pytest.mark.parametrize("path", ["/workspace/big", "/home/agent/big", "/tmp/big", "/var/tmp/big"])
def test_a_big_file_ends_its_sandbox_s_execs_and_nobody_else_s(daemon, sandbox, small, path):
    bystander = daemon.start(small, "sleep", "1000").id
    daemon.wait_exec(small, bystander, "RUNNING")
    ended = python(daemon, small, BIG_FILE, path)
    assert_killed(daemon, small, ended, "disk_bytes", 32 * MIB)
    assert daemon.wait_exec(small, bystander).result.end_reason == exec_pb2.EXEC_END_REASON_DISK_FULL
    assert daemon.run(sandbox, "echo", "well").stdout == b"well\n"
    # Once it has shrunk it can be used as before.
    daemon.shell(small, f"rm {path}")
    daemon.shell(small, "echo data > /workspace/file && cat /workspace/file")


def find_measurer(daemon, sandbox) -> dict[str, str]:
    """The cgroups of the process that measures, by controller; none while there is no such process."""
    try:
        pid = (daemon.cgroup(sandbox) / "box/disk/cgroup.procs").read_text(encoding="ascii").split()[0]
        lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").splitlines()
    except (OSError, IndexError):
        return {}
    return {name: path for _, names, path in (line.split(":", 2) for line in lines) for name in names.split(",")}


def grow_others(daemon) -> None:
    """Others write to the same file system, which is why a sandbox is measured at all."""
    with (daemon.folder / "others").open("ab") as file:
        file.write(bytes(8 * MIB))


def test_measuring_is_time_of_the_sandbox(daemon, small):
    if not daemon.cgroup(small):
        pytest.skip("there are no cgroups")
    daemon.shell(small, "mkdir many && cd many && seq 1500 | xargs touch")
    exec_id = daemon.start(small, "python3", "-c", CHURN).id
    found = []

    def measured():
        grow_others(daemon)
        usage(daemon, small)
        found.append(next(filter(None, (find_measurer(daemon, small) for _ in range(2000))), {}))
        return found[-1]

    wait_until(measured)
    (daemon.folder / "others").unlink()
    assert found[-1][""].endswith("box/disk"), found[-1]
    group = daemon.limit_groups(small).get("cpu")
    if group:
        assert str(group).endswith(found[-1]["cpu"]), found[-1]
    daemon.cancel(small, exec_id, grace=0)
    wait_until(lambda: usage(daemon, small).processes == 0)


def test_nothing_runs_while_a_sandbox_near_its_limit_is_measured(daemon, small):
    if not daemon.cgroup(small):
        pytest.skip("there are no cgroups")
    daemon.shell(small, "mkdir many && cd many && seq 1500 | xargs touch && head -c 28000000 /dev/zero > ../full")
    exec_id = daemon.start(small, "python3", "-c", CHURN).id

    def states():
        files = (daemon.cgroup(small) / "box").glob("exec-*/cgroup.events")
        return {line for file in files for line in file.read_text(encoding="ascii").splitlines()}

    def frozen():
        grow_others(daemon)
        return any("frozen 1" in states() for _ in range(2000))

    wait_until(frozen, limit=FOUND)
    (daemon.folder / "others").unlink()
    churn = daemon.sandbox_folder(small) / "fs/workspace/churn"
    before = churn.stat().st_mtime_ns
    wait_until(lambda: churn.stat().st_mtime_ns > before)
    assert not daemon.get_exec(small, exec_id).HasField("end_time")
    daemon.cancel(small, exec_id, grace=0)


def test_root_inside_is_limited_as_well(daemon, small):
    ended = python(daemon, small, BIG_FILE, "/big", user="root")
    assert_killed(daemon, small, ended, "disk_bytes", 32 * MIB)


@pytest.mark.rules("PROF-007")
@pytest.mark.parametrize("program", [MANY_FILES, DEEP_TREE], ids=["many files", "a deep tree"])
def test_inodes_are_limited(daemon, sandbox, small, program):
    ended = python(daemon, small, program, "/workspace")
    assert_killed(daemon, small, ended, "disk_inodes", 2000)
    assert daemon.run(sandbox, "echo", "well").stdout == b"well\n"


def test_small_files_add_up(daemon):
    sandbox = daemon.ready(limits={"disk_bytes": 16 * MIB, "disk_inodes": 1000000})
    ended = python(daemon, sandbox, SMALL_FILES, "/workspace")
    assert_killed(daemon, sandbox, ended, "disk_bytes", 16 * MIB)
    daemon.remove(sandbox)


def test_files_that_are_deleted_and_still_open_count(daemon, small):
    ended = python(daemon, small, DELETED_FILES)
    assert_killed(daemon, small, ended, "disk_bytes", 32 * MIB)
    wait_until(lambda: usage(daemon, small).disk_bytes < 32 * MIB)


def test_holes_and_second_names_do_not_count(daemon, small):
    assert python(daemon, small, HARMLESS).result.exit_code == 0
    wait_until(lambda: usage(daemon, small).disk_bytes > 8 * MIB)
    assert usage(daemon, small).disk_bytes < 12 * MIB
    assert usage(daemon, small).disk_inodes < 100
    assert not hits(daemon, small)


def test_what_an_exec_left_running_is_ended_too(daemon, small):
    left = f"python3 -c '{BIG_FILE}' /workspace/big & sleep 0.1"
    daemon.run(small, "sh", "-c", f"({left}) >/dev/null 2>&1 </dev/null &")
    wait_until(lambda: hits(daemon, small), limit=FOUND)
    wait_until(lambda: usage(daemon, small).processes == 0)


@pytest.mark.rules("PROF-008")
def test_over_its_limit_a_sandbox_can_remove_and_not_write(daemon, small):
    python(daemon, small, FAR_TOO_MUCH)  # what others remove meanwhile is less
    big = daemon.sandbox_folder(small) / "fs/workspace/big"
    before = big.stat().st_size
    ran = daemon.run(small, "sh", "-c", "echo more > /workspace/more; head -c 1000000 /dev/zero >> /workspace/big; ls")
    assert b"File too large" in ran.stderr and b"big" in ran.stdout
    assert f"the limit of {32 * MIB} bytes on disk" in ran.exec.result.message
    assert big.stat().st_size == before and big.with_name("more").stat().st_size == 0
    ended = python(daemon, small, MANY_FILES, "/workspace")  # empty files can be made: it is ended for that
    assert ended.result.end_reason == exec_pb2.EXEC_END_REASON_DISK_FULL
    daemon.shell(small, "rm -r /workspace/big /workspace/many")
    daemon.shell(small, "echo more > /workspace/more")  # at once
    wait_until(lambda: usage(daemon, small).disk_bytes < 32 * MIB)


@pytest.mark.rules("PROF-008")
def test_room_that_was_made_can_be_used_within_the_limit_and_no_further(daemon, small):
    for _ in range(3):
        ended = python(daemon, small, FAR_TOO_MUCH)
        assert ended.result.end_reason == exec_pb2.EXEC_END_REASON_DISK_FULL
        daemon.shell(small, "rm /workspace/big")


def test_a_limit_holds_for_what_was_there_before_a_restart(daemon, small):
    daemon.shell(small, "head -c 30000000 /dev/zero > /workspace/before")
    daemon.stop(small)
    daemon.wait(small, "STOPPED")
    daemon.resume(small)
    daemon.wait(small, "READY")
    script = "head -c 8000000 /dev/zero > /workspace/after; sleep 1000"
    ended = daemon.wait_exec(small, daemon.start(small, "sh", "-c", script).id, limit=FOUND)
    assert_killed(daemon, small, ended, "disk_bytes", 32 * MIB)


def test_nobody_measures_while_nothing_runs(daemon, small):
    daemon.shell(small, "echo data > /workspace/file")
    keeper = daemon.keeper(small)

    def switches():
        status = Path(f"/proc/{keeper}/status").read_text(encoding="utf-8")
        return next(line for line in status.splitlines() if line.startswith("voluntary_ctxt_switches"))

    def is_quiet():
        before = switches()
        time.sleep(2.5)
        return switches() == before

    wait_until(is_quiet)  # after what it still has to do for the exec


def test_a_tmp_with_a_size_has_so_many_inodes(daemon):
    sandbox = daemon.ready(limits={"tmp_bytes": MIB})
    script = "import os; [os.close(os.open(f'/tmp/{n}', os.O_CREAT)) for n in range(5000)]"
    ran = daemon.run(sandbox, "python3", "-c", script)
    assert b"No space left on device" in ran.stderr
    assert 1000 < int(daemon.shell(sandbox, "ls /tmp | wc -l")) <= 1024
    daemon.remove(sandbox)


# ---- By quotas ----

CHANGE_PROJECT = """
import array, fcntl, os, struct, sys
GET, SET, GET_FLAGS, SET_FLAGS, INHERIT = 0x801C581F, 0x401C5820, 0x80086601, 0x40086602, 0x20000000
open(sys.argv[1] + "/file", "w").close()
os.makedirs(sys.argv[1] + "/folder")
for path in (sys.argv[1] + "/file", sys.argv[1] + "/folder"):
    fd = os.open(path, os.O_RDONLY)
    got = array.array("B", bytes(28))
    fcntl.ioctl(fd, GET, got)
    xflags, extsize, nextents, project, cowextsize = struct.unpack("=IIIII8x", got)
    assert project > 0
    for changed in ((xflags, extsize, nextents, 0, cowextsize), (xflags & ~0x200, extsize, nextents, 7, cowextsize)):
        try:
            fcntl.ioctl(fd, SET, struct.pack("=IIIII8x", *changed))
            sys.exit("the project was changed")
        except OSError:
            pass
    flags = array.array("I", [0, 0])
    fcntl.ioctl(fd, GET_FLAGS, flags)
    try:
        fcntl.ioctl(fd, SET_FLAGS, struct.pack("=I4x", flags[0] ^ INHERIT))
        sys.exit("inheriting was changed")
    except OSError:
        pass
    fcntl.ioctl(fd, GET, got)
    assert struct.unpack("=IIIII8x", got)[3] == project
"""
FILL = """
import errno, os, sys
try:
    with open(sys.argv[1], "wb", buffering=0) as file:
        for _ in range(200):
            file.write(bytes(1 << 20))
    sys.exit("all of it could be written")
except OSError as error:
    assert error.errno == errno.EDQUOT, error
"""
FILL_INODES = """
import errno, sys
try:
    for n in range(20000):
        open(f"{sys.argv[1]}-{n}", "w").close()
    sys.exit("all of them could be made")
except OSError as error:
    assert error.errno == errno.EDQUOT, error
"""


def try_quota_mount(image: Path, place: Path) -> str:
    """Mounts a new file system with quotas. What is in the way; "" for nothing."""
    commands = [
        ["truncate", "-s", "256M", image],
        ["mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota", image],
        ["mount", "-o", "loop,prjquota", image, place],
    ]
    return run_all(commands)


@pytest.fixture(scope="module", name="quota_daemon")
def start_quota_daemon():
    """A daemon whose state folder has quotas of projects."""
    with daemon_on("quotas of projects", try_quota_mount) as daemon:
        yield daemon


@pytest.fixture(name="quota")
def make_quota(quota_daemon):
    """A sandbox with little disk, by a quota."""
    sandbox = quota_daemon.ready(limits={"disk_bytes": 32 * MIB, "disk_inodes": 2000})
    yield sandbox
    quota_daemon.remove(sandbox)


def project_of(folder: Path) -> int:
    """The project that a folder is part of."""
    got = array.array("B", bytes(28))
    fd = os.open(folder, os.O_RDONLY)
    fcntl.ioctl(fd, FS_IOC_FSGETXATTR, got)
    os.close(fd)
    return struct.unpack_from("=I", got, 12)[0]


def quota_of(daemon, project: int) -> tuple[int, int]:
    """The limits of a project: KiB and inodes."""
    told = ctypes.create_string_buffer(72)
    fd = os.open(daemon.state, os.O_RDONLY)
    failed = ctypes.CDLL(None, use_errno=True).syscall(SYS_QUOTACTL_FD, fd, Q_GETQUOTA << 8 | PRJQUOTA, project, told)
    os.close(fd)
    assert not failed, os.strerror(ctypes.get_errno())
    limits = struct.unpack_from("=QQQQ", told)
    return limits[0], limits[3]


def test_quotas_are_found_and_told(quota_daemon, quota):
    info = quota_daemon.info().runtimes[0]
    assert "disk-quota" in info.features and "disk-accounting" not in info.features
    assert not {"disk_bytes", "disk_inodes"} & set(info.not_enforced)
    assert not list(quota_daemon.state.glob("sandboxes/hutch-*"))  # of trying
    assert 0 < usage(quota_daemon, quota).disk_bytes < MIB
    assert 5 < usage(quota_daemon, quota).disk_inodes < 50


@pytest.mark.rules("PROF-007", "PROF-008")
@pytest.mark.parametrize("path", ["/workspace/big", "/home/agent/big", "/tmp/big", "/var/tmp/big"])
def test_a_write_beyond_the_quota_fails_in_the_program_that_tries(quota_daemon, quota, path):
    other = quota_daemon.ready()
    ran = quota_daemon.run(quota, "python3", "-c", FILL, path)
    assert ran.exec.result.exit_code == 0, ran.stderr
    assert ran.exec.result.end_reason == exec_pb2.EXEC_END_REASON_EXITED
    assert f"the limit of {32 * MIB} bytes on disk" in ran.exec.result.message
    assert 31 * MIB < usage(quota_daemon, quota).disk_bytes <= 32 * MIB
    assert [(hit.limit, hit.value) for hit in hits(quota_daemon, quota)] == [("disk_bytes", 32 * MIB)]
    quota_daemon.shell(other, "head -c 40000000 /dev/zero > /workspace/file")
    quota_daemon.remove(other)
    quota_daemon.shell(quota, f"rm {path} && echo data > {path}")


def test_root_inside_has_the_same_quota(quota_daemon, quota):
    assert quota_daemon.run(quota, "python3", "-c", FILL, "/big", user="root").exec.result.exit_code == 0


@pytest.mark.rules("PROF-007")
def test_inodes_have_a_quota(quota_daemon, quota):
    ran = quota_daemon.run(quota, "python3", "-c", FILL_INODES, "/workspace/file")
    assert ran.exec.result.exit_code == 0, ran.stderr
    assert "the limit of 2000 files and folders on disk" in ran.exec.result.message
    assert usage(quota_daemon, quota).disk_inodes == 2000
    assert [(hit.limit, hit.value) for hit in hits(quota_daemon, quota)] == [("disk_inodes", 2000)]


def test_deleted_files_that_are_open_and_deep_trees_count_into_the_quota(quota_daemon, quota):
    deleted = quota_daemon.run(quota, "python3", "-c", DELETED_FILES)
    assert b"Disk quota exceeded" in deleted.stderr
    deep = quota_daemon.run(quota, "python3", "-c", DEEP_TREE)
    assert b"Disk quota exceeded" in deep.stderr


def test_a_hit_is_told_while_a_program_runs(quota_daemon, quota):
    exec_id = quota_daemon.start(quota, "sh", "-c", f"python3 -c '{FILL}' /workspace/big; sleep 1000").id
    wait_until(lambda: hits(quota_daemon, quota))
    assert not quota_daemon.get_exec(quota, exec_id).HasField("end_time")
    quota_daemon.cancel(quota, exec_id, grace=0)


@pytest.mark.parametrize(
    "user, path", [("agent", "/workspace"), ("agent", "/home/agent"), ("agent", "/tmp/x"), ("root", "/x")]
)
def test_nobody_inside_changes_the_project_of_a_file(quota_daemon, quota, user, path):
    script = f"mkdir -p {path} && python3 -c '{CHANGE_PROJECT}' {path}"
    ran = quota_daemon.run(quota, "sh", "-c", script, user=user)
    assert ran.exec.result.exit_code == 0, ran.stderr


def test_a_quota_holds_after_a_restart_and_goes_with_its_sandbox(quota_daemon):
    sandbox = quota_daemon.ready(limits={"disk_bytes": 8 * MIB, "disk_inodes": 500})
    quota_daemon.shell(sandbox, "head -c 6000000 /dev/zero > /workspace/before")
    quota_daemon.stop(sandbox)
    quota_daemon.wait(sandbox, "STOPPED")
    quota_daemon.restart(kill=True)
    quota_daemon.resume(sandbox)
    quota_daemon.wait(sandbox, "READY")
    assert quota_daemon.run(sandbox, "python3", "-c", FILL, "/workspace/after").exec.result.exit_code == 0
    project = project_of(quota_daemon.sandbox_folder(sandbox) / "fs")
    assert quota_of(quota_daemon, project) == (8 * 1024, 500)
    quota_daemon.remove(sandbox)
    assert quota_of(quota_daemon, project) == (0, 0)


@pytest.mark.parametrize("change", ["another project", "another name"])
def test_whose_quota_goes_is_not_for_a_keeper_to_say(quota_daemon, change):
    sandbox, other = (quota_daemon.ready(limits={"disk_bytes": 8 * MIB, "disk_inodes": 500}) for _ in range(2))
    files, others = (quota_daemon.sandbox_folder(one) / "fs" for one in (sandbox, other))
    project, others_project = project_of(files), project_of(others)
    quota_daemon.stop(sandbox)
    quota_daemon.wait(sandbox, "STOPPED")
    if change == "another project":
        subprocess.run(["chattr", "-p", str(others_project), files], check=True)
    else:
        files.rename(files.parent / "moved")
    quota_daemon.remove(sandbox)
    assert quota_of(quota_daemon, project) == (0, 0)
    assert quota_of(quota_daemon, others_project) == (8 * 1024, 500)
    quota_daemon.remove(other)


def test_files_from_before_there_were_quotas_are_measured(quota_daemon):
    sandbox = quota_daemon.ready(limits={"disk_bytes": 8 * MIB})
    quota_daemon.stop(sandbox)
    quota_daemon.wait(sandbox, "STOPPED")
    files = quota_daemon.sandbox_folder(sandbox) / "fs"
    for folder, _, names in os.walk(files):
        for path in [folder, *(os.path.join(folder, name) for name in names)]:
            subprocess.run(["chattr", "-f", "-p", "0", path], check=False)
    quota_daemon.resume(sandbox)
    quota_daemon.wait(sandbox, "READY")
    ended = python(quota_daemon, sandbox, BIG_FILE, "/workspace/big")
    assert ended.result.end_reason == exec_pb2.EXEC_END_REASON_DISK_FULL
    quota_daemon.remove(sandbox)


# ---- Shares of a disk ----


@pytest.fixture(name="weighed")
def start_on_disk_with_weights():
    """A daemon whose state folder is on a disk that the kernel shares by weights."""
    daemon = Daemon()
    daemon.state.mkdir(mode=0o700)
    image, loop = daemon.folder / "image", ""
    mounted = False
    try:
        subprocess.run(["truncate", "-s", "64M", image], check=True)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        found = subprocess.run(["losetup", "-f", "--show", image], capture_output=True, text=True, check=False)
        loop = found.stdout.strip()
        try:
            Path(f"/sys/block/{Path(loop).name}/queue/scheduler").write_text("bfq", encoding="ascii")
        except OSError as error:
            pytest.skip(f"this host has no bfq: {found.stderr} {error}")
        subprocess.run(["mount", loop, daemon.state], check=True)
        mounted = True
        daemon.state.chmod(0o700)
        daemon.begin()
        yield daemon
        daemon.remove(*daemon.ids())
        daemon.stop_daemon()
    finally:
        if daemon.process:
            daemon.kill()
        daemon.kill_keepers()
        if mounted:
            subprocess.run(["umount", "-l", daemon.state], check=True)
        if loop:
            subprocess.run(["losetup", "-d", loop], check=True)
        daemon.wipe()


def weights_of(daemon, sandbox) -> list[str]:
    """What the cgroups of a sandbox have as its weight, of either version."""
    files = [folder / "blkio.bfq.weight" for folder in daemon.limit_groups(sandbox).values()]
    files += [daemon.cgroup(sandbox) / "io.bfq.weight"]
    return [file.read_text(encoding="ascii").split()[-1] for file in files if file.exists()]


def test_the_weight_of_a_disk_is_set_where_the_disk_knows_weights(weighed):
    assert "io_weight" not in weighed.info().runtimes[0].not_enforced
    heavy, plain = weighed.ready(limits={"io_weight": 300}), weighed.ready()
    assert weights_of(weighed, heavy) == ["300"]
    assert weights_of(weighed, plain) == ["100"]
    assert weighed.run(heavy, "echo", "well").stdout == b"well\n"
