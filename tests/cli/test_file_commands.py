# SPDX-License-Identifier: Apache-2.0
"""Files: cp, ls, cat, stat, mkdir, mv, rm, diff, watch."""

import hashlib
import os
import re
import stat
import subprocess

import pytest
from commandline import LIMIT, Terminal

MIB = 1 << 20


def inside(hutch, sandbox, script: str) -> str:
    return hutch.ok("exec", sandbox, "sh", "-c", script)


# ---- cp, files ----


def test_a_file_goes_in_and_comes_back(hutch, sandbox, tmp_path):
    data = os.urandom(3 * MIB + 17)
    (tmp_path / "in").write_bytes(data)
    os.chmod(tmp_path / "in", 0o750)
    hutch.ok("cp", f"{tmp_path}/in", f"{sandbox}:copied")
    told = inside(hutch, sandbox, "sha256sum copied; stat -c '%a %u' copied; pwd")
    assert told == f"{hashlib.sha256(data).hexdigest()}  copied\n750 1000\n/workspace\n"
    hutch.ok("cp", f"{sandbox}:/workspace/copied", f"{tmp_path}/out")
    assert (tmp_path / "out").read_bytes() == data
    assert stat.S_IMODE(os.stat(tmp_path / "out").st_mode) == 0o750
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 4096], ids=["empty", "a byte", "1 MiB"])
def test_dashes_are_stdin_and_stdout(hutch, sandbox, data):
    hutch.ok("cp", "-", f"{sandbox}:/tmp/piped", stdin=data)
    assert hutch("cp", f"{sandbox}:/tmp/piped", "-").bytes == data
    assert hutch("cat", f"{sandbox}:/tmp/piped").bytes == data


def test_a_target_that_is_a_folder_is_copied_into(hutch, sandbox, tmp_path):
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    (tmp_path / "back").mkdir()
    hutch.ok("mkdir", f"{sandbox}:d")
    hutch.ok("cp", f"{tmp_path}/one", f"{tmp_path}/two", f"{sandbox}:d")
    assert hutch.ok("ls", f"{sandbox}:d") == "one\ntwo\n"
    hutch.ok("cp", f"{sandbox}:d/one", f"{sandbox}:d/two", f"{tmp_path}/back")
    assert [(tmp_path / "back" / name).read_text() for name in ("one", "two")] == ["1", "2"]


def test_files_are_replaced_unless_that_is_not_wanted(hutch, sandbox, tmp_path):
    for text in ("old", "new"):
        (tmp_path / text).write_text(text)
    hutch.ok("cp", f"{tmp_path}/old", f"{sandbox}:f")
    assert "exists" in hutch.refused("cp", "--no-clobber", f"{tmp_path}/new", f"{sandbox}:f")
    assert hutch.ok("cat", f"{sandbox}:f") == "old"
    hutch.ok("cp", f"{tmp_path}/new", f"{sandbox}:f")
    assert hutch.ok("cat", f"{sandbox}:f") == "new"
    hutch.refused("cp", "-n", f"{sandbox}:f", f"{tmp_path}/old")
    assert (tmp_path / "old").read_text() == "old"


def test_folders_are_made_when_asked(hutch, sandbox, tmp_path):
    (tmp_path / "f").write_text("x")
    assert "hutch:" in hutch.refused("cp", f"{tmp_path}/f", f"{sandbox}:a/b/c")
    hutch.ok("cp", "--parents", f"{tmp_path}/f", f"{sandbox}:a/b/c")
    hutch.ok("cp", "-p", f"{tmp_path}/f", f"{sandbox}:d/e/")
    assert hutch.ok("cat", f"{sandbox}:a/b/c", f"{sandbox}:d/e/f") == "xx"


def test_from_one_sandbox_to_another(hutch, daemon, sandbox):
    other = daemon.ready()
    data = os.urandom(2 * MIB)
    hutch.ok("cp", "-", f"{sandbox}:from", stdin=data)
    hutch.ok("cp", f"{sandbox}:from", f"{other}:/tmp/to")
    assert hutch("cat", f"{other}:/tmp/to").bytes == data
    daemon.remove(other)


