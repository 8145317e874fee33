"""The fixture ``rocketmq_broker`` of pytest: a RocketMQ for one test, on a free port of this host.

pytest finds it by itself where this package is installed (the entry point ``pytest11``). The store's code is imported
by the first test that asks for the fixture.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from commitlog_store.testing import BrokerForTests


@pytest.fixture
def rocketmq_broker(tmp_path: os.PathLike[str]) -> Iterator[BrokerForTests]:
    """A RocketMQ for this test: broker.address for clients, broker.store for Python, broker.stop()."""
    from commitlog_store import testing

    with testing.rocketmq_broker(os.path.join(tmp_path, "rocketmq")) as broker:
        yield broker
