"""Exceptions of this package, in three kinds: refused, outcome unknown, damaged.

::

    CommitLogError
    ├── Refused                     nothing was written, nothing has changed
    │   ├── InvalidValue            an argument that no store could satisfy (also a ValueError)
    │   │   ├── FilterError         tags, keys or an expression that cannot be a filter; the place, expected, found
    │   │   └── NotServed           ``commitlog serve`` does not serve this store, or serves it read only
    │   ├── StoreOpenError          the path cannot be used as a store
    │   │   ├── StoreNotFound       the path does not exist
    │   │   ├── NotAStore           the path exists and is not a store directory
    │   │   ├── LogNotFound         the store's queues lead to messages, and its log is not where it should be
    │   │   ├── StoreAccessDenied   the operating system does not let this process read the store
    │   │   ├── StoreLocked         another process, or this one, owns the store already
    │   │   ├── ReplicaStore        a mirror of another store, opened for other messages than its master's
    │   │   ├── UnsupportedStore    a store type that this package does not cover (RocksDB, batch queues, ...)
    │   │   ├── ArchiveNotFound     no archive is at that URL
    │   │   └── UnsupportedArchive  an archive of a version that this package does not know
    │   ├── StoreClosed             the store was closed before the call
    │   │   └── StoreForked         a forked child used its parent's store
    │   ├── NestedCall              a signal handler used the store within a call of its own thread
    │   ├── ReaderClosed            the reader was closed before the call
    │   ├── ConsumerClosed          the consumer was closed before the call
    │   ├── StoreBusy               the store changed during each of a reader's looks
    │   ├── NotFoundError
    │   │   ├── TopicNotFound
    │   │   ├── QueueNotFound
    │   │   ├── MessageNotFound     no message at that physical offset, or none of that id
    │   │   └── HalfMessageNotFound no half message of that handle
    │   ├── HalfMessageEnded        a half message that was committed, rolled back or given up before
    │   ├── OffsetOutOfRange        a queue offset that the queue does not hold (any more, or yet)
    │   ├── TailLost                a queue ends before what was read from it, or holds other messages there
    │   ├── FileChanged             a file was truncated, replaced or removed while it was being read
    │   ├── PutRefused              a put that the store does not accept; ``status`` says why
    │   ├── TopicInUse              a topic with messages in the log was to be deleted
    │   ├── PeerRefused             the other end of a replication is not the one that it should be
    │   │   └── LogDiverged         the master's log and the mirror's differ
    │   ├── RemotingFailed          a broker's remoting port did not answer a request as brokers do
    │   │   └── AccessRefused       a broker with access control wants keys, others, or some that may do more
    │   ├── RemoteFailed            ``commitlog serve`` did not answer, or not as this version does
    │   │   ├── RemoteAccessRefused it wants a token, another, or one that may do more
    │   │   ├── ServerBusy          it has as many calls under way as it takes
    │   │   └── SessionLost         it was started again, or forgot the client; what the call continues is gone
    │   ├── ArchiveFailed           an object store refused a request, or did not answer it
    │   │   └── ArchiveAccessRefused  it wants credentials, or others
    │   ├── ArchiveMismatch         an archive is another store's, or of a log that has diverged from this one
    │   ├── ArchiveGap              retention took log files that were to be archived
    │   ├── CutRefused              opening would cut whole records off the log, and was not to
    │   ├── FileCreationFailed      the operating system failed to make a new file of the store
    │   │   └── DiskFull            no space for it
    │   ├── ReadFailed              the operating system failed to read, list or open a file
    │   ├── TooManyOpenFiles        this process, or the machine, has as many files open as it may
    │   ├── ListenFailed            the operating system failed to listen on an address, which may be in use
    │   ├── StagingFailed           the operating system failed to write a staged file of a batch
    │   ├── TargetFailed            the operating system failed to write an export, a salvage, or the audit log
    │   ├── StagingLost             a staged file of a batch does not exist (any more)
    │   ├── TransactionEnded        a put into a transaction that has ended, or that failed before
    │   └── BatchConflict           another batch was committed under the same application id and version
    ├── OutcomeUnknown              bytes may have reached the log: opening the store again decides
    │   ├── StoreIOError            the operating system failed a write or a sync of a file of the store
    │   │   └── IndexIOError        of an index file
    │   └── PutNotConfirmed         a put whose message may be in the log, for callers that ask for an exception
    └── Damaged                     the files on disk contradict themselves
        ├── LogLost                 consume queues exist, and not one CommitLog file
        ├── LogShort                the log ends before the place up to which it was flushed
        ├── ArchiveDamaged          an object of an archive is missing, or has other bytes than its manifest says
        ├── FileMissing             a file of the log or of a queue does not exist, although others lead to it
        │   └── HistoryGap          an archive ends before its store begins: neither has what is between
        └── CorruptStoreError       bytes on disk are not what the format says; path, offset, expected, found
            ├── CorruptRecord       a CommitLog record
            │   └── DamagedLog      one that prevents opening the store: cutting there would lose messages
            ├── CorruptConsumeQueue a consume-queue unit or file
            ├── CorruptIndex        an index file
            ├── CorruptCheckpoint   the checkpoint file
            ├── CorruptConfig       a JSON file in config/
            └── CorruptStaging      a staged file of a batch

Messages name the object, its path and offset, the expected and the found value, and what to do. The values are
attributes too, so that programs need not parse the text.
"""

