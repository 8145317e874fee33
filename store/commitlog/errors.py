"""Every error this package raises on purpose.

::

    CommitLogError
    ├── StoreOpenError              the path cannot be used as a store
    │   ├── StoreNotFound           no such path
    │   ├── NotAStore               the path is there but is no store directory
    │   ├── StoreAccessDenied       the operating system refuses to let us read it
    │   ├── StoreLocked             another process, or this one, owns the store already
    │   ├── LogLost                 consume queues are there, but no CommitLog file
    │   └── UnsupportedStore        a store type this package does not cover (RocksDB, batch queues, ...)
    ├── CorruptStoreError           bytes on disk are not what the format says; path, offset, expected, found
    │   ├── CorruptRecord           a CommitLog record
    │   │   └── DamagedLog          one that keeps the store from being opened: cutting there would lose messages
    │   ├── CorruptConsumeQueue     a consume-queue unit or file
    │   ├── CorruptIndex            an index file
    │   ├── CorruptCheckpoint       the checkpoint file
    │   ├── CorruptConfig           a JSON file in config/
    │   └── CorruptStaging          a staged file of a batch
    ├── FileChanged                 a file was truncated, replaced or removed while it was being read
    ├── FileMissing                 a file from the middle of the log or of a queue is not there
    ├── OffsetOutOfRange            a queue offset that the queue does not hold (any more, or yet)
    ├── NotFoundError
    │   ├── TopicNotFound
    │   ├── QueueNotFound
    │   └── MessageNotFound         no message at that physical offset or of that id
    ├── ReaderClosed                the reader was closed before this was read
    ├── StoreClosed                 the store was closed before this was asked of it
    ├── StoreIOError                the operating system failed a read, write or sync; outcome unknown until reopened
    │   └── DiskFull                there was no space for a new file; nothing was written
    ├── StagingLost                 a staged file of a batch is not there (any more)
    ├── BatchConflict               another batch was committed under the same application id and version
    ├── PutRefused                  a put whose status is not PUT_OK, for those who ask for an exception
    └── InvalidValue                an argument that no store could satisfy (also a ValueError)

Messages say what, where, what was expected, what was found and what to do. The values stand as attributes too,
so that programs need not parse the text.
"""

from __future__ import annotations

__all__ = [
    "BatchConflict",
    "CommitLogError",
    "CorruptCheckpoint",
    "CorruptConfig",
    "CorruptConsumeQueue",
    "CorruptIndex",
    "CorruptRecord",
    "CorruptStaging",
    "CorruptStoreError",
    "DamagedLog",
    "DiskFull",
    "FileChanged",
    "FileMissing",
    "InvalidValue",
    "LogLost",
    "MessageNotFound",
    "NotAStore",
    "NotFoundError",
    "OffsetOutOfRange",
    "PutRefused",
    "QueueNotFound",
    "ReaderClosed",
    "StagingLost",
    "StoreAccessDenied",
    "StoreClosed",
    "StoreIOError",
    "StoreLocked",
    "StoreNotFound",
    "StoreOpenError",
    "TopicNotFound",
    "UnsupportedStore",
]


class CommitLogError(Exception):
    """The base of all errors of this package."""

    # Exceptions are pickled by their args; subclasses with keyword-only fields would not come back from a worker
    # process, so the instance's own dictionary travels along instead of the constructor being called again.
    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


def _rebuild(kind: type[CommitLogError], args: tuple[object, ...], fields: dict[str, object]) -> CommitLogError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class StoreOpenError(CommitLogError):
    """The path cannot be used as a store directory."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class StoreNotFound(StoreOpenError):
    """There is nothing at the path."""


class NotAStore(StoreOpenError):
    """There is something at the path, but it has not the shape of a store directory."""


class StoreAccessDenied(StoreOpenError):
    """The operating system does not let this process read the store."""


class StoreLocked(StoreOpenError):
    """The store has an owner: a broker, another process, or another ``MessageStore`` of this one.

    ``holder`` is the owner's process id where the operating system tells it, else None.
    """

    def __init__(self, message: str, *, path: str, holder: int | None = None) -> None:
        super().__init__(message, path=path)
        self.holder = holder


class LogLost(StoreOpenError):
    """Every CommitLog file is gone while consume queues are there: going on would give queue offsets out again."""


class UnsupportedStore(StoreOpenError):
    """The directory holds a kind of store that this package does not read; it is refused rather than read wrongly."""


class CorruptStoreError(CommitLogError):
    """Bytes on disk contradict their format.

    ``offset`` is the byte position within ``path`` where the contradiction lies.
    """

    def __init__(self, what: str, *, path: str, offset: int, expected: object, found: object, advice: str = "") -> None:
        text = f"{what} in {path} at byte {offset}: expected {expected}, found {found}."
        super().__init__(f"{text} {advice}" if advice else text)
        self.path = path
        self.offset = offset
        self.expected = expected
        self.found = found


class CorruptRecord(CorruptStoreError):
    """A CommitLog record that is not what its consume-queue unit, its own fields or its CRC say."""


class DamagedLog(CorruptRecord):
    """A bad record with good ones behind it that were flushed: no crash leaves that, so opening refuses (invariant 5).

    ``cut_at`` is the physical offset at which the log would end without it: the record's own, or where the batch begins
    that it belongs to.
    """

    def __init__(
        self, what: str, *, path: str, offset: int, expected: object, found: object, advice: str, cut_at: int
    ) -> None:
        super().__init__(what, path=path, offset=offset, expected=expected, found=found, advice=advice)
        self.cut_at = cut_at


class CorruptConsumeQueue(CorruptStoreError):
    """A consume-queue unit, or the set of a queue's files, that cannot be right."""


