"""Offsets by store time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commitlog_store import MessageStore, StoreReader, export_store
from commitlog_store.errors import InvalidValue
from commitlog_store.timestamps import milliseconds_of
from tests.store.shapes.numbered_bodies import body, log_files, made_bodies
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder


def _stored_at(builder: StoreBuilder, times: list[int]) -> None:
    for number, time in enumerate(times):
        builder.now_ms = FIRST_STORE_TIME + time
        builder.append("t", 0, [body(number)])


TIMES = [10, 10, 20, 20, 20, 30, 50, 50]


@pytest.mark.parametrize(
    ("time", "lower", "upper"),
    [
        (-1000, 0, 0), (9, 0, 0), (10, 0, 1), (11, 2, 1), (19, 2, 1), (20, 2, 4), (25, 5, 4), (30, 5, 5), (31, 6, 5),
        (49, 6, 5), (50, 6, 7), (51, 8, 7), (10**9, 8, 7),
    ],
)  # fmt: skip
def test_offset_by_time_of_equal_times_gaps_and_both_ends(
    builder: StoreBuilder, time: int, lower: int, upper: int
) -> None:
    _stored_at(builder, TIMES)
    with StoreReader.open(builder.path) as reader:
        assert reader.offset_by_time("t", 0, FIRST_STORE_TIME + time) == lower
        assert reader.offset_by_time("t", 0, FIRST_STORE_TIME + time, boundary="upper") == upper
        assert [reader.store_timestamp("t", 0, at) - FIRST_STORE_TIME for at in range(8)] == TIMES


def test_offset_by_time_when_the_head_expired(builder: StoreBuilder) -> None:
    places = builder.append("t", 0, made_bodies(60), step_ms=10)
    builder.delete_log_files(2)
    first = int(np.searchsorted(places, int(log_files(builder)[0].name)))
    with StoreReader.open(builder.path) as reader:
        assert reader.offset_by_time("t", 0, 0) == first
        assert reader.offset_by_time("t", 0, 0, boundary="upper") == first
        assert reader.offset_by_time("t", 0, FIRST_STORE_TIME + 10 * (first + 1)) == first + 1


def test_offset_by_time_of_an_empty_queue_is_its_end(builder: StoreBuilder) -> None:
    builder.append("t", 0, made_bodies(1))
    (builder.path / "consumequeue" / "t" / "1").mkdir()
    with StoreReader.open(builder.path) as reader:
        assert reader.offset_by_time("t", 1, FIRST_STORE_TIME) == 0
        assert reader.offset_by_time("t", 1, FIRST_STORE_TIME, boundary="upper") == 0
        with pytest.raises(InvalidValue, match="'middle'"):
            reader.offset_by_time("t", 0, 0, boundary="middle")  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [946_684_800, 1_795_250_230, 7_258_118_399], ids=["2000", "2026", "2199"])
def test_seconds_given_for_milliseconds_are_refused_with_the_right_value(builder: StoreBuilder, seconds: int) -> None:
    builder.append("t", 0, made_bodies(3), keys=["k"] * 3)
    words = rf"is in milliseconds, and {seconds} looks like seconds: give {seconds}000\."
    for from_log in (False, True):
        with StoreReader.open(builder.path, from_log=from_log) as reader:
            with pytest.raises(InvalidValue, match=f"^timestamp_ms {words}"):
                reader.offset_by_time("t", 0, seconds)
            with pytest.raises(InvalidValue, match=f"^begin {words}"):
                reader.query("t", "k", begin=seconds)
            with pytest.raises(InvalidValue, match=f"^end {words}"):
                reader.query("t", "k", end=seconds)


@pytest.mark.parametrize("time", [0, 1, 946_684_799, 7_258_118_400, 946_684_800_000, 2**63 - 1])
def test_times_that_no_clock_gives_as_seconds_are_milliseconds(builder: StoreBuilder, time: int) -> None:
    builder.append("t", 0, made_bodies(3))
    with StoreReader.open(builder.path) as reader:
        assert reader.offset_by_time("t", 0, time) == (0 if time < FIRST_STORE_TIME else 3)
        assert reader.query("t", "k", begin=time) == reader.query("t", "k", end=time) == []


HOUR_MS = 3_600_000


@pytest.fixture
def aged(builder: StoreBuilder) -> StoreBuilder:
    """Messages that were stored three and one and no hours ago."""
    now = int(datetime.now(timezone.utc).timestamp() * 1000)
    for number, hours in enumerate((3, 1, 0)):
        builder.now_ms = now - hours * HOUR_MS - 1000
        builder.append("t", 0, [body(number)], keys=["k"])
    return builder


@pytest.mark.parametrize(
    "ago",
    ["2h", "-2h", "120m", timedelta(hours=2), timedelta(hours=-2), datetime.now(timezone.utc) - timedelta(hours=2)],
)
def test_times_in_python_are_those_of_the_command_line(aged: StoreBuilder, tmp_path: Path, ago: Any) -> None:
    with StoreReader.open(aged.path) as reader:
        assert reader.scan("t", since=ago).read_all().num_rows == 2
        assert reader.scan("t", until=ago).read_all().num_rows == 1
        assert reader.offset_by_time("t", 0, ago) == 1
    with StoreReader.open(aged.path, from_log=True) as reader:  # the builder writes no index
        assert len(reader.query("t", "k", end=ago)) == 1
        assert len(reader.query("t", "k", begin=ago)) == 2
    assert export_store(aged.path, f"ndjson:{tmp_path / 'since'}", since=ago).rows == 2
    assert export_store(aged.path, f"ndjson:{tmp_path / 'until'}", until=ago).rows == 1
    with MessageStore.open(aged.path) as store, store.consumer("billing", "t", consume_from=ago) as consumer:
        assert len(consumer.poll()) == 2


def test_a_text_is_utc_and_a_datetime_has_a_zone() -> None:
    assert milliseconds_of("2026-11-21T09:30:00", "since") == 1_795_253_400_000
    assert milliseconds_of("2026-11-21 09:30:00+09:00", "since") == 1_795_221_000_000
    assert milliseconds_of("1795253400000", "since") == 1_795_253_400_000
    with pytest.raises(InvalidValue, match="since has no time zone"):
        milliseconds_of(datetime(2026, 11, 21), "since")  # noqa: DTZ001


@pytest.mark.parametrize(
    "wrong", ["tomorrow", "", "2h30", "1795250230", "9" * 5000, "9" * 50 + "w", timedelta.max, 1.5]
)
def test_what_is_not_a_time_is_refused_by_its_name(builder: StoreBuilder, wrong: Any) -> None:
    builder.append("t", 0, made_bodies(1))
    with StoreReader.open(builder.path) as reader:
        for ask in (
            lambda: reader.scan("t", since=wrong),
            lambda: reader.scan("t", until=wrong),
            lambda: reader.offset_by_time("t", 0, wrong),
            lambda: reader.query("t", "k", begin=wrong),
        ):
            with pytest.raises(InvalidValue, match=r"^(since|until|timestamp_ms|begin) "):
                ask()
