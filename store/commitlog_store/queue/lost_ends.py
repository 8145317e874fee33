"""Lost ends of log and queues, as far as the checkpoint's mark shows them: what readers cannot miss by themselves.

A queue that has lost its last units, or its files, looks like a shorter queue, and a log likewise. The mark says where
they ended: of a closed store the log's end and the sum of all queues' ends, of one that was killed the place up to
which the log was flushed, and how many queue files were on the device. A broker's checkpoint has no mark, and says
nothing of that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from commitlog_store.files import disk
from commitlog_store.files.error_paths import failed_reads
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.checkpoint import CheckpointMark
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.store_checkpoint import mark_if_readable
from commitlog_store.paths import ABORT, CHECKPOINT
from commitlog_store.queue.catalog import QueueCatalog
from commitlog_store.queue.consume_queue_store import ConsumeQueueStore
from commitlog_store.queue.saved_ends import SavedEnds

_AGAIN = 5


def lost_ends(
    paths: StorePaths, commit_log: CommitLog, *, log_end: int | None = None, known: SavedEnds | None = None
) -> list[str]:
    """A sentence for the log and one for the queues, if they do not end where the mark says. ``ReadFailed``.

    ``log_end`` is the end of the log's records, where it is known; the end of its files shows less. Looks at
    the files of all queues, in a closed store at their last units too: some ten microseconds for each. ``known`` are
    saved ends that were compared just now: while the mark names them, it looks at no queue that had not changed then.
    """
    found: list[str] = []
    for _ in range(_AGAIN):
        before = _mark(paths)
        if before is None:
            return []
        commit_log.refresh()
        end = commit_log.bounds()[1] if log_end is None else log_end
        found = list(_lost_of_log(*before, end))
        if log_end is None:
            found += _lost_queues(paths, *before, known)
        if not found or _mark(paths) == before:
            return found
    return found


def _mark(paths: StorePaths) -> tuple[CheckpointMark, bool] | None:
    """The mark, and whether the store is closed."""
    mark = mark_if_readable(os.path.join(paths.root, CHECKPOINT))
    return None if mark is None else (mark, mark.closed and not disk.exists(os.path.join(paths.root, ABORT)))


def _lost_of_log(mark: CheckpointMark, closed: bool, log_end: int) -> Iterator[str]:
    ended = mark.end_offset if closed else mark.flushed_offset
    if log_end < ended:
        when = "when the store was closed" if closed else "at least, by its checkpoint"
        yield f"The log ends at physical offset {log_end}, and it ended at {ended} {when}."


def _lost_queues(paths: StorePaths, mark: CheckpointMark, closed: bool, known: SavedEnds | None) -> Iterator[str]:
    log = CommitLog(paths.commit_log)
    queues = ConsumeQueueStore(paths.root, 0, QueueCatalog(paths.root, log), read_only=True, known=known)
    try:
        with failed_reads(paths.root, "look at"):
            log.refresh()
            if closed:
                queues.use_saved_ends()
            count = queues.survey().count
            if count < mark.queue_file_count and log.min_offset <= mark.log_start:  # else retention has removed some
                yield f"Of {mark.queue_file_count} consume-queue files, {count} exist."
            elif closed and queues.find_ends() != mark.queue_ends:
                yield "The consume queues do not end where they ended when the store was closed."
    finally:
        queues.close()
        log.close()
