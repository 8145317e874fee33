"""A store whose writer was killed: RocketMQ and MessageStore, each on a copy of its own, recover the same."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from commitlog_store import MessageStore
from commitlog_store.testing import kill
from tests.interop import killed_making_a_file
from tests.interop.agreement import agree_on_closed, agree_on_crashed
from tests.interop.conftest import OpenMessageStore
from tests.interop.message_store_program import open_store
from tests.interop.rocketmq import RocketMq, message_store_settings
from tests.interop.turns import FLUSHES, Turn, Turns
from tests.support.programs import run_program


@pytest.mark.parametrize("flush", FLUSHES)
@pytest.mark.parametrize("writer", ["RocketMQ", "MessageStore"])
def test_a_killed_writers_store_is_recovered_alike(
    rocketmq: RocketMq, open_message_store: OpenMessageStore, tmp_path: Path, writer: str, flush: str
) -> None:
    """First a store that was new; then the same, which its writer recovered, wrote to, and was killed again."""
    turns = Turns(tmp_path / "store", rocketmq, open_message_store, seed=7)
    turns.take(Turn(writer, flush, killed_after=200))
    turns.take(Turn(writer, flush, killed_after=40))


@pytest.mark.parametrize("directory", ["commitlog", "consumequeue", "index"])
def test_a_half_made_file_stops_neither_program(rocketmq: RocketMq, tmp_path: Path, directory: str) -> None:
    """RocketMQ takes the name of whatever stands in commitlog/ or in a queue's directory for an offset."""
    path = tmp_path / "store"
    ended = run_program("-m", killed_making_a_file.__name__, path, directory, timeout=60)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    answers = agree_on_crashed(path, rocketmq, killed_making_a_file.SETTINGS)
    assert len(answers.messages) > killed_making_a_file.MESSAGES_BEFORE


def test_a_queue_that_lost_all_messages_has_no_file_for_rocketmq(rocketmq: RocketMq, tmp_path: Path) -> None:
    """Version 4.9.8 takes the zeros of a queue file without units for a unit of no bytes at offset 0."""
    path = tmp_path / "store"
    settings = message_store_settings(killed_making_a_file.SETTINGS)
    store: MessageStore = open_store(str(path), settings)
    for number in range(20):
        assert store.put("orders", b"%d" % number, queue_id=0).queue_offset == number
    store.dispatch()
    store.flush()
    kill(store)
    lost = path / "consumequeue" / "lost" / "0" / f"{0:020d}"
    lost.parent.mkdir(parents=True)
    lost.write_bytes(bytes((path / "consumequeue" / "orders" / "0" / f"{0:020d}").stat().st_size))
    open_store(str(path), settings).close()
    agree_on_closed(path, rocketmq, killed_making_a_file.SETTINGS)
