"""Fixtures that every test may use."""

from __future__ import annotations

import functools
import gc
import os
import signal
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.main
from hypothesis import HealthCheck, settings

from tests.support import golden
from tests.support.bytecode import compile_tests
from tests.support.local_spark import QUICK_SPARK, few_processes, start_spark
from tests.support.long_runs import Progress, log_end, part_of, place_of, todays, write_summary
from tests.support.passed_tests import pytest_addoption, pytest_configure  # noqa: F401 (hooks of pytest)
from tests.support.quick_spark import make_spark_quick
from tests.support.ready_pythons import ready_pythons
from tests.support.spark_programs import SparkPrograms
from tests.support.temporary_files import keep_files_in_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# PySpark's collect() gives naive datetimes in the local time zone.
os.environ["TZ"] = "UTC"
time.tzset()

# Every process that the tests start would compile the packages again, and each worker of pytest all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Nothing here multiplies matrices, and OpenBLAS's threads spin for a while in each process that imports numpy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

make_spark_quick()

# The command's application never changes, and typer makes all of its commands at each call: 20 ms for each of 1,600.
# Before typer.testing is imported, which takes the function by its name.
pytest.MonkeyPatch().setattr(typer.main, "get_command", functools.cache(typer.main.get_command))

# A shell without job control lets what it runs in the background ignore Ctrl-C, and so would every child process.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The default profile is the same on every run, so that a failure in CI is a failure here; `make stress` explores.
_QUIET = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
settings.register_profile("default", deadline=None, max_examples=30, derandomize=True, suppress_health_check=_QUIET)
settings.register_profile("stress", deadline=None, max_examples=part_of(5_000), suppress_health_check=_QUIET)
_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
settings.load_profile(_PROFILE)
if _PROFILE != "stress":
    keep_files_in_memory()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whatever uses Spark is marked so, without having to say it twice."""
    for item in items:
        if {"spark", "spark_programs"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.spark)
    if _PROFILE == "stress":
        chosen, others = todays(items)
        config.hook.pytest_deselected(items=others)
        items[:] = sorted(chosen, key=lambda item: place_of(item.nodeid))
    elif hasattr(config, "workerinput"):  # one of several workers
        from tests.support.sharing_out import places_in_turn

        places = places_in_turn(dict.fromkeys(map(_module_of, items)))
        items.sort(key=lambda item: places[_module_of(item)])


def _module_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What pytest collects lives to the end: every collection of garbage would walk through it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    compile_tests()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """``make test`` runs several workers; a bare ``pytest`` is one process, and needs no pytest-xdist."""
    from tests.support.sharing_out import ByModule, ByTest

    return (ByTest if _PROFILE == "stress" else ByModule)(config, log)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    log_end(report)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _PROFILE == "stress":
        write_summary(terminalreporter)


@pytest.fixture
def progress(request: pytest.FixtureRequest) -> Progress:
    """What a long run counts, for the log of ``make stress``."""
    return Progress(request.node)


@pytest.fixture(scope="session")
def golden_533(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the store directory that RocketMQ 5.3.3 left after a clean stop. Shared: do not alter it."""
    return golden.copy_golden(golden.ROCKETMQ_533, tmp_path_factory.mktemp("golden-533") / "store")


@pytest.fixture(scope="session")
def golden_498(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the store directory that RocketMQ 4.9.8 left when it was killed. Shared: do not alter it."""
    return golden.copy_golden(golden.ROCKETMQ_498, tmp_path_factory.mktemp("golden-498") / "store")


@pytest.fixture(scope="session")
def golden_broker_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the ``config`` directory of a RocketMQ 5.3.3 broker. Shared: do not alter it."""
    return golden.copy_golden(golden.ROCKETMQ_533_BROKER_CONFIG, tmp_path_factory.mktemp("golden-config") / "config")


@pytest.fixture(scope="session")
def expected_533() -> dict[str, list[dict[str, Any]]]:
    """What RocketMQ read back from ``golden_533``, by kind."""
    return golden.expected(golden.ROCKETMQ_533)


@pytest.fixture(scope="session")
def expected_498() -> dict[str, list[dict[str, Any]]]:
    """What RocketMQ read back from ``golden_498``, by kind."""
    return golden.expected(golden.ROCKETMQ_498)


@pytest.fixture(scope="session")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the JVM of a shared Spark has in its environment: its Python processes are ready at once."""
    with ready_pythons(tmp_path_factory.mktemp("pythons")) as environment:
        yield environment


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, pythons: dict[str, str]) -> Iterator[SparkSession]:
    """One local Spark for all tests."""
    with pytest.MonkeyPatch.context() as patch:  # for its JVM, and not for programs that the tests start
        for name, value in pythons.items():
            patch.setenv(name, value)
        session = start_spark(tmp_path_factory.mktemp("spark"), **QUICK_SPARK, **few_processes())
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_programs(tmp_path_factory: pytest.TempPathFactory, pythons: dict[str, str]) -> Iterator[SparkPrograms]:
    """One process for all programs that need no Spark of their own from the start."""
    programs = SparkPrograms(tmp_path_factory.mktemp("spark-programs"), **pythons)
    yield programs
    programs.close()
