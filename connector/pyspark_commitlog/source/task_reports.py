"""Task reports: what the tasks of a batch read, and what they found lost, for the listener on the driver.

Spark passes on no metrics of a Python source, and its accumulators do not reach a source that it discovers. So a task
writes a small file into a directory that the listener makes for each query::

    <temporary directory>/commitlog-<user id>/<query id>/<batch id>.<run>.<number of the partition>

Without a listener the directory does not exist, and it does not exist on other machines than the driver's; no file is
written then. The file of a task that is repeated replaces the first one, so nothing counts twice. The listener removes
the files of the batches before, and the directory when the query ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark_commitlog.options.subscription import QueueKey
from pyspark_commitlog.source.partitions import RangePartition

# Of Spark's properties of a task: set for each batch of a streaming query.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
# The listener removes the reports that it has read. If it was removed itself, its directory stays.
_MOST_BATCHES = 1000


@dataclass(kw_only=True)
class Tally:
    """Messages of a task, or of all tasks of a source in a batch: ``rows`` that were delivered and ``damaged`` ones by
    topic, ``lost`` ones by queue.

    ``wanted`` are all that the tasks were given; those that are none of the others did not match a filter. ``path`` is
    the source's.
    """

    path: str = ""
    wanted: Counter[QueueKey] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    lost: Counter[QueueKey] = field(default_factory=Counter)
    damaged: Counter[str] = field(default_factory=Counter)


def write_report(partition: RangePartition, tally: Tally) -> None:
    """Write the report of a task that has read its partition, if a listener waits for it. Never fails the task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query_id = context and context.getLocalProperty(_QUERY_ID)
    batch_id = context and context.getLocalProperty(_BATCH_ID)
    if not (partition.run and query_id and batch_id):
        return
    directory = _directory(query_id)
    if not _is_own(directory):
        return
    prefix = "" if partition.store is None else f"{partition.store}/"
    wanted: Counter[QueueKey] = Counter()
    for topic, queue_id, start, stop in partition.ranges:
        wanted[topic, queue_id] += stop - start
    report = {
        "path": tally.path,
        "count": partition.count,
        "wanted": [[prefix + topic, queue_id, number] for (topic, queue_id), number in wanted.items()],
        "rows": {prefix + topic: number for topic, number in tally.rows.items()},
        "lost": [[prefix + topic, queue_id, number] for (topic, queue_id), number in tally.lost.items()],
        "damaged": {prefix + topic: number for topic, number in tally.damaged.items()},
    }
    if partition.number == 0:
        drop_reports(query_id, int(batch_id) - _MOST_BATCHES)
    with contextlib.suppress(OSError):
        descriptor, written = tempfile.mkstemp(dir=directory, prefix=".")
        with os.fdopen(descriptor, "w") as file:
            json.dump(report, file)
        os.replace(written, os.path.join(directory, f"{int(batch_id)}.{partition.run}.{partition.number}"))


def open_reports(query_id: str) -> None:
    """Ask the tasks of a query for reports from now on."""
    directory = _directory(query_id)
    for one in (os.path.dirname(directory), directory):
        with contextlib.suppress(OSError):
            os.mkdir(one, 0o700)


def read_reports(query_id: str, batch_id: int) -> dict[str, Tally]:
    """What the tasks of a batch have reported, by the run of their source, in the order in which the runs began.

    A run is left out unless all of its tasks have written a report.
    """
    directory = _directory(query_id)
    found: dict[str, list[dict[str, Any]]] = {}
    for name in sorted(_names(directory)):
        batch, _, rest = name.partition(".")
        if batch == str(batch_id):
            with contextlib.suppress(OSError, ValueError), open(os.path.join(directory, name)) as file:
                found.setdefault(rest.partition(".")[0], []).append(json.load(file))
    return {run: _sum(reports) for run, reports in found.items() if len(reports) == reports[0]["count"]}


def _sum(reports: Sequence[Mapping[str, Any]]) -> Tally:
    total = Tally(path=reports[0]["path"])
    for report in reports:
        total.wanted += _by_queue(report["wanted"])
        total.rows += Counter(report["rows"])
        total.lost += _by_queue(report["lost"])
        total.damaged += Counter(report["damaged"])
    return total


def drop_reports(query_id: str, batch_id: int) -> None:
    """Remove the reports of the batches before this one."""
    directory = _directory(query_id)
    for name in _names(directory):
        number = name.partition(".")[0]
        if number.isdigit() and int(number) < batch_id:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(directory, name))


def close_reports(query_id: str) -> None:
    """Ask for no more reports of a query, and remove those that exist."""
    directory = _directory(query_id)
    for name in _names(directory):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(directory, name))
    for one in (directory, os.path.dirname(directory)):
        with contextlib.suppress(OSError):
            os.rmdir(one)  # the second one holds those of other queries, perhaps


def _directory(query_id: str) -> str:
    user = os.getuid() if hasattr(os, "getuid") else 0
    return os.path.join(tempfile.gettempdir(), f"commitlog-{user}", query_id)


def _is_own(directory: str) -> bool:
    """Whether this user has made the directory: in a temporary directory anyone can make one of any name."""
    for one in (os.path.dirname(directory), directory):
        try:
            found = os.lstat(one)
        except OSError:
            return False
        if not stat.S_ISDIR(found.st_mode) or (hasattr(os, "getuid") and found.st_uid != os.getuid()):
            return False
    return True


def _names(directory: str) -> list[str]:
    if not _is_own(directory):
        return []
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _by_queue(items: Iterable[tuple[str, int, int]]) -> Counter[QueueKey]:
    return Counter({(topic, queue_id): number for topic, queue_id, number in items})
