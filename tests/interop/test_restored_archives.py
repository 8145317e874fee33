"""A store that RocketMQ wrote, archived and restored: RocketMQ opens it as its own, and reads every message of it."""

from __future__ import annotations

from pathlib import Path

from commitlog_store import archive_store, restore_store
from tests.interop.agreement import agree_on_closed
from tests.interop.operations import Operations
from tests.interop.rocketmq import RocketMq

# Restored log and queue files have the sizes that the store's had, index files those that brokers have by default.
RESTORED: dict[str, object] = {"mapped_file_size_commit_log": 128 << 10, "mapped_file_size_consume_queue": 37 * 20}
SMALL = RESTORED | {"max_hash_slot_num": 100, "max_index_num": 400}


def test_rocketmq_reads_what_was_restored(rocketmq: RocketMq, tmp_path: Path) -> None:
    with rocketmq.open(tmp_path / "store", SMALL) as process:
        operations = Operations("first", seed=5, long_topics=rocketmq.is_five).take(300)
        for _ in process.put_all(operations):
            pass
        stored = process.ask("describe")["messages"]
        process.close()
    url = f"file://{tmp_path / 'archive'}"
    assert archive_store(tmp_path / "store", url, with_last=True).segments > 1
    restore_store(url, tmp_path / "restored")
    answers = agree_on_closed(tmp_path / "restored", rocketmq, RESTORED)
    assert answers.messages == stored
