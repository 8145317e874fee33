"""RemoteReader: ``StoreReader`` of a store that ``commitlog serve`` shows at another place.

What a question finds out is found out by the server, in one round trip for any number of queues. What a read gives is
decoded here, from the bytes of records that the server sends.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeVar

import numpy as np
import pyarrow as pa

from commitlog_store.batch_id import CommittedBatch
from commitlog_store.columnar.columns import DEFAULT_COLUMNS, arrow_schema
from commitlog_store.delayed.levels import DelayLevel
from commitlog_store.errors import InvalidValue, StoreBusy
from commitlog_store.files import disk
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.format.checkpoint import Checkpoint
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, UNIT_DTYPE
from commitlog_store.format.message_rules import check_queue_place
from commitlog_store.groups.group_settings import ConsumerFilter, SubscriptionGroupConfig
from commitlog_store.groups.positions import DeadLetters, GroupPosition
from commitlog_store.half_message import PendingHalfMessage
from commitlog_store.index.service import IndexFileInfo
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.key_lookup import WantedKeys
from commitlog_store.log.past_damage import Gap
from commitlog_store.message import MessageExt
from commitlog_store.queue.consume_queue import Units
from commitlog_store.queue.derived_queues import Stray
from commitlog_store.queue.fence import Fence
from commitlog_store.queue.get_message import (
    DEFAULT_PULL_BYTES,
    DEFAULT_PULL_MESSAGES,
    GetMessageResult,
    checked_count,
    checked_int,
    wait_for_match,
)
from commitlog_store.queue.log_blocks import DEFAULT_ROWS, DEFAULT_SIZE
from commitlog_store.queue.skipped import SkippedRange
from commitlog_store.reader import OnDamage, QueueInfo, StoreReader
from commitlog_store.remote.blocks import RemoteBlocks
from commitlog_store.remote.connection import Connection, RemoteAddress
from commitlog_store.remote.wire import FilterTexts
from commitlog_store.timestamps import GivenTime, checked_seconds, milliseconds_of

_T = TypeVar("_T")

# A wait is asked for in parts: the server's threads are bounded, and Ctrl-C works between two of them.
_WAIT_SECONDS = 1.0
# So often a question of several parts is asked again while retention deletes files.
_MOST_LOOKS = 10
_TOKEN_VARIABLE = "COMMITLOG_TOKEN"
_CERTIFICATES_VARIABLE = "COMMITLOG_TLS_ROOT_CERTIFICATES"
_LARGEST_PEM = 1 << 20
# Keys in one question.
_KEYS_AT_ONCE = 4_096


class _RemoteQueue:
    """A queue of a store at a server: see ``QueueView``."""

    fillers_are_lost = False

    def __init__(self, reader: RemoteReader, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._reader = reader

    def bounds(self) -> tuple[int, int]:
        info = self._reader.queue_info(self.topic, self.queue_id)
        return info.min_offset, info.max_offset

    def last_unit(self) -> tuple[int, int]:
        low, high = self.bounds()
        unit = self.unit(high - 1) if low < high else None
        return (-1, 0) if unit is None else (high - 1, unit[0])

    def first_offset_from(self, physical_offset: int, start: int, stop: int) -> int:
        return self._reader.first_offset_from(self.topic, self.queue_id, physical_offset, start, stop)

    def place_of(self, offset: int) -> tuple[str, int]:
        return self._reader.path, offset

    def unit(self, offset: int) -> tuple[int, int] | None:
        found = next(self.units(offset, offset + 1))[0]
        return None if found["size"] == FILLER_SIZE else (int(found["physical_offset"]), int(found["size"]))

    def units(self, start: int, stop: int, *, chunk: int = 1_000_000, check: bool = True) -> Iterator[Units]:
        del check  # the server's reader was opened with the way to treat damage
        return self._reader.units(self.topic, self.queue_id, start, stop, chunk=chunk)


class _RemoteCatalog:
    """The queues of a store at a server: see ``CatalogView``."""

    def __init__(self, reader: RemoteReader) -> None:
        self._reader = reader

    def topics(self) -> list[str]:
        return self._reader.topics()

    def queue_ids(self, topic: str) -> list[int]:
        return self._reader.queue_ids(topic)

    def queue(self, topic: str, queue_id: int) -> _RemoteQueue:
        return _RemoteQueue(self._reader, topic, queue_id)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self.queue(topic, queue_id).bounds()


class RemoteReader(StoreReader):
    """Made by ``StoreReader.open("grpc://host:8815")``."""

    def __init__(self, address: RemoteAddress, *, on_damage: OnDamage = "raise") -> None:
        self.address = address
        self.path = str(address)
        self._connection = Connection(address)
        self._on_damage = on_damage
        self._skipped: list[SkippedRange] = []
        self._on_read = None
        self._closed = False
        self._blocks = RemoteBlocks(self._connection)
        self._catalog = _RemoteCatalog(self)
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
    ) -> RemoteReader:
        """``RemoteFailed`` if no server answers, and the errors of opening the store there.

        What is not given comes from the environment: ``COMMITLOG_TOKEN``, and the file that
        ``COMMITLOG_TLS_ROOT_CERTIFICATES`` names.
        """
        certificates = os.environ.get(_CERTIFICATES_VARIABLE)
        if tls_root_certificates is None and certificates:
            tls_root_certificates = disk.read_file(certificates, _LARGEST_PEM)
        address = RemoteAddress.parse(
            url,
            token=token or os.environ.get(_TOKEN_VARIABLE) or None,
            tls_root_certificates=tls_root_certificates,
            timeout_s=checked_seconds("rpc_timeout", rpc_timeout_s),
        )
        reader = cls(address, on_damage=on_damage)
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
        return (RemoteReader, (self.address,), {"_on_damage": self._on_damage})

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

    def topics(self) -> list[str]:
        return list(self._ask("topics"))

    def queue_ids(self, topic: str) -> list[int]:
        return list(self._ask("queue_ids", topic))

    def queues(self, topic: str) -> list[QueueInfo]:
        return list(self._ask("queues_of", [topic]))

    def queue_infos(
        self, queues: Iterable[tuple[str, int]] | Callable[[], Iterable[tuple[str, int]]]
    ) -> list[QueueInfo]:
        return list(self._ask("queue_infos", list(queues() if callable(queues) else queues)))

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
        return list(self._ask("groups", group, now_ms))

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        return {(topic, queue_id): offset for topic, queue_id, offset in self._ask("group_offsets", group)}

    def dead_letters(self, group: str | None = None) -> list[DeadLetters]:
        return list(self._ask("dead_letters", group))

    def log_start(self) -> int:
        self._ask("aborted")  # any question: each answer has it
        return self._log_start

    def group_settings(self, group: str | None = None) -> list[SubscriptionGroupConfig]:
        return list(self._ask("group_settings", group))

    def group_filters(self, group: str | None = None) -> list[ConsumerFilter]:
        return list(self._ask("group_filters", group))

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

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int = DEFAULT_PULL_MESSAGES,
        *,
        max_bytes: int = DEFAULT_PULL_BYTES,
        filter: str | MessageFilter | None = None,  # noqa: A002
        tags: str | None = None,
        wait_s: float = 0.0,
    ) -> GetMessageResult:
        wanted = _texts(filter, tags)
        count, size = checked_count("max_messages", max_messages), checked_count("max_bytes", max_bytes)

        def look(position: int) -> GetMessageResult:
            found: GetMessageResult = self._ask("get_message", topic, queue_id, position, count, size, wanted)
            return found

        return wait_for_match(
            look,
            lambda position, left: self.wait_for_any({(topic, queue_id): position}, left),
            checked_int("offset", offset),
            checked_seconds("wait_s", wait_s),
        )

    def wait_for_any(self, positions: Mapping[tuple[str, int], int], timeout_s: float | None = None) -> bool:
        deadline = None if timeout_s is None else time.monotonic() + checked_seconds("timeout_s", timeout_s)
        for (topic, queue_id), offset in positions.items():
            check_queue_place(topic, queue_id, offset)
        wanted = [(topic, queue_id, offset) for (topic, queue_id), offset in positions.items()]
        while True:
            left = _WAIT_SECONDS if deadline is None else max(deadline - time.monotonic(), 0.0)
            if self._ask("wait_for_any", wanted, min(left, _WAIT_SECONDS)):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def units(self, topic: str, queue_id: int, start: int, stop: int, *, chunk: int = 1_000_000) -> Iterator[Units]:
        low, high = self._check_range(topic, queue_id, start, stop)
        return self._units(topic, queue_id, low, high, checked_count("chunk", chunk))

    def _units(self, topic: str, queue_id: int, at: int, stop: int, chunk: int) -> Iterator[Units]:
        while at < stop:
            found = np.frombuffer(self._ask("units", topic, queue_id, at, min(stop, at + chunk)), UNIT_DTYPE)
            yield found
            at += len(found)

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
        names = arrow_schema(columns).names
        texts = WantedKeys(keys).all.to_pylist()
        for at in range(0, len(texts), _KEYS_AT_ONCE):
            part = texts[at : at + _KEYS_AT_ONCE]
            found = self._ask("query_keys", topic, part, names, max_batch_rows, max_batch_bytes, verify_crc)
            yield from pa.ipc.open_stream(found)

    def first_offset_from(self, topic: str, queue_id: int, physical_offset: int, start: int, stop: int) -> int:
        return int(self._ask("first_offsets_from", [(topic, queue_id, physical_offset, start, stop)])[0])

    def fence(self, topic: str, queue_id: int, offset: int) -> Fence | None:
        found: Fence | None = self._ask("fences", [(topic, queue_id, offset)])[0]
        return found

    def store_timestamp(self, topic: str, queue_id: int, offset: int) -> int:
        return int(self._ask("store_timestamps", [(topic, queue_id, offset)])[0])

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
        wanted = milliseconds_of(timestamp_ms, "timestamp_ms")
        how = on_damage or self._on_damage
        return int(self._ask("offsets_by_time", [(topic, queue_id, wanted, bounds)], boundary, how)[0])

    def message_at(self, physical_offset: int, *, verify_crc: bool = True) -> MessageExt:
        found: MessageExt = self._ask("message_at", physical_offset, verify_crc)
        return found

    def message_by_id(self, message_id_text: str, *, verify_crc: bool = True) -> MessageExt:
        found: MessageExt = self._ask("message_by_id", message_id_text, verify_crc)
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
        times = milliseconds_of(begin, "begin"), milliseconds_of(end, "end")
        return list(self._ask("query", topic, key, *times, checked_count("limit", limit), verify_crc))

    def batches(self) -> list[CommittedBatch]:
        return list(self._ask("batches"))

    def delay_levels(self) -> list[DelayLevel]:
        return list(self._ask("delay_levels"))

    def pending_half_messages(self) -> list[PendingHalfMessage]:
        return list(self._ask("pending_half_messages"))


def _texts(wanted: str | MessageFilter | None, tags: str | None) -> FilterTexts:
    """A filter as texts. ``FilterError``, ``InvalidValue``."""
    if not isinstance(wanted, MessageFilter):
        wanted = MessageFilter.parse(tags=tags, filter=wanted)
    elif tags is not None:
        raise InvalidValue("A MessageFilter has tags of its own; give them to MessageFilter.parse.")
    return FilterTexts(
        None if wanted.tags is None else " || ".join(wanted.tags.tags),
        wanted.text,
        None if wanted.keys is None else list(wanted.keys.keys),
    )