from __future__ import annotations

import copy
from typing import TypeVar

from commitlog_store.put_status import PutMessageStatus

_Error = TypeVar("_Error", bound="CommitLogError")
_Answer = TypeVar("_Answer")

# Characters of a user's text in an error.
_LONGEST_SHOWN = 200

# Why a file is missed.
_A_FILE_BETWEEN = "files before and after it exist"
_RESTORE_FILE = "Restore the file"


class CommitLogError(Exception):
    """The base of all errors of this package.

    ::

        try:
            StoreReader.open("/nowhere")
        except CommitLogError as error:
            print(error)
    """

    # Exceptions are pickled by their args; subclasses with keyword-only fields would not come back from a worker
    # process, so the instance's own dictionary travels along instead of the constructor being called again.
    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))

    def advised(self: _Error, advice: str) -> _Error:
        """This error, with one more sentence at the end of its text: what a caller further up knows to do."""
        self.args = (f"{self} {advice}", *self.args[1:])
        return self

    def again(self: _Error) -> _Error:
        """A copy to raise: an exception that is raised again and again grows its traceback each time."""
        return copy.copy(self)


def _rebuild(kind: type[CommitLogError], args: tuple[object, ...], fields: dict[str, object]) -> CommitLogError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class Refused(CommitLogError):
    """The call was refused. Nothing was written, nothing has changed; the text says what to do."""


class OutcomeUnknown(CommitLogError):
    """The call may have taken effect, or not: bytes may have reached the log. Opening the store again decides."""


class Damaged(CommitLogError):
    """The files on disk contradict themselves, or a part of them is missing."""


class _SystemFailure(CommitLogError):
    """An operation that the operating system failed.

    ``path`` is the file, ``operation`` the attempted operation, ``errno`` the system's number for the failure, and
    ``reason`` its text.
    """

    def __init__(self, operation: str, *, path: str, cause: OSError, advice: str = "") -> None:
        self.reason = cause.strerror or str(cause)
        text = f"Cannot {operation} {path}: {self.reason}."
        super().__init__(f"{text} {advice}" if advice else text)
        self.operation = operation
        self.path = path
        self.errno = cause.errno


