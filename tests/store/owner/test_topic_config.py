"""How many queues a topic has, which decides where messages with a sharding key go."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog import PutMessageStatus
from commitlog.errors import CorruptConfig
from commitlog.files import disk
from commitlog.format.java_hash import string_hash_code
from commitlog.log.topic_config import TopicConfig, parse_topic_config
from tests.store.owner.owned_store import open_store, put_ok

__all__: list[str] = []

KEYS = [f"customer {number}" for number in range(50)]
TABLE = pa.table({"body": [b"x"] * 50, "shardingKey": KEYS})


def _config(store: Path, text: str) -> Path:
    path = store / "config" / "topics.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def _queues(count: int) -> list[int]:
    return [abs(string_hash_code(key)) % count for key in KEYS]


def test_a_sharding_key_keeps_its_queue_when_a_higher_queue_appears(tmp_path: Path) -> None:
    with open_store(tmp_path, default_topic_queue_nums=4) as store:
        assert store.put_messages(TABLE, topic="orders").rows["queueId"].to_pylist() == _queues(4)
        put_ok(store, queue_id=9)
        store.dispatch()
        assert store.put_messages(TABLE, topic="orders").rows["queueId"].to_pylist() == _queues(4)


def test_a_listed_topic_has_the_queues_that_the_list_says(tmp_path: Path) -> None:
    with open_store(tmp_path, default_topic_queue_nums=4) as store:
        path = _config(tmp_path, '{"topicConfigTable":{"orders":{"writeQueueNums":3,"attributes":{}}}}')
        put_ok(store, queue_id=9)
        store.dispatch()
        assert store.put_messages(TABLE, topic="orders").rows["queueId"].to_pylist() == _queues(3)
        path.write_text(path.read_text().replace("3", "7"))
        assert store.put_messages(TABLE, topic="orders").rows["queueId"].to_pylist() == _queues(7)


def test_a_damaged_list_is_named_and_nothing_is_put(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        path = _config(tmp_path, '{"topicConfigTable":')
        result = store.put_messages(TABLE, topic="orders")
        assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert str(path) in result.reason
        path.unlink()
        assert store.put_messages(TABLE, topic="orders").ok


def test_the_list_of_a_real_broker(golden_broker_config: Path) -> None:
    path = golden_broker_config / "topics.json"
    found = parse_topic_config(path.read_bytes(), str(path))
    assert (found["lab_topic"], found["SCHEDULE_TOPIC_XXXX"], found["lab"]) == (4, 18, 16)


def test_names_without_quotes_as_fastjson_writes_them() -> None:
    text = b'{"a":{0:12, -1:"{1:2"},"topicConfigTable":{"t":{"attributes":{1 :2},"writeQueueNums":5},7:{}}}'
    assert parse_topic_config(text, "topics.json") == {"t": 5, "7": 16}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"\xff",
        b"null",
        b"[" * 100_000,
        b'{"topicConfigTable":[]}',
        b'{"topicConfigTable":{"t":4}}',
        b'{"topicConfigTable":{"t":{"writeQueueNums":"4"}}}',
        b'{"topicConfigTable":{"t":{"writeQueueNums":-1}}}',
        b'{"topicConfigTable":{"t":{"writeQueueNums":true}}}',
    ],
)
def test_what_no_broker_writes_is_damage(text: bytes) -> None:
    with pytest.raises(CorruptConfig, match=r"topics\.json"):
        parse_topic_config(text, "topics.json")


def test_the_list_is_read_only_when_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    read_file = disk.read_file

    def counted(path: str, limit: int) -> bytes:
        reads.append(path)
        return read_file(path, limit)

    monkeypatch.setattr(disk, "read_file", counted)
    path = _config(tmp_path, '{"topicConfigTable":{"orders":{"writeQueueNums":0}}}')
    config = TopicConfig(str(tmp_path), 4, lambda _: 5)
    assert [config.queue_count("orders") for _ in range(3)] == [6, 6, 6], "with no queue to write to it is not listed"
    assert len(reads) == 1
    path.write_text('{"topicConfigTable":{"orders":{"writeQueueNums":2}}}')
    os.utime(path, ns=(1, 1))
    assert config.queue_count("orders") == 2
    path.unlink()
    assert config.queue_count("orders") == 6
    assert len(reads) == 2
