"""What is pending: the half queue without what op messages name, written by a broker or here."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from commitlog_store import Message, MessageStore, StoreReader
from commitlog_store.errors import CorruptConfig, HalfMessageNotFound
from commitlog_store.format.half_messages import HALF_TOPIC, named_offsets
from commitlog_store.testing import kill
from tests.store.half.brokers import note_positions, positions, put_half, put_op
from tests.store.half.test_half_messages import stored
from tests.store.owner.owned_store import open_store, put_ok

# A broker's copies have the birth of the message that they were copied from.
BORN = 1_600_000_000_123


def now() -> int:
    return int(time.time() * 1000)


def pending(store: MessageStore) -> list[bytes]:
    """The bodies of what is pending, for which owner and reader agree."""
    mine = store.half_messages.pending()
    with StoreReader.open(store.path) as reader:
        assert reader.pending_half_messages() == mine
    return [one.message.body for one in mine]


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"17", [17]),
        (b"17,", [17]),
        (b"17,18,,19,", [17, 18, 19]),
        (b"", []),
        (b"-1,x,5", [5]),
        (b"9" * 20, []),
        (b"\xff,2", [2]),
    ],
)
def test_op_messages_of_both_kinds_are_read(body: bytes, offsets: list[int]) -> None:
    assert named_offsets("d", body) == offsets
    assert named_offsets("r", body) == named_offsets(None, body) == []


def test_an_op_message_ends_all_half_messages_that_it_names(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        for body in (b"a", b"b", b"c", b"d"):
            put_half(store, body)
        put_op(store, b"0,2,")
        put_op(store, b"3")
        put_op(store, b"1", tags="other")
        assert pending(store) == [b"b"]
        put_op(store, b"1,")
        assert pending(store) == []


def test_op_messages_that_are_done_are_not_kept(tmp_path: Path) -> None:
    """An owner that commits for months, and never checks, needs no more memory."""
    with open_store(tmp_path / "store") as store:
        for number in range(3):
            put_half(store, b"x")
            put_op(store, b"%d" % number)
        put_half(store, b"left")
        assert pending(store) == [b"left"]
        assert store.half_messages._pending is not None
        assert not store.half_messages._pending._ops


def test_reading_begins_at_the_positions_of_the_group(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path) as store:
        for body in (b"a", b"b", b"c", b"d"):
            put_half(store, body)
        put_op(store, b"0")
        put_op(store, b"2")
    note_positions(path, 2, 1)
    with open_store(path) as store:
        assert pending(store) == [b"d"], "what lies before the position has ended, named or not"
        store.half_messages.rollback(store.half_messages.pending()[0].handle)
    assert positions(path) == (4, 2)
    assert '"orders@billing":{\n\t\t\t0:12' in (path / "config" / "consumerOffset.json").read_text()


def test_positions_beyond_the_queues_do_not_hide_later_half_messages(tmp_path: Path) -> None:
    """The end of the log was lost, and a broker's positions were not."""
    path = tmp_path / "store"
    with open_store(path) as store:
        put_half(store, b"a")
        put_op(store, b"0")
    note_positions(path, 10, 8)
    store = open_store(path)
    assert pending(store) == []
    put_half(store, b"b")
    assert pending(store) == [b"b"]
    kill(store)
    with open_store(path) as store:
        assert pending(store) == [b"b"]


