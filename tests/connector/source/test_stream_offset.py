"""The offset in the checkpoint: the same value is the same text, and foreign offsets are refused."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store import Fence
from commitlog_store.packed_json import pack_json
from pyspark_commitlog.errors import OffsetFormatError
from pyspark_commitlog.source.stream_offset import StreamOffset

KEYS = st.tuples(st.sampled_from(["orders", "audit", "%RETRY%g"]), st.integers(0, 20))
COUNTS = st.integers(0, 2**63 - 1)
FENCES = st.builds(Fence, COUNTS, st.integers(0, 2**32 - 1))
OFFSETS = st.builds(
    StreamOffset,
    offsets=st.dictionaries(KEYS, COUNTS),
    fences=st.dictionaries(KEYS, FENCES),
    batch_starts=st.dictionaries(KEYS, COUNTS),
    initial=st.booleans(),
)


def test_an_offset_has_the_documented_shape() -> None:
    offset = StreamOffset(
        offsets={("orders", 10): 7, ("orders", 2): 23}, fences={("orders", 2): Fence(81920, 305419896)}
    )
    assert json.dumps(offset.to_json()) == (
        '{"version": 1, "offsets": {"orders": {"2": 23, "10": 7}}, "fence": {"orders": {"2": [81920, 305419896]}}}'
    )


@given(OFFSETS)
def test_an_offset_comes_back_from_the_checkpoint(offset: StreamOffset) -> None:
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


@given(OFFSETS, st.randoms())
def test_equal_offsets_are_equal_text(offset: StreamOffset, random: Any) -> None:
    """Spark compares the text: another order of the keys would be a batch without news, again and again."""
    keys = list(offset.offsets)
    random.shuffle(keys)
    shuffled = StreamOffset(
        offsets={key: offset.offsets[key] for key in keys},
        fences={key: offset.fences[key] for key in reversed(list(offset.fences))},
        batch_starts={key: offset.batch_starts[key] for key in reversed(list(offset.batch_starts))},
        initial=offset.initial,
    )
    assert json.dumps(shuffled.to_json()) == json.dumps(offset.to_json())


def test_queue_ids_of_an_offset_may_be_numbers() -> None:
    parsed = StreamOffset.from_json({"version": 1, "offsets": {"orders": {0: 23}}})
    assert parsed.offsets == {("orders", 0): 23}


def test_the_offset_of_another_source_is_shown_with_what_to_do() -> None:
    with pytest.raises(OffsetFormatError) as caught:
        StreamOffset.from_json({"orders": {"0": 23}})
    assert "found \"{'orders': {'0': 23}}\"" in str(caught.value)
    assert "Use the checkpoint of this query, or start with a new checkpoint;" in str(caught.value)


def test_a_newer_version_is_refused_by_its_number() -> None:
    with pytest.raises(OffsetFormatError, match=r"version 2.*written by a newer one"):
        StreamOffset.from_json({"version": 2, "offsets": {}, "what": "ever"})


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "text",
        {},
        {"version": True, "offsets": {}},
        {"version": 0, "offsets": {}},
        {"version": "1", "offsets": {}},
        {"version": 1},
        {"version": 1, "offsets": []},
        {"version": 1, "offsets": {"orders": 5}},
        {"version": 1, "offsets": {"orders": {"0": -1}}},
        {"version": 1, "offsets": {"orders": {"0": True}}},
        {"version": 1, "offsets": {"orders": {"0": 1.0}}},
        {"version": 1, "offsets": {"orders": {"0": 2**63}}},
        {"version": 1, "offsets": {"orders": {"x": 1}}},
        {"version": 1, "offsets": {}, "fence": {"orders": {"0": [1]}}},
        {"version": 1, "offsets": {}, "fence": {"orders": {"0": ["1", 2]}}},
        {"version": 1, "offsets": {}, "from": 5},
        {"version": 1, "offsets": {}, "surprise": 5},
        {"orders": {"0": 5}},
    ],
)
def test_a_foreign_offset_is_refused(value: object) -> None:
    with pytest.raises(OffsetFormatError, match="expected"):
        StreamOffset.from_json(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.fixed_dictionaries({"version": st.just(1), "offsets": JSON}, optional={"fence": JSON, "from": JSON}))
def test_any_json_is_read_or_refused_by_name(value: dict[str, Any]) -> None:
    try:
        parsed = StreamOffset.from_json(value)
    except OffsetFormatError:
        return
    assert all(0 <= offset < 2**63 for offset in parsed.offsets.values())


def _of_many(queues: int) -> StreamOffset:
    keys = [(f"topic-{number}", 0) for number in range(queues)]
    return StreamOffset(
        offsets={key: 5 + number for number, key in enumerate(keys)},
        fences={key: Fence(100 * number, number) for number, key in enumerate(keys)},
        batch_starts=dict.fromkeys(keys[:3], 1),
        initial=True,
    )


def test_the_offset_of_many_queues_is_packed_and_comes_back() -> None:
    """PySpark parses it several times a trigger: 7 µs for each queue, if it were not one string."""
    assert _of_many(255).to_json()["version"] == 1
    value = _of_many(256).to_json()
    assert value.keys() == {"version", "packed"}
    assert value["version"] == 3
    assert StreamOffset.from_json(json.loads(json.dumps(value))) == _of_many(256)
    inner = json.loads(zlib.decompress(base64.b64decode(value["packed"])))
    assert inner["version"] == 1
    assert inner["offsets"]["topic-7"] == {"0": 12}


def test_packed_text_is_that_of_the_json_module() -> None:
    """Versions before this one wrote it so, and Spark compares texts."""
    value = _of_many(300).to_json()
    inner = zlib.decompress(base64.b64decode(value["packed"]))
    assert inner.decode() == json.dumps(json.loads(inner), separators=(",", ":"))


def test_the_offset_of_many_queues_in_an_older_checkpoint_is_read() -> None:
    """Versions before 3 were never packed."""
    value = json.loads(zlib.decompress(base64.b64decode(_of_many(300).to_json()["packed"])))
    assert StreamOffset.from_json(value) == _of_many(300)


@pytest.mark.parametrize(
    "value",
    [
        {"version": 3},
        {"version": 3, "packed": 5},
        {"version": 3, "packed": ""},
        {"version": 3, "packed": "eA"},
        {"version": 3, "packed": "not base64!"},
        {"version": 3, "packed": base64.b64encode(b"not compressed").decode()},
        {"version": 3, "packed": base64.b64encode(zlib.compress(b"not JSON")).decode()},
        {"version": 3, "packed": pack_json([1])},
        {"version": 3, "packed": pack_json({"version": 1, "offsets": {"orders": 5}})},
        {"version": 3, "packed": pack_json({"version": 3, "packed": pack_json({"version": 1, "offsets": {}})})},
        {"version": 3, "packed": pack_json({"version": 1, "offsets": {}}), "more": 1},
    ],
)
def test_a_damaged_packed_offset_is_refused(value: object) -> None:
    with pytest.raises(OffsetFormatError, match="expected"):
        StreamOffset.from_json(value)
