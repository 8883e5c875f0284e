# SPDX-License-Identifier: Apache-2.0
"""One daemon, and the drivers of all languages, for all cases."""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration"), str(HERE.parent)]

# pylint: disable=wrong-import-position,unused-import
from drivers import DRIVERS, Driver  # noqa: E402
from host import _host_makes_sandboxes  # noqa: E402,F401
from remote import Certificates, RemoteDaemon  # noqa: E402
from runner import Run, is_for, read_cases  # noqa: E402

AT_ONCE = 6  # cases


def case_name(case: dict) -> str:
    return f"{case['area']}/{case['name']}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"case", "language"} <= set(metafunc.fixturenames):
        pairs = [(case, language) for case in read_cases() for language in DRIVERS if is_for(case, language)]
        ids = [f"{language}-{case_name(case)}" for case, language in pairs]
        metafunc.parametrize(("case", "language"), pairs, ids=ids)


class Results:
    """Has all cases that are asked for run, some at once, and keeps what came of them."""

    def __init__(self, wanted: list[tuple[dict, str]], certificates: Certificates):
        listen = certificates.server() | {
            "client_certificates": "wanted",
            "client_ca": str(certificates.cert("ca")),
        }
        self.daemon = RemoteDaemon(certificates, listen, limits={"streams_per_caller": 2000})
        credentials = {
            "token": self.daemon.tokens.add("ci"),
            "expired_token": self.daemon.tokens.add("old", expires=-1),
            "ca": str(certificates.cert("ca")),
            "other_ca": str(certificates.cert("other-ca")),
            "certificate": str(certificates.cert("alice")),
            "key": str(certificates.key("alice")),
        }
        self.daemon.begin()
        given = credentials | {"port": self.daemon.port}
        self.drivers = {language: Driver(language) for language in {language for _, language in wanted}}
        numbers = {case_name(case): i for i, case in enumerate(read_cases(), 1)}
        self.shared = {}
        for language, driver in self.drivers.items():
            self.shared[language] = self.daemon.ready(idle_ttl={"seconds": 0})
            self.daemon.shell(self.shared[language], "mkdir $(seq -f /workspace/case-%.0f " f"{len(numbers)})")
            assert "ok" in driver.do("client.connect", {"address": f"unix:{self.daemon.socket}"})
        self.pool = ThreadPoolExecutor(AT_ONCE)
        self.futures: dict[tuple[str, str], Future] = {}
        for case, language in wanted:
            number, shared = numbers[case_name(case)], self.shared[language]
            run = Run(case, self.drivers[language], self.daemon, number, given | {"sandbox": shared})
            self.futures[case_name(case), language] = self.pool.submit(run.do)

    def of(self, case: dict, language: str) -> list:
        """The transcript of a case. Raises what it failed with."""
        return self.futures[case_name(case), language].result()

    def end(self) -> None:
        self.pool.shutdown(cancel_futures=True)
        try:
            statuses = {language: driver.end() for language, driver in self.drivers.items()}
            assert not any(statuses.values()), f"drivers ended with {statuses}"
        finally:
            self.daemon.finish()


@pytest.fixture(scope="session", name="results")
def run_all(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    items = [item for item in request.session.items if "language" in getattr(item, "fixturenames", ())]
    wanted = [(item.callspec.params["case"], item.callspec.params["language"]) for item in items]  # type: ignore
    results = Results(wanted, Certificates(tmp_path_factory.mktemp("certificates")))
    yield results
    results.end()


def write_result(language: str, case: dict, passed: bool) -> None:
    """For spec/CONFORMANCE.md, by the rules that it checks (spec/vectors/README.md has the form), and by itself."""
    folder, outcome = os.environ.get("HUTCH_CONFORMANCE_DIR"), "pass" if passed else "fail"
    if folder:
        with open(f"{folder}/{language}-conformance.tsv", "a", encoding="utf-8") as file:
            file.writelines(f"{rule}\t{outcome}\tconformance/{case_name(case)}\n" for rule in case["rules"])
        with open(f"{folder}/cases-{language}.txt", "a", encoding="utf-8") as file:
            file.write(f"{outcome}\t{case_name(case)}\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    params = getattr(item, "callspec", None) and item.callspec.params  # type: ignore[attr-defined]
    if report.when == "call" and params and {"case", "language"} <= params.keys():
        write_result(params["language"], params["case"], report.passed)
    return report
