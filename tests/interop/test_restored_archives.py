"""A store that RocketMQ wrote, archived and restored: RocketMQ opens it as its own, and reads every message of it."""

from __future__ import annotations

from pathlib import Path

from commitlog_store import archive_store, restore_store
from tests.interop.agreement import agree_on_closed
from tests.interop.command_process import Json
from tests.interop.operations import Operations
from tests.interop.rocketmq import RocketMq

# Restored log and queue files have the sizes that the store's had, index files those that brokers have by default.
RESTORED: dict[str, object] = {"mapped_file_size_commit_log": 128 << 10, "mapped_file_size_consume_queue": 37 * 20}
_PLACES = ("physicalOffset", "msgId", "preparedTransactionOffset")
SMALL = RESTORED | {"max_hash_slot_num": 100, "max_index_num": 400}


def test_rocketmq_reads_what_was_restored(rocketmq: RocketMq, tmp_path: Path) -> None:
    stored = _put(rocketmq, tmp_path / "store", seed=5)
    url = f"file://{tmp_path / 'archive'}"
    assert archive_store(tmp_path / "store", url, with_last=True).segments > 1
    restore_store(url, tmp_path / "restored")
    answers = agree_on_closed(tmp_path / "restored", rocketmq, RESTORED)
    assert answers.messages == stored


def test_rocketmq_reads_what_was_restored_of_some_topics(rocketmq: RocketMq, tmp_path: Path) -> None:
    """Their records have been moved: also those of the second version, with IPv6 hosts, and of old transactions."""
    stored = _put(rocketmq, tmp_path / "store", seed=6)
    url = f"file://{tmp_path / 'archive'}"
    topics = sorted({message["topic"] for message in stored})[::2]
    for _ in range(2):
        assert archive_store(tmp_path / "store", url, topics=topics, with_last=True).segments > 1
    restore_store(url, tmp_path / "restored")
    answers = agree_on_closed(tmp_path / "restored", rocketmq, RESTORED)
    chosen = [message for message in stored if message["topic"] in topics]
    assert list(map(_without_places, answers.messages)) == list(map(_without_places, chosen))


def _put(rocketmq: RocketMq, store: Path, seed: int) -> list[Json]:
    """Let RocketMQ write a store; the messages as it describes them."""
    with rocketmq.open(store, SMALL) as process:
        for _ in process.put_all(Operations("first", seed=seed, long_topics=rocketmq.is_five).take(300)):
            pass
        stored: list[Json] = process.ask("describe")["messages"]
        process.close()
    return stored


def _without_places(message: Json) -> Json:
    return {name: value for name, value in message.items() if name not in _PLACES}
