"""ReputMessageService: dispatches records of the log to the queues and the index.

It reads the log (invariant 1): after a crash, and for records of another owner or of single puts. Records of recent
bulk appends it gets from memory (``RecentAppends``). It never goes further than readers may (invariant 3).

Source: RocketMQ ``store/DefaultMessageStore.java`` (``ReputMessageService``).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import NamedTuple, NoReturn, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from commitlog_store.batch.frames import FoundFrame, frames_in
from commitlog_store.batch.visibility import BatchGate
from commitlog_store.columnar.dispatch import DispatchRequests, dispatch_requests, index_entries, units_by_queue
from commitlog_store.columnar.dispatch_keys import IndexEntries
from commitlog_store.columnar.few_records import MOST_BYTES, few_records
from commitlog_store.engine.arrivals import Arrivals
from commitlog_store.errors import CorruptRecord, DiskFull, IndexIOError, StoreIOError
from commitlog_store.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog_store.files.mapped_file_writer import is_out_of_space
from commitlog_store.format.arrays import Int64Array
from commitlog_store.index.writer import IndexWriter
from commitlog_store.log.recent_appends import AppendedRecords, RecentAppends
from commitlog_store.log.scan import BLOCK_SIZE, LogWalk
from commitlog_store.queue.consume_queue_store import ConsumeQueueStore
from commitlog_store.threads.prefetch import prefetch

_IDLE_SECONDS = 0.5
# How often dispatch is tried again while a queue's next file has no space.
_NO_SPACE_SECONDS = 0.2
# A round holds the interpreter's lock, for one message 0.3 to 1 ms. It owes this many times as long of rest: nine
# tenths of the time are left to the puts.
_REST = 9.0
# A round of fewer messages owes less: a rest gathers more of them only where they come faster than rounds end. Where
# they do not, dispatch takes up to a third of the lock, and the puts need little of it.
_MESSAGES_OF_FULL_REST = 4
_LONGEST_REST_SECONDS = 0.02
# As much may be owed before dispatch rests: messages that come seldom are dispatched at once.
_RESTS_OWED_SECONDS = 0.01
# With this many bytes waiting, dispatch does not rest.
_BUSY_BYTES = 1 << 20


Step: TypeAlias = Callable[[], None]


class CommitLogDispatcher(Protocol):
    """A receiver of every record of the log, in order."""

    def prepare(self, requests: DispatchRequests, entries: Callable[[], IndexEntries]) -> Step:
        """Prepare a write. The step that is returned does it."""


class BuildConsumeQueue:
    """RocketMQ's CommitLogDispatcherBuildConsumeQueue."""

    def __init__(self, queues: ConsumeQueueStore) -> None:
        self._queues = queues

    def prepare(self, requests: DispatchRequests, entries: Callable[[], IndexEntries]) -> Step:
        del entries
        groups = units_by_queue(requests)
        return lambda: self._queues.append(groups)


class BuildIndex:
    """RocketMQ's CommitLogDispatcherBuildIndex."""

    def __init__(self, index: IndexWriter) -> None:
        self._index = index

    def prepare(self, requests: DispatchRequests, entries: Callable[[], IndexEntries]) -> Step:
        hashes, rows = entries()
        offsets, times = requests.physical_offsets[rows], requests.store_timestamps[rows]
        return lambda: self._put(hashes, offsets, times)

    def _put(self, hashes: npt.NDArray[np.int32], offsets: Int64Array, times: Int64Array) -> None:
        if not len(hashes):
            return
        try:
            self._index.put(hashes, offsets, times)
        except OSError as error:
            path = str(error.filename or self._index.path)
            raise IndexIOError("index messages in", path=path, cause=error) from error


class _Block(NamedTuple):
    """A part of the log, ready to be written to queues and index."""

    end: int
    last_store_timestamp: int | None
    """None for a part without records."""
    requests: DispatchRequests | None
    """None for a part without records."""
    frames: list[FoundFrame]
    steps: list[Step]