class _AtPath(CommitLogError):
    """An error about the file or directory at ``path``."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class StoreOpenError(_AtPath, Refused):
    """The path cannot be used as a store directory."""


class StoreNotFound(StoreOpenError):
    """The path does not exist."""


class NotAStore(StoreOpenError):
    """The path exists, but is not a store directory."""


class StoreAccessDenied(StoreOpenError):
    """The operating system does not let this process read the store."""


class StoreLocked(StoreOpenError):
    """The store has an owner: a broker, another process, or another ``MessageStore`` of this one.

    ``holder`` is the owner's process id where the operating system reports it, else None.
    """

    def __init__(self, message: str, *, path: str, holder: int | None = None) -> None:
        super().__init__(message, path=path)
        self.holder = holder


class LogLost(_AtPath, Damaged):
    """Every CommitLog file is gone while consume queues exist: new messages would get queue offsets again."""


class LogShort(Damaged):
    """The log ends before the place up to which the checkpoint says that it was flushed: its end is gone.

    ``found_end`` and ``flushed_offset`` are physical offsets, ``missing_messages`` counts the units of consume queues
    that lead between them. ``for_shell`` is the store as arguments of a command. ``or_before``: the log may end before
    ``found_end``, since it was not scanned.
    """

    def __init__(
        self,
        *,
        path: str,
        log_path: str,
        for_shell: str,
        found_end: int,
        flushed_offset: int,
        missing_messages: int | None = None,
        or_before: bool = False,
    ) -> None:
        end, size = f"{found_end}{' or before' if or_before else ''}", flushed_offset - found_end
        messages = "" if missing_messages is None else f", with {missing_messages} messages by the consume queues"
        super().__init__(
            f"The log of {path} ends at physical offset {end}, but was flushed up to {flushed_offset}: "
            f"{'at least ' if or_before else ''}{size} bytes are missing at its end{messages}. Restore the newest "
            f"files of {log_path} from a copy. To go on without them: MessageStore.open(..., accept_lost_log=True), or "
            f"commitlog repair {for_shell} --accept-lost-log."
        )
        self.path = path
        self.found_end = found_end
        self.flushed_offset = flushed_offset
        self.missing_messages = missing_messages
        self.or_before = or_before


class LogNotFound(StoreOpenError):
    """A store has messages by its queues, and the directory of its log holds no file: nothing of it can be read.

    ``path`` is the log's directory.
    """

    @classmethod
    def at(cls, path: str, but: str) -> LogNotFound:
        """The error for a log that should be at ``path``, as ``but`` shows."""
        return cls(
            f"The log of the store is not at {path}: no log file exists there, but {but}. Is its disk mounted? Mount "
            "it, or restore the files from a copy. For a log in another directory, name that: store_path_commit_log in "
            "Python, --commit-log DIR for a command, the option storePathCommitLog in Spark.",
            path=path,
        )


class ReplicaStore(StoreOpenError):
    """A mirror of another store was opened as a store of its own. Nothing was changed."""


class UnsupportedStore(StoreOpenError):
    """The directory holds a kind of store that this package does not read; it is refused rather than read wrongly."""


class CorruptStoreError(Damaged):
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
    """A CommitLog record that contradicts its consume-queue unit, its own fields or its CRC."""


class DamagedLog(CorruptRecord):
    """A bad record with good, flushed ones after it: no crash leaves that, so opening refuses (invariant 5).

    ``cut_at`` is the physical offset at which the log would end without it: the record's own, or that of its batch's
    beginning.
    """

    def __init__(
        self, what: str, *, path: str, offset: int, expected: object, found: object, advice: str, cut_at: int
    ) -> None:
        super().__init__(what, path=path, offset=offset, expected=expected, found=found, advice=advice)
        self.cut_at = cut_at


class CorruptConsumeQueue(CorruptStoreError):
    """An impossible consume-queue unit, or set of a queue's files."""


class CorruptIndex(CorruptStoreError):
    """An index file with an impossible header, slot or entry."""


class CorruptCheckpoint(CorruptStoreError):
    """A checkpoint file of the wrong size or with impossible times."""


class CorruptConfig(CorruptStoreError):
    """A file in ``config/`` that is not the JSON a broker writes."""


class CorruptStaging(CorruptStoreError):
    """A staged file with other bytes than its writer wrote. Nothing of its batch is in the store."""


class FileChanged(_AtPath, Refused):
    """A file was truncated, replaced or removed while it was being read.

    Beside a live owner this is due to retention; read the queue's bounds again and continue from there.
    """


class FileMissing(Damaged):
    """A file between others, or the log's newest one, is missing, and so are messages of a queue.

    ``start``/``stop`` are the queue offsets that cannot be read, half-open; ``why`` says what shows that it is missing.
    ``is_cut``: the file exists, and ends before them. ``advice`` is what may be done, besides reading on after them.
    """

    def __init__(
        self,
        *,
        path: str,
        topic: str,
        queue_id: int,
        start: int,
        stop: int,
        why: str = _A_FILE_BETWEEN,
        is_cut: bool = False,
        advice: str = _RESTORE_FILE,
    ) -> None:
        super().__init__(
            f"Topic {topic!r}, queue {queue_id}: offsets [{start}, {stop}) cannot be read, since {path} is "
            f"{'cut short' if is_cut else 'missing'} although {why}. {advice}, or read from offset {stop} on."
        )
        self.path = path
        self.topic = topic
        self.queue_id = queue_id
        self.start = start
        self.stop = stop
        self.why = why
        self.is_cut = is_cut
        self.advice = advice


