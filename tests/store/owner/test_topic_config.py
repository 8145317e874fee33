"""How many queues a topic has, which decides where messages with a sharding key go; topics added to the list."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store import BatchId, BatchStager, Message, MessageExtBrokerInner, PutMessageStatus, StoreReader
from commitlog_store.config_files import json_file
from commitlog_store.errors import (
    CorruptConfig,
    DiskFull,
    InvalidValue,
    NotAStore,
    PutRefused,
    StoreAccessDenied,
    StoreIOError,
)
from commitlog_store.files import disk
from commitlog_store.format.java_hash import string_hash_code
from commitlog_store.queue.queue_counts import queue_counts
from commitlog_store.queue.topic_config import TopicConfig, parse_topic_config
from tests.crash.simulated_disk import CrashImages, RecordingDisk
from tests.store.owner.owned_store import open_store, put_ok

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


@pytest.mark.parametrize("by", ["put", "put_message", "table", "transaction", "old queues, then a transaction"])
def test_a_sharding_key_keeps_its_queue_when_the_default_number_changes(tmp_path: Path, by: str) -> None:
    """Also in a topic whose messages so far had no keys: with the first key, the number is decided and listed."""
    with open_store(tmp_path, default_topic_queue_nums=4) as store:
        store.put("orders", b"no key")
        if by == "put":
            queues = [store.put("orders", b"x", sharding_key=key).queue_id for key in KEYS]
        elif by == "put_message":
            queues = [store.put_message(Message(topic="orders", body=b"x", sharding_key=key)).queue_id for key in KEYS]
        elif by == "table":
            queues = store.put_messages(TABLE, topic="orders").rows["queueId"].to_pylist()
        else:
            if by != "transaction":
                put_ok(store, queue_id=2)
                store.dispatch()
            with store.transaction("app", 1) as transaction:
                transaction.put_messages(TABLE, topic="orders")
            queues = _queues(4)
    assert queues == _queues(4)
    assert parse_topic_config((tmp_path / "config" / "topics.json").read_bytes(), "") == {"orders": 4}
    with open_store(tmp_path, default_topic_queue_nums=9) as store:
        assert store.put("orders", b"x", sharding_key=KEYS[1]).queue_id == queues[1]
        assert store.put_messages(TABLE, topic="orders").rows["queueId"].to_pylist() == queues
        with store.transaction("app", 2) as transaction:
            transaction.put_messages(TABLE, topic="orders")
    with StoreReader.open(tmp_path) as reader:
        found = reader.scan("orders", columns=["queueId", "properties"]).read_all().to_pylist()
    queue_of = {dict(row["properties"]).get("__SHARDINGKEY"): row["queueId"] for row in found}
    assert [queue_of[key] for key in KEYS] == queues


def test_a_staged_batch_lists_a_topic_that_existed_before_as_it_was_spread(tmp_path: Path) -> None:
    with open_store(tmp_path, default_topic_queue_nums=4) as store:
        put_ok(store, queue_id=5)
        store.dispatch()
        counts = queue_counts(str(tmp_path), "orders", 4)
        with BatchStager(tmp_path, BatchId("app", 1), queue_counts=counts, topic="orders") as stager:
            stager.put(TABLE)
            staged = stager.finish()
        assert staged is not None
        store.commit_batch(BatchId("app", 1), [staged])
    assert queue_counts(str(tmp_path), "orders", 9) == {"orders": 6}


def test_the_topics_of_a_table_are_listed_in_one_write(tmp_path: Path) -> None:
    table = pa.table({"topic": [f"topic-{row % 20}" for row in range(50)], "body": [b"x"] * 50, "shardingKey": KEYS})
    with open_store(tmp_path, default_topic_queue_nums=3) as store:
        put_ok(store, topic="topic-0", queue_id=7)
        store.dispatch()
        store.put_messages(table).raise_for_status()
    root = json.loads((tmp_path / "config" / "topics.json").read_bytes())
    assert root["dataVersion"]["counter"] == 2, "one for the single message before"
    assert {name: entry["writeQueueNums"] for name, entry in root["topicConfigTable"].items()} == {
        f"topic-{number}": 3 if number else 8 for number in range(20)
    }


def test_a_new_topic_waits_for_a_list_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, and the store takes other messages, and this one later."""
    create = disk.create_file

    def fail(path: str, **options: bool) -> int:
        if "topics.json" in path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return create(path, **options)

    with open_store(tmp_path) as store:
        put_ok(store, "known")
        end = store.physical_bounds()[1]
        with monkeypatch.context() as patch:
            patch.setattr(disk, "create_file", fail)
            for fields in ({}, {"sharding_key": "key"}, {"queue_id": 0}, {"delay": 1}):
                with pytest.raises(PutRefused, match=r"cannot be listed .*topics\.json"):
                    store.put("orders", b"x", **fields)
            result = store.put_messages(TABLE, topic="orders")
            assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
            assert result.message_num == 0
            assert store.physical_bounds()[1] == end
            put_ok(store, "known")
        assert store.put("orders", b"x", sharding_key="key").ok


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


