"""CALLS: all questions that a server answers, with the types of their arguments and answers."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from commitlog_store.batch_id import BatchId, CommittedBatch, StagedFile, StagingPlan
from commitlog_store.engine.put_message import PutMessageResult
from commitlog_store.errors import InvalidValue
from commitlog_store.groups.group_settings import SubscriptionGroupConfig
from commitlog_store.half_message import Answer as HalfAnswer
from commitlog_store.half_message import HalfMessageHandle
from commitlog_store.message import MessageExt
from commitlog_store.queue.skipped import SkippedRange
from commitlog_store.reader import OnDamage
from commitlog_store.remote.put_wire import (
    CallId,
    HalfMessagesAsked,
    MessageFields,
    Outcome,
    SessionOpened,
    TableResult,
)
from commitlog_store.remote.read_calls import READ_CALLS
from commitlog_store.remote.wire import Call, FilterTexts, FormerPlace, Place, Question, RedriveTo, UploadEnd
from commitlog_store.retention.decision import CleanReport
from commitlog_store.retention.survey import CleanRequest
from commitlog_store.verify.store_facts import StoreFacts


def _once(*arguments: Any, answer: Any, administers: bool = False, attaches: bool = False, waits: bool = False) -> Call:
    given = tuple.__class_getitem__((CallId, *arguments))
    return Call(given, answer, writes=True, once=True, administers=administers, attaches=attaches, waits=waits)


# A ``memoryview`` is not copied out of the question.
CALLS: Mapping[str, Call] = {
    **READ_CALLS,
    "facts": Call(tuple[bool], StoreFacts),
    "open_session": Call(tuple[()], SessionOpened, writes=True),
    "close_session": Call(tuple[str], None, writes=True),
    "flush": Call(tuple[()], None, writes=True),
    "dispatch": Call(tuple[()], None, writes=True),
    "create_topic": Call(tuple[str, int, int], None, writes=True),
    "create_topic_with_perm": Call(tuple[str, int, int, int], None, writes=True, administers=True),
    "put_message": _once(MessageFields, answer=PutMessageResult),
    "put_message_batch": _once(list[MessageFields], answer=PutMessageResult),
    "put_together": _once(list[MessageFields], answer=list[Outcome]),
    "put_messages": _once(memoryview, str | None, int, bool, answer=TableResult, attaches=True),
    "begin_transaction": _once(str, int, str, answer=CommittedBatch | None),
    "transaction_put": _once(memoryview, str | None, int, answer=None, attaches=True),
    "commit_transaction": _once(answer=CommittedBatch),
    "end_transaction": _once(answer=None),
    "committed_batch": Call(tuple[str, int, str], CommittedBatch | None, writes=True),
    "prepare_half_message": _once(MessageFields, str, answer=HalfMessageHandle),
    "commit_half_message": _once(HalfMessageHandle, answer=None),
    "roll_back_half_message": _once(HalfMessageHandle, answer=None),
    "check_half_messages": _once(list[tuple[int, HalfAnswer]], answer=HalfMessagesAsked),
    "resume_half_message": _once(str, answer=HalfMessageHandle),
    "open_consumer": _once(str, list[str], FilterTexts, str | int, str, answer=None),
    "poll": _once(list[Place], int, float, answer=list[MessageExt], waits=True),
    "poll_batch": _once(list[Place], int, float, list[str], answer=bytes | None, waits=True),
    "acknowledge": _once(list[Place], answer=None),
    "commit_positions": _once(list[Place], bool, str | None, answer=None),
    "rewind": _once(list[Place], answer=None),
    "retry": _once(list[Place], MessageExt, int, answer=PutMessageResult),
    "seek": _once(list[Place], str, int, int, answer=None),
    "positions": _once(list[Place], answer=list[Place]),
    "staging_plan": Call(tuple[str | None, int], StagingPlan, writes=True),
    "upload_part": Call(tuple[BatchId, str, int, memoryview, int, UploadEnd | None], StagedFile | None, writes=True),
    "commit_batch": Call(tuple[BatchId, list[StagedFile], int, bool], CommittedBatch, writes=True),
    "remove_staged": Call(tuple[list[StagedFile]], None, writes=True),
    "forget_write": Call(tuple[BatchId], None, writes=True),
    "expired_topics": Call(tuple[()], list[str], writes=True),
    "delete_topic": _once(str, bool, answer=None, administers=True),
    "clean_unused_topics": _once(list[str], bool, answer=list[str], administers=True),
    "clean": _once(CleanRequest | None, bool, answer=CleanReport, administers=True),
    "forget_batches": _once(str, answer=CommittedBatch | None, administers=True),
    "set_group_settings": _once(SubscriptionGroupConfig, answer=None, administers=True),
    "commit_group_offsets": _once(str, list[Place], answer=None),
    "reset_group_offsets": _once(str, list[Place], list[FormerPlace], answer=bool, administers=True),
    "redrive": _once(str, RedriveTo, int, OnDamage, bool, answer=tuple[int, list[SkippedRange]]),
}


def decode_question(call: str, body: bytes | memoryview) -> Question:
    """``InvalidValue`` for what this server does not know."""
    if call not in CALLS:
        raise InvalidValue(f"This server does not know the question {call!r}: the client is newer.")
    try:
        return Question(*_decoder(call).decode(body))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidValue(f"The arguments of {call} are not what this server takes: {error}.") from error


@functools.cache
def _decoder(call: str) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(tuple.__class_getitem__((str, OnDamage, CALLS[call].arguments)))
