"""The contents of a store: the log byte by byte, and queues and index by a reader, compared with the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from commitlog_store import StoreReader
from commitlog_store.errors import TopicNotFound
from commitlog_store.format.properties import KEYS, UNIQ_KEY, decode_properties
from commitlog_store.format.record import Filler, Record, Unwritten, decode_record
from commitlog_store.format.sys_flag import TRANSACTION_ROLLBACK_TYPE, has_queue_unit, transaction_type


class Stored(NamedTuple):
    """One record of the log. ``queue_offset`` is -1 for a half message, which is in no queue."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    properties: bytes
    keys: tuple[str, ...]

    @property
    def end(self) -> int:
        return self.physical_offset + self.size


def log_records(store: Path, *, recovered: bool = True) -> list[Stored]:
    """Every record of the log, up to its end. The bytes after the end are zero (invariant 4).

    Not yet if the store was not ``recovered``: a process that is killed loses what lies in the transient pool,
    the head of a batch whose end is in the next file already, say.
    """
    found: list[Stored] = []
    ended = False
    files = sorted(path for path in (store / "commitlog").iterdir() if path.name.isdigit())
    for path in files:
        base, data = int(path.name), memoryview(path.read_bytes())
        at = 0
        while not ended and at < len(data):
            match decode_record(data[at:], physical_offset=base + at):
                case Record() as record:
                    found.append(_stored(record))
                    at += record.total_size
                case Filler(size) if at + size == len(data):
                    break
                case Unwritten():
                    ended = True
                case other:
                    raise AssertionError(f"at {base + at} stands {other}")
        assert not ended or not recovered or not any(data[at:]), f"old bytes after the log's end at {base + at}"
    return found


def _stored(record: Record) -> Stored:
    properties = decode_properties(record.properties)
    keys = [properties[UNIQ_KEY]] if UNIQ_KEY in properties else []
    keys += properties.get(KEYS, "").split()
    if transaction_type(record.sys_flag) == TRANSACTION_ROLLBACK_TYPE:
        keys = []
    return Stored(
        record.physical_offset,
        record.total_size,
        record.topic.decode(errors="replace"),
        record.queue_id,
        record.queue_offset if has_queue_unit(record.sys_flag) else -1,
        record.body,
        record.properties,
        tuple(keys),
    )


def check_store(store: Path, there: Sequence[Stored]) -> None:
    """Queues and index of a store whose log holds these records lead to all of them, and to nothing else."""
    queues: dict[tuple[str, int], list[Stored]] = defaultdict(list)
    indexed: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for record in there:
        if record.queue_offset >= 0:
            queues[record.topic, record.queue_id].append(record)
        for key in record.keys:
            indexed[record.topic][key].append(record.physical_offset)
    with StoreReader.open(store) as reader:
        for (topic, queue_id), records in queues.items():
            offsets = [record.queue_offset for record in records]
            assert offsets == list(range(len(records))), f"offsets of {topic}/{queue_id}: {offsets} (invariant 6)"
            columns = ["queueOffset", "physicalOffset", "body"]
            rows = [
                row
                for batch in reader.read(topic, queue_id, 0, columns=columns, verify_crc=True)
                for row in zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
            ]
            wanted = [(record.queue_offset, record.physical_offset, record.body) for record in records]
            assert rows == wanted, f"queue {topic}/{queue_id}"
        for topic in reader.topics():
            try:
                infos = reader.queues(topic)
            except TopicNotFound:
                continue
            for info in infos:
                count = len(queues[topic, info.queue_id])
                assert (info.min_offset, info.max_offset) == (0, count), f"bounds of {topic}/{info.queue_id}"
        for topic, keys in indexed.items():
            batches = reader.query_keys(topic, list(keys), columns=["physicalOffset"])
            newest = [place for batch in batches for place in batch.column("physicalOffset").to_pylist()]
            assert newest == [places[-1] for places in keys.values()], f"keys {list(keys)} of topic {topic}"
            # The newest message of a key says nothing of the older ones.
            alone = list(keys)[-1]
            for key in [key for key, places in keys.items() if len(places) > 1 or key == alone]:
                hits = [message.physical_offset for message in reader.query(topic, key, limit=1000)]
                assert hits == keys[key], f"key {key} of topic {topic} leads to {hits}, not to {keys[key]}"
