"""Places and ids that no message has, and arguments of wrong types."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import CorruptRecord, InvalidValue, MessageNotFound
from tests.store.damage.filled_store import LOG_FILE_SIZE, records_of
from tests.support.store_builder import StoreBuilder


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


_NO_ZONE = datetime(2026, 1, 1, tzinfo=timezone.utc).replace(tzinfo=None)
WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "a start of None": (lambda reader: reader.read("a", 0, None), "start is an int, not None"),
    "a start of text": (lambda reader: reader.read("a", 0, "0"), "start is an int, not '0'"),
    "a stop of float": (lambda reader: reader.read("a", 0, 0, 1.5), r"stop is an int, not 1\.5"),
    "a queue of text": (lambda reader: reader.read("a", "0", 0), "queue_id is an int, not '0'"),
    "a queue of text to pull": (lambda reader: reader.get_message("a", "0", 0), "queue_id is an int, not '0'"),
    "a topic of None": (lambda reader: reader.queues(None), "A topic is text, not None"),
    "a topic of bytes": (lambda reader: reader.read(b"a", 0, 0), "A topic is text, not b'a'"),
    "rows of None": (lambda reader: reader.read("a", 0, 0, max_batch_rows=None), "max_batch_rows is an int, not None"),
    "a limit of text": (lambda reader: reader.query("a", "k", limit="5"), "limit is an int, not '5'"),
    "a key of bytes": (lambda reader: reader.query("a", b"k"), "A key is a non-empty text without spaces, not b'k'"),
    "an offset of text": (lambda reader: reader.message_at("0"), "physical_offset is an int, not '0'"),
    "an id of int": (lambda reader: reader.message_by_id(5), "A message id is a text, not 5"),
    "a time of float": (lambda reader: reader.offset_by_time("a", 0, time.time() * 1000), "an int of milliseconds"),
    "a time of None": (
        lambda reader: reader.query("a", "k", begin=None),
        "begin is a datetime, a timedelta before now",
    ),
    "columns of None": (lambda reader: reader.read("a", 0, 0, columns=None), "columns is a list of names, not None"),
    "columns of bytes": (lambda reader: reader.read("a", 0, 0, columns=b"body"), "A column is named by a text, not 98"),
    "a column of None": (lambda reader: reader.scan("a", columns=[None]), "A column is named by a text, not None"),
    "no zone": (lambda reader: reader.query("a", "k", end=_NO_ZONE), "end has no time zone"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_argument_of_the_wrong_type_is_refused_by_its_name(builder: StoreBuilder, name: str) -> None:
    call, words = WRONG[name]
    with StoreReader.open(builder.path) as reader, pytest.raises(InvalidValue, match=words):
        call(reader)


def test_no_message_has_an_offset_below_0(builder: StoreBuilder) -> None:
    with StoreReader.open(builder.path) as reader:
        assert reader.fences([("a", 0, -1), ("a", 0, -2)]) == [None, None], "of a queue that was not read yet"
        assert reader.fences([("a", 0, 2**59), ("a", 0, 2**63), ("a", 0, 10**30)]) == [None] * 3


def test_integers_of_numpy_are_integers_and_times_may_be_datetimes(builder: StoreBuilder) -> None:
    """A time of numpy's was compared with each of six billion numbers."""
    with StoreReader.open(builder.path) as reader:
        rows = sum(batch.num_rows for batch in reader.read("a", np.int64(0), np.int32(1), np.uint8(3)))  # type: ignore[arg-type]
        assert rows == 2
        assert reader.message_at(np.int64(0)) == reader.message_at(0)  # type: ignore[arg-type]
        stored = reader.store_timestamp("a", 0, 1)
        when = datetime.fromtimestamp(stored / 1000, timezone.utc)
        at = {reader.offset_by_time("a", 0, one) for one in (stored, np.int64(stored), when)}  # type: ignore[arg-type]
        assert at == {reader.offset_by_time("a", 0, stored)}
        found = reader.query("a", "k0")
        assert found == reader.query("a", "k0", begin=datetime(1970, 1, 2, tzinfo=timezone.utc), end=2**62)
