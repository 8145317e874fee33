"""Puts that are made on an event loop's thread: only those that are a copy into memory, and in their order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store import Message, MessageStore, MessageStoreConfig, PutMessageStatus
from commitlog_store.config import FlushDiskType
from commitlog_store.engine.async_puts import Outcome
from commitlog_store.engine.produced_message import ProducedMessage
from commitlog_store.engine.put_message import EncodedMessage, PutMessageResult
from commitlog_store.engine.store_engine import StoreEngine
from commitlog_store.errors import PutRefused
from commitlog_store.format.message_batch import BatchedMessage
from commitlog_store.format.properties import decode_properties
from commitlog_store.format.sys_flag import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG
from commitlog_store.log.commit_log_writer import Appended, RecordsOfQueue
from commitlog_store.message import MessageExtBrokerInner
from commitlog_store.testing import parts_of


def _message(body: bytes = b"x", topic: str = "orders", **properties: str) -> ProducedMessage:
    return ProducedMessage(topic, 0, body, properties, 0, 0, 1_700_000_000_000, (bytes([10, 0, 0, 1]), 4000))


def _encoded(engine: StoreEngine, body: bytes = b"x", **properties: str) -> EncodedMessage:
    return engine.produced.encode(_message(body, **properties))


def _put_at_once(engine: StoreEngine, encoded: EncodedMessage) -> PutMessageResult | None:
    """None where the put is left to another thread."""
    results = engine.putter.put_at_once([encoded])
    return results[0] if results else None


def _warm(store: MessageStore) -> StoreEngine:
    """A store whose log file is mapped, and where the queue has a next offset."""
    store.put("orders", b"first", queue_id=0)
    return parts_of(store).engine


def test_it_is_stored_as_any_other_put(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s") as store:
        engine = _warm(store)
        result = _put_at_once(engine, _encoded(engine, b"second", TAGS="a"))
        assert result is not None
        assert result.raise_for_status().queue_offset == 1
        store.dispatch()
        message = store.get_message("orders", 0, 1).messages[0]
        assert (message.body, message.tags, message.message_id) == (b"second", "a", result.message_id)
        assert store.stats().put_message_times_total == 2


def test_messages_of_several_clients_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under one hold of the lock, with one wake of dispatch; the refusal of one is no other's."""
    with MessageStore.open(tmp_path / "s") as store:
        engine = _warm(store)
        writer, lock, wakes = engine.log.writer, _CountingLock(), list[bool]()
        append = writer._append

        def append_or_refuse(given: RecordsOfQueue) -> Appended:
            if b"refused" in given.records:
                raise PutRefused(PutMessageStatus.MESSAGE_ILLEGAL, "why")
            return append(given)

        monkeypatch.setattr(writer, "_append", append_or_refuse)
        monkeypatch.setattr(writer, "lock", lock)
        monkeypatch.setattr(engine.putter, "_on_appended", lambda: wakes.append(lock.is_held))
        results = engine.putter.put_at_once([_encoded(engine, body) for body in (b"one", b"refused", b"two")])
        assert (lock.times, wakes) == (1, [False])
        assert [one.status.name for one in results] == ["PUT_OK", "MESSAGE_ILLEGAL", "PUT_OK"]
        assert [one.queue_offset for one in results] == [1, -1, 2]
        assert store.stats().put_message_failed_times == 1
        store.dispatch()
        assert [one.body for one in store.get_message("orders", 0, 1).messages] == [b"one", b"two"]


class _Left(Exception):
    """What a signal handler raises."""


