"""One round of checks: which half messages are asked for, and what their answers do.

The first tests say of this package what RocketMQ's TransactionalMessageServiceImplTest says of a broker.
"""

from __future__ import annotations

import functools
import itertools
import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog_store import HalfMessagesChecked, Message, MessageExt, MessageStore, StoreReader
from commitlog_store.errors import HalfMessageEnded, InvalidValue
from commitlog_store.format.half_messages import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from commitlog_store.format.properties import MAX_PROPERTIES_SIZE, encode_properties
from commitlog_store.half.transactional_message import TransactionalMessageService
from commitlog_store.half_message import Answer
from commitlog_store.owned_store import opening
from tests.store.half.brokers import positions, put_half, put_op
from tests.store.half.test_half_messages import prepare, stored
from tests.store.owner.owned_store import open_store, put_ok
from tests.support.clean_store import assert_clean

HOUR_MS = 3_600_000


def now() -> int:
    return int(time.time() * 1000)


def old(store: MessageStore, body: bytes, **properties: str) -> None:
    """A half message that is old enough for a check."""
    put_half(store, body, born=now() - 60_000, UNIQ_KEY=body.decode(), **properties)


def answering(answer: Answer, asked: list[MessageExt] | None = None) -> Callable[[MessageExt], Answer]:
    def callback(message: MessageExt) -> Answer:
        if asked is not None:
            asked.append(message)
        return answer

    return callback


