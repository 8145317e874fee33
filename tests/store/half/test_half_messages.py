"""Half messages of an open store: prepared, then committed or rolled back once, by their handle."""

from __future__ import annotations

import contextlib
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import HalfMessageHandle, Message, MessageExt, MessageExtBrokerInner, MessageStore, StoreReader
from commitlog_store.errors import (
    HalfMessageEnded,
    HalfMessageNotFound,
    InvalidValue,
    PutRefused,
    StoreClosed,
    StoreIOError,
)
from commitlog_store.format.half_messages import HALF_TOPIC, OP_TOPIC
from commitlog_store.format.sys_flag import (
    COMPRESSED_FLAG,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    CompressionType,
    transaction_type,
)
from commitlog_store.half_message import PendingHalfMessage
from commitlog_store.testing import kill
from tests.store.owner.owned_store import SYNC, Gate, all_messages, open_store, put_ok
from tests.support.clean_store import assert_clean

KEY = {"UNIQ_KEY": "u"}
TWO_TRIES = (b"first", 1_600_000_000_000), (b"second", 1_600_000_000_001)


def prepare(store: MessageStore, body: bytes = b"body", group: str = "payments", **fields: object) -> HalfMessageHandle:
    message = Message(topic="orders", body=body, **fields)  # type: ignore[arg-type]
    return store.half_messages.prepare(message, group)


def stored(store: MessageStore | Path, topic: str) -> list[MessageExt]:
    """All messages of a topic, as readers see them."""
    if isinstance(store, MessageStore):
        store.dispatch()
    with StoreReader.open(store.path if isinstance(store, MessageStore) else store) as reader:
        return [one for (name, _), found in all_messages(reader).items() if name == topic for one in found]


def handles(pending: list[PendingHalfMessage]) -> list[HalfMessageHandle]:
    return [one.handle for one in pending]


def test_a_half_message_is_seen_by_no_consumer_until_it_is_committed(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        handle = prepare(store, b"paid", keys=["k1"], tags="new", queue_id=3, properties={"region": "eu"}, flag=7)
        assert stored(store, "orders") == []
        (half,) = stored(store, HALF_TOPIC)
        assert transaction_type(half.sys_flag) == 0, "it has a unit, as any message"
        store.half_messages.commit(handle)
        (message,) = stored(store, "orders")
        assert (message.body, message.keys, message.tags, message.queue_id) == (b"paid", ("k1",), "new", 3)
        assert (message.flag, message.born_timestamp, message.born_host) == (7, half.born_timestamp, half.born_host)
        assert transaction_type(message.sys_flag) == TRANSACTION_COMMIT_TYPE
        assert message.prepared_transaction_offset == half.physical_offset
        assert message.properties == half.properties, "REAL_TOPIC and the others stay, as a broker leaves them"
        assert message.properties["REAL_TOPIC"] == "orders"
        assert message.properties["__transactionId__"] == message.unique_key == handle.unique_key
        (op,) = stored(store, OP_TOPIC)
        assert (op.tags, op.body) == ("d", b"0")
        assert store.half_messages.pending() == []
    assert_clean(tmp_path / "store")


def test_a_message_that_is_rolled_back_is_never_seen(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.half_messages.rollback(prepare(store))
        assert not store.half_messages.pending()
        assert not stored(store, "orders")
        assert [one.body for one in stored(store, OP_TOPIC)] == [b"0"]
    assert_clean(tmp_path / "store")


@pytest.mark.parametrize("settings", [{}, {"flush_disk_type": SYNC}, {"transient_store_pool_enable": True}])
def test_a_handle_keeps_its_meaning_after_a_restart(tmp_path: Path, settings: dict[str, object]) -> None:
    with open_store(tmp_path / "store", **settings) as store:
        texts = [str(prepare(store, b"%d" % number)) for number in range(4)]
        store.half_messages.commit(HalfMessageHandle.parse(texts[1]))
    with open_store(tmp_path / "store", **settings) as store:
        store.half_messages.commit(HalfMessageHandle.parse(texts[3]))
        assert [str(handle) for handle in handles(store.half_messages.pending())] == [texts[0], texts[2]]
        store.half_messages.rollback(HalfMessageHandle.parse(texts[0]))
        with pytest.raises(HalfMessageEnded) as ended:
            store.half_messages.commit(HalfMessageHandle.parse(texts[1]))
        assert ended.value.committed is True
    with open_store(tmp_path / "store", **settings) as store:
        assert [str(handle) for handle in handles(store.half_messages.pending())] == [texts[2]]
        assert [one.body for one in stored(store, "orders")] == [b"1", b"3"]


def test_a_killed_owner_leaves_what_has_ended_and_what_is_pending(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    ended, rolled_back, left = (prepare(store, body) for body in (b"a", b"b", b"c"))
    store.half_messages.commit(ended)
    store.half_messages.rollback(rolled_back)
    kill(store)
    with open_store(tmp_path / "store") as store:
        assert handles(store.half_messages.pending()) == [left]
        assert [one.body for one in stored(store, "orders")] == [b"a"]


@pytest.mark.parametrize(("first", "committed"), [("commit", True), ("rollback", False)])
@pytest.mark.parametrize("second", ["commit", "rollback"])
def test_a_half_message_ends_once(tmp_path: Path, first: str, committed: bool, second: str) -> None:
    with open_store(tmp_path / "store") as store:
        handle = prepare(store)
        getattr(store.half_messages, first)(handle)
        with pytest.raises(HalfMessageEnded) as refused:
            getattr(store.half_messages, second)(handle)
        assert refused.value.committed is committed
        assert len(stored(store, "orders")) == committed


def test_the_end_of_another_half_message_with_the_same_unique_key_does_not_count(tmp_path: Path) -> None:
    """A program that stopped before it kept the handle repeats its work, with the key that it gave the message."""
    with open_store(tmp_path / "store") as store:
        half = store.half_messages
        first, second = (prepare(store, body, born_timestamp=born, properties=KEY) for body, born in TWO_TRIES)
        half.rollback(first)
        half.commit(second)
        with pytest.raises(HalfMessageEnded) as refused:
            half.commit(first)
        assert refused.value.committed is False


def test_without_an_index_it_cannot_be_told_how_a_half_message_has_ended(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", message_index_enable=False) as store:
        handle = prepare(store)
        store.half_messages.commit(handle)
        with pytest.raises(HalfMessageEnded) as refused:
            store.half_messages.commit(handle)
        assert refused.value.committed is None


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"producer_group": "other"}, "producer group"),
        ({"queue_offset": 9}, "queue offset"),
        ({"unique_key": "other"}, "unique key"),
        ({"physical_offset": 1}, r"physical offset .* Is this where a message starts\? Retention may"),
        ({"physical_offset": 1 << 40}, "physical offset"),
    ],
)
def test_a_handle_of_another_half_message_is_refused(tmp_path: Path, changed: dict[str, object], what: str) -> None:
    with open_store(tmp_path / "store") as store:
        handle = prepare(store)
        with pytest.raises(HalfMessageNotFound, match=what):
            store.half_messages.commit(HalfMessageHandle(**{**vars(handle), **changed}))
        assert handles(store.half_messages.pending()) == [handle]