@contextlib.contextmanager
def _leaving_at(seconds: float) -> Iterator[None]:
    """A signal after so much processor time, whose handler raises: its exception ends the block."""

    def leave(*_: object) -> None:
        raise _Left

    before = signal.signal(signal.SIGVTALRM, leave)
    try:
        with contextlib.suppress(_Left):
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
            yield
    finally:
        signal.signal(signal.SIGVTALRM, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def test_a_signal_handler_that_raises_leaves_the_lock_free(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s") as store:
        writer = _warm(store).log.writer
        for number in range(50):
            with _leaving_at(0.0002 * (1 + number % 7)):
                for _ in range(1_000_000_000):
                    writer.append_at_once(())
            if writer.lock.locked():
                break
        held = writer.lock.locked()
        if held:
            writer.lock.release()  # or closing the store would wait
        assert not held, f"after {number + 1} signals"


class _CountingLock:
    """The log's lock, with the number of times that it was taken."""

    def __init__(self) -> None:
        self.times = 0
        self.is_held = False

    def acquire(self, blocking: bool = True) -> bool:
        self.times += 1
        self.is_held = True
        return True

    def locked(self) -> bool:
        return self.is_held

    def release(self) -> None:
        self.is_held = False

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def test_those_after_one_that_is_left_are_left_too(tmp_path: Path) -> None:
    """Messages of one client may be among them, and stay in their order."""
    with MessageStore.open(tmp_path / "s") as store:
        engine = _warm(store)
        of_new_topic = engine.produced.encode(_message(topic="others"))
        messages = [_encoded(engine), of_new_topic, _encoded(engine), _encoded(engine)]
        assert [one.queue_offset for one in engine.putter.put_at_once(messages)] == [1]


def test_large_batches_stay_copies_into_memory(tmp_path: Path) -> None:
    """Those larger than 64 KiB are written past the mapping, which no small message brings along in between."""
    with MessageStore.open(tmp_path / "s") as store:
        engine = _warm(store)
        messages = [BatchedMessage(0, b"x" * 1024, b"") for _ in range(100)]
        times, at_once = 200, 0  # 21 MiB: more than the mapping keeps
        for _ in range(times):
            encoded = engine.produced.encode_batch(_message(), messages)
            if _put_at_once(engine, encoded) is not None:
                at_once += 1
            else:
                engine.putter.put_together([encoded])
        assert at_once > times * 0.9, "the others wait for space"
        store.put("orders", b"small", queue_id=0)
        assert _put_at_once(engine, _encoded(engine)) is not None


def test_the_record_is_that_of_a_brokers_message(tmp_path: Path) -> None:
    inner = MessageExtBrokerInner(
        topic="orders", body=b"x", properties={"TAGS": "a", "WAIT": "true"}, born_timestamp=1_700_000_000_000,
        born_host="10.0.0.1:4000",
    )  # fmt: skip
    with MessageStore.open(tmp_path / "s") as store:
        engine = parts_of(store).engine
        assert engine.produced.encode(_message(TAGS="a", WAIT="true")).record == engine.putter.encode(inner).record


def test_a_first_message_and_a_new_queue_are_left_to_another_thread(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s") as store:
        engine = parts_of(store).engine
        assert _put_at_once(engine, _encoded(engine)) is None
        engine = _warm(store)
        other = engine.produced.encode(_message(topic="others"))
        assert _put_at_once(engine, other) is None


def test_while_another_put_has_the_log_it_does_not_wait(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s") as store:
        engine = _warm(store)
        with engine.log.writer.lock:
            assert _put_at_once(engine, _encoded(engine)) is None
        assert _put_at_once(engine, _encoded(engine)) is not None


def test_what_would_wait_for_the_device_is_left(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH)) as store:
        engine = _warm(store)
        assert _put_at_once(engine, _encoded(engine)) is None
        assert _put_at_once(engine, _encoded(engine, WAIT="false")) is not None


def test_the_end_of_a_file_is_left_and_every_message_is_whole(tmp_path: Path) -> None:
    config = MessageStoreConfig(mapped_file_size_commit_log=64 << 10)
    with MessageStore.open(tmp_path / "s", config) as store:
        engine = _warm(store)
        left = 0
        for number in range(1, 500):
            encoded = _encoded(engine, b"%05d" % number * 100)
            result = _put_at_once(engine, encoded)
            if result is None:
                left += 1
                (found,) = engine.putter.put_together([encoded])
                assert isinstance(found, PutMessageResult)
                result = found
            assert result.raise_for_status().queue_offset == number
        assert 0 < left < 250
        store.dispatch()
        with store.reader() as reader:
            bodies = [row["body"][:5] for batch in reader.read("orders", 0, 1) for row in batch.to_pylist()]
        assert bodies == [b"%05d" % number for number in range(1, 500)]


def test_a_store_that_rejects_puts_says_so_elsewhere(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s") as store:
        engine = _warm(store)
        store.set_writable(False)
        assert _put_at_once(engine, _encoded(engine)) is None


@pytest.mark.parametrize("batch", [False, True])
def test_outcomes_are_received_on_the_loop_in_their_order(tmp_path: Path, batch: bool) -> None:
    with MessageStore.open(tmp_path / "s") as store:
        engine = parts_of(store).engine

        async def put() -> list[Outcome]:
            loop = asyncio.get_running_loop()
            outcomes: list[Outcome] = []
            done = asyncio.Event()
            thread = threading.get_ident()

            def receive(outcome: Outcome) -> None:
                assert threading.get_ident() == thread
                outcomes.append(outcome)
                if len(outcomes) == 100:
                    done.set()

            for number in range(100):
                one = _message(b"%d" % number)
                both = [BatchedMessage(0, one.body, b"")] * 2
                encoded = engine.produced.encode_batch(one, both) if batch else engine.produced.encode(one)
                engine.async_puts.put_for(encoded, loop, receive)
            await done.wait()
            return outcomes

        outcomes = asyncio.run(put())
        offsets = [outcome.queue_offset for outcome in outcomes if isinstance(outcome, PutMessageResult)]
        assert offsets == list(range(0, 200, 2) if batch else range(100))


def test_a_batch_is_one_result_with_a_place_for_each(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s") as store:
        engine = _warm(store)
        encoded = engine.produced.encode_batch(
            _message(), [BatchedMessage(0, one, b"") for one in (b"a", b"bb", b"ccc")]
        )
        result = _put_at_once(engine, encoded)
        assert result is not None
        assert (result.status, result.message_num, result.queue_offset) == (PutMessageStatus.PUT_OK, 3, 1)
        store.dispatch()
        messages = store.get_message("orders", 0, 1).messages
        assert [one.body for one in messages] == [b"a", b"bb", b"ccc"]
        assert result.message_id == ",".join(one.message_id for one in messages)


def test_a_clients_host_of_ipv6_is_stored(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s") as store:
        engine = _warm(store)
        message = _message()._replace(born_host=(bytes(15) + b"\x01", 4000))
        assert _put_at_once(engine, engine.produced.encode(message)) is not None
        store.put_message(Message(topic="orders", body=b"after", queue_id=0))
        store.dispatch()
        first, second = store.get_message("orders", 0, 1).messages
        assert first.born_host.endswith(":4000")
        assert second.body == b"after"


@pytest.mark.parametrize("separator", [True, False])
@pytest.mark.parametrize("own", [b"", b"TAGS\x01a", b"TAGS\x01a\x02KEYS\x01k\x02", b"DELAY\x010\x02TAGS\x01b"])
@pytest.mark.parametrize("host", [(bytes([10, 0, 0, 1]), 4000), (bytes(16), 4000)])
def test_messages_of_a_batch_are_encoded_as_single_ones(
    tmp_path: Path, own: bytes, host: tuple[bytes, int], separator: bool
) -> None:
    config = MessageStoreConfig(properties_trailing_separator=separator)
    with MessageStore.open(tmp_path / "s", config) as store:
        engine = parts_of(store).engine
        for shared in ({}, {"WAIT": "true"}):
            batch = _message()._replace(born_host=host, properties=shared, reconsume_times=2)
            encoded = engine.produced.encode_batch(batch, [BatchedMessage(7, b"body", own)] * 2)
            properties = {**decode_properties(own), **shared}
            single = engine.produced.encode(batch._replace(body=b"body", flag=7, properties=properties))
            assert encoded.record == single.record * 2
            assert encoded.sizes == (len(single.record),) * 2


@pytest.mark.parametrize("flag", [BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG])
def test_a_client_that_claims_hosts_of_ipv6_damages_no_record_of_a_batch(tmp_path: Path, flag: int) -> None:
    """A record with these bits has longer hosts: dispatch would find no record after it."""
    with MessageStore.open(tmp_path / "s") as store:
        engine = _warm(store)
        batch = _message()._replace(sys_flag=flag)
        assert _put_at_once(engine, engine.produced.encode_batch(batch, [BatchedMessage(0, b"x", b"")] * 2))
        store.dispatch()
        assert [one.body for one in store.get_message("orders", 0, 1).messages] == [b"x"] * 2


def test_a_delayed_message_is_refused_in_a_batch(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s") as store:
        engine = parts_of(store).engine
        with pytest.raises(PutRefused, match="delayed"):
            engine.produced.encode_batch(_message(), [BatchedMessage(0, b"x", b"DELAY\x013\x02")])
        with pytest.raises(PutRefused, match="delayed"):
            engine.produced.encode_batch(_message(DELAY="3"), [BatchedMessage(0, b"x", b"")])