def test_a_download_can_go_to_what_is_no_file(hutch, sandbox):
    hutch.ok("cp", "-", f"{sandbox}:f", stdin=b"x" * MIB)
    hutch.ok("cp", f"{sandbox}:f", "/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_an_interrupted_download_goes_on(hutch, sandbox, tmp_path):
    data = os.urandom(4 * MIB)
    hutch.ok("cp", "-", f"{sandbox}:big", stdin=data)
    version = hutch.json("stat", f"{sandbox}:big")["version"]
    part = tmp_path / f".big.{version}.part"
    part.write_bytes(b"?" * MIB)  # what is there is taken as it is
    hutch.ok("cp", "--resume", f"{sandbox}:big", str(tmp_path))
    assert (tmp_path / "big").read_bytes() == b"?" * MIB + data[MIB:]
    assert os.listdir(tmp_path) == ["big"]
    hutch.ok("cp", f"{sandbox}:big", str(tmp_path))
    assert (tmp_path / "big").read_bytes() == data


def test_progress_is_shown_on_a_terminal_only(hutch, sandbox, tmp_path):
    with open(tmp_path / "big", "wb") as file:
        file.truncate(200 * MIB)
    assert hutch.ok("cp", f"{tmp_path}/big", f"{sandbox}:big") == ""
    with hutch.terminal("cp", f"{sandbox}:big", f"{tmp_path}/back", columns=100) as terminal:
        assert terminal.ended() == 0
    with hutch.terminal("cp", "--quiet", f"{sandbox}:big", f"{tmp_path}/back", columns=100) as terminal:
        assert terminal.ended() == 0
        assert terminal.seen == ""
    assert (tmp_path / "back").stat().st_size == 200 * MIB


def test_two_copies_of_a_file_to_one_place_do_not_mix(hutch, sandbox, tmp_path):
    hutch.ok("exec", sandbox, "sh", "-c", "head -c 200000000 /dev/zero >large")
    copies = [hutch.start("cp", f"{sandbox}:large", str(tmp_path / "copy")) for _ in range(6)]
    ended = [(copy.communicate(timeout=LIMIT), copy.returncode) for copy in copies]
    assert 0 in [code for _, code in ended]
    for (_, told), code in ended:
        assert code == 0 or b"busy" in told, told
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]
    assert (tmp_path / "copy").stat().st_size == 200_000_000


@pytest.mark.parametrize("columns", [20, 300])
def test_progress_stays_in_its_line(hutch, sandbox, columns):
    slowly = "for i in 1 2 3 4 5 6; do head -c 3000000 /dev/zero; sleep 0.2; done"
    script = f"{slowly} | {hutch.program} cp - {sandbox}:slow"
    with Terminal(["sh", "-c", script], hutch.env, 24, columns) as terminal:
        assert terminal.ended() == 0
    lines = re.sub(r"\x1b\[K", "", terminal.seen).split("\r")
    assert any("MiB" in line for line in lines)
    assert max(len(line) for line in lines) < columns


def test_a_file_with_a_long_name_comes_back(hutch, sandbox, tmp_path):
    for name in ("n" * 255, "é" * 127):
        hutch.ok("exec", sandbox, "sh", "-c", f"echo long >{name}")
        hutch.ok("cp", f"{sandbox}:{name}", str(tmp_path))
        assert (tmp_path / name).read_text() == "long\n"
    assert len(os.listdir(tmp_path)) == 2


