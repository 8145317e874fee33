"""Targets of an export: ``parquet:DIR``, ``ndjson:FILE`` and ``csv:FILE``, and the interface that writes to them."""

from __future__ import annotations

import enum
import os
from typing import NamedTuple, Protocol

import pyarrow as pa

from commitlog.errors import InvalidValue

__all__ = ["ExportFormat", "ExportTarget", "RowWriter", "parse_target"]


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


class RowWriter(Protocol):
    """Writer of an export's rows. What was written is part of the export from the next ``commit`` on."""

    @property
    def is_due(self) -> bool:
        """Whether as many bytes wait for a commit as a file, or a piece of one, should have."""
        ...

    def write(self, topic: str, batch: pa.RecordBatch) -> None:
        """Add rows of one topic. ``OSError``."""
        ...

    def end_topic(self) -> None:
        """No more rows of the last topic follow. ``OSError``."""
        ...

    def commit(self) -> int:
        """Bring all rows to the device; returns what the state file keeps: files, or bytes. ``OSError``."""
        ...

    def close(self) -> None:
        """Close the files. Rows that were not committed are dropped, now or by the next export that resumes."""
        ...
