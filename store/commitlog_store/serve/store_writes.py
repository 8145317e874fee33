"""What is done for those of ``remote.calls.CALLS`` that write, by the store that the server owns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from commitlog_store.batch.staging import remove_batch, remove_files
from commitlog_store.batch.uploads import finish_upload, write_part
from commitlog_store.batch_id import BatchId, CommittedBatch, StagedFile, StagingPlan, refuse_store_application
from commitlog_store.engine.put_message import PutMessageResult
from commitlog_store.errors import CommitLogError, CorruptStaging, InvalidValue
from commitlog_store.format.checksum import crc32
from commitlog_store.half.transactional_message import NoAnswerYet
from commitlog_store.half_message import Answer
from commitlog_store.message import MessageExt
from commitlog_store.paths import UNNAMED_WRITE_PREFIX
from commitlog_store.queue.queue_counts import queue_counts
from commitlog_store.queue.skipped import SkippedRange
from commitlog_store.queue.topic_config import TopicConfig
from commitlog_store.reader import OnDamage
from commitlog_store.remote.calls import CALLS
from commitlog_store.remote.put_wire import (
    HalfMessagesAsked,
    MessageFields,
    Outcome,
    SentRows,
    SessionOpened,
    TableResult,
    decode_rows,
)
from commitlog_store.remote.wire import Place, RedriveTo, UploadEnd, encode_error
from commitlog_store.retention.decision import CleanReport
from commitlog_store.retention.survey import CleanRequest
from commitlog_store.serve.consumer_calls import CONSUMER_CALLS
from commitlog_store.serve.sessions import Session
from commitlog_store.serve.store_writer import StoreWriter
from commitlog_store.serve.transaction_calls import TRANSACTION_CALLS
from commitlog_store.stager import largest_record_of

# Half messages that one round of checks asks a client for, and their bytes.
_MOST_ASKED = 1_000
_ASKED_SIZE = 8 << 20


def answer_write(
    writer: StoreWriter,
    call: str,
    arguments: Sequence[Any],
    encode: Callable[[object], bytes],
    *,
    token: str = "",
    address: str = "",
) -> bytes:
    """The answer to a call that writes, as ``encode`` makes it. The errors of the store, and ``SessionLost``.

    ``token`` is the name of the client's token, ``address`` that of its connection.
    """
    if not CALLS[call].once:
        return encode(WRITES[call](writer, *arguments))
    call_id, *given = arguments

    def work(session: Session) -> bytes:
        client = session.client
        client.token, client.address, client.called_ms = token, address, time.time_ns() // 1_000_000
        return encode(ONCE[call](writer, session, *given))

    return writer.sessions.once(call_id, work)


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


def _clean(writer: StoreWriter, _: Session, request: CleanRequest | None, dry_run: bool) -> CleanReport:
    if request is None:  # by the settings that the store was opened with
        return writer.store.clean(dry_run=dry_run)
    return writer.store.clean_as(request, dry_run=dry_run)


def _commit_group_offsets(writer: StoreWriter, _: Session, group: str, places: Sequence[Place]) -> None:
    writer.store.commit_group_offsets(group, _by_queue(places))  # True without ``expected``, and no answer


def _by_queue(places: Sequence[tuple[str, int, Any]]) -> dict[tuple[str, int], Any]:
    return {(topic, queue_id): offset for topic, queue_id, offset in places}


def _redrive(
    writer: StoreWriter, _: Session, group: str, to: RedriveTo, most: int, on_damage: OnDamage, verify_crc: bool
) -> tuple[int, list[SkippedRange]]:
    skipped: list[SkippedRange] = []
    done = writer.store.redrive(
        group, to=to, max_messages=most, on_damage=on_damage, verify_crc=verify_crc, skipped=skipped
    )
    return done, skipped


def _put_together(writer: StoreWriter, _: Session, messages: Sequence[MessageFields]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for one in writer.store.put_together([fields.message() for fields in messages]):
        if isinstance(one, PutMessageResult):
            outcomes.append(one)
        elif isinstance(one, CommitLogError):
            outcomes.append(encode_error(one))
        else:
            raise one
    return outcomes


def _put_messages(
    writer: StoreWriter, _: Session, rows: SentRows, topic: str | None, first_row: int, stop_at_refusal: bool
) -> TableResult:
    table = decode_rows(rows)
    return TableResult.of(
        writer.store.put_messages(table, topic=topic, first_row=first_row, stop_at_refusal=stop_at_refusal)
    )


def _check_half_messages(writer: StoreWriter, _: Session, answers: Sequence[tuple[int, Answer]]) -> HalfMessagesAsked:
    """A round of checks with the client's answers, by physical offset, which asks for others, as many as one answer
    holds."""
    known = dict(answers)
    asked: list[MessageExt] = []
    size = 0

    def answer(message: MessageExt) -> Answer:
        nonlocal size
        if message.physical_offset not in known:
            if len(asked) < _MOST_ASKED and size < _ASKED_SIZE:
                asked.append(message)
                size += message.store_size
            raise NoAnswerYet
        return known[message.physical_offset]

    checked = writer.store.half_messages.check(answer)
    return HalfMessagesAsked(checked, asked)


def _open_session(writer: StoreWriter) -> SessionOpened:
    config = writer.store.config
    return SessionOpened(
        writer.sessions.open(), config.message_delay_level, config.transaction_check_interval, config.store_host
    )


# Each takes the writer and the call's arguments.
WRITES: Mapping[str, Callable[..., Any]] = {
    "open_session": _open_session,
    "close_session": lambda writer, name: writer.sessions.close(name),
    "flush": lambda writer: writer.store.flush(),
    "dispatch": lambda writer: writer.store.dispatch(),
    "expired_topics": lambda writer: writer.store.expired_topics(),
    "committed_batch": lambda writer, *batch: writer.store.transaction(*batch).result,
    "create_topic": lambda writer, topic, queues, read: writer.store.create_topic(topic, queues, read_queues=read),
    "create_topic_with_perm": lambda writer, topic, queues, read, perm: writer.store.create_topic(
        topic, queues, read_queues=read, perm=perm
    ),
    "staging_plan": _staging_plan,
    "upload_part": _upload_part,
    "commit_batch": _commit_batch,
    "remove_staged": _remove_staged,
    "forget_write": _forget_write,
}

# Each takes the writer, the client's session, and the call's other arguments.
ONCE: Mapping[str, Callable[..., Any]] = {
    "put_message": lambda writer, _, fields: writer.store.put_message(fields.message()),
    "put_message_batch": lambda writer, _, messages: writer.store.put_message_batch(
        [fields.message() for fields in messages]
    ),
    "put_together": _put_together,
    "put_messages": _put_messages,
    "prepare_half_message": lambda writer, _, fields, group: writer.store.half_messages.prepare(
        fields.message(), group
    ),
    "commit_half_message": lambda writer, _, handle: writer.store.half_messages.commit(handle),
    "roll_back_half_message": lambda writer, _, handle: writer.store.half_messages.rollback(handle),
    "check_half_messages": _check_half_messages,
    "resume_half_message": lambda writer, _, message_id: writer.store.half_messages.resume(message_id),
    "delete_topic": lambda writer, _, topic, with_messages: writer.store.delete_topic(
        topic, with_messages=with_messages
    ),
    "clean_unused_topics": lambda writer, _, retain, dry_run: writer.store.clean_unused_topics(retain, dry_run=dry_run),
    "clean": _clean,
    "forget_batches": lambda writer, _, app_id: writer.store.forget_batches(app_id),
    "set_group_settings": lambda writer, _, settings: writer.store.set_group_settings(settings),
    "commit_group_offsets": _commit_group_offsets,
    "reset_group_offsets": lambda writer, _, group, places, former: writer.store.commit_group_offsets(
        group, _by_queue(places), expected=_by_queue(former)
    ),
    "redrive": _redrive,
    **TRANSACTION_CALLS,
    **CONSUMER_CALLS,
}

assert WRITES.keys() == {name for name, call in CALLS.items() if call.writes and not call.once}
assert ONCE.keys() == {name for name, call in CALLS.items() if call.once}
