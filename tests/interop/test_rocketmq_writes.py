"""A store that RocketMQ wrote and closed: what is read here is what RocketMQ reads there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.acknowledged import acknowledged, assert_holds, names_of
from tests.interop.comparison import answers_of, assert_reads_alike
from tests.interop.operations import Operations
from tests.interop.rocketmq import RocketMq
from tests.support.clean_store import assert_clean

SHAPES: dict[str, dict[str, object]] = {
    "files of 256 KiB": {
        "mapped_file_size_commit_log": 256 << 10,
        "mapped_file_size_consume_queue": 2_000 * 20,
        "max_hash_slot_num": 1_000,
        "max_index_num": 4_000,
    },
    "very small files, synced": {
        "mapped_file_size_commit_log": 64 << 10,
        "mapped_file_size_consume_queue": 37 * 20,
        "max_hash_slot_num": 7,
        "max_index_num": 30,
        "flush_disk_type": "SYNC_FLUSH",
    },
    "transient pool": {
        "mapped_file_size_commit_log": 1 << 20,
        "mapped_file_size_consume_queue": 300 * 20,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
        "transient_store_pool_enable": True,
    },
}


@pytest.mark.parametrize("shape", SHAPES)
def test_what_rocketmq_wrote_is_read_as_rocketmq_reads_it(rocketmq: RocketMq, tmp_path: Path, shape: str) -> None:
    path = tmp_path / "store"
    operations = Operations("first", seed=1, long_topics=rocketmq.is_five).take(600)
    with rocketmq.open(path, SHAPES[shape]) as process:
        put = [one for pair in process.put_all(operations) for one in acknowledged(*pair)]
        answers = answers_of(process)
        process.close()
    assert_holds(answers.messages, put)
    assert names_of(answers.messages) == [one.name for one in put], "in the order in which they were put"
    assert_reads_alike(answers, path, rocketmq)
    assert_clean(path)
