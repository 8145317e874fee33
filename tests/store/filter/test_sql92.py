"""SQL92 filters: RocketMQ's answers, a plain evaluator on random messages, and the errors of bad expressions."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store import MessageFilter
from commitlog_store.errors import FilterError
from commitlog_store.filter import message_filter
from commitlog_store.filter.expression import BooleanNode, implied_values, property_names
from tests.support.filter_rows import FilterRows, evaluated
from tests.support.sql92_cases import MESSAGES, random_expression, random_messages
from tests.support.sql92_reference import result_of

RESULTS: dict[str, Any] = json.loads((Path(__file__).parent / "sql92_results.json").read_text(encoding="utf-8"))


def parsed(text: str) -> BooleanNode:
    node = MessageFilter.parse(filter=text).expression
    assert node is not None
    return node


@pytest.mark.parametrize(("text", "letters"), RESULTS["results"])
def test_rocketmq_says_the_same(text: str, letters: str | None) -> None:
    """RocketMQ's answers: a letter for TRUE, FALSE, NULL or failed of each message (write_sql92_results.py)."""
    if letters is None:
        with pytest.raises(FilterError):
            parsed(text)
        return
    understood = text
    try:
        parsed(text)
    except FilterError as refusal:
        # RocketMQ ignores what it cannot use after a whole expression.
        understood = text[: refusal.position]
    assert "".join(one[0] for one in evaluated(parsed(understood), RESULTS["messages"])) == letters


@given(st.integers(0, 2**32))
def test_columns_are_evaluated_as_messages_one_by_one(seed: int) -> None:
    source = random.Random(seed)
    messages = [*random_messages(seed, 20), *MESSAGES[:: source.randint(1, 9)]]
    try:
        node = parsed(random_expression(source))
    except FilterError:
        return
    assert evaluated(node, messages) == [result_of(node, message) for message in messages]


@pytest.mark.parametrize("values", [["5", "15"], ["5.5", "1e1"], ["5", "n/a"], ["5", "+15"], ["٥", "15"], []])
def test_numbers_of_every_spelling_compare_alike(values: list[str]) -> None:
    """Plain numbers are converted by Arrow, all others one by one."""
    messages = [{"a": value} for value in values] + [{}]
    for text in ("a > 10", "a > 10.5", "a >= 5000000000", "a BETWEEN 1 AND 20", "a < a"):
        node = parsed(text)
        assert evaluated(node, messages) == [result_of(node, message) for message in messages]


def test_no_rows_at_all() -> None:
    wanted = MessageFilter.parse(tags="x", filter="a > 5 OR b = 'x'", keys="k")
    assert wanted.matches(FilterRows([])).tolist() == []


@pytest.mark.parametrize(
    ("text", "position", "expected", "found"),
    [
        ("", 0, "an expression", "none"),
        ("  ", 0, "an expression", "none"),
        ("a = 1 b = 2", 6, "AND", "b"),
        ("a > 'x'", 4, "only numbers are compared", "'x'"),
        ("a = 1 AND (b = 2", 16, ")", "the end"),
        ("a = 'x", 4, "closing '", "'"),
        ('a = "x"', 4, "single quotes", '"'),
        ("a != 1", 2, "<>", "!"),
        ("a = NULL", 4, "IS NULL", "NULL"),
        ("5", 0, "a condition", "5"),
        ("a = 1 AND 'x'", 10, "a condition", "'x'"),
        ("a BETWEEN 10 AND 5", 17, "at least 10", "5"),
        ("a = 9223372036854775808", 4, "at most 9223372036854775807", "9223372036854775808"),
        ("a = 0.0", 4, "above 0", "0.0"),
        ("a IN (5)", 6, "a 'text'", "5"),
        ("(a = 1) IN ('x')", 1, "a property", "a condition"),
        ("a LIKE 'x%'", 2, "CONTAINS", "LIKE"),
        ("NOT " * 200 + "a", 0, "at most 100 levels", "more"),
    ],
)
def test_errors_say_where_what_and_what_instead(text: str, position: int, expected: str, found: str) -> None:
    with pytest.raises(FilterError) as caught:
        MessageFilter.parse(filter=text)
    error = caught.value
    assert (error.option, error.text, error.position) == ("filter", text, position)
    assert expected in error.expected
    assert found in error.found
    assert "\n" not in str(error)
    assert pickle.loads(pickle.dumps(error)).position == position


@pytest.mark.parametrize(
    ("text", "compared"),
    [
        ("NOT x = 1", "x = 1"),
        ("not x = 1", "x = 1"),
        ("a > 5 AND (NOT x <> 'it''s' OR b)", "x <> 'it''s'"),
        ("NOT x = y", "x = y"),
        ("NOT x = TRUE", "x = TRUE"),
        ("NOT x IS NULL", "x IS NULL"),
        ("NOT x IS NOT NULL", "x IS NOT NULL"),
        ("NOT x CONTAINS 'a'", "x CONTAINS 'a'"),
        ("NOT x not endswith 'a'", "x NOT ENDSWITH 'a'"),
        ("NOT (NOT x = 1)", "x = 1"),
    ],
)
def test_a_not_before_a_comparison_is_warned_of_with_both_readings(
    text: str, compared: str, caplog: pytest.LogCaptureFixture
) -> None:
    message_filter._warn_once.cache_clear()
    wanted = MessageFilter.parse(filter=text)
    MessageFilter.parse(filter=text)
    operand, _, rest = compared.partition(" ")
    said = f"NOT {compared} is read as (NOT {operand}) {rest}, as RocketMQ does: there NOT binds before comparisons."
    assert caplog.messages == [f"{said} Write NOT ({compared}) for the other meaning, or the parentheses for this one."]
    assert wanted.doubts == tuple(caplog.messages)
    assert pickle.loads(pickle.dumps(wanted)).doubts == wanted.doubts
    assert wanted.expression == parsed(text.replace("NOT x", "(NOT x)").replace("not x", "(not x)"))


@pytest.mark.parametrize(
    ("text", "ways"),
    [
        (
            "queueId = 1 OR queueId > 2 AND x = 1",
            {"queueId": "compare it in the rows that are read, in Spark with .where"},
        ),
        ("tags = 'paid' AND keys IS NOT NULL", {"tags": "write TAGS for it", "keys": "write KEYS for it"}),
        ("TAGS = 'paid' AND KEYS = 'a' AND queue_id = 1", {}),
    ],
)
def test_the_name_of_a_column_is_warned_of_once(text: str, ways: dict[str, str]) -> None:
    assert MessageFilter.parse_quietly(filter=text).doubts == tuple(
        f"{name} is read as the property of that name. If the column is meant, {way}." for name, way in ways.items()
    )


@pytest.mark.parametrize(
    "text",
    [
        "(NOT x) = 1",
        "NOT (x = 1)",
        "NOT x",
        "NOT x AND a = 1",
        "NOT (a = 1 OR b = 2)",
        "a NOT IN ('x')",
        "TRUE = NOT x",
    ],
)
def test_other_negations_are_not_warned_of(text: str, caplog: pytest.LogCaptureFixture) -> None:
    assert MessageFilter.parse(filter=text).doubts == ()
    assert caplog.messages == []


@pytest.mark.parametrize("text", ["NOT x > 1", "NOT x IN ('a')", "NOT x BETWEEN 1 AND 2"])
def test_a_not_before_a_comparison_that_is_refused_is_explained(text: str) -> None:
    with pytest.raises(FilterError, match=r"NOT binds before comparisons: write NOT \(\.\.\.\) around one"):
        MessageFilter.parse(filter=text)


def test_long_chains_are_no_levels() -> None:
    text = " OR ".join(f"a = {number}" for number in range(5_000))
    assert evaluated(parsed(text), [{"a": "4999"}, {"a": "5000"}, {"a": "x"}]) == ["TRUE", "FALSE", "failed"]
    assert evaluated(parsed("(" * 3_000 + "a = 5" + ")" * 3_000), [{"a": "5"}]) == ["TRUE"]


def test_only_the_named_properties_are_looked_at() -> None:
    assert set(property_names(parsed("a > 5 AND NOT (b IN ('x') OR c = -d) OR e"))) == {"a", "b", "c", "d", "e"}


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("TAGS = 'x'", {"x"}),
        ("'x' = TAGS AND a > 5", {"x"}),
        ("TAGS IN ('x', 'y') AND TAGS IN ('y', 'z')", {"y"}),
        ("TAGS = 'x' AND TAGS = 'y'", set()),
        ("(TAGS = 'x' AND a = 5) OR TAGS = 'y'", {"x", "y"}),
        ("TAGS = 'x' OR a > 5", None),
        ("NOT (TAGS = 'x')", None),
        ("TAGS NOT IN ('x')", None),
        ("TAGS <> 'x' AND tags = 'x'", None),
        ("TAGS = 5 AND TAGS = TRUE", None),
    ],
)
def test_a_condition_on_tags_is_known_before_messages_are_read(text: str, tags: set[str] | None) -> None:
    assert implied_values(parsed(text), "TAGS") == tags
    assert MessageFilter.parse(filter=text).looks_at_units == (tags is not None)


@given(st.integers(0, 2**32))
def test_no_message_that_matches_has_other_values_than_implied(seed: int) -> None:
    source = random.Random(seed)
    names = " OR ".join(random_expression(source, 1) for _ in range(source.randint(1, 2)))
    try:
        node = parsed(f"({names}) AND ({random_expression(source)})")
    except FilterError:
        return
    messages = random_messages(seed, 50)
    for name in ("a", "TAGS"):
        values = implied_values(node, name)
        for message, result in zip(messages, evaluated(node, messages), strict=True):
            assert values is None or result != "TRUE" or message.get(name) in values


def test_a_filter_travels_without_the_parser() -> None:
    """Spark's tasks get the tree: none of them loads lark, and nothing else does."""
    wanted = MessageFilter.parse(tags="x", filter="a > 5 AND b CONTAINS 'y'", keys=["k"])
    assert pickle.loads(pickle.dumps(wanted)) == wanted
    script = (
        "import pickle, sys, commitlog_store;"
        f"wanted = pickle.loads({pickle.dumps(wanted)!r});"
        "commitlog_store.MessageFilter.parse(tags='x', keys='k');"
        "assert wanted.expression and 'lark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
