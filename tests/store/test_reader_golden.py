"""Both golden stores, read in every way, compared with all answers of RocketMQ itself about them."""

from __future__ import annotations

import base64
import itertools
import shutil
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import ALL_COLUMNS, DEFAULT_COLUMNS, MessageExt, StoreReader
from commitlog_store.errors import MessageNotFound
from commitlog_store.format.sys_flag import TRANSACTION_MASK, TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE
from tests.support import golden

Answers = dict[str, list[dict[str, Any]]]
Store = tuple[StoreReader, Answers]
Rows = dict[tuple[str, int], list[dict[str, Any]]]
Wholes = tuple[StoreReader, dict[tuple[str, int], list[pa.RecordBatch]]]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

# Not columns of ours, or held under another name.
_ANSWERS_OWN_FIELDS = {"kind", "tagsCode", "body", "bornTimestamp", "storeTimestamp"}


@pytest.fixture(scope="module", params=["queues", "from the log"])
def from_log(request: pytest.FixtureRequest) -> bool:
    """Queues that are derived from the log answer as those of RocketMQ do."""
    return bool(request.param == "from the log")


@pytest.fixture(scope="module", params=["golden_533", "golden_498"])
def store(request: pytest.FixtureRequest, from_log: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path: Path = request.getfixturevalue(request.param)
    name = golden.ROCKETMQ_533 if request.param == "golden_533" else golden.ROCKETMQ_498
    if from_log:
        only_log = tmp_path_factory.mktemp("only-log") / "store"
        shutil.copytree(path / "commitlog", only_log / "commitlog")
        path = only_log
    with StoreReader.open(path, from_log=from_log) as reader:
        yield reader, golden.expected(name)


def _time(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


def _body(answer: dict[str, Any]) -> bytes:
    """What the application sent: RocketMQ's answer holds the stored bytes, which ``packed`` compressed."""
    if answer["topic"] != "packed":
        return base64.b64decode(answer["body"])
    number = int(answer["keys"].removeprefix("z"))
    return f"compressed body {number} ".encode() * 400


def _expected_row(answer: dict[str, Any]) -> dict[str, Any]:
    row = {name: value for name, value in answer.items() if name not in _ANSWERS_OWN_FIELDS}
    row["body"] = _body(answer)
    row["bornTimestamp"] = _time(answer["bornTimestamp"])
    row["storeTimestamp"] = _time(answer["storeTimestamp"])
    row["uniqKey"] = answer["properties"].get("UNIQ_KEY")
    row.setdefault("tags", None)
    row.setdefault("keys", None)
    return row


def _by_queue(answers: Answers) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    of_queues: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for answer in answers["message"]:
        of_queues.setdefault((answer["topic"], answer["queueId"]), []).append(answer)
    for queue in answers["queue"]:
        yield queue, of_queues.get((queue["topic"], queue["queueId"]), [])


@pytest.fixture(scope="module")
def expected_rows(store: Store) -> Rows:
    """What a read of ``ALL_COLUMNS`` gives of each queue. Shared: do not alter it."""
    return {
        (q["topic"], q["queueId"]): [_expected_row(message) for message in found] for q, found in _by_queue(store[1])
    }


@pytest.fixture(scope="module")
def tables(store: Store) -> dict[tuple[str, int], pa.Table]:
    """The same as tables, which the test of every column compares with RocketMQ's answers. Shared: do not alter it."""
    return {
        (topic, queue_id): pa.Table.from_batches(store[0].read(topic, queue_id, 0, columns=ALL_COLUMNS))
        for topic in store[0].topics()
        for queue_id in store[0].queue_ids(topic)
    }


def _rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Of all batches at once, since one by one takes several times as long; each is valid for itself."""
    whole = list(batches)
    for batch in whole:
        batch.validate(full=True)
    rows: list[dict[str, Any]] = pa.Table.from_batches(whole).to_pylist() if whole else []
    for row in rows:
        if "properties" in row:
            row["properties"] = dict(row["properties"])
    return rows


def test_topics_and_queues_are_those_that_rocketmq_lists(store: Store) -> None:
    reader, answers = store
    assert reader.topics() == sorted({queue["topic"] for queue in answers["queue"]})
    listed = [
        {"kind": "queue", "topic": q.topic, "queueId": q.queue_id, "min": q.min_offset, "max": q.max_offset}
        for topic in reader.topics()
        for q in reader.queues(topic)
    ]
    assert listed == answers["queue"]


def test_log_begins_and_ends_where_rocketmq_says(store: Store) -> None:
    reader, answers = store
    (bounds,) = answers["store"]
    assert reader.physical_bounds() == (bounds["minPhysicOffset"], bounds["maxPhysicOffset"])


def test_every_field_of_every_message_through_every_column(store: Store, expected_rows: Rows) -> None:
    reader, answers = store
    for queue in answers["queue"]:
        batches = reader.read(queue["topic"], queue["queueId"], queue["min"], columns=ALL_COLUMNS, verify_crc=True)
        rows = _rows(batches)
        assert rows == expected_rows[queue["topic"], queue["queueId"]]
        assert all(set(row) == set(ALL_COLUMNS) for row in rows)


def _as_answer(message: MessageExt) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "bodyCrc": message.body_crc,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": _time(message.born_timestamp),
        "bornHost": message.born_host,
        "storeTimestamp": _time(message.store_timestamp),
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "msgId": message.message_id,
        "tags": message.tags,
        "keys": " ".join(message.keys) or None,
        "uniqKey": message.unique_key,
        "properties": dict(message.properties),
        "body": message.body,
    }


def test_every_field_of_every_message_by_its_place_and_by_its_id(store: Store) -> None:
    reader, answers = store
    for answer in answers["message"]:
        by_place = reader.message_at(answer["physicalOffset"])
        assert _as_answer(by_place) == _expected_row(answer)
        assert reader.message_by_id(answer["msgId"]) == by_place
        assert reader.message_by_id(answer["msgId"].lower()) == by_place


def test_units_hold_physical_offsets_sizes_and_tags_codes(store: Store) -> None:
    reader, answers = store
    for queue, messages in _by_queue(answers):
        found = [u for units in reader.units(queue["topic"], queue["queueId"], 0, queue["max"], chunk=7) for u in units]
        assert [(int(u["physical_offset"]), int(u["size"]), int(u["tags_code"])) for u in found] == [
            (m["physicalOffset"], m["storeSize"], m["tagsCode"]) for m in messages
        ]


def test_bodies_that_producers_compressed_come_out_as_they_were_sent(golden_533: Path) -> None:
    """zlib from before the choice existed, zlib, LZ4 and zstd: the columns and single messages agree."""
    with StoreReader.open(golden_533) as reader:
        found = {}
        for queue_id in reader.queue_ids("packed"):
            for batch in reader.read("packed", queue_id, 0, columns=["keys", "body", "sysFlag", "physicalOffset"]):
                for row in batch.to_pylist():
                    found[row["keys"]] = row["body"]
                    assert row["sysFlag"] & 1, "stored compressed"
                    assert reader.message_at(row["physicalOffset"]).body == row["body"]
    assert found == {f"z{i}": f"compressed body {i} ".encode() * 400 for i in range(12)}


def test_key_queries_find_what_rocketmq_finds(store: Store) -> None:
    reader, answers = store
    for answer in answers["query"]:
        found = reader.query(answer["topic"], answer["key"])
        assert [message.physical_offset for message in found] == answer["physicalOffsets"]
        assert all(message.topic == answer["topic"] and answer["key"] in message.keys for message in found)


def test_every_key_of_every_message_finds_it(store: Store, from_log: bool) -> None:
    """RocketMQ indexes each key and the unique key; what it answered for a few must hold for all.

    Without an index each query walks the whole log, so every 20th message is enough there.
    """
    reader, answers = store
    for answer in answers["message"][:: 20 if from_log else 1]:
        keys = (answer.get("keys") or "").split()
        for key in [*keys, *filter(None, [answer["properties"].get("UNIQ_KEY")])]:
            assert answer["physicalOffset"] in [m.physical_offset for m in reader.query(answer["topic"], key)]


def test_key_queries_outside_the_messages_time_find_nothing(store: Store) -> None:
    reader, answers = store
    for answer in answers["query"]:
        stored = reader.message_at(answer["physicalOffsets"][0]).store_timestamp
        topic, key = answer["topic"], answer["key"]
        assert reader.query(topic, key, begin=stored, end=stored), "both ends are inclusive"
        assert reader.query(topic, key, begin=stored + 1) == []
        assert reader.query(topic, key, end=stored - 1) == []
        assert reader.query(topic, key + "x") == []
        assert reader.query("packed", key) == [], "the topic is part of the key"


def test_offsets_by_time_are_rocketmqs(store: Store) -> None:
    reader, answers = store
    for answer in answers["offsetByTime"]:
        found = reader.offset_by_time(answer["topic"], answer["queueId"], answer["timestamp"])
        assert found == answer["offset"], answer


@pytest.mark.parametrize(
    ("rows", "size", "verify_crc"),
    [
        pytest.param(1, 1 << 20, False, marks=pytest.mark.stress),
        (7, 1 << 20, True),
        pytest.param(1000, 1, True, marks=pytest.mark.stress),
        (1000, 900, False),
        (16_384, 8 << 20, False),
    ],
)
def test_rows_are_the_same_whatever_the_batches(
    store: Store, tables: dict[tuple[str, int], pa.Table], rows: int, size: int, verify_crc: bool
) -> None:
    reader, answers = store
    for queue in answers["queue"]:
        batches = list(
            reader.read(
                queue["topic"],
                queue["queueId"],
                0,
                queue["max"],
                columns=ALL_COLUMNS,
                verify_crc=verify_crc,
                max_batch_rows=rows,
                max_batch_bytes=size,
            )
        )
        for batch in batches:
            batch.validate(full=True)
        assert pa.Table.from_batches(batches).equals(tables[queue["topic"], queue["queueId"]])
        assert max(batch.num_rows for batch in batches) <= rows
        for batch in batches:
            assert batch.num_rows == 1 or sum(batch["storeSize"].to_pylist()) <= size


def test_rows_are_the_same_whatever_part_of_a_queue_is_read(store: Store) -> None:
    reader, answers = store
    for queue, messages in _by_queue(answers):
        places = [message["physicalOffset"] for message in messages]
        for start, stop in itertools.combinations(range(0, queue["max"] + 1, 11), 2):
            batches = reader.read(queue["topic"], queue["queueId"], start, stop, columns=["physicalOffset"])
            assert [row["physicalOffset"] for row in _rows(batches)] == places[start:stop]


def _some_column_choices() -> list[tuple[str, ...]]:
    singles: list[tuple[str, ...]] = [(name,) for name in ALL_COLUMNS]
    pairs = [(a, b) for a, b in itertools.pairwise(reversed(ALL_COLUMNS))]
    return [*singles, *pairs, DEFAULT_COLUMNS, tuple(reversed(ALL_COLUMNS))]


@pytest.fixture(scope="module")
def wholes(golden_533: Path) -> Iterator[Wholes]:
    """Some queues with all columns."""
    with StoreReader.open(golden_533) as reader:
        queues = [("orders", 1), ("packed", 0), (max(reader.topics(), key=len), 0)]
        yield reader, {queue: list(reader.read(*queue, 0, columns=ALL_COLUMNS)) for queue in queues}


@pytest.mark.parametrize("columns", _some_column_choices(), ids=lambda columns: "-".join(columns)[:40])
def test_a_column_is_the_same_whichever_others_are_read(wholes: Wholes, columns: tuple[str, ...]) -> None:
    reader, queues = wholes
    for (topic, queue_id), batches in queues.items():
        for whole, chosen in zip(batches, reader.read(topic, queue_id, 0, columns=columns), strict=True):
            assert chosen.schema.names == list(columns)
            assert chosen.equals(whole.select(columns))


def test_default_columns_are_those_before_the_properties(golden_533: Path) -> None:
    with StoreReader.open(golden_533) as reader:
        batch = next(reader.read("orders", 0, 0))
    assert tuple(batch.schema.names) == DEFAULT_COLUMNS
    assert "properties" not in DEFAULT_COLUMNS


def test_prepared_and_rolled_back_messages_are_in_the_log_but_in_no_queue(golden_533: Path) -> None:
    """They have no unit, so no queue read may give them; they still can be looked at by their place."""
    with StoreReader.open(golden_533) as reader:
        low, end = reader.physical_bounds()
        in_queues = {m["physicalOffset"] for m in golden.expected(golden.ROCKETMQ_533)["message"]}
        kinds = []
        at = low
        while at < end:
            try:
                message = reader.message_at(at)
            except MessageNotFound:
                at += 256 * 1024 - at % (256 * 1024)  # a file's blank end
                continue
            if at not in in_queues:
                kinds.append(message.sys_flag & 12)
                assert message.queue_offset == 0
            at += message.store_size
    assert set(kinds) == {4, 12}, "prepared and rollback"


def test_keys_lead_to_prepared_messages_and_to_none_that_were_rolled_back(golden_533: Path, from_log: bool) -> None:
    """As RocketMQ's ``queryMessage``: its index has prepared messages (``IndexService.buildIndex``)."""
    prepared, rolled_back = 403, 46_470
    with StoreReader.open(golden_533, from_log=from_log) as reader:
        for place, kind in ((prepared, TRANSACTION_PREPARED_TYPE), (rolled_back, TRANSACTION_ROLLBACK_TYPE)):
            message = reader.message_at(place)
            assert message.sys_flag & TRANSACTION_MASK == kind
            assert reader.message_by_id(message.message_id) == message
            expected: list[int | None] = [place] if kind == TRANSACTION_PREPARED_TYPE else []
            keys = [*message.keys, message.unique_key]
            for key in keys:
                assert key
                assert [one.physical_offset for one in reader.query(message.topic, key)] == expected
            columns = ["physicalOffset"]
            for batch in reader.query_keys(message.topic, keys, columns=columns):
                assert batch.column(0).drop_null().to_pylist() == expected * len(keys)
                assert batch.num_rows == len(keys)


def test_checkpoint_and_abort_file_show_how_the_owner_ended(golden_533: Path, golden_498: Path) -> None:
    with StoreReader.open(golden_533) as clean, StoreReader.open(golden_498) as killed:
        assert (clean.aborted, killed.aborted) == (False, True)
        checkpoint = clean.checkpoint()
        assert checkpoint is not None
        newest = max(message["storeTimestamp"] for message in golden.expected(golden.ROCKETMQ_533)["message"])
        # The very last records are rolled-back transactions and delayed messages, moments after the last in a queue.
        assert abs(checkpoint.physic_msg_timestamp - newest) < 2_000


def test_an_index_file_reports_the_range_it_covers(store: Store, from_log: bool) -> None:
    reader, answers = store
    if from_log:
        assert reader.index_files() == []
        return
    (file,) = reader.index_files()
    _, end = reader.physical_bounds()
    assert 0 <= file.begin_physical_offset < file.end_physical_offset < end
    keys = sum(len((m.get("keys") or "").split()) + ("UNIQ_KEY" in m["properties"]) for m in answers["message"])
    assert file.index_count - 1 >= keys, "those of prepared messages, which are in no queue, are there too"
    assert (file.slot_count, Path(file.path).stat().st_size) == (1000, 84_040)
