"""Few records are dispatched one by one, as columns would dispatch them."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from commitlog_store.columnar.dispatch import DispatchRequests, dispatch_requests, index_entries
from commitlog_store.columnar.few_records import MOST_RECORDS, few_records
from commitlog_store.columnar.scan import scan_records
from commitlog_store.format.record import Record
from tests.store.columnar.log_stretches import as_array, stretch
from tests.store.columnar.record_blocks import one_record, plain_record

BASE = 4096
TOPICS = [b"orders", b"orders", b"audit", "Üml".encode(), b"\xff", b"\xef\xbf\xbd", b""]


def renamed(record: Record, topic: bytes) -> Record:
    return replace(record, topic=topic, total_size=record.total_size - len(record.topic) + len(topic))


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    drawn = draw(st.lists(one_record(), min_size=1, max_size=MOST_RECORDS))
    topics = draw(st.lists(st.sampled_from(TOPICS), min_size=len(drawn), max_size=len(drawn)))
    return [renamed(record, topic) for record, topic in zip(drawn, topics, strict=True)]


@given(records())
def test_requests_and_entries_are_those_of_the_columns(given_records: list[Record]) -> None:
    data = stretch(given_records, BASE)
    scan = scan_records(as_array(data), BASE, check_crc=False)
    requests = dispatch_requests(scan, [])
    found = few_records(data, BASE)
    assert found is not None
    assert found.end == BASE + len(data)
    for field in fields(DispatchRequests):
        ours, theirs = getattr(found.requests, field.name), getattr(requests, field.name)
        if isinstance(theirs, np.ndarray):
            assert (ours.dtype.newbyteorder("="), ours.tolist()) == (theirs.dtype.newbyteorder("="), theirs.tolist())
        elif field.name != "topics":
            assert ours == theirs
    named = [requests.topics[code] for code in requests.topic_codes.tolist()]
    assert [found.requests.topics[code] for code in found.requests.topic_codes.tolist()] == named
    entries = index_entries(scan)
    assert found.entries.key_hashes.tolist() == entries.key_hashes.tolist()
    assert found.entries.rows.tolist() == entries.rows.tolist()


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "rmq_sys_commitlog_batch"])
def test_what_dispatch_does_more_for_is_left_to_columns(topic: str) -> None:
    data = stretch([plain_record(b"a"), renamed(plain_record(b"b"), topic.encode())], BASE)
    assert few_records(data, BASE) is None


def test_messages_in_light_queues_are_left_to_columns() -> None:
    properties = b"INNER_MULTI_DISPATCH\x01%LMQ%one\x02INNER_MULTI_QUEUE_OFFSET\x017\x02"
    assert few_records(stretch([plain_record(properties=properties)], BASE), BASE) is None


def test_many_records_are_left_to_columns() -> None:
    assert few_records(stretch([plain_record(b"a")] * MOST_RECORDS, BASE), BASE) is not None
    assert few_records(stretch([plain_record(b"a")] * (MOST_RECORDS + 1), BASE), BASE) is None


@given(st.integers(1, 400), st.binary(max_size=8))
def test_bytes_that_are_not_whole_records_are_left_to_columns(cut: int, rest: bytes) -> None:
    """They raise the error that names the record."""
    first = bytes(stretch([plain_record(b"a")], BASE))
    data = bytes(stretch([plain_record(b"a"), plain_record(b"b")], BASE))
    left = data[:-cut] + rest
    assume(len(left) not in (len(first), len(data)))  # with the sizes that they name, they may be whole
    assert few_records(left, BASE) is None
    assert few_records(data[cut:], BASE) is None
