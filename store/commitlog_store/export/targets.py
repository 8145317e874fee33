"""Targets of an export: ``parquet:DIR``, ``ndjson:FILE`` and ``csv:FILE``, and the interface that writes to them."""

from __future__ import annotations

import enum
import os
from typing import NamedTuple, Protocol

import pyarrow as pa

from commitlog_store.errors import InvalidValue
from commitlog_store.files import disk
from commitlog_store.paths import ARCHIVE_SCHEMES, COMMIT_LOG, without_secrets


class ExportFormat(str, enum.Enum):
    """The kinds of files that an export writes."""

    PARQUET = "parquet"
    NDJSON = "ndjson"
    CSV = "csv"


class ExportTarget(NamedTuple):
    """Where an export goes: for Parquet a directory, for the others a file; or for all a prefix of object storage.

    The path is absolute, or a URL.
    """

    format: ExportFormat
    path: str

    @property
    def in_objects(self) -> bool:
        """Whether it is in object storage."""
        return "://" in self.path

    def __str__(self) -> str:
        return f"{self.format.value}:{self.path}"


def parse_target(text: str, *, objects: bool = False) -> ExportTarget:
    """The target that a text such as ``parquet:/data/orders`` names, with ``objects`` also ``parquet:s3://bucket/x``.

    ``InvalidValue``.
    """
    kind, colon, path = text.partition(":")
    if not colon or kind not in [one.value for one in ExportFormat] or not path:
        raise InvalidValue(f"An export goes to parquet:DIR, ndjson:FILE or csv:FILE, not to {text!r}.")
    if path == "-":
        raise InvalidValue(f"{kind}: takes a path, since an export can be resumed; 'commitlog cat' prints to stdout.")
    if objects and path.startswith(ARCHIVE_SCHEMES):
        return ExportTarget(ExportFormat(kind), path.rstrip("/"))
    if "://" in path:
        raise InvalidValue(
            f"An export writes local files, not {without_secrets(path)!r}: give a path, and copy the files from there."
        )
    return ExportTarget(ExportFormat(kind), os.path.abspath(disk.with_home(path)))


def check_outside(target: str, source: str) -> None:
    """``InvalidValue`` for a target in the store at ``source``, or in the one whose log that is.

    RocketMQ does not start when its log has a file whose name is not a number.
    """
    inside, outside = disk.real_path(target), disk.real_path(source)
    if os.path.basename(outside) == COMMIT_LOG:
        outside = os.path.dirname(outside)
    if inside == outside or inside.startswith(os.path.join(outside, "")):
        raise InvalidValue(f"{target} lies in the store {outside}, which is not changed: give another target.")


def check_file_target(target: ExportTarget) -> None:
    """``InvalidValue`` when the target's path is a directory where it takes a file, or the other way, or a link."""
    path = target.path
    if target.format is ExportFormat.PARQUET:
        if disk.exists(path) and not disk.is_directory(path):
            raise InvalidValue(f"{path} is not a directory; parquet: takes one.")
    elif disk.is_directory(path):
        raise InvalidValue(f"{path} is a directory; {target.format.value}: takes a file.")
    elif disk.exists(path) and not disk.is_file(path):
        raise InvalidValue(f"{path} is a link, a pipe or a device; {target.format.value}: takes a file.")


def make_directory_of(target: ExportTarget) -> None:
    """Make the directory that the target's files go into, and those above it. ``OSError``."""
    directory = target.path if target.format is ExportFormat.PARQUET else os.path.dirname(target.path)
    missing = []
    while not disk.exists(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    for one in reversed(missing):
        disk.make_directory(one, shared=True)
        disk.sync_directory(os.path.dirname(one))


class RowWriter(Protocol):
    """Writer of an export's rows. What was written is part of the export from the next ``commit`` on."""

    @property
    def is_due(self) -> bool:
        """Whether as many bytes wait for a commit as a file, or a piece of one, should have."""

    def write(self, topic: str, batch: pa.RecordBatch) -> None:
        """Add rows of one topic. ``OSError``."""

    def end_topics(self) -> None:
        """Finish the files of all topics: no more rows of these follow. ``OSError``."""

    def commit(self) -> int:
        """Bring all rows to the device; returns what the state file keeps: files, or bytes. ``OSError``."""

    def close(self) -> None:
        """Close the files. Rows that were not committed are dropped, now or by the next export that resumes."""