def test_what_cannot_be_copied_is_told(hutch, sandbox, tmp_path):
    assert "ID:PATH" in hutch.refused("cp", f"{tmp_path}/a", f"{tmp_path}/b", code=2)
    assert "No such file" in hutch.refused("cp", f"{tmp_path}/missing", f"{sandbox}:x")
    assert "missing" in hutch.refused("cp", f"{sandbox}:missing", f"{tmp_path}/x")
    assert not os.listdir(tmp_path)
    assert ".." in hutch.refused("cp", f"{sandbox}:../etc/passwd", f"{tmp_path}/x")
    assert "No such file" in hutch.refused("cp", f"{sandbox}:/etc/passwd", "")
    folder = os.open(tmp_path, os.O_RDONLY)
    running = hutch.start("cp", "-", f"{sandbox}:x", stdin=folder)
    os.close(folder)
    assert b"Is a directory" in running.communicate(timeout=LIMIT)[1] and running.returncode == 1
    (tmp_path / "a").write_text("")
    assert "no sandbox" in hutch.refused("cp", f"{tmp_path}/a", "nosuch-sandbox:x")


def test_missing_folders_are_made_here_too(hutch, sandbox, tmp_path):
    inside(hutch, sandbox, "echo x >f")
    for target in ("a/b/c", "d/e/"):
        told = hutch.refused("cp", f"{sandbox}:f", f"{tmp_path}/{target}")
        assert f"cannot write {tmp_path}/{target}: No such file or directory" in told
        hutch.ok("cp", "--parents", f"{sandbox}:f", f"{tmp_path}/{target}")
    assert (tmp_path / "a/b/c").read_text() == (tmp_path / "d/e/f").read_text() == "x\n"


def test_not_even_a_symlink_to_nothing_is_replaced_when_that_is_not_wanted(hutch, sandbox, tmp_path):
    inside(hutch, sandbox, "echo x >f")
    (tmp_path / "link").symlink_to("nothing")
    assert "File exists" in hutch.refused("cp", "--no-clobber", f"{sandbox}:f", f"{tmp_path}/link")
    assert os.listdir(tmp_path) == ["link"] and (tmp_path / "link").is_symlink()


# ---- cp, folders ----


def make_tree(folder):
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "sub" / "deep" / "file").write_bytes(os.urandom(70000))
    (folder / "run.sh").write_text("#!/bin/sh\necho ran\n")
    os.chmod(folder / "run.sh", 0o755)
    os.link(folder / "run.sh", folder / "sub" / "linked")
    os.symlink("../run.sh", folder / "sub" / "symlink")
    (folder / "name with spaces und Umläuten ü").write_text("x")
    os.utime(folder / "run.sh", (1000000000, 1000000000))


def test_folders_are_found_by_way_of_the_one_above(hutch, sandbox, tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "file").write_text("x")
    (tmp_path / "link").symlink_to("project")

    for number, source in enumerate(["../project", "../project/", "./../project/../link"]):
        hutch.ok("cp", source, f"{sandbox}:in-{number}", cwd=tmp_path / "here")
        assert hutch.ok("ls", f"{sandbox}:in-{number}") == "file\n"
    hutch.ok("cp", f"{sandbox}:in-0", "../out", cwd=tmp_path / "here")
    hutch.ok("cp", f"{sandbox}:in-0", "..", cwd=tmp_path / "here")
    hutch.ok("cp", f"{sandbox}:in-0", "../not/yet/there", cwd=tmp_path / "here")
    for copied in ("out", "in-0", "not/yet/there"):
        assert (tmp_path / copied / "file").read_text() == "x"


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_who_may_read_and_write_a_folder_here_is_not_said_by_the_sandbox(hutch, sandbox, tmp_path, mask):
    inside(hutch, sandbox, "mkdir -p d/sub; echo x >d/f; chmod 4777 d/f; chmod 1777 d d/sub")
    hutch.ok("cp", f"{sandbox}:d", f"{tmp_path}/new/d", umask=mask)
    modes = {name: stat.S_IMODE(os.stat(tmp_path / "new" / name).st_mode) for name in ("", "d", "d/sub", "d/f")}
    assert modes == {"": 0o755 & ~mask, "d": 0o755 & ~mask, "d/sub": 0o1777 & ~mask, "d/f": 0o777 & ~mask}


