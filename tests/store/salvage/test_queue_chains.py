"""Chains of queue offsets: what is missing, what is wrong, and how a salvaged queue is numbered."""

from __future__ import annotations

import numpy as np
import pytest

from commitlog_store.salvage.queue_chains import Chains, QueueChain

SIZE = 100  # of every record here; the smallest has 91 bytes


def chains_of(*messages: tuple[int, int, int], lost: tuple[tuple[int, int], ...] = (), log_start: int = 0) -> Chains:
    """The settled chains of messages, each its place, queue id and queue offset."""
    chains = Chains()
    for place, queue_id, offset in sorted(messages):
        chains.of("t", queue_id).add(offset, offset + 1, place, place, place + SIZE)
    chains.settle(list(lost), log_start)
    chains.number()
    return chains


def queue(first: int, *offsets: int, queue_id: int = 0) -> list[tuple[int, int, int]]:
    """Messages side by side from a place on; an offset of -1 is a hole in the log."""
    return [(first + SIZE * row, queue_id, offset) for row, offset in enumerate(offsets) if offset >= 0]


def runs(chains: Chains, queue_id: int = 0) -> list[tuple[int, int]]:
    chain = chains.queues.get(("t", queue_id), QueueChain("t", queue_id))
    return [(run.start, run.stop) for run in chain.runs]


def wrong(chains: Chains) -> list[tuple[int, int]]:
    return sorted((queue_id, run.start) for run, (_, queue_id) in chains.wrong)


def test_a_whole_queue_is_one_run_and_keeps_its_offsets() -> None:
    chains = chains_of(*queue(0, 0, 1, 2, 3))
    assert runs(chains) == [(0, 4)]
    assert not chains.queues["t", 0].is_moved


def test_a_queue_whose_head_has_expired_keeps_its_offsets() -> None:
    chains = chains_of(*queue(5000, 70, 71), log_start=5000)
    assert chains.queues["t", 0].new_starts == [70]
    assert not chains.wrong


def test_messages_before_a_hole_move_up_and_those_after_it_stay() -> None:
    chains = chains_of(*queue(0, 0, 1, -1, 3, 4), lost=((200, 300),))
    chain = chains.queues["t", 0]
    assert chain.missing() == [(2, 3)]
    assert chain.new_starts == [1, 3]
    places = np.array([0, 100, 300, 400])
    assert chain.new_offsets(places, np.array([0, 1, 3, 4])).tolist() == [1, 2, 3, 4]


def test_a_topic_that_was_made_again_continues_its_queue() -> None:
    chains = chains_of(*queue(0, 0, 1, 2, 0, 1))
    chain = chains.queues["t", 0]
    assert runs(chains) == [(0, 3), (0, 2)]
    assert chain.new_starts == [0, 3]


def test_an_offset_that_fits_nowhere_is_wrong() -> None:
    for found in (999, 3, 0):
        chains = chains_of(*queue(0, 0, 1, 2, 3, 4, found, 6, 7))
        assert wrong(chains) == [(0, found)]
        assert runs(chains) == [(0, 5), (6, 8)]
        assert chains.queues["t", 0].missing() == [(5, 6)]


def test_the_first_and_the_last_offset_of_a_queue_can_be_wrong() -> None:
    assert wrong(chains_of(*queue(0, 999, 1, 2, 3))) == [(0, 999)]
    assert wrong(chains_of(*queue(0, 0, 1, 2, 1 << 40))) == [(0, 1 << 40)]
    assert wrong(chains_of(*queue(0, 0, 1, 2, 1))) == [(0, 1)]


def test_a_record_that_came_into_another_queue_is_wrong() -> None:
    moved = (300, 7, 3)
    chains = chains_of(*queue(0, 0, 1, 2, -1, 4, 5), moved)
    assert wrong(chains) == [(7, 3)]
    assert chains.queues["t", 0].missing() == [(3, 4)]
    # Also into one that exists, and when the hole is before the queue's last message.
    others = queue(1000, 0, 1, 2, 3, queue_id=7)
    chains = chains_of(*queue(0, 0, 1, 2, -1, 4), moved, *others)
    assert wrong(chains) == [(7, 3)]
    assert runs(chains, 7) == [(0, 4)]
    assert runs(chains) == [(0, 3), (4, 5)]


def test_a_single_message_after_lost_bytes_is_right() -> None:
    chains = chains_of(*queue(0, 0, 1, -1, -1, 4), lost=((200, 400),))
    assert not chains.wrong
    assert runs(chains) == [(0, 2), (4, 5)]


def test_leaving_a_message_out_makes_two_runs() -> None:
    chains = chains_of(*queue(0, 0, 1, 2, 3))
    chain = chains.queues["t", 0]
    chain.leave_out(2, 200)
    chain.number()
    assert chain.new_starts == [1, 3]
    assert chain.new_offsets(np.array([0, 100, 300]), np.array([0, 1, 3])).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("position", "now"), [(0, 0), (2, 2), (3, 3), (4, 3), (5, 4), (6, 5), (7, 5), (8, 5), (9, 6), (10, 7), (12, 9)]
)
def test_a_consumer_gets_the_message_that_it_would_have_got_next(position: int, now: int) -> None:
    """Found are the messages 0 to 2, 4, 5, 8 and 9."""
    chain = QueueChain("t", 0)
    for start, stop in ((0, 3), (4, 6), (8, 10)):
        chain.add(start, stop, start * 100, (stop - 1) * 100, stop * 100)
    chain.number(from_zero=True)
    assert chain.new_starts == [0, 3, 5]
    assert chain.new_position(position) == now


def test_of_a_topic_that_was_made_again_consumers_stand_in_the_last_part() -> None:
    chain = QueueChain("t", 0)
    chain.add(0, 50, 0, 4900, 5000)
    chain.add(0, 10, 5000, 5900, 6000)
    chain.number(from_zero=True)
    assert [chain.new_position(position) for position in (0, 4, 10, 11)] == [50, 54, 60, 61]
