"""Places and ids that no message has."""

from __future__ import annotations

import pytest

from commitlog import StoreReader
from commitlog.errors import CorruptRecord, InvalidValue, MessageNotFound
from tests.store.damage.filled_store import LOG_FILE_SIZE, records_of
from tests.support.store_builder import StoreBuilder

__all__: list[str] = []


@pytest.mark.parametrize("offset", [-1, -(2**63), 1, 87, 2**63 - 1, 2**64, 10**30])
def test_a_place_without_a_message_is_refused(builder: StoreBuilder, offset: int) -> None:
    with StoreReader.open(builder.path) as reader, pytest.raises((MessageNotFound, CorruptRecord)):
        reader.message_at(offset)


def test_a_place_in_a_files_blank_end_is_refused(builder: StoreBuilder) -> None:
    with StoreReader.open(builder.path) as reader:
        end = max(place + size for *_, place, size in records_of(reader) if place < LOG_FILE_SIZE)
        with pytest.raises(MessageNotFound, match="blank end"):
            reader.message_at(end)


@pytest.mark.parametrize("text", ["", "0", "G" * 32, "0" * 31, "0" * 33, "F" * 32, "é" * 32, "0" * 56, "F" * 56])
def test_an_id_that_no_message_has_is_refused(builder: StoreBuilder, text: str) -> None:
    with StoreReader.open(builder.path) as reader, pytest.raises((InvalidValue, MessageNotFound)):
        reader.message_by_id(text)


def test_an_id_of_another_host_is_not_found(builder: StoreBuilder) -> None:
    with StoreReader.open(builder.path) as reader:
        message_id = reader.message_at(0).message_id
        assert reader.message_by_id(message_id).physical_offset == 0
        with pytest.raises(MessageNotFound, match=r"stored by 10\.1\.2\.3:10911, the id names 11\.1\.2\.3:10911"):
            reader.message_by_id("0B" + message_id[2:])
