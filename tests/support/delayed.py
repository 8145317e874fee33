"""Delayed messages in tests: a service that is stepped by hand with a clock of its own, and what it delivered."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from commitlog_store import Message, MessageStore, StoreReader
from commitlog_store.delayed.schedule_message import ScheduleMessageService
from commitlog_store.delayed.timer_message import TimerMessageService
from commitlog_store.store import owned_by
from commitlog_store.testing import parts_of
from commitlog_store.threads.wakeup import Wakeup

_T = TypeVar("_T")


class Deliverer:
    """The service of a store that was opened with ``schedule_enable=False``. ``now`` is its clock, in seconds."""

    def __init__(
        self,
        store: MessageStore,
        *,
        enabled: bool | None = True,
        flush_interval_ms: int = 10_000,
        kind: Callable[..., Any] = ScheduleMessageService,
        **settings: Any,
    ) -> None:
        """``settings`` are the service's own, such as ``frame_bytes``."""
        self.store = store
        self.now = time.time()
        # Called once, before the next job of the service.
        self.before_job: Callable[[], None] = _nothing
        self._run = parts_of(store).engine.run
        engine = copy.copy(parts_of(store).engine)
        engine.config = replace(
            engine.config,
            schedule_enable=enabled,
            flush_delay_offset_interval=flush_interval_ms,
            timer_flush_interval_ms=flush_interval_ms,
        )
        engine.run = self._run_job  # type: ignore[method-assign]
        self.service: Any = kind(engine, Wakeup(), clock=lambda: self.now, monotonic=lambda: self.now, **settings)

    def _run_job(self, work: Callable[[], _T]) -> _T:
        before, self.before_job = self.before_job, _nothing
        before()
        return self._run(work)

    def step(self) -> float:
        """One step, with everything that was put before in its queue. The seconds to the next one."""
        self.store.dispatch()
        pause: float = self.service.run_once()
        self.store.dispatch()
        return pause

    def everything(self, ahead_s: float = 86_400.0) -> None:
        """Deliver all that waits, whatever its delay."""
        self.now += ahead_s
        while self.step() == 0:
            pass


def _nothing() -> None:
    pass


def timer_of(store: MessageStore, **settings: Any) -> Deliverer:
    """The same for timer messages."""
    return Deliverer(store, kind=TimerMessageService, **settings)


def is_taken_in(store: MessageStore) -> bool:
    """Whether the store's own service has taken in all timer messages, of which it has had at least one."""
    store.dispatch()
    to_take_in = owned_by(store).timer.to_take_in()
    return to_take_in is not None and not to_take_in and to_take_in.stop > 0


def delayed(body: bytes, level: int = 1, topic: str = "orders", **fields: Any) -> Message:
    """A message with a delay."""
    properties = {"DELAY": str(level), **fields.pop("properties", {})}
    return Message(topic=topic, body=body, properties=properties, **({"queue_id": 0} | fields))


def bodies_of(path: str, topic: str = "orders", **chosen: Any) -> list[bytes]:
    """The bodies of all messages of a topic, queue by queue."""
    with StoreReader.open(path) as reader:
        if topic not in reader.topics():
            return []
        found: list[bytes] = []
        for info in reader.queues(topic):
            for batch in reader.read(
                topic, info.queue_id, info.min_offset, columns=["body"], verify_crc=True, **chosen
            ):
                found += batch.column("body").to_pylist()
        return found