class ReputMessageService:
    """Dispatches ``[reput_from, confirm())``. ``confirm`` says how far readers may see."""

    def __init__(
        self,
        files: MappedFileQueueWriter,
        reput_from: int,
        confirm: Callable[[], int],
        dispatchers: Sequence[CommitLogDispatcher],
        delay_levels_ms: Sequence[int],
        arrivals: Arrivals,
        on_disk_full: Callable[[StoreIOError | DiskFull | None], None],
        settle: Callable[[int], None],
        gate: BatchGate,
        recent_appends: RecentAppends,
        *,
        last_store_timestamp: int = 0,
    ) -> None:
        self.reput_from = reput_from
        self.last_store_timestamp = last_store_timestamp
        # Set while the thread does not look for work at each interval; a put then wakes it.
        self.idle = False
        self._files = files
        self._confirm = confirm
        self._dispatchers = dispatchers
        self._delay_levels_ms = delay_levels_ms
        self._arrivals = arrivals
        self._on_disk_full = on_disk_full
        self._settle = settle
        self._gate = gate
        self._recent_appends = recent_appends
        # The rest that dispatch owed to the puts, in seconds, at a time of time.monotonic().
        self._owed = self._owed_at = 0.0
        # The number of records dispatched.
        self._messages = 0
        # The last frame that was begun.
        self._frame_start = self._frame_end = 0
        # The queues that have got messages since that frame was begun, by topic.
        self._frame_queues: dict[str, set[int]] = {}
        self._lock = threading.Lock()

    @property
    def undispatched_bytes(self) -> int:
        """Bytes of the log that readers may see and that are not dispatched yet."""
        return max(self._confirm() - self.reput_from, 0)

    def run_once(self) -> float:
        if not self.undispatched_bytes:
            self._on_disk_full(None)  # another thread may have dispatched what waited for space
            self.settle()
            self.idle = True
            if not self.undispatched_bytes:  # one more look: a put may have come before it could see that
                return _IDLE_SECONDS
        self.idle = False
        started, before = time.thread_time(), self._messages
        try:
            self.dispatch()
        except (StoreIOError, DiskFull) as error:
            if not is_out_of_space(error):
                raise
            # Nothing is lost: the log has it, and units that were written already are skipped the next time.
            self._on_disk_full(error)
            return _NO_SPACE_SECONDS
        self._on_disk_full(None)
        if self.undispatched_bytes >= _BUSY_BYTES:
            return 0
        return self._rest_after(time.thread_time() - started, self._messages - before)

    def _rest_after(self, used: float, messages: int) -> float:
        """Seconds to rest after a round of so many messages, which used so many seconds of the processor.

        0 while no more is owed than may be.
        """
        now = time.monotonic()
        owes = used * _REST * min(messages / _MESSAGES_OF_FULL_REST, 1.0)
        owed = max(self._owed - (now - self._owed_at), 0.0) + owes
        self._owed, self._owed_at = min(owed, _LONGEST_REST_SECONDS + _RESTS_OWED_SECONDS), now
        return max(self._owed - _RESTS_OWED_SECONDS, 0.0)

    def settle(self) -> None:
        """Show readers that the queues have everything, if they do."""
        dispatched_to = self.reput_from
        if not self.undispatched_bytes:
            self._settle(dispatched_to)

    def dispatch(self) -> None:
        """Dispatch everything in the log now. ``CorruptRecord`` if the log contradicts itself, ``StoreIOError``."""
        with self._lock:
            limit = self._confirm()
            blocks = self._blocks(self.reput_from, limit)
            if limit - self.reput_from > BLOCK_SIZE:
                blocks = prefetch(blocks)
            with contextlib.closing(blocks):
                for block in blocks:
                    self._write(block)

    def _write(self, block: _Block) -> None:
        start = self.reput_from
        for frame in block.frames:
            # Readers must see all of it or nothing: it goes to many queues, one after the other.
            self._gate.close_from(frame.physical_offset)
            self._frame_start, self._frame_end = frame.physical_offset, frame.end
        for write in block.steps:
            write()
        if block.last_store_timestamp is not None:
            self.last_store_timestamp = block.last_store_timestamp
        self.reput_from = block.end
        self._messages += 0 if block.requests is None else len(block.requests)
        if self.reput_from >= self._frame_end:
            self._gate.open(self._frame_end)
        else:
            self._gate.move_to(self._frame_start)  # those before it are whole
        if block.frames or start < self._frame_end:
            self._show_frame(block)
        elif block.requests is not None:
            self._arrivals.arrived(block.requests)

    def _show_frame(self, block: _Block) -> None:
        """Wake for a block with a part of a frame, whose end shows what came into its queues before."""
        for topic, queue_id in [] if block.requests is None else block.requests.queues:
            self._frame_queues.setdefault(topic, set()).add(queue_id)
        self._arrivals.shown(self._frame_queues)
        if self.reput_from >= self._frame_end:
            self._frame_queues = {}

    def _blocks(self, start: int, limit: int) -> Generator[_Block, None, None]:
        """Blocks of recent appends, and between them blocks read from the log. ``CorruptRecord``."""
        at = start
        while at < limit:
            handed = self._recent_appends.take(at, limit)
            if handed is None:
                stop = self._recent_appends.next_start(at, limit)
                yield from self._read_blocks(at, stop)
                at = stop
            else:
                at = handed.end
                yield self._handed_block(handed)

    def _handed_block(self, handed: AppendedRecords) -> _Block:
        requests = handed.requests()
        steps = [dispatcher.prepare(requests, handed.entries) for dispatcher in self._dispatchers]
        return _Block(handed.end, handed.store_timestamp, requests, [], steps)

    def _few_records(self, start: int, stop: int) -> _Block | None:
        """The block of ``[start, stop)`` if it has a few records, of the plain kind."""
        file = self._files.find(start) if stop - start <= MOST_BYTES else None
        if file is None or stop > file.base + file.capacity:
            return None
        found = few_records(file.read(start - file.base, stop - start), start)
        if found is None:
            return None
        steps = [dispatcher.prepare(found.requests, lambda: found.entries) for dispatcher in self._dispatchers]
        return _Block(stop, int(found.requests.store_timestamps[-1]), found.requests, [], steps)

    def _read_blocks(self, start: int, stop: int) -> Generator[_Block, None, None]:
        """Blocks of ``[start, stop)``, which ends where a record does."""
        few = self._few_records(start, stop)
        if few is not None:
            yield few
            return
        walk = LogWalk(self._files, start, stop, check_crc=False)
        end = start
        for scan in walk:
            requests = dispatch_requests(scan, self._delay_levels_ms)
            entries = partial(index_entries, scan)
            steps = [dispatcher.prepare(requests, entries) for dispatcher in self._dispatchers]
            end = walk.offset
            yield _Block(end, int(requests.store_timestamps[-1]), requests, frames_in(scan), steps)
        if walk.offset < stop:
            self._refuse(walk)
        if walk.offset > end:  # what fills up the file after the last record
            yield _Block(walk.offset, None, None, [], [])

    def _refuse(self, end: LogWalk) -> NoReturn:
        file = self._files.find(end.offset)
        raise CorruptRecord(
            f"Record at physical offset {end.offset}",
            path=file.path if file is not None else self._files.path,
            offset=end.offset - (file.base if file is not None else 0),
            expected="a whole record, as this store wrote one there",
            found=end.stop,
            advice="Did another program write to the file? Close the store, and open it again to recover.",
        )
