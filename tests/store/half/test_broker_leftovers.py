"""Half messages that a broker has committed without an op message: their commit is known, and not repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog_store import HalfMessageHandle, HalfMessagesChecked, Message, MessageExtBrokerInner, MessageStore
from commitlog_store.errors import HalfMessageEnded
from commitlog_store.format.half_messages import OP_TOPIC
from commitlog_store.format.sys_flag import TRANSACTION_COMMIT_TYPE
from tests.store.half.brokers import put_half, put_op
from tests.store.half.test_check import answering, now
from tests.store.half.test_half_messages import stored
from tests.store.owner.owned_store import open_store

BORN_BEFORE_MS = 60_000


def put_commit(store: MessageStore, prepared: int, body: bytes = b"x", born: int | None = None) -> None:
    """The message that a broker puts for the commit of the half message with the unique key ``u``."""
    kept = {"TRAN_MSG": "true", "PGROUP": "payments", "REAL_TOPIC": "orders", "REAL_QID": "0", "UNIQ_KEY": "u"}
    store.put_message(
        MessageExtBrokerInner(
            topic="orders",
            body=body,
            queue_id=0,
            sys_flag=TRANSACTION_COMMIT_TYPE,
            properties=kept,
            born_timestamp=born,
            prepared_transaction_offset=prepared,
        )
    ).raise_for_status()


@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_a_commit_of_a_broker_without_its_op_message_is_completed_not_repeated(tmp_path: Path, how: str) -> None:
    """RocketMQ 5 writes op messages up to three seconds after the commits, and never if it stops before."""
    path = tmp_path / "store"
    with open_store(path) as store:
        places = [put_half(store, b"x", born=now(), UNIQ_KEY=key) for key in ("u", "other")]
        put_commit(store, places[0].physical_offset)
        put_op(store, b"")
    handle = HalfMessageHandle(places[0].physical_offset, 0, "payments", "u")
    with open_store(path) as store:
        half = store.half_messages
        assert len(half.pending()) == 2, "the queues alone do not tell"
        with pytest.raises(HalfMessageEnded) as ended:
            getattr(half, how)(handle)
        assert ended.value.committed is True
        assert [one.handle.unique_key for one in half.pending()] == ["other"]
        assert [one.body for one in stored(store, OP_TOPIC)] == [b"", b"0"], "a broker learns it"
        assert len(stored(store, "orders")) == 1


def test_a_message_of_a_previous_owner_is_committed_if_another_has_its_key(tmp_path: Path) -> None:
    """The committed message says of which half message it is."""
    path = tmp_path / "store"
    with open_store(path) as store:
        message = Message(topic="orders", body=b"x", properties={"UNIQ_KEY": "u"})
        handles = [store.half_messages.prepare(message, "payments") for _ in range(2)]
        store.half_messages.commit(handles[0])
    with open_store(path) as store:
        store.half_messages.commit(handles[1])
        assert len(stored(store, "orders")) == 2


@pytest.mark.parametrize("same", [True, False])
def test_a_copy_counts_as_committed_by_the_commit_of_its_original_alone(tmp_path: Path, same: bool) -> None:
    """The producer answered while its message was being put back."""
    path, born = tmp_path / "store", now() - BORN_BEFORE_MS
    with open_store(path) as store:
        first = put_half(store, b"x", born=born, UNIQ_KEY="u")
        put_half(store, b"x", born=born, UNIQ_KEY="u", TRANSACTION_CHECK_TIMES="1")
        put_commit(store, first.physical_offset, b"x" if same else b"another message", born)
        put_op(store, b"0,")
    with open_store(path) as store:
        expected = HalfMessagesChecked() if same else HalfMessagesChecked(committed=1)
        assert store.half_messages.check(answering("commit")) == expected
        assert store.half_messages.pending() == []
        assert len(stored(store, "orders")) == (1 if same else 2)


def test_without_an_index_such_a_message_is_asked_for_as_by_a_broker(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path, message_index_enable=False) as store:
        first = put_half(store, b"x", born=now() - BORN_BEFORE_MS, UNIQ_KEY="u")
        put_commit(store, first.physical_offset)
    with open_store(path, message_index_enable=False) as store:
        assert store.half_messages.check(answering("commit")).committed == 1