def test_the_list_of_a_real_broker_is_read(golden_broker_config: Path) -> None:
    path = golden_broker_config / "topics.json"
    found = parse_topic_config(path.read_bytes(), str(path))
    assert (found["lab_topic"], found["SCHEDULE_TOPIC_XXXX"], found["lab"]) == (4, 18, 16)


def test_names_without_quotes_as_fastjson_writes_them_are_read() -> None:
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
def test_a_list_that_no_broker_writes_is_damage(text: bytes) -> None:
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
    config = TopicConfig(str(tmp_path), 4, lambda topics: [5] * len(topics))
    assert [config.queue_count("orders") for _ in range(3)] == [6, 6, 6], "with no queue to write to it is not listed"
    assert len(reads) == 1
    path.write_text('{"topicConfigTable":{"orders":{"writeQueueNums":2}}}')
    os.utime(path, ns=(1, 1))
    assert config.queue_count("orders") == 2
    assert len(reads) == 2
    path.unlink()
    assert [config.queue_count("orders") for _ in range(3)] == [2, 2, 2], "a sharding key keeps its queue"
    assert len(reads) == 2


LISTED = '{"topicConfigTable":{"orders":{"writeQueueNums":7}}}'


@pytest.mark.parametrize("damage", [None, b"", b"{", b"\0" * 99, b"[]", b'{"topicConfigTable":[]}'])
def test_a_list_that_a_crash_damaged_is_read_from_its_bak_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: bytes | None
) -> None:
    """4.x is for a moment without the list while it writes it, 5.x overwrites it in place."""
    with open_store(tmp_path, default_topic_queue_nums=4) as store:
        path = _config(tmp_path, LISTED)
        path.rename(path.with_name("topics.json.bak"))
        if damage is not None:
            path.write_bytes(damage)
        assert store.put_messages(TABLE, topic="orders").rows["queueId"].to_pylist() == _queues(7)
        assert "topics.json.bak is read instead of" in caplog.text
        assert queue_counts(str(tmp_path), "orders", 4) == {"orders": 7}
        store.create_topic("returns", 3)
    assert parse_topic_config(path.read_bytes(), "") == {"orders": 7, "returns": 3}
    assert path.with_name("topics.json.bak").read_text() == LISTED, "damage must not replace a good .bak"


