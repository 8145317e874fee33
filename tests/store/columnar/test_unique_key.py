"""UNIQ_KEY of messages without one from a client: the same rows get the same keys, and the index finds them."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pytest

from commitlog_store.columnar.unique_key import unique_keys
from commitlog_store.errors import InvalidValue
from commitlog_store.format.java_hash import index_key_hash
from commitlog_store.put_status import PutMessageStatus
from tests.store.columnar.encoded_rows import TOPIC, decoded, encode, key_hashes, read_rows

MAP = pa.map_(pa.string(), pa.string())
GIVEN = pa.array(["K0", "K1", "K2", "K3"])


def test_a_key_is_hash_partition_and_row() -> None:
    keys = [key.decode() for key in unique_keys(b"query\x007", 0xAB, 0x9FFFFFFFF, 3).to_pylist()]
    digest = hashlib.blake2b(b"query\x007", digest_size=8).hexdigest().upper()
    assert keys == [f"{digest}0000AB{row:010X}" for row in (0x9FFFFFFFF, 0xA00000000, 0xA00000001)]
    assert {len(key) for key in keys} == {32}


def test_the_same_rows_get_the_same_keys_wherever_they_are_cut() -> None:
    whole = unique_keys(b"a", 5, 0, 1000)
    whole.validate(full=True)
    assert whole.slice(300).equals(unique_keys(b"a", 5, 300, 700))
    other = (unique_keys(b"a", 6, 0, 1000), unique_keys(b"b", 5, 0, 1000), unique_keys(b"a", 5, 1000, 1000))
    everything = [key for keys in (whole, *other) for key in keys.to_pylist()]
    assert len(set(everything)) == len(everything)
    assert unique_keys(b"a", 5, 7, 0).to_pylist() == []


def test_the_last_partition_and_row_fit() -> None:
    [key] = unique_keys(b"", 2**24 - 1, 2**40 - 1, 1).to_pylist()
    assert key.endswith(b"F" * 16)


@pytest.mark.parametrize(
    ("partition", "first", "count"), [(-1, 0, 1), (2**24, 0, 1), (0, -1, 1), (0, 0, -1), (0, 2**40 - 1, 2)]
)
def test_partitions_and_rows_that_do_not_fit_are_refused(partition: int, first: int, count: int) -> None:
    with pytest.raises(InvalidValue):
        unique_keys(b"a", partition, first, count)


def test_the_index_finds_rows_by_their_unique_keys() -> None:
    """UNIQ_KEY first and KEYS after it, as RocketMQ enters them."""
    keys = unique_keys(b"query", 3, 0, 40)
    encoded = encode(pa.table({"body": [b"x"] * 40, "keys": [f"k{n}" for n in range(40)]}), unique_keys=keys)
    texts = [key.decode() for key in keys.to_pylist()]
    assert [row["uniqKey"] for row in read_rows(encoded)] == texts
    assert key_hashes(encoded) == [
        [index_key_hash(f"{TOPIC}#{text}"), index_key_hash(f"{TOPIC}#k{n}")] for n, text in enumerate(texts)
    ]


def test_a_row_with_a_unique_key_of_its_own_keeps_it() -> None:
    maps = [
        [("UNIQ_KEY", "mine"), ("a", "b")],
        [("a", "b"), ("UNIQ_KEY", "mine")],
        [("MY_UNIQ_KEY", "UNIQ_KEY"), ("UNIQ_KEYS", "x")],
        [("UNIQ_KEY", None)],
    ]
    table = pa.table({"body": [b""] * 4, "tags": ["t"] * 4, "properties": pa.array(maps, MAP)})
    encoded = encode(table, unique_keys=GIVEN)
    assert [record.properties for record in decoded(encoded)] == [
        b"UNIQ_KEY\x01mine\x02a\x01b\x02TAGS\x01t\x02",
        b"a\x01b\x02UNIQ_KEY\x01mine\x02TAGS\x01t\x02",
        b"MY_UNIQ_KEY\x01UNIQ_KEY\x02UNIQ_KEYS\x01x\x02UNIQ_KEY\x01K2\x02TAGS\x01t\x02",
        b"UNIQ_KEY\x01K3\x02TAGS\x01t\x02",
    ]
    assert [row["uniqKey"] for row in read_rows(encoded)] == ["mine", "mine", "K2", "K3"]


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("own", [True, False])
def test_a_null_or_empty_key_is_none(last: bool, own: bool) -> None:
    maps = pa.array([[("UNIQ_KEY", "mine")] if own else None] * 3, MAP)
    table = pa.table({"body": [b""] * 3, "keys": ["k", None, "k"], "properties": maps})
    encoded = encode(table, unique_keys=pa.array([None, "", "K2"]), trailing_separator=last)
    assert [row["uniqKey"] for row in read_rows(encoded)] == (["mine"] * 3 if own else [None, None, "K2"])
    assert [row["keys"] for row in read_rows(encoded)] == ["k", None, "k"]
    end = b"\x02" if last else b""
    assert decoded(encoded)[0].properties == (b"UNIQ_KEY\x01mine\x02" if own else b"") + b"KEYS\x01k" + end


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_binary(), pa.dictionary(pa.int32(), pa.string())])
def test_keys_of_every_kind_of_text_and_slices_are_stored(kind: pa.DataType) -> None:
    table = pa.table({"body": [b""] * 2, "properties": pa.array([None, [("UNIQ_KEY", "mine")]], MAP)})
    encoded = encode(table, unique_keys=GIVEN.cast(kind).slice(1, 2))
    assert [row["uniqKey"] for row in read_rows(encoded)] == ["K1", "mine"]


def test_refused_rows_take_their_keys_with_them() -> None:
    table = pa.table({"body": [b"a", None, b"c", b"d"], "tags": [None, None, None, "x\x01"]})
    encoded = encode(table, unique_keys=GIVEN)
    assert encoded.rows.tolist() == [0, 2]
    assert [row["uniqKey"] for row in read_rows(encoded)] == ["K0", "K2"]


def test_the_unique_key_counts_towards_the_properties_limit() -> None:
    room = 32_767 - len("TAGS\x01\x02")
    table = pa.table({"body": [b"", b""], "tags": ["t" * room, "t" * (room - len("UNIQ_KEY\x01K1\x02"))]})
    assert not encode(table).refusals
    encoded = encode(table, unique_keys=GIVEN.slice(0, 2))
    assert [(refusal.row, refusal.status) for refusal in encoded.refusals] == [
        (0, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
    ]


@pytest.mark.parametrize("key", [b"a\x01b", b"a\x02b", b"\xff"])
def test_keys_that_cannot_be_stored_are_an_error_of_the_caller(key: bytes) -> None:
    with pytest.raises(InvalidValue, match="unique key of row 1"):
        encode(pa.table({"body": [b"", b""]}), unique_keys=pa.array([b"good", key]))


def test_as_many_keys_as_rows_are_wanted() -> None:
    with pytest.raises(InvalidValue, match="4 unique keys for 1 messages"):
        encode(pa.table({"body": ["a"]}), unique_keys=GIVEN)


def test_no_keys_for_no_rows() -> None:
    encoded = encode(pa.table({"body": pa.array([], pa.binary())}), unique_keys=unique_keys(b"", 0, 0, 0))
    assert encoded.records.starts.tolist() == [0]
    assert np.array_equal(encoded.rows, [])
