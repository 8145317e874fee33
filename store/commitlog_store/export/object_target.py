"""Exports into object storage: ``parquet:s3://bucket/prefix``, ``ndjson:`` and ``csv:``; each row exactly once.

::

    topic=<topic>/part-<number>-<attempt>.parquet      a Parquet file, put whole
    part-<number>-<attempt>.ndjson   .csv              a piece of lines; each CSV has its heading
    _export/<99999999999999999999 - generation>.json   the state, as in a directory (``state.py``), and ``parts``

Objects cannot be appended to, renamed or locked. So the state says which objects count: ``parts`` has for each attempt
the number of its first object, and ``committed`` the number of all. A generation of the state is put on the condition
that there is none of its name, and counts once it is the newest: old ones are deleted, so a call that was slow may find
a name free again. Each call begins with one, its claim: an earlier call that still runs cannot commit any more, and
deletes what it has put. Then it deletes the objects that do not count, if it still is the newest once it has listed
them. What a killed call has put and not committed stays until then.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import BytesIO
from urllib.parse import quote

import orjson
import pyarrow as pa
import pyarrow.csv as pa_csv

from commitlog_store.errors import CommitLogError, InvalidValue, TargetFailed
from commitlog_store.export.csv_columns import csv_batch, csv_schema
from commitlog_store.export.json_lines import json_lines, utc_texts
from commitlog_store.export.state import ExportState, decode_state
from commitlog_store.export.targets import ExportFormat, ExportTarget
from commitlog_store.export.writers import parquet_writer
from commitlog_store.object_storage.clients import PART_SIZE, whole_name
from commitlog_store.object_storage.object_store import ObjectStore

_STATES = "_export"
_LAST = 10**20 - 1
_PART = re.compile(r"(?:topic=[^/]+/)?part-([0-9]{8})-([0-9a-f]{16})\.(?:parquet|ndjson|csv)")
# An object is made in memory.
_LARGEST = 128 << 20


class ObjectPlace:
    """The place of one export in object storage. Failures are ``ArchiveFailed``."""

    def __init__(self, target: ExportTarget) -> None:
        self._target = target
        self._objects = ObjectStore.open(target.path, writes=True)
        self._generation = 0
        self._attempt = secrets.token_hex(8)
        self._parts: list[tuple[str, int]] = []
        self._writer: _ObjectWriter | None = None

    @contextmanager
    def locked(self, *, resume: bool) -> Iterator[None]:
        """``InvalidValue`` for a target that holds something else, or an export that is not to be resumed."""
        if self.load(resume=resume) is None and next(iter(self._objects.list()), None) is not None:
            hint = "" if resume or not self._newest() else " To continue the export that was begun there: --resume."
            raise InvalidValue(f"{self._target.path} exists already; an export begins in an empty target.{hint}")
        yield

    def _newest(self) -> str:
        return min((one.name for one in self._objects.list(_STATES, first_only=True)), default="")

    def load(self, *, resume: bool) -> ExportState | None:
        """The state of an export that was begun; None when none was, or it is not to be resumed. ``CorruptConfig``."""
        name = self._newest() if resume else ""
        data = self._objects.get(name) if name else None
        if data is None:
            return None
        state = decode_state(data, f"{self._objects}/{name}")
        self._generation = _LAST - int(name.rpartition("/")[2].partition(".")[0])
        self._parts = [*(one for one in state.parts if one[1] < state.committed), (self._attempt, state.committed)]
        return state

    def save(self, state: ExportState) -> None:
        """Put the next generation. ``TargetFailed`` when another export has done so."""
        data = orjson.dumps(replace(state, parts=self._parts or [(self._attempt, 0)]))
        self._parts = self._parts or [(self._attempt, 0)]
        name = f"{_STATES}/{_LAST - self._generation - 1:020d}.json"
        is_put = self._objects.put_new(name, data) or self._objects.get(name) == data
        if not is_put or self._newest() != name:
            if is_put:
                self._objects.delete([name])  # the name of an older generation, which was deleted
            raise self._overtaken()
        self._generation += 1
        self._objects.delete([f"{_STATES}/{_LAST - self._generation + 2:020d}.json"])  # that before the last one

    def writer(self, columns: Sequence[str], committed: int, *, file_size: int, compression: str) -> _ObjectWriter:
        """Delete what does not count, and write from there. ``InvalidValue`` when objects are missing."""
        stray, left = [], 0
        listed = list(self._objects.list(unfinished=True))
        if self._newest() != f"{_STATES}/{_LAST - self._generation:020d}.json":
            raise self._overtaken()  # what was listed may count by now
        for one in listed:
            whole = whole_name(one.name)
            part = _PART.fullmatch(whole)
            if one.name != whole and (part or whole.startswith(f"{_STATES}/")):
                stray.append(one.name)
            elif part is not None and _counts(part, self._parts, committed):
                left += 1
            elif part is not None:
                stray.append(one.name)
        if left < committed:
            raise InvalidValue(
                f"Of the {committed} objects that the export to {self._target.path} has written, {left} are left: "
                "restore them, or export to another prefix."
            )
        self._objects.delete(stray)
        form = self._target.format
        self._writer = _ObjectWriter(*(self._objects, form, columns, committed, self._attempt, file_size, compression))
        return self._writer

    def _overtaken(self) -> TargetFailed:
        """The error for a call after which another one began. What this one put, and none has committed, is deleted."""
        with suppress(CommitLogError):
            name = self._newest()
            state = decode_state(self._objects.get(name) or b"", f"{self._objects}/{name}")
            put = () if self._writer is None else self._writer.put_last
            parts = ((one, _PART.fullmatch(one)) for one in put)
            self._objects.delete(
                [one for one, part in parts if part and not _counts(part, state.parts, state.committed)]
            )
        return TargetFailed("export to", path=self._target.path, cause=OSError("another export is writing there"))


def _counts(part: re.Match[str], parts: Sequence[tuple[str, int]], committed: int) -> bool:
    """Whether a state with these ``parts`` and ``committed`` names an object."""
    number = int(part[1])
    whose = [name for name, first in parts if first <= number]
    return number < committed and bool(whose) and whose[-1] == part[2]


class _ObjectWriter:
    """Objects of bounded size, numbered in the order of writing. ``commit`` returns their number."""

    def __init__(
        self,
        objects: ObjectStore,
        form: ExportFormat,
        columns: Sequence[str],
        committed: int,
        attempt: str,
        file_size: int,
        compression: str,
    ) -> None:
        self._objects = objects
        self._form = form
        self._columns = [name for name in columns if form is not ExportFormat.PARQUET or name != "topic"]
        self._number = committed
        self._attempt = attempt
        self._file_size = min(file_size, _LARGEST)
        self._compression = compression
        self._topic = ""
        self._batches: list[pa.RecordBatch] = []
        self._size = 0
        # Put since the last commit, and in no state.
        self._uncommitted: list[str] = []
        # What the last commit is about.
        self.put_last: list[str] = []

    @property
    def is_due(self) -> bool:
        return self._size >= self._file_size

    def write(self, topic: str, batch: pa.RecordBatch) -> None:
        self._topic = topic
        self._batches.append(batch.select(self._columns))
        self._size += batch.nbytes

    def end_topics(self) -> None:
        """A Parquet file has rows of one topic; lines of several share an object."""
        if self._form is ExportFormat.PARQUET:
            self._put()

    def _put(self) -> None:
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        data = memoryview(self._encoded(table))
        folder = f"topic={quote(self._topic, safe='')}/" if self._form is ExportFormat.PARQUET else ""
        name = f"{folder}part-{self._number:08d}-{self._attempt}.{self._form.value}"
        pieces = (data[start : start + PART_SIZE] for start in range(0, len(data), PART_SIZE))
        self._uncommitted.append(name)
        self._objects.put(name, pieces, len(data))
        self._number += 1
        self._batches, self._size = [], 0

    def _encoded(self, table: pa.Table) -> bytes:
        if self._form is ExportFormat.NDJSON:
            return bytes(json_lines(table, self._columns, utc_texts))
        out = BytesIO()
        if self._form is ExportFormat.CSV:
            with pa_csv.CSVWriter(out, csv_schema(self._columns)) as writer:
                for batch in table.to_batches():
                    writer.write_batch(csv_batch(batch))
        else:
            with parquet_writer(out, table.schema, self._compression) as writer:
                writer.write_table(table)
        return out.getvalue()

    def commit(self) -> int:
        self._put()
        # From now on a state may name them, though its put seems to fail.
        self.put_last, self._uncommitted = self._uncommitted, []
        return self._number

    def close(self) -> None:
        """Delete what was put and not committed; what cannot be deleted now is deleted by the next call."""
        with suppress(CommitLogError):
            self._objects.delete(self._uncommitted)
