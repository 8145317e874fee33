"""The checkpoint file: five numbers in 4,096 bytes, and impossible ones are refused."""

from __future__ import annotations

from dataclasses import astuple, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.errors import InvalidValue
from commitlog_store.format.checkpoint import (
    CHECKPOINT_SIZE,
    NO_OFFSET,
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
)
from commitlog_store.format.timestamps import MAX_TIMESTAMP_MS
from tests.store.format.golden_files import STORES, messages, store_file
from tests.support import golden

TIMES = [field.name for field in fields(Checkpoint) if field.name.endswith("_timestamp")]
OFFSETS = [field.name for field in fields(Checkpoint) if field.name.endswith("_offset")]

TIME = st.integers(0, MAX_TIMESTAMP_MS)
OFFSET = st.integers(NO_OFFSET, 2**63 - 1)

FIRST = Checkpoint(1, 2, 3, 4, 5)


@pytest.mark.parametrize("store", STORES)
def test_file_of_rocketmq_encodes_to_the_same_bytes(store: str) -> None:
    data = store_file(store, "checkpoint")
    assert encode_checkpoint(decode_checkpoint(data)) == data


def test_clean_stop_leaves_the_last_store_time() -> None:
    checkpoint = decode_checkpoint(store_file(golden.ROCKETMQ_533, "checkpoint"))
    last = max(message["storeTimestamp"] for message in messages(golden.ROCKETMQ_533))
    assert checkpoint.logics_msg_timestamp == last


def test_store_of_4_x_has_no_offsets() -> None:
    checkpoint = decode_checkpoint(store_file(golden.ROCKETMQ_498, "checkpoint"))
    assert (checkpoint.master_flushed_offset, checkpoint.confirm_physical_offset) == (0, 0)


def test_fields_stand_in_their_order_and_the_rest_is_zero() -> None:
    data = encode_checkpoint(FIRST)
    assert len(data) == CHECKPOINT_SIZE == 4096
    assert data[:40].hex() == "".join(f"{number:016x}" for number in (1, 2, 3, 4, 5))
    assert not any(data[40:])


@given(st.builds(Checkpoint, TIME, TIME, TIME, OFFSET, OFFSET))
def test_checkpoints_are_read_back(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


def test_new_checkpoint_of_zeros_is_fine() -> None:
    assert astuple(decode_checkpoint(bytes(CHECKPOINT_SIZE))) == (0, 0, 0, 0, 0)


def test_bytes_after_the_fields_are_not_looked_at() -> None:
    assert decode_checkpoint(encode_checkpoint(FIRST)[:40] + b"\xff" * 4056) == FIRST


@pytest.mark.parametrize("size", [0, 24, 40, 4095, 4097, 8192])
def test_file_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(InvalidValue, match=f"4096 bytes, not {size}"):
        decode_checkpoint(bytes(size))


@pytest.mark.parametrize("value", [-1, -(2**63), MAX_TIMESTAMP_MS + 1, 2**63 - 1])
@pytest.mark.parametrize("field", TIMES)
def test_impossible_time_is_refused(field: str, value: int) -> None:
    at = [each.name for each in fields(Checkpoint)].index(field) * 8
    data = bytearray(encode_checkpoint(FIRST))
    data[at : at + 8] = value.to_bytes(8, "big", signed=True)
    with pytest.raises(InvalidValue, match=f"{field} .* not {value}"):
        decode_checkpoint(bytes(data))
    with pytest.raises(InvalidValue, match=f"{field} .* not {value}"):
        encode_checkpoint(replace(FIRST, **{field: value}))


@pytest.mark.parametrize("value", [-2, -(2**63)])
@pytest.mark.parametrize("field", OFFSETS)
def test_negative_offset_is_refused(field: str, value: int) -> None:
    at = [each.name for each in fields(Checkpoint)].index(field) * 8
    data = bytearray(encode_checkpoint(FIRST))
    data[at : at + 8] = value.to_bytes(8, "big", signed=True)
    with pytest.raises(InvalidValue, match=f"{field} .* not {value}"):
        decode_checkpoint(bytes(data))


@pytest.mark.parametrize("field", OFFSETS)
def test_offset_that_replication_has_not_set_is_fine(field: str) -> None:
    checkpoint = replace(FIRST, **{field: NO_OFFSET})
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


@pytest.mark.parametrize("field", OFFSETS)
def test_offset_that_does_not_fit_is_refused(field: str) -> None:
    with pytest.raises(InvalidValue, match=field):
        encode_checkpoint(replace(FIRST, **{field: 2**63}))


def test_checkpoint_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        FIRST.physic_msg_timestamp = 0  # type: ignore[misc]
