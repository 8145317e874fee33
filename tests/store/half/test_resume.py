"""Half messages that were given up, made pending again."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog_store import HalfMessageHandle, HalfMessagesChecked, MessageExt, MessageStore
from commitlog_store.errors import HalfMessageEnded, InvalidValue, MessageNotFound
from commitlog_store.format.half_messages import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from tests.store.half.test_check import answering, old
from tests.store.half.test_half_messages import prepare, stored
from tests.store.owner.owned_store import SYNC, open_store, put_ok
from tests.support.clean_store import assert_clean


def given_up(store: MessageStore, **settings: object) -> tuple[HalfMessageHandle, MessageExt]:
    """A half message that a check gives up, and its copy."""
    handle = prepare(store, b"paid", keys=["k1"], queue_id=2)
    for expected in (HalfMessagesChecked(put_back=1), HalfMessagesChecked(given_up=1)):
        assert store.half_messages.check(answering("unknown")) == expected
    return handle, stored(store, CHECK_MAX_TIME_TOPIC)[-1]


@pytest.mark.parametrize("settings", [{}, {"flush_disk_type": SYNC}])
def test_a_given_up_message_is_resumed_and_committed(tmp_path: Path, settings: dict[str, object]) -> None:
    with open_store(tmp_path / "store", transaction_time_out=0, transaction_check_max=1, **settings) as store:
        half = store.half_messages
        first, copy = given_up(store)
        with pytest.raises(HalfMessageEnded):
            half.commit(first)
        handle = half.resume(copy.message_id)
        (pending,) = half.pending()
        assert (pending.handle, pending.check_times, pending.message.topic) == (handle, 0, "orders")
        assert stored(store, HALF_TOPIC)[-1].properties["TRANSACTION_CHECK_TIMES"] == "0", "as a broker resumes it"
        assert half.check(answering("unknown")).put_back == 1, "it is asked for as often as a new one"
        half.commit(handle)
        (message,) = stored(store, "orders")
        assert (message.body, message.keys, message.queue_id) == (b"paid", ("k1",), 2)
    assert_clean(tmp_path / "store")


def test_a_message_is_resumed_once(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", transaction_time_out=0, transaction_check_max=1) as store:
        half = store.half_messages
        _, copy = given_up(store)
        handle = half.resume(copy.message_id)
        with pytest.raises(InvalidValue, match="is pending, at offset 2"):
            half.resume(copy.message_id)
        half.commit(handle)
        with pytest.raises(InvalidValue, match="committed before"):
            half.resume(copy.message_id)
        assert len(stored(store, "orders")) == 1


def test_only_given_up_messages_are_resumed(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        old(store, b"x")
        put = put_ok(store)
        with pytest.raises(InvalidValue, match="is in orders"):
            store.half_messages.resume(put.message_id)
        with pytest.raises(InvalidValue, match="message id"):
            store.half_messages.resume("k1")
        with pytest.raises(MessageNotFound):
            store.half_messages.resume(put.message_id[:16] + "0" * 10 + "FFFFFF")