def test_the_folder_above_has_no_name_that_its_copy_could_have(hutch, sandbox, tmp_path):
    (tmp_path / "here").mkdir()
    hutch.ok("mkdir", f"{sandbox}:into")
    hutch.ok("cp", "..", f"{sandbox}:into", cwd=tmp_path / "here")
    assert hutch.ok("ls", f"{sandbox}:into") == "here/\n"


def test_a_folder_that_cannot_be_read_is_told_in_one_line(hutch, sandbox, tmp_path):
    inside(hutch, sandbox, "mkdir -p d/closed; chmod 0 d/closed")
    told = hutch.refused("cp", f"{sandbox}:d", f"{tmp_path}/d")
    assert "closed: Permission denied" in told and told.count("\n") == 1 and "doctor" not in told
    inside(hutch, sandbox, "chmod 700 d/closed")


def test_names_do_not_reach_the_terminal_as_they_are(hutch, sandbox, tmp_path):
    (tmp_path / "\x1b[31m\nred").write_text("")
    told = hutch.refused("cp", f"{tmp_path}/\x1b[31m\nred", f"{sandbox}:")
    assert "?[31m?red: " in told and told.count("\n") == 1


def tree_of(folder) -> dict:
    found = {}
    for path, folders, files in os.walk(folder):
        for name in folders + files:
            full = os.path.join(path, name)
            info = os.lstat(full)
            kind = stat.S_IFMT(info.st_mode)
            content = os.readlink(full) if stat.S_ISLNK(info.st_mode) else ""
            if stat.S_ISREG(info.st_mode):
                with open(full, "rb") as file:
                    content = hashlib.sha256(file.read()).hexdigest()
            mode = 0 if stat.S_ISLNK(info.st_mode) else stat.S_IMODE(info.st_mode)
            found[os.path.relpath(full, folder)] = (kind, mode, content)
    return found


def test_a_folder_goes_in_and_comes_back(hutch, sandbox, tmp_path):
    make_tree(tmp_path / "tree")
    hutch.ok("cp", f"{tmp_path}/tree", f"{sandbox}:copy")
    assert inside(hutch, sandbox, "cd copy; ./run.sh; sub/symlink; stat -c %h,%Y run.sh; ls -A empty") == (
        "ran\nran\n2,1000000000\n"
    )
    hutch.ok("cp", f"{sandbox}:copy", f"{tmp_path}/back")
    assert tree_of(tmp_path / "back") == tree_of(tmp_path / "tree")
    assert os.stat(tmp_path / "back" / "run.sh").st_nlink == 2


def test_a_folder_goes_into_a_folder_that_is_there(hutch, sandbox, tmp_path):
    make_tree(tmp_path / "tree")
    hutch.ok("mkdir", f"{sandbox}:there")
    hutch.ok("cp", f"{tmp_path}/tree", f"{sandbox}:there")
    (tmp_path / "back").mkdir()
    hutch.ok("cp", f"{sandbox}:there/tree", f"{tmp_path}/back")
    assert tree_of(tmp_path / "back" / "tree") == tree_of(tmp_path / "tree")


def test_a_folder_goes_from_one_sandbox_to_another(hutch, daemon, sandbox, tmp_path):
    make_tree(tmp_path / "tree")
    other = daemon.ready()
    hutch.ok("cp", f"{tmp_path}/tree", f"{sandbox}:a")
    hutch.ok("cp", f"{sandbox}:a", f"{other}:b")
    hutch.ok("cp", f"{other}:b", f"{tmp_path}/back")
    assert tree_of(tmp_path / "back") == tree_of(tmp_path / "tree")
    daemon.remove(other)


def test_a_folder_goes_to_stdout_as_a_tar_stream(hutch, sandbox, tmp_path):
    make_tree(tmp_path / "tree")
    hutch.ok("cp", f"{tmp_path}/tree", f"{sandbox}:copy")
    names = subprocess.run(
        ["tar", "-t"], input=hutch("cp", f"{sandbox}:copy", "-").bytes, capture_output=True, check=True
    ).stdout.decode()
    assert "run.sh" in names and "sub/deep/file" in names


