"""RocketMQ's message store in Python: the same files and the same rules. Needs no Spark.

The read-only half: ``StoreReader`` reads stores that RocketMQ wrote, live, from a copy or from a backup.
"""

from __future__ import annotations

from commitlog.errors import CommitLogError
from commitlog.format.checkpoint import Checkpoint
from commitlog.format.columns import ALL_COLUMNS, DEFAULT_COLUMNS, column_type
from commitlog.format.consume_queue_unit import FILLER_SIZE
from commitlog.log.index_service import IndexFileInfo
from commitlog.message import Message, MessageExt
from commitlog.reader import Fence, QueueInfo, StoreReader

__all__ = [
    "ALL_COLUMNS",
    "DEFAULT_COLUMNS",
    "FILLER_SIZE",
    "Checkpoint",
    "CommitLogError",
    "Fence",
    "IndexFileInfo",
    "Message",
    "MessageExt",
    "QueueInfo",
    "StoreReader",
    "column_type",
]