_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["writeQueueNums", "perm", "attributes", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_LISTS = st.binary(max_size=40) | _VALUES.map(
    lambda value: json.dumps({"topicConfigTable": {"orders": value}}).encode()
)


@given(content=_LISTS, backup=st.none() | _LISTS | st.just(LISTED.encode()))
def test_whatever_the_bytes_are_the_number_is_right_or_the_error_is_named(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, backup: bytes | None
) -> None:
    store = tmp_path_factory.mktemp("store", numbered=True)
    path = _config(store, "")
    path.write_bytes(content)
    if backup is not None:
        path.with_name("topics.json.bak").write_bytes(backup)
    topics = _listing(store)
    try:
        count = topics.queue_count("orders")
    except CorruptConfig:
        assert backup != LISTED.encode(), "a good .bak was not read"
        return
    assert 0 < count < 2**31
    assert topics.put_fault("orders") is None or "orders" in str(topics.put_fault("orders"))


@pytest.mark.parametrize("perm", [0, 1, 4, 5])
def test_a_topic_without_the_bit_for_writing_rejects_puts(tmp_path: Path, perm: int) -> None:
    entry = f'"closed":{{"writeQueueNums":4,"perm":{perm}}}'
    with open_store(tmp_path) as store:
        path = _config(tmp_path, f'{{"topicConfigTable":{{{entry}}}}}')
        end = store.physical_bounds()[1]
        words = f"'closed' is closed for producers: its perm is {perm} in {path}, without the 2 for writing"
        for topic, delay in (("closed", 0), ("closed", 3)):
            result = store.put_message(
                Message(topic=topic, body=b"x", properties={"DELAY": str(delay)} if delay else {})
            )
            assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
            assert words in result.reason
        rows = pa.table({"topic": ["closed", "open"], "body": [b"x", b"y"]})
        mixed = store.put_messages(rows)
        assert mixed.status is PutMessageStatus.MESSAGE_ILLEGAL
        assert words in mixed.reason
        assert mixed.rows["status"].to_pylist() == ["MESSAGE_ILLEGAL", "PUT_OK"]
        with (
            pytest.raises(PutRefused, match="closed for producers"),
            store.transaction("app", 1) as transaction,
        ):
            transaction.put_messages(rows)
        with (
            pytest.raises(PutRefused, match="closed for producers"),
            BatchStager(tmp_path, BatchId("app", 2), queue_counts={}) as stager,
        ):
            stager.put(rows)
        assert store.physical_bounds()[1] > end
        path.write_text(path.read_text().replace(f'"perm":{perm}', '"perm":6'))
        put_ok(store, topic="closed")


def test_a_batch_is_refused_when_its_topic_was_closed_while_it_was_staged(tmp_path: Path) -> None:
    batch = BatchId("app", 1)
    with open_store(tmp_path) as store:
        with BatchStager(tmp_path, batch, queue_counts={}, topic="orders") as stager:
            stager.put(TABLE)
            staged = stager.finish()
        assert staged is not None
        path = _config(tmp_path, '{"topicConfigTable":{"orders":{"writeQueueNums":4,"perm":4}}}')
        end = store.physical_bounds()[1]
        with pytest.raises(PutRefused, match=r"Nothing was written: topic 'orders' is closed for producers"):
            store.commit_batch(batch, [staged])
        assert store.physical_bounds()[1] == end
        path.write_text(path.read_text().replace('"perm":4', '"perm":2'))
        assert store.commit_batch(batch, [staged]).rows == len(KEYS)


def test_what_a_broker_delivers_goes_into_a_closed_topic_too(tmp_path: Path) -> None:
    """RocketMQ's store does not look at perm; its clients do."""
    with open_store(tmp_path) as store:
        _config(tmp_path, '{"topicConfigTable":{"orders":{"perm":4}}}')
        assert store.put_message(MessageExtBrokerInner(topic="orders", body=b"x")).status is PutMessageStatus.PUT_OK


def _listing(store: Path) -> TopicConfig:
    return TopicConfig(str(store), 4)


def _broker_list(store: Path, golden_broker_config: Path) -> Path:
    """The list of a real broker, in a store of its own."""
    path = store / "config" / "topics.json"
    path.parent.mkdir(parents=True)
    shutil.copyfile(golden_broker_config / "topics.json", path)
    return path


def _entry(name: str, queue_nums: int) -> dict[str, Any]:
    return {
        "attributes": {}, "order": False, "perm": 6, "readQueueNums": queue_nums, "topicFilterType": "SINGLE_TAG",
        "topicName": name, "topicSysFlag": 0, "writeQueueNums": queue_nums,
    }  # fmt: skip


def test_a_topic_joins_a_brokers_list_in_the_brokers_own_shape(tmp_path: Path, golden_broker_config: Path) -> None:
    """Byte for byte, since that broker wrote no unquoted names: all else stands as it stood."""
    path = _broker_list(tmp_path, golden_broker_config)
    old = path.read_text()
    before = int(time.time() * 1000)
    _listing(tmp_path).create_topic("orders", 6)
    written = json.loads(path.read_text())
    version = written["dataVersion"]
    assert before <= version["timestamp"] <= int(time.time() * 1000)
    assert (version["counter"], version["stateVersion"]) == (2, 0)
    like = json.loads(old)["topicConfigTable"]["lab_topic"]
    added = written["topicConfigTable"]["orders"]
    assert added == {**like, "topicName": "orders", "readQueueNums": 6, "writeQueueNums": 6}
    assert list(added) == list(like)
    text = "".join(f"\t\t\t{json.dumps(name)}:{json.dumps(value)},\n" for name, value in added.items())
    expected = old.replace('"counter":1,', '"counter":2,')
    expected = expected.replace(str(json.loads(old)["dataVersion"]["timestamp"]), str(version["timestamp"]))
    expected = expected.removesuffix("\n\t}\n}") + ',\n\t\t"orders":{\n' + text.removesuffix(",\n") + "\n\t\t}\n\t}\n}"
    assert path.read_text() == expected
    assert path.with_name("topics.json.bak").read_text() == old
    assert sorted(os.listdir(path.parent)) == ["topics.json", "topics.json.bak"]
    found = parse_topic_config(path.read_bytes(), str(path))
    assert found == {**parse_topic_config(old.encode(), ""), "orders": 6}


def test_the_first_topic_creates_the_list(tmp_path: Path) -> None:
    config = _listing(tmp_path)
    assert config.queue_count("orders") == 4
    config.create_topic("orders", 9)
    assert config.queue_count("orders") == 9
    config.create_topic("%RETRY%" + "g" * 200, 65_536)
    root = json.loads((tmp_path / "config" / "topics.json").read_text())
    assert list(root) == ["dataVersion", "topicConfigTable"]
    assert (root["dataVersion"]["counter"], root["dataVersion"]["stateVersion"]) == (2, 0)
    assert root["topicConfigTable"]["orders"] == _entry("orders", 9)


def test_a_store_spreads_a_created_topic_over_its_queues(tmp_path: Path) -> None:
    with open_store(tmp_path, default_topic_queue_nums=4) as store:
        _listing(tmp_path).create_topic("orders", 11)
        assert store.put_messages(TABLE, topic="orders").rows["queueId"].to_pylist() == _queues(11)


def test_a_listed_topic_is_left_alone(tmp_path: Path) -> None:
    path = _config(tmp_path, '{"topicConfigTable":{"orders":{"writeQueueNums":0}}}')
    before = path.read_bytes(), path.stat().st_mtime_ns
    _listing(tmp_path).create_topic("orders", 7)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert os.listdir(path.parent) == ["topics.json"]


def test_unknown_fields_of_the_list_stay(tmp_path: Path) -> None:
    """Unquoted names are quoted; all else is the same JSON."""
    text = (
        '{"new":[1.5,null,{"deep":"\\ud800 é"}],"dataVersion":{"counter":41,"stateVersion":7,"more":true},'
        '"topicConfigTable":{"t":{"attributes":{"+message.type":"FIFO",3:4},"writeQueueNums":5,"later":-1e-7}}}'
    )
    path = _config(tmp_path, text)
    _listing(tmp_path).create_topic("orders", 2)
    root = json.loads(path.read_text())
    expected = json.loads(text.replace("3:4", '"3":4'))
    assert root["dataVersion"].pop("timestamp") > 1_700_000_000_000
    expected["dataVersion"]["counter"] = 42
    expected["topicConfigTable"]["orders"] = _entry("orders", 2)
    assert root == expected


@pytest.mark.parametrize(
    ("topic", "queue_nums"),
    [("", 4), ("../orders", 4), ("a" * 128, 4), ("orders", 0), ("orders", -1), ("orders", 65_537)],
)
def test_an_impossible_topic_is_refused(tmp_path: Path, topic: str, queue_nums: int) -> None:
    with pytest.raises(InvalidValue):
        _listing(tmp_path).create_topic(topic, queue_nums)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"topicConfigTable":',
        '{"topicConfigTable":{"t":4}}',
        '{"topicConfigTable":{"t":{"writeQueueNums":-1}}}',
        '{"dataVersion":[]}',
        '{"dataVersion":{"counter":"1"}}',
        '{"dataVersion":{"counter":9223372036854775807}}',
        '{"a number that would not come back":1e999}',
    ],
)
def test_to_a_damaged_list_nothing_is_added(tmp_path: Path, text: str) -> None:
    path = _config(tmp_path, text)
    with pytest.raises(CorruptConfig, match=r"topics\.json"):
        _listing(tmp_path).create_topic("orders", 4)
    assert path.read_text() == text
    assert os.listdir(path.parent) == ["topics.json"]