def test_links_that_leave_a_copied_folder_do_not_write_outside(hutch, sandbox, tmp_path):
    """The sandbox's folder has a symlink to a folder outside, and something below it."""
    inside(hutch, sandbox, "mkdir evil; ln -s /tmp evil/out; echo x > evil/plain")
    assert "leave the folder" in hutch.refused("cp", f"{sandbox}:evil", f"{tmp_path}/back")
    again = hutch("cp", f"{sandbox}:evil", f"{tmp_path}/back")
    assert not os.path.exists("/tmp/plain"), again


def test_links_that_leave_a_copied_folder_are_left_out(hutch, sandbox, tmp_path):
    inside(hutch, sandbox, "mkdir -p linked/z; ln -s /etc/passwd linked/b; ln -s ../.. linked/z/up; ln -s a linked/c")
    inside(hutch, sandbox, "echo x > linked/a; echo y > linked/z/z; ln -s / $(printf 'linked/\\033[31mred')")
    told = hutch.refused("cp", f"{sandbox}:linked", f"{tmp_path}/back")
    assert "3 of the archive's links leave the folder, and were left out: " in told and told.count("\n") == 1
    assert all(f" '{name}'" in told for name in ("b", "z/up", "?[31mred")) and "\x1b" not in told
    assert {path.name for path in (tmp_path / "back").rglob("*")} == {"a", "c", "z"}
    assert (tmp_path / "back/c").read_text() == "x\n" and (tmp_path / "back/z/z").read_text() == "y\n"


def test_links_that_leave_by_way_of_each_other_are_left_out(hutch, sandbox, tmp_path):
    inside(hutch, sandbox, "mkdir -p chain/a/b/c; ln -s ../../.. chain/a/b/c/s; echo x > chain/plain")
    inside(hutch, sandbox, "ln -s a/b/c/s/../../../../etc/hostname chain/t; ln -s a/b/c/s/plain chain/kept")
    told = hutch.refused("cp", f"{sandbox}:chain", f"{tmp_path}/back")
    assert "1 of the archive's links leave the folder, and were left out: 't'" in told
    back = tmp_path / "back"
    assert (back / "kept").read_text() == "x\n" and not (back / "t").is_symlink()
    assert all(path.resolve().is_relative_to(back.resolve()) for path in back.rglob("*"))


# ---- the others ----


def test_ls_lists_a_folder(hutch, sandbox):
    inside(hutch, sandbox, "mkdir -p d/sub; echo 12345 > d/file; ln -s file d/link; touch d/.hidden d/sub/below")
    assert hutch.ok("ls", f"{sandbox}:d") == ".hidden\nfile\nlink\nsub/\n"
    assert hutch.ok("ls", "-R", f"{sandbox}:d") == ".hidden\nfile\nlink\nsub/\nsub/below\n"
    assert hutch.ok("ls", "-R", "--glob", "**/be*", f"{sandbox}:d") == "sub/below\n"
    lines = hutch.ok("ls", "-l", f"{sandbox}:d").splitlines()
    assert re.match(r"MODE +OWNER +SIZE +MODIFIED +NAME$", lines[0])
    assert re.match(r"-rw-r--r-- +1000:1000 +6 +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +file$", lines[2])
    assert re.match(r"lrwxrwxrwx .* link -> file$", lines[3])
    assert re.match(r"drwxr-xr-x .* sub/$", lines[4])
    assert [one["name"] for one in hutch.json("ls", f"{sandbox}:d")] == [".hidden", "file", "link", "sub"]
    assert "d/" in hutch.ok("ls", sandbox).splitlines()
    assert hutch.ok("ls", f"{sandbox}:d/file").endswith("file\n")


