"""Writers of an export's rows: Parquet files of bounded size, one file of JSON lines, one CSV file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from commitlog_store.errors import InvalidValue
from commitlog_store.export.csv_columns import csv_batch, csv_schema
from commitlog_store.export.json_lines import json_lines, utc_texts
from commitlog_store.export.targets import ExportFormat, ExportTarget, RowWriter
from commitlog_store.files import disk
from commitlog_store.files.output_file import OutputFile

# Bytes of messages, as Arrow holds them, in one Parquet file and in one of its row groups.
DEFAULT_FILE_SIZE = 256 << 20
_ROW_GROUP_SIZE = 32 << 20
# The most bytes of lines between two commits.
_PIECE_SIZE = 64 << 20
PARQUET_SUFFIX = ".parquet"
# Readers of Parquet directories ignore names that begin with an underscore.
_UNFINISHED_PREFIX = "_"
_PART_PREFIX = "part-"
_PART_DIGITS = 8
# Columns that repeat in many rows. A dictionary of bodies would cost more than all the rest.
_REPEATING = frozenset({"tags", "bornHost", "storeHost"})
# Columns that queries select rows by; least and largest of texts would cost a tenth of the export.
_WITH_STATISTICS = frozenset({"queueId", "queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp"})


def new_writer(
    target: ExportTarget, columns: Sequence[str], committed: int, *, file_size: int, compression: str
) -> RowWriter:
    """The writer of a target whose export has ``committed`` so many files (Parquet) or bytes (lines).

    What lies there beyond that is of an export that was interrupted, and is removed. ``OSError``; ``InvalidValue`` when
    less is there.
    """
    if target.format is ExportFormat.PARQUET:
        return _ParquetWriter(target.path, columns, committed, file_size, compression)
    return _LineWriter(target, columns, committed, min(file_size, _PIECE_SIZE))


def part_number(name: str) -> int | None:
    """The number in the name of a finished or unfinished Parquet file of an export; None for another name."""
    digits = name.removeprefix(_UNFINISHED_PREFIX).removeprefix(_PART_PREFIX).removesuffix(PARQUET_SUFFIX)
    is_part = name.endswith(PARQUET_SUFFIX) and digits.isascii() and digits.isdigit() and len(digits) == _PART_DIGITS
    return int(digits) if is_part else None


def parquet_writer(file: Any, schema: pa.Schema, compression: str) -> pa_parquet.ParquetWriter:
    """The writer of a Parquet file with an export's settings."""
    return pa_parquet.ParquetWriter(
        file,
        schema,
        compression=compression,
        use_dictionary=[name for name in schema.names if name in _REPEATING],
        write_statistics=[name for name in schema.names if name in _WITH_STATISTICS],
    )


class _ParquetFile:
    """One Parquet file that is being written, under a name that readers ignore."""

    def __init__(self, directory: str, name: str, schema: pa.Schema, compression: str) -> None:
        self.directory = directory
        self.name = name
        self._file = OutputFile.create(os.path.join(directory, _UNFINISHED_PREFIX + name))
        self._parquet = parquet_writer(pa.PythonFile(self._file, "w"), schema, compression)
        self._batches: list[pa.RecordBatch] = []
        self.waiting = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self.waiting += batch.nbytes

    def write_row_group(self) -> None:
        if self._batches:
            table = pa.Table.from_batches(self._batches)
            self._batches, self.waiting = [], 0
            self._parquet.write_table(table, row_group_size=max(table.num_rows, 1))

    def finish(self) -> None:
        self.write_row_group()
        self._parquet.close()
        self._file.sync()
        self._file.close()

    def take_name(self) -> None:
        """Rename the finished file, on the device too."""
        disk.rename(self._file.path, os.path.join(self.directory, self.name))
        disk.sync_directory(self.directory)

    def abandon(self) -> None:
        with contextlib.suppress(OSError):  # the file is not part of the export
            self._parquet.close()
            self._file.abandon()