@pytest.mark.parametrize("dangling", [False, True])
def test_a_list_that_is_a_link_is_not_written(tmp_path: Path, dangling: bool) -> None:
    """Invariant 10."""
    outside = tmp_path / "outside.json"
    if not dangling:
        outside.write_text("{}")
    (tmp_path / "store" / "config").mkdir(parents=True)
    (tmp_path / "store" / "config" / "topics.json").symlink_to(outside)
    with pytest.raises(NotAStore, match=r"topics\.json is a symbolic link"):
        _listing(tmp_path / "store").create_topic("orders", 4)
    assert not outside.exists() if dangling else outside.read_text() == "{}"
    assert os.listdir(tmp_path / "store" / "config") == ["topics.json"]


def test_a_directory_that_is_a_link_is_not_written(tmp_path: Path) -> None:
    """Invariant 10."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "config").symlink_to(tmp_path / "outside")
    with pytest.raises(NotAStore, match="config is a symbolic link"):
        _listing(tmp_path / "store").create_topic("orders", 4)
    assert not os.listdir(tmp_path / "outside")


@pytest.mark.parametrize("name", ["topics.json.tmp", "topics.json.bak.tmp", "topics.json.bak"])
def test_links_under_the_temporary_names_are_replaced_and_not_followed(tmp_path: Path, name: str) -> None:
    """Invariant 10."""
    path = _config(tmp_path, "{}")
    outside = tmp_path / "outside"
    outside.write_text("not ours")
    path.with_name(name).symlink_to(outside)
    _listing(tmp_path).create_topic("orders", 4)
    assert outside.read_text() == "not ours"
    assert parse_topic_config(path.read_bytes(), "") == {"orders": 4}
    assert path.with_name("topics.json.bak").read_text() == "{}"


CALLS = ["create_file", "write_at", "sync", "rename", "unlink", "make_directory", "sync_directory"]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("turn", [0, 1])
@pytest.mark.parametrize("there", [False, True])
def test_a_disk_that_fails_leaves_a_whole_list(
    tmp_path: Path, golden_broker_config: Path, call: str, turn: int, code: int, there: bool
) -> None:
    """The old one, unless the failure came after the rename: then the new one, which may not be on the device."""
    path = _broker_list(tmp_path, golden_broker_config) if there else tmp_path / "config" / "topics.json"
    old = path.read_bytes() if there else None
    if there:
        path.with_name("topics.json.tmp").write_bytes(b"left by a crash")
        path.with_name("topics.json.bak.tmp").write_bytes(b"left by a crash")
    config = _listing(tmp_path)
    real, made = getattr(disk, call), []

    def failing(*arguments: Any) -> Any:
        made.append(arguments)
        if len(made) == turn + 1:
            raise OSError(code, "injected")
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, call, failing)
        raised = None
        try:
            config.create_topic("orders", 4)
        except (StoreIOError, DiskFull) as error:
            raised = error
    if len(made) > turn:
        assert raised is not None, "a failure was ignored"
        assert (raised.path, raised.errno) == (str(path), code)
        last = path.read_bytes() if path.exists() else None
        renamed = call == "sync_directory" and (there or turn == 1)
        assert last == old if not renamed else parse_topic_config(last or b"", "")["orders"] == 4
        assert isinstance(raised, DiskFull) is (code == errno.ENOSPC and not renamed), "nothing is written"
        assert config.queue_count("orders") == 4
        if there:
            assert config.queue_count("BenchmarkTest") == 1024
    config.create_topic("orders", 4)
    assert parse_topic_config(path.read_bytes(), "")["orders"] == 4
    assert set(os.listdir(path.parent)) <= {"topics.json", "topics.json.bak"}


def test_after_a_crash_anywhere_the_list_is_the_old_one_or_the_new_one(
    tmp_path: Path, golden_broker_config: Path
) -> None:
    store = tmp_path / "store"
    path = _broker_list(store, golden_broker_config)
    lists = [path.read_bytes()]
    recorded = RecordingDisk(store)
    with recorded.recording():
        for topic in ("orders", "returns"):
            _listing(store).create_topic(topic, 4)
            lists.append(path.read_bytes())
    images, chance, found = CrashImages(recorded), random.Random(7), set()
    for point in range(recorded.now + 1):
        images.advance(point)
        for _ in range(20):
            images.write(tmp_path / "crashed", chance)
            found.add(lists.index((tmp_path / "crashed" / "config" / "topics.json").read_bytes()))
            if (backup := tmp_path / "crashed" / "config" / "topics.json.bak").exists():
                assert backup.read_bytes() in lists
    assert found == {0, 1, 2}
    for _ in range(20):
        images.write(tmp_path / "crashed", chance)
        assert (tmp_path / "crashed" / "config" / "topics.json").read_bytes() == lists[2], "it was synced in the end"


def test_a_directory_without_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _config(tmp_path, "{}")

    def denied(path: str) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(disk, "create_file", denied)
    with pytest.raises(StoreAccessDenied, match=r"config"):
        _listing(tmp_path).create_topic("orders", 4)
    assert path.read_text() == "{}"


def _decodings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of config files that are decoded from now on."""
    decoded: list[str] = []
    decode = json_file.decode_config

    def noting(data: bytes, path: str, subject: str) -> dict[str, Any]:
        decoded.append(os.path.basename(path))
        return decode(data, path, subject)

    monkeypatch.setattr(json_file, "decode_config", noting)
    return decoded


