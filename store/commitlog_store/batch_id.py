"""Batch identity, result and staged files: the values that staging, commit and ledger pass on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from commitlog_store.errors import InvalidValue
from commitlog_store.java_numbers import MAX_LONG

_LONGEST_TEXT_BYTES = 1024
# The store's own application ids: one for each delay level, whose batches are the messages that it delivers.
_SCHEDULE_PREFIX = "rmq-schedule/"
# One for each consumer group, whose batches are the dead letters that it is given again.
_REDRIVE_PREFIX = "rmq-redrive/"
# One whose batches are delivered timer messages, and whose fingerprints say which are (delayed/timer_check.py).
TIMER_APPLICATION = "rmq-timer"
# And one whose batches have no messages: its version is the store's epoch, which grows when a mirror is promoted.
EPOCH_APPLICATION = "rmq-epoch"


@dataclass(frozen=True)
class BatchId:
    """Application id and version of a batch: versions of one application ascend, each is stored at most once.

    ``app_id`` is an application's own name, or a streaming query's id; batches with an empty one are whole but may be
    repeated. ``fingerprint`` distinguishes a batch that is replayed (the same) from another one that has taken its
    version; an empty one is not compared. ``InvalidValue`` for texts of more than 1,024 bytes, and for a
    version below zero.

    ::

        BatchId("orders-loader", 7)
    """

    app_id: str
    version: int = 0
    fingerprint: str = ""

    def __post_init__(self) -> None:
        for name, text in (("application id", self.app_id), ("fingerprint", self.fingerprint)):
            if not isinstance(text, str):
                raise InvalidValue(f"The {name} of a batch is text, not {text!r}.")
            try:
                length = len(text.encode("utf-8"))
            except UnicodeEncodeError as error:
                raise InvalidValue(f"The {name} {text!r} is not text that UTF-8 can hold.") from error
            if length > _LONGEST_TEXT_BYTES:
                raise InvalidValue(f"The {name} has {length} bytes, at most {_LONGEST_TEXT_BYTES} are taken.")
        if isinstance(self.version, bool) or not isinstance(self.version, int):
            raise InvalidValue(f"A batch's version is an integer, not {self.version!r}.")
        if not 0 <= self.version <= MAX_LONG:
            raise InvalidValue(f"A batch's version is 0 to {MAX_LONG}, not {self.version}.")

    def __str__(self) -> str:
        return f"batch {self.version} of {self.app_id!r}" if self.app_id else "a batch of no application"


def checked_transaction(app_id: str, version: int, fingerprint: str) -> BatchId:
    """The batch of a program's transaction. ``InvalidValue``."""
    batch = BatchId(app_id, version, fingerprint)
    if not app_id:
        raise InvalidValue("A transaction belongs to an application: give it an id, which is not empty.")
    refuse_store_application(app_id)
    return batch


@dataclass(frozen=True)
class CommittedBatch:
    """A batch that is in the store.

    ``physical_offset`` is its frame record's, -1 where nothing was written because it had no rows; ``end`` is the log's
    end after it. ``already_there``: it was committed before, and this commit wrote nothing. Both are -1 then when
    retention has removed it. ``store_timestamp`` is in milliseconds.
    """

    batch: BatchId
    physical_offset: int
    end: int
    rows: int
    store_timestamp: int
    already_there: bool = False


@dataclass(frozen=True)
class TopicUse:
    """The queues of a topic as staged messages use it, so that the commit can check that they still agree.

    ``spread_over``: the number of queues that messages without a queue id were spread over; 0 without such messages.
    ``named_queues``: the highest queue id that a message names itself, plus one; 0 when none does. ``is_new``: whether
    the topic did not exist when the messages were staged. A delayed message counts for its real topic.
    """

    topic: str
    spread_over: int
    named_queues: int
    is_new: bool

    def joined(self, other: TopicUse) -> TopicUse:
        """The union of two uses of the same topic."""
        return TopicUse(
            self.topic,
            max(self.spread_over, other.spread_over),
            max(self.named_queues, other.named_queues),
            self.is_new or other.is_new,
        )


@dataclass(frozen=True)
class StagedFile:
    """A file of encoded messages that waits to be committed; it travels from the task that wrote it to the committer.

    ``path`` is relative to the store directory. ``crc`` is the CRC-32 of the heads of its blocks,
    which hold those of all the rest. ``topics`` is empty where the store's owner chose the queues: no topic changes
    during that.
    """

    path: str
    rows: int
    size: int
    crc: int
    topics: tuple[TopicUse, ...] = ()


def joined_uses(staged: Iterable[StagedFile]) -> tuple[TopicUse, ...]:
    """The uses of each topic by all files together, in the order of the topics' names."""
    uses: dict[str, TopicUse] = {}
    for use in (use for one in staged for use in one.topics):
        uses[use.topic] = use.joined(uses.get(use.topic, use))
    return tuple(uses[topic] for topic in sorted(uses))


@dataclass(frozen=True, kw_only=True)
class StagingPlan:
    """What staging for a store needs to know of it, for tasks that do not see its directory.

    ``queue_counts``: over how many queues each topic is spread. ``topic_faults``: why a topic takes no messages, as the
    end of a sentence. ``largest_record``: bytes that its files have room for. The others are its settings.
    """

    queue_counts: dict[str, int]
    topic_faults: dict[str, str]
    largest_record: int
    max_message_size: int
    message_delay_level: str
    broker_ip: str
    listen_port: int
    properties_trailing_separator: bool


def schedule_application(level: int) -> str:
    """The application id of the batches that deliver the messages of a delay level.

    Such a batch has the offset of the next message to deliver as its version.
    """
    return f"{_SCHEDULE_PREFIX}{level}"


def delay_level_of(app_id: str) -> int | None:
    """The delay level of such an application id; None for any other."""
    text = app_id.removeprefix(_SCHEDULE_PREFIX)
    named = text != app_id and text.isascii() and text.isdigit() and len(text) <= 10
    return int(text) if named and schedule_application(int(text)) == app_id else None


def redrive_application(group: str) -> str:
    """The application id of the batches that put a group's dead letters back; their versions count from 0 on."""
    return f"{_REDRIVE_PREFIX}{group}"


def is_store_application(app_id: str) -> bool:
    """Whether the batches of an application id are the store's own."""
    is_redrive = app_id.startswith(_REDRIVE_PREFIX)
    return is_redrive or app_id in (EPOCH_APPLICATION, TIMER_APPLICATION) or delay_level_of(app_id) is not None


def check_commit(batch: object, staged: object) -> None:
    """``InvalidValue`` for arguments of ``commit_batch`` of other types."""
    if not isinstance(batch, BatchId):
        raise InvalidValue(f"batch is a BatchId, not {batch!r}.")
    if not isinstance(staged, Sequence) or not all(isinstance(one, StagedFile) for one in staged):
        raise InvalidValue(f"staged is a list of StagedFile, as BatchStager.finish gives them, not {staged!r}.")


def refuse_store_application(app_id: str) -> None:
    """``InvalidValue`` for an application id that is the store's own."""
    if app_id in (EPOCH_APPLICATION, TIMER_APPLICATION) or app_id.startswith((_SCHEDULE_PREFIX, _REDRIVE_PREFIX)):
        raise InvalidValue(
            f"The application id {app_id!r} belongs to the store, which delivers delayed messages, redrives dead "
            "letters and counts its epochs with such ones."
        )