class _ParquetWriter:
    """Files ``topic=<topic>/part-<number>.parquet``, numbered over all topics in the order of writing.

    Each is renamed once it is on the device.
    """

    def __init__(self, path: str, columns: Sequence[str], committed: int, file_size: int, compression: str) -> None:
        self._path = path
        # The directory says the topic.
        self._columns = [name for name in columns if name != "topic"]
        self._files = committed
        self._file_size = file_size
        self._compression = compression
        self._open: dict[str, _ParquetFile] = {}
        self._finished: list[_ParquetFile] = []
        self._size = 0
        self._remove_uncommitted()

    def _remove_uncommitted(self) -> None:
        left = 0
        for topic in disk.list_names(self._path):
            directory = os.path.join(self._path, topic)
            if not topic.startswith("topic=") or not disk.is_directory(directory):
                continue
            for name in disk.list_names(directory):
                number = part_number(name)
                if number is not None and (number >= self._files or name.startswith(_UNFINISHED_PREFIX)):
                    disk.unlink(os.path.join(directory, name))
                else:
                    left += number is not None
        if left < self._files:
            raise InvalidValue(
                f"Of the {self._files} files that the export to {self._path} has written, {left} are left: restore "
                "them, or export into another directory."
            )

    @property
    def is_due(self) -> bool:
        return self._size >= self._file_size

    def write(self, topic: str, batch: pa.RecordBatch) -> None:
        batch = batch.select(self._columns)
        file = self._open.get(topic)
        if file is None:
            file = self._open[topic] = self._new_file(topic, batch.schema)
        file.add(batch)
        self._size += batch.nbytes
        if sum(one.waiting for one in self._open.values()) >= _ROW_GROUP_SIZE:
            max(self._open.values(), key=lambda one: one.waiting).write_row_group()

    def _new_file(self, topic: str, schema: pa.Schema) -> _ParquetFile:
        directory = os.path.join(self._path, "topic=" + quote(topic, safe=""))
        if not disk.is_directory(directory):
            disk.make_directory(directory, shared=True)
            disk.sync_directory(self._path)
        number = self._files + len(self._finished) + len(self._open)
        name = f"{_PART_PREFIX}{number:0{_PART_DIGITS}d}{PARQUET_SUFFIX}"
        return _ParquetFile(directory, name, schema, self._compression)

    def end_topics(self) -> None:
        """Finish the files of all topics; they get their names with the next commit."""
        for topic in list(self._open):
            self._open[topic].finish()
            self._finished.append(self._open.pop(topic))
        self._size = 0

    def commit(self) -> int:
        self.end_topics()
        for file in self._finished:
            file.take_name()
        self._files += len(self._finished)
        self._finished = []
        return self._files

    def close(self) -> None:
        for file in self._open.values():
            file.abandon()
        self._open = {}


class _LineWriter:
    """One file of JSON lines or CSV. A commit syncs it; the state file keeps its length."""

    def __init__(self, target: ExportTarget, columns: Sequence[str], committed: int, piece_size: int) -> None:
        self._columns = list(columns)
        self._piece_size = piece_size
        size = disk.file_size(target.path)
        if size < committed:
            raise InvalidValue(
                f"{target.path} has {size} bytes, but {committed} were exported: restore it, or export into another "
                "file."
            )
        self._committed = committed
        is_new = not disk.exists(target.path)
        self._file = OutputFile.create(target.path) if is_new else OutputFile.continued(target.path, committed)
        if is_new:
            disk.sync_directory(os.path.dirname(target.path))
        self._csv: pa_csv.CSVWriter | None = None
        if target.format is ExportFormat.CSV:
            sink = pa.PythonFile(self._file, "w")
            options = pa_csv.WriteOptions(include_header=not committed)
            self._csv = pa_csv.CSVWriter(sink, csv_schema(self._columns), write_options=options)

    @property
    def is_due(self) -> bool:
        return self._file.tell() - self._committed >= self._piece_size

    def write(self, topic: str, batch: pa.RecordBatch) -> None:  # noqa: ARG002 - the rows name it
        batch = batch.select(self._columns)
        if self._csv is not None:
            self._csv.write_batch(csv_batch(batch))
        else:
            self._file.write(json_lines(pa.Table.from_batches([batch]), self._columns, utc_texts))

    def end_topics(self) -> None:
        """All topics share the file."""

    def commit(self) -> int:
        self._file.sync()
        self._committed = self._file.tell()
        return self._committed

    def close(self) -> None:
        self._file.abandon()
