"""Errors of the connector, in addition to those of the store.

::

    commitlog_store.errors.CommitLogError
    └── ConnectorError
        ├── SparkVersionError   this version of Spark cannot do what is asked for
        ├── OptionError         an option that is unknown, missing, or has a wrong value
        ├── SchemaError         a column that the source does not have, or that the sink cannot write
        ├── OffsetFormatError   a checkpointed offset that this version cannot read
        ├── DataLossError       wanted messages are gone: retention, a deleted queue, a missing file
        └── TailLostError       a queue ends before what was read from it, or holds other messages there
"""

from __future__ import annotations

from commitlog_store.errors import CommitLogError

__all__ = [
    "ConnectorError",
    "DataLossError",
    "OffsetFormatError",
    "OptionError",
    "SchemaError",
    "SparkVersionError",
    "TailLostError",
]


class ConnectorError(CommitLogError):
    """Base of the connector's errors; raised itself if Spark does not give a task or a commit its ids or messages."""


class SparkVersionError(ConnectorError):
    """The Spark that runs lacks what this needs; a newer one has it."""


class OptionError(ConnectorError, ValueError):
    """An option of a read or a write is unknown, missing, or has a wrong value; or a write has a wrong mode.

    ``option`` is its name, ``value`` the text that was given, None without one.
    """

    def __init__(self, message: str, *, option: str, value: str | None = None) -> None:
        super().__init__(message)
        self.option = option
        self.value = value


class SchemaError(ConnectorError, ValueError):
    """The schema of a read names columns that the source does not have, or a frame has columns that cannot be written.

    ``column`` is the one in question; None when it is about all of them.
    """

    def __init__(self, message: str, *, column: str | None = None) -> None:
        super().__init__(message)
        self.column = column


class OffsetFormatError(ConnectorError):
    """An offset from the checkpoint is not what this version of the connector writes."""


class DataLossError(ConnectorError):
    """Wanted messages are no longer in the store.

    ``wanted`` and ``available`` are half-open ranges of queue offsets; ``available`` is None when the queue is gone.
    If a file between others is missing, it is the part of ``wanted`` after the hole, and the error's cause
    (``FileMissing``) has the path.
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str,
        queue_id: int,
        wanted: tuple[int, int],
        available: tuple[int, int] | None,
    ) -> None:
        super().__init__(message)
        self.topic = topic
        self.queue_id = queue_id
        self.wanted = wanted
        self.available = available


class TailLostError(ConnectorError):
    """The store lost the end of a queue: it ends before messages that were read, or has other messages there now.

    ``position`` is the next offset to read, ``available`` the range that the queue holds now, half-open.
    """

    def __init__(self, message: str, *, topic: str, queue_id: int, position: int, available: tuple[int, int]) -> None:
        super().__init__(message)
        self.topic = topic
        self.queue_id = queue_id
        self.position = position
        self.available = available
