"""Messages by key."""

from __future__ import annotations

import numpy as np
import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import InvalidValue
from tests.store.shapes.numbered_bodies import SMALL_LOG, log_files, made_bodies
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder


def _indexed(builder: StoreBuilder, keys: list[str], *, topic: str = "t", name: str = "20261121000000000") -> list[int]:
    times = builder.now_ms + np.arange(len(keys)) * 1000
    places = builder.append(topic, 0, made_bodies(len(keys)), keys=keys, step_ms=1000).tolist()
    entries = [
        (f"{topic}#{key}", place, int(time))
        for joined, place, time in zip(keys, places, times, strict=True)
        for key in joined.split()
    ]
    builder.write_index(name, entries, slots=5)
    return [int(place) for place in places]


def test_keys_with_the_same_hash_are_distinguished(builder: StoreBuilder) -> None:
    places = _indexed(builder, ["Aa", "BB", "Aa", "Aa BB"])
    with StoreReader.open(builder.path) as reader:
        assert [m.physical_offset for m in reader.query("t", "Aa")] == [places[0], places[2], places[3]]
        assert [m.physical_offset for m in reader.query("t", "BB")] == [places[1], places[3]]
        assert reader.query("t", "C#") == []


def test_the_newest_messages_of_a_key_come_in_the_order_of_the_log(builder: StoreBuilder) -> None:
    places = _indexed(builder, ["k"] * 10)
    with StoreReader.open(builder.path) as reader:
        assert [m.physical_offset for m in reader.query("t", "k", limit=3)] == places[-3:]
        second = FIRST_STORE_TIME + 2000
        found = reader.query("t", "k", begin=second, end=second + 3000)
        assert [m.physical_offset for m in found] == places[2:6], "both ends count"
        with pytest.raises(InvalidValue, match="limit"):
            reader.query("t", "k", limit=0)
        for key in ("", "two keys"):
            with pytest.raises(InvalidValue, match="key"):
                reader.query("t", key)


def test_keys_are_found_in_every_index_file(builder: StoreBuilder) -> None:
    first = _indexed(builder, ["k", "a"], name="20261121000000000")
    second = _indexed(builder, ["b", "k"], name="20261121000001000")
    (builder.path / "index" / "not an index").write_bytes(b"?")
    with StoreReader.open(builder.path) as reader:
        assert [m.physical_offset for m in reader.query("t", "k")] == [first[0], second[1]]
        assert [m.physical_offset for m in reader.query("t", "k", limit=1)] == [second[1]]
        assert [file.index_count for file in reader.index_files()] == [3, 3]
        third = _indexed(builder, ["k"], name="20261121000002000")
        assert [m.physical_offset for m in reader.query("t", "k")] == [first[0], second[1], third[0]]


def test_expired_messages_are_not_found_by_key(builder: StoreBuilder) -> None:
    places = _indexed(builder, ["k"] * 19)
    builder.append("t", 0, made_bodies(60))
    builder.delete_log_files(1)
    left = [place for place in places if place >= SMALL_LOG]
    assert 0 < len(left) < len(places)
    with StoreReader.open(builder.path) as reader:
        assert [m.physical_offset for m in reader.query("t", "k")] == left


def test_after_a_crash_index_entries_of_lost_messages_are_skipped(builder: StoreBuilder) -> None:
    """The index may have been flushed and the end of the log not; with an abort file that is not corruption."""
    places = _indexed(builder, ["k"] * 12)
    builder.write_abort()
    path = log_files(builder)[-1]
    base = int(path.name)
    kept = [place for place in places if place < base + 400]
    assert kept != places
    path.write_bytes(path.read_bytes()[: max(0, int(min(set(places) - set(kept))) - base)].ljust(SMALL_LOG, b"\0"))
    with StoreReader.open(builder.path) as reader:
        assert [m.physical_offset for m in reader.query("t", "k")] == kept
