"""Messages that wait: delayed ones by level, half messages, and the last batches of applications."""

from __future__ import annotations

import time

from commitlog_store.delayed.levels import DelayLevel
from commitlog_store.format.message_rules import SCHEDULE_TOPIC
from commitlog_store.format.timer_messages import TIMER_TOPIC
from commitlog_store.reader import StoreReader, pending_half_part
from commitlog_store.serve.http.pages.views import Asked, Paging, Values, View

_ROWS = 50


def _delayed(reader: StoreReader, asked: Asked) -> Values:
    del asked
    levels = reader.delay_levels()
    now_ms = time.time_ns() // 1_000_000
    rows = [{"level": one, "late": one.overdue_ms(now_ms), **_place(one)} for one in levels]
    dues = [one.next_due for one in levels if one.next_due is not None]
    return {
        "rows": rows,
        "waiting": sum(one.waiting for one in levels),
        "overdue": sum(row["late"] > 0 for row in rows),
        "next_due": min(dues, default=None),
    }


def _place(one: DelayLevel) -> Values:
    """The queue in which the messages of a level wait."""
    return {"topic": SCHEDULE_TOPIC, "queue": one.level - 1} if one.level else {"topic": TIMER_TOPIC, "queue": 0}


def _half(reader: StoreReader, asked: Asked) -> Values:
    wanted = asked.text("q").lower()
    paging = Paging.of(asked, 0, _ROWS)

    def part(count: int) -> slice:
        nonlocal paging
        paging = Paging.of(asked, count, _ROWS)
        return slice(paging.start, paging.stop)

    rows = pending_half_part(
        reader, lambda one: wanted in one.topic.lower() or wanted in one.producer_group.lower(), part
    )
    unread = sum(one.messages for one in reader.skipped)
    problem = ""
    if unread:
        problem = f"{unread} messages cannot be read: half messages that have ended may be among these."
    return {"rows": rows, "paging": paging, "q": asked.text("q"), "problem": problem}


def _batches(reader: StoreReader, asked: Asked) -> Values:
    wanted = asked.text("q").lower()
    found = [one for one in reader.batches() if wanted in one.batch.app_id.lower()]
    found.sort(key=lambda one: (-one.store_timestamp, one.batch.app_id))
    paging = Paging.of(asked, len(found), _ROWS)
    return {"rows": found[paging.start : paging.stop], "paging": paging, "q": asked.text("q")}


DELAYED = View(name="delayed", path="/delayed", look=_delayed)
HALF = View(name="half", path="/half", look=_half, on_damage="skip")
BATCHES = View(name="batches", path="/batches", look=_batches)