def test_a_copy_that_a_check_has_put_back_counts_alone(tmp_path: Path) -> None:
    """A broker that crashes before it notes its position leaves the first one and the copy."""
    with open_store(tmp_path / "store") as store:
        put_half(store, b"first", born=BORN, UNIQ_KEY="u1")
        put_half(store, b"other", UNIQ_KEY="u2")
        put_half(store, b"copy", born=BORN, UNIQ_KEY="u1", TRANSACTION_CHECK_TIMES="1")
        assert pending(store) == [b"other", b"copy"]
        put_half(store, b"immune", UNIQ_KEY="u3", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
        put_half(store, b"its copy", CHECK_IMMUNITY_TIME_IN_SECONDS="60", TRAN_PREPARED_QUEUE_OFFSET="3")
        assert pending(store) == [b"other", b"copy", b"its copy"]


def test_an_op_message_for_the_first_one_ends_the_copy_of_an_immune_message(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        put_half(store, b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
        put_half(store, b"copy", CHECK_IMMUNITY_TIME_IN_SECONDS="60", TRAN_PREPARED_QUEUE_OFFSET="0")
        assert pending(store) == [b"copy"]
        put_op(store, b"0")
        assert pending(store) == []
    with open_store(tmp_path / "store") as store:
        assert pending(store) == []


def test_two_half_messages_of_one_unique_key_are_both_pending(tmp_path: Path) -> None:
    """A client has sent its message twice."""
    with open_store(tmp_path / "store") as store:
        half = store.half_messages
        message = Message(topic="orders", body=b"x", properties={"UNIQ_KEY": "u"})
        first, second = half.prepare(message, "payments"), half.prepare(message, "payments")
        half.rollback(first)
        assert [one.handle for one in half.pending()] == [second]


def test_a_damaged_list_of_offsets_is_reported_and_the_store_opens(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path) as store:
        put_half(store, b"a")
    (path / "config" / "consumerOffset.json").write_text("{")
    with open_store(path) as store:
        with pytest.raises(CorruptConfig):
            store.half_messages.pending()
        with pytest.raises(CorruptConfig):
            store.half_messages.prepare(Message(topic="orders", body=b"x"), "payments")
    assert len(stored(path, HALF_TOPIC)) == 1, "nothing was written"


def test_the_positions_stay_before_the_oldest_pending_message(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path) as store:
        handles = [store.half_messages.prepare(Message(topic="orders", body=b"x"), "payments") for _ in range(5)]
        for number in (0, 3, 1, 4):
            store.half_messages.commit(handles[number])
        store.half_messages.pending()
    assert positions(path) == (2, 1), "the second op message names a half message after the position"
    with open_store(path) as store:
        assert [one.handle for one in store.half_messages.pending()] == [handles[2]]
        store.half_messages.rollback(handles[2])
        store.half_messages.pending()
    assert positions(path) == (5, 5)


def test_half_messages_and_op_messages_of_many_files_are_found(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        handles = [store.half_messages.prepare(Message(topic="orders", body=b"x"), "payments") for _ in range(130)]
        for number, handle in enumerate(handles):
            if number % 10:
                (store.half_messages.commit if number % 2 else store.half_messages.rollback)(handle)
        left = handles[::10]
        assert [one.handle for one in store.half_messages.pending()] == left
    with open_store(tmp_path / "store") as store:
        assert [one.handle for one in store.half_messages.pending()] == left
        with StoreReader.open(store.path, from_log=True) as reader:
            assert [one.handle for one in reader.pending_half_messages()] == left


def test_what_is_known_before_the_queue_is_read_agrees_with_it(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path) as store:
        half = store.half_messages
        handles = []
        for number in range(60):
            handles.append(half.prepare(Message(topic="orders", body=b"x"), "payments"))
            if number % 3 == 2:
                half.commit(handles[number])
                half.rollback(handles[number - 1])
            if number % 20 == 19:
                assert [one.handle for one in half.pending()] == [
                    handle for place, handle in enumerate(handles) if place % 3 == 0 or place >= 3 * ((number + 1) // 3)
                ]
        assert len(pending(store)) == 20
    assert positions(path)[0] <= 0
    with open_store(path) as store:
        assert [one.handle for one in store.half_messages.pending()] == handles[::3]


def test_a_copy_that_has_ended_ends_the_message_it_was_copied_from(tmp_path: Path) -> None:
    """A broker asked its producer, noted the answer, and crashed before it noted its position."""
    with open_store(tmp_path / "store") as store:
        put_half(store, b"first", born=BORN, UNIQ_KEY="u1")
        put_half(store, b"copy", born=BORN, UNIQ_KEY="u1", TRANSACTION_CHECK_TIMES="1")
        put_half(store, b"immune", UNIQ_KEY="u2", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
        put_half(store, b"its copy", UNIQ_KEY="u2", TRAN_PREPARED_QUEUE_OFFSET="2", TRANSACTION_CHECK_TIMES="1")
        put_op(store, b"1,3,")
        assert pending(store) == []


def test_each_copy_stands_for_one_of_two_messages_with_one_unique_key(tmp_path: Path) -> None:
    """A client has sent its message twice, and a broker has put both back."""
    with open_store(tmp_path / "store") as store:
        for body, times in ((b"a", "0"), (b"b", "0"), (b"a1", "1"), (b"b1", "1"), (b"a2", "2")):
            put_half(store, body, born=BORN, UNIQ_KEY="u", TRANSACTION_CHECK_TIMES=times)
        assert pending(store) == [b"b1", b"a2"]


def test_only_the_last_copy_of_an_immune_message_counts(tmp_path: Path) -> None:
    """Each round of a broker puts it back once more, always with the link to the first one."""
    with open_store(tmp_path / "store") as store:
        put_half(store, b"immune")
        for number in range(3):
            put_half(store, b"copy %d" % number, TRAN_PREPARED_QUEUE_OFFSET="0")
        assert pending(store) == [b"copy 2"]


@pytest.mark.parametrize("positions_of", ["the half queue", "the op queue"])
def test_positions_after_the_queues_do_not_hide_what_is_put_before_they_are_read(
    tmp_path: Path, positions_of: str
) -> None:
    """The end of the log was lost. The queue grows beyond the position before anything is listed, and again a crash."""
    path = tmp_path / "store"
    with open_store(path) as store:
        put_half(store, b"a")
        put_op(store, b"0")
    note_positions(path, *((4, 1) if positions_of == "the half queue" else (1, 4)))
    store = open_store(path)
    handles = [store.half_messages.prepare(Message(topic="orders", body=b"x"), "payments") for _ in range(6)]
    store.dispatch()
    for handle in handles[:4]:
        store.half_messages.rollback(handle)
    kill(store)
    with open_store(path) as store:
        assert [one.handle for one in store.half_messages.pending()] == handles[4:]


def test_half_messages_that_retention_has_removed_are_not_pending(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(tmp_path / "store") as store:
        put_half(store, b"old")
        assert pending(store) == [b"old"]
        for _ in range(40):
            put_ok(store, body=b"x" * 1_000)
        put_half(store, b"new")
        assert store.clean(max_bytes=20_000).deleted
        assert pending(store) == [b"new"]
    assert "1 pending half messages before the offset 1" in caplog.text


def test_a_handle_whose_place_retention_has_removed_leads_to_the_list_of_pending_ones(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", transaction_time_out=0) as store:
        half = store.half_messages
        first = half.prepare(Message(topic="orders", body=b"x", born_timestamp=now() - 1_000), "payments")
        for _ in range(40):
            put_ok(store, body=b"x" * 1_000)
        assert half.check(lambda _: "unknown").put_back == 1
        assert store.clean(max_bytes=20_000).deleted
        with pytest.raises(HalfMessageNotFound, match="half ls"):
            half.commit(first)
        (copy,) = half.pending()
        half.commit(copy.handle)
        assert pending(store) == []
