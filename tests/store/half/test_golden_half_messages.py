"""A store that a broker's own service wrote: what is pending there, and what a check asks for, by RocketMQ's answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commitlog_store import HalfMessagesChecked, MessageExt, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.format.half_messages import CHECK_MAX_TIME_TOPIC
from commitlog_store.half_message import Answer
from tests.support.golden import GOLDEN, ROCKETMQ_533_HALF, copy_golden
from tests.support.stored_bodies import topic_bodies

LASTING = MessageStoreConfig(transaction_time_out=0, file_reserved_time=24 * 365 * 60)


@pytest.fixture(params=["", "lost"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of the store; once without the broker's positions, which a crash may lose."""
    copy = copy_golden(ROCKETMQ_533_HALF, tmp_path / "store")
    if request.param:
        (copy / "config" / "consumerOffset.json").unlink()
    return copy


@pytest.fixture
def answer() -> dict[str, list[str]]:
    """The bodies that RocketMQ asks its producers for, gives up, and leaves because of their immunity."""
    expected: dict[str, list[str]] = json.loads((GOLDEN / ROCKETMQ_533_HALF / "expected.json").read_text())
    # Its producer has rolled it back, by the place of the first one, after a check had put it back. RocketMQ forgets
    # that as soon as its position has passed the first one, and would ask again.
    expected["immune"].remove("immune-ended")
    return expected


def test_what_is_pending_is_what_a_broker_has_to_ask_for(path: Path, answer: dict[str, list[str]]) -> None:
    pending = sorted(answer["asked"] + answer["givenUp"] + answer["immune"])
    with StoreReader.open(path) as reader:
        found = reader.pending_half_messages()
    assert sorted(one.message.body.decode() for one in found) == pending
    assert {one.message.body: one.check_times for one in found}[b"first-4"] == 2
    with MessageStore.open(path, LASTING) as store:
        assert store.half_messages.pending() == found


def test_a_check_asks_for_what_a_broker_asks_for(path: Path, answer: dict[str, list[str]]) -> None:
    asked: list[str] = []

    def commit(message: MessageExt) -> Answer:
        asked.append(message.body.decode())
        return "commit"

    before = topic_bodies(path, "orders")
    with MessageStore.open(path, LASTING) as store:
        checked = store.half_messages.check(commit)
    assert sorted(asked) == answer["asked"]
    assert checked == HalfMessagesChecked(committed=len(asked), given_up=1, too_young=len(answer["immune"]))
    assert sorted(topic_bodies(path, "orders")) == sorted([*before, *(body.encode() for body in asked)])
    assert topic_bodies(path, CHECK_MAX_TIME_TOPIC) == [b"checked-too-often"]
