"""From what the user asked for (``earliest``, ``latest``, an offset, a time) to queue offsets."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from commitlog import QueueInfo, StoreReader
from pyspark_commitlog import data_loss
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.option_values import EARLIEST, LATEST, OffsetRule
from pyspark_commitlog.options import SourceOptions
from pyspark_commitlog.subscription import QueueKey

__all__ = ["resolve_rule"]

_logger = logging.getLogger(__name__)


def resolve_rule(
    reader: StoreReader, queues: Iterable[QueueInfo], rule: OffsetRule, options: SourceOptions, *, option: str
) -> dict[QueueKey, int]:
    """The offset of each queue that ``rule`` means, given the queues' bounds as they are now.

    ``option`` names the rule in messages. ``OptionError`` for a queue that is named and not there, or an offset behind
    its end; ``DataLossError`` for an offset before its start (with failOnDataLoss=false both are moved to the nearest
    offset there is, with a warning).
    """
    bounds = {(info.topic, info.queue_id): info for info in queues}
    for topic, queue_id in rule.named:
        if (topic, queue_id) not in bounds:
            raise OptionError(
                f"Option {option} names queue {queue_id} of topic {topic!r}, which is not in the store {options.path}.",
                option=option,
            )
    if rule.timestamp_ms is not None:
        return {key: reader.offset_by_time(*key, rule.timestamp_ms) for key in bounds}
    return {key: _resolve(info, rule.named.get(key, rule.default), options, option) for key, info in bounds.items()}


def _resolve(info: QueueInfo, wanted: int, options: SourceOptions, option: str) -> int:
    if wanted == EARLIEST:
        return info.min_offset
    if wanted == LATEST:
        return info.max_offset
    if wanted < info.min_offset:
        data_loss.head_lost(
            info.topic,
            info.queue_id,
            (wanted, info.max_offset),
            (info.min_offset, info.max_offset),
            fail=options.fail_on_data_loss,
        )
        return info.min_offset
    if wanted > info.max_offset:
        text = (
            f"Option {option} asks for offset {wanted} of topic {info.topic!r}, queue {info.queue_id}; available are "
            f"[{info.min_offset}, {info.max_offset})."
        )
        if options.fail_on_data_loss:
            raise OptionError(text, option=option, value=str(wanted))
        _logger.warning("%s Taking %d.", text, info.max_offset)
        return info.max_offset
    return wanted
