"""RocketMQ's message store in Python: the same files and the same rules. Works without Spark.

``StoreReader`` reads stores, RocketMQ's and its own, live, from a copy or from a backup. ``MessageStore`` owns one: it
appends, flushes, dispatches, and recovers after a crash.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from commitlog.batch_id import BatchId, CommittedBatch, StagedFile
    from commitlog.broker_properties import BrokerProperties
    from commitlog.columnar.body_compression import BodyCompression
    from commitlog.columnar.columns import ALL_COLUMNS, DEFAULT_COLUMNS, column_type
    from commitlog.config import BrokerRole, FlushDiskType, MessageStoreConfig
    from commitlog.consumers.consumer import Consumer
    from commitlog.errors import CommitLogError
    from commitlog.export.export_store import ExportReport, export_store
    from commitlog.filter.message_filter import MessageFilter
    from commitlog.follower.log_follower import FollowerStatus, LogFollower
    from commitlog.follower.promote import Promotion, promote
    from commitlog.format.checkpoint import Checkpoint
    from commitlog.format.consume_queue_unit import FILLER_SIZE
    from commitlog.format.sys_flag import CompressionType
    from commitlog.groups.commit import commit_group_offsets
    from commitlog.groups.dead_letters import DeadLetters
    from commitlog.groups.positions import GroupPosition
    from commitlog.ha.connection import SlaveState
    from commitlog.half_message import HalfMessageHandle, HalfMessagesChecked, PendingHalfMessage
    from commitlog.index.service import IndexFileInfo
    from commitlog.log.past_damage import Gap
    from commitlog.message import Message, MessageExt, MessageExtBrokerInner, PutMessageStatus
    from commitlog.metadata import METADATA_SCHEMAS, store_metadata
    from commitlog.queue.derived_queues import Stray
    from commitlog.queue.get_message import GetMessageResult, GetMessageStatus
    from commitlog.queue.skipped import SkippedRange
    from commitlog.reader import Fence, MessageBatches, OnDamage, QueueInfo, StoreReader
    from commitlog.repair import RepairReport, repair_store
    from commitlog.retention.report import CleanReport
    from commitlog.salvage.report import SalvageReport
    from commitlog.salvage.salvage_store import salvage_store
    from commitlog.schedule.levels import DelayLevel
    from commitlog.services.put_message import PutMessageResult
    from commitlog.services.put_table import PutTableResult
    from commitlog.services.transaction import Transaction
    from commitlog.services.transactional_message import TransactionalMessageService
    from commitlog.stager import BatchStager
    from commitlog.store import MessageStore
    from commitlog.verify.assessment import Assessment, Verdict, assess_store
    from commitlog.verify.store import Finding, verify_store

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
    "ALL_COLUMNS": "commitlog.columnar.columns",
    "Assessment": "commitlog.verify.assessment",
    "BatchId": "commitlog.batch_id",
    "BatchStager": "commitlog.stager",
    "BodyCompression": "commitlog.columnar.body_compression",
    "BrokerProperties": "commitlog.broker_properties",
    "Checkpoint": "commitlog.format.checkpoint",
    "CleanReport": "commitlog.retention.report",
    "CommitLogError": "commitlog.errors",
    "CommittedBatch": "commitlog.batch_id",
    "Consumer": "commitlog.consumers.consumer",
    "CompressionType": "commitlog.format.sys_flag",
    "DEFAULT_COLUMNS": "commitlog.columnar.columns",
    "DeadLetters": "commitlog.groups.dead_letters",
    "DelayLevel": "commitlog.schedule.levels",
    "ExportReport": "commitlog.export.export_store",
    "METADATA_SCHEMAS": "commitlog.metadata",
    "FILLER_SIZE": "commitlog.format.consume_queue_unit",
    "Fence": "commitlog.reader",
    "Finding": "commitlog.verify.store",
    "BrokerRole": "commitlog.config",
    "FlushDiskType": "commitlog.config",
    "FollowerStatus": "commitlog.follower.log_follower",
    "LogFollower": "commitlog.follower.log_follower",
    "Promotion": "commitlog.follower.promote",
    "promote": "commitlog.follower.promote",
    "GroupPosition": "commitlog.groups.positions",
    "Gap": "commitlog.log.past_damage",
    "HalfMessageHandle": "commitlog.half_message",
    "HalfMessagesChecked": "commitlog.half_message",
    "GetMessageResult": "commitlog.queue.get_message",
    "GetMessageStatus": "commitlog.queue.get_message",
    "IndexFileInfo": "commitlog.index.service",
    "Message": "commitlog.message",
    "MessageBatches": "commitlog.reader",
    "MessageExt": "commitlog.message",
    "MessageExtBrokerInner": "commitlog.message",
    "MessageFilter": "commitlog.filter.message_filter",
    "MessageStore": "commitlog.store",
    "MessageStoreConfig": "commitlog.config",
    "OnDamage": "commitlog.reader",
    "PendingHalfMessage": "commitlog.half_message",
    "PutMessageResult": "commitlog.services.put_message",
    "PutMessageStatus": "commitlog.message",
    "PutTableResult": "commitlog.services.put_table",
    "QueueInfo": "commitlog.reader",
    "RepairReport": "commitlog.repair",
    "SalvageReport": "commitlog.salvage.report",
    "SkippedRange": "commitlog.queue.skipped",
    "SlaveState": "commitlog.ha.connection",
    "StagedFile": "commitlog.batch_id",
    "StoreReader": "commitlog.reader",
    "Stray": "commitlog.queue.derived_queues",
    "Transaction": "commitlog.services.transaction",
    "TransactionalMessageService": "commitlog.services.transactional_message",
    "Verdict": "commitlog.verify.assessment",
    "assess_store": "commitlog.verify.assessment",
    "column_type": "commitlog.columnar.columns",
    "commit_group_offsets": "commitlog.groups.commit",
    "export_store": "commitlog.export.export_store",
    "repair_store": "commitlog.repair",
    "salvage_store": "commitlog.salvage.salvage_store",
    "store_metadata": "commitlog.metadata",
    "verify_store": "commitlog.verify.store",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    if name == "errors":  # `commitlog.errors.DiskFull` after `import commitlog`
        return import_module("commitlog.errors")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
