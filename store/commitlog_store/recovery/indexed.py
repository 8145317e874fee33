"""Whether a store has an index: one without stays so, unless it is asked for."""

from __future__ import annotations

import os

from commitlog_store.errors import CommitLogError
from commitlog_store.index.service import has_index_files
from commitlog_store.log.store_checkpoint import StoreCheckpoint
from commitlog_store.paths import CHECKPOINT, INDEX


def was_indexed(path: str) -> bool:
    """Whether the checkpoint or index files say so; messages without keys make no index files.

    Also where the checkpoint cannot be read, which opening the store or assessing it reports.
    """
    try:
        if StoreCheckpoint.load(os.path.join(path, CHECKPOINT)).values.index_msg_timestamp > 0:
            return True
    except CommitLogError:
        return True
    return has_index_files(os.path.join(path, INDEX))
