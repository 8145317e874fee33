"""RocketMQ for the tests that need it: installed once, for all runs to come."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.interop.rocketmq import (
    RocketMq,
    RocketMqBroker,
    RocketMqUnavailable,
    install,
    install_broker,
    message_store_settings,
)
from tests.interop.store_process import StoreProcess

# Only of tests themselves does pytest show what an assertion found.
pytest.register_assert_rewrite(
    *(f"tests.interop.{name}" for name in ("acknowledged", "agreement", "comparison", "turns"))
)

VERSIONS = ("5.3.3", "4.9.8")
# Central has no broker of 4.9.8.
BROKER_VERSIONS = ("5.3.3", "4.9.7")
OpenMessageStore = Callable[[Path, Mapping[str, object]], StoreProcess]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of these are long runs: `make stress` starts them."""
    directory = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(directory):
            item.add_marker(pytest.mark.stress)
            item.add_marker(pytest.mark.timeout(1_800))


@pytest.fixture(scope="session", params=VERSIONS)
def rocketmq(request: pytest.FixtureRequest) -> RocketMq:
    """Each version that there is. The jars stay in pytest's cache, so that only the first run needs the network."""
    cache = request.config.cache
    assert cache is not None, "the jars are kept in pytest's cache: run without -p no:cacheprovider"
    try:
        return install(request.param, cache.mkdir("rocketmq"))
    except RocketMqUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session", params=BROKER_VERSIONS)
def rocketmq_broker(request: pytest.FixtureRequest) -> RocketMqBroker:
    """As ``rocketmq``, the broker's part that keeps positions of consumer groups."""
    cache = request.config.cache
    assert cache is not None, "the jars are kept in pytest's cache: run without -p no:cacheprovider"
    try:
        return install_broker(request.param, cache.mkdir("rocketmq"))
    except RocketMqUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def open_message_store() -> OpenMessageStore:
    """Opens a store with MessageStore in a process of its own, as ``RocketMq.open`` does with RocketMQ."""

    def open_store(path: Path, settings: Mapping[str, object]) -> StoreProcess:
        command = [sys.executable, "-m", "tests.interop.message_store_program"]
        return StoreProcess(command, path, message_store_settings(settings), path.with_name(f"{path.name}.python.log"))

    return open_store