def _topics_with(store: Path) -> TopicConfig:
    (store / "config").mkdir()
    return TopicConfig(str(store), 4)


def test_new_topics_are_added_to_a_known_list_without_decoding_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics, path = _topics_with(tmp_path), tmp_path / "config" / "topics.json"
    topics.list_queues([("first", 0)])
    decoded = _decodings(monkeypatch)
    for number in range(3):
        before = path.read_bytes()
        topics.list_queues([(f"new-{number}", 0), (f"high-{number}", 9)])
        assert path.with_name("topics.json.bak").read_bytes() == before
    assert not decoded
    root = json.loads(path.read_bytes())
    assert path.read_bytes() == json_file.encode_config(root, str(path), "")
    assert root["dataVersion"]["counter"] == 4
    table = root["topicConfigTable"]
    assert list(table) == ["first", "new-0", "high-0", "new-1", "high-1", "new-2", "high-2"]
    assert (table["high-2"]["writeQueueNums"], table["high-2"]["readQueueNums"]) == (10, 10)
    assert table["new-2"] == {**table["first"], "topicName": "new-2"}


@pytest.mark.parametrize(
    "change",
    [
        lambda root: {**root, "topicConfigTable": {**root["topicConfigTable"], "brokers": {"topicName": "brokers"}}},
        lambda root: {**root, "more": {"a": 1}},
        lambda root: dict(reversed(root.items())),
        lambda root: {**root, "topicConfigTable": {}},
        lambda root: {**root, "dataVersion": {"counter": 77}},
    ],
)
def test_topics_are_added_to_what_another_program_has_made_of_the_list(change: Any, tmp_path: Path) -> None:
    topics, path = _topics_with(tmp_path), tmp_path / "config" / "topics.json"
    topics.list_queues([("first", 0)])
    root = change(json.loads(path.read_bytes()))
    path.write_bytes(json.dumps(root).encode())
    for number in range(3):
        topics.list_queues([(f"new-{number}", 0)])
        now = json.loads(path.read_bytes())
        assert now["dataVersion"]["counter"] == root["dataVersion"]["counter"] + number + 1
        assert list(now["topicConfigTable"])[: len(root["topicConfigTable"])] == list(root["topicConfigTable"])
        assert f"new-{number}" in now["topicConfigTable"]
        assert now.get("more") == root.get("more")