def test_a_half_message_that_was_checked_too_often_is_given_up(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        old(store, b"often", TRANSACTION_CHECK_TIMES="100000")
        old(store, b"at-the-limit", TRANSACTION_CHECK_TIMES="15")
        asked: list[MessageExt] = []
        assert store.half_messages.check(answering("commit", asked)) == HalfMessagesChecked(given_up=2)
        assert asked == []
        found = stored(store, CHECK_MAX_TIME_TOPIC)
        assert [one.body for one in found] == [b"often", b"at-the-limit"]
        assert found[0].properties["REAL_TOPIC"] == "orders", "an operator may still send it"
        assert not store.half_messages.pending()
        assert not stored(store, "orders")
    assert_clean(tmp_path / "store")


def test_a_half_message_without_an_answer_is_put_back_with_one_check_more(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        old(store, b"hello", TRANSACTION_CHECK_TIMES="3", TAGS="t")
        asked: list[MessageExt] = []
        assert store.half_messages.check(answering("unknown", asked)) == HalfMessagesChecked(put_back=1)
        assert [(one.topic, one.queue_id, one.body) for one in asked] == [("orders", 0, b"hello")]
        first, copy = stored(store, HALF_TOPIC)
        assert copy.properties == {**first.properties, "TRANSACTION_CHECK_TIMES": "4"}
        assert (copy.born_timestamp, copy.body) == (first.born_timestamp, first.body)
        (pending,) = store.half_messages.pending()
        assert (pending.check_times, pending.message.queue_offset) == (4, 1)
    assert positions(tmp_path / "store") == (1, 1)


def test_a_half_message_that_an_op_message_names_is_not_asked_for(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        old(store, b"ended")
        old(store, b"left")
        put_op(store, b"0,")
        asked: list[MessageExt] = []
        store.half_messages.check(answering("rollback", asked))
        assert [one.body for one in asked] == [b"left"]


def test_answers_commit_and_roll_back(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        for body in (b"commit", b"rollback", b"unknown"):
            old(store, body)
        checked = store.half_messages.check(lambda message: message.body.decode())  # type: ignore[arg-type, return-value]
        assert checked == HalfMessagesChecked(committed=1, rolled_back=1, put_back=1)
        assert [one.body for one in stored(store, "orders")] == [b"commit"]
        assert [one.message.body for one in store.half_messages.pending()] == [b"unknown"]
    assert_clean(tmp_path / "store")


def test_a_message_is_given_up_after_as_many_rounds_as_the_setting_says(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", transaction_check_max=3) as store:
        old(store, b"lost")
        rounds = [store.half_messages.check(answering("unknown")) for _ in range(5)]
        assert [one.put_back for one in rounds] == [1, 1, 1, 0, 0]
        assert [one.given_up for one in rounds] == [0, 0, 0, 1, 0]


def test_young_messages_are_left_and_older_ones_behind_them_are_asked_for(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", transaction_time_out=30_000) as store:
        put_half(store, b"young", born=now())
        old(store, b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
        old(store, b"illegible immunity", CHECK_IMMUNITY_TIME_IN_SECONDS="soon")
        put_half(store, b"short immunity", born=now() - 5_000, CHECK_IMMUNITY_TIME_IN_SECONDS="1")
        put_half(store, b"born in the future", born=now() + HOUR_MS)
        asked: list[MessageExt] = []
        checked = store.half_messages.check(answering("commit", asked))
        assert [one.body for one in asked] == [b"illegible immunity", b"short immunity", b"born in the future"]
        assert (checked.too_young, checked.committed) == (2, 3)
    assert positions(tmp_path / "store")[0] <= 0, "the position stays before what is pending"


def test_a_message_of_more_than_72_hours_is_given_up(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        put_half(store, b"ancient", born=now() - 73 * HOUR_MS)
        put_half(store, b"old", born=now() - 71 * HOUR_MS)
        assert store.half_messages.check(answering("commit")) == HalfMessagesChecked(given_up=1, committed=1)


def test_the_age_at_which_one_is_given_up_is_that_of_the_files(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", file_reserved_time=2) as store:
        put_half(store, b"old", born=now() - 3 * HOUR_MS)
        assert store.half_messages.check(answering("commit")) == HalfMessagesChecked(given_up=1)


def test_the_first_handle_ends_the_message_that_was_put_back(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", transaction_time_out=0) as store:
        half = store.half_messages
        handles = [half.prepare(Message(topic="orders", body=b"%d" % number), "payments") for number in range(2)]
        for _ in range(3):
            assert half.check(answering("unknown")).put_back == 2
        half.commit(handles[0])
        with pytest.raises(HalfMessageEnded) as ended:
            half.rollback(handles[0])
        assert ended.value.committed
    with open_store(tmp_path / "store") as store:
        store.half_messages.rollback(handles[1])
        assert store.half_messages.pending() == []
        assert [one.body for one in stored(store, "orders")] == [b"0"]


def test_a_copy_does_not_stand_for_another_half_message_with_its_unique_key(tmp_path: Path) -> None:
    """A program that stopped before it kept the handle repeats its work, with the key that it gave the message."""
    with open_store(tmp_path / "store") as store:
        half = store.half_messages
        old(store, b"u")
        second = prepare(store, b"second", properties={"UNIQ_KEY": "u"})
        assert half.check(answering("unknown")) == HalfMessagesChecked(put_back=1, too_young=1)
        assert [one.message.body for one in half.pending()] == [b"second", b"u"]
        with StoreReader.open(store.path) as reader:
            assert reader.pending_half_messages() == half.pending()
        half.rollback(second)
        with pytest.raises(HalfMessageEnded):
            half.commit(second)
        assert [one.message.body for one in half.pending()] == [b"u"]


def test_a_callback_that_fails_counts_as_unknown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def callback(message: MessageExt) -> Answer:
        if message.body == b"bad":
            raise RuntimeError("the database is away")
        return "commit"

    with open_store(tmp_path / "store") as store:
        old(store, b"bad")
        old(store, b"good")
        with caplog.at_level(logging.ERROR):
            assert store.half_messages.check(callback) == HalfMessagesChecked(committed=1, put_back=1, failed=1)
    assert "the database is away" in caplog.text


def test_a_message_that_the_callback_itself_ends_is_not_ended_twice(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        old(store, b"x")

        def callback(message: MessageExt) -> Answer:
            store.half_messages.commit(store.half_messages.pending()[0].handle)
            return "commit"

        assert store.half_messages.check(callback) == HalfMessagesChecked()
        assert len(stored(store, "orders")) == 1


def test_a_message_that_retention_removes_while_it_is_asked_for_does_not_end_the_round(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        old(store, b"first")
        for _ in range(40):
            put_ok(store, "others", body=b"x" * 1_000)
        old(store, b"last")

        def callback(message: MessageExt) -> Answer:
            store.clean(max_bytes=20_000)
            return "commit"

        assert store.half_messages.check(callback) == HalfMessagesChecked(committed=1)
        assert [one.body for one in stored(store, "orders")] == [b"last"]


def test_another_answer_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        old(store, b"x")
        with pytest.raises(InvalidValue, match="answered by"):
            store.half_messages.check(bool)  # type: ignore[arg-type]
        assert len(store.half_messages.pending()) == 1


def test_a_reader_beside_the_owner_sees_the_copy_or_the_first_one_never_both(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store, StoreReader.open(store.path) as reader:
        old(store, b"x")
        store.dispatch()
        assert [one.check_times for one in reader.pending_half_messages()] == [0]
        store.half_messages.check(answering("unknown"))
        assert [one.check_times for one in reader.pending_half_messages()] == [1]


def test_a_message_for_a_place_that_cannot_exist_does_not_keep_others_from_being_checked(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        old(store, b"nowhere", REAL_QID="70000000000")
        old(store, b"fine")
        counts = store.half_messages.check(answering("commit"))
        assert counts == HalfMessagesChecked(committed=1, put_back=1, failed=1)
        assert [one.body for one in stored(store, "orders")] == [b"fine"]
        assert [one.message.body for one in store.half_messages.pending()] == [b"nowhere"]


def test_what_is_prepared_during_a_round_is_asked_for_in_the_next(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", transaction_time_out=0) as store:
        old(store, b"x")
        asked: list[bytes] = []

        def callback(message: MessageExt) -> Answer:
            asked.append(message.body)
            store.half_messages.prepare(Message(topic="orders", body=b"%d" % len(asked)), "payments")
            return "rollback"

        assert store.half_messages.check(callback).rolled_back == 1
        assert store.half_messages.check(callback).rolled_back == 1
        assert asked == [b"x", b"1"]


@pytest.mark.parametrize(
    ("born_hours_ago", "properties"),
    [(0, {"TRANSACTION_CHECK_TIMES": "15"}), (73, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "999999999"})],
)
def test_what_is_to_be_given_up_is_so_at_any_age_and_immunity(
    tmp_path: Path, born_hours_ago: int, properties: dict[str, str]
) -> None:
    with open_store(tmp_path / "store") as store:
        put_half(store, b"x", born=now() - born_hours_ago * HOUR_MS, **properties)
        assert store.half_messages.check(answering("commit")) == HalfMessagesChecked(given_up=1)


@pytest.mark.parametrize(("times", "next_times"), [("often", "0"), ("99999999999", "0"), ("+3", "4"), ("0", "1")])
def test_checks_are_counted_as_a_broker_counts_them(tmp_path: Path, times: str, next_times: str) -> None:
    with open_store(tmp_path / "store") as store:
        old(store, b"x", TRANSACTION_CHECK_TIMES=times)
        assert store.half_messages.check(answering("unknown")) == HalfMessagesChecked(put_back=1)
        assert stored(store, HALF_TOPIC)[-1].properties["TRANSACTION_CHECK_TIMES"] == next_times


def test_a_round_ends_after_60_seconds_and_the_next_one_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.chain([0.0, 1.0, 61.0], itertools.repeat(62.0))
    timed = functools.partial(TransactionalMessageService, elapsed=lambda: next(seconds))
    monkeypatch.setattr(opening, "TransactionalMessageService", timed)
    with open_store(tmp_path / "store") as store:
        for body in (b"a", b"b", b"c"):
            old(store, body)
        assert store.half_messages.check(answering("commit")) == HalfMessagesChecked(committed=1, left=2)
        assert store.half_messages.check(answering("commit")) == HalfMessagesChecked(committed=2)


def test_a_message_without_room_for_one_property_more_stays_and_others_are_checked(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", mapped_file_size_commit_log=1 << 20) as store:
        old(store, b"before")
        (before,) = stored(store, HALF_TOPIC)
        taken = len(
            encode_properties({**before.properties, "UNIQ_KEY": "filled", "filling": "x"}, trailing_separator=True)
        )
        old(store, b"filled", filling="x" * (MAX_PROPERTIES_SIZE - taken - 10))
        assert store.half_messages.check(answering("unknown")) == HalfMessagesChecked(put_back=1, failed=1)
        assert [one.check_times for one in store.half_messages.pending()] == [0, 1]
        assert store.half_messages.check(answering("commit")).committed == 2
