"""Tables about a store: what they say of a store that RocketMQ wrote, of batches, and of damage."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import METADATA_SCHEMAS, StoreReader, store_metadata, verify_store
from commitlog_store.errors import InvalidValue, StoreNotFound
from tests.store.owner.owned_store import open_store, put_ok


def rows(path: Path, table: str) -> list[dict[str, Any]]:
    found = store_metadata(path, table)
    assert found.schema.equals(METADATA_SCHEMAS[table])
    return found.to_pylist()  # type: ignore[no-any-return]


def milliseconds(when: datetime) -> int:
    return round(when.timestamp() * 1000)


def test_queues_are_those_of_the_reader(golden_533: Path) -> None:
    found = rows(golden_533, "queues")
    with StoreReader.open(golden_533) as reader:
        infos = [info for topic in reader.topics() for info in reader.queues(topic)]
        assert [(one["topic"], one["queueId"], one["minOffset"], one["maxOffset"]) for one in found] == [
            (info.topic, info.queue_id, info.min_offset, info.max_offset) for info in infos
        ]
        for one in found:
            if one["messages"]:
                first = reader.store_timestamp(one["topic"], one["queueId"], one["minOffset"])
                last = reader.store_timestamp(one["topic"], one["queueId"], one["maxOffset"] - 1)
                assert milliseconds(one["firstStoreTimestamp"]) == first
                assert milliseconds(one["lastStoreTimestamp"]) == last
    assert not any(one["error"] for one in found)


def test_topics_count_their_queues_and_messages(golden_533: Path) -> None:
    queues, topics = rows(golden_533, "queues"), rows(golden_533, "topics")
    for one in topics:
        of_topic = [queue for queue in queues if queue["topic"] == one["topic"]]
        assert (one["queues"], one["messages"]) == (len(of_topic), sum(queue["messages"] for queue in of_topic))
    assert "SCHEDULE_TOPIC_XXXX" in {one["topic"] for one in topics if one["isSystem"]}
    assert "orders" in {one["topic"] for one in topics if not one["isSystem"]}


def test_files_are_all_of_the_directory_and_what_their_names_say(golden_533: Path) -> None:
    found = {one["path"]: one for one in rows(golden_533, "files")}
    there = {str(path.relative_to(golden_533)): path for path in golden_533.rglob("*") if path.is_file()}
    assert {path: one["size"] for path, one in found.items()} == {
        path: file.stat().st_size for path, file in there.items()
    }
    for path, one in found.items():
        assert one["diskSize"] == there[path].stat().st_blocks * 512
        assert one["modified"].timestamp() == pytest.approx(there[path].stat().st_mtime, abs=1e-3)
    queue_files = [one for one in found.values() if one["kind"] == "consumequeue"]
    assert {(one["topic"], one["queueId"]) for one in queue_files} == {
        (one["topic"], one["queueId"]) for one in rows(golden_533, "queues")
    }
    assert {one["firstOffset"] for one in found.values() if one["kind"] == "commitlog"} == {
        int(path.name) for path in (golden_533 / "commitlog").iterdir()
    }


@pytest.mark.parametrize(
    "name",
    [f"commitlog/{10**24}", "commitlog/²", "consumequeue/orders/99999999999/0", f"consumequeue/orders/007/{0:020d}"],
)
def test_foreign_files_have_no_offsets(tmp_path: Path, name: str) -> None:
    with open_store(tmp_path) as store:
        put_ok(store)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()
    (found,) = [one for one in rows(tmp_path, "files") if one["path"] == name]
    assert (found["size"], found["topic"], found["queueId"], found["firstOffset"]) == (0, None, None, None)


def test_batches_are_the_last_ones_of_each_application(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for version in (1, 2):
            with store.transaction("app", version) as batch:
                batch.put_messages(pa.table({"body": ["x", "y"]}), topic="orders")
    (one,) = rows(tmp_path, "batches")
    with StoreReader.open(tmp_path) as reader:
        (expected,) = reader.batches()
    assert (one["application"], one["version"], one["rows"]) == ("app", 2, 2)
    assert (one["physicalOffset"], one["endOffset"]) == (expected.physical_offset, expected.end)
    assert milliseconds(one["storeTimestamp"]) == expected.store_timestamp


def test_findings_are_those_of_verify(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store)
    assert rows(tmp_path, "findings") == []
    with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as log:
        log.seek(8)
        log.write(b"junk")
    found, expected = rows(tmp_path, "findings"), verify_store(tmp_path)
    assert found
    assert [(one["severity"], one["check"], one["byteOffset"], one["message"]) for one in found] == [
        (one.severity, one.check, one.offset, one.message) for one in expected
    ]


def test_a_topic_that_cannot_be_read_has_the_reason(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store)
    (tmp_path / "compaction" / "compactionCq" / "orders" / "0").mkdir(parents=True)
    for table in ("topics", "queues"):
        (one,) = rows(tmp_path, table)
        assert one["topic"] == "orders"
        assert one["messages"] is None
        assert "compaction" in one["error"].lower()


def test_another_table_and_another_path_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"Unknown table 'queue'\. Did you mean 'queues'\? The tables are: topics, "):
        store_metadata(tmp_path, "queue")
    with pytest.raises(StoreNotFound):
        store_metadata(tmp_path / "missing", "queues")
