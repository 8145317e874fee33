"""The numbers of a query, computed from the texts of a progress event and from what tasks have reported."""

from __future__ import annotations

from collections import Counter

import pytest

from pyspark_commitlog.query_numbers import SEVERAL_TOPICS, BatchNumbers, Lag, delivered_numbers, lag_of
from pyspark_commitlog.source.progress_report import ProgressReport
from pyspark_commitlog.source.task_reports import Tally

START = '{"version": 1, "offsets": {"orders": {"0": 10, "1": 50}, "audit": {"0": 7}}}'
END = '{"version": 1, "offsets": {"orders": {"0": 30, "1": 60}, "audit": {"0": 17}}, "from": {"orders": {"0": 15}}}'
PLANNED = {("orders", 0): 15, ("orders", 1): 10, ("audit", 0): 10}


def tally(*, wanted: dict[tuple[str, int], int] = PLANNED, **numbers: Counter[str] | Counter[tuple[str, int]]) -> Tally:
    return Tally(path="/store", wanted=Counter(wanted), **numbers)  # type: ignore[arg-type]


def test_what_is_neither_delivered_nor_lost_nor_damaged_did_not_match() -> None:
    reported = tally(rows=Counter(orders=12, audit=9), lost=Counter({("orders", 1): 4}), damaged=Counter(audit=1))
    assert delivered_numbers(START, END, 99, reported, source="/store") == BatchNumbers(
        {"orders": 12, "audit": 9},
        {("orders", 0): (10, 15)},
        filtered={"orders": 9},
        lost={("orders", 1): 4},
        damaged={"audit": 1},
        source="/store",
    )


def test_what_no_task_was_given_was_lost_before() -> None:
    reported = tally(wanted=PLANNED | {("orders", 0): 11}, rows=Counter(orders=21, audit=10))
    numbers = delivered_numbers(START, END, 31, reported, source="")
    assert numbers is not None
    assert (numbers.lost, numbers.filtered) == ({("orders", 0): 4}, {})


def test_without_reports_rows_that_spark_counts_are_read() -> None:
    """All of them were delivered, or more, when the query reads the batch twice."""
    for rows in (35, 70):
        assert delivered_numbers(START, END, rows, None, source="") == BatchNumbers(
            {"orders": 25, "audit": 10}, {("orders", 0): (10, 15)}
        )


def test_without_reports_the_cause_of_missing_rows_is_not_guessed() -> None:
    numbers = delivered_numbers(START, END, 12, None, source="")
    assert numbers is not None
    assert (numbers.read, numbers.unaccounted, numbers.lost) == ({SEVERAL_TOPICS: 12}, 23, {})
    one_topic = '{"version": 1, "offsets": {"orders": {"0": 30}}, "from": {"orders": {"0": 15}}}'
    numbers = delivered_numbers(None, one_topic, 12, None, source="")
    assert numbers is not None
    assert (numbers.read, numbers.unaccounted) == ({"orders": 12}, 3)


def test_without_new_messages_nothing_is_read() -> None:
    """Spark then reports the offsets of the last batch again, which say where that batch began."""
    assert delivered_numbers(END, END, 0, None, source="") == BatchNumbers({}, {})


def report(**parts: object) -> ProgressReport:
    found = ProgressReport.from_text(
        '{"version": 1, "offsets": {"orders": {"0": 50, "1": 60}}, "source": {"path": "/store", "run": "1"}, '
        '"oldest": {"orders": {"0": 1700000000500}}}'
    )
    assert found is not None
    return found


def test_lag_has_the_age_of_the_oldest_message() -> None:
    lag = lag_of(END, report(), source="/store", now_s=1_700_000_012.5)
    assert isinstance(lag, Lag)
    assert lag == {("orders", 0): 20, ("orders", 1): 0}
    assert lag.seconds == {("orders", 0): 12.0, ("orders", 1): 0.0}
    assert lag.source == "/store"


def test_a_clock_behind_the_stores_gives_no_negative_age() -> None:
    lag = lag_of(END, report(), source="", now_s=0.0)
    assert lag is not None
    assert lag.seconds[("orders", 0)] == 0.0


@pytest.mark.parametrize(
    "other",
    [None, "", "null", "5", '{"orders": {"0": 5}}', '{"source": 5}', '{"oldest": {"a": 5}}', '{"logOffset": 3}'],
)
def test_reports_of_other_sources_are_skipped(other: str | None) -> None:
    assert ProgressReport.from_text(other) is None


def test_before_the_first_look_a_report_names_its_source_alone() -> None:
    text = '{"source": {"path": "/store", "run": "1"}}'
    found = ProgressReport.from_text(text)
    assert found == ProgressReport(ends=None, path="/store", run="1")
    assert found is not None
    assert lag_of(END, found, source="", now_s=0.0) is None
