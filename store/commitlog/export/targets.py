"""Targets of an export: ``parquet:DIR``, ``ndjson:FILE`` and ``csv:FILE``, and the interface that writes to them."""

from __future__ import annotations

import enum
import os
from typing import NamedTuple, Protocol

import pyarrow as pa

from commitlog.errors import InvalidValue
from commitlog.files import disk

__all__ = ["ExportFormat", "ExportTarget", "RowWriter", "make_directory_of", "parse_target"]


class ExportFormat(str, enum.Enum):
    """The kinds of files that an export writes."""

    PARQUET = "parquet"
    NDJSON = "ndjson"
    CSV = "csv"


class ExportTarget(NamedTuple):
    """Where an export goes: for Parquet a directory, for the others a file. The path is absolute."""

    format: ExportFormat
    path: str

    def __str__(self) -> str:
        return f"{self.format.value}:{self.path}"


def parse_target(text: str) -> ExportTarget:
    """The target that a text such as ``parquet:/data/orders`` names. ``InvalidValue``."""
    kind, colon, path = text.partition(":")
    if not colon or kind not in [one.value for one in ExportFormat] or not path:
        raise InvalidValue(f"An export goes to parquet:DIR, ndjson:FILE or csv:FILE, not to {text!r}.")
    return ExportTarget(ExportFormat(kind), os.path.abspath(path))


def make_directory_of(target: ExportTarget) -> None:
    """Make the directory that the target's files go into, and those above it. ``OSError``."""
    directory = target.path if target.format is ExportFormat.PARQUET else os.path.dirname(target.path)
    missing = []
    while not disk.exists(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    for one in reversed(missing):
        disk.make_directory(one)
        disk.sync_directory(os.path.dirname(one))


class RowWriter(Protocol):
    """Writer of an export's rows. What was written is part of the export from the next ``commit`` on."""

    @property
    def is_due(self) -> bool:
        """Whether as many bytes wait for a commit as a file, or a piece of one, should have."""
        ...

    def write(self, topic: str, batch: pa.RecordBatch) -> None:
        """Add rows of one topic. ``OSError``."""
        ...

    def end_topics(self) -> None:
        """Finish the files of all topics: no more rows of these follow. ``OSError``."""
        ...

    def commit(self) -> int:
        """Bring all rows to the device; returns what the state file keeps: files, or bytes. ``OSError``."""
        ...

    def close(self) -> None:
        """Close the files. Rows that were not committed are dropped, now or by the next export that resumes."""
        ...