def test_a_list_that_is_damaged_under_its_owner_takes_no_new_topics_unread(tmp_path: Path) -> None:
    """Same size, same times: nothing but the content shows it."""
    topics, path = _topics_with(tmp_path), tmp_path / "config" / "topics.json"
    topics.list_queues([("first", 0)])
    topics.list_queues([("second", 0)])
    times, data = path.stat(), path.read_bytes()
    path.write_bytes(data.replace(b'"perm":6', b'"perm":{'))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    topics.list_queues([("third", 0)])  # read from .bak, which has the first
    assert list(json.loads(path.read_bytes())["topicConfigTable"]) == ["first", "third"]


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_changes_gives_the_list_of_a_store_that_decodes_each_time(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    for name in ("quick", "plain"):
        (tmp_path / name).mkdir()
    quick, plain = _topics_with(tmp_path / "quick"), _topics_with(tmp_path / "plain")
    for number in range(40):
        kind = chosen.randrange(6)
        topic, queue_id = f"topic-{chosen.randrange(30)}", chosen.randrange(12)
        for topics in (quick, plain):
            if topics is plain:
                topics._version = None
            if kind == 0:
                topics.remove_topic(topic)
            elif kind == 1:
                topics.create_topic(topic, queue_id + 1, perm=chosen.choice([4]))
            else:
                topics.list_queues([(topic, queue_id), (f"other-{number}", 0)])
    tables = [
        json.loads((tmp_path / name / "config" / "topics.json").read_bytes())["topicConfigTable"]
        for name in ("quick", "plain")
    ]
    assert tables[0] == tables[1]
    assert list(tables[0]) == list(tables[1])
