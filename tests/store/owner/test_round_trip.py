"""Messages that were read are put again: whatever a user sees of them comes back equal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from commitlog_store import ALL_COLUMNS, DEFAULT_COLUMNS, MessageStore, StoreReader, export_store
from commitlog_store.cli.app import app
from commitlog_store.columnar.columns import ASSIGNED_COLUMNS
from commitlog_store.errors import InvalidValue
from commitlog_store.format.message_rules import NO_PRODUCERS_TOPICS, STORE_PROPERTIES
from commitlog_store.paths import is_system_topic
from tests.store.owner.owned_store import small
from tests.support.clean_store import assert_clean

# What the store that takes a message gives, and REAL_TOPIC and its like.
KEPT = tuple(name for name in ALL_COLUMNS if name not in ASSIGNED_COLUMNS)


def topics_of(store: Path) -> list[str]:
    """The topics that another store takes: RocketMQ's tools create no longer names, and brokers keep some."""
    with StoreReader.open(store) as reader:
        return [
            topic
            for topic in reader.topics()
            if len(topic) <= 127 and topic not in NO_PRODUCERS_TOPICS and not is_system_topic(topic)
        ]


def batches(store: Path, topics: list[str], columns: tuple[str, ...]) -> list[pa.RecordBatch]:
    with StoreReader.open(store) as reader:
        return [
            batch
            for topic in topics
            for info in reader.queues(topic)
            for batch in reader.read(topic, info.queue_id, info.min_offset, info.max_offset, columns=columns)
        ]


def seen(store: Path, topics: list[str]) -> list[dict[str, Any]]:
    rows = [row for batch in batches(store, topics, KEPT) for row in batch.to_pylist()]
    for row in rows:
        row["properties"] = {name: text for name, text in row["properties"] if name not in STORE_PROPERTIES}
    return rows


@pytest.mark.parametrize("name", ["golden_533", "golden_498"])
def test_put_messages_takes_what_read_gave(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    store = request.getfixturevalue(name)
    topics = topics_of(store)
    with MessageStore.open(tmp_path / "copy", small(mapped_file_size_commit_log=256 << 10)) as copy:
        for batch in batches(store, topics, ALL_COLUMNS):
            result = copy.put_messages(batch)
            assert result.ok, result.reason
    assert seen(tmp_path / "copy", topics) == seen(store, topics)
    assert_clean(tmp_path / "copy")


def test_put_messages_takes_the_default_columns(golden_533: Path, tmp_path: Path) -> None:
    topics = topics_of(golden_533)
    with MessageStore.open(tmp_path / "copy", small(mapped_file_size_commit_log=256 << 10)) as copy:
        for batch in batches(golden_533, topics, DEFAULT_COLUMNS):
            assert copy.put_messages(batch).ok
    there = [(row["topic"], row["body"], row["tags"], row["keys"]) for row in seen(tmp_path / "copy", topics)]
    assert there == [(row["topic"], row["body"], row["tags"], row["keys"]) for row in seen(golden_533, topics)]


def test_properties_of_a_store_are_refused_in_a_table_that_was_not_read(tmp_path: Path) -> None:
    columns = {
        "topic": ["t"],
        "body": [b"b"],
        "properties": pa.array([[("REAL_TOPIC", "orders")]], pa.map_(pa.string(), pa.string())),
    }
    with MessageStore.open(tmp_path / "copy", small(mapped_file_size_commit_log=256 << 10)) as copy:
        assert not copy.put_messages(pa.table(columns)).ok
        assert copy.put_messages(pa.table(columns | {"queueOffset": [7]})).ok
        with pytest.raises(InvalidValue, match="queueOffset2"):
            copy.put_messages(pa.table(columns | {"queueOffset2": [7]}))


def test_produce_takes_what_cat_and_export_wrote(golden_533: Path, tmp_path: Path) -> None:
    topics = topics_of(golden_533)
    export_store(golden_533, f"ndjson:{tmp_path / 'lines'}", topics=topics, columns=ALL_COLUMNS)
    printed = [
        CliRunner().invoke(app, ["cat", str(golden_533), topic, "--json"], catch_exceptions=False).stdout
        for topic in topics
    ]
    for name, data in (("exported", (tmp_path / "lines").read_bytes()), ("printed", "".join(printed).encode())):
        MessageStore.open(tmp_path / name, small(mapped_file_size_commit_log=256 << 10)).close()
        sizes = ("--max-hash-slot-num", "100", "--max-index-num", "400")
        result = CliRunner().invoke(app, ["produce", str(tmp_path / name), "--ndjson", *sizes], input=data)
        assert result.exit_code == 0, result.output
        there, wanted = seen(tmp_path / name, topics), seen(golden_533, topics)
        if name == "printed":  # cat does not print it
            for row in (*there, *wanted):
                del row["flag"]
        assert there == wanted


def test_times_keys_and_fields_of_a_line(tmp_path: Path) -> None:
    line = {"topic": "t", "body": "b", "keys": "k1 k2", "queueOffset": 5, "properties": {"TRAN_MSG": "true", "a": "b"}}
    times = [1_700_000_000_123, "2023-11-14T22:13:20.123", "2023-11-14T23:13:20.123+01:00"]
    data = "".join(json.dumps(line | {"bornTimestamp": time}) + "\n" for time in times)
    MessageStore.open(tmp_path / "store", small(mapped_file_size_commit_log=256 << 10)).close()
    result = CliRunner().invoke(app, ["produce", str(tmp_path / "store"), "--ndjson"], input=data)
    assert result.exit_code == 0, result.output
    for row in seen(tmp_path / "store", ["t"]):
        assert round(row["bornTimestamp"].timestamp() * 1000) == times[0]
        assert (row["keys"], row["properties"]) == ("k1 k2", {"KEYS": "k1 k2", "a": "b"})
    wrong = json.dumps(line | {"bornTimestamp": "noon"})
    result = CliRunner().invoke(app, ["produce", str(tmp_path / "store"), "--ndjson"], input=wrong)
    assert result.exit_code == 1
    assert "bornTimestamp is a time in ISO 8601 or in milliseconds" in result.stderr
