"""Many records encoded at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.columnar.records import TopicRows, encode_records, new_headers, patch_late_fields
from commitlog_store.errors import InvalidValue
from commitlog_store.format.record import MAGIC_V1, MAGIC_V2, Record, body_crc, decode_record
from tests.store.columnar.record_blocks import properties_of_one
from tests.support.encoders import encode_record


def _all_in(topic: str, count: int) -> TopicRows:
    return TopicRows([topic], np.zeros(count, np.int32))


@given(
    st.lists(st.tuples(st.binary(max_size=40), properties_of_one), max_size=6),
    st.sampled_from([0, 16, 32, 48]),
    st.sampled_from(["t", "orders", "t" * 127, "t" * 128, "é" * 64]),
    st.integers(0, 2**62),
)
def test_many_records_encoded_equal_one_at_a_time(
    values: list[tuple[bytes, bytes]], flags: int, topic: str, place: int
) -> None:
    count = len(values)
    headers = new_headers(count, flags)
    rng = np.random.default_rng(count)
    for name in ("queue_id", "flag", "born_port", "store_port", "reconsume_times"):
        headers[name] = rng.integers(-(2**31), 2**31, count)
    headers["born_timestamp"] = rng.integers(0, 2**60, count)
    headers["prepared_transaction_offset"] = rng.integers(-(2**63), 2**63 - 1, count)
    headers["sys_flag"] |= 8
    born, store = (bytes(range(16)) if flags & bit else bytes([10, 1, 2, 3]) for bit in (16, 32))
    headers["born_ip"], headers["store_ip"] = np.void(born), np.void(store)
    bodies = pa.array([body for body, _ in values], pa.large_binary())
    properties = pa.array([text for _, text in values], pa.large_binary())
    encoded = encode_records(headers, bodies, _all_in(topic, count), [properties])
    offsets, times = np.arange(count) + 7, np.arange(count) + 1_700_000_000_000
    places = place + encoded.starts[:-1]
    patched = patch_late_fields(
        encoded, host_flags=flags, queue_offsets=offsets, physical_offsets=places, store_timestamps=times
    )
    assert patched.starts[-1] == len(patched.data)
    for row, (body, text) in enumerate(values):
        data = patched.data[patched.starts[row] : patched.starts[row + 1]].tobytes()
        decoded = decode_record(data, physical_offset=int(places[row]))
        assert isinstance(decoded, Record)
        assert encode_record(decoded) == data
        assert decoded.magic == (MAGIC_V1 if len(topic.encode()) <= 127 else MAGIC_V2)
        assert (decoded.body, decoded.properties, decoded.topic) == (body, text, topic.encode())
        assert (decoded.queue_offset, decoded.store_timestamp) == (7 + row, 1_700_000_000_000 + row)
        assert (decoded.born_ip, decoded.store_ip, decoded.sys_flag) == (born, store, flags | 8)
        assert (decoded.queue_id, decoded.flag) == (int(headers["queue_id"][row]), int(headers["flag"][row]))
        assert decoded.prepared_transaction_offset == int(headers["prepared_transaction_offset"][row])
        assert decoded.body_crc == body_crc(body)


def test_slices_of_bodies_and_properties_are_encoded_as_such() -> None:
    """An Arrow slice keeps the whole buffers; only its own rows may be written."""
    bodies = pa.array([b"no", b"yes", b"yes too", b"no"], pa.large_binary()).slice(1, 2)
    properties = pa.array([b"no\x01no", b"a\x01b", b"", b"no\x01no"], pa.large_binary()).slice(1, 2)
    encoded = encode_records(new_headers(2), bodies, _all_in("t", 2), [properties])
    found = [decode_record(encoded.data[s:].tobytes()) for s in encoded.starts[:-1].tolist()]
    assert [(r.body, r.properties) for r in found if isinstance(r, Record)] == [(b"yes", b"a\x01b"), (b"yes too", b"")]


@pytest.mark.parametrize("topic", ["", "t" * 32768])
def test_topic_that_fits_no_record_is_refused(topic: str) -> None:
    with pytest.raises(InvalidValue, match="1 to 32767"):
        encode_records(new_headers(1), pa.array([b""], pa.large_binary()), _all_in(topic, 1), [b""])