class HistoryGap(FileMissing):
    """A store that is read with its archive begins after the archive's end: neither has the messages between.

    ``start``/``stop`` are the queue offsets, half-open. ``archive`` and ``store`` are the two addresses.
    """

    def __init__(self, *, topic: str, queue_id: int, start: int, stop: int, archive: str, store: str) -> None:
        super().__init__(
            path=f"the log between {archive} and {store}",
            topic=topic,
            queue_id=queue_id,
            start=start,
            stop=stop,
            why="both have parts of the queue",
        )
        self.archive = archive
        self.store = store
        text = (
            f"Topic {topic!r}, queue {queue_id}: offsets [{start}, {stop}) are neither in the archive {archive}, which "
            f"ends before them, nor in {store}, which begins after them: its retention deleted files before they were "
            f"archived. Read from offset {stop} on, and archive more often than retention deletes."
        )
        self.args = (text,)


class OffsetOutOfRange(Refused):
    """Queue offsets that the queue does not hold.

    ``start``/``stop`` are the wanted range, ``min_offset``/``max_offset`` the available one; both are half-open.
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


class TailLost(Refused):
    """The store lost the end of a queue: it ends before messages that were read, or has other messages there now.

    ``position`` is the next offset to read, ``available`` the range that the queue holds now, half-open. For a stream
    of Spark, the connector has a ``TailLostError``.
    """

    def __init__(self, message: str, *, topic: str, queue_id: int, position: int, available: tuple[int, int]) -> None:
        super().__init__(message)
        self.topic = topic
        self.queue_id = queue_id
        self.position = position
        self.available = available


class NotFoundError(Refused):
    """The topic, queue or message is not in the store."""


class TopicNotFound(NotFoundError):
    """The store has no consume queue for the topic."""


class QueueNotFound(NotFoundError):
    """The topic has no such queue."""


class MessageNotFound(NotFoundError):
    """No message starts at the physical offset, or none has the id."""


class HalfMessageNotFound(NotFoundError):
    """The handle of a half message does not lead to one: ``expected`` and ``found`` say what differs."""

    def __init__(self, handle: object, *, expected: object, found: object, advice: str = "") -> None:
        text = f"No half message {handle}: expected {expected}, found {found}"
        text += "" if text.endswith("?") else "."
        super().__init__(f"{text} {advice}" if advice else text)
        self.expected = expected
        self.found = found


class HalfMessageEnded(Refused):
    """The half message has ended before: it was committed, rolled back, or given up by a check. Nothing was written.

    ``committed`` says whether its message is in the store; None where only an index could answer that.
    """

    def __init__(self, handle: object, *, committed: bool | None) -> None:
        how = {True: "it was committed", False: "it was rolled back, or given up by a check"}
        known = how[committed] if committed is not None else "how is not known without an index"
        super().__init__(f"The half message {handle} has ended: {known}. Nothing was written.")
        self.committed = committed


class ReaderClosed(Refused):
    """A read through a ``StoreReader`` that has been closed."""


class ConsumerClosed(Refused):
    """A call of a ``Consumer`` that has been closed."""


class StoreBusy(Refused):
    """The store changed during each of many looks: several batches were dispatched, or retention removed messages.

    Call again.
    """


class InvalidValue(Refused, ValueError):
    """An argument that no store could satisfy: an ill-formed message id, a negative offset, an unknown column.

    ``settings`` names the affected ones of ``MessageStoreConfig``, and ``expected`` their allowed values, for callers
    whose users know them by other names; both are empty for all other arguments.
    """

    def __init__(self, message: str, *, settings: tuple[str, ...] = (), expected: str = "") -> None:
        super().__init__(message)
        self.settings = settings
        self.expected = expected


class FilterError(InvalidValue):
    """Tags, keys or an SQL92 expression that cannot be a filter. Nothing was read.

    ``option`` is the argument (``tags``, ``keys``, ``filter``), ``text`` its text, ``position`` the index in it of the
    first character that is wrong; ``expected`` and ``found`` are what could stand there, and what does.
    """

    def __init__(self, text: str, position: int, *, expected: str, found: str, option: str = "filter") -> None:
        place = f"at character {position + 1}" if position < len(text) else "at its end"
        shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
        super().__init__(f"{option} {shown!r}, {place}: expected {expected}, found {found}.", expected=expected)
        self.option = option
        self.text = text
        self.position = position
        self.found = found


class StoreClosed(Refused):
    """A call of a ``MessageStore`` that has been closed."""


class StoreForked(StoreClosed):
    """A forked child used the store that its parent had opened. The child has none of the store's threads."""


