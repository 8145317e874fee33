"""READ_CALLS: the questions of readers, with the types of their arguments and answers.

They are apart from the other calls, whose types are those of parts of a store that a reader does not load: Spark begins
a process of Python for each plan.
"""

from __future__ import annotations

from collections.abc import Mapping

from commitlog_store.batch_id import CommittedBatch
from commitlog_store.delayed.levels import DelayLevel
from commitlog_store.format.checkpoint import Checkpoint
from commitlog_store.groups.group_settings import ConsumerFilter, SubscriptionGroupConfig
from commitlog_store.groups.positions import DeadLetters, GroupPosition
from commitlog_store.half_message import PendingHalfMessage
from commitlog_store.index.service import IndexFileInfo
from commitlog_store.message import MessageExt
from commitlog_store.queue.fence import Fence
from commitlog_store.queue.get_message import GetMessageResult
from commitlog_store.queue.topic_config import TopicSettings
from commitlog_store.reader import OnDamage, QueueInfo
from commitlog_store.reading.places import Boundary
from commitlog_store.remote.wire import Call, FilterTexts, ListedBounds, Place, VerificationId, Verifying

# ``bytes`` among other answers is the error of that one, encoded.
READ_CALLS: Mapping[str, Call] = {
    "topics": Call(tuple[()], list[str]),
    "queue_ids": Call(tuple[list[str]], list[list[int] | bytes]),
    "bounds": Call(tuple[list[tuple[str, list[int]]]], list[tuple[int, int]]),
    # The state of the answer before; of the names of all topics, ``names_digest``; the queue ids of topics, None where
    # none can be listed; and the queues, unless they are all of these.
    "listed_bounds": Call(
        tuple[bytes, bytes | None, list[tuple[str, list[int] | None]], list[tuple[str, list[int]]] | None],
        ListedBounds,
    ),
    "queues_of": Call(tuple[list[str]], list[QueueInfo]),
    "groups": Call(tuple[str | None, int | None], list[GroupPosition]),
    "group_offsets": Call(tuple[str], list[Place]),
    "dead_letters": Call(tuple[str | None], list[DeadLetters]),
    "topic_settings": Call(tuple[()], dict[str, TopicSettings]),
    "group_settings": Call(tuple[str | None], list[SubscriptionGroupConfig]),
    "group_filters": Call(tuple[str | None], list[ConsumerFilter]),
    "lost_ends": Call(tuple[()], list[str]),
    "physical_bounds": Call(tuple[()], tuple[int, int]),
    "aborted": Call(tuple[()], bool),
    "metadata": Call(tuple[str], bytes),
    "checkpoint": Call(tuple[()], Checkpoint | None),
    "index_files": Call(tuple[()], list[IndexFileInfo]),
    "get_message": Call(tuple[str, int, int, int, int, FilterTexts], GetMessageResult),
    "wait_for_any": Call(tuple[list[Place], float], bool),
    "first_offsets_from": Call(tuple[list[tuple[str, int, int, int, int]]], list[int]),
    "fences": Call(tuple[list[Place]], list[Fence | None]),
    "store_timestamps": Call(tuple[list[Place]], list[int | bytes]),
    "offsets_by_time": Call(tuple[list[tuple[str, int, int, QueueInfo | None]], Boundary, OnDamage], list[int | bytes]),
    "message_at": Call(tuple[int, bool], MessageExt),
    "message_by_id": Call(tuple[str, bool], MessageExt),
    "query": Call(tuple[str, str, int, int, int, bool], list[MessageExt]),
    "units": Call(tuple[list[tuple[str, int, int, int]]], tuple[list[int], bytes]),
    "query_keys": Call(tuple[str, list[str | None], list[str], int, int, bool], bytes),
    "batches": Call(tuple[()], list[CommittedBatch]),
    "delay_levels": Call(tuple[()], list[DelayLevel]),
    "waiting_timers": Call(tuple[int], bytes),
    "pending_half_messages": Call(tuple[()], list[PendingHalfMessage]),
    # The verification, whether to begin it, and how long to wait for its end.
    "verify": Call(tuple[VerificationId, bool, float], Verifying),
    "cancel_verification": Call(tuple[VerificationId], None),
}
