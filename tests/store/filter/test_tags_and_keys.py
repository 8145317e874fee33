"""Tag subscriptions and sets of keys: which units and texts match, and the errors of bad ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from commitlog_store import MessageFilter
from commitlog_store.errors import FilterError, InvalidValue
from commitlog_store.filter.tags import parse_subscription
from commitlog_store.format.java_hash import string_hash_code
from tests.support.filter_rows import FilterRows


@pytest.mark.parametrize("text", ["", " ", "*", " * "])
def test_a_subscription_to_all_is_no_condition(text: str) -> None:
    assert parse_subscription(text) is None
    assert MessageFilter.parse(tags=text).is_all


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("a", ("a",)),
        ("a||b", ("a", "b")),
        (" a || b||a || ", ("a", "b")),
        ("a | b", ("a | b",)),
        ("ü||日", ("ü", "日")),
    ],
)
def test_tags_are_separated_by_two_bars(text: str, tags: tuple[str, ...]) -> None:
    subscription = parse_subscription(text)
    assert subscription is not None
    assert subscription.tags == tags


@pytest.mark.parametrize(("text", "several"), [("a,b", "a || b"), ("x || a, b", "a || b"), ("a | b|c", "a || b || c")])
def test_a_tag_that_looks_like_several_is_warned_of(text: str, several: str) -> None:
    (doubt,) = MessageFilter.parse_quietly(tags=text).doubts
    assert doubt.endswith(f"is read as one tag. Several tags are written as {several}.")


@pytest.mark.parametrize("text", ["a", "a || b", "a,", "a b", "*"])
def test_other_tags_are_not_warned_of(text: str) -> None:
    assert MessageFilter.parse_quietly(tags=text).doubts == ()


@pytest.mark.parametrize("count", [1, 3, 40])
def test_units_are_chosen_by_hash_code(count: int) -> None:
    subscription = parse_subscription("||".join(f"tag-{number}" for number in range(count)))
    assert subscription is not None
    codes = np.array([string_hash_code(f"tag-{number}") for number in range(60)] + [0], np.int64)
    assert subscription.may_match(codes).tolist() == [number < count for number in range(60)] + [False]
    assert subscription.may_match(codes[:0]).tolist() == []


@pytest.mark.parametrize("code", [1_700_000_000_000, -(2**63), -(2**31) - 1, 2**31])
def test_what_is_not_a_hash_code_may_match(code: int) -> None:
    """Delivery times, and addresses in consumequeue_ext."""
    subscription = parse_subscription("x")
    assert subscription is not None
    assert subscription.may_match(np.array([code, 5], np.int64)).tolist() == [True, False]


def test_texts_decide_between_tags_of_one_hash_code() -> None:
    assert string_hash_code("Aa") == string_hash_code("BB")
    wanted = MessageFilter.parse(tags="Aa")
    assert wanted.matches(FilterRows([{"TAGS": "Aa"}, {"TAGS": "BB"}, {}])).tolist() == [True, False, False]


def test_keys_are_words_of_keys_or_the_unique_key() -> None:
    messages = [
        {"KEYS": "k1"}, {"KEYS": "x k1"}, {"KEYS": "k1 x"}, {"KEYS": "k11"}, {"KEYS": "x  k2 "}, {"UNIQ_KEY": "k1"},
        {"UNIQ_KEY": "x k1"}, {"KEYS": "x y z"}, {},
    ]  # fmt: skip
    wanted = MessageFilter.parse(keys=["k1", "k2"])
    assert wanted.matches(FilterRows(messages)).tolist() == [True] * 3 + [False, True, True] + [False] * 3
    assert MessageFilter.parse(keys=" k1  k2 ") == wanted


def test_all_parts_must_hold() -> None:
    wanted = MessageFilter.parse(tags="x || y", filter="a > 5", keys="k")
    full = {"TAGS": "x", "KEYS": "k", "a": "6"}
    others = [full | {"TAGS": "z"}, full | {"KEYS": "z"}, full | {"a": "5"}, full | {"a": "z"}]
    assert wanted.matches(FilterRows([full, *others])).tolist() == [True] + [False] * 4


@pytest.mark.parametrize(
    ("given", "option", "position"),
    [
        ({"tags": "||"}, "tags", 0),
        ({"tags": "a || *"}, "tags", 5),
        ({"tags": "a||\ud800"}, "tags", 3),
        ({"keys": []}, "keys", 0),
        ({"keys": "  "}, "keys", 0),
        ({"keys": ["a", "b c"]}, "keys", 2),
        ({"keys": ["\udfff"]}, "keys", 0),
    ],
)
def test_what_cannot_be_a_filter_is_refused(given: dict[str, Any], option: str, position: int) -> None:
    with pytest.raises(FilterError) as caught:
        MessageFilter.parse(**given)
    assert (caught.value.option, caught.value.position) == (option, position)


@pytest.mark.parametrize("given", [{"tags": 5}, {"filter": b"a = 1"}, {"keys": [5]}, {"keys": 5}])
def test_other_types_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        MessageFilter.parse(**given)
