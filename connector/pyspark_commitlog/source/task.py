"""``ReadTask``: reads the messages of a partition in a Spark task, as record batches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from commitlog_store import StoreReader
from commitlog_store.errors import (
    CorruptRecord,
    FileChanged,
    FileMissing,
    OffsetOutOfRange,
    QueueNotFound,
    TopicNotFound,
)
from pyspark_commitlog import loss
from pyspark_commitlog.options.read import SourceOptions
from pyspark_commitlog.source.partitions import RangePartition
from pyspark_commitlog.source.schema import Projection
from pyspark_commitlog.source.task_reports import Tally, write_report
from pyspark_commitlog.source.units_of_ranges import QueueRange
from pyspark_commitlog.worker_gc import leave_out_imported_modules

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition


# A topic, a batch of it, and how many queue offsets of its range, or ranges, have been read then.
_Read = tuple[str, pa.RecordBatch, int]
# A batch, and how many rows of each topic it has.
_Counted = tuple[Mapping[str, int], pa.RecordBatch]
# What a reader raises for messages that retention has removed, or that went with a file; beside ``FileMissing``.
_LOSSES = (OffsetOutOfRange, FileChanged, QueueNotFound, TopicNotFound)
_PAST_DAMAGE = "To read the others, set the option corruptRecordMode to skip. commitlog verify lists all damage."


@dataclass(frozen=True)
class ReadTask:
    """The tasks of a query, batch or stream; pickled to the executors.

    The same partition gives the same rows in the same order on every attempt, as long as the store still has them.
    """

    options: SourceOptions
    projection: Projection

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition. Raises ``DataLossError``, ``TailLostError``, and the store's own errors."""
        # Spark makes a partition of its own when a plan has none.
        if not isinstance(partition, RangePartition):
            return
        tally = Tally(path=self.options.path)
        if partition.ranges:
            yield from self._read(partition, tally)
        # Only now: a task that is not read to its end, as under a LIMIT, has no numbers.
        write_report(partition, tally)

    def _read(self, partition: RangePartition, tally: Tally) -> Iterator[pa.RecordBatch]:
        leave_out_imported_modules()
        declared = self.projection.arrow_schema()
        store = partition.store
        with loss.naming_store(store), self._open(partition) as reader:
            try:
                for rows, batch in self._batches(reader, partition, tally):
                    tally.rows.update(rows)
                    yield self.projection.to_spark(batch, declared, store=store)
            except CorruptRecord as error:
                error.advised(_PAST_DAMAGE)
                raise
            for skipped in reader.skipped:
                tally.damaged[skipped.topic] += skipped.messages

    @cached_property
    def _how(self) -> dict[str, Any]:
        """The arguments of every read."""
        return {"verify_crc": self.options.verify_crc, "filter": self.options.chosen}

    def _open(self, partition: RangePartition) -> StoreReader:
        options = self.options.of_store(partition.store or "")
        path, remote = options.path, options.remote
        given: dict[str, Any] = {"store_path_commit_log": options.commit_logs.get(None), "on_damage": options.on_damage}
        if remote.reads_archive(path):
            from commitlog_store.history.planned import open_planned  # other stores do not wait for its import

            return open_planned(path, partition.manifest, **given, **remote.of(path))
        return StoreReader.open(path, from_log=options.from_log, **given, **remote.of(path))

    def _batches(self, reader: StoreReader, partition: RangePartition, tally: Tally) -> Iterator[_Counted]:
        """The batches of the partition; what is lost goes to ``tally``."""
        at_once = self._read_at_once(reader, partition.ranges) if partition.short else None
        if at_once is not None:
            yield from at_once
            return
        # Read one after the other, the ranges of a short partition have the same order as when they are read at once.
        if not partition.side_by_side or partition.short:
            yield from self._read_in_turn(reader, partition.ranges, tally)
            return
        of_topic: dict[str, list[QueueRange]] = {}
        for wanted in partition.ranges:
            of_topic.setdefault(wanted.topic, []).append(wanted)
        sizes = [sum(map(_size, ranges)) for ranges in of_topic.values()]
        reads = [self._read_side_by_side(reader, ranges, tally) for ranges in of_topic.values()]
        for topic, batch, _ in _in_step(sizes, reads):
            yield {topic: batch.num_rows}, batch

    def _read_in_turn(self, reader: StoreReader, ranges: Sequence[QueueRange], tally: Tally) -> Iterator[_Counted]:
        """The messages of one range after the other; short neighbours are read at once."""
        groups: Iterator[tuple[Sequence[tuple[str, int, int, int]], list[pa.RecordBatch] | None]]
        groups = (((one,), None) for one in ranges)
        columns = self._counted_columns(ranges)
        if len(ranges) > 1:
            with contextlib.suppress(*_LOSSES):
                groups = reader.read_in_turn(ranges, columns=columns, **self._how)
        for some, batches in groups:
            if batches is None:
                for topic, batch, _ in self._read_range(reader, QueueRange(*some[0]), tally):
                    yield {topic: batch.num_rows}, batch
            else:
                yield from self._counted(ranges, batches)

    def _counted_columns(self, ranges: Sequence[QueueRange]) -> tuple[str, ...]:
        """The columns to read of ranges that share batches: with the topic, where rows are counted by it."""
        columns = self.projection.columns
        return columns if "topic" in columns or _of_one_topic(ranges) else (*columns, "topic")

    def _counted(self, ranges: Sequence[QueueRange], batches: list[pa.RecordBatch]) -> Iterator[_Counted]:
        """The batches of ranges, each with the number of rows of each topic."""
        for batch in batches:
            yield ({ranges[0].topic: batch.num_rows} if _of_one_topic(ranges) else _rows_by_topic(batch)), batch

    def _read_at_once(self, reader: StoreReader, ranges: Sequence[QueueRange]) -> list[_Counted] | None:
        """None where it takes more than one look: the ranges are then read in turn, which handles losses."""
        columns = self._counted_columns(ranges)
        try:
            batches = reader.read_together(ranges, columns=columns, **self._how)
        except _LOSSES:
            return None
        return None if batches is None else list(self._counted(ranges, batches))

    def _read_side_by_side(self, reader: StoreReader, ranges: Sequence[QueueRange], tally: Tally) -> Iterator[_Read]:
        """The messages of ranges of one topic; from a damaged message or a missing file on, range by range."""
        starts = positions = [wanted.start for wanted in ranges]
        if len(ranges) > 1:
            with contextlib.suppress(*_LOSSES):
                batches = reader.read_side_by_side(ranges, columns=self.projection.columns, **self._how)
                try:
                    for batch in batches:
                        yield ranges[0].topic, batch, sum(batches.positions) - sum(starts)
                finally:
                    # Also when a server finds a loss after some of the rows: they are not read again.
                    positions = batches.positions
        done = sum(positions) - sum(starts)
        left = [wanted._replace(start=at) for wanted, at in zip(ranges, positions, strict=True)]
        reads = [self._read_range(reader, wanted, tally) for wanted in left]
        for topic, batch, count in _in_step(list(map(_size, left)), reads):
            yield topic, batch, done + count

    def _read_range(self, reader: StoreReader, wanted: QueueRange, tally: Tally) -> Iterator[_Read]:
        topic, queue_id, start, stop = wanted
        at = start
        while at < stop:
            try:
                batches = reader.read(topic, queue_id, at, stop, columns=self.projection.columns, **self._how)
                try:
                    for batch in batches:
                        yield topic, batch, batches.position - start
                    return
                finally:
                    # Not by the number of rows: fillers, and messages that do not match, have offsets and give no row.
                    at = batches.position
            except FileMissing as missing:
                after = loss.file_missing(missing, (at, stop), fail=self.options.fail_on_data_loss)
                tally.lost[topic, queue_id] += after - max(at, missing.start)
                if at < missing.start < stop:  # the reader noticed the hole before it reached it
                    before = QueueRange(topic, queue_id, at, missing.start)
                    for _, batch, count in self._read_range(reader, before, tally):
                        yield topic, batch, at - start + count
                at = after
            except _LOSSES as error:
                left = self._after_loss(reader, QueueRange(topic, queue_id, at, stop), error)
                tally.lost[topic, queue_id] += stop - at - (left[1] - left[0])
                at, stop = left

    def _after_loss(self, reader: StoreReader, wanted: QueueRange, error: Exception) -> tuple[int, int]:
        """The range left after ``error``, if the query may continue. Raises ``error`` itself if it is not a loss."""
        topic, queue_id, at, stop = wanted
        losses = loss.find_losses((at, stop), loss.queue_bounds(reader, topic, queue_id))
        if not losses.kinds:
            raise error  # the queue still has all of them: not retention, but a file that was cut or damaged
        loss.report_losses(topic, queue_id, losses, fail=self.options.fail_on_data_loss, cause=error)
        return losses.left


def _of_one_topic(ranges: Sequence[QueueRange]) -> bool:
    return all(one.topic == ranges[0].topic for one in ranges)


def _rows_by_topic(batch: pa.RecordBatch) -> dict[str, int]:
    counts = batch.column("topic").value_counts()
    return dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True))


def _size(wanted: QueueRange) -> int:
    return wanted.stop - wanted.start


def _in_step(sizes: Sequence[int], reads: Sequence[Iterator[_Read]]) -> Iterator[_Read]:
    """The batches of several reads, of that many queue offsets; the next one always comes from the read that is the
    least far.

    They cover the same stretch of the log, so all of them move over it together, and pages that one has brought into
    memory serve the others.
    """
    done = [0] * len(reads)
    left = {index for index, size in enumerate(sizes) if size}
    while left:
        behind = min(left, key=lambda index: (done[index] / sizes[index], index))
        found = next(reads[behind], None)
        if found is None:
            left.remove(behind)
        else:
            topic, batch, done[behind] = found
            yield topic, batch, sum(done)
