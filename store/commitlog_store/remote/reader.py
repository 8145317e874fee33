"""RemoteReader: ``StoreReader`` of a store that ``commitlog serve`` shows at another place.

What a question finds out is found out by the server, in one round trip for any number of queues. What a read gives is
decoded here, from the bytes of records that the server sends.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

import numpy as np
import pyarrow as pa

from commitlog_store.batch_id import CommittedBatch
from commitlog_store.columnar.columns import DEFAULT_COLUMNS, arrow_schema
from commitlog_store.delayed.levels import DelayLevel
from commitlog_store.errors import CommitLogError, InvalidValue, RemoteFailed, StoreBusy, raised
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.format.checkpoint import Checkpoint
from commitlog_store.format.consume_queue_unit import UNIT_DTYPE, Units
from commitlog_store.format.message_id import decode_message_id
from commitlog_store.groups.group_settings import ConsumerFilter, SubscriptionGroupConfig
from commitlog_store.groups.positions import DeadLetters, GroupPosition
from commitlog_store.half_message import PendingHalfMessage
from commitlog_store.index.service import IndexFileInfo
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.log.past_damage import Gap
from commitlog_store.message import MessageExt
from commitlog_store.paths import checked_text, validate_topic
from commitlog_store.queue.derived_queues import Stray
from commitlog_store.queue.fence import Fence
from commitlog_store.queue.get_message import GetMessageResult, PullLimits, checked_count, checked_int
from commitlog_store.queue.log_blocks import DEFAULT_ROWS, DEFAULT_SIZE, BlockLimits
from commitlog_store.queue.reader_catalog import ReaderCatalog
from commitlog_store.queue.skipped import SkippedRange
from commitlog_store.queue.topic_config import TopicSettings
from commitlog_store.reader import FilterAt, OnDamage, QueueInfo, QueueOffsets, StoreReader, WantedQueues
from commitlog_store.reading.arguments import (
    checked_bounds,
    checked_filter,
    checked_group,
    checked_places,
    checked_queue,
    checked_queues,
    checked_ranges,
    checked_searches,
    checked_times,
    checked_topic,
    checked_topics,
)
from commitlog_store.reading.arrivals import checked_deadline
from commitlog_store.reading.damage import checked_on_damage
from commitlog_store.reading.key_lookup import WantedKeys
from commitlog_store.reading.look_ups import checked_query
from commitlog_store.reading.opening import checked_filter_at
from commitlog_store.reading.places import answer_or_error, checked_time
from commitlog_store.reading.ranges import batch_limits, checked_range, chosen_filter, refuse_reversed
from commitlog_store.remote.blocks import RemoteBlocks
from commitlog_store.remote.connection import Connection, RemoteAddress
from commitlog_store.remote.listing import Listing, in_topics
from commitlog_store.remote.verification import verify_at_server
from commitlog_store.remote.wire import MOST_TIMERS, MOST_UNITS, FilterTexts, decode_error
from commitlog_store.timestamps import GivenTime

if TYPE_CHECKING:
    from commitlog_store.progress import Progress
    from commitlog_store.verify.assessment import Assessment
    from commitlog_store.verify.store_facts import StoreFacts

_T = TypeVar("_T")

# A wait is asked for in parts: the server's threads are bounded, and Ctrl-C works between two of them.
_WAIT_SECONDS = 1.0
# So often a question of several parts is asked again while retention deletes files.
_MOST_LOOKS = 10
# Keys, queues or positions in one question: a second of the server's time at most.
_MOST_AT_ONCE = 4_096


class RemoteReader(StoreReader):
    """Made by ``StoreReader.open("grpc://host:8815")``."""

    def __init__(
        self, address: RemoteAddress, *, on_damage: OnDamage = "raise", filter_at: FilterAt = "reader"
    ) -> None:
        self.address = address
        self.path = str(address)
        self._connection = Connection(address)
        self._on_damage = on_damage
        self._skipped: list[SkippedRange] = []
        self._counts = None
        self._closed = False
        self._filter_at = checked_filter_at(filter_at)
        self._blocks = RemoteBlocks(self._connection, filter_at_server=filter_at == "server")
        self._catalog = ReaderCatalog(self)
        self._listing = Listing()
        # Whether queues are being listed for a look at all of them.
        self._lists = False
        # The log's first byte by the last answer, and whether it was another one in the answer before.
        self._log_start, self._moved = -1, False

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        token: str | None = None,
        tls_root_certificates: bytes | None = None,
        rpc_timeout_s: float = 30.0,
        on_damage: OnDamage = "raise",
        filter_at: FilterAt = "reader",
    ) -> RemoteReader:
        """``RemoteFailed`` if no server answers, and the errors of opening the store there.

        What is not given comes from the environment: ``COMMITLOG_TOKEN``, and the file that
        ``COMMITLOG_TLS_ROOT_CERTIFICATES`` names.
        """
        address = RemoteAddress.given(
            url, token=token, tls_root_certificates=tls_root_certificates, rpc_timeout_s=rpc_timeout_s
        )
        reader = cls(address, on_damage=on_damage, filter_at=filter_at)
        try:
            reader._ask("aborted")
        except BaseException:
            reader.close()
            raise
        return reader

    @property
    def paths(self) -> NoReturn:  # type: ignore[override]
        """``InvalidValue``: a served store has its files elsewhere."""
        raise InvalidValue(
            f"This needs the files of the store, not a server of it: run it where the directory of {self.path} is."
        )

    def __repr__(self) -> str:
        return f"<StoreReader of {self.path!r}>"

    def __reduce__(self) -> tuple[object, ...]:
        again = partial(RemoteReader, on_damage=self._on_damage, filter_at=self._filter_at)
        return (again, (self.address,))

    def close(self) -> None:
        self._closed = True
        self._connection.close()

    def _ask(self, call: str, *arguments: object) -> Any:
        answer = self._connection.ask(call, self._on_damage, arguments)
        self._skipped += [one for one in answer.skipped if one not in self._skipped]
        if answer.log_start != answer.log_start_after or self._log_start not in (-1, answer.log_start):
            self._moved = True
        self._log_start = answer.log_start_after
        return answer.value

    def _ask_in_parts(self, call: str, wanted: Sequence[object], *others: object) -> list[Any]:
        """The answers to a question about many things, asked in parts of bounded size; an error is among them."""
        answers: list[Any] = []
        for at in range(0, len(wanted), _MOST_AT_ONCE):
            answers += self._ask(call, list(wanted[at : at + _MOST_AT_ONCE]), *others)
        return [decode_error(one) if isinstance(one, bytes) else one for one in answers]

    @property
    def for_shell(self) -> str:
        return shlex.quote(self.path)

    @property
    def skipped(self) -> list[SkippedRange]:
        return list(self._skipped)

    @property
    def log_gaps(self) -> list[Gap]:
        return []

    @property
    def strays(self) -> list[Stray]:
        return []

    def facts(self, *, assessed: bool = True) -> StoreFacts:
        found: StoreFacts = self._ask("facts", bool(assessed))
        return found

    def assess(self, *, deep: bool = False, progress: Progress | None = None) -> Assessment:
        if deep:
            return verify_at_server(self._connection, self._on_damage, progress)
        found = self.facts().assessment
        assert found is not None
        return found

    def metadata(self, table: str) -> pa.Table:
        """``store_metadata``, but for ``findings``."""
        return pa.ipc.open_stream(self._ask("metadata", table)).read_all()

    def topics(self) -> list[str]:
        return self._listing.topics(self._topics) if self._lists else self._topics()

    def _topics(self) -> list[str]:
        return list(self._ask("topics"))

    def queue_ids(self, topic: str) -> list[int]:
        return raised(self.queue_ids_of([topic])[0])

    def queue_ids_of(self, topics: Sequence[str]) -> list[list[int] | CommitLogError]:
        asked = [answer_or_error(partial(checked_topic, topic)) for topic in checked_topics(topics)]
        known = [topic for topic in asked if isinstance(topic, str)]
        ask = partial(self._ask_in_parts, "queue_ids")
        found = iter(self._listing.queue_ids_of(known, ask) if self._lists else ask(known))
        return [next(found) if isinstance(topic, str) else topic for topic in asked]

    def queues(self, topic: str) -> list[QueueInfo]:
        return list(self._ask("queues_of", [checked_topic(topic)]))

    def queue_infos(self, queues: WantedQueues) -> list[QueueInfo]:
        return self.settled_queue_infos(queues)[0]

    def settled_queue_infos(self, queues: WantedQueues) -> tuple[list[QueueInfo], object | None]:
        if not callable(queues):
            return self._bounds_of(checked_queues(queues)), None
        for _ in range(_MOST_LOOKS):
            listed = self._listed(queues)
            found = self._listing.bounds(listed, lambda state, assumed: self._ask("listed_bounds", state, *assumed))
            if found is not None:  # no queue has come with a batch that the bounds have
                return found
        raise StoreBusy(f"Queues came or went during each of {_MOST_LOOKS} looks at {self.path}. Ask again.")

    def _listed(self, queues: Callable[[], Iterable[tuple[str, int]]]) -> list[tuple[str, int]]:
        """The queues, by what was listed before: ``listed_bounds`` says whether that has changed.

        What is missing there may have come since: it is refused by a new list. A server that does not answer is asked
        once.
        """
        self._listing.begin()
        self._lists = True
        try:
            return checked_queues(queues())
        except RemoteFailed:
            raise
        except CommitLogError:
            self._listing.forget()
            return checked_queues(queues())
        finally:
            self._lists = False

    def _bounds_of(self, queues: Sequence[tuple[str, int]]) -> list[QueueInfo]:
        """In one question, so that they are of one moment."""
        bounds = self._ask("bounds", in_topics(queues))
        if len(bounds) != len(queues):
            raise RemoteFailed(f"The server at {self.path} gave {len(bounds)} bounds of {len(queues)} queues.")
        return [QueueInfo(*queue, *one) for queue, one in zip(queues, bounds, strict=True)]

    def consistently(self, ask: Callable[[], _T], *, one_moment: bool = True) -> _T:
        for _ in range(_MOST_LOOKS):
            self._moved, self._log_start = False, -1
            found = ask()
            if not (one_moment and self._moved):
                return found
        raise StoreBusy(
            f"Retention deleted files of the store at {self.path} during each of {_MOST_LOOKS} looks at it. Ask again."
        )

    def groups(self, group: str | None = None, *, now_ms: int | None = None) -> list[GroupPosition]:
        now = None if now_ms is None else checked_int("now_ms", now_ms)
        return list(self._ask("groups", checked_group(group), now))

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        return {
            (topic, queue_id): offset
            for topic, queue_id, offset in self._ask("group_offsets", checked_text("consumer group", group))
        }

    def dead_letters(self, group: str | None = None) -> list[DeadLetters]:
        return list(self._ask("dead_letters", checked_group(group)))

    def log_start(self) -> int:
        self._ask("aborted")  # any question: each answer has it
        return self._log_start

    def topic_settings(self) -> dict[str, TopicSettings]:
        found: dict[str, TopicSettings] = self._ask("topic_settings")
        return found

    def group_settings(self, group: str | None = None) -> list[SubscriptionGroupConfig]:
        return list(self._ask("group_settings", checked_group(group)))

    def group_filters(self, group: str | None = None) -> list[ConsumerFilter]:
        return list(self._ask("group_filters", checked_group(group)))

    def lost_ends(self) -> list[str]:
        return list(self._ask("lost_ends"))

    def settled_state(self) -> None:
        """Not known: the server's store may be a broker's."""

    def physical_bounds(self) -> tuple[int, int]:
        start, end = self._ask("physical_bounds")
        return start, end

    @property
    def aborted(self) -> bool:
        return bool(self._ask("aborted"))

    def checkpoint(self) -> Checkpoint | None:
        found: Checkpoint | None = self._ask("checkpoint")
        return found

    def index_files(self) -> list[IndexFileInfo]:
        return list(self._ask("index_files"))

    def _pull(
        self, topic: str, queue_id: int, position: int, limits: PullLimits, wanted: MessageFilter
    ) -> GetMessageResult:
        texts = FilterTexts.of(wanted)
        found: GetMessageResult = self._ask(
            "get_message", topic, queue_id, position, limits.messages, limits.size, texts
        )
        return found

    def wait_for_any(self, positions: Mapping[tuple[str, int], int], timeout_s: float | None = None) -> bool:
        deadline = checked_deadline(positions, timeout_s)
        wanted = [(topic, queue_id, offset) for (topic, queue_id), offset in positions.items()]
        while True:
            left = _WAIT_SECONDS if deadline is None else max(deadline - time.monotonic(), 0.0)
            if self._ask("wait_for_any", wanted, min(left, _WAIT_SECONDS)):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def units(self, topic: str, queue_id: int, start: int, stop: int, *, chunk: int = 1_000_000) -> Iterator[Units]:
        low, high = checked_range(self, topic, queue_id, start, stop)
        return (units for _, units in self._units_of([(topic, queue_id, low, high)], checked_count("chunk", chunk)))

    def units_of(self, ranges: Sequence[QueueOffsets], *, chunk: int = 1_000_000) -> Iterator[tuple[int, Units]]:
        return self._units_of(_ordered_ranges(ranges), checked_count("chunk", chunk))

    def _units_of(self, ranges: Sequence[QueueOffsets], chunk: int) -> Iterator[tuple[int, Units]]:
        """The first part is asked for at once: the server refuses what is not there before it reads a unit."""
        units = self._all_units_of(ranges, chunk)
        first = next(units, None)
        # ``chain`` holds what it is given until its end: an iterator, which lets go of the part.
        return units if first is None else chain(iter([first]), units)

    def _all_units_of(self, ranges: Sequence[QueueOffsets], chunk: int) -> Iterator[tuple[int, Units]]:
        first, at = 0, ranges[0][2] if ranges else 0
        while first < len(ranges):
            wanted = _next_part(ranges, first, at, chunk)
            counts, data = self._ask("units", wanted)
            if not data and at < ranges[first][3]:
                raise RemoteFailed(f"The server at {self.path} gave none of the units that it was asked for.")
            units, done = np.frombuffer(data, UNIT_DTYPE), 0
            for (_, _, start, _), count in zip(wanted, counts, strict=True):
                if count:
                    yield first, units[done : done + count]
                done, at = done + count, start + count
                if at < ranges[first][3]:
                    break  # the answer had no room for more, or has come to what cannot be read
                first += 1
                at = ranges[first][2] if first < len(ranges) else 0

    def read_together(
        self,
        ranges: Iterable[QueueOffsets],
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        verify_crc: bool = True,
        filter: MessageFilter | None = None,  # noqa: A002  # the name that it has everywhere
    ) -> list[pa.RecordBatch] | None:
        parts = _ordered_ranges(checked_ranges(ranges))
        reads, queue = self._ranges, self._catalog.queue
        if all(start == stop for *_, start, stop in parts):
            checked = reads.checked(parts)  # no block is asked for
        else:  # the server checks them where it finds their blocks
            checked = [(queue(topic, queue_id), start, stop) for topic, queue_id, start, stop in parts]
        return reads.read_checked_together(checked, columns, checked_filter(filter), verify_crc=verify_crc)

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
        validate_topic(topic)
        names, limits = arrow_schema(columns).names, batch_limits(max_batch_rows, max_batch_bytes)
        return self._query_keys(topic, WantedKeys(keys).all.to_pylist(), names, limits, verify_crc=bool(verify_crc))

    def _query_keys(
        self, topic: str, texts: Sequence[str | None], names: list[str], limits: BlockLimits, *, verify_crc: bool
    ) -> Iterator[pa.RecordBatch]:
        for at in range(0, len(texts), _MOST_AT_ONCE):
            part = texts[at : at + _MOST_AT_ONCE]
            found = self._ask("query_keys", topic, part, names, limits.rows, limits.size, verify_crc)
            yield from pa.ipc.open_stream(found)

    def first_offsets_from(self, wanted: Sequence[tuple[str, int, int, int, int]]) -> list[int]:
        return self._ask_in_parts("first_offsets_from", list(checked_searches(wanted)))

    def fences(self, positions: Sequence[tuple[str, int, int]]) -> list[Fence | None]:
        return self._ask_in_parts("fences", list(checked_places(positions)))

    def store_timestamp(self, topic: str, queue_id: int, offset: int) -> int:
        return raised(self.store_timestamps([(topic, queue_id, offset)])[0])

    def store_timestamps(self, positions: Sequence[tuple[str, int, int]]) -> list[int | CommitLogError]:
        return self._ask_in_parts("store_timestamps", list(checked_places(positions)))

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
        wanted_ms = checked_time(timestamp_ms, boundary)
        known = None if bounds is None else checked_bounds(bounds)
        place = checked_queue(topic, queue_id) if known is None else (known.topic, known.queue_id)
        found: list[int | CommitLogError] = self._ask_in_parts(
            "offsets_by_time", [(*place, wanted_ms, known)], boundary, checked_on_damage(on_damage or self._on_damage)
        )
        return raised(found[0])

    def offsets_by_time(
        self,
        wanted: Sequence[tuple[QueueInfo, GivenTime]],
        *,
        boundary: Literal["lower", "upper"] = "lower",
        on_damage: OnDamage | None = None,
    ) -> list[int | CommitLogError]:
        parts = [(one.topic, one.queue_id, checked_time(time, boundary), one) for one, time in checked_times(wanted)]
        return self._ask_in_parts("offsets_by_time", parts, boundary, checked_on_damage(on_damage or self._on_damage))

    def message_at(self, physical_offset: int, *, verify_crc: bool = True) -> MessageExt:
        found: MessageExt = self._ask("message_at", checked_int("physical_offset", physical_offset), bool(verify_crc))
        return found

    def message_by_id(self, message_id_text: str, *, verify_crc: bool = True) -> MessageExt:
        decode_message_id(message_id_text)
        found: MessageExt = self._ask("message_by_id", message_id_text, bool(verify_crc))
        return found

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
        most, *times = checked_query(topic, key, limit, begin, end)
        return list(self._ask("query", topic, key, *times, most, bool(verify_crc)))

    def batches(self) -> list[CommittedBatch]:
        return list(self._ask("batches"))

    def delay_levels(self) -> list[DelayLevel]:
        return list(self._ask("delay_levels"))

    def waiting_timers(self) -> pa.Table:
        parts, after = [], -1
        while True:
            part = pa.ipc.open_stream(self._ask("waiting_timers", after)).read_all()
            parts.append(part)
            if len(part) < MOST_TIMERS:
                return pa.concat_tables(parts)
            after = part["physicalOffset"][-1].as_py()

    def pending_half_messages(self) -> list[PendingHalfMessage]:
        return list(self._ask("pending_half_messages"))


def _next_part(ranges: Sequence[QueueOffsets], first: int, at: int, chunk: int) -> list[QueueOffsets]:
    """The ranges of one question for units: from offset ``at`` of the ``first`` one on."""
    wanted, size = [], 0
    for number in range(first, len(ranges)):
        topic, queue_id, start, stop = ranges[number]
        start = at if number == first else start
        wanted.append((topic, queue_id, start, min(stop, start + chunk)))
        size += stop - start
        if stop - start > chunk or size >= MOST_UNITS or len(wanted) == _MOST_AT_ONCE:
            break
    return wanted


def _ordered_ranges(ranges: Sequence[QueueOffsets]) -> list[QueueOffsets]:
    """Ranges that begin at or before their ends. ``InvalidValue``."""
    checked = checked_ranges(ranges)
    for *_, start, stop in checked:
        refuse_reversed(start, stop)
    return checked


def filter_texts(wanted: str | MessageFilter | None, tags: str | None) -> FilterTexts:
    """A filter as texts. ``FilterError``, ``InvalidValue``."""
    return FilterTexts.of(chosen_filter(tags, wanted, None))
