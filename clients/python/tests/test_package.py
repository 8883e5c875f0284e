# SPDX-License-Identifier: Apache-2.0
"""The package: it installs, has the types it says, and its pages and examples are true."""

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from host import PATIENCE
from make_sync import sync_source

import hutch
import hutch.aio

CLIENT = Path(__file__).resolve().parents[1]
ROOT = CLIENT.parents[1]


def run(*command: object, **environ: str) -> str:
    ended = subprocess.run(
        [str(word) for word in command],
        cwd=CLIENT,
        env=os.environ | environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=50 * PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def test_the_types_hold():
    """Also with what the oldest Python that is supported has."""
    options = ["--strict", "--python-version=3.10", "--no-error-summary", f"--cache-dir={ROOT / 'build/mypy-cache'}"]
    assert run(sys.executable, "-m", "mypy", *options, "-p", "hutch", MYPYPATH=str(CLIENT / "src")) == ""


def test_the_examples_have_types_that_hold():
    options = ["--strict", "--no-error-summary", f"--cache-dir={ROOT / 'build/mypy-cache'}"]
    for example in sorted(CLIENT.glob("examples/*.py")):
        assert run(sys.executable, "-m", "mypy", *options, example, MYPYPATH=str(CLIENT / "src")) == ""


def test_it_installs_into_a_fresh_environment(tmp_path):
    """As pip installs it, offline: what it needs is taken from the environment of the tests."""
    shutil.copytree(CLIENT, tmp_path / "client", ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(packages, "tools.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    offline = ["--quiet", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    run(sys.executable, "-m", "pip", "--python", python, "install", *offline, tmp_path / "client")
    told = run(python, "-I", "-c", "import hutch, hutch.aio; print(hutch.__file__, hutch.__version__)")
    assert told.split() == [f"{packages}/hutch/__init__.py", hutch.__version__]
    for file in ("py.typed", "v1/sandbox_pb2.pyi", "sync/_client.py", "_rules/paths.py"):
        assert Path(packages, "hutch", file).exists()


def test_the_reference_is_current():
    made = run(sys.executable, "tools/make_reference.py")
    current = (CLIENT / "docs/reference.md").read_text(encoding="utf-8")
    assert made == current, "run 'python tools/make_reference.py > docs/reference.md' in clients/python"


def code_of(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


def test_the_code_of_the_readme_runs(any_address, tmp_path):
    said = []
    for i, code in enumerate(code_of(CLIENT / "README.md")):
        file = tmp_path / f"block{i}.py"
        file.write_text(code, encoding="utf-8")
        said.append(run(sys.executable, file, HUTCH_ADDRESS=any_address, PYTHONPATH=str(CLIENT / "src")))
    assert said[0].split() == ["42", "0", "True"]
    assert "hello agent" in said[1] and "/workspace/hello.py" in said[1]
    assert said[2] == "['0\\n', '1\\n', '2\\n', '3\\n', '4\\n']\n"
    assert said[3] == "draft\n\n"
    assert said[4] == "SANDBOX_NOT_FOUND\n[('path', 'PATH_EMPTY')]\n"
    assert len(said) == 6


def test_the_code_of_the_repositorys_page_runs(any_address):
    [code] = code_of(ROOT / "README.md")
    said = run(sys.executable, "-c", code, HUTCH_ADDRESS=any_address, PYTHONPATH=str(CLIENT / "src"))
    assert said == "42\n\n"


@pytest.mark.parametrize(
    "name, last",
    [
        ("agent", "works: 45"),
        ("stream", "bye"),
        ("folders", "['apple', 'fig', 'pear']"),
        ("events", "DELETED"),
    ],
)
def test_an_example_runs(any_address, name, last):
    said = run(sys.executable, f"examples/{name}.py", HUTCH_ADDRESS=any_address, PYTHONPATH=str(CLIENT / "src"))
    assert said.strip().endswith(last)


def test_every_example_is_run():
    marks = test_an_example_runs.pytestmark
    assert {name for name, _ in marks[0].args[1]} == {file.stem for file in CLIENT.glob("examples/*.py")}


def test_both_clients_have_the_same_names():
    assert set(hutch.aio.__all__) <= set(hutch.__all__)
    for name in hutch.aio.__all__:
        ours, theirs = getattr(hutch, name), getattr(hutch.aio, name)
        plain = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}
        assert set(vars(ours)) == {plain.get(member, member) for member in vars(theirs)}
        for member, value in vars(ours).items():
            if inspect.isfunction(value) and member not in plain.values():
                signatures = inspect.signature(value), inspect.signature(vars(theirs)[member])
                assert signatures[0].parameters.keys() == signatures[1].parameters.keys()


def test_nothing_asynchronous_is_left_in_the_twin():
    for file in (CLIENT / "src/hutch/sync").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            assert not isinstance(node, (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)), file


def test_words_are_taken_out_token_by_token():
    source = 'async def f():\n    """Does `await g()`."""\n    awaiting = await g("aio", async_=1)  # await\n'
    assert sync_source(source) == 'def f():\n    """Does `g()`."""\n    awaiting = g("aio", async_=1)  # await\n'


def test_errors_survive_pickling():
    import pickle  # pylint: disable=import-outside-toplevel

    error = hutch.InvalidArgument("no", reason="PATH_EMPTY", violations=(hutch.Violation("path", "PATH_EMPTY", "no"),))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.reason, again.violations, str(again)) == (
        hutch.InvalidArgument,
        "PATH_EMPTY",
        error.violations,
        str(error),
    )
