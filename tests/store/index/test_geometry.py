"""The slot count of an index file follows from its content, so no setting has to match those of its broker."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store import StoreReader
from commitlog_store.errors import CorruptIndex, UnsupportedStore
from commitlog_store.files import disk
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.format.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    INDEX_ENTRY_DTYPE,
    IndexEntry,
    IndexHeader,
    decode_header,
    encode_header,
    entry_could_be,
    entry_offset,
    file_size,
    find_first_entries,
    fitting_slot_counts,
    infer_slot_count,
    slot_offset,
)
from commitlog_store.format.java_hash import index_key_hash
from commitlog_store.index.service import IndexFile, IndexService
from tests.support.counted_calls import counted_calls
from tests.support.encoders import encode_entry
from tests.support.store_builder import StoreBuilder

NAME = "20261121000000000"
EVER = 2**63 - 1


class IndexWriter:
    """Puts keys into an index file as RocketMQ's ``IndexFile.putKey`` does: entry, slot, then the header."""

    def __init__(self, path: Path, slots: int, capacity: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.truncate(path, file_size(slots, capacity))
        self.path, self.slots = path, slots
        self.heads: dict[int, int] = {}
        self.header = IndexHeader(0, 0, 0, 0, 0, 1)

    def put(self, key_hash: int, physical_offset: int) -> None:
        number, slot = self.header.index_count, key_hash % self.slots
        begin = physical_offset if number == 1 else self.header.begin_physical_offset
        entry = IndexEntry(key_hash, physical_offset, number // 10, self.heads.get(slot, 0))
        self.heads[slot] = number
        self.header = IndexHeader(7000, 7000 + number * 100, begin, physical_offset, len(self.heads), number + 1)
        with self.path.open("r+b", buffering=0) as file:
            for at, data in (
                (entry_offset(number, self.slots), encode_entry(entry)),
                (slot_offset(slot), number.to_bytes(4, "big")),
                (0, encode_header(self.header)),
            ):
                file.seek(at)
                file.write(data)


def written(directory: Path, slots: int, capacity: int, entries: Sequence[tuple[str, int]], name: str = NAME) -> Path:
    writer = IndexWriter(directory / name, slots, capacity)
    for key, physical_offset in entries:
        writer.put(index_key_hash(f"t#{key}"), physical_offset)
    return writer.path


def found(service: IndexService, key: str) -> list[int]:
    return [hit.physical_offset for hit in service.candidates("t", key, 0, EVER, strict=True)]


def indexed_store(path: Path, slots: int, capacity: int, count: int = 300) -> StoreBuilder:
    builder = StoreBuilder(path)
    places = builder.append("t", 0, [b"x"] * count, keys=[f"k{number}" for number in range(count)])
    written(
        builder.path / "index", slots, capacity, [(f"k{number}", int(place)) for number, place in enumerate(places)]
    )
    return builder


@pytest.mark.parametrize(
    ("slots", "capacity"),
    [
        pytest.param(1000, 2005, id="the size also fits 525 slots of the usual ratio"),
        pytest.param(1000, 2000, id="the size fits no usual ratio"),
        pytest.param(1000, 4000, id="the usual ratio"),
        pytest.param(5000, 310, id="more slots than entries"),
        pytest.param(7, 301, id="full, with long chains"),
        pytest.param(1021, 4063, id="the entries are off by one with the usual ratio"),
    ],
)
def test_keys_are_found_whatever_the_settings_of_the_broker_were(tmp_path: Path, slots: int, capacity: int) -> None:
    builder = indexed_store(tmp_path / "store", slots, capacity)
    with StoreReader.open(builder.path) as reader:
        for number in (0, 1, 2, 150, 298, 299):
            assert [message.keys for message in reader.query("t", f"k{number}")] == [(f"k{number}",)]
        assert reader.query("t", "nokey") == []
        assert [file.slot_count for file in reader.index_files()] == [slots]


def test_the_sizes_above_show_what_they_say() -> None:
    assert infer_slot_count(file_size(1000, 2005)) == 525
    assert infer_slot_count(file_size(1000, 2000)) is None
    assert infer_slot_count(file_size(1021, 4063)) == 1016


@given(st.data())
def test_any_slot_count_is_inferred(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    slots = data.draw(st.integers(100, 3000), "slots")
    keys = data.draw(st.lists(st.integers(0, 50).map(str), min_size=1, max_size=40), "keys")
    capacity = data.draw(st.integers(len(keys) + 1, 5000), "capacity")
    start = data.draw(st.sampled_from([0, 1, 2**31, 2**40]), "first physical offset")
    steps = data.draw(st.lists(st.integers(0, 1), min_size=len(keys), max_size=len(keys)), "messages")
    places = (start + np.cumsum([0, *steps[1:]]) * 200).tolist()
    directory = tmp_path_factory.mktemp("index")
    written(directory, slots, capacity, list(zip(keys, places, strict=True)))
    service = IndexService(str(directory))
    assert [file.slot_count for file in service.files()] == [slots]
    for wanted in set(keys):
        expected = [place for key, place in zip(keys, places, strict=True) if key == wanted]
        assert sorted(found(service, wanted)) == expected
    service.close()


@pytest.mark.parametrize("slots", [500, 1000])
@pytest.mark.parametrize("capacity", [2000, 2005])
def test_a_file_that_fills_under_a_reader_is_understood_from_its_first_entry_on(
    tmp_path: Path, slots: int, capacity: int
) -> None:
    writer = IndexWriter(tmp_path / NAME, slots, capacity)
    service = IndexService(str(tmp_path))
    assert found(service, "k") == []
    assert [file.slot_count for file in service.files()] == [None]
    for number in range(20):
        writer.put(index_key_hash("t#k"), number * 100)
        assert found(service, "k") == [100 * earlier for earlier in range(number, -1, -1)]
    assert [file.slot_count for file in service.files()] == [slots]
    service.close()


def test_files_of_several_settings_stand_beside_each_other(tmp_path: Path) -> None:
    """The settings were changed, and files of before are still there; some have the same size by chance."""
    shapes = [(1000, 2005), (525, 2100), (1000, 2005), (40, 100), (1005, 2004)]
    assert len({file_size(*shape) for shape in shapes}) == 2
    for number, shape in enumerate(shapes):
        written(tmp_path, *shape, [(f"k{at}", 1000 * number + at) for at in range(30)], f"2026112100000{number}000")
    service = IndexService(str(tmp_path))
    assert found(service, "k7") == [4007, 3007, 2007, 1007, 7]
    assert [file.slot_count for file in service.files()] == [slots for slots, _ in shapes]
    service.close()


def damaged(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b", buffering=0) as file:
        file.seek(at)
        file.write(data)


def test_damage_that_leaves_most_entries_alone_leaves_their_keys_findable(tmp_path: Path) -> None:
    """Also at entry 1, which finds the slot count of an unusual file."""
    path = written(tmp_path, 1000, 4000, [(f"k{number}", number) for number in range(100)])
    damaged(path, entry_offset(1, 1000), b"\xff" * ENTRY_SIZE)
    damaged(path, 16, (2**40).to_bytes(8, "big"))
    service = IndexService(str(tmp_path))
    with pytest.raises(CorruptIndex, match="which agrees with no number of slots"):
        found(service, "k50")
    damaged(path, 16, bytes(8))
    assert found(service, "k50") == [50]
    with pytest.raises(CorruptIndex, match="entry 1"):
        found(service, "k0")
    service.close()


def test_damage_at_the_newest_entries_leaves_the_other_keys_findable(tmp_path: Path) -> None:
    path = written(tmp_path, 1000, 4000, [(f"k{number}", number) for number in range(100)])
    damaged(path, entry_offset(99, 1000), b"\xff" * ENTRY_SIZE)
    service = IndexService(str(tmp_path))
    assert found(service, "k50") == [50]
    service.close()


def test_a_key_that_most_messages_carry_costs_no_more_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From an old entry's slot the way to it would lead over all of the newer ones."""
    reads: list[int] = []
    plain = disk.read_at

    def noting(descriptor: int, length: int, offset: int) -> bytes:
        reads.append(offset)
        return plain(descriptor, length, offset)

    monkeypatch.setattr(disk, "read_at", noting)
    counts = []
    for keys in (1, 100):
        path = written(tmp_path / str(keys), 1000, 4000, [(f"k{number % keys}", number) for number in range(300)])
        index = IndexFile(MappedFile.open(str(path), 0), {})
        reads.clear()
        assert index.slot_count() == 1000
        counts.append(len(reads))
        index.close()
    assert max(counts) < 40


def test_a_damaged_file_of_the_usual_ratio_is_corrupt_and_no_advice_is_given_to_delete_it(tmp_path: Path) -> None:
    path = written(tmp_path, 1000, 4000, [(f"k{number}", number) for number in range(100)])
    damaged(path, HEADER_SIZE, bytes(4000))
    service = IndexService(str(tmp_path))
    for look in (service.files, lambda: found(service, "k1")):
        with pytest.raises(CorruptIndex) as raised:
            look()
        assert (raised.value.path, raised.value.offset) == (str(path), 16)
        assert "delete" not in str(raised.value)
    service.close()


def test_a_file_of_unknown_slot_count_is_refused_with_the_settings_and_without_advice_to_delete_it(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, 1000, 2000, [(f"k{number}", number) for number in range(100)])
    damaged(path, HEADER_SIZE, bytes(4000))
    service = IndexService(str(tmp_path))
    for look in (service.files, lambda: found(service, "k1")):
        with pytest.raises(UnsupportedStore, match=r"maxHashSlotNum and maxIndexNum.*messages themselves") as raised:
            look()
        assert raised.value.path == str(path)
        assert "delete" not in str(raised.value)
    service.close()


def big_file(path: Path, slots: int, capacity: int, count: int) -> None:
    """An index of ``count`` keys; their messages start at physical offset 0."""
    hashes = np.random.default_rng(7).permutation(10_000_000)[:count]
    table = np.zeros(count + 1, INDEX_ENTRY_DTYPE)
    table["key_hash"][1:] = hashes
    table["physical_offset"][1:] = np.arange(count) * 300
    slot_of = hashes % slots
    order = np.argsort(slot_of, kind="stable")
    same = np.append(False, slot_of[order][1:] == slot_of[order][:-1])
    table["previous"][1:][order[same]] = order[np.flatnonzero(same) - 1] + 1
    heads = np.zeros(slots, ">i4")
    heads[slot_of] = np.arange(1, count + 1)
    header = IndexHeader(1, 2, 0, (count - 1) * 300, int(np.count_nonzero(heads)), count + 1)
    with path.open("wb") as file:
        file.write(encode_header(header) + heads.tobytes() + table.tobytes())
        file.truncate(file_size(slots, capacity))


@pytest.mark.parametrize("count", [1_000, 500_000])
def test_the_slot_count_of_a_big_file_of_other_settings_is_found_quickly_and_only_once(
    tmp_path: Path, count: int
) -> None:
    """Half a million keys in five million slots leave many places that look like an entry of offset 0."""
    path = tmp_path / NAME
    big_file(path, 5_000_000, 20_000_005, count)
    index = IndexFile(MappedFile.open(str(path), 0), {})
    assert counted_calls(index.slot_count) < 500_000
    assert index.slot_count() == 5_000_000
    looks = [
        counted_calls(lambda number=number: list(index.hits(f"t#{number}", 0, EVER, strict=True)))  # type: ignore[misc]
        for number in range(50)
    ]
    assert max(looks) < 1_000
    index.close()


def test_slot_counts_that_fit_a_size_leave_room_for_what_the_header_counts() -> None:
    header = IndexHeader(0, 0, 0, 0, 30, 100)
    fitting = fitting_slot_counts(file_size(1000, 2005), header)
    assert 1000 in fitting
    assert 525 in fitting
    for slots in fitting:
        rest = file_size(1000, 2005) - HEADER_SIZE - 4 * slots
        assert rest % ENTRY_SIZE == 0
        assert rest // ENTRY_SIZE >= 100
        assert slots >= 30
    assert not fitting_slot_counts(file_size(1000, 2005) + 1, header)
    assert not fitting_slot_counts(file_size(30, 99), header)


def test_impossible_entries_are_distinguished_from_possible_ones() -> None:
    header = IndexHeader(0, 0, 500, 900, 3, 4)
    assert entry_could_be(header, 1, IndexEntry(5, 500, 0, 0))
    assert entry_could_be(header, 1, IndexEntry(5, 500, 1, 0)), (
        "RocketMQ dates a file that follows a full one by that one"
    )
    assert entry_could_be(header, 3, IndexEntry(5, 700, 8, 2))
    for number, entry in (
        (1, IndexEntry(5, 501, 0, 0)),
        (1, IndexEntry(5, 500, -1, 0)),
        (1, IndexEntry(-5, 500, 0, 0)),
        (2, IndexEntry(5, 499, 0, 0)),
        (2, IndexEntry(5, 600, 0, 2)),
        (2, IndexEntry(5, 600, -1, 0)),
        (2, IndexEntry(0, 0, 0, 0)),
    ):
        assert not entry_could_be(header, number, entry)
    assert not entry_could_be(IndexHeader(0, 0, 0, 900, 3, 4), 1, IndexEntry(0, 0, 0, 0)), "unused bytes"


def test_the_first_entry_is_found_among_others_by_those_after_it(tmp_path: Path) -> None:
    path = written(tmp_path, 100, 200, [("a", 0), ("b", 0), ("c", 0), ("d", 700)])
    data = path.read_bytes()
    entries = np.frombuffer(data[entry_offset(0, 100) :], INDEX_ENTRY_DTYPE)
    assert find_first_entries(decode_header(data[:HEADER_SIZE]), entries, 100).tolist() == [1, 2]
