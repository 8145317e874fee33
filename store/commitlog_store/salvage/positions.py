"""Positions in a salvaged store: those of ``config/`` are moved along with the messages of their queues.

RocketMQ's broker keeps them in two files (docs/formats.md), whose keys need not be quoted::

    consumerOffset.json    {"offsetTable":{"topic@group":{0:12,1:9}}}
    delayOffset.json       {"offsetTable":{1:7}}                          level 1 is queue 0 of SCHEDULE_TOPIC_XXXX

Only the numbers that change are replaced; the rest of the text stays byte by byte.

Op messages say by queue offsets which half messages have ended, as text in their bodies. Where the half queue has
moved, they name others: one that was rolled back would count as pending, and be committed. So the positions of the
group ``CID_RMQ_SYS_TRANS`` are set to the ends of both queues, from where on op messages are right again.
"""

from __future__ import annotations

import re

from commitlog_store.errors import CorruptConfig
from commitlog_store.format.half_messages import HALF_QUEUE_ID, HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from commitlog_store.format.message_rules import SCHEDULE_TOPIC
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.paths import CONSUMER_OFFSET_CONFIG, DELAY_OFFSET_CONFIG, LIGHT_QUEUE_PREFIX
from commitlog_store.salvage.queue_chains import Chains

_GROUP = re.compile(rb'"([^"@]+)@[^"]*"\s*:\s*\{([^{}]*)\}')
_LEVELS = re.compile(rb'"offsetTable"\s*:\s*\{([^{}]*)\}')
_PAIR = re.compile(rb'("?([0-9]{1,10})"?\s*:\s*)([0-9]{1,19})')


def moved_positions(name: str, content: bytes, chains: Chains) -> bytes:
    """The content of a file of ``config/`` with the positions in the salvaged queues; other files as they are.

    No position is after the end of its queue, where the next message will be: the salvaged store counts as closed, and
    opening it compares no positions.
    """
    if name == CONSUMER_OFFSET_CONFIG:
        return _GROUP.sub(lambda found: _moved(found, 2, found[1].decode(errors="replace"), 0, chains), content)
    if name == DELAY_OFFSET_CONFIG:
        return _LEVELS.sub(lambda found: _moved(found, 1, SCHEDULE_TOPIC, 1, chains), content)
    return content


def _moved(found: re.Match[bytes], part: int, topic: str, first_id: int, chains: Chains) -> bytes:
    """The text of a match, in one part of which each number ``first_id`` + queue id has a position."""

    def pair(one: re.Match[bytes]) -> bytes:
        chain, position = chains.queues.get((topic, int(one[2]) - first_id)), int(one[3])
        if chain is None:  # a queue without messages, unless it is one whose records are in other queues
            moved = position if topic.startswith(LIGHT_QUEUE_PREFIX) else 0
        else:
            moved = min(chain.new_position(position), chain.new_end)
        return one[0] if moved == position else one[1] + b"%d" % moved

    start, stop = found.start(part) - found.start(), found.end(part) - found.start()
    return found[0][:start] + _PAIR.sub(pair, found[part]) + found[0][stop:]


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
