"""Lag, messages read and offsets skipped, computed from the offsets of a progress event."""

from __future__ import annotations

import logging

import pytest

from pyspark_commitlog.listener import BatchNumbers, CommitLogLagListener, batch_numbers, lag_by_queue

END = '{"version": 1, "offsets": {"orders": {"0": 20, "1": 50}}, "fence": {"orders": {"0": [1, 2]}}}'
LATEST = '{"version": 1, "offsets": {"orders": {"0": 50, "1": 50, "10": 7}}}'


def test_lag_counts_the_unread_messages_of_each_queue() -> None:
    assert lag_by_queue(END, LATEST) == {("orders", 0): 30, ("orders", 1): 0, ("orders", 10): 7}


def test_before_the_first_batch_all_messages_are_lag() -> None:
    assert lag_by_queue(None, LATEST) == {("orders", 0): 50, ("orders", 1): 50, ("orders", 10): 7}


@pytest.mark.parametrize("other", [None, "", "null", "5", '{"orders": {"0": 5}}', "not json", '{"logOffset": 3}'])
def test_other_sources_are_skipped(other: str | None) -> None:
    assert lag_by_queue(END, other) is None


def test_the_lag_of_a_queue_that_lost_its_tail_is_not_negative() -> None:
    assert lag_by_queue(END, '{"version": 1, "offsets": {"orders": {"0": 5}}}') == {("orders", 0): 0}


def test_the_log_names_the_worst_queues_first(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="pyspark_commitlog.listener"):
        CommitLogLagListener().on_lag("q", 3, {("orders", 0): 1, ("orders", 1): 0, ("audit", 2): 9})
    assert caplog.messages == ["Query q, batch 3: 10 messages behind in 2 of 3 queues; audit/2: 9; orders/0: 1"]


def test_the_lag_of_many_queues_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="pyspark_commitlog.listener"):
        CommitLogLagListener().on_lag("q", 3, {("wide", queue_id): 1 for queue_id in range(100)})
    assert [record.levelno for record in caplog.records] == [logging.INFO] + [logging.DEBUG] * 100


def test_the_messages_of_a_batch_are_counted_by_topic() -> None:
    start = '{"version": 1, "offsets": {"orders": {"0": 15, "1": 50}, "audit": {"0": 7}}}'
    offsets = '{"orders": {"0": 20, "1": 60, "2": 4}, "audit": {"0": 7}}'
    end = f'{{"version": 1, "offsets": {offsets}, "from": {{"orders": {{"2": 1}}}}}}'
    assert batch_numbers(start, end) == BatchNumbers({"orders": 18}, {})


@pytest.mark.parametrize("none", [None, "None", "null", ""])
def test_the_first_batch_says_itself_where_it_began(none: str | None) -> None:
    end = '{"version": 1, "offsets": {"orders": {"0": 20, "1": 3}}, "from": {"orders": {"0": 5, "1": 3}}}'
    assert batch_numbers(none, end) == BatchNumbers({"orders": 15}, {})


@pytest.mark.parametrize("other", [None, "5", '{"orders": {"0": 5}}', "not json"])
def test_batches_of_other_sources_are_skipped(other: str | None) -> None:
    assert batch_numbers(END, other) is None


def test_the_log_has_what_was_read_and_what_was_skipped(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="pyspark_commitlog.listener"):
        CommitLogLagListener().on_batch("q", 3, BatchNumbers({"audit": 2, "orders": 18}, {("orders", 0): (4, 9)}))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "Query q, batch 3: 20 messages read; audit: 2, orders: 18"),
        ("WARNING", "Query q, batch 3: 5 offsets skipped, whose messages are lost; orders/0: [4, 9)"),
    ]