class CorruptIndex(CorruptStoreError):
    """An index file whose header, slots or entries cannot be right."""


class CorruptCheckpoint(CorruptStoreError):
    """A checkpoint file of the wrong size or with impossible times."""


class CorruptConfig(CorruptStoreError):
    """A file in ``config/`` that is not the JSON a broker writes."""


class CorruptStaging(CorruptStoreError):
    """A staged file that is not what its writer wrote. Nothing of its batch is in the store."""


class FileChanged(CommitLogError):
    """A file was truncated, replaced or removed while it was being read.

    Beside a live owner this is retention at work; read the queue's bounds again and go on from there.
    """

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class FileMissing(CommitLogError):
    """A file that lies between others is gone, so messages are missing from the middle of a queue.

    ``start``/``stop`` are the queue offsets that cannot be read, half-open.
    """

    def __init__(self, *, path: str, topic: str, queue_id: int, start: int, stop: int) -> None:
        super().__init__(
            f"Topic {topic!r}, queue {queue_id}: offsets [{start}, {stop}) cannot be read, since {path} is missing "
            f"although files before and after it are there. Restore the file, or read from offset {stop} on."
        )
        self.path = path
        self.topic = topic
        self.queue_id = queue_id
        self.start = start
        self.stop = stop


class OffsetOutOfRange(CommitLogError):
    """Queue offsets were wanted that the queue does not hold.

    ``start``/``stop`` are what was wanted, ``min_offset``/``max_offset`` what is there; both ranges are half-open.
    """

    def __init__(
        self, *, topic: str, queue_id: int, start: int, stop: int, min_offset: int, max_offset: int, advice: str = ""
    ) -> None:
        text = (
            f"Topic {topic!r}, queue {queue_id}: wanted offsets [{start}, {stop}), "
            f"available are [{min_offset}, {max_offset})."
        )
        super().__init__(f"{text} {advice}" if advice else text)
        self.topic = topic
        self.queue_id = queue_id
        self.start = start
        self.stop = stop
        self.min_offset = min_offset
        self.max_offset = max_offset


class NotFoundError(CommitLogError):
    """What was asked for is not in the store."""


class TopicNotFound(NotFoundError):
    """The store has no consume queue for the topic."""


class QueueNotFound(NotFoundError):
    """The topic has no such queue."""


class MessageNotFound(NotFoundError):
    """No message starts at the physical offset, or none has the id."""


class ReaderClosed(CommitLogError):
    """Something was to be read through a ``StoreReader`` that has been closed."""


class InvalidValue(CommitLogError, ValueError):
    """An argument that no store could satisfy: an ill-formed message id, a negative offset, an unknown column.

    ``settings`` names those of ``MessageStoreConfig`` that it is about, and ``expected`` says what they may be, for
    callers whose users know them by other names; both are empty for all other arguments.
    """

    def __init__(self, message: str, *, settings: tuple[str, ...] = (), expected: str = "") -> None:
        super().__init__(message)
        self.settings = settings
        self.expected = expected


class StoreClosed(CommitLogError):
    """Something was asked of a ``MessageStore`` that has been closed."""


class StoreIOError(CommitLogError):
    """The operating system failed an operation on a file of the store.

    What was being written is there or not: unknown until the store is opened again. ``path`` is the file,
    ``operation`` what was tried, ``errno`` the system's number for the failure.
    """

    def __init__(self, operation: str, *, path: str, cause: OSError, advice: str = "") -> None:
        text = f"Cannot {operation} {path}: {cause.strerror or cause}."
        super().__init__(f"{text} {advice}" if advice else text)
        self.operation = operation
        self.path = path
        self.errno = cause.errno


class DiskFull(StoreIOError):
    """There was no space for a new file of the store. Nothing was written; it works again once there is space."""


class StagingLost(CommitLogError):
    """A staged file of a batch is not where it was written. Nothing of the batch is in the store."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class BatchConflict(CommitLogError):
    """The application has committed another batch of that version, or a later one. Nothing was written.

    ``committed`` is the application's last version, ``version`` the one that was to be committed.
    """

    def __init__(self, message: str, *, app_id: str, version: int, committed: int) -> None:
        super().__init__(message)
        self.app_id = app_id
        self.version = version
        self.committed = committed


class PutRefused(CommitLogError):
    """A put did not get PUT_OK. ``status`` is the ``PutMessageStatus``'s name."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(f"{status}: {reason}" if reason else status)
        self.status = status
        self.reason = reason
