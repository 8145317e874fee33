"""A store that MessageStore wrote and closed: RocketMQ opens it as its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.acknowledged import acknowledged, assert_holds, names_of
from tests.interop.agreement import agree_on_closed
from tests.interop.conftest import OpenMessageStore
from tests.interop.operations import Operations
from tests.interop.rocketmq import RocketMq

SMALL = {
    "mapped_file_size_commit_log": 128 << 10,
    "mapped_file_size_consume_queue": 37 * 20,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}


@pytest.mark.parametrize(
    "flush",
    [
        pytest.param({"flush_disk_type": "SYNC_FLUSH"}, id="sync"),
        pytest.param({"flush_disk_type": "ASYNC_FLUSH"}, id="async"),
        pytest.param({"transient_store_pool_enable": True}, id="pool"),
    ],
)
def test_rocketmq_reads_what_message_store_wrote(
    rocketmq: RocketMq, open_message_store: OpenMessageStore, tmp_path: Path, flush: dict[str, object]
) -> None:
    """Single messages, batches, tables and transactions, over many files of every kind."""
    path = tmp_path / "store"
    operations = Operations("first", seed=2, long_topics=rocketmq.is_five, tables=True, transactions=True).take(150)
    with open_message_store(path, SMALL | flush) as process:
        put = [one for pair in process.put_all(operations) for one in acknowledged(*pair)]
        process.close()
    answers = agree_on_closed(path, rocketmq, SMALL)
    assert_holds(answers.messages, put)
    assert names_of(answers.messages) == [one.name for one in put], "in the order in which they were put"
    for (topic, key), found in answers.found.items():
        assert found == answers.with_key(topic, key), f"RocketMQ finds all of {topic!r}, {key!r} in the index"