class NestedCall(Refused):
    """A signal handler or a finalizer used the store within a call of the thread that it interrupted.

    This call might block indefinitely for a lock that the interrupted one holds. ``close`` is allowed there.
    """


class StoreIOError(_SystemFailure, OutcomeUnknown):
    """The operating system failed a write or a sync of a file of the store.

    Whether the written data is in the store is unknown until the store is opened again.
    """


class IndexIOError(StoreIOError):
    """The operating system failed a write or a sync of an index file."""


class FileCreationFailed(_SystemFailure, Refused):
    """The operating system failed to make a new file of the store (no memory). Nothing was written."""


class DiskFull(FileCreationFailed):
    """No space for a file of the store. Nothing was written; the same call works once the disk has space."""


class ReadFailed(_SystemFailure, Refused):
    """The operating system failed to read, list or open a file of the store. Nothing was written."""


class TooManyOpenFiles(_SystemFailure, Refused):
    """This process, or the machine, has as many files open as it may, so another one was not opened or made.

    The same call works once others are closed, or the limit is raised. ``limit`` is the limit of this process
    (``ulimit -n``); None when it is the machine's.
    """

    def __init__(self, *, path: str, cause: OSError, limit: int | None) -> None:
        raised = "(sysctl fs.file-max)" if limit is None else f"(ulimit -n), which is {limit}"
        owner = "machine" if limit is None else "process"
        advice = (
            f"It is the limit of open files of this {owner} {raised}: raise it, or use fewer stores and queues at once."
        )
        super().__init__("open", path=path, cause=cause, advice=advice)
        self.limit = limit


class ListenFailed(_SystemFailure, Refused):
    """The operating system failed to listen on an address, which may be in use; ``path`` is the address."""


class TopicInUse(Refused):
    """A topic with messages in the log, or with delayed messages that wait for it, was to be deleted. It was not."""


class PeerRefused(Refused):
    """The other end of a replication has another token, another protocol, or an older epoch.

    Nothing that it sent was used.
    """


class LogDiverged(PeerRefused):
    """A master's log is not the continuation of the mirror's. Nothing of it was taken.

    ``offset`` is the physical offset at which they were found to differ.
    """

    def __init__(self, message: str, *, path: str, offset: int) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset


