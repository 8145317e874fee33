"""How far timer messages are delivered: the ledger's fingerprint, and ``config/timercheck`` beside the timer log.

The fingerprint of the last batch of ``rmq-timer`` is ``<due>:<physical offset>:<judged>``: delivered are the messages
before the physical offset ``judged`` whose time of delivery and physical offset are up to the first two.
"""

from __future__ import annotations

import os
import re

from commitlog_store.batch_id import BatchId
from commitlog_store.delayed.timer_log import NOTHING_DELIVERED, Delivered, Key
from commitlog_store.errors import ReadFailed
from commitlog_store.files import disk
from commitlog_store.files.whole_file import replace_durably
from commitlog_store.format.timer_log import CHECK_SIZE, OwnCheck, TimerCheck, decode_check, encode_check
from commitlog_store.paths import CONFIG, TIMER_CHECK

_FINGERPRINT = re.compile(r"(-?[0-9]{1,19}):(-?[0-9]{1,19}):([0-9]{1,19})", re.ASCII)


def delivered_of(batch: BatchId | None) -> Delivered:
    """What the last batch of ``rmq-timer`` says is delivered; nothing without one."""
    match = None if batch is None else _FINGERPRINT.fullmatch(batch.fingerprint)
    if match is None:
        return NOTHING_DELIVERED
    due, physical, judged = map(int, match.groups())
    return Delivered(Key(due, physical), judged)


def fingerprint_of(delivered: Delivered) -> str:
    """The fingerprint of the batch after which so much is delivered."""
    return f"{delivered.key.due}:{delivered.key.physical_offset}:{delivered.judged}"


class TimerCheckFile:
    """``config/timercheck`` of a store."""

    def __init__(self, store_path: str) -> None:
        self.path = os.path.join(store_path, CONFIG, TIMER_CHECK)

    def read(self) -> TimerCheck | None:
        """None without the file, and for one that is too short. ``ReadFailed``."""
        try:
            return decode_check(disk.read_file(self.path, CHECK_SIZE))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ReadFailed("read", path=self.path, cause=error) from error

    def write(self, read_time: int, own: OwnCheck, *, repeats: bool) -> None:
        """Replace it. What it counts is on the device. ``DiskFull``, ``StoreIOError``; see ``encode_check``."""
        replace_durably(self.path, encode_check(read_time, own, repeats=repeats))
