"""Topics that have messages and are not listed, as earlier versions of this package left them: listed at the opening.

Once, and not at every opening: a topic that is taken off the list later may be one that is to be deleted
(``clean_unused_topics``). In a store of another program the list says what topics there are, unless it is missing.
"""

from __future__ import annotations

import logging

from commitlog_store.delayed.broker_marks import may_lack_topics, note_topics_listed
from commitlog_store.errors import CommitLogError
from commitlog_store.queue.topic_config import topic_list_signature
from commitlog_store.recovery.open import OpenedLog

__all__ = ["list_old_topics"]

_LOG = logging.getLogger(__name__)


def list_old_topics(store_path: str, log: OpenedLog) -> None:
    """List the topics that have queues, in one write, if that was never done. A failure is logged: puts list theirs."""
    try:
        is_old = may_lack_topics(store_path)
        if is_old or not any(topic_list_signature(log.topics.path)):
            log.topics.list_queues(log.queues.known_queues())
        if is_old:
            note_topics_listed(store_path)
    except (CommitLogError, OSError) as error:
        _LOG.warning("%s: topics that are not listed stay so, and brokers do not offer them: %s", store_path, error)
