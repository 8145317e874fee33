"""Many keys at once: ``query_keys`` finds for each what ``query`` finds for it alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog_store import ALL_COLUMNS, Message, MessageStore, StoreReader
from commitlog_store.batch.visibility import BatchGate
from commitlog_store.errors import CommitLogError, CorruptIndex, CorruptRecord, FileChanged, InvalidValue, ReaderClosed
from commitlog_store.format.compression import compress
from commitlog_store.format.index_file import entry_offset, slot_offset
from commitlog_store.format.java_hash import index_key_hash
from commitlog_store.format.sys_flag import COMPRESSED_FLAG, CompressionType
from tests.support.store_builder import StoreBuilder
from tests.support.waiting import wait_for


def _rows(reader: StoreReader, topic: str, keys: Any, **options: Any) -> list[dict[str, Any]]:
    return [row for batch in reader.query_keys(topic, keys, **options) for row in batch.to_pylist()]


def _alone(reader: StoreReader, topic: str, key: str) -> int | None:
    found = reader.query(topic, key, limit=1)
    return found[0].physical_offset if found else None


def _together(reader: StoreReader, topic: str, keys: Sequence[str | None]) -> list[int | None]:
    return [row["physicalOffset"] for row in _rows(reader, topic, keys, columns=["physicalOffset"])]


def _outcome(look: Callable[[], object]) -> object:
    """What a look-up gives, or the error that it raises."""
    try:
        return look()
    except CommitLogError as error:
        return type(error), getattr(error, "path", None), getattr(error, "offset", None)


def _index(
    builder: StoreBuilder, topic: str, keys: Sequence[str], places: Sequence[int], name: str, slots: int
) -> None:
    entries = [
        (f"{topic}#{key}", int(place), builder.now_ms)
        for joined, place in zip(keys, places, strict=True)
        for key in joined.split()
    ]
    builder.write_index(name, entries, slots=slots)


def _stored(path: Path, keys: Sequence[str], *, slots: int = 5, name: str = "20261121000000000") -> StoreBuilder:
    builder = StoreBuilder(path, log_file_size=4096)
    places = builder.append("t", 0, [b"body of %d" % row for row in range(len(keys))], keys=keys)
    _index(builder, "t", keys, places.tolist(), name, slots)
    return builder


@pytest.mark.parametrize("store", ["golden_533", "golden_498"])
@pytest.mark.parametrize("from_log", [False, True])
def test_every_key_of_every_message_gives_what_its_query_gives(
    store: str, from_log: bool, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(store)
    with StoreReader.open(path, from_log=from_log) as reader, StoreReader.open(path) as queried:
        for topic in queried.topics():
            keys: set[str] = set()
            read: dict[int, dict[str, Any]] = {}
            for queue in queried.queues(topic):
                for batch in queried.read(topic, queue.queue_id, queue.min_offset, columns=ALL_COLUMNS):
                    for row in batch.to_pylist():
                        keys |= {*(row["keys"] or "").split(), row["uniqKey"] or "none"}
                        read[row["physicalOffset"]] = row
            asked = sorted(keys) + [key + "x" for key in sorted(keys)] + ["", "two keys"]
            rows = _rows(reader, topic, asked, columns=ALL_COLUMNS)
            assert len(rows) == len(asked)
            for key, row in zip(asked, rows, strict=True):
                offset = _alone(queried, topic, key) if key and " " not in key else None
                expected = dict.fromkeys(ALL_COLUMNS) if offset is None else read.get(offset, row)
                assert row == expected
                assert row["physicalOffset"] == offset


# Pairs of one hash: of the keys, and of key and topic.
_COLLIDING = [
    "Aa",
    "BB",
    "AaAa",
    "BBBB",
    "AaBB",
    "BBAa",
    "C#",
    "Bb",
    "k",
    "é",
    "x\ud7ff",
    "long key".replace(" ", "-") * 9,
]


@settings(max_examples=settings().max_examples // 3)
@given(
    st.lists(st.lists(st.sampled_from(_COLLIDING), max_size=3), min_size=1, max_size=24),
    st.integers(1, 7),
    st.integers(1, 2),
    st.booleans(),
)
def test_colliding_hashes_are_told_apart(
    tmp_path_factory: pytest.TempPathFactory, of_messages: list[list[str]], slots: int, files: int, unique: bool
) -> None:
    path = tmp_path_factory.mktemp("store") / "store"
    builder = StoreBuilder(path, log_file_size=4096)
    for file in range(files):
        joined = [" ".join(keys) or "none" for keys in of_messages[file::files]]
        if not joined:
            continue
        more = "UNIQ_KEY\x01AaAaC#\x02" if unique else ""
        for topic in ("t", "u"):
            places = builder.append(
                topic, [0, 1], [b"x" * (7 * row) for row in range(len(joined))], keys=joined, more=more
            )
            entries = [f"{one} AaAaC#" if unique else one for one in joined]
            name = f"2026112100000{file}{'tu'.index(topic)}00"
            _index(builder, topic, entries, places.tolist(), name, max(slots, len(joined) * 2))
    asked: list[str | None] = [*_COLLIDING, None, "AaAaC#", "none", "absent", *_COLLIDING[::-1]]
    with StoreReader.open(path) as reader, StoreReader.open(path, from_log=True) as log_reader:
        for topic in ("t", "u", "v"):
            alone = [key and _alone(reader, topic, key) for key in asked]
            assert _together(reader, topic, asked) == alone
            assert _together(log_reader, topic, asked) == alone


@pytest.mark.parametrize("others", [10, 63, 64, 65, 300])
def test_a_key_with_many_collisions_is_found(tmp_path: Path, others: int) -> None:
    """The wanted message is the oldest of a chain whose entries all have its hash."""
    keys = ["Aa"] + ["BB"] * others
    builder = _stored(tmp_path / "store", keys, slots=others)
    more = [f"k{number}" for number in range(40)]
    places = builder.append("t", 0, [b"x"] * 40, keys=more)
    _index(builder, "t", more, places.tolist(), "20261121000001000", 50)
    with StoreReader.open(builder.path) as reader:
        assert [row["body"] for row in _rows(reader, "t", ["Aa", "BB"])] == [b"body of 0", b"body of %d" % others]
        asked = ["absent", *more, "Aa"]
        assert _together(reader, "t", asked) == [None, *places.tolist(), 0]


def test_the_newest_message_of_all_index_files_wins(tmp_path: Path) -> None:
    builder = _stored(tmp_path / "store", ["a", "b", "a"])
    places = builder.append("t", 1, [b"newer"], keys=["b"])
    _index(builder, "t", ["b"], places.tolist(), "20261121000001000", 5)
    with StoreReader.open(builder.path) as reader:
        rows = _rows(reader, "t", ["b", "a", "c"], columns=["body", "queueId", "queueOffset"])
        assert rows == [
            {"body": b"newer", "queueId": 1, "queueOffset": 0},
            {"body": b"body of 2", "queueId": 0, "queueOffset": 2},
            {"body": None, "queueId": None, "queueOffset": None},
        ]


@pytest.mark.parametrize(
    "keys",
    [
        ["b", "a", None, "b"],
        pa.array(["b", "a", None, "b"], pa.large_string()),
        pa.array(["b", "a", None, "b"], pa.string_view()),
        pa.array(["b", "a", None, "b"]).dictionary_encode(),
        pa.chunked_array([["b"], ["a", None, "b"]]),
    ],
)
def test_keys_are_any_texts_and_may_repeat(tmp_path: Path, keys: Any) -> None:
    builder = _stored(tmp_path / "store", ["a", "b"])
    with StoreReader.open(builder.path) as reader:
        found = [row["body"] for row in _rows(reader, "t", keys)]
        assert found == [b"body of 1", b"body of 0", None, b"body of 1"]
        assert _rows(reader, "t", keys[:0]) == []


def test_keys_and_columns_that_cannot_be_are_refused(tmp_path: Path) -> None:
    builder = _stored(tmp_path / "store", ["a"])
    with StoreReader.open(builder.path) as reader:
        for keys in ([1], pa.array([1]), 7, ["\ud800"]):
            with pytest.raises(InvalidValue, match="Keys are"):
                reader.query_keys("t", keys)
        with pytest.raises(InvalidValue, match="Unknown column 'bodies'"):
            reader.query_keys("t", ["a"], columns=["bodies"])
        with pytest.raises(InvalidValue, match="max_batch_rows"):
            reader.query_keys("t", ["a"], max_batch_rows=0)
        assert _rows(reader, "t", [None, "", "a b"]) == _rows(reader, "t", ["x", "y", "z"])
    with pytest.raises(ReaderClosed):
        reader.query_keys("t", ["a"])


def test_batches_are_cut_by_rows_and_bytes(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    keys = [f"k{number}" for number in range(50)]
    bodies = [bytes([number]) * 3000 for number in range(50)]
    places = builder.append("t", 0, bodies, keys=keys)
    _index(builder, "t", keys, places.tolist(), "20261121000000000", 50)
    asked = [*keys[::-1], "absent", *keys]
    expected = [*bodies[::-1], None, *bodies]
    with StoreReader.open(builder.path) as reader:
        for options, most in (
            ({"max_batch_rows": 7}, 7),
            ({"max_batch_bytes": 10_000}, 3),
            ({"max_batch_bytes": 1}, 1),
        ):
            batches = list(reader.query_keys("t", asked, **options))  # type: ignore[arg-type]
            assert max(len(batch) - batch["body"].null_count for batch in batches) == most
            assert [value for batch in batches for value in batch["body"].to_pylist()] == expected


def test_bodies_that_unpack_to_much_are_cut_into_more_batches(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    body = b"a" * 100_000
    flag = COMPRESSED_FLAG | CompressionType.ZLIB.value
    keys = [f"k{number}" for number in range(20)]
    places = builder.append("t", 0, [compress(body, CompressionType.ZLIB)] * 20, keys=keys, sys_flag=flag)
    _index(builder, "t", keys, places.tolist(), "20261121000000000", 20)
    asked = ["absent", *keys, "k3"]
    with StoreReader.open(builder.path) as reader:
        batches = list(reader.query_keys("t", asked, max_batch_bytes=250_000))
    assert [value for batch in batches for value in batch["body"].to_pylist()] == [None, *[body] * 21]
    assert max(batch["body"].nbytes for batch in batches) < 300_000


def test_expired_messages_are_not_found(tmp_path: Path) -> None:
    builder = _stored(tmp_path / "store", [f"k{number}" for number in range(60)], slots=20)
    builder.delete_log_files(1)
    with StoreReader.open(builder.path) as reader:
        asked = [f"k{number}" for number in range(60)]
        found = _together(reader, "t", asked)
        assert found == [_alone(reader, "t", key) for key in asked]
        assert None in found
        assert found[-1] is not None


def test_messages_of_a_batch_that_is_being_dispatched_are_hidden(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        places = [
            store.put_message(Message(queue_id=0, topic="t", body=b"x", keys=[key])).physical_offset
            for key in ("a", "b", "a", "c")
        ]
    gate = BatchGate(str(tmp_path / "store"))
    gate.close_from(places[2])
    with StoreReader.open(tmp_path / "store") as reader:
        assert _together(reader, "t", ["a", "b", "c"]) == [places[0], places[1], None]
        gate.open(places[2])
        assert _together(reader, "t", ["a", "b", "c"]) == [places[2], places[1], places[3]]
    gate.release()


def test_what_a_live_owner_puts_is_found_at_the_next_call(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store, StoreReader.open(tmp_path / "store") as reader:
        assert _together(reader, "t", ["k"]) == [None]
        for _ in range(3):
            result = store.put_message(Message(queue_id=0, topic="t", body=b"x", keys=["k"]))
            wait_for(lambda place=result.physical_offset: _together(reader, "t", ["k"]) == [place])  # type: ignore[misc]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> StoreBuilder:
    """40 messages, colliding keys among them."""
    keys = [f"k{number}" for number in range(20)] + ["Aa", "BB"] * 10
    return _stored(tmp_path_factory.mktemp("whole") / "store", keys, slots=50)


@given(st.sampled_from(["index", "commitlog"]), st.integers(0, 2**31), st.integers(1, 255), st.booleans())
def test_damage_has_the_outcome_that_it_has_for_single_keys(
    whole: StoreBuilder,
    tmp_path_factory: pytest.TempPathFactory,
    directory: str,
    place: int,
    flip: int,
    skip: bool,
) -> None:
    path = tmp_path_factory.mktemp("store") / "store"
    shutil.copytree(whole.path, path)
    files = sorted((path / directory).iterdir())
    file = files[place % len(files)]
    data = bytearray(file.read_bytes())
    used = 40 + 50 * 4 + 41 * 20 if directory == "index" else len(data)
    data[place % used] ^= flip
    file.write_bytes(data)
    with StoreReader.open(path, on_damage="skip" if skip else "raise") as reader:
        keys = ["k0", "k7", "k19", "Aa", "BB", "absent"]
        alone = [_outcome(lambda k=key: [_alone(reader, "t", k)]) for key in keys]  # type: ignore[misc]
        together = [_outcome(lambda k=key: _together(reader, "t", [k])) for key in keys]  # type: ignore[misc]
        assert together == alone
        errors = [one for one in alone if isinstance(one, tuple)]
        at_once = _outcome(lambda: _together(reader, "t", keys))
        found = [one[0] for one in alone if isinstance(one, list)]
        assert at_once in errors if errors else at_once == found


def test_an_entry_that_points_outside_the_log_is_reported(whole: StoreBuilder, tmp_path: Path) -> None:
    path = shutil.copytree(whole.path, tmp_path / "store")
    index = next((path / "index").iterdir())
    data = bytearray(index.read_bytes())
    at = entry_offset(3, 50) + 4
    data[at : at + 8] = (10**12).to_bytes(8, "big")
    index.write_bytes(data)
    with StoreReader.open(path) as reader:
        with pytest.raises(CorruptIndex, match="Physical offset of an entry") as raised:
            reader.query_keys("t", ["k1", "k2", "k3"])
        assert (raised.value.path, raised.value.found) == (str(index), 10**12)
        assert None not in _together(reader, "t", ["k1", "k3"])


def test_an_index_file_cut_under_a_reader_is_a_named_error(whole: StoreBuilder, tmp_path: Path) -> None:
    path = shutil.copytree(whole.path, tmp_path / "store")
    index = next((path / "index").iterdir())
    with StoreReader.open(path) as reader:
        assert None not in _together(reader, "t", ["k1"])
        os.truncate(index, 99)
        with pytest.raises(FileChanged, match=index.name):
            reader.query_keys("t", ["k1"])


def test_a_slot_that_an_owner_has_not_counted_yet_is_skipped(whole: StoreBuilder, tmp_path: Path) -> None:
    path = shutil.copytree(whole.path, tmp_path / "store")
    index = next((path / "index").iterdir())
    data = bytearray(index.read_bytes())
    at = slot_offset(index_key_hash("t#k5") % 50)
    data[at : at + 4] = (77).to_bytes(4, "big")
    index.write_bytes(data)
    with StoreReader.open(path) as reader, pytest.raises(CorruptIndex, match="Slot"):
        reader.query_keys("t", ["k4", "k5"])
    (path / "abort").write_bytes(b"")
    with StoreReader.open(path) as reader:
        assert _together(reader, "t", ["k4", "k5"]) == [_alone(reader, "t", "k4"), _alone(reader, "t", "k5")]


def test_with_skip_a_damaged_body_gives_way_to_the_message_before_it(tmp_path: Path) -> None:
    """Also one that only unpacking shows to be damaged."""
    builder = StoreBuilder(tmp_path / "store")
    flag = COMPRESSED_FLAG | CompressionType.ZLIB.value
    places = [builder.append("t", 0, [compress(b"older", CompressionType.ZLIB)], keys=["k"], sys_flag=flag)[0]]
    places.append(builder.append("t", 0, [b"not a stream"], keys=["k"], sys_flag=flag)[0])
    _index(builder, "t", ["k", "k"], np.array(places).tolist(), "20261121000000000", 5)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptRecord):
        _rows(reader, "t", ["k", "absent"])
    with StoreReader.open(builder.path, on_damage="skip") as reader:
        assert [row["body"] for row in _rows(reader, "t", ["k", "absent", "k"])] == [b"older", None, b"older"]
