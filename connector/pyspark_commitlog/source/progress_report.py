"""``ProgressReport``: what a stream reports to Spark beside its batches, in ``latestOffset`` of a progress event.

::

    {"version": 1, "offsets": ..., "from": ...,          the ends and first offsets of the queues, once they were seen
     "source": {"path": "/data/store", "run": "5e0c..."},  which source of the query it is, and which run of it
     "oldest": {"orders": {"0": 1769860800000}}}           store times of messages that wait, of some queues

Spark shows it, and keeps it nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_commitlog.errors import OffsetFormatError
from pyspark_commitlog.options.subscription import QueueKey
from pyspark_commitlog.source.stores_offset import offset_by_queue
from pyspark_commitlog.source.stream_offset import StreamOffset
from pyspark_commitlog.spark_versions import HAS_READ_LIMITS


@dataclass(frozen=True, kw_only=True)
class ProgressReport:
    """The parts of a report; the module's docstring explains them. ``ends`` is None before the first look."""

    ends: StreamOffset | None
    path: str = ""
    run: str = ""
    oldest: Mapping[QueueKey, int] = field(default_factory=dict)

    @classmethod
    def to_json(
        cls, ends: dict[str, Any] | None, *, path: str, run: str, oldest: Mapping[QueueKey, int]
    ) -> dict[str, Any]:
        """The value for Spark."""
        value = {**(ends or {}), "source": {"path": path, "run": run}}
        if oldest:
            nested: dict[str, dict[str, int]] = {}
            for topic, queue_id in sorted(oldest):
                nested.setdefault(topic, {})[str(queue_id)] = oldest[topic, queue_id]
            value["oldest"] = nested
        return value

    @classmethod
    def from_text(cls, text: str | None) -> ProgressReport | None:
        """The report in ``latestOffset`` of a source; None if it is not this package's, and before PySpark 4.2."""
        if not HAS_READ_LIMITS:
            return None  # Spark shows the end of the batch there, which would be a lag of 0
        try:
            value = json.loads(text or "null")
            if not isinstance(value, dict):
                return None
            source, oldest = value.pop("source", {}), value.pop("oldest", {})
            return cls(
                ends=offset_by_queue(value) if value else None,
                path=str(source.get("path", "")),
                run=str(source.get("run", "")),
                oldest={
                    (str(topic), int(queue_id)): int(stored)
                    for topic, queues in oldest.items()
                    for queue_id, stored in queues.items()
                },
            )
        except (OffsetFormatError, ValueError, TypeError, AttributeError):
            return None
