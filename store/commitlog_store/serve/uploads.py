"""Batches of clients: their uploads become staged files of the store that the server owns, and are committed there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from commitlog_store.batch.staging import remove_batch, remove_files
from commitlog_store.batch.uploads import finish_upload, write_part
from commitlog_store.batch_id import BatchId, CommittedBatch, StagedFile, StagingPlan, refuse_store_application
from commitlog_store.errors import CorruptStaging, InvalidValue
from commitlog_store.format.checksum import crc32
from commitlog_store.paths import UNNAMED_WRITE_PREFIX
from commitlog_store.queue.queue_counts import queue_counts
from commitlog_store.queue.topic_config import TopicConfig
from commitlog_store.remote.wire import UploadEnd
from commitlog_store.serve.store_writer import StoreWriter
from commitlog_store.stager import largest_record_of


def _staging_plan(writer: StoreWriter, topic: str | None, new_topic_queues: int) -> StagingPlan:
    store = writer.store
    config = store.config
    counts = queue_counts(store.path, topic, new_topic_queues)
    topics = TopicConfig(store.path, new_topic_queues)
    return StagingPlan(
        queue_counts=counts,
        topic_faults={name: fault for name in counts if (fault := topics.put_fault(name)) is not None},
        largest_record=largest_record_of(store.path, config),
        max_message_size=config.max_message_size,
        message_delay_level=config.message_delay_level,
        broker_ip=config.store_host.rpartition(":")[0],
        listen_port=config.listen_port,
        properties_trailing_separator=config.properties_trailing_separator,
    )


def _upload_part(
    writer: StoreWriter, batch: BatchId, name: str, offset: int, data: memoryview, crc: int, end: UploadEnd | None
) -> StagedFile | None:
    """The staged file when the part has the end marker and the file is whole; else None."""
    refuse_store_application(batch.app_id)
    writer.forgotten.refuse(batch)
    if crc32(data) != crc:
        raise CorruptStaging(
            "Part", path=name, offset=offset, expected=f"checksum {crc:#010x}", found=f"{crc32(data):#010x}"
        )
    writer.staging.take(len(data), is_new=offset == 0)
    write_part(writer.store.path, batch, name, offset, data)
    return None if end is None else finish_upload(writer.store.path, batch, name, *end)


def _commit_batch(
    writer: StoreWriter, batch: BatchId, staged: Sequence[StagedFile], new_topic_queues: int, on_device: bool
) -> CommittedBatch:
    if not batch.app_id:  # a call may be repeated, and such a batch is written each time
        raise InvalidValue("A batch through a server belongs to an application: give it an id, which is not empty.")
    writer.forgotten.refuse(batch)
    committed = writer.store.commit_batch(batch, staged, new_topic_queues=new_topic_queues, on_device=on_device)
    writer.staging.note_removed()
    writer.store.dispatch()
    return committed


def _remove_staged(writer: StoreWriter, staged: Sequence[StagedFile]) -> None:
    remove_files(writer.store.path, staged)
    writer.staging.note_removed()


def _forget_write(writer: StoreWriter, batch: BatchId) -> None:
    """Forget a write that has no id but a unique one for this: its files, and that it was committed."""
    if batch.app_id.startswith(UNNAMED_WRITE_PREFIX):
        writer.forgotten.add(batch)
        remove_batch(writer.store.path, batch)
        writer.staging.note_removed()
        writer.store.forget_batches(batch.app_id)


# Those of ``remote.calls.CALLS`` that have to do with batches: each takes the writer and the call's arguments.
BATCH_WRITES: Mapping[str, Callable[..., Any]] = {
    "staging_plan": _staging_plan,
    "upload_part": _upload_part,
    "commit_batch": _commit_batch,
    "remove_staged": _remove_staged,
    "forget_write": _forget_write,
}
