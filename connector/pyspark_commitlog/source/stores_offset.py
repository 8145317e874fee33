"""``StoresOffset``: the offset of a stream over one store or several, as JSON in Spark's checkpoint.

That of the only store of a plain path, whose name is empty, is as ``StreamOffset`` has it. That of named stores::

    {"version": 2,
     "stores": {"broker-a": {"version": 1, "offsets": ...},     the offset of each store, as of a stream over it alone
                "broker-b": {"version": 1, "offsets": ...}},
     "turn": "broker-b"}                                        whose oldest message comes first in the next batch

``turn`` exists once a limit has left messages for later. It makes planning repeatable from the offset alone, and lets
no store wait indefinitely: ages of messages are physical offsets, which cannot be compared between stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark_commitlog.errors import OffsetFormatError
from pyspark_commitlog.options.subscription import QueueKey
from pyspark_commitlog.source.stream_offset import OFFSET_VERSION, PACKED_VERSION, StreamOffset, malformed

SEVERAL_STORES_VERSION = 2
_OF_ONE_STORE = (OFFSET_VERSION, PACKED_VERSION)
_EXPECTED = f"version {SEVERAL_STORES_VERSION} with stores"


@dataclass(frozen=True, kw_only=True)
class StoresOffset:
    """One offset, immutable; the module's docstring explains its parts."""

    stores: Mapping[str, StreamOffset]
    turn: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The value that Spark writes as JSON. Keys are sorted, so equal offsets give equal text."""
        if "" in self.stores:
            return self.stores[""].to_json()
        value: dict[str, Any] = {
            "version": SEVERAL_STORES_VERSION,
            "stores": {name: self.stores[name].to_json() for name in sorted(self.stores)},
        }
        if self.turn is not None:
            value["turn"] = self.turn
        return value

    @classmethod
    def from_json(cls, value: object, names: Sequence[str]) -> StoresOffset:
        """Parse an offset of a query over the stores of these names. ``OffsetFormatError`` if this version did not
        write it, or not for them.

        The offset of a plain path becomes the only store's, also if that has a name now.
        """
        version = value.get("version") if isinstance(value, dict) else None
        if "" in names or (len(names) == 1 and version in _OF_ONE_STORE):
            return cls(stores={names[0]: StreamOffset.from_json(value)})
        if isinstance(version, bool) or not isinstance(value, dict) or not isinstance(version, int):
            raise malformed(_EXPECTED, value)
        if version > PACKED_VERSION:
            raise OffsetFormatError(
                f"The checkpoint holds offsets of version {version}; this pyspark-commitlog reads versions up to "
                f"{PACKED_VERSION}. The checkpoint was written by a newer one: update pyspark-commitlog, or "
                "start with a new checkpoint."
            )
        if version in _OF_ONE_STORE:
            raise OffsetFormatError(
                "The checkpoint holds the positions of one store without a name, and the option path names several. "
                "First run the query once with a name for that store alone, as in path=broker-a=/data/a; its positions "
                "are then that store's, and others may join."
            )
        stores, turn = value.get("stores"), value.get("turn")
        if (
            not isinstance(stores, dict)
            or value.keys() - {"version", "stores", "turn"}
            or not (turn is None or isinstance(turn, str))
        ):
            raise malformed(_EXPECTED, value)
        return cls(stores={name: StreamOffset.from_json(one) for name, one in stores.items()}, turn=turn)


def by_queue(store: str, values: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
    """Values of the queues of a store; the topics of a named one are ``store/topic``."""
    prefix = f"{store}/" if store else ""
    return {(f"{prefix}{topic}", queue_id): value for (topic, queue_id), value in values.items()}


def offset_by_queue(value: object) -> StreamOffset:
    """An offset of one store or of several; the topics of named stores are ``store/topic``. ``OffsetFormatError``."""
    if not isinstance(value, dict) or value.get("version") != SEVERAL_STORES_VERSION:
        return StreamOffset.from_json(value)
    offsets: dict[QueueKey, int] = {}
    batch_starts: dict[QueueKey, int] = {}
    for store, one in StoresOffset.from_json(value, ()).stores.items():
        offsets |= by_queue(store, one.offsets)
        batch_starts |= by_queue(store, one.batch_starts)
    return StreamOffset(offsets=offsets, batch_starts=batch_starts)


def planned_by_queue(start: object, end: object) -> dict[QueueKey, tuple[int, int]]:
    """What the batch between two offsets reads, as ``offset_by_queue`` names queues. ``OffsetFormatError``.

    Without new messages Spark has the end of the batch before as both, and that says where the batch before began.
    """
    ends = offset_by_queue(end)
    if start == end:
        return {}
    starts = {} if start is None else offset_by_queue(start).offsets
    return {
        key: (begin, stop)
        for key, stop in sorted(ends.offsets.items())
        if (begin := ends.batch_starts.get(key, starts.get(key, stop))) < stop
    }
