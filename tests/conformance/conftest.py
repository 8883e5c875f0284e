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
from drivers import BUILD_LIMIT, DRIVERS, Driver  # noqa: E402
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

    def __init__(self, certificates: Certificates):
        listen = certificates.server() | {
            "client_certificates": "wanted",
            "client_ca": str(certificates.cert("ca")),
        }
        self.daemon = RemoteDaemon(certificates, listen, limits={"streams_per_caller": 2000})
        self.given = {
            "token": self.daemon.tokens.add("ci"),
            "expired_token": self.daemon.tokens.add("old", expires=-1),
            "ca": str(certificates.cert("ca")),
            "other_ca": str(certificates.cert("other-ca")),
            "certificate": str(certificates.cert("alice")),
            "key": str(certificates.key("alice")),
        }
        self.drivers: dict[str, Driver] = {}
        self.pool = ThreadPoolExecutor(AT_ONCE)
        self.futures: dict[tuple[str, str], Future] = {}

    def begin(self, wanted: list[tuple[dict, str]]) -> None:
        self.daemon.begin()
        for language in dict.fromkeys(language for _, language in wanted):
            self.drivers[language] = Driver(language)
        address = {"address": f"unix:{self.daemon.socket}"}
        connected = [driver.begin("client.connect", address)[1] for driver in self.drivers.values()]
        assert all("ok" in answer.wait(BUILD_LIMIT) for answer in connected), [answer.line for answer in connected]

        numbers = {case_name(case): i for i, case in enumerate(read_cases(), 1)}
        given = {}
        for language in self.drivers:
            shared = self.daemon.ready(idle_ttl={"seconds": 0})
            self.daemon.shell(shared, f"mkdir $(seq -f /workspace/case-%.0f {len(numbers)})")
            given[language] = self.given | {"port": self.daemon.port, "sandbox": shared}
        for case, language in wanted:
            run = Run(case, self.drivers[language], self.daemon, numbers[case_name(case)], given[language])
            self.futures[case_name(case), language] = self.pool.submit(run.do)

    def of(self, case: dict, language: str) -> list:
        """The transcript of a case. Raises what it failed with."""
        return self.futures[case_name(case), language].result()

    def end(self) -> None:
        self.pool.shutdown(cancel_futures=True)
        statuses = {language: driver.end() for language, driver in self.drivers.items()}
        self.daemon.finish()
        assert not any(statuses.values()), f"drivers ended with {statuses}"


@pytest.fixture(scope="session", name="results")
def run_all(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    items = [item for item in request.session.items if "language" in getattr(item, "fixturenames", ())]
    wanted = [(item.callspec.params["case"], item.callspec.params["language"]) for item in items]  # type: ignore
    results = Results(Certificates(tmp_path_factory.mktemp("certificates")))
    try:
        results.begin(wanted)
        yield results
    finally:
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
