"""``share_partitions``: shares ``minPartitions`` among several stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark_commitlog.source.partitions import QueueRange

__all__ = ["share_partitions"]


def share_partitions(wanted: Mapping[str, Sequence[QueueRange]], least: int | None) -> dict[str, int | None]:
    """The ``minPartitions`` of each store: by its messages, rounded up, so that the sum is at least ``least``."""
    if least is None:
        return dict.fromkeys(wanted)
    rows = {name: sum(one.stop - one.start for one in ranges) for name, ranges in wanted.items()}
    total = max(1, sum(rows.values()))
    return {name: max(1, -(-least * count // total)) for name, count in rows.items()}
