"""Hash codes of many texts are those of each one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.columnar.hash_codes import index_key_hashes, string_hash_codes, tags_codes
from commitlog_store.format.java_hash import index_key_hash, string_hash_code
from tests.support.encoders import tags_code

_ascii = st.text(st.characters(max_codepoint=127), max_size=40)
_any = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
columns = st.one_of(
    st.lists(st.one_of(st.none(), _ascii), max_size=8),
    st.lists(st.one_of(st.none(), _ascii, _any), max_size=8),
    st.integers(0, 33).flatmap(
        lambda size: st.lists(st.text(st.characters(max_codepoint=127), min_size=size, max_size=size), max_size=8)
    ),
)


@given(columns, st.integers(0, 3))
def test_each_text_gets_its_hash_code(texts: list[str | None], cut: int) -> None:
    """Rows in front that are cut off must not be counted in: the array shares its buffers with them."""
    array = pa.array(texts, pa.string()).slice(cut)
    assert string_hash_codes(array).tolist() == [string_hash_code(text or "") for text in texts[cut:]]
    assert tags_codes(array).tolist() == [tags_code(text) for text in texts[cut:]]


@given(columns, st.one_of(st.lists(_any, min_size=1, max_size=3), st.lists(_ascii, min_size=16)), st.data())
def test_index_keys_are_hashed_as_if_joined(texts: list[str | None], topics: list[str], data: st.DataObject) -> None:
    """Many topics are hashed together, too."""
    codes = [data.draw(st.integers(0, len(topics) - 1)) for _ in texts]
    found = index_key_hashes(topics, np.array(codes, np.int32), pa.array(texts, pa.string()))
    assert found.dtype == np.dtype(np.int32)
    expected = [index_key_hash(f"{topics[code]}#{text or ''}") for code, text in zip(codes, texts, strict=True)]
    assert found.tolist() == expected


def test_known_texts_get_their_known_hash_codes() -> None:
    found = string_hash_codes(pa.array(["TAG1", "TagA", "abc", "TAG1😀", "", "Aa", "BB"]))
    assert found.tolist() == [2567159, 2598919, 96354, -1826154598, 0, 2112, 2112]
    assert found.dtype == np.dtype(np.int32)


def test_smallest_hash_code_becomes_zero() -> None:
    """``Math.abs`` leaves it negative, and a negative slot would lie in front of the table."""
    key = "AUH[RK^"
    assert string_hash_code(f"orders#{key}") == -(2**31)
    assert index_key_hashes(["orders"], np.zeros(1, np.int32), pa.array([key])).tolist() == [0]


def test_one_long_text_among_short_ones_gets_its_hash_code() -> None:
    texts = ["a", "xyz" * 5000, "", "ä" * 3000, "b" * 32767]
    assert string_hash_codes(pa.array(texts)).tolist() == [string_hash_code(text) for text in texts]
    assert string_hash_codes(pa.array(["q" * 32767] * 3)).tolist() == [string_hash_code("q" * 32767)] * 3


def test_no_texts_and_no_tags_give_no_hash_codes() -> None:
    nothing = pa.array([], pa.string())
    assert string_hash_codes(nothing).tolist() == tags_codes(nothing).tolist() == []
    assert index_key_hashes([], np.zeros(0, np.int32), nothing).tolist() == []
    assert tags_codes(pa.nulls(2, pa.string())).tolist() == [0, 0]
    assert string_hash_codes(pa.array(["", ""])).tolist() == [0, 0]
