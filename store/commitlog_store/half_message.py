"""Half messages as callers know them: the handle, a pending message, the answers and the report of a check.

A half message is prepared, and then committed or rolled back. Not to be confused with ``MessageStore.transaction``,
which stores a batch of messages all or nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from commitlog_store.errors import InvalidValue
from commitlog_store.message import MessageExt

# What a producer answers about a half message: RocketMQ's LocalTransactionState.
Answer: TypeAlias = Literal["commit", "rollback", "unknown"]

# A unique key may hold colons, the other parts hold none.
_HANDLE = re.compile(r"([0-9]{1,19}):([0-9]{1,19}):([^:\s]*):(\S*)")


@dataclass(frozen=True)
class HalfMessageHandle:
    """The name of a half message, by which it is committed or rolled back, also by another process and after a crash.

    ``physical_offset`` and ``queue_offset`` are its place in the log and in the half queue; ``producer_group`` and
    ``unique_key`` belong to the message there. A check that ends undecided puts the message back at the queue's end;
    the handle keeps its meaning, since the copy has the same unique key.

    ``str`` gives a text that ``parse`` reads: ``<physical offset>:<queue offset>:<producer group>:<unique key>``.

    ::

        with MessageStore.open("/data/store") as store:
            handle = store.half_messages.prepare(Message(topic="orders", body=b"paid"), producer_group="payments")
            text = str(handle)  # to be kept beside the work that decides
            store.half_messages.commit(HalfMessageHandle.parse(text))
    """

    physical_offset: int
    queue_offset: int
    producer_group: str
    unique_key: str

    def __str__(self) -> str:
        return f"{self.physical_offset}:{self.queue_offset}:{self.producer_group}:{self.unique_key}"

    @classmethod
    def parse(cls, text: str) -> HalfMessageHandle:
        """The handle that ``str`` wrote. ``InvalidValue`` for any other text."""
        found = _HANDLE.fullmatch(text)
        if found is None:
            raise InvalidValue(
                "A half message's handle is <physical offset>:<queue offset>:<producer group>:<unique key>, not "
                f"{text!r}. `commitlog half ls` shows the handles of all pending ones."
            )
        return cls(int(found[1]), int(found[2]), found[3], found[4])


@dataclass(frozen=True, kw_only=True)
class PendingHalfMessage:
    """A half message that is neither committed nor rolled back.

    ``message`` has the topic and queue that it is meant for; its offsets and properties are those of the half message.
    ``check_times`` says how often a check has asked for its outcome in vain.
    """

    handle: HalfMessageHandle
    message: MessageExt
    check_times: int


@dataclass(frozen=True, kw_only=True)
class HalfMessagesChecked:
    """What one round of checks did: how many half messages were committed, rolled back, put back, and given up.

    ``failed`` counts those whose callback raised an exception, or whose topic cannot take them; they are among
    ``put_back``, unless a further property does not fit them. ``too_young`` and ``left`` were not asked for: because of
    their age, or since the round took too long. ``unreadable``: damaged ones, of all rounds since the store was opened.
    """

    committed: int = 0
    rolled_back: int = 0
    put_back: int = 0
    given_up: int = 0
    failed: int = 0
    too_young: int = 0
    left: int = 0
    unreadable: int = 0
