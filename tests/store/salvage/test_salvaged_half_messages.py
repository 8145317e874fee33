"""Half messages of a salvaged store: none that has ended is pending, or is committed again."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from commitlog_store import MessageExt, MessageStore, MessageStoreConfig, StoreReader, salvage_store, testing
from commitlog_store.cli.app import app
from commitlog_store.format.half_messages import HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from commitlog_store.format.record import HEADER_SIZE
from commitlog_store.half_message import Answer
from tests.store.half.test_check import answering
from tests.store.half.test_damage import damage, fill_the_file
from tests.store.half.test_half_messages import prepare, stored
from tests.store.owner.owned_store import open_store, put_ok, small
from tests.support.clean_store import assert_clean
from tests.support.stored_bodies import topic_bodies


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Half messages: committed, rolled back, pending, pending, rolled back."""
    path = tmp_path / "store"
    with open_store(path) as store:
        handles = [prepare(store, body) for body in (b"committed", b"rolled back", b"left", b"too", b"ended")]
        store.half_messages.commit(handles[0])
        store.half_messages.rollback(handles[1])
        store.half_messages.rollback(handles[4])
        fill_the_file(store)
    return path


def pending(path: Path, *, from_log: bool = False) -> list[bytes]:
    with StoreReader.open(path, from_log=from_log, on_damage="skip") as reader:
        return [one.message.body for one in reader.pending_half_messages()]


@pytest.mark.parametrize("what", ["a store", "a log alone"])
def test_none_is_pending_where_their_queue_has_moved(tmp_path: Path, source: Path, what: str) -> None:
    """Op messages would name others: in a log that begins at 0, offsets after the lost one move down."""
    damage(source, stored(source, HALF_TOPIC)[1].physical_offset, HEADER_SIZE)
    target = tmp_path / "target"
    report = salvage_store(source if what == "a store" else source / "commitlog", target, config=small())
    assert report.half_messages_settled
    assert (HALF_TOPIC, 0, 2, 5, 1) in report.moved
    assert pending(target) == []
    assert pending(source, from_log=True) == [b"left", b"too"], "what to look at"
    said = CliRunner().invoke(app, ["salvage", str(source)]).stdout
    assert "half messages: their queue has moved" in said
    with open_store(target, transaction_time_out=0) as store:
        assert store.half_messages.pending() == []
        new = prepare(store, b"new")
        assert [one.handle for one in store.half_messages.pending()] == [new]
        assert store.half_messages.check(answering("commit")).committed == 1
    assert topic_bodies(target, "orders") == [b"committed", b"new"]
    assert_clean(target)


def test_none_is_pending_where_their_queue_has_moved_and_all_op_messages_are_lost(tmp_path: Path, source: Path) -> None:
    """A position after the end of the op queue would let both queues be read from their beginnings."""
    positions = f'{{"{HALF_TOPIC}@{TRANSACTION_GROUP}":{{0:5}},"{OP_TOPIC}@{TRANSACTION_GROUP}":{{0:3}}}}'
    (source / "config" / "consumerOffset.json").write_text(f'{{"offsetTable":{positions}}}')
    for lost in (stored(source, HALF_TOPIC)[1], *stored(source, OP_TOPIC)):
        damage(source, lost.physical_offset, HEADER_SIZE)
    target = tmp_path / "target"
    assert salvage_store(source, target, config=small()).half_messages_settled
    assert pending(target) == []


def test_what_lost_op_messages_have_ended_is_asked_for_again_and_not_committed_twice(
    tmp_path: Path, source: Path
) -> None:
    for op in stored(source, OP_TOPIC)[:2]:
        damage(source, op.physical_offset, HEADER_SIZE)
    target = tmp_path / "target"
    assert not salvage_store(source, target, config=small()).half_messages_settled
    assert pending(target)[:2] == [b"committed", b"rolled back"]
    asked: list[bytes] = []

    def rollback(message: MessageExt) -> Answer:
        asked.append(message.body)
        return "rollback"

    with MessageStore.open(target, MessageStoreConfig(transaction_time_out=0)) as store:
        store.half_messages.check(rollback)
    assert b"committed" not in asked
    assert b"rolled back" in asked
    assert topic_bodies(target, "orders") == [b"committed"]


def test_a_commit_whose_half_message_moves_stays_whole(tmp_path: Path) -> None:
    """The checksum of its frame covers the place of the half message: a recovery takes another one for damage."""
    source, target = tmp_path / "store", tmp_path / "target"
    with open_store(source) as store:
        put_ok(store, "orders", body=b"lost")
        store.half_messages.commit(prepare(store, b"committed"))
        put_ok(store, "orders", body=b"after")
    damage(source, 0, HEADER_SIZE)
    salvage_store(source, target, config=small())
    assert_clean(target)
    with open_store(target) as store:
        testing.kill(store)
    (target / "checkpoint").unlink()
    with open_store(target):
        pass
    assert topic_bodies(target, "orders") == [b"committed", b"after"]
