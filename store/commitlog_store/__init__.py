"""RocketMQ's message store in Python: the same files and the same rules. Works without Spark.

``StoreReader`` reads stores, RocketMQ's and its own, live, from a copy or from a backup. ``MessageStore`` owns one: it
appends, flushes, dispatches, and recovers after a crash.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from commitlog_store.batch_id import BatchId, CommittedBatch, StagedFile
    from commitlog_store.columnar.body_compression import BodyCompression
    from commitlog_store.columnar.columns import ALL_COLUMNS, DEFAULT_COLUMNS, column_type
    from commitlog_store.config import BrokerProperties, BrokerRole, FlushDiskType, MessageStoreConfig
    from commitlog_store.consumers.consumer import Consumer
    from commitlog_store.delayed.levels import DelayLevel
    from commitlog_store.engine.put_message import PutMessageResult
    from commitlog_store.engine.put_table import PutTableResult
    from commitlog_store.engine.stats import SlaveState
    from commitlog_store.errors import CommitLogError
    from commitlog_store.export.export_store import ExportReport, export_store
    from commitlog_store.filter.message_filter import MessageFilter
    from commitlog_store.follower.log_follower import FollowerStatus, LogFollower
    from commitlog_store.follower.promote import Promotion, promote
    from commitlog_store.format.checkpoint import Checkpoint
    from commitlog_store.format.consume_queue_unit import FILLER_SIZE
    from commitlog_store.format.sys_flag import CompressionType
    from commitlog_store.groups.commit import commit_group_offsets
    from commitlog_store.groups.dead_letters import DeadLetters
    from commitlog_store.groups.positions import GroupPosition
    from commitlog_store.half.transactional_message import TransactionalMessageService
    from commitlog_store.half_message import HalfMessageHandle, HalfMessagesChecked, PendingHalfMessage
    from commitlog_store.index.service import IndexFileInfo
    from commitlog_store.log.past_damage import Gap
    from commitlog_store.message import Message, MessageExt, MessageExtBrokerInner, PutMessageStatus
    from commitlog_store.metadata import METADATA_SCHEMAS, store_metadata
    from commitlog_store.queue.derived_queues import Stray
    from commitlog_store.queue.get_message import GetMessageResult, GetMessageStatus
    from commitlog_store.queue.skipped import SkippedRange
    from commitlog_store.reader import Fence, MessageBatches, OnDamage, QueueInfo, StoreReader
    from commitlog_store.repair import RepairReport, repair_store
    from commitlog_store.retention.report import CleanReport
    from commitlog_store.salvage.report import SalvageReport
    from commitlog_store.salvage.salvage_store import salvage_store
    from commitlog_store.stager import BatchStager
    from commitlog_store.store import MessageStore
    from commitlog_store.transaction import Transaction
    from commitlog_store.verify.assessment import Assessment, Verdict, assess_store
    from commitlog_store.verify.store import Finding, verify_store

__version__ = "0.1.0"

__all__ = [
    "ALL_COLUMNS",
    "DEFAULT_COLUMNS",
    "FILLER_SIZE",
    "METADATA_SCHEMAS",
    "Assessment",
    "BatchId",
    "BatchStager",
    "BodyCompression",
    "BrokerProperties",
    "BrokerRole",
    "Checkpoint",
    "CleanReport",
    "CommitLogError",
    "CommittedBatch",
    "CompressionType",
    "Consumer",
    "DeadLetters",
    "DelayLevel",
    "ExportReport",
    "Fence",
    "Finding",
    "FlushDiskType",
    "FollowerStatus",
    "Gap",
    "GetMessageResult",
    "GetMessageStatus",
    "GroupPosition",
    "HalfMessageHandle",
    "HalfMessagesChecked",
    "IndexFileInfo",
    "LogFollower",
    "Message",
    "MessageBatches",
    "MessageExt",
    "MessageExtBrokerInner",
    "MessageFilter",
    "MessageStore",
    "MessageStoreConfig",
    "OnDamage",
    "PendingHalfMessage",
    "Promotion",
    "PutMessageResult",
    "PutMessageStatus",
    "PutTableResult",
    "QueueInfo",
    "RepairReport",
    "SalvageReport",
    "SkippedRange",
    "SlaveState",
    "StagedFile",
    "StoreReader",
    "Stray",
    "Transaction",
    "TransactionalMessageService",
    "Verdict",
    "__version__",
    "assess_store",
    "column_type",
    "commit_group_offsets",
    "export_store",
    "promote",
    "repair_store",
    "salvage_store",
    "store_metadata",
    "verify_store",
]

# Imported when first used. The writing half needs POSIX record locks, which programs that only read do without; and the
# command line has to be ready for Ctrl-C before the long imports begin.
_MODULES = {
    "ALL_COLUMNS": "commitlog_store.columnar.columns",
    "Assessment": "commitlog_store.verify.assessment",
    "BatchId": "commitlog_store.batch_id",
    "BatchStager": "commitlog_store.stager",
    "BodyCompression": "commitlog_store.columnar.body_compression",
    "BrokerProperties": "commitlog_store.config",
    "Checkpoint": "commitlog_store.format.checkpoint",
    "CleanReport": "commitlog_store.retention.report",
    "CommitLogError": "commitlog_store.errors",
    "CommittedBatch": "commitlog_store.batch_id",
    "Consumer": "commitlog_store.consumers.consumer",
    "CompressionType": "commitlog_store.format.sys_flag",
    "DEFAULT_COLUMNS": "commitlog_store.columnar.columns",
    "DeadLetters": "commitlog_store.groups.dead_letters",
    "DelayLevel": "commitlog_store.delayed.levels",
    "ExportReport": "commitlog_store.export.export_store",
    "METADATA_SCHEMAS": "commitlog_store.metadata",
    "FILLER_SIZE": "commitlog_store.format.consume_queue_unit",
    "Fence": "commitlog_store.reader",
    "Finding": "commitlog_store.verify.store",
    "BrokerRole": "commitlog_store.config",
    "FlushDiskType": "commitlog_store.config",
    "FollowerStatus": "commitlog_store.follower.log_follower",
    "LogFollower": "commitlog_store.follower.log_follower",
    "Promotion": "commitlog_store.follower.promote",
    "promote": "commitlog_store.follower.promote",
    "GroupPosition": "commitlog_store.groups.positions",
    "Gap": "commitlog_store.log.past_damage",
    "HalfMessageHandle": "commitlog_store.half_message",
    "HalfMessagesChecked": "commitlog_store.half_message",
    "GetMessageResult": "commitlog_store.queue.get_message",
    "GetMessageStatus": "commitlog_store.queue.get_message",
    "IndexFileInfo": "commitlog_store.index.service",
    "Message": "commitlog_store.message",
    "MessageBatches": "commitlog_store.reader",
    "MessageExt": "commitlog_store.message",
    "MessageExtBrokerInner": "commitlog_store.message",
    "MessageFilter": "commitlog_store.filter.message_filter",
    "MessageStore": "commitlog_store.store",
    "MessageStoreConfig": "commitlog_store.config",
    "OnDamage": "commitlog_store.reader",
    "PendingHalfMessage": "commitlog_store.half_message",
    "PutMessageResult": "commitlog_store.engine.put_message",
    "PutMessageStatus": "commitlog_store.message",
    "PutTableResult": "commitlog_store.engine.put_table",
    "QueueInfo": "commitlog_store.reader",
    "RepairReport": "commitlog_store.repair",
    "SalvageReport": "commitlog_store.salvage.report",
    "SkippedRange": "commitlog_store.queue.skipped",
    "SlaveState": "commitlog_store.engine.stats",
    "StagedFile": "commitlog_store.batch_id",
    "StoreReader": "commitlog_store.reader",
    "Stray": "commitlog_store.queue.derived_queues",
    "Transaction": "commitlog_store.transaction",
    "TransactionalMessageService": "commitlog_store.half.transactional_message",
    "Verdict": "commitlog_store.verify.assessment",
    "assess_store": "commitlog_store.verify.assessment",
    "column_type": "commitlog_store.columnar.columns",
    "commit_group_offsets": "commitlog_store.groups.commit",
    "export_store": "commitlog_store.export.export_store",
    "repair_store": "commitlog_store.repair",
    "salvage_store": "commitlog_store.salvage.salvage_store",
    "store_metadata": "commitlog_store.metadata",
    "verify_store": "commitlog_store.verify.store",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    if name == "errors":  # `commitlog_store.errors.DiskFull` after `import commitlog_store`
        return import_module("commitlog_store.errors")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
