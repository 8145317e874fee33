"""The bits of SYSFLAG mean what RocketMQ means by them, for one flag and for arrays of flags."""

from __future__ import annotations

import numpy as np
import pytest

from commitlog_store.errors import InvalidValue
from commitlog_store.format import sys_flag
from commitlog_store.format.sys_flag import CompressionType, compression_type, has_queue_unit, transaction_type
from tests.store.format.golden_files import STORES, messages


def test_flags_have_the_bits_of_the_format() -> None:
    assert sys_flag.COMPRESSED_FLAG == 0x1
    assert sys_flag.MULTI_TAGS_FLAG == 0x2
    assert sys_flag.TRANSACTION_NOT_TYPE == 0x0
    assert sys_flag.TRANSACTION_PREPARED_TYPE == 0x4
    assert sys_flag.TRANSACTION_COMMIT_TYPE == 0x8
    assert sys_flag.TRANSACTION_ROLLBACK_TYPE == sys_flag.TRANSACTION_MASK == 0xC
    assert sys_flag.BORNHOST_V6_FLAG == 0x10
    assert sys_flag.STOREHOSTADDRESS_V6_FLAG == 0x20
    assert sys_flag.NEED_UNWRAP_FLAG == 0x40
    assert sys_flag.INNER_BATCH_FLAG == 0x80
    assert sys_flag.COMPRESSION_TYPE_MASK == 0x700


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        (0x001, CompressionType.ZLIB),
        (0x301, CompressionType.ZLIB),
        (0x101, CompressionType.LZ4),
        (0x201, CompressionType.ZSTD),
        (0x2FF, CompressionType.ZSTD),
    ],
)
def test_compression_type_is_read_from_its_three_bits(flags: int, kind: CompressionType) -> None:
    assert compression_type(flags) is kind


@pytest.mark.parametrize("bits", [4, 5, 6, 7])
def test_unused_compression_type_is_refused(bits: int) -> None:
    with pytest.raises(InvalidValue, match=f"compression type {bits}"):
        compression_type(bits << 8 | sys_flag.COMPRESSED_FLAG)


@pytest.mark.parametrize("kind", CompressionType)
def test_value_of_a_compression_type_is_what_to_set_in_the_flag(kind: CompressionType) -> None:
    assert compression_type(sys_flag.COMPRESSED_FLAG | kind.value) is kind


def test_transaction_type_is_two_bits_not_two_flags() -> None:
    assert transaction_type(0x4 | 0x31) == sys_flag.TRANSACTION_PREPARED_TYPE
    assert transaction_type(0x8 | 0x31) == sys_flag.TRANSACTION_COMMIT_TYPE
    assert transaction_type(0xC | 0x31) == sys_flag.TRANSACTION_ROLLBACK_TYPE
    assert transaction_type(0x31) == sys_flag.TRANSACTION_NOT_TYPE


def test_prepared_and_rolled_back_messages_have_no_queue_unit() -> None:
    assert has_queue_unit(sys_flag.TRANSACTION_NOT_TYPE)
    assert has_queue_unit(sys_flag.TRANSACTION_COMMIT_TYPE)
    assert not has_queue_unit(sys_flag.TRANSACTION_PREPARED_TYPE)
    assert not has_queue_unit(sys_flag.TRANSACTION_ROLLBACK_TYPE)


def test_predicates_give_arrays_for_arrays() -> None:
    flags = np.array([0x0, 0x1, 0x4, 0x8, 0xC, -1], np.int32)
    assert has_queue_unit(flags).tolist() == [True, True, False, True, False, False]
    assert transaction_type(flags).tolist() == [0, 0, 4, 8, 12, 12]


def test_predicates_give_a_bool_for_an_int() -> None:
    assert has_queue_unit(0) is True


@pytest.mark.parametrize("store", STORES)
def test_born_host_bit_goes_with_an_ipv6_born_host(store: str) -> None:
    for message in messages(store):
        assert bool(message["sysFlag"] & sys_flag.BORNHOST_V6_FLAG) == (message["bornHost"].count(":") > 1)


@pytest.mark.parametrize("store", STORES)
def test_every_message_that_a_queue_of_rocketmq_holds_has_a_queue_unit(store: str) -> None:
    """Half messages stand in a queue of their own, where their transaction bits are already cleared."""
    assert all(has_queue_unit(message["sysFlag"]) for message in messages(store))
