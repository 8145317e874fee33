"""Arguments of another kind than is meant: ``InvalidValue`` that names them, and nothing was done."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import BatchId, MessageStore, StoreReader, connect
from commitlog_store.errors import InvalidValue
from commitlog_store.retention.decision import CleanReport
from tests.store.owner.owned_store import open_store, put_ok
from tests.store.serve.servers import served

POSITIONS = r"\(topic, queue_id\): offset"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """A store with a message in queue 0 of ``orders``."""
    with open_store(tmp_path / "store") as made:
        put_ok(made, queue_id=0)
        made.dispatch()
        yield made


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("consumer", "A Consumer cannot be pickled or copied"),
        ("transaction", "A Transaction cannot be pickled or copied"),
        ("half", "A TransactionalMessageService cannot be pickled or copied"),
    ],
)
@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_belongs_to_a_process_is_not_pickled_or_copied(
    store: MessageStore, name: str, words: str, copied: Callable[[object], object]
) -> None:
    """A copy of a consumer left the group when it was dropped, in place of the consumer."""
    consumer = store.consumer("group", ["orders"])
    of: dict[str, object] = {
        "consumer": consumer,
        "transaction": store.transaction("app", 1),
        "half": store.half_messages,
    }
    with pytest.raises(InvalidValue, match=words):
        copied(of[name])
    assert [message.topic for message in consumer.poll()] == ["orders"]


@pytest.mark.parametrize("positions", [None, 5, "orders", [("orders", 0)]], ids=repr)
def test_positions_that_are_no_mapping_are_refused(store: MessageStore, positions: Any) -> None:
    with store.reader() as reader, pytest.raises(InvalidValue, match=POSITIONS):
        reader.wait_for_any(positions, 0.0)


@pytest.mark.parametrize("positions", [{"orders": 0}, {("orders",): 0}, {5: 0}], ids=repr)
def test_positions_of_what_is_no_queue_are_refused(store: MessageStore, positions: Any) -> None:
    with store.reader() as reader, pytest.raises(InvalidValue, match=r"is \(topic, queue_id\), not"):
        reader.wait_for_any(positions, 0.0)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("offsets_by_time", {"wanted": None}, r"list of \(queue_info, timestamp_ms\)"),
    ("offsets_by_time", {"wanted": [5]}, r"\(queue_info, timestamp_ms\), not 5"),
    ("offsets_by_time", {"wanted": [("orders", 0)]}, "bounds is a QueueInfo"),
    ("read_in_turn", {"ranges": None}, r"list of \(topic, queue_id, start, stop\)"),
    ("read_together", {"ranges": None}, r"list of \(topic, queue_id, start, stop\)"),
    ("read_together", {"ranges": [("orders", 0, 0, 1)], "filter": "TAGS = 'a'"}, "filter is a MessageFilter"),
    ("read_in_turn", {"ranges": [("orders", 0, 0, 1)], "filter": 5}, "filter is a MessageFilter"),
    ("read_side_by_side", {"ranges": [("orders", 0, 0, 1)], "filter": 5}, "filter is a MessageFilter"),
]


@pytest.mark.parametrize(("method", "given", "words"), WRONG, ids=repr)
def test_a_wrong_argument_of_a_reader_is_refused_by_its_name(
    store: MessageStore, method: str, given: dict[str, Any], words: str
) -> None:
    with store.reader() as reader, pytest.raises(InvalidValue, match=words):
        getattr(reader, method)(**given)


def test_an_archive_that_is_no_address_is_refused(store: MessageStore) -> None:
    wrong: Any = 5
    with pytest.raises(InvalidValue, match="archive is the address of an archive"):
        StoreReader.open(store.path, archive=wrong)


@pytest.mark.parametrize("retain", [None, 5, b"orders", "orders"], ids=repr)
def test_topics_to_retain_that_are_no_list_are_refused(store: MessageStore, retain: Any) -> None:
    with pytest.raises(InvalidValue, match="retain is a list of topics"):
        store.clean_unused_topics(retain)


@pytest.mark.parametrize(
    ("batch", "staged", "words"),
    [
        (None, [], "batch is a BatchId, not None"),
        ("app", [], "batch is a BatchId, not 'app'"),
        (BatchId("app", 1), None, "staged is a list of StagedFile"),
        (BatchId("app", 1), ["file"], "staged is a list of StagedFile"),
    ],
)
def test_a_commit_of_other_arguments_is_refused(store: MessageStore, batch: Any, staged: Any, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        store.commit_batch(batch, staged)
    assert not store.batches()


def test_dead_letters_are_not_redriven_where_skipped_is_no_list(store: MessageStore) -> None:
    """It was found out after the dead letters had been redriven."""
    put_ok(store, topic="%DLQ%group", queue_id=0)
    wrong: Any = ()
    with pytest.raises(InvalidValue, match="skipped is a list"):
        store.redrive("group", skipped=wrong)
    assert store.redrive("group") == 1


@pytest.mark.parametrize("places", [None, 5, ["orders"], {"orders": 0}], ids=repr)
def test_places_that_are_acknowledged_are_checked(store: MessageStore, places: Any) -> None:
    with store.consumer("group", ["orders"]) as consumer:
        consumer.poll()
        with pytest.raises(InvalidValue, match=r"\(topic, queue_id, offset\)"):
            consumer.acknowledge(places)
        consumer.acknowledge([("orders", 0, 0)])


def test_messages_put_together_are_a_list(store: MessageStore) -> None:
    wrong: Any = None
    with pytest.raises(InvalidValue, match="messages is a list of Message"):
        store.put_together(wrong)


def test_a_request_to_clean_is_one(store: MessageStore) -> None:
    wrong: Any = "all"
    with pytest.raises(InvalidValue, match="request is a CleanRequest"):
        store.clean_as(wrong)
    assert isinstance(store.clean(max_bytes=1 << 40), CleanReport)


def test_handles_of_a_served_store_are_not_pickled(store: MessageStore) -> None:
    with served(owned=store) as url, connect(url) as remote:
        with remote.consumer("group", ["orders"]) as consumer, remote.transaction("app", 1) as transaction:
            for one in (remote, consumer, transaction):
                with pytest.raises(InvalidValue, match=f"A {type(one).__name__} cannot be pickled or copied"):
                    pickle.dumps(one)
        with StoreReader.open(url) as reader:
            wrong: Any = None
            with pytest.raises(InvalidValue, match=POSITIONS):
                reader.wait_for_any(wrong)
            for method in ("read_together", "read_in_turn", "offsets_by_time"):
                with pytest.raises(InvalidValue, match="A list of"):
                    getattr(reader, method)(None)
        with pytest.raises(InvalidValue, match="retain is a list of topics"):
            remote.clean_unused_topics(wrong)
