"""``MessageStore``: owns a store directory, and puts messages into it; the public interface for writing.

One owner at a time, in one process; any number of readers may run beside it (``StoreReader``). docs/durability.md has
the promise of a put in each flush mode, and the states after a crash.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, NoReturn, get_args

from commitlog_store.batch_id import (
    BatchId,
    CommittedBatch,
    StagedFile,
    check_commit,
    checked_transaction,
    refuse_store_application,
)
from commitlog_store.columnar.message_rows import MessageRows
from commitlog_store.config import MessageStoreConfig
from commitlog_store.consumers.consumer import ConsumeFrom, Consumer, open_consumer
from commitlog_store.consumers.group import ConsumerGroup, refuse_open_members
from commitlog_store.consumers.pull import PullService
from commitlog_store.consumers.redrive import RedriveTo, redrive
from commitlog_store.engine.put_message import PutMessageResult
from commitlog_store.engine.put_table import PutTableResult
from commitlog_store.engine.running_state import RunningFlags
from commitlog_store.engine.stats import SlaveState, StoreStats
from commitlog_store.errors import InvalidValue
from commitlog_store.files import disk
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.groups.consumer_offset import check_positions
from commitlog_store.groups.group_settings import SubscriptionGroupConfig
from commitlog_store.half.transactional_message import TransactionalMessageService
from commitlog_store.message import Message
from commitlog_store.owned_store.opening import StoreOpening
from commitlog_store.owned_store.owned_store import OwnedStore
from commitlog_store.paths import checked_choice
from commitlog_store.producing import Producing
from commitlog_store.progress import Progress
from commitlog_store.queue.get_message import DEFAULT_PULL_BYTES, DEFAULT_PULL_MESSAGES, GetMessageResult, checked_int
from commitlog_store.queue.skipped import SkippedRange
from commitlog_store.reader import OnDamage, StoreReader
from commitlog_store.recovery.cut import OnCut
from commitlog_store.recovery.recover import Recovered
from commitlog_store.recovery.start import OpenWishes
from commitlog_store.retention.decision import CleanReport
from commitlog_store.retention.survey import KEEP_AT_MOST_HOURS, CleanRequest
from commitlog_store.threads.made_in_thread import made_in_thread
from commitlog_store.timestamps import checked_seconds
from commitlog_store.transaction import Transaction


class MessageStore(Producing):
    """A store that this process owns: put messages, wait for messages, close. (A program that only reads needs
    ``StoreReader``.)

    Use it as a context manager. Any number of threads may put. A process that forks must not use it in the child. A
    signal handler may close it at any time; any other call of a handler while its own thread is within a call
    is refused (``NestedCall``). A store that is dropped without ``close`` warns (``ResourceWarning``); one that is
    still open when the interpreter exits is closed then.

    ::

        with MessageStore.open("/data/store") as store:
            result = store.put("orders", b"paid 12.50", tags="paid", keys=["k1"])
            print(result.queue_id, result.queue_offset)
            store.put_messages(pa.table({"topic": ["orders"] * 2, "body": [b"a", b"b"]})).raise_for_status()
            store.dispatch()
            print(store.reader().query("orders", "k1"))
    """

    def __init__(self, owned: OwnedStore, config: MessageStoreConfig) -> None:
        """Use ``MessageStore.open``."""
        self.path = owned.path
        self.config = config
        self._delay_levels = config.message_delay_level
        self._owned = owned
        self._engine = owned.engine
        # Every put goes through these.
        self._enter = owned.engine.calls.enter
        self._putter = owned.engine.putter
        self._pulls = PullService(owned.engine)
        # The consumers of this process, by group.
        self._groups: dict[str, ConsumerGroup] = {}

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        config: MessageStoreConfig | None = None,
        *,
        lock_timeout_s: float = 0.0,
        accept_lost_log: bool = False,
        rebuild: bool = False,
        on_cut: Literal["keep", "refuse"] = "keep",
        progress: Progress | None = None,
    ) -> MessageStore:
        """Open the store at ``path``, or create one there.

        After a clean close this takes constant time; after a crash the log is scanned, and ``progress`` is called with
        the bytes done and the bytes to do at most. ``lock_timeout_s`` is how many seconds to wait for another owner.
        ``rebuild`` builds all queues and index files again from the log.

        After a crash of the machine the log may end in records that cannot be trusted, and is cut there. If whole
        records follow, they are first kept in the store's directory ``repair``, as a store that ``StoreReader`` opens;
        ``recovered`` and a warning in the log say which and where. With ``on_cut="refuse"`` that is ``CutRefused``, and
        nothing is cut.

        A log that is shorter than its checkpoint says, or gone, is refused (``LogShort``, ``LogLost``).
        ``accept_lost_log`` continues with what is left of it. ``commitlog repair`` reports all this without opening.

        ``StoreLocked``, ``NotAStore``, ``StoreAccessDenied``, ``UnsupportedStore``; ``CorruptStoreError``
        for damage that no crash explains (invariant 5); ``StoreIOError``; ``InvalidValue`` if ``path`` is not a path.
        """
        config = _checked_config(config)
        opening = StoreOpening(
            disk.absolute_path(path),
            config,
            lock_timeout_s=checked_seconds("lock_timeout_s", lock_timeout_s),
            wishes=OpenWishes(accept_lost_log, rebuild, checked_choice("on_cut", on_cut, get_args(OnCut))),
            progress=progress,
        )
        try:
            return cls(opening.run(), config)
        except BaseException:
            opening.undo()
            raise

    @classmethod
    @contextlib.asynccontextmanager
    async def open_async(
        cls,
        path: str | os.PathLike[str],
        config: MessageStoreConfig | None = None,
        *,
        lock_timeout_s: float = 0.0,
        on_cut: Literal["keep", "refuse"] = "keep",
    ) -> AsyncIterator[MessageStore]:
        """``open`` for asyncio, as ``async with MessageStore.open_async(path) as store``: opens and closes in a thread.

        A store whose opening is cancelled is closed as soon as it is open.
        """
        opening = partial(cls.open, path, config, lock_timeout_s=lock_timeout_s, on_cut=on_cut)
        async with await made_in_thread(opening, lambda store: store._owned.close(wait=False)) as store:
            yield store

    async def __aenter__(self) -> MessageStore:
        return self

    async def __aexit__(self, *_: object) -> None:
        import asyncio  # programs without it do not import it

        # Cancelled, the task ends; the closing continues. It is not a task, which the end of the loop would cancel.
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self.close))

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        owned = getattr(self, "_owned", None)
        if owned is not None and not owned.is_closing:
            owned.close(wait=False)
            text = f"The store at {owned.path} was dropped and not closed."
            warnings.warn(text, ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"<MessageStore of {self.path!r}, {'closed' if self._owned.is_closing else 'open'}>"

    def __reduce__(self) -> NoReturn:
        raise InvalidValue(
            f"A MessageStore cannot be pickled or copied: this process owns {self.path}. Pass its path instead; any "
            "process reads it with StoreReader.open."
        )

    @property
    def recovered(self) -> Recovered | None:
        """Report of the recovery when the store was opened; None after a clean close, which needs none."""
        return self._engine.log.recovered

    @property
    def flags(self) -> RunningFlags:
        """RocketMQ's running flags: the operations that the store refuses at the moment."""
        return self._engine.state.flags

    @property
    def writable(self) -> bool:
        """Whether puts are accepted."""
        return self._engine.state.writable

    def set_writable(self, writable: bool) -> None:
        """Accept puts, or answer them with SERVICE_NOT_AVAILABLE. A store that failed accepts none in any case."""
        with self._enter():
            self._engine.state.set_flag(RunningFlags.NOT_WRITEABLE, on=not writable)

    @property
    def readable(self) -> bool:
        """Whether ``reader`` gives readers."""
        return self._pulls.is_readable

    def set_readable(self, readable: bool) -> None:
        """Give readers, or refuse them. Open readers, and those of other processes, continue."""
        with self._enter():
            self._engine.state.set_flag(RunningFlags.NOT_READABLE, on=not readable)
        self._engine.waiters.wake_all()

    async def _aput(self, message: Message) -> PutMessageResult:
        import asyncio  # programs without it do not import it

        putter, puts = self._putter, self._engine.async_puts
        with self._enter():
            self._engine.state.refuse_closed()
            encoded = putter.encode_at_once(message) if puts.is_idle and not self._engine.durability.waits else None
            at_once = [] if encoded is None else putter.put_at_once([encoded])
            waiting = None if at_once else puts.put(encoded or message, asyncio.get_running_loop())
        if waiting is not None:
            return await waiting
        await asyncio.sleep(0)  # the other tasks have their turns
        return at_once[0]

    def put_message(self, message: Message) -> PutMessageResult:
        """Append one message. The result's status says how it ended, also for a refused message or a full disk.

        Refused are messages that no store has room for, that no reader could read, and that only brokers may write:
        ``MessageExtBrokerInner`` lists the latter.

        Raises for mistakes of the program: ``InvalidValue`` for a wrong type, ``StoreClosed``, ``StoreForked``,
        ``NestedCall``.
        """
        with self._enter():
            return self._putter.put_message(message)

    def put_message_batch(self, messages: Sequence[Message]) -> PutMessageResult:
        """Append messages of one queue in one piece, as RocketMQ's MessageExtBatch: one status for all of them."""
        with self._enter():
            return self._putter.put_batch(messages)

    def put_together(self, messages: Sequence[Message]) -> list[PutMessageResult | Exception]:
        """Append messages each by itself, and wait for device and slaves once for all of them.

        In place of a result stands the error that ``put_message`` would raise for the message.
        """
        if not isinstance(messages, Iterable):
            raise InvalidValue(f"messages is a list of Message, not {messages!r}.")
        with self._enter():
            self._engine.state.refuse_closed()
            return self._putter.put_together(messages)

    def put_messages(
        self, table: MessageRows, *, topic: str | None = None, first_row: int = 0, stop_at_refusal: bool = False
    ) -> PutTableResult:
        """Append the rows of an Arrow table, a data frame or a list; status and offsets for each row.

        Taken are a pyarrow Table or RecordBatch, anything with ``__arrow_c_stream__`` (data frames of polars, pandas
        from 2.2 on, results of DuckDB), a list of dicts (their keys are the columns), and a list of ``Message``.

        Columns (all but ``body`` may be left out or null): ``body`` or ``value``, ``topic`` (else the argument),
        ``tags``, ``keys`` or ``key``, ``queueId``, ``shardingKey``, ``properties``, ``flag``, ``bornTimestamp``,
        ``delayLevel``. Rows that no store accepts get their status, the others are appended. ``InvalidValue``
        for wrong columns, before anything is written. ``first_row`` is the first row's number in reasons. With
        ``stop_at_refusal``, no row after the first refused one is appended: the result's rows end with that one, and
        what is corrected can be put from there on.

        Batches of ``StoreReader.read`` are taken too; what only a store gives in them (``queueOffset``, ``msgId``, ...,
        and properties such as ``REAL_TOPIC``) is ignored. To copy a queue with all that belongs to its messages::

            columns = ["topic", "queueId", "queueOffset", "tags", "keys", "bornTimestamp", "flag", "properties", "body"]
            for batch in reader.read("orders", 0, start, columns=columns):
                store.put_messages(batch)
        """
        with self._enter():
            self._engine.state.refuse_closed()
            return self._engine.bulk.put_messages(
                table, topic=topic, first_row=first_row, stop_at_refusal=stop_at_refusal
            )

    def transaction(self, app_id: str, version: int, fingerprint: str = "") -> Transaction:
        """Begin a batch: its messages are in the store together, and at most once, or not at all.

        ::

            with store.transaction("orders-loader", version=7) as batch:
                batch.put_messages(table, topic="orders")

        Versions of an application ascend. A version that was committed before is skipped (``already_there``), unless
        the fingerprint says that it is another batch: ``BatchConflict``. docs/durability.md has the rules.
        """
        batch = checked_transaction(app_id, version, fingerprint)
        committed = self._engine.run(lambda: self._engine.batches.check(batch))
        return Transaction(self, batch, self._owned, committed)

    @property
    def half_messages(self) -> TransactionalMessageService:
        """Half messages: prepared now, committed or rolled back later, as by RocketMQ's transaction producers.

        (``transaction`` is another thing: many messages at once, all or nothing.)
        """
        return self._owned.half_messages

    def commit_batch(
        self,
        batch: BatchId,
        staged: Sequence[StagedFile],
        *,
        new_topic_queues: int | None = None,
        on_device: bool = False,
    ) -> CommittedBatch:
        """Commit the staged files of a batch, perhaps of other processes. (``transaction`` stages and commits.)

        The rows of the files follow each other in the order of the files. When it returns, the batch is in the log (on
        the device, under SYNC_FLUSH), and all staged files of this version of the application or an earlier one are
        removed. ``BatchConflict``, ``StagingLost``, ``CorruptStaging``, ``DiskFull``, ``PutRefused``, and
        ``InvalidValue`` for a file that is named twice, is of another batch, or is reached by a symbolic link: nothing
        was written. ``StoreIOError``: opening the store again decides, and the same batch may be committed again.
        ``PutNotConfirmed`` under SYNC_MASTER: it is committed here, and slaves have not acknowledged it in time; the
        same batch may be committed again, which waits for them again.

        ``new_topic_queues`` is the number of queues of topics that are new with it, where it is not the store's
        ``default_topic_queue_nums``. With ``on_device`` it is on the device under ASYNC_FLUSH, too.
        """
        check_commit(batch, staged)
        refuse_store_application(batch.app_id)
        queues = new_topic_queues
        if queues is not None:
            queues = replace(self.config, default_topic_queue_nums=queues).default_topic_queue_nums  # in its range
        committed = self._engine.commit(lambda: self._engine.batches.commit(batch, staged, new_topic_queues=queues))
        if on_device:  # under SYNC_FLUSH it is: then this does nothing
            self._engine.run(self._engine.store_flush.flush_log)
        return committed

    def create_topic(self, topic: str, queues: int, *, read_queues: int = 0, perm: int | None = None) -> None:
        """Note in ``config/topics.json`` over how many queues a topic is spread; one that is listed keeps its number.

        ``read_queues``: the number of queues that consumers read, if messages name queues beyond the others. It is
        raised for a topic that is listed, too. ``perm``: 6 to write and read (that of a new topic), 4 rejects puts, 2
        rejects consumers.

        ``InvalidValue``, also for a topic of RocketMQ's own; ``PutRefused`` for a store in the role SLAVE;
        ``CorruptConfig``, ``StoreIOError``.
        """
        count, read_count = checked_int("queues", queues), checked_int("read_queues", read_queues)
        given = None if perm is None else checked_int("perm", perm)
        self._engine.state.refuse_on_replica()
        self._engine.run(
            lambda: self._engine.topics.create_by_name(topic, count, read_queue_nums=read_count, perm=given)
        )

    def expired_topics(self) -> list[str]:
        """The topics whose messages are all gone from the log: ``delete_topic`` takes them. RocketMQ's own are not
        among them, nor those that delayed messages will go to."""
        return self._owned.retention.expired_topics()

    def delete_topic(self, topic: str, *, with_messages: bool = False) -> None:
        """Delete a topic: its queues, its entry in the list of topics, and positions of groups in it.

        ``TopicInUse`` while the log has messages of it, or delayed messages wait for their delivery to it. With
        ``with_messages`` it is deleted with these, as by RocketMQ: no queue leads to them any more, and none of the
        delayed ones is delivered. They stay in the log until ``clean`` takes its files; a key or an id still finds
        them. Should the topic get messages again, their queue offsets continue while the log has any of the old ones,
        and otherwise begin at 0.

        ``InvalidValue`` for a topic of RocketMQ's own, ``TopicNotFound``, ``CorruptConfig``; ``PutRefused`` for a store
        in the role SLAVE; ``StoreIOError``, and then it can be repeated.
        """
        self._engine.state.refuse_on_replica()
        self._owned.retention.delete_topic(topic, self._forget_queues, with_messages=with_messages)

    def _forget_queues(self, topic: str) -> None:
        """What a consumer acknowledges from now on moves no position of the topic: its offsets may begin again."""
        for group in list(self._groups.values()):
            group.note_queues(topic, ())

    def clean_unused_topics(self, retain: Iterable[str], *, dry_run: bool = False) -> list[str]:
        """Delete all topics, with their messages, that are neither in ``retain`` nor in ``config/topics.json``.

        RocketMQ's CLEAN_UNUSED_TOPIC. A topic is listed before its first message; these were taken off the list since::

            store.clean_unused_topics(["orders", "payments"], dry_run=True)

        Returns the deleted topics; with ``dry_run`` those that would be. RocketMQ's own and light queues stay. Errors:
        ``delete_topic``.
        """
        self._engine.state.refuse_on_replica()
        return self._owned.retention.clean_unused_topics(retain, self._forget_queues, dry_run=dry_run)

    def batches(self) -> list[CommittedBatch]:
        """The last batch that each application committed, by application id."""
        return self._engine.run(self._engine.batches.batches)

    def forget_batches(self, app_id: str) -> CommittedBatch | None:
        """Forget the batches of an application: its next batch is written, whatever its version.

        Messages stay. Returns its last batch, None if the application is not known. ``PutRefused`` for a store in the
        role SLAVE; ``StoreIOError``.
        """
        self._engine.state.refuse_on_replica()
        return self._engine.run(lambda: self._engine.batches.forget(app_id))

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
        """RocketMQ's ``getMessage``, as ``StoreReader.get_message``, which has the statuses; any number of threads.

        With ``wait_s``, it is held so many seconds at most until a message matches, which dispatch reports at once.
        ``StoreClosed`` if the store is closed or not readable (RocketMQ answers null then)::

            result = store.get_message("orders", 0, position, tags="paid", wait_s=15)
            position = result.next_begin_offset
        """
        return self._pulls.get_message(
            *(topic, queue_id, offset, max_messages), max_bytes=max_bytes, wanted=filter, tags=tags, wait_s=wait_s
        )

    def consumer(
        self,
        group: str,
        topics: str | Sequence[str],
        *,
        filter: str | MessageFilter | None = None,  # noqa: A002  # the name that it has everywhere
        tags: str | None = None,
        consume_from: ConsumeFrom = "earliest",
    ) -> Consumer:
        """A consumer of topics for a consumer group; ``Consumer`` has an example.

        The group continues at its positions. In topics without any it begins at ``consume_from``: "earliest", "latest",
        or a store time (milliseconds, a datetime, ``"2h"`` ago); queues that appear later are read from their first
        message on. ``filter`` and ``tags`` select as in ``StoreReader.read``. Messages that the group gave back
        (``Consumer.retry``) are read too.

        ``InvalidValue``, ``FilterError``, ``StoreClosed``; ``CorruptConfig`` for damaged positions; ``PutRefused`` for
        a store in the role SLAVE, whose positions are its master's.
        """
        self._pulls.refuse_unreadable()
        return open_consumer(
            *(self, self._owned, self._groups, group, topics), wanted=filter, tags=tags, consume_from=consume_from
        )

    def set_group_settings(self, settings: SubscriptionGroupConfig) -> None:
        """Create a consumer group, or change its settings, in ``config/subscriptionGroup.json``.

        They hold for consumers that are made from now on, and for a broker that takes the store over. Settings that
        only other programs know stay. ``StoreReader.group_settings`` reads them. ``InvalidValue`` for a group that
        cannot be; ``PutRefused`` for a store in the role SLAVE; ``CorruptConfig``, ``StoreIOError``.
        """
        self._engine.state.refuse_on_replica()
        self._engine.run(lambda: self._owned.groups.set_settings(settings))

    def commit_group_offsets(
        self,
        group: str,
        offsets: Mapping[tuple[str, int], int],
        *,
        expected: Mapping[tuple[str, int], int | None] | None = None,
    ) -> bool:
        """Set positions of a consumer group, ``{(topic, queue id): next queue offset}``: all of them, or none.

        They are on the device when it returns. With ``expected``, the positions before (None: none), False if they are
        others now, and nothing is set. ``commit_group_offsets`` does it in a store that is not open. ::

            store.commit_group_offsets("billing", {("orders", 0): 120, ("orders", 1): 97})

        ``InvalidValue`` for what cannot be a position, and for a group that has consumers here: they keep positions of
        their own. ``PutRefused`` for a store in the role SLAVE; ``CorruptConfig``, ``StoreIOError``.
        """
        check_positions(group, offsets)
        if expected is not None:
            check_positions(group, expected)
        self._engine.state.refuse_on_replica()

        def set_positions() -> bool:
            refuse_open_members(self._groups.get(group), self.path)
            return self._owned.groups.set_positions(group, offsets, expected)

        return self._engine.run(set_positions)

    def redrive(
        self,
        group: str,
        *,
        to: RedriveTo = "retry",
        max_messages: int | None = None,
        on_damage: OnDamage = "raise",
        verify_crc: bool = True,
        skipped: list[SkippedRange] | None = None,
    ) -> int:
        """Give a consumer group its dead letters again, each exactly once. Returns how many were redriven.

        They go from ``%DLQ%<group>`` to ``%RETRY%<group>``, which the consumers of this group alone read; with
        ``to="topic"`` to the topic that each was sent to first, where other groups get it again too. Their count of
        reconsumptions begins at 0, properties, tags, keys, flag and born time stay. The dead letters stay in
        ``%DLQ%<group>``: the group's position there says which were redriven. Message and position are in the log
        together, so nothing is redriven twice, whenever the process stops.

        ``max_messages`` at most. ``InvalidValue``, also for a dead letter without the name of its original topic with
        ``to="topic"``; ``PutRefused`` for a closed topic; damage as by ``StoreReader.read``: those before it were
        redriven. With ``on_damage="skip"`` those after it are too; what was left out is added to ``skipped``, and is
        not redriven later. ``verify_crc=False`` takes bodies as they are. ::

            with MessageStore.open("/data/store") as store:
                print(store.redrive("billing"), "dead letters come again")
        """
        return redrive(
            *(self, self._owned, self._pulls, group),
            to=to,
            max_messages=max_messages,
            on_damage=on_damage,
            verify_crc=verify_crc,
            skipped=skipped,
        )

    def wait_for_messages(self, topic: str, queue_id: int, offset: int, timeout_s: float | None = None) -> bool:
        """Wait until the queue holds a message at ``offset`` or after it; False after ``timeout_s`` seconds.

        ``StoreClosed`` if the store is closed during the wait, or set to be not readable; ``InvalidValue`` for a wrong
        queue, offset or time. If the store is halted and the message is not there, the error that halted it: no more
        messages come.
        """
        return self._pulls.wait_for_messages(topic, queue_id, offset, timeout_s)

    def clean(
        self,
        *,
        dry_run: bool = False,
        older_than_hours: float | None = None,
        max_bytes: int | None = None,
        keep_for: Sequence[str | os.PathLike[str]] = (),
        keep_at_most_hours: float = KEEP_AT_MOST_HOURS,
        clock: Literal["store", "mtime"] = "store",
    ) -> CleanReport:
        """Delete old CommitLog files now, and the queue and index files that point only into them.

        A file goes when all its messages are older than ``older_than_hours``, or while the log has more than
        ``max_bytes``; without either, by the settings that the store was opened with, at any hour: of age, of bytes,
        and of how full the disk is. ``clock="mtime"`` takes a file's age from its last change, as RocketMQ does.
        ``dry_run`` only reports, and leaves the disk out.

        ``keep_for``: Spark checkpoints (directories) and consumer groups whose unread messages stay, and archives
        (``archive:s3://bucket/prefix``) for whose manifest files wait, until they are older than
        ``keep_at_most_hours``. The last file stays, and what is not dispatched yet, and delayed messages
        before their delivery. docs/retention.md has all of it.

        ``InvalidValue``; ``CorruptConfig``, ``ReadFailed``, ``ArchiveFailed``, ``ArchiveMismatch``, ``ArchiveDamaged``
        if what holds files cannot be read: nothing was deleted. ``StoreIOError``: files before it are deleted.
        """
        return self._owned.retention.clean(
            dry_run=dry_run,
            older_than_hours=older_than_hours,
            max_bytes=max_bytes,
            keep_for=keep_for,
            keep_at_most_hours=keep_at_most_hours,
            clock=clock,
        )

    @property
    def disk_is_filling(self) -> bool:
        """Whether more of the disk is used than ``disk_max_used_space_ratio`` percent."""
        return self._owned.retention.disk_is_filling

    def clean_as(self, request: CleanRequest, *, dry_run: bool = False) -> CleanReport:
        """``clean`` with a checked request, as ``forecast_clean`` takes it."""
        if not isinstance(request, CleanRequest):
            raise InvalidValue(f"request is a CleanRequest, not {request!r}.")
        return self._owned.retention.clean_as(request, dry_run=dry_run)

    def flush(self) -> None:
        """Bring all messages to the device, queues, index and checkpoint included. ``StoreIOError``."""
        self._engine.run(self._engine.store_flush.flush_everything)

    def dispatch(self) -> None:
        """Return when all messages put before are in their queues and the index.

        Under SYNC_FLUSH those that were flushed, and with the transient pool those that were committed to the files.
        """
        self._engine.run(self._engine.store_flush.dispatch)

    def reader(self) -> StoreReader:
        """A new reader of this store, to be closed by the caller. ``StoreClosed`` if the store is not readable.

        ``stats`` counts what it reads in batches.
        """
        return self._pulls.reader()

    def stats(self) -> StoreStats:
        """Statistics of puts and of reads through ``reader``, and the bytes that are not dispatched yet."""
        with self._enter():
            slaves = self._owned.replication.slaves()
            return self._engine.stats.snapshot(self._engine.reput.undispatched_bytes, slaves)

    @property
    def ha_address(self) -> str | None:
        """HOST:PORT on which slaves are served (``ha_listen_address``); None without."""
        return self._owned.replication.address

    def slaves(self) -> tuple[SlaveState, ...]:
        """The connected slaves: what each has acknowledged, and how far it is behind."""
        with self._enter():
            self._engine.state.refuse_closed()
            return self._owned.replication.slaves()

    def physical_bounds(self) -> tuple[int, int]:
        """First byte of the log, and its end."""
        return self._engine.log.files.min_offset, self._engine.log.files.max_wrote

    def flushed_where(self) -> int:
        """The flushed position: the log is on the device up to there."""
        return self._engine.log.files.flushed_where

    def close(self) -> None:
        """Flush, dispatch and close everything, so that the next open needs no scan. A second call does nothing.

        Calls under way end first, and so does a callback of ``half_messages.start_checks``. Within such a callback, or
        within a call of this very thread, which a signal handler has interrupted, it only asks for the close, which
        then follows. ``StoreIOError`` if closing fails (of a close that was only asked for: at the next call); the
        store is then as after a crash, and opening it recovers.
        """
        self._pulls.close()
        self._owned.close()


def owned_by(store: MessageStore) -> OwnedStore:
    """The parts of an open store, for the rooms of this package that serve it to other programs' clients."""
    return store._owned


def consumers_of(store: MessageStore, group: str) -> ConsumerGroup | None:
    """The consumers of a group that are open in this process, for the rooms that serve the store; None for none ever.

    Clients of a server have theirs here, too.
    """
    return store._groups.get(group)


def open_groups(store: MessageStore) -> list[str]:
    """The groups that have consumers in this process, those of clients among them; for the rooms that serve it."""
    return [name for name, group in store._groups.copy().items() if group.member_count]


def pulls_from(store: MessageStore) -> PullService:
    """The pulls from an open store, for the rooms that serve it."""
    return store._pulls


def _checked_config(config: object) -> MessageStoreConfig:
    if config is not None and not isinstance(config, MessageStoreConfig):
        raise InvalidValue(f"config is a MessageStoreConfig (or MessageStoreConfig.from_mapping(...)), not {config!r}.")
    return config or MessageStoreConfig()
