"""Half messages of a salvaged store: what is pending is not kept where their queue has moved.

Op messages say by queue offsets which half messages have ended, as text in their bodies. Where the half queue has
moved, they name others: one that was rolled back would count as pending, and be committed. So the positions of the
group ``CID_RMQ_SYS_TRANS`` are set to the ends of both queues, from where on op messages are right again.
"""

from __future__ import annotations

from commitlog_store.errors import CorruptConfig
from commitlog_store.format.half_messages import HALF_QUEUE_ID, HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.salvage.queue_chains import Chains


def half_queue_moved(chains: Chains) -> bool:
    """Whether half messages get other queue offsets, so that op messages do not name them any more."""
    chain = chains.queues.get((HALF_TOPIC, HALF_QUEUE_ID))
    return chain is not None and chain.is_moved


def settle_half_messages(target: str, chains: Chains) -> None:
    """Let no half message of a new store count as pending, if their queue has moved. ``StoreIOError``."""
    if not half_queue_moved(chains):
        return
    queues = [(topic, HALF_QUEUE_ID) for topic in (HALF_TOPIC, OP_TOPIC) if (topic, HALF_QUEUE_ID) in chains.queues]
    try:
        offsets = ConsumerOffsets(target)
    except CorruptConfig:
        return  # copied as it is: whatever uses the positions refuses it
    offsets.commit(TRANSACTION_GROUP, {queue: chains.queues[queue].new_end for queue in queues})
    offsets.flush()
