"""Administration of the owned store by clients: topics and old files are deleted, groups are moved and
configured, batches forgotten."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from commitlog_store.queue.skipped import SkippedRange
from commitlog_store.reader import OnDamage
from commitlog_store.remote.wire import FormerPlace, Place, RedriveTo
from commitlog_store.retention.decision import CleanReport
from commitlog_store.retention.survey import CleanRequest
from commitlog_store.serve.sessions import Session
from commitlog_store.serve.store_writer import StoreWriter


def _delete_topic(writer: StoreWriter, _: Session, topic: str, with_messages: bool) -> None:
    writer.store.delete_topic(topic, with_messages=with_messages)


def _clean_unused_topics(writer: StoreWriter, _: Session, retain: Sequence[str], dry_run: bool) -> list[str]:
    return writer.store.clean_unused_topics(retain, dry_run=dry_run)


def _clean(writer: StoreWriter, _: Session, request: CleanRequest | None, dry_run: bool) -> CleanReport:
    if request is None:  # by the settings that the store was opened with
        return writer.store.clean(dry_run=dry_run)
    return writer.store.clean_as(request, dry_run=dry_run)


def _commit_group_offsets(writer: StoreWriter, _: Session, group: str, places: Sequence[Place]) -> None:
    writer.store.commit_group_offsets(group, _by_queue(places))


def _reset_group_offsets(
    writer: StoreWriter, _: Session, group: str, places: Sequence[Place], former: Sequence[FormerPlace]
) -> bool:
    return writer.store.commit_group_offsets(group, _by_queue(places), expected=_by_queue(former))


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


# Those of ``remote.calls.CALLS`` that administer a store: each takes the writer, the session, and its other arguments.
ADMIN_CALLS: Mapping[str, Callable[..., Any]] = {
    "delete_topic": _delete_topic,
    "clean_unused_topics": _clean_unused_topics,
    "clean": _clean,
    "forget_batches": lambda writer, _, app_id: writer.store.forget_batches(app_id),
    "set_group_settings": lambda writer, _, settings: writer.store.set_group_settings(settings),
    "commit_group_offsets": _commit_group_offsets,
    "reset_group_offsets": _reset_group_offsets,
    "redrive": _redrive,
}
