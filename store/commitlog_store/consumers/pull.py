"""PullService: single pulls of messages from an open store, and waits for messages that have not come yet.

Source: RocketMQ ``broker/processor/PullMessageProcessor.java``, ``broker/longpolling/PullRequestHoldService.java``.
"""

from __future__ import annotations

import time

from commitlog_store.consumers.lent_readers import LentReaders
from commitlog_store.engine.arrivals import Interest
from commitlog_store.engine.running_state import RunningFlags
from commitlog_store.engine.store_engine import StoreEngine
from commitlog_store.engine.stored_messages import StoredPull
from commitlog_store.errors import StoreBusy, StoreClosed
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.format.message_rules import check_queue_place
from commitlog_store.log.store_directory import check_store_directory
from commitlog_store.queue.get_message import GetMessageResult, PullLimits, wait_for_match
from commitlog_store.reader import StoreReader, pulls_of
from commitlog_store.threads.wakeup import Wakeup
from commitlog_store.timestamps import LONGEST_WAIT_S, checked_seconds

_RETRIES = 5
_PLACES = ("queueOffset", "physicalOffset", "storeSize")


class PullService:
    """The readers of one open store. Any number of threads."""

    def __init__(self, engine: StoreEngine) -> None:
        self._engine = engine
        self._readers = LentReaders(engine, self.reader)

    @property
    def is_readable(self) -> bool:
        return RunningFlags.NOT_READABLE not in self._engine.state.flags

    def refuse_unreadable(self) -> None:
        """``StoreClosed`` if the store was set to be not readable."""
        if not self.is_readable:
            raise StoreClosed(f"The store at {self._engine.path} was set to be not readable.")

    def reader(self) -> StoreReader:
        """``MessageStore.reader``."""
        self.refuse_unreadable()
        check_store_directory(self._engine.path)
        return StoreReader(self._engine.paths, counts=self._engine.stats)

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        *,
        max_bytes: int,
        wanted: str | MessageFilter | None,
        tags: str | None,
        wait_s: float,
    ) -> GetMessageResult:
        """``MessageStore.get_message``."""

        tagged = wanted if isinstance(wanted, MessageFilter) else MessageFilter.parse_quietly(tags)
        interest = Interest(topic, queue_id, None if tagged.is_all else tagged.may_match)

        def look(position: int) -> GetMessageResult:
            self.refuse_unreadable()
            with self._readers.lent() as reader:
                return reader.get_message(
                    topic, queue_id, position, max_messages, max_bytes=max_bytes, filter=wanted, tags=tags
                )

        return wait_for_match(
            look,
            lambda position, left: self._wait(interest, position, left),
            offset,
            checked_seconds("wait_s", wait_s),
        )

    def stored_messages(
        self, topic: str, queue_id: int, offset: int, limits: PullLimits, wanted: MessageFilter
    ) -> StoredPull:
        """``get_message`` with the records' stored bytes, as brokers send them. May wait for the disk.

        Messages are decoded only where properties decide. Damage as in ``StoreReader.read``.
        """
        self.refuse_unreadable()
        stored = self._engine.stored
        for _ in range(_RETRIES):
            if wanted.expression is None and wanted.keys is None:
                found = stored.get(topic, queue_id, offset, limits, None if wanted.is_all else wanted.may_match)
                if found is not None:
                    return found
            started = time.perf_counter()
            with self._readers.lent() as reader:
                pulled, bounds = pulls_of(reader).rows(
                    *(topic, queue_id, offset, limits, wanted, _PLACES), verify_crc=False
                )
            places = [
                place
                for batch in pulled.batches
                for place in zip(batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True)
            ]
            data = stored.bytes_of(places) if places else b""
            if data is not None:
                self._engine.stats.pull(topic, len(places), len(data), time.perf_counter() - started)
                return StoredPull(pulled.status, pulled.next_begin_offset, *bounds, data, len(places))
        raise StoreBusy(
            f"Records of topic {topic!r}, queue {queue_id}, from offset {offset} on changed while they were being read."
        )

    def stored_in_memory(
        self, topic: str, queue_id: int, offset: int, limits: PullLimits, wanted: MessageFilter
    ) -> StoredPull | None:
        """``stored_messages`` if it needs nothing that may wait for long; else None."""
        self.refuse_unreadable()
        if wanted.expression is not None or wanted.keys is not None:
            return None
        may_match = None if wanted.is_all else wanted.may_match
        return self._engine.stored.get(topic, queue_id, offset, limits, may_match, at_once=True)

    def wait_for_messages(self, topic: str, queue_id: int, offset: int, timeout_s: float | None) -> bool:
        """``MessageStore.wait_for_messages``."""
        check_queue_place(topic, queue_id, offset)
        wait_s = LONGEST_WAIT_S if timeout_s is None else checked_seconds("timeout_s", timeout_s)
        return self._wait(Interest(topic, queue_id), offset, wait_s)

    def _wait(self, interest: Interest, offset: int, wait_s: float) -> bool:
        """Whether a queue has a message at an offset, at the latest after ``wait_s``; looked for at each arrival."""
        topic, queue_id = interest.topic, interest.queue_id
        assert queue_id is not None
        deadline = time.monotonic() + wait_s
        while True:
            with self._engine.waiters.waiting_for(Wakeup(), [interest]) as wakeup:
                if self._readable_at(topic, queue_id, offset):
                    return True
                self._engine.state.refuse_failed()
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                wakeup.wait(left)

    def _readable_at(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a queue has a message at an offset, visible to readers."""
        self.refuse_unreadable()
        with self._engine.calls.enter():
            self._engine.state.refuse_closed()
            place = self._engine.log.queues.place_from(topic, queue_id, offset)
            # Units of a batch that is being dispatched exist, but are not visible yet.
            return place is not None and self._engine.log.gate.state.shows(place)

    def close(self) -> None:
        """Close the readers that no pull uses."""
        self._readers.close()
