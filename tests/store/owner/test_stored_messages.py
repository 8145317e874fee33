"""Pulls of stored bytes answer as ``get_message`` does, with the records as they are in the log."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import MessageStore
from commitlog_store.errors import CorruptRecord
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.format.record import Record, decode_record
from commitlog_store.message import MessageExt
from commitlog_store.queue.get_message import GetMessageResult, GetMessageStatus, PullLimits
from commitlog_store.store import pulls_from
from tests.store.retention.small_stores import SMALL, fill

_FILTERS = (
    MessageFilter.parse(),
    MessageFilter.parse(tags="a"),
    MessageFilter.parse(tags="a || c"),
    MessageFilter.parse(tags="none"),
    MessageFilter.parse(filter="n > 100"),
    MessageFilter.parse(tags="b", filter="n BETWEEN 50 AND 90"),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    chosen = random.Random(5)
    with MessageStore.open(tmp_path / "s", SMALL) as store:
        for number in range(400):
            store.put(
                *(chosen.choice(["orders", "others"]), b"x" * chosen.randrange(1200)),
                queue_id=chosen.randrange(2),
                tags=chosen.choice(["a", "b", "c"]),
                properties={"n": str(number)},
            )
        store.dispatch()
        yield store


def _record(data: bytes) -> Iterator[Record]:
    at = 0
    while at < len(data):
        record = decode_record(data[at:])
        assert isinstance(record, Record)
        yield record
        at += record.total_size


def _same(store: MessageStore, offset: int, limits: PullLimits, wanted: MessageFilter) -> GetMessageStatus:
    expected: GetMessageResult = store.get_message(
        "orders", 1, offset, limits.messages, max_bytes=limits.size, filter=wanted
    )
    found = pulls_from(store).stored_messages("orders", 1, offset, limits, wanted)
    assert found[:4] == (
        expected.status, expected.next_begin_offset, expected.min_offset, expected.max_offset
    )  # fmt: skip
    records = list(_record(found.data))
    assert len(records) == found.messages == len(expected.messages)

    def place(message: MessageExt) -> tuple[int, int]:
        return message.physical_offset, message.store_size

    assert [(one.physical_offset, one.total_size) for one in records] == [place(one) for one in expected.messages]
    return found.status


@pytest.mark.parametrize("wanted", _FILTERS, ids=range(len(_FILTERS)))
def test_the_answer_is_that_of_get_message(store: MessageStore, wanted: MessageFilter) -> None:
    end = store.get_message("orders", 1, 0).max_offset
    for limits in (PullLimits(), PullLimits(messages=1), PullLimits(messages=7, size=3000), PullLimits(size=1)):
        for offset in (0, 1, 7, end // 2, end - 1, end, end + 1):
            _same(store, offset, limits, wanted)


def test_records_near_and_far_from_each_other_come_from_memory(tmp_path: Path) -> None:
    """Those near each other are read together, within one file of the log; none is left to the slower reader."""
    chosen = random.Random(6)
    with MessageStore.open(tmp_path / "s", replace(SMALL, mapped_file_size_commit_log=1 << 16)) as store:
        for number in range(300):
            store.put("orders", b"%d" % number, queue_id=1)
            if chosen.random() < 0.5:
                store.put("others", b"x" * chosen.choice([10, 5000, 17_000, 40_000]), queue_id=0)
        store.dispatch()
        log = b"".join(one.read_bytes() for one in sorted(Path(store.path, "commitlog").iterdir()))
        for offset in range(300):
            found = pulls_from(store).stored_in_memory("orders", 1, offset, PullLimits(), MessageFilter())
            assert found is not None
            records = list(_record(found.data))
            assert [one.queue_offset for one in records] == list(range(offset, found.next_begin_offset))
            assert found.data == b"".join(
                log[one.physical_offset : one.physical_offset + one.total_size] for one in records
            )


def test_after_retention_and_past_removed_files(store: MessageStore) -> None:
    fill(store, 300)
    store.clean(max_bytes=400_000)
    low = store.get_message("orders", 1, 10**6).min_offset
    assert low > 0
    seen = {_same(store, offset, PullLimits(), _FILTERS[0]) for offset in (0, low - 1, low, low + 1)}
    assert seen == {GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.FOUND}


def test_unknown_topics_and_queues(store: MessageStore) -> None:
    for topic, queue_id in (("none", 0), ("orders", 7)):
        found = pulls_from(store).stored_messages(topic, queue_id, 0, PullLimits(), MessageFilter())
        assert found == (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, b"", 0)
    assert not (Path(store.path) / "consumequeue" / "none").exists()


def test_a_deleted_topic_is_no_queue(store: MessageStore) -> None:
    _same(store, 0, PullLimits(), MessageFilter())
    store.delete_topic("orders", with_messages=True)
    found = pulls_from(store).stored_messages("orders", 1, 0, PullLimits(), MessageFilter())
    assert found.status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE


def test_no_batch_is_seen_in_part(tmp_path: Path) -> None:
    """Pulls between the units of a batch would see some of its messages."""
    with MessageStore.open(tmp_path / "s") as store:
        pulls = pulls_from(store)
        sizes: set[int] = set()
        stop = threading.Event()

        def pull() -> None:
            while not stop.is_set():
                sizes.add(pulls.stored_messages("orders", 3, 0, PullLimits(), MessageFilter()).max_offset)

        puller = threading.Thread(target=pull)
        puller.start()
        rows = pa.table({"topic": ["orders"] * 8000, "body": [b"x"] * 8000, "queueId": list(range(4)) * 2000})
        for version in range(1, 6):
            with store.transaction("loader", version) as batch:
                batch.put_messages(rows)
        store.dispatch()
        stop.set()
        puller.join()
        assert sizes <= {0, 2000, 4000, 6000, 8000, 10_000}


def test_damage_is_an_error_that_names_the_record(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s") as store:
        fill(store, 20)
        place = store.get_message("orders", 0, 5, 1).messages[0].physical_offset
        with (tmp_path / "s" / "commitlog" / ("0" * 20)).open("r+b") as log:
            log.seek(place + 4)
            log.write(b"\0\0\0\0")
        pulls = pulls_from(store)
        assert pulls.stored_messages("orders", 0, 6, PullLimits(), MessageFilter()).messages == 14
        with pytest.raises(CorruptRecord):
            pulls.stored_messages("orders", 0, 5, PullLimits(), MessageFilter())
