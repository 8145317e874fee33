"""``StoreReader``: reads messages, queues and index of a store directory, read only.

It takes no lock, starts no thread and repairs nothing, so any number of readers may run beside a live owner, in any
process. New messages are visible at the next call; messages removed by retention raise a named error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, TypeVar

import pyarrow as pa

from commitlog_store.batch.consistent_reads import ConsistentReads
from commitlog_store.batch.frames import StoredFrames
from commitlog_store.batch.log_snapshot import LogSnapshot
from commitlog_store.batch_id import CommittedBatch, is_store_application
from commitlog_store.columnar.columns import DEFAULT_COLUMNS
from commitlog_store.delayed.levels import DelayLevel
from commitlog_store.delayed.timer_listing import WaitingTimers
from commitlog_store.errors import CommitLogError, ReaderClosed
from commitlog_store.files import disk
from commitlog_store.files.file_watch import FileWatch
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.format.checkpoint import Checkpoint
from commitlog_store.format.consume_queue_unit import Units
from commitlog_store.groups.group_settings import ConsumerFilter, SubscriptionGroupConfig
from commitlog_store.groups.positions import DeadLetters, GroupPosition
from commitlog_store.half.pending import HalfPlace, pending_half_messages
from commitlog_store.half_message import PendingHalfMessage
from commitlog_store.index.many_keys import SearchedIndex
from commitlog_store.index.service import IndexFileInfo
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.past_damage import Gap
from commitlog_store.log.store_checkpoint import read_checkpoint
from commitlog_store.message import MessageExt
from commitlog_store.paths import ABORT, CHECKPOINT, INDEX
from commitlog_store.progress import Progress
from commitlog_store.queue.catalog import QueueCatalog
from commitlog_store.queue.derived_queues import Stray
from commitlog_store.queue.fence import Fence
from commitlog_store.queue.get_message import (
    DEFAULT_PULL_BYTES,
    DEFAULT_PULL_MESSAGES,
    GetMessageResult,
    PullLimits,
    Pulls,
    ReadCounts,
)
from commitlog_store.queue.log_blocks import DEFAULT_ROWS, DEFAULT_SIZE, BlockSource, LogBlocks, QueueRange
from commitlog_store.queue.lost_ends import lost_ends
from commitlog_store.queue.skipped import SkippedRange, Skips
from commitlog_store.queue.topic_config import TopicSettings, read_topic_settings
from commitlog_store.queue.views import CatalogView, QueueInfo
from commitlog_store.reading import arguments, groups
from commitlog_store.reading.arrivals import pull_or_wait, wait_for_files
from commitlog_store.reading.bounds import Bounds, QueuesOfTopic
from commitlog_store.reading.damage import OnDamage, checked_on_damage, skips_of
from commitlog_store.reading.dispatched_log import DispatchedLog
from commitlog_store.reading.key_lookup import KeyLookup
from commitlog_store.reading.listing import queue_ids_of
from commitlog_store.reading.look_ups import KeyQueries, message_at, message_by_id, stored_bytes
from commitlog_store.reading.opening import Directory, FilterAt, OpenOptions, open_log, open_reader
from commitlog_store.reading.places import Places, offsets_by_time
from commitlog_store.reading.ranges import MessageBatches, RangeReads, SideBySideBatches, batch_limits, chosen_filter
from commitlog_store.reading.settled_answers import SettledAnswers
from commitlog_store.reading.waiting_messages import WaitingMessages
from commitlog_store.storage_stats import StorageStats
from commitlog_store.timestamps import GivenTime

if TYPE_CHECKING:
    from commitlog_store.verify.assessment import Assessment
    from commitlog_store.verify.store_facts import StoreFacts

__all__ = ["Fence", "FilterAt", "MessageBatches", "OnDamage", "QueueInfo", "StoreReader", "pulls_of"]

_T = TypeVar("_T")

# The queues of a question, as (topic, queue id), or what lists them.
WantedQueues: TypeAlias = Iterable[tuple[str, int]] | Callable[[], Iterable[tuple[str, int]]]
# Topic, queue id, first offset, and the offset after the last one.
QueueOffsets: TypeAlias = tuple[str, int, int, int]


class StoreReader:
    """Reads a store that RocketMQ (or this package) wrote. Use it as a context manager; one thread at a time.

    ::

        with StoreReader.open("/data/store") as reader:
            for queue in reader.queues("orders"):  # of reader.topics()
                start = reader.offset_by_time("orders", queue.queue_id, 1_700_000_000_000)
                for batch in reader.read("orders", queue.queue_id, start, columns=["queueOffset", "tags", "body"]):
                    print(batch.num_rows, batch.column("body")[0].as_py())
            for message in reader.query("orders", "k1", limit=10):
                assert reader.message_by_id(message.message_id) == reader.message_at(message.physical_offset)
    """

    def __init__(
        self,
        paths: StorePaths,
        *,
        from_log: bool = False,
        on_damage: OnDamage = "raise",
        counts: ReadCounts | None = None,
    ) -> None:
        """Use ``open``. ``counts`` gets the messages and bytes of each batch and pull."""
        self.paths = paths
        self.path = path = paths.root
        self._counts = counts
        self._on_damage = checked_on_damage(on_damage)
        self._skipped: list[SkippedRange] = []
        self._commit_log: CommitLog
        # The log as it was when the reader was opened, with ``from_log``.
        self._snapshot: LogSnapshot | None
        self._commit_log, self._snapshot = open_log(paths, from_log=from_log)
        self._catalog: CatalogView = (
            QueueCatalog(path, self._commit_log, tolerant=on_damage != "raise")
            if self._snapshot is None
            else self._snapshot.catalog
        )
        blocks = LogBlocks(self._commit_log)
        self._blocks: BlockSource = blocks
        self._index = SearchedIndex(os.path.join(path, INDEX))
        self._keys = KeyLookup(
            self._commit_log,
            self._index,
            blocks,
            log_end=None if self._snapshot is None else self._snapshot.end,
            is_aborted=partial(disk.exists, os.path.join(path, ABORT)),
            skipped=None if on_damage == "raise" else self._skipped,
        )
        self._frames = StoredFrames(self._commit_log, self._catalog)
        self._reads = ConsistentReads(path, self._commit_log, self._frames)
        if self._snapshot is None:
            self._settled = SettledAnswers(self._reads.settled_state)
            self._dispatched = DispatchedLog(path, self._commit_log, self._catalog, self._reads)
        self._watch = FileWatch(path)
        self._closed = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        store_path_commit_log: str | os.PathLike[str] | None = None,
        from_log: bool = False,
        on_damage: OnDamage = "raise",
        token: str | None = None,
        tls_root_certificates: bytes | None = None,
        rpc_timeout_s: float = 30.0,
        filter_at: FilterAt = "reader",
        storage_options: Mapping[str, str] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | None = None,
        archive: str | None = None,
    ) -> StoreReader:
        """Open the store directory at ``path``, in constant time whatever its size.

        ``path`` may be the address of a ``commitlog serve``: ``grpc://host:8815``, or ``grpc+tls://host:8815``, with
        ``/NAME`` where it serves several stores. ``token`` is what it wants to hear, ``tls_root_certificates`` are
        those to trust (PEM; by default the system's), ``rpc_timeout_s`` is how long a question may take. With
        ``filter_at="server"``, the server leaves out messages that a read's ``filter`` or ``keys`` do not match: less
        is sent where few match, for time of the server's processor. What a read gives is the same.

        ``path`` may be the address of an archive in object storage: ``s3://BUCKET/PREFIX``, ``gs://``, ``abfs://``,
        ``hdfs://HOST:PORT/DIRECTORY``, or ``archive+file:///DIRECTORY``. Credentials come from the environment, a
        profile or the machine's role; ``storage_options`` has what the environment does not (``endpoint``, ``region``,
        ``access_key_id``, ... by obstore's names, and in HDFS by Hadoop's). Pages of the archive are kept below
        ``cache_dir``, at most ``cache_size`` bytes (10 GiB), which all processes of a host may share.

        With ``archive``, such an address, a directory or served store is read together with the archive that is made
        of it: what retention has deleted is read from there. ``ArchiveMismatch`` for an archive of another store;
        messages that neither has are a ``HistoryGap``.

        ``store_path_commit_log`` is the directory of the log, as a broker's setting of this name has it, if it is not
        ``commitlog`` in the store's directory.

        With ``from_log``, queue and index files are not used: the whole log is walked once, past damage, and the
        queues are derived from it in memory, at about 20 bytes a message. For stores with only ``commitlog/``, and with
        damaged or missing queues; what recovery and repair have kept is read so in any case. The reader then shows the
        log as it was when it was opened, and ``log_gaps`` has the parts of it that cannot be read. Meant for stores
        without a living owner: beside one, messages may show that are not flushed yet.

        With ``on_damage="skip"``, a damaged record or queue unit does not end a read: the next whole message follows,
        and ``skipped`` lists what was left out. The default raises ``CorruptRecord`` or ``CorruptConsumeQueue``. A
        missing file, and what the disk fails to read, is skipped in the same way; ``"skip-records"`` still raises
        ``FileMissing`` and ``ReadFailed``.

        ``StoreNotFound``, ``NotAStore``, ``StoreAccessDenied`` or ``UnsupportedStore`` when it cannot be read, and
        ``LogNotFound`` when its queues lead to messages and its log is not there, also later;
        ``InvalidValue`` for another ``on_damage``::

            with StoreReader.open("/data/copy", from_log=True, on_damage="skip") as reader:
                for batch in reader.read("orders", 0, reader.queue_info("orders", 0).min_offset):
                    ...
                for gap in reader.skipped:
                    print(gap)
        """
        options = OpenOptions(
            store_path_commit_log=store_path_commit_log,
            from_log=from_log,
            on_damage=on_damage,
            token=token,
            tls_root_certificates=tls_root_certificates,
            rpc_timeout_s=rpc_timeout_s,
            filter_at=filter_at,
            storage_options=storage_options,
            cache_dir=cache_dir,
            cache_size=cache_size,
        )

        def of_directory(found: Directory) -> StoreReader:
            return cls(found.paths, from_log=found.from_log, on_damage=on_damage)

        return open_reader(path, archive, options, of_directory)

    def __repr__(self) -> str:
        return f"<StoreReader of {self.path!r}, {'closed' if self._closed else 'open'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        # Open files are not pickled; the store is opened again in the other process.
        return (_open_again, (self.path, self.paths.elsewhere, self._snapshot is not None, self._on_damage))

    def close(self) -> None:
        """Close every file; all other methods raise ``ReaderClosed`` from then on. A second call does nothing.

        Record batches that were handed out stay valid: they own their bytes.
        """
        self._closed = True
        self._commit_log.close()
        self._index.close()
        self._reads.close()
        self._watch.close()

    # Of a reader that does not know when its store is settled: none.
    _settled = SettledAnswers(lambda: None)
    _dispatched: DispatchedLog | None = None
    # ``interrupt_with``
    _before_call: Callable[[], None] | None = None

    def interrupt_with(self, check: Callable[[], None]) -> None:
        """Call ``check`` as each call of this reader begins. What it raises ends a question that makes many of them."""
        self._before_call = check

    # Stateless, over the parts that a reader has: kept, they would keep it from being freed at once.

    @property
    def _bounds(self) -> Bounds:
        return Bounds(self._commit_log, self._catalog, self._reads, self._snapshot, self._settled)

    @property
    def _ranges(self) -> RangeReads:
        return RangeReads(
            *(self, self._catalog, self._blocks),
            skips=self._skips,
            refuse_closed=self._refuse_closed,
            counts=self._counts,
            settled=self._settled,
        )

    @property
    def _places(self) -> Places:
        tolerant = self._on_damage != "raise"
        return Places(self, self._commit_log, self._catalog, self._settled, self._snapshot, tolerant=tolerant)

    @property
    def _key_queries(self) -> KeyQueries:
        return KeyQueries(self._keys, self._reads, self._snapshot, self._refuse_closed)

    @property
    def _waiting(self) -> WaitingMessages:
        return WaitingMessages(self.config_home, self._commit_log, self._catalog, self._frames)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ReaderClosed(f"The reader of {self.path} is closed; open the store again to read on.")
        if self._before_call is not None:
            self._before_call()

    @property
    def for_shell(self) -> str:
        """The store as arguments of a command, quoted."""
        return self.paths.for_shell

    @property
    def skipped(self) -> list[SkippedRange]:
        """What reads have skipped so far because of damage, in the order in which they met it, each range once.

        Each has topic, queue id, queue offsets, physical offsets and the reason. The same goes to the log, at WARNING.
        """
        return list(self._skipped)

    def stats(self) -> StorageStats:
        """What was asked of object storage so far, also once the reader is closed;
        all 0 without an archive::

            with StoreReader.open("s3://bucket/orders", cache_dir="/var/cache/orders") as reader:
                found = reader.query("orders", "k1", limit=10)
                print(reader.stats().requests, reader.stats().bytes_fetched)
        """
        return StorageStats()

    @property
    def log_gaps(self) -> list[Gap]:
        """With ``from_log``, the stretches of the log that hold no whole record, in physical offsets; else empty.

        Unwritten space at the log's ends (a kept piece begins with it) and blank fillers are not among them.
        """
        return [] if self._snapshot is None else list(self._snapshot.gaps)

    @property
    def strays(self) -> list[Stray]:
        """With ``from_log``, whole records that are in no queue, as their queue offset or topic is damaged; else empty.

        ``message_at`` reads them.
        """
        return [] if self._snapshot is None else list(self._snapshot.strays)

    def lost_ends(self) -> list[str]:
        """What is missing at the ends of log and queues, by the store's own records: a sentence each; often empty.

        A queue that has lost its last units reads like a shorter one, without an error. In a store that this package
        closed, the mark in its checkpoint says where log and queues ended; in one that it did not close, up to where
        the log was flushed. After a broker, only ``assess_store`` with ``deep=True`` can tell. It takes some ten
        microseconds for each queue of the store; within a second after ``settled_queue_infos`` of all queues, it may
        rest on what that call saw of them. ``ReadFailed``, ``StoreAccessDenied``::

            with StoreReader.open("/data/copy") as reader:
                rows = sum(batch.num_rows for batch in reader.scan("orders"))
                for problem in reader.lost_ends():
                    print(rows, "messages, and there were more:", problem)
        """
        self._refuse_closed()
        end = None if self._snapshot is None else self._snapshot.end_with_gaps
        return lost_ends(
            self.paths, self._commit_log, log_end=end, known=self._catalog.take_compared(self.settled_state)
        )

    def facts(self, *, assessed: bool = True) -> StoreFacts:
        """What the store's files say beside its queues; with its quick assessment (``assess_store``) if ``assessed``.

        ``ReadFailed``, ``StoreAccessDenied``.
        """
        self._refuse_closed()
        facts_of: Callable[..., StoreFacts] = import_module("commitlog_store.verify.store_facts").facts_of
        return facts_of(self.paths, assessed=assessed)

    def assess(self, *, deep: bool = False, progress: Progress | None = None) -> Assessment:
        """``assess_store`` of this store; of a served one by its server.

        A server runs one verification (``deep``) of a store at a time (``ServerBusy``).
        """
        self._refuse_closed()
        assessed: Callable[..., Assessment] = import_module("commitlog_store.verify.store_facts").assessment_of_paths
        return assessed(self.paths, deep=deep, progress=progress)

    def topics(self) -> list[str]:
        """All topics that have a consume queue, sorted, system topics included."""
        self._refuse_closed()
        return self._catalog.topics()

    def queue_ids(self, topic: str) -> list[int]:
        """The topic's queue ids, sorted. ``TopicNotFound``, ``UnsupportedStore`` for a topic kept another way."""
        self._refuse_closed()
        return self._catalog.queue_ids(arguments.checked_topic(topic))

    def queue_ids_of(self, topics: Sequence[str]) -> list[list[int] | CommitLogError]:
        """``queue_ids`` of each topic, or the error that it raises: one question to a server for all of them."""
        self._refuse_closed()
        return queue_ids_of(self._catalog, self.queue_ids, topics)

    def queues(self, topic: str) -> list[QueueInfo]:
        """The bounds of all queues of a topic, by queue id. ``TopicNotFound``."""
        return self.queue_infos(QueuesOfTopic(topic, self.queue_ids))

    def queue_info(self, topic: str, queue_id: int) -> QueueInfo:
        """The bounds of one queue as they are now. ``TopicNotFound``, ``QueueNotFound``."""
        return self.queue_infos([(topic, queue_id)])[0]

    def queue_infos(self, queues: WantedQueues) -> list[QueueInfo]:
        """The bounds of many queues, given as ``(topic, queue_id)``, in the order given. Raises as ``queue_info``.

        They are those of one moment: a batch (``MessageStore.transaction``) is within the bounds of all of them or of
        none, and so is what retention deletes. To include queues that a batch creates, give a function that lists the
        queues.

        A reader that is asked for 16 queues and more keeps their bounds while the store is settled (``settled_state``):
        it notices a change made by hand in a queue's files when it reads them, and not at its next call.

        ``StoreBusy`` if retention deleted files, or several batches were dispatched, during each of many looks.
        """
        self._refuse_closed()
        return self._bounds.of_queues(queues)

    def settled_queue_infos(self, queues: WantedQueues) -> tuple[list[QueueInfo], object | None]:
        """``queue_infos``, and ``settled_state`` before it; by address only of queues that a function lists.

        While this state is given again, no queue has changed in between, but by hand (``queue_infos``).
        """
        state = self.settled_state()
        return self._catalog.ask_in_state(self.settled_state, state, partial(self.queue_infos, queues)), state

    def settled_state(self) -> object | None:
        """A state in which no queue changes, to be compared; no queue is looked at. None if it is not known.

        Ask for it before a question about queues. While it stays equal, the answer stays. None while the owner
        dispatches or recovers, beside a broker, in a copy of a store, and with ``from_log``.
        """
        self._refuse_closed()
        return self._bounds.settled_state()

    def dispatched_state(self, known: Fence, most_records: int) -> object | None:
        """A state in which a broker's queues have all that its log holds, to be compared; None if it is not known.

        Ask for it before a question about queues: while it stays equal, nothing came, as far as the log shows. Ask
        again now and then all the same: changes by hand are not seen, and on a network file system queues may show
        later. None after more records than ``most_records`` since ``known`` or the last call, and a few calls more.
        """
        self._refuse_closed()
        return None if self._dispatched is None else self._dispatched.state(known, most_records)

    def consistently(self, ask: Callable[[], _T], *, one_moment: bool = True) -> _T:
        """The answer to ``ask``, a function that calls this reader: asked again while retention deletes files.

        It is asked again when the log's first file went during it, and when it raised an error that the removal of a
        file explains, until the same error comes twice in a row. So several calls of the reader give what the store
        held in one moment; batches are another matter: only the bounds of one ``queue_infos`` show them wholly or not
        at all. Without ``one_moment`` an answer stands even if files went during it, which is enough for a long
        question whose parts all rest on the bounds that were asked for first. ``StoreBusy`` after many times::

            def look() -> dict[int, int]:
                queues = reader.queues("orders")
                return {one.queue_id: reader.offset_by_time("orders", one.queue_id, 0, bounds=one) for one in queues}

            starts = reader.consistently(look)
        """
        self._refuse_closed()
        return self._bounds.consistently(ask, one_moment=one_moment)

    def groups(self, group: str | None = None, *, now_ms: int | None = None) -> list[GroupPosition]:
        """The positions of all consumer groups, or of one, beside the queues' bounds: a row for each queue.

        A group has a row for every queue of each topic that it has a position in. ``now_ms`` is the time up to which
        messages wait, by default now. Also beside a live broker, which writes positions every 5 seconds.
        ``CorruptConfig`` if neither ``config/consumerOffset.json`` nor its ``.bak`` can be used; ``ReadFailed``,
        ``StoreBusy``.
        """
        return groups.group_positions(self, group, now_ms)

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        """The positions of a consumer group: ``{(topic, queue id): next queue offset}``; empty for an unknown group.

        ``CorruptConfig``, ``ReadFailed``.
        """
        return groups.group_offsets(self, group)

    def dead_letters(self, group: str | None = None) -> list[DeadLetters]:
        """The dead letters of all consumer groups, or of one: how many there are, and how many were not redriven.

        ``CorruptConfig`` if neither ``config/consumerOffset.json`` nor its ``.bak`` can be used; ``ReadFailed``,
        ``StoreBusy``.
        """
        return groups.dead_letters(self, group)

    @property
    def config_home(self) -> str:
        """The directory whose ``config/`` has the settings and positions."""
        self._refuse_closed()
        return self.path

    def topic_settings(self) -> dict[str, TopicSettings]:
        """What ``config/topics.json`` says of each topic that it lists: over how many queues it is spread, its perm.

        ``CorruptConfig`` if neither the file nor its ``.bak`` can be used; ``ReadFailed``.
        """
        return read_topic_settings(self.config_home)

    def group_settings(self, group: str | None = None) -> list[SubscriptionGroupConfig]:
        """The settings of all consumer groups that have some, or of one, from ``config/subscriptionGroup.json``.

        ``CorruptConfig`` if neither the file nor its ``.bak`` can be used; ``ReadFailed``.
        """
        return groups.group_settings(self.config_home, group)

    def group_filters(self, group: str | None = None) -> list[ConsumerFilter]:
        """The SQL92 filters of all consumer groups, or of one, which brokers keep in ``config/consumerFilter.json``.

        ``CorruptConfig`` if neither the file nor its ``.bak`` can be used; ``ReadFailed``.
        """
        return groups.group_filters(self.config_home, group)

    def log_start(self) -> int:
        """The log's first byte, a physical offset, which moves when retention deletes files; -1 without files."""
        self._refuse_closed()
        return self._bounds.log_start()

    def physical_bounds(self) -> tuple[int, int]:
        """First byte of the log, and the end of what was written to it.

        Files are allocated ahead, so the end is searched: from the last message of any queue on, record by record. This
        reads the end of every queue. With ``from_log``, the bounds are the first and the last whole record's.
        """
        self._refuse_closed()
        return self._bounds.of_log()

    @property
    def aborted(self) -> bool:
        """Whether the ``abort`` file exists: an owner runs, or one stopped without closing the store."""
        self._refuse_closed()
        return disk.exists(os.path.join(self.path, ABORT))

    def checkpoint(self) -> Checkpoint | None:
        """The times up to which the owner flushed; None without a checkpoint file. ``CorruptCheckpoint``."""
        self._refuse_closed()
        return read_checkpoint(os.path.join(self.path, CHECKPOINT))

    def index_files(self) -> list[IndexFileInfo]:
        """The index files, oldest first, with the times and offsets they cover. ``CorruptIndex``."""
        return self.consistently(self._index.files)

    def read(
        self,
        topic: str,
        queue_id: int,
        start: int,
        stop: int | None = None,
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        verify_crc: bool = True,
        max_batch_rows: int = DEFAULT_ROWS,
        max_batch_bytes: int = DEFAULT_SIZE,
        on_damage: OnDamage | None = None,
        tags: str | None = None,
        filter: str | MessageFilter | None = None,  # noqa: A002  # the name that it has everywhere
        keys: str | Sequence[str] | None = None,
    ) -> MessageBatches:
        """The messages at the queue offsets ``[start, stop)`` in order, in batches of the named columns.

        ``stop`` defaults to the queue's end as it is now. Body bytes a batch stay below ``max_batch_bytes`` unless
        one message alone is larger. Fillers (units without a message) give no row. ``on_damage`` is that of ``open``
        unless given, but the queue's ends are found as ``open`` said.

        With the column ``body``, every body is compared with its CRC; ``verify_crc=False`` gives bodies as they are,
        damaged ones among them, unless they cannot be unpacked. Without that column no body is read, and none is
        checked.

        ``tags``, ``filter`` and ``keys`` select messages, as ``MessageFilter.parse`` says; a ``MessageFilter`` is taken
        as ``filter``. The queue's units and the properties decide, so that bodies of other messages are neither read
        nor checked. No batch is empty: ``position`` of the returned batches says how far the read has come::

            batches = reader.read("orders", 0, start, tags="paid || sent", filter="amount > 100")
            for batch in batches:
                ...
            start = batches.position  # also after messages that do not match

        Raises ``OffsetOutOfRange`` for offsets that are not there, also when retention removes them during the read;
        ``InvalidValue`` for a ``start`` after ``stop``; ``FilterError``; ``CorruptRecord`` (also for a body
        that does not match its CRC), ``CorruptConsumeQueue``, ``FileChanged``, ``FileMissing``.
        """
        return self._ranges.read(
            (topic, queue_id, start, stop),
            columns,
            chosen_filter(tags, filter, keys),
            batch_limits(max_batch_rows, max_batch_bytes),
            verify_crc=verify_crc,
            on_damage=on_damage,
        )

    def scan(
        self,
        topics: str | Sequence[str],
        *,
        since: GivenTime | None = None,
        until: GivenTime | None = None,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        tags: str | None = None,
        filter: str | MessageFilter | None = None,  # noqa: A002  # the name that it has everywhere
        keys: str | Sequence[str] | None = None,
        verify_crc: bool = True,
    ) -> pa.RecordBatchReader:
        """The messages of all queues of topics as one stream of Arrow batches, for polars, DuckDB, pandas, pyarrow.

        ``topics`` are names or shell patterns (``"orders-*"``). Patterns match no system topics, such as
        ``SCHEDULE_TOPIC_XXXX`` and the store's own ``rmq_sys_...``, and skip, with a warning, topics that cannot be
        read (compacted ones and batch consume queues); a name takes any topic. ``since`` and ``until`` are store times:
        datetimes with a time zone, milliseconds, or times before now as ``"2h"`` or a timedelta; texts in ISO 8601 are
        taken too, in UTC without a zone. ``until`` itself is not included. ``columns``, ``tags``, ``filter``,
        ``keys`` and ``verify_crc`` are those of ``read``. The rows come queue after queue, up to their ends as they are
        now; within a queue the order is that of its messages. Queues with few messages are read together, as many as
        keep the records within 16 MiB, and share batches.

        The stream reads through this reader, and only while that is open (``ReaderClosed``). It opens nothing of its
        own: a stream that is dropped before its end leaves nothing behind::

            batches = reader.scan("orders", since=1_700_000_000_000, columns=["keys", "body"])
            table = batches.read_all()  # or polars.from_arrow(batches), duckdb.from_arrow(batches), ...

        ``TopicNotFound`` for a name or pattern without a topic, ``InvalidValue`` for wrong times and columns,
        ``FilterError``; the stream raises the errors of ``read``.
        """
        wanted = chosen_filter(tags, filter, keys)
        return self._ranges.scan(topics, since, until, columns, wanted, verify_crc=verify_crc)

    def read_together(
        self,
        ranges: Iterable[QueueOffsets],
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        verify_crc: bool = True,
        filter: MessageFilter | None = None,  # noqa: A002  # the name that it has everywhere
    ) -> list[pa.RecordBatch] | None:
        """All messages of ranges ``(topic, queue_id, start, stop)``: a quick way to read many short ones.

        They are decoded together, in a fraction of the time of a ``read`` for each. All messages are
        in memory at once: topic by topic, and range by range in the order given. ``filter`` and ``verify_crc`` are
        those of ``read``.

        None where a unit or record is damaged, a file is missing, or bodies unpack to much. Then ``read`` each of the
        ranges, which gives what can be read and raises for the rest. ``OffsetOutOfRange``, ``QueueNotFound`` and
        ``InvalidValue`` are raised as by ``read``::

            with StoreReader.open("/data/store") as reader:
                newest = [
                    ("orders", queue.queue_id, max(queue.min_offset, queue.max_offset - 10), queue.max_offset)
                    for queue in reader.queues("orders")
                ]
                for batch in reader.read_together(newest, columns=["queueId", "queueOffset", "body"]) or []:
                    print(batch.num_rows)
        """
        return self._ranges.read_together(ranges, columns, filter, verify_crc=verify_crc)

    def read_in_turn(
        self,
        ranges: Iterable[QueueOffsets],
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        verify_crc: bool = True,
        filter: MessageFilter | None = None,  # noqa: A002  # the name that it has everywhere
    ) -> Iterator[tuple[list[QueueOffsets], list[pa.RecordBatch] | None]]:
        """The messages of ranges ``(topic, queue_id, start, stop)``, range after range: a quick way to read very many.

        Gives some neighbouring ranges at a time, with their batches: as many as keep the records within 16 MiB. Or one
        range with None, which is to be ``read`` by itself: it is long, or damaged, or its messages have gone.
        ``filter`` and ``verify_crc`` are those of ``read``. ``OffsetOutOfRange``, ``QueueNotFound`` and
        ``InvalidValue`` are raised as by ``read``, before the first batch::

            with StoreReader.open("/data/store") as reader:
                ranges = [("orders", one.queue_id, one.min_offset, one.max_offset) for one in reader.queues("orders")]
                for some, batches in reader.read_in_turn(ranges):
                    for batch in batches if batches is not None else reader.read(*some[0]):
                        print(batch.num_rows)
        """
        return self._ranges.read_in_turn(ranges, columns, filter, verify_crc=verify_crc)

    def read_side_by_side(
        self,
        ranges: Sequence[QueueOffsets],
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        verify_crc: bool = True,
        filter: MessageFilter | None = None,  # noqa: A002  # the name that it has everywhere
    ) -> SideBySideBatches:
        """The messages of ranges ``(topic, queue_id, start, stop)`` of one topic's queues, in the order of the log.

        A quick way to read long ranges that cover the same stretch of the log, which is read once; a ``read`` of each
        would do so for each queue. Within a queue the order is that of its messages. ``filter`` and ``verify_crc`` are
        those of ``read``.

        The batches end early where a unit or record is damaged, or a file is missing. ``positions`` has the offsets
        from which on to ``read`` each of the ranges, which gives what can be read and raises for the rest.
        ``OffsetOutOfRange``, ``QueueNotFound`` and ``InvalidValue`` (also for queues of several topics) are raised as
        by ``read``::

            with StoreReader.open("/data/store") as reader:
                ranges = [
                    ("orders", queue.queue_id, queue.min_offset, queue.max_offset) for queue in reader.queues("orders")
                ]
                batches = reader.read_side_by_side(ranges)
                rows = sum(batch.num_rows for batch in batches)
                whole = all(at == stop for at, (*_, stop) in zip(batches.positions, ranges))
        """
        return self._ranges.read_side_by_side(ranges, columns, filter, verify_crc=verify_crc)

    def blocks_of(self, ranges: Sequence[QueueOffsets]) -> tuple[BlockSource, list[QueueRange]]:
        """Where blocks of records come from, and the checked ranges: for a server, which sends them undecoded."""
        self._refuse_closed()
        return self._blocks, self._ranges.checked(ranges)

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int = DEFAULT_PULL_MESSAGES,
        *,
        max_bytes: int = DEFAULT_PULL_BYTES,
        filter: str | MessageFilter | None = None,  # noqa: A002  # the name that it has everywhere
        tags: str | None = None,
        wait_s: float = 0.0,
    ) -> GetMessageResult:
        """RocketMQ's ``getMessage``: up to ``max_messages`` messages from a queue offset on, and where to continue.

        No position is an error. The status is the first of these that applies, with ``next_begin_offset``:

        - NO_MATCHED_LOGIC_QUEUE: no such queue (0)
        - NO_MESSAGE_IN_QUEUE: the queue never had a message (0)
        - OFFSET_TOO_SMALL: before the first message (the first message)
        - OFFSET_OVERFLOW_ONE: at the queue's end, where the next message will be (the same offset)
        - OFFSET_OVERFLOW_BADLY: after the end (the end)
        - OFFSET_FOUND_NULL: the queue's file is gone (the first offset of the next file)
        - NO_MATCHED_MESSAGE, MESSAGE_WAS_REMOVING: no message looked at matches, or retention has just removed them
        - FOUND

        The last three continue after the last message that was looked at: a call looks at the units of one queue file,
        800 or ``max_messages`` of them. It gives at most ``max_bytes`` of records, but at least one message.
        ``filter`` and ``tags`` select as in ``read``. ``InvalidValue`` for a limit below 1; damage as in ``read``.

        With ``wait_s``, it is held so many seconds at most until a message matches: at the queue's end it waits, as
        ``wait_for_any`` does, and it continues after messages that do not match. When the time is over, these are
        NO_MATCHED_MESSAGE. A queue that does not exist yet is waited for from offset 0 on.
        """
        wanted = chosen_filter(tags, filter, None)
        limits = PullLimits(messages=max_messages, size=max_bytes)
        pull = partial(self._pull, limits=limits, wanted=wanted)
        return pull_or_wait(self, pull, (topic, queue_id, offset), wait_s)

    def _pull(
        self, topic: str, queue_id: int, position: int, limits: PullLimits, wanted: MessageFilter
    ) -> GetMessageResult:
        """``get_message`` without a wait, of checked arguments."""
        return pulls_of(self).messages(topic, queue_id, position, limits, wanted)

    def wait_for_any(self, positions: Mapping[tuple[str, int], int], timeout_s: float | None = None) -> bool:
        """Wait until one of the queues ``{(topic, queue id): offset}`` has a message at its offset or after it.

        False after ``timeout_s`` seconds (with ``from_log`` nothing ever comes). On Linux the kernel reports what the
        owner writes, and the wait ends within milliseconds; beside a RocketMQ broker, which writes through mappings, on
        network file systems and other systems it ends within 0.1 s. Queues that do not exist yet may be waited for::

            position = reader.queue_info("orders", 0).max_offset
            while reader.wait_for_any({("orders", 0): position}):
                result = reader.get_message("orders", 0, position)
                position = result.next_begin_offset
        """
        self._refuse_closed()
        return wait_for_files(self, self._watch, positions, timeout_s)

    def _skips(self, on_damage: OnDamage | None = None) -> Skips | None:
        """The report of a read that skips; None for one that raises."""
        return skips_of(on_damage or self._on_damage, self._skipped)

    def units(self, topic: str, queue_id: int, start: int, stop: int, *, chunk: int = 1_000_000) -> Iterator[Units]:
        """The queue's units ``[start, stop)``: numpy arrays of ``physical_offset``, ``size``, ``tags_code``.

        Fillers are among them, with the size ``0x7FFFFFFF``. Raises as ``read`` does; unless ``on_damage`` is
        ``"raise"``, an impossible unit is given as a filler.
        """
        strict = self._on_damage == "raise"
        return self._ranges.units(topic, queue_id, start, stop, chunk, strict=strict)

    def units_of(self, ranges: Sequence[QueueOffsets], *, chunk: int = 1_000_000) -> Iterator[tuple[int, Units]]:
        """The units of ranges ``(topic, queue_id, start, stop)``, each array with the number of its range.

        The ranges in their order, each as ``units`` gives it. A server is asked for many short ranges at once. The
        errors are those of ``units``: ``FileMissing`` names the queue, and those before it have been given.
        """
        return self._ranges.units_of(ranges, chunk, strict=self._on_damage == "raise")

    def first_offset_from(self, topic: str, queue_id: int, physical_offset: int, start: int, stop: int) -> int:
        """The first queue offset in ``[start, stop)`` of a message at or after a physical offset, or ``stop``.

        Messages that retention has removed were before it.
        """
        return self.first_offsets_from([(topic, queue_id, physical_offset, start, stop)])[0]

    def first_offsets_from(self, wanted: Sequence[tuple[str, int, int, int, int]]) -> list[int]:
        """``first_offset_from`` for each of ``(topic, queue_id, physical_offset, start, stop)``."""
        return self._places.first_offsets_from(wanted)

    def fence(self, topic: str, queue_id: int, offset: int) -> Fence | None:
        """The identity of the message at a queue offset; None if it does not exist (any more).

        Unless ``on_damage`` is ``"raise"``, also None for a damaged record.
        """
        return self.fences([(topic, queue_id, offset)])[0]

    def fences(self, positions: Sequence[tuple[str, int, int]]) -> list[Fence | None]:
        """``fence`` for each of ``(topic, queue_id, offset)``."""
        return self._places.fences(positions)

    def store_timestamp(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message at a queue offset was stored, in milliseconds since the epoch. ``OffsetOutOfRange``."""
        return self._places.store_timestamp(topic, queue_id, offset)

    def store_timestamps(self, positions: Sequence[tuple[str, int, int]]) -> list[int | CommitLogError]:
        """``store_timestamp`` for each of ``(topic, queue_id, offset)``, or the error that it raises."""
        self._refuse_closed()
        return self._places.store_timestamps(positions)

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: GivenTime,
        *,
        boundary: Literal["lower", "upper"] = "lower",
        bounds: QueueInfo | None = None,
        on_damage: OnDamage | None = None,
    ) -> int:
        """A queue offset by store time (milliseconds, or as ``scan`` takes it), found by bisection.

        ``lower``: the first message stored at or after the time, the queue's end when all are older. ``upper``: the
        last message stored at or before it, the queue's first offset when all are younger. These are the answers of
        RocketMQ's ``getOffsetInQueueByTime``. ``InvalidValue`` for a time in seconds.

        Messages that cannot be read are searched around. Where the answer may be one of them, ``FileMissing``,
        ``CorruptRecord`` or ``CorruptConsumeQueue`` names the file; with ``on_damage="skip"`` (by default that of
        ``open``) they are reported in ``skipped``, and the next message is the answer. Lost ones are skipped with
        ``from_log``, too.

        With ``bounds``, the answer of ``queue_info`` or ``queue_infos``, the queue is taken as it was then;
        ``OffsetOutOfRange`` or ``MessageNotFound`` when retention has removed its head since (``consistently``).
        """
        if bounds is not None:
            self._refuse_closed()  # without them, ``consistently`` does
        skips, place = partial(self._skips, on_damage), (topic, queue_id)
        return self._places.offset_by_time(place, timestamp_ms, boundary, bounds, self._time_bounds, skips)

    def _time_bounds(self, info: QueueInfo, wanted_ms: int, *, after: bool) -> tuple[int, int]:
        """The offsets between which the first message of a queue stored at or after a time is; the end is among them.

        With ``after``, the first message stored after it.
        """
        del wanted_ms, after
        return info.min_offset, info.max_offset

    def offsets_by_time(
        self,
        wanted: Sequence[tuple[QueueInfo, GivenTime]],
        *,
        boundary: Literal["lower", "upper"] = "lower",
        on_damage: OnDamage | None = None,
    ) -> list[int | CommitLogError]:
        """``offset_by_time`` for each queue, with its bounds, and a time; or the error that it raises."""
        self._refuse_closed()
        return offsets_by_time(partial(self.offset_by_time, boundary=boundary, on_damage=on_damage), wanted)

    def message_at(self, physical_offset: int, *, verify_crc: bool = True) -> MessageExt:
        """The message whose record starts at that byte of the log. ``MessageNotFound``, ``CorruptRecord``.

        With ``verify_crc=False``, a body that does not match its CRC is given as it is.
        """
        self._refuse_closed()
        return message_at(self._commit_log, physical_offset, verify_crc=verify_crc)

    def message_by_id(self, message_id_text: str, *, verify_crc: bool = True) -> MessageExt:
        """The message of an offset message id (32 hex characters, 56 with an IPv6 host).

        ``InvalidValue`` for anything else; ``MessageNotFound`` also when the message there was stored by another
        host than the id names; ``CorruptRecord``. ``verify_crc`` is that of ``message_at``.
        """
        self._refuse_closed()
        return message_by_id(self._commit_log, message_id_text, verify_crc=verify_crc)

    def query(
        self,
        topic: str,
        key: str,
        *,
        begin: GivenTime = 0,
        end: GivenTime = MAX_LONG,
        limit: int = 64,
        verify_crc: bool = True,
    ) -> list[MessageExt]:
        """The newest ``limit`` messages of a topic with that key or unique key, in the order of the log.

        ``begin`` and ``end`` are store times as in ``scan``, both inclusive. The index holds hashes, so each
        message's own topic and keys are compared. A message is in its queue before it is in the index: beside the
        store's owner, one of the newest may not be found yet. With ``from_log`` the whole log is searched instead.
        Unless ``on_damage`` is ``"raise"``, a damaged record is skipped, with a warning. ``verify_crc`` is that of
        ``message_at``. ``CorruptIndex``, ``CorruptRecord``, ``StoreBusy``.
        """
        self._refuse_closed()
        return self._key_queries.query(topic, key, begin, end, limit, verify_crc=verify_crc)

    def query_keys(
        self,
        topic: str,
        keys: Sequence[str | None] | pa.Array | pa.ChunkedArray,
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        max_batch_rows: int = DEFAULT_ROWS,
        max_batch_bytes: int = DEFAULT_SIZE,
        verify_crc: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """The newest message of each key, in the order of the keys: one row for each, NULL in all columns without a
        message. Many times as fast as a ``query`` for each, and finds the same: key or unique key, compared as text.

        A NULL key, and one that no message can have (empty, or with a space), gives a row of NULLs. ``queueOffset`` is
        NULL in these rows only. The limits of a batch are those of ``read``. Every body is compared with its CRC, of
        whatever columns; ``verify_crc=False`` takes bodies as they are. With ``from_log`` the log is walked once for
        all keys. Errors and ``on_damage`` are those of ``query``; ``InvalidValue`` for keys that are not texts::

            with StoreReader.open("/data/store") as reader:
                for batch in reader.query_keys("orders", ["k1", "k2"], columns=["queueOffset", "body"]):
                    print(batch.to_pylist())
        """
        self._refuse_closed()
        return self._key_queries.query_keys(
            topic, keys, columns, max_batch_rows, max_batch_bytes, verify_crc=verify_crc
        )

    def batches(self) -> list[CommittedBatch]:
        """The last batch of every application, by application id. ``CorruptConfig`` for a damaged ledger."""
        found = self.consistently(self._waiting.ledger).batches()
        return [batch for batch in found if not is_store_application(batch.batch.app_id)]

    def delay_levels(self) -> list[DelayLevel]:
        """The delay levels that messages waited at so far: how many wait, the next delivery, and the position.

        Level 0 are timer messages, which have any time of delivery. Positions come from the ledger and from
        delayOffset.json, which a live broker writes every 10 seconds.
        ``CorruptConfig`` if either is damaged, and the errors of ``queue_info``.
        """
        return self.consistently(self._waiting.delay_levels)

    def waiting_timers(self) -> pa.Table:
        """The timer messages that wait, in the order of puts: ``deliverAt``, and ``physicalOffset`` in the log.

        In a store that a broker wrote last, those that it had not delivered as of its checkpoint. Errors as
        ``delay_levels``.
        """
        return self.consistently(self._waiting.timers)

    def pending_half_messages(self) -> list[PendingHalfMessage]:
        """The half messages that are neither committed nor rolled back, in the order in which they were put.

        A broker notes every few seconds how far all of them have ended; what an op message says to have ended is left
        out in any case. With ``on_damage="skip"``, what cannot be read is left out and reported (``skipped``); half
        messages that ended by a damaged op message then count as pending. ``CorruptConfig`` for a damaged
        ``consumerOffset.json``, ``CorruptRecord``, ``CorruptConsumeQueue``::

            with StoreReader.open("/data/store") as reader:
                for pending in reader.pending_half_messages():
                    print(pending.handle, pending.message.topic, pending.message.keys, pending.check_times)
        """
        return self.consistently(lambda: pending_half_messages(self, self._commit_log, self._catalog, self._skips()))


def pulls_of(reader: StoreReader) -> Pulls:
    """Pulls as ``get_message`` makes them, also of rows: for consumers, which read on where a pull has ended."""
    return Pulls(reader, reader._commit_log, reader._catalog, reader._skips, reader._counts)


def levels_and_timers(reader: StoreReader) -> tuple[list[DelayLevel], WaitingTimers]:
    """``delay_levels`` of a directory's store, and the messages of level 0 at the same moment: for metrics."""
    return reader.consistently(reader._waiting.levels_and_timers)


def query_within(
    reader: StoreReader, topic: str, key: str, *, begin: int, end: int, limit: int, most_bytes: int, verify_crc: bool
) -> list[MessageExt]:
    """``StoreReader.query``, which reads no older message once the bodies have more than ``most_bytes`` together."""
    reader._refuse_closed()
    return reader._key_queries.query(topic, key, begin, end, limit, verify_crc=verify_crc, most_bytes=most_bytes)


def pending_half_part(
    reader: StoreReader, is_wanted: Callable[[HalfPlace], bool], part: Callable[[int], slice]
) -> list[PendingHalfMessage]:
    """The pending half messages that are wanted, or a part of them: only its bodies are read.

    ``part`` gets the number of wanted ones, and returns the slice to read. The errors of ``pending_half_messages``.
    """
    store = reader._commit_log, reader._catalog
    return reader.consistently(
        lambda: pending_half_messages(reader, *store, reader._skips(), is_wanted=is_wanted, part=part)
    )


def stored_record(reader: StoreReader, physical_offset: int, size: int) -> bytes:
    """The bytes of a record in the log, for clients that decode messages themselves. ``MessageNotFound``."""
    reader._refuse_closed()
    return stored_bytes(reader._commit_log, physical_offset, size)


def _open_again(path: str, log: str | None, from_log: bool, on_damage: OnDamage) -> StoreReader:
    return StoreReader.open(path, store_path_commit_log=log, from_log=from_log, on_damage=on_damage)
