"""``CommitLogLagListener``: logs the lag of a query in each queue.

Spark does not pass on the metrics of Python sources, but every progress event has the offsets: the position of the
query, and the ends of the queues.

    from pyspark_commitlog.listener import CommitLogLagListener
    spark.streams.addListener(CommitLogLagListener())
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_commitlog.errors import OffsetFormatError
from pyspark_commitlog.options.subscription import QueueKey
from pyspark_commitlog.source.stream_offset import StreamOffset

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

__all__ = ["CommitLogLagListener", "lag_by_queue"]

# One line names the queues with a lag, unless there are more.
_MOST_QUEUES_NAMED = 16


def lag_by_queue(end_offset: str | None, latest_offset: str | None) -> dict[QueueKey, int] | None:
    """Messages not yet read, by topic and queue id, from the offsets of one source of a progress event.

    None if they are not this source's. In a queue that was not read yet, or whose unread head has expired, the messages
    that still exist count.
    """
    try:
        latest = StreamOffset.from_json(json.loads(latest_offset or "null"))
        end = StreamOffset.from_json(json.loads(end_offset)).offsets if end_offset else {}
    except (OffsetFormatError, ValueError):
        return None
    firsts = latest.batch_starts
    return {
        key: max(0, there - max(end.get(key, 0), firsts.get(key, 0))) for key, there in sorted(latest.offsets.items())
    }


class CommitLogLagListener(StreamingQueryListener):
    """Logs the lag of each query that reads this source.

    One line at INFO has the total and the 16 queues with the largest lag. If more queues have a lag, each of them
    follows at DEBUG.

    Subclass it and override ``on_lag`` to send the numbers elsewhere.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger(__name__)

    def on_lag(self, query: str, batch_id: int, lag: Mapping[QueueKey, int]) -> None:
        """Called once per progress event and source; ``query`` is the query's name, or its id if it has none."""
        behind = {key: count for key, count in lag.items() if count}
        worst = sorted(behind.items(), key=lambda item: -item[1])
        self._logger.info(
            "Query %s, batch %d: %d messages behind in %d of %d queues%s",
            query,
            batch_id,
            sum(behind.values()),
            len(behind),
            len(lag),
            "".join(f"; {topic}/{queue_id}: {count}" for (topic, queue_id), count in worst[:_MOST_QUEUES_NAMED]),
        )
        if len(worst) > _MOST_QUEUES_NAMED:
            for (topic, queue_id), count in worst:
                self._logger.debug("Query %s, batch %d: %s/%d: %d behind", query, batch_id, topic, queue_id, count)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        for source in progress.sources:
            lag = lag_by_queue(source.endOffset, source.latestOffset)
            if lag is not None:
                self.on_lag(progress.name or str(progress.id), progress.batchId, lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass
