"""Many records at once give what one record at a time gives, whatever mixture they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog_store.columnar.bodies import plain_body
from commitlog_store.columnar.columns import ALL_COLUMNS, COLUMN_TYPES, arrow_schema, column_type
from commitlog_store.columnar.decode import record_batch
from commitlog_store.columnar.locate import QueuePlace, locate
from commitlog_store.errors import InvalidValue
from commitlog_store.format.record import HEADER_DTYPES, Record, decode_record, header_size
from commitlog_store.format.sys_flag import CompressionType
from tests.store.columnar.record_blocks import Block, expected_row, one_record, plain_record, rows_of
from tests.support.encoders import encode_record


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(one_record(), min_size=1, max_size=6), st.sampled_from([0, 1, 50]))
def test_columns_equal_one_record_decoding(records: list[Record], gap: int) -> None:
    block = Block(records, gap=gap)
    for record, at in zip(block.records, block.positions.tolist(), strict=True):
        assert decode_record(block.data.data[at:], physical_offset=record.physical_offset) == record
    assert rows_of(block.batch()) == [expected_row(record) for record in block.records]


@given(st.lists(one_record(), min_size=1, max_size=4), st.sets(st.sampled_from(ALL_COLUMNS), min_size=1))
def test_any_choice_of_columns_gives_the_same_values(records: list[Record], chosen: set[str]) -> None:
    block = Block(records)
    columns = tuple(sorted(chosen))
    batch = block.batch(columns)
    assert batch.schema == arrow_schema(columns)
    assert batch.equals(block.batch().select(columns))


@given(st.lists(one_record(), min_size=1, max_size=4))
def test_batches_own_their_bytes(records: list[Record]) -> None:
    """What a caller holds must survive the mapping it came from: overwriting the bytes changes nothing."""
    block = Block(records)
    batch = block.batch()
    before = rows_of(batch)
    block.data[:] = 0xAA
    assert rows_of(batch) == before


def test_light_queues_take_records_of_other_queues_and_show_the_queue_that_was_read() -> None:
    records = [
        decode_record(encode_record(record)) for record in Block([plain_record(b"a"), plain_record(b"b")]).records
    ]
    block = Block([record for record in records if isinstance(record, Record)])
    place = QueuePlace(topic="%LMQ%me", queue_id=0, queue_offsets=np.array([70, 71], np.int64), shared=True)
    located = locate(block.data, block.positions, block.sizes, block.physical, place)
    batch = record_batch(located, ["topic", "queueId", "queueOffset", "body"])
    assert batch.to_pylist() == [
        {"topic": "%LMQ%me", "queueId": 0, "queueOffset": 70, "body": b"a"},
        {"topic": "%LMQ%me", "queueId": 0, "queueOffset": 71, "body": b"b"},
    ]


@pytest.mark.parametrize("kind", CompressionType)
def test_a_compression_type_alone_leaves_the_body_as_it_is(kind: CompressionType) -> None:
    """Brokers write that: a half message put back is stored unpacked, and only the compressed bit is cleared."""
    block = Block([replace(plain_record(b"unpacked"), sys_flag=kind.value)])
    assert block.batch(("body",))["body"].to_pylist() == [b"unpacked"]
    assert plain_body(b"unpacked", kind.value) == b"unpacked"


def test_columns_are_those_that_the_source_documents() -> None:
    assert tuple(COLUMN_TYPES) == ALL_COLUMNS
    assert column_type("body") == pa.binary()
    assert column_type("storeTimestamp") == pa.timestamp("us", tz="UTC")
    assert all(field.nullable for field in arrow_schema(ALL_COLUMNS))


@pytest.mark.parametrize(("wrong", "meant"), [("Body", "body"), ("storetimestamp", "storeTimestamp"), ("tag", "tags")])
def test_unknown_column_is_refused_with_the_nearest_known(wrong: str, meant: str) -> None:
    with pytest.raises(InvalidValue, match=f"Unknown column '{wrong}'. Did you mean '{meant}'"):
        arrow_schema(["topic", wrong])


def test_header_layouts_agree_with_the_sizes() -> None:
    assert all(dtype.itemsize == header_size(flags) for flags, dtype in HEADER_DTYPES.items())
