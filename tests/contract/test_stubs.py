# SPDX-License-Identifier: Apache-2.0
"""The generated code of every client works: it installs, compiles, has the types it says, and speaks gRPC."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from contract import ROOT

CLIENTS = ROOT / "clients"
SAMPLES = Path(__file__).resolve().parent / "samples"


def run(*command: object, cwd: Path = ROOT, **environment: object) -> str:
    """The output of @command; its failure fails the test, with that output."""
    ended = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=os.environ | {name: str(value) for name, value in environment.items()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


@pytest.fixture(name="installed", scope="module")
def install_python_client(tmp_path_factory):
    """The Python client as pip installs it, without what it depends on; built from a copy, to leave the tree clean."""
    folder = tmp_path_factory.mktemp("python")
    shutil.copytree(CLIENTS / "python", folder / "client")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    run(*pip, "--target", folder / "installed", folder / "client")
    return folder / "installed"


def test_python_client_installs_all_its_modules(installed):
    modules = [f"hutch.v1.{file.stem}" for file in sorted((CLIENTS / "python/src/hutch/v1").glob("*_pb2*.py"))]
    assert len(modules) > len(list((ROOT / "proto/hutch/v1").glob("*.proto")))
    imports = f"import {', '.join(modules)}; print(hutch.v1.sandbox_pb2.__file__)"
    assert run(sys.executable, "-W", "error", "-c", imports, PYTHONPATH=installed).startswith(str(installed))
    assert (installed / "hutch" / "py.typed").exists()
    assert (installed / "hutch" / "v1" / "sandbox_pb2.pyi").exists()


def test_python_client_speaks_over_a_unix_socket(installed, tmp_path):
    told = run(sys.executable, SAMPLES / "ping.py", tmp_path / "socket", PYTHONPATH=installed)
    assert told.split() == ["True", "1.2.3", "True", "False"]


def mypy(sample: Path) -> str:
    options = ["--strict", "--no-error-summary", f"--cache-dir={ROOT / 'build' / 'mypy-cache'}"]
    return run(sys.executable, "-m", "mypy", *options, sample, MYPYPATH=CLIENTS / "python" / "src")


def test_python_types_hold():
    assert mypy(SAMPLES / "ping.py") == ""


@pytest.mark.parametrize(
    "old, new, problem",
    [
        ("memory_bytes=0", 'memory_bytes="0"', 'incompatible type "str"; expected "int | None"'),
        ("memory_bytes=0", "memory=0", 'Unexpected keyword argument "memory"'),
        ('HasField("disk_bytes")', 'HasField("disc_bytes")', '"HasField" of "ResourceLimits" has incompatible type'),
        ("stub.Ping(system_pb2.PingRequest()", "stub.Ping(system_pb2.GetInfoRequest()", "incompatible type"),
        ("stub.Ping(", "stub.Pong(", '"SystemServiceStub" has no attribute "Pong"'),
    ],
)
def test_wrong_python_types_are_found(tmp_path, old, new, problem):
    text = (SAMPLES / "ping.py").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "ping.py").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(AssertionError) as found:
        mypy(tmp_path / "ping.py")
    assert problem in str(found.value)


def test_go_client_builds():
    for check in ("build", "vet"):
        assert run("go", check, "./...", cwd=CLIENTS / "go", GOPROXY="off") == ""


@pytest.fixture(name="typescript")
def copy_typescript_client(tmp_path):
    """The TypeScript client with the sample in it, and what scripts/deps installed for it."""
    client = tmp_path / "client"
    shutil.copytree(CLIENTS / "typescript", client, ignore=shutil.ignore_patterns("node_modules"))
    shutil.copy(SAMPLES / "ping.ts", client / "src")
    (client / "node_modules").symlink_to(ROOT / "build" / "tools" / "npm-typescript" / "node_modules")
    return client


def tsc(client: Path) -> str:
    return run("node_modules/.bin/tsc", "--noEmit", cwd=client)


def test_typescript_types_hold(typescript):
    assert tsc(typescript) == ""


def test_wrong_typescript_types_are_found(typescript):
    sample = typescript / "src" / "ping.ts"
    text = sample.read_text(encoding="utf-8")
    sample.write_text(text.replace("memoryBytes: 0n", "memoryBytes: '0'"), encoding="utf-8")
    with pytest.raises(AssertionError) as found:
        tsc(typescript)
    assert "Type 'string' is not assignable to type 'bigint'" in str(found.value)
