"""Hash codes are Java's, down to the bit: a wrong one loses every message of a tag or key."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commitlog_store.format.java_hash import index_key_hash, string_hash_code
from tests.store.format.golden_files import STORES, delayed, messages
from tests.support.encoders import tags_code

# Any Python text, lone surrogates included.
ANY_TEXT = st.text(st.characters(exclude_categories=()))

# Its hash code is the smallest int, whose absolute value no Java int can hold.
SMALLEST = "polygenelubricants"


def by_definition(text: str) -> int:
    """``s[0]*31^(n-1) + ... + s[n-1]`` in unbounded integers, cut to 32 bits at the end."""
    data = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2)]
    total: int = sum(unit * 31 ** (len(units) - 1 - i) for i, unit in enumerate(units))
    return (total + (1 << 31)) % (1 << 32) - (1 << 31)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("abc", 96354),
        ("TAG1", 2567159),
        ("TagA", 2598919),
        ("TAG1😀", -1826154598),
        ("\ud83d", 0xD83D),
        (SMALLEST, -(2**31)),
    ],
)
def test_hash_code_is_the_one_java_gives(text: str, code: int) -> None:
    assert string_hash_code(text) == code


def test_hash_code_of_a_long_text_is_the_one_java_gives() -> None:
    # Printed by OpenJDK 17 for the text whose i-th char is (char) (i * 7919): surrogates stand alone in it.
    assert string_hash_code("".join(chr(i * 7919 & 0xFFFF) for i in range(1000))) == -1519602996


def test_different_keys_can_share_a_hash_so_queries_must_compare_the_keys() -> None:
    assert string_hash_code("Aa") == string_hash_code("BB") == 2112


def test_a_pair_of_surrogates_is_the_character_that_they_form() -> None:
    assert string_hash_code("\ud83d\ude00") == string_hash_code("😀")


@given(ANY_TEXT)
@example("x" * 128)
@example("x" * 129)
@example("\udfff" * 500)
def test_hash_code_follows_its_definition(text: str) -> None:
    assert string_hash_code(text) == by_definition(text)


@given(st.integers(120, 140).flatmap(lambda n: st.text(min_size=n, max_size=n)))
def test_short_and_long_texts_are_hashed_alike(text: str) -> None:
    assert string_hash_code(text) == by_definition(text)


@given(ANY_TEXT)
def test_index_key_hash_is_never_negative(key: str) -> None:
    assert 0 <= index_key_hash(key) < 2**31


def test_index_key_hash_is_the_absolute_value() -> None:
    assert index_key_hash("TAG1😀") == 1826154598


def test_index_key_hash_of_the_smallest_int_is_0() -> None:
    assert string_hash_code(SMALLEST) == -(2**31)
    assert index_key_hash(SMALLEST) == 0


@pytest.mark.parametrize("tags", [None, ""])
def test_tags_code_of_no_tags_is_0(tags: str | None) -> None:
    assert tags_code(tags) == 0


def test_tags_code_may_be_negative() -> None:
    assert tags_code("TAG1😀") == -1826154598


@pytest.mark.parametrize("store", STORES)
def test_tags_codes_are_those_that_rocketmq_stored(store: str) -> None:
    compared = [message for message in messages(store) if not delayed(message)]
    assert {message["tags"] for message in compared} > {"paid"}
    for message in compared:
        assert tags_code(message["tags"]) == message["tagsCode"]