def test_the_handle_of_an_ordinary_message_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        put = put_ok(store)
        with pytest.raises(HalfMessageNotFound, match="half topic"):
            store.half_messages.commit(HalfMessageHandle(put.physical_offset, put.queue_offset, "payments", "x"))


@pytest.mark.parametrize("text", ["", "1:2:g", "1:2:g:k ey", "-1:2:g:k", "x:2:g:k", "1:2:g:h:\n"])
def test_the_text_of_no_handle_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="handle is"):
        HalfMessageHandle.parse(text)


def test_the_text_of_a_handle_is_read_back() -> None:
    handle = HalfMessageHandle(12, 3, "pay|ments-%", "a:b:c")
    assert HalfMessageHandle.parse(str(handle)) == handle


def test_a_delayed_message_cannot_be_a_half_message(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        with pytest.raises(InvalidValue, match="delayed"):
            prepare(store, properties={"DELAY": "3"})
        assert prepare(store, properties={"DELAY": "0"}).queue_offset == 0, "0 is no delay"


def test_what_a_put_would_refuse_is_refused_at_once(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", max_message_size=100) as store:
        half = store.half_messages
        with pytest.raises(PutRefused, match="body"):
            prepare(store, b"x" * 101)
        with pytest.raises(PutRefused, match="topic"):
            half.prepare(Message(topic="a b", body=b""), "payments")
        with pytest.raises(PutRefused, match="itself"):
            half.prepare(Message(topic=HALF_TOPIC, body=b""), "payments")
        with pytest.raises(InvalidValue, match="body"):
            half.prepare(Message(topic="orders", body="text"), "payments")  # type: ignore[arg-type]
        for group in ("", "a b", "x" * 256, None):
            with pytest.raises(InvalidValue, match="producer group"):
                half.prepare(Message(topic="orders", body=b""), group)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match="unique key"):
            prepare(store, properties={"UNIQ_KEY": "two words"})
        assert half.pending() == []


def test_hosts_times_and_a_compressed_body_reach_the_committed_message(tmp_path: Path) -> None:
    body = zlib.compress(b"text " * 50)
    message = MessageExtBrokerInner(
        topic="orders",
        body=body,
        queue_id=1,
        sys_flag=COMPRESSED_FLAG | CompressionType.ZLIB.value | TRANSACTION_PREPARED_TYPE,
        born_timestamp=1_700_000_000_123,
        born_host="10.0.0.9:4711",
        reconsume_times=2,
        properties={"UNIQ_KEY": "from-a-client", "KEYS": "k1 k2"},
    )
    with open_store(tmp_path / "store") as store:
        handle = store.half_messages.prepare(message, "payments")
        assert handle.unique_key == "from-a-client"
        store.half_messages.commit(handle)
        (found,) = stored(store, "orders")
        assert (found.body, found.keys, found.queue_id) == (b"text " * 50, ("k1", "k2"), 1)
        assert (found.born_timestamp, found.born_host) == (1_700_000_000_123, "10.0.0.9:4711")
        assert found.reconsume_times == 2
        assert found.sys_flag == COMPRESSED_FLAG | CompressionType.ZLIB.value | TRANSACTION_COMMIT_TYPE
        assert store.reader().query("orders", "from-a-client")[0] == found
    assert_clean(tmp_path / "store")


def test_hosts_of_ipv6_reach_the_committed_message(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", broker_ip="2001:db8::1") as store:
        handle = prepare(store)
        (half,) = stored(store, HALF_TOPIC)
        store.half_messages.commit(handle)
        (found,) = stored(store, "orders")
        assert (found.born_host, found.store_host) == (half.born_host, half.store_host)
    with open_store(tmp_path / "store") as store:  # the op message has another kind of host than the message
        handle = store.half_messages.prepare(
            MessageExtBrokerInner(topic="orders", body=b"6", born_host="2001:db8::9:1"), "payments"
        )
        store.half_messages.commit(handle)
    assert_clean(tmp_path / "store")


def test_pending_messages_show_what_they_are_meant_for(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        handle = prepare(store, b"paid", keys=["k1"], queue_id=2)
        store.dispatch()
        (mine,) = store.half_messages.pending()
        with store.reader() as reader:
            (beside,) = reader.pending_half_messages()
    assert mine == beside
    assert (mine.handle, mine.check_times) == (handle, 0)
    assert (mine.message.topic, mine.message.queue_id, mine.message.body) == ("orders", 2, b"paid")


def test_a_store_without_half_messages_has_none_pending(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        put_ok(store)
        assert store.half_messages.pending() == store.reader().pending_half_messages() == []
    assert not (tmp_path / "store" / "config" / "consumerOffset.json").exists()


def test_a_closed_store_refuses(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        handle = prepare(store)
    for call in (lambda: prepare(store), lambda: store.half_messages.commit(handle), store.half_messages.pending):
        with pytest.raises(StoreClosed):
            call()


def test_batches_and_half_messages_do_not_disturb_each_other(tmp_path: Path) -> None:
    """The frames that end half messages are of no application: the ledger counts them, and lists none."""
    with open_store(tmp_path / "store") as store:
        handle = prepare(store)
        with store.transaction("loader", 1) as batch:
            batch.put_messages(pa.table({"body": pa.array([b"row"], pa.binary())}), topic="rows")
        store.half_messages.commit(handle)
        store.forget_batches("loader")
        assert store.batches() == []
    with open_store(tmp_path / "store") as store:
        assert store.batches() == [], "no frame was read again from before it was forgotten"
        assert handles(store.half_messages.pending()) == []


def test_a_store_that_rejects_messages_leaves_a_half_message_pending(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        handle = prepare(store)
        store.set_writable(False)
        for refused in (store.half_messages.commit, store.half_messages.rollback):
            with pytest.raises(PutRefused, match="SERVICE_NOT_AVAILABLE"):
                refused(handle)
        store.set_writable(True)
        store.half_messages.commit(handle)
        assert len(stored(store, "orders")) == 1


def test_a_commit_whose_sync_fails_is_decided_by_opening_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path / "store", flush_disk_type=SYNC)
    handle = prepare(store)
    with Gate.within(monkeypatch, "sync") as gate:
        gate.fail()
        with pytest.raises(StoreIOError):
            store.half_messages.commit(handle)
        with pytest.raises((StoreIOError, PutRefused)):
            store.half_messages.commit(handle)
    kill(store)
    with open_store(tmp_path / "store", flush_disk_type=SYNC) as store:
        with contextlib.suppress(HalfMessageEnded):
            store.half_messages.commit(handle)
        assert store.half_messages.pending() == []
        assert len(stored(store, "orders")) == 1


def test_many_threads_end_each_half_message_once(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", mapped_file_size_commit_log=1 << 20) as store:
        handles = [prepare(store, b"%d" % number) for number in range(40)]

        def commit_all(_: int) -> int:
            ended = 0
            for handle in handles:
                with contextlib.suppress(HalfMessageEnded):
                    store.half_messages.commit(handle)
                    ended += 1
            return ended

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(commit_all, range(4))) == len(handles)
        assert len(stored(store, "orders")) == len(handles)
