"""``StreamOffset``: the offset of a stream, as JSON in Spark's checkpoint.

::

    {"version": 1,
     "offsets": {"orders": {"0": 23}},                 the next queue offset to read, by topic and queue id
     "fence":   {"orders": {"0": [81920, 305419896]}}, the message at the offset before: physical offset, CRC
     "from":    {"orders": {"0": 5}},                  where the batch that ends here began (see below)
     "initial": true}                                  only in what initialOffset gives

From 256 queues on it is packed: PySpark parses and writes an offset several times a trigger, the idle ones included, at
some microseconds for each queue (docs/decisions/0058-packed-offsets.md)::

    {"version": 3, "packed": "eAG9k0tuwzAMRK..."}      the value above, of version 1, as one string: ``pack_json``

``fence`` exists for every queue from which a message was read. If the store loses its tail and grows again, other
messages get the same queue offsets, and only the fence shows it.

``from`` makes a batch repeatable where the offset before it does not say where the queue began. Spark writes the end
of a batch to the checkpoint before it runs it, but never the start of the first batch: it calls ``initialOffset``
again after a crash, and even twice within one run, and by then ``latest`` is another offset. The same holds for a queue
that was new in a batch, and for one whose position moved because messages were lost. So the end of the batch contains
those starts. Spark compares offsets as JSON text: the same value must always become the same text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from commitlog_store import Fence
from commitlog_store.packed_json import pack_json, unpack_json
from pyspark_commitlog.errors import OffsetFormatError
from pyspark_commitlog.options.subscription import QueueKey
from pyspark_commitlog.options.values import is_count

OFFSET_VERSION = 1
PACKED_VERSION = 3  # 2 is that of named stores
# The fewest queues whose offset is packed. Smaller ones can be read by people.
PACKED_FROM = 256

_V = TypeVar("_V")


@dataclass(frozen=True, kw_only=True)
class StreamOffset:
    """One offset of a stream, immutable; the module's docstring explains its parts."""

    offsets: Mapping[QueueKey, int]
    fences: Mapping[QueueKey, Fence] = field(default_factory=dict)
    batch_starts: Mapping[QueueKey, int] = field(default_factory=dict)
    initial: bool = False

    @cached_property
    def newest_read(self) -> Fence | None:
        """The fence of the message that is the last one in the log of those before a position."""
        return max(self.fences.values(), default=None)

    def to_json(self) -> dict[str, Any]:
        """The value that Spark writes as JSON. Keys are sorted, so equal offsets give equal text."""
        packs = len(self.offsets) >= PACKED_FROM
        # Packed, a fence is a list in any case.
        fences = self.fences if packs else {key: list(fence) for key, fence in self.fences.items()}
        value: dict[str, Any] = {
            "version": OFFSET_VERSION,
            "offsets": _nested(self.offsets),
            "fence": _nested(fences),
        }
        if self.batch_starts:
            value["from"] = _nested(self.batch_starts)
        if self.initial:
            value["initial"] = True
        return {"version": PACKED_VERSION, "packed": pack_json(value)} if packs else value

    @classmethod
    def from_json(cls, value: object) -> StreamOffset:
        """Parse an offset, packed or not. ``OffsetFormatError`` if this version did not write it."""
        if not isinstance(value, dict):
            raise malformed("a JSON object", value)
        version = value.get("version")
        if version == PACKED_VERSION:
            return cls._from_plain(_unpacked(value))
        if version == 2 and isinstance(value.get("stores"), dict):
            named = ",".join(f"{name}=..." for name in value["stores"])
            raise OffsetFormatError(
                f"The checkpoint holds the positions of named stores, and the option path is a plain path. Name the "
                f"stores as the query did before: path={named}"
            )
        if isinstance(version, int) and not isinstance(version, bool) and version > OFFSET_VERSION:
            raise OffsetFormatError(
                f"The checkpoint holds offsets of version {version}; this pyspark-commitlog reads the versions "
                f"{OFFSET_VERSION} and {PACKED_VERSION} here. The checkpoint was written by a newer one: update "
                f"pyspark-commitlog, or start with a new checkpoint."
            )
        return cls._from_plain(value)

    @classmethod
    def _from_plain(cls, value: dict[str, Any]) -> StreamOffset:
        """Parse an offset that is not packed."""
        version = value.get("version")
        if version != OFFSET_VERSION or isinstance(version, bool):
            raise malformed(f"version {OFFSET_VERSION}", value.get("version", value))
        unknown = value.keys() - {"version", "offsets", "fence", "from", "initial"}
        if unknown:
            raise malformed("no other keys than version, offsets, fence, from, initial", sorted(map(str, unknown)))
        if "offsets" not in value:
            raise malformed("the key offsets", sorted(value))
        return cls(
            offsets=_flat("offsets", value["offsets"], _count),
            fences=_flat("fence", value.get("fence", {}), _fence),
            batch_starts=_flat("from", value.get("from", {}), _count),
            initial=value.get("initial") is True,
        )


def _unpacked(value: dict[str, Any]) -> dict[str, Any]:
    """The offset that is not packed, of one that is."""
    try:
        found = unpack_json(value.get("packed"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or value.keys() != {"version", "packed"}:
        raise malformed("a packed offset", value)
    return found


def _nested(flat: Mapping[QueueKey, _V]) -> dict[str, dict[str, _V]]:
    nested: dict[str, dict[str, _V]] = {}
    for key in sorted(flat):
        nested.setdefault(key[0], {})[str(key[1])] = flat[key]
    return nested


def _flat(part: str, nested: object, convert: Callable[[object], _V | None]) -> dict[QueueKey, _V]:
    if not isinstance(nested, dict):
        raise malformed(f"an object under {part}", nested)
    flat: dict[QueueKey, _V] = {}
    for topic, queues in nested.items():
        if not isinstance(queues, dict):
            raise malformed(f"an object of queue ids under {part} for topic {topic!r}", queues)
        for queue_text, raw in queues.items():
            converted = convert(raw)
            # Spark makes every key a string; a number is accepted too, for offsets built in Python.
            if converted is None or re.fullmatch(r"[0-9]{1,10}", str(queue_text)) is None:
                raise malformed(f"good values under {part} for topic {topic!r}", {queue_text: raw})
            flat[str(topic), int(queue_text)] = converted
    return flat


def _count(raw: object) -> int | None:
    return raw if is_count(raw) else None


def _fence(raw: object) -> Fence | None:
    if not isinstance(raw, list | tuple) or len(raw) != 2:
        return None
    physical_offset, crc = _count(raw[0]), _count(raw[1])
    return None if physical_offset is None or crc is None else Fence(physical_offset, crc)


def malformed(expected: str, found: object) -> OffsetFormatError:
    """The error for an offset that this version did not write."""
    return OffsetFormatError(
        f"An offset of this query cannot be read: expected {expected}, found {str(found)[:200]!r}. The checkpoint was "
        "damaged, or belongs to another source, such as Kafka's. Use the checkpoint of this query, or start with a new "
        "checkpoint; the query then begins at startingOffsets."
    )