class RemotingFailed(Refused):
    """A broker's remoting port could not be asked, or did not answer as brokers do. What it concerns is as it was.

    ``may_pass``: the broker may answer a later request, since it is down, starting or busy.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class AccessRefused(RemotingFailed):
    """A broker with access control refused a request: without keys, or since they are wrong or may not do that."""


class RemoteFailed(Refused):
    """A server of ``commitlog serve`` did not answer in time, or is of a version that does not fit this one."""


class NotServed(InvalidValue):
    """``commitlog serve`` does not serve a store of this name, or serves it read only. The server did not do the call.

    An earlier attempt of the same call may have been done by the server that ran before this one.
    """


class RemoteAccessRefused(RemoteFailed):
    """The server wants a token, another one, or one that may do more."""


class ServerBusy(RemoteFailed):
    """The server has as many calls under way as it takes. A client asks again, with pauses, until its time is over."""


class SessionLost(RemoteFailed):
    """The server does not know the client any more: it was started again, or did not hear of it for long.

    It did nothing. What it kept for the client is gone: open transactions, consumers, and answers to repeated calls.
    """


class CutRefused(Refused):
    """Opening would cut whole records off the log's end, and was asked not to: ``on_cut="refuse"``.

    ``cut_at`` is the physical offset of the cut, ``size`` the bytes and ``messages`` the whole records after it.
    ``for_shell`` is the store as arguments of a command.
    """

    def __init__(self, *, path: str, for_shell: str, cut_at: int, size: int, messages: int) -> None:
        super().__init__(
            f"Opening the store at {path} would cut {messages} whole records ({size} bytes) off its log, from "
            f"physical offset {cut_at} on; nothing was cut. To see which: commitlog repair {for_shell}. To cut them "
            'off and keep them in a directory beside the log, open with on_cut="keep".'
        )
        self.path = path
        self.cut_at = cut_at
        self.size = size
        self.messages = messages


class ArchiveNotFound(StoreOpenError):
    """No archive is at that URL: no manifest is below its prefix."""


class UnsupportedArchive(StoreOpenError):
    """An archive of a version of the format that this version of the package does not know."""


class ArchiveFailed(Refused):
    """An object store refused a request, or did not answer. What is archived is as it was. ``name`` is the object's."""

    def __init__(self, message: str, *, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class ArchiveAccessRefused(ArchiveFailed):
    """An object store wants credentials, others, or some that may do more."""


class ArchiveMismatch(Refused):
    """An archive is of another store, or of a log that has diverged from this one. Nothing of it was changed.

    Or it has other topics than were named. ``offset`` is the physical offset at which they were found to differ.
    """

    def __init__(self, message: str, *, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class ArchiveGap(Refused):
    """Retention took log files before they were archived: the physical offsets from ``start`` up to ``stop``.

    In an archive of some topics, also bytes that are not a good record.
    """

    def __init__(self, message: str, *, start: int, stop: int) -> None:
        super().__init__(message)
        self.start = start
        self.stop = stop


class ArchiveDamaged(Damaged):
    """An object of an archive is missing, or has other bytes than its manifest says. ``name`` is the object's.

    ``offset`` is the byte of it from which on ``expected`` was not what was ``found``; -1 where none was looked for.
    """

    def __init__(
        self, message: str, *, name: str, offset: int = -1, expected: object = None, found: object = None
    ) -> None:
        super().__init__(message)
        self.name = name
        self.offset = offset
        self.expected = expected
        self.found = found


class TargetFailed(_SystemFailure, Refused):
    """The operating system failed to write an export, a salvage, an archiver's work directory, or the audit log.

    The store is as it was.
    """


class StagingFailed(_SystemFailure, Refused):
    """The operating system failed to write a staged file. Nothing of its batch is in the store."""


class StagingLost(_AtPath, Refused):
    """A staged file of a batch is not where it was written. Nothing of the batch is in the store."""


class BatchConflict(Refused):
    """The application has committed another batch of that version, or a later one. Nothing was written.

    ``committed`` is the application's last version, ``version`` that of the refused commit.
    """

    def __init__(self, message: str, *, app_id: str, version: int, committed: int) -> None:
        super().__init__(message)
        self.app_id = app_id
        self.version = version
        self.committed = committed


class TransactionEnded(Refused):
    """A put into a transaction, or its commit, after it has ended or a put into it has failed. Begin another one."""


class PutRefused(Refused):
    """A put that the store does not accept: ``status`` and ``reason`` say why, ``row`` is the row of a table."""

    def __init__(self, status: PutMessageStatus, reason: str, *, row: int | None = None) -> None:
        super().__init__(f"{status.value}: {reason}" if reason else status.value)
        self.status = status
        self.reason = reason
        self.row = row


class PutNotConfirmed(OutcomeUnknown):
    """A put whose message may be in the log: ``status`` and ``reason`` say whether a sync failed or took too long.

    Or, with SLAVE_NOT_AVAILABLE and FLUSH_SLAVE_TIMEOUT, a put or commit that is in the log, and not with the slaves;
    with UNKNOWN_ERROR, a commit at a server that gave no answer.
    """

    def __init__(self, status: PutMessageStatus, reason: str) -> None:
        super().__init__(f"{status.value}: {reason}" if reason else status.value)
        self.status = status
        self.reason = reason


def put_error(status: PutMessageStatus, reason: str) -> PutRefused | PutNotConfirmed:
    """The exception for a put that ended with a status other than PUT_OK."""
    return PutRefused(status, reason) if status.is_refusal else PutNotConfirmed(status, reason)


def raised(answer: _Answer | CommitLogError) -> _Answer:
    """One answer of several, where an error stands for an answer: that is raised."""
    if isinstance(answer, CommitLogError):
        raise answer
    return answer


def _is_listed(name: str, found: object) -> bool:
    return isinstance(found, type) and issubclass(found, CommitLogError) and not name.startswith("_")


# All errors of the tree.
__all__ = [name for name, found in globals().items() if _is_listed(name, found)]
__all__ += ["put_error"]
