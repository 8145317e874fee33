"""Writes store directories of any shape for tests and benchmarks, through the package's own encoders.

It is not a store: no lock, no flush, no recovery. That it writes what RocketMQ writes is shown by the golden
tests of the encoders, which encode real records again and compare bytes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from commitlog_store.columnar.byte_parts import large_binary_of
from commitlog_store.columnar.records import EncodedRecords, TopicRows, encode_records, new_headers, patch_late_fields
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, UNIT_FILE_DTYPE, UNIT_SIZE
from commitlog_store.format.index_file import INDEX_ENTRY_DTYPE, IndexHeader, encode_header, file_size
from commitlog_store.format.java_hash import index_key_hash
from commitlog_store.format.record import encode_filler
from commitlog_store.paths import ABORT, file_name_for_offset, parse_file_name
from tests.support.encoders import tags_code

STORE_HOST = (bytes([10, 1, 2, 3]), 10911)
BORN_HOST = (bytes([192, 168, 1, 9]), 40000)
FIRST_STORE_TIME = 1_700_000_000_000


@dataclass
class StoreBuilder:
    """A store directory that grows. ``log_start`` and ``queue_start`` make one that begins late."""

    path: Path
    log_file_size: int = 1 << 20
    queue_file_units: int = 2000
    log_start: int = 0
    next_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    now_ms: int = FIRST_STORE_TIME

    def __post_init__(self) -> None:
        self.position = self.log_start
        for name in ("commitlog", "consumequeue", "index", "config"):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        (self.path / "checkpoint").write_bytes(bytes(4096))
        (self.path / "lock").write_bytes(b"lock")

    def write_abort(self) -> None:
        """From here on an owner runs, or has crashed: it makes the file when it starts and removes it when it stops."""
        (self.path / ABORT).write_bytes(b"")

    def append(
        self,
        topic: str,
        queue_ids: int | Sequence[int],
        bodies: Sequence[bytes] | pa.BinaryArray,
        *,
        tags: Sequence[str] | str = "paid",
        keys: Sequence[str] | None = None,
        more: str | Sequence[str] = "",
        sys_flag: int = 0,
        step_ms: int = 1,
        born_timestamp: int | None = None,
        queue_step: int = 1,
    ) -> np.ndarray:
        """Append one message per body; ``queue_ids`` is one queue, or several taken in turn. Gives physical offsets.

        ``more`` is further properties, as stored, of all or of each; ``sys_flag`` says what the bodies are (hosts are
        IPv4). Store times go up by ``step_ms`` a message, and queue offsets by ``queue_step``;
        ``born_timestamp`` (ms) is that of all.
        """
        count = len(bodies)
        turns = [queue_ids] if isinstance(queue_ids, int) else list(queue_ids)
        queue_of = np.resize(np.array(turns, np.int64), count)
        offsets = np.empty(count, np.int64)
        for queue_id in set(turns):
            rows = queue_of == queue_id
            first = self.next_offsets.get((topic, queue_id), 0)
            offsets[rows] = np.arange(first, first + int(rows.sum()) * queue_step, queue_step)
            self.next_offsets[topic, queue_id] = first + int(rows.sum()) * queue_step
        times = self.now_ms + np.arange(count) * step_ms
        self.now_ms += count * step_ms
        tag_list = [tags] * count if isinstance(tags, str) else list(tags)
        # Most stores repeat one text, which is made once.
        same = isinstance(tags, str) and keys is None and isinstance(more, str)
        texts = _property_texts(tag_list[:1], keys, more) * count if same else _property_texts(tag_list, keys, more)
        headers = new_headers(count)
        headers["queue_id"] = queue_of
        headers["sys_flag"] = sys_flag
        headers["born_timestamp"] = times - 5 if born_timestamp is None else born_timestamp
        for which, (ip, port) in (("born", BORN_HOST), ("store", STORE_HOST)):
            headers[f"{which}_ip"] = np.void(ip)
            headers[f"{which}_port"] = port
        array = large_binary_of(bodies if isinstance(bodies, pa.Array) else pa.array(bodies, pa.binary()))
        topics = TopicRows([topic], np.zeros(count, np.int32))
        records = encode_records(headers, array, topics, [pa.array(texts, pa.large_binary())])
        places = self._place(records.sizes)
        records = patch_late_fields(
            records, host_flags=0, queue_offsets=offsets, physical_offsets=places, store_timestamps=times
        )
        self._write_log(records, places)
        codes = {tag: tags_code(tag) for tag in set(tag_list)}
        units = np.zeros(count, UNIT_FILE_DTYPE)
        units["physical_offset"], units["size"] = places, records.sizes
        units["tags_code"] = [codes[tag] for tag in tag_list]
        for queue_id in sorted(set(turns)):
            rows = np.flatnonzero(queue_of == queue_id)
            if len(rows):
                self.write_units(topic, queue_id, int(offsets[rows[0]]), units[rows])
        return places

    def pad_queue(self, topic: str, queue_id: int, count: int) -> None:
        """Begin a queue with ``count`` fillers, as RocketMQ does for one that starts late."""
        units = np.zeros(count, UNIT_FILE_DTYPE)
        units["size"] = FILLER_SIZE
        self.write_units(topic, queue_id, 0, units)
        self.next_offsets[topic, queue_id] = count

    def start_queue_at(self, topic: str, queue_id: int, offset: int) -> None:
        """The next message of the queue gets this offset (a queue whose first files are gone)."""
        self.next_offsets[topic, queue_id] = offset

    def write_units(self, topic: str, queue_id: int, first: int, units: np.ndarray) -> None:
        directory = self.path / "consumequeue" / topic / str(queue_id)
        directory.mkdir(parents=True, exist_ok=True)
        at = 0
        while at < len(units):
            offset = first + at
            base = offset - offset % self.queue_file_units
            count = min(len(units) - at, base + self.queue_file_units - offset)
            path = directory / file_name_for_offset(base * UNIT_SIZE)
            _write(
                path, self.queue_file_units * UNIT_SIZE, (offset - base) * UNIT_SIZE, units[at : at + count].tobytes()
            )
            at += count

    def _place(self, sizes: np.ndarray) -> np.ndarray:
        """Physical offsets of records of these sizes; a record that does not fit ends its file with a filler."""
        places = np.empty(len(sizes), np.int64)
        ends = np.cumsum(sizes)
        at = 0
        while at < len(sizes):
            begun = int(ends[at - 1]) if at else 0
            left = self.log_file_size - self.position % self.log_file_size
            fitting = int(np.searchsorted(ends, begun + left - 8, side="right"))
            if fitting > at:
                places[at:fitting] = self.position + ends[at:fitting] - sizes[at:fitting] - begun
                self.position += int(ends[fitting - 1]) - begun
                at = fitting
            else:
                assert left < self.log_file_size, "a message larger than a CommitLog file"
                self._write_at(self.position, encode_filler(left))
                self.position += left
        return places

    def _write_log(self, records: EncodedRecords, places: np.ndarray) -> None:
        jumps = np.flatnonzero(np.diff(places) != records.sizes[:-1]) + 1
        bounds = [0, *jumps.tolist(), len(places)]
        for start, stop in pairwise(bounds):
            if stop > start:
                self._write_at(int(places[start]), records.data[records.starts[start] : records.starts[stop]].data)

    def _write_at(self, physical_offset: int, data: bytes | memoryview) -> None:
        base = physical_offset - physical_offset % self.log_file_size
        path = self.path / "commitlog" / file_name_for_offset(base)
        _write(path, self.log_file_size, physical_offset - base, data)

    def delete_log_files(self, count: int) -> None:
        """What retention does: the oldest CommitLog files go."""
        for path in sorted((self.path / "commitlog").iterdir())[:count]:
            path.unlink()

    def truncate(self, physical_offset: int) -> None:
        """Cut as recovery after a crash does: the log ends there, each queue before its first message after that."""
        self._truncate_log(physical_offset)
        for topic, queue_id in list(self.next_offsets):
            self._truncate_queue(topic, queue_id, physical_offset)

    def _truncate_log(self, physical_offset: int) -> None:
        for base, path in _numbered_files(self.path / "commitlog"):
            if base >= physical_offset:
                path.unlink()
            elif base + self.log_file_size > physical_offset:
                os.truncate(path, physical_offset - base)
                os.truncate(path, self.log_file_size)
        self.position = min(self.position, physical_offset)

    def _truncate_queue(self, topic: str, queue_id: int, physical_offset: int) -> None:
        for base, path in _numbered_files(self.path / "consumequeue" / topic / str(queue_id)):
            units = np.fromfile(path, UNIT_FILE_DTYPE)
            lost = (units["size"] > 0) & (units["physical_offset"] >= physical_offset)
            if not lost.any():
                continue
            first = int(np.argmax(lost))
            end = base // UNIT_SIZE + first
            self.next_offsets[topic, queue_id] = min(self.next_offsets[topic, queue_id], end)
            if first:
                units[first:] = 0
                path.write_bytes(units.tobytes())
            else:
                path.unlink()

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """What deleting a topic does to each queue. It begins at 0 when it is written again."""
        shutil.rmtree(self.path / "consumequeue" / topic / str(queue_id))
        del self.next_offsets[topic, queue_id]

    def write_index(self, name: str, entries: Sequence[tuple[str, int, int]], *, slots: int = 1000) -> Path:
        """An index file of ``(topic#key, physical offset, store time)`` entries, four places a slot."""
        capacity = slots * 4
        assert len(entries) < capacity
        hashes = np.array([index_key_hash(key) for key, _, _ in entries], np.int64)
        begin = entries[0][2]
        table = np.zeros(len(entries) + 1, INDEX_ENTRY_DTYPE)
        used = table[1:]
        used["key_hash"] = hashes
        used["physical_offset"] = [offset for _, offset, _ in entries]
        used["seconds"] = [(time - begin) // 1000 for _, _, time in entries]
        slot_of = hashes % slots
        order = np.argsort(slot_of, kind="stable")
        same = np.append(False, slot_of[order][1:] == slot_of[order][:-1])
        previous = np.zeros(len(entries), np.int64)
        previous[order[same]] = order[np.flatnonzero(same) - 1] + 1
        used["previous"] = previous
        heads = np.zeros(slots, ">i4")
        heads[slot_of] = np.arange(1, len(entries) + 1)
        header = IndexHeader(
            begin, entries[-1][2], entries[0][1], entries[-1][1], int(np.count_nonzero(heads)), len(entries) + 1
        )
        path = self.path / "index" / name
        _write(path, file_size(slots, capacity), 0, encode_header(header) + heads.tobytes() + table.tobytes())
        return path


def _property_texts(tags: Sequence[str], keys: Sequence[str] | None, more: str | Sequence[str]) -> list[bytes]:
    others = [more] * len(tags) if isinstance(more, str) else more
    if keys is None:
        return [f"TAGS\x01{tag}\x02{other}".encode() for tag, other in zip(tags, others, strict=True)]
    rows = zip(tags, keys, others, strict=True)
    return [f"KEYS\x01{key}\x02{other}TAGS\x01{tag}\x02".encode() for tag, key, other in rows]


def _numbered_files(directory: Path) -> list[tuple[int, Path]]:
    """The files of a directory that are named by an offset, with it, in order."""
    return sorted((base, path) for path in directory.iterdir() if (base := parse_file_name(path.name)) is not None)


def _write(path: Path, file_size: int, position: int, data: bytes | memoryview) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(descriptor).st_size < file_size:
            os.truncate(descriptor, file_size)
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, position)
            view, position = view[written:], position + written
    finally:
        os.close(descriptor)