def test_stat_shows_one(hutch, sandbox):
    inside(hutch, sandbox, "echo 12345 > file; ln -s file link; chmod 640 file")
    told = hutch.ok("stat", f"{sandbox}:file")
    assert re.search(r"^Type: +REGULAR$", told, re.MULTILINE) and re.search(r"^Size: +6$", told, re.MULTILINE)
    assert re.search(r"^Mode: +-rw-r----- \(0640\)$", told, re.MULTILINE)
    assert hutch.json("stat", f"{sandbox}:link")["type"] == "SYMLINK"
    followed = hutch.json("stat", "-L", f"{sandbox}:link")
    assert (followed["type"], followed["path"]) == ("REGULAR", "/workspace/link")
    assert "not" in hutch.refused("stat", f"{sandbox}:nothing")


def test_mkdir_mv_and_rm(hutch, sandbox):
    hutch.ok("mkdir", f"{sandbox}:a", f"{sandbox}:b")
    hutch.refused("mkdir", f"{sandbox}:a")
    hutch.ok("mkdir", "-p", f"{sandbox}:a", f"{sandbox}:x/y")
    hutch.ok("mkdir", "--mode", "700", f"{sandbox}:private")
    assert hutch.json("stat", f"{sandbox}:private")["mode"] == 0o700
    assert "octal" in hutch.refused("mkdir", "--mode", "9", f"{sandbox}:z", code=2)
    hutch.ok("cp", "-", f"{sandbox}:f", stdin=b"f")
    hutch.ok("mv", f"{sandbox}:f", "a")
    hutch.ok("mv", f"{sandbox}:a/f", f"{sandbox}:a/g")
    assert hutch.ok("cat", f"{sandbox}:a/g") == "f"
    assert "hutch cp" in hutch.refused("mv", f"{sandbox}:a/g", "other-sandbox:g", code=2)
    hutch.refused("rm", f"{sandbox}:a")
    hutch.ok("rm", "-r", f"{sandbox}:a", f"{sandbox}:b", f"{sandbox}:x", f"{sandbox}:private")
    hutch.ok("rm", "--force", f"{sandbox}:a")
    assert hutch.ok("ls", sandbox) == ""
    for protected in ("/", "/workspace", "."):
        hutch.refused("rm", "-rf", f"{sandbox}:{protected}")
    assert "ID:PATH" in hutch.refused("rm", "/etc/passwd", code=2)


def test_several_go_on_when_one_fails(hutch, sandbox):
    hutch.ok("cp", "-", f"{sandbox}:one", stdin=b"1")
    ended = hutch("cat", f"{sandbox}:missing", f"{sandbox}:one")
    assert (ended.code, ended.out) == (1, "1") and "missing" in ended.err


def test_diff_shows_what_is_not_as_in_the_image(hutch, sandbox):
    assert hutch.ok("diff", sandbox) == ""
    hutch.ok("exec", sandbox, "sh", "-c", "mkdir -p d; touch d/f ~/h")
    assert hutch.ok("diff", sandbox).split() == "A /home/agent/h A /workspace/d/ A /workspace/d/f".split()
    assert hutch.ok("diff", f"{sandbox}:d/f").split() == ["A", "/workspace/d/f"]
    told = hutch.json("diff", f"{sandbox}:d/f")[0]
    assert (told["type"], told["path"]) == ("ADDED", "/workspace/d/f")
    assert told["file"]["name"] == "f"
    hutch.ok("exec", sandbox, "chmod", "0", "d")
    assert "left out" in hutch("diff", sandbox).err
    hutch.ok("exec", sandbox, "chmod", "700", "d")


def test_watch_prints_changes(hutch, sandbox):
    hutch.ok("mkdir", f"{sandbox}:w")
    with hutch.terminal("watch", "--recursive", "--output", "json", f"{sandbox}:w") as terminal:
        terminal.expect("watching")
        inside(hutch, sandbox, "echo x > w/a; mv w/a w/b; rm w/b")
        terminal.expect(r'"CREATED".*w/a"')
        terminal.expect(r'"MOVED".*w/b".*w/a"')
        terminal.expect(r'"DELETED".*w/b"')
        terminal.type("\x03")
        assert terminal.ended() in (-2, 130)
