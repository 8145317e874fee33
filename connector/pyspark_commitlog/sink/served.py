"""Writes through a server: tasks upload what they stage to the ``commitlog serve`` that owns the store, and it commits.

Each function connects for itself: Spark calls them in processes of its own, which it may end after any of them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from commitlog_store import BatchId, CommittedBatch, MessageStoreConfig, StagedFile
from commitlog_store.errors import CommitLogError
from commitlog_store.stager import StagingPlan
from pyspark_commitlog.options.write import Flush, SinkOptions

if TYPE_CHECKING:
    from commitlog_store import RemoteBatches


_logger = logging.getLogger(__name__)


def connect(options: SinkOptions, plan: StagingPlan | None = None) -> RemoteBatches:
    """A client of the server. ``plan`` is what it has said of the store."""
    from commitlog_store import RemoteBatches  # Arrow Flight is what writes to a directory do not need

    faults = None if plan is None else plan.topic_faults
    return RemoteBatches.connect(options.path, **options.remote.of_client(), topic_faults=faults)


def staging_plan(options: SinkOptions, topic: str | None) -> StagingPlan:
    """What tasks have to know of the store. ``RemoteFailed`` and what ``RemoteBatches.staging_plan`` raises."""
    with connect(options) as batches:
        return batches.staging_plan(topic, options.queues)


def config_of(options: SinkOptions, plan: StagingPlan) -> MessageStoreConfig:
    """The settings by which tasks encode: the server's, and the option of the largest message where it is lower."""
    return replace(
        options.store_config,
        max_message_size=min(options.max_message_size, plan.max_message_size),
        message_delay_level=plan.message_delay_level,
        broker_ip=plan.broker_ip,
        listen_port=plan.listen_port,
        properties_trailing_separator=plan.properties_trailing_separator,
    )


def commit_uploads(options: SinkOptions, batch: BatchId, files: Sequence[StagedFile]) -> CommittedBatch:
    """Have the server commit these uploads, all of them or none. The errors of ``RemoteBatches.commit``."""
    with connect(options) as batches:
        return batches.commit(batch, files, new_topic_queues=options.queues, on_device=options.flush is not Flush.ASYNC)


def remove_uploads(options: SinkOptions, files: Sequence[StagedFile], unnamed: BatchId | None = None) -> None:
    """Remove uploads that will not be committed, and what is left of a write without a name.

    A failure is logged: the server removes them later.
    """
    try:
        with connect(options) as batches:
            batches.remove(files)
            if unnamed is not None:
                batches.forget_write(unnamed)
    except CommitLogError as error:
        _logger.warning("Uploads were not removed, and will be by the server, after seven days at most. %s", error)
