"""Options by time: milliseconds, ISO 8601 with a zone, and JSON by topic and queue."""

from __future__ import annotations

import pytest

from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.read import parse_batch_options, parse_options, parse_stream_options
from pyspark_commitlog.options.values import EARLIEST, LATEST, parse_timestamp

GOOD = {"path": "/store", "subscribe": "orders"}
# date -u -d 2026-01-31T12:00:00Z +%s
NOON = 1_769_860_800_000


def refused(**options: str) -> str:
    with pytest.raises(OptionError) as caught:
        parse_options(GOOD | options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        (str(NOON), NOON),
        ("2026-01-31T12:00:00Z", NOON),
        (" 2026-01-31T12:00Z ", NOON),
        ("2026-01-31 13:00:00+01:00", NOON),
        ("2026-01-31T06:30:00-0530", NOON),
        ("2026-01-31T12:00:00.25Z", NOON + 250),
        # The first message at or after that time: none of the millisecond before.
        ("2026-01-31T12:00:00.0001Z", NOON + 1),
        ("1970-01-01T00:00:00Z", 0),
    ],
)
def test_a_time_is_milliseconds_or_iso_8601(text: str, milliseconds: int) -> None:
    assert parse_timestamp("startingTimestamp", text) == milliseconds


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("2026-01-31T12:00:00", "2026-01-31T12:00:00Z for UTC"),
        ("2026-02-30T12:00:00Z", "ISO 8601"),
        ("2026-01-31T25:00:00Z", "ISO 8601"),
        ("2026-01-31T12:00:00+25:00", "ISO 8601"),
        ("2026-01-31", "ISO 8601"),
        ("1969-12-31T23:00:00Z", "since 1970"),
        ("-1", "since 1970"),
    ],
)
def test_another_text_is_refused_with_what_is_expected(text: str, part: str) -> None:
    for option in ("startingTimestamp", "endingTimestamp"):
        message = refused(**{option: text})
        assert f"Option {option} is {text!r}; expected " in message
        assert part in message


def test_json_gives_each_queue_its_time() -> None:
    options = parse_options(
        GOOD
        | {"startingOffsetsByTimestamp": f'{{"orders":{{"0":{NOON},"1":"{NOON + 1}","2":"2026-01-31T12:00:00Z"}}}}'}
    )
    assert options.start_rule.times == {("orders", 0): NOON, ("orders", 1): NOON + 1, ("orders", 2): NOON}
    assert options.start_rule.default == EARLIEST
    given = GOOD | {"endingOffsetsByTimestamp": f'{{"orders":{{"0":{NOON}}}}}'}
    assert parse_batch_options(given).end_rule.default == LATEST


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (str(NOON), 'JSON such as {"orders":'),
        ("{}", 'JSON such as {"orders":'),
        ('{"orders":5}', "'orders' has no object"),
        ('{"orders":{"first":5}}', "'first'"),
        ('{"orders":{"0":1.5}}', "1.5"),
        ('{"orders":{"0":true}}', "True"),
        ('{"orders":{"0":"2026-01-31T12:00:00"}}', "with its zone"),
        ('{"orders":{"0":1769860800}}', "1769860800000 if this one is in seconds"),
        ('{"audit":{"0":5}}', "queue 0 of 'audit' is not"),
    ],
)
def test_other_json_is_refused(text: str, part: str) -> None:
    message = refused(startingOffsetsByTimestamp=text)
    assert "startingOffsetsByTimestamp" in message
    assert part in message


@pytest.mark.parametrize("which", ["starting", "ending"])
def test_offsets_and_both_kinds_of_times_exclude_each_other(which: str) -> None:
    given = {f"{which}Timestamp": "5", f"{which}OffsetsByTimestamp": '{"orders":{"0":5}}'}
    assert f"{which}Timestamp and {which}OffsetsByTimestamp exclude each other; found both" in refused(**given)
    assert "found all of them" in refused(**given, **{f"{which}Offsets": '{"orders":{"0":5}}'})


@pytest.mark.parametrize(
    "options",
    [
        {"startingTimestamp": "6", "endingTimestamp": "5"},
        {"startingTimestamp": "6", "endingOffsetsByTimestamp": '{"orders":{"0":5}}'},
        {"startingOffsetsByTimestamp": '{"orders":{"0":6}}', "endingTimestamp": "5"},
        {"startingOffsetsByTimestamp": '{"orders":{"0":6}}', "endingOffsetsByTimestamp": '{"orders":{"0":5}}'},
    ],
)
def test_a_batch_does_not_start_after_its_end(options: dict[str, str]) -> None:
    assert "no start after the end" in refused(**options)
    assert "from 6 to 5 ms" in refused(**options)


def test_an_end_by_time_is_refused_in_a_stream() -> None:
    with pytest.raises(OptionError, match="endingOffsetsByTimestamp is for batch reads"):
        parse_stream_options(GOOD | {"endingOffsetsByTimestamp": '{"orders":{"0":5}}'})


def test_the_strategy_is_error_or_latest() -> None:
    assert not parse_options(GOOD).fails_without_match
    assert parse_options(GOOD | {"startingOffsetsByTimestampStrategy": " Error "}).fails_without_match
    assert "error or latest" in refused(startingOffsetsByTimestampStrategy="earliest")
