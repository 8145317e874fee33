"""Consumer groups of a store: positions, dead letters, settings and filters, each of all groups or of one."""

from __future__ import annotations

import time

from commitlog_store.groups import positions
from commitlog_store.groups.group_settings import (
    ConsumerFilter,
    SubscriptionGroupConfig,
    SubscriptionGroups,
    consumer_filters,
)
from commitlog_store.groups.positions import DeadLetters, GroupPosition
from commitlog_store.paths import checked_text
from commitlog_store.queue.get_message import checked_int
from commitlog_store.queue.views import ReaderView
from commitlog_store.reading.arguments import checked_group


def group_positions(reader: ReaderView, group: str | None, now_ms: int | None) -> list[GroupPosition]:
    """``StoreReader.groups``."""
    now = int(time.time() * 1000) if now_ms is None else checked_int("now_ms", now_ms)
    return reader.consistently(lambda: positions.group_positions(reader, now, checked_group(group)))


def group_offsets(reader: ReaderView, group: str) -> dict[tuple[str, int], int]:
    """``StoreReader.group_offsets``."""
    return reader.consistently(lambda: positions.group_offsets(reader, checked_text("consumer group", group)))


def dead_letters(reader: ReaderView, group: str | None) -> list[DeadLetters]:
    """``StoreReader.dead_letters``."""
    return reader.consistently(
        lambda: positions.dead_letters(reader, positions.committed_offsets(reader), checked_group(group))
    )


def group_settings(store_path: str, group: str | None) -> list[SubscriptionGroupConfig]:
    """``StoreReader.group_settings`` of the store whose ``config/`` is in ``store_path``."""
    settings, wanted = SubscriptionGroups(store_path).all(), checked_group(group)
    return [one for one in settings if wanted in (None, one.group_name)]


def group_filters(store_path: str, group: str | None) -> list[ConsumerFilter]:
    """``StoreReader.group_filters`` of the store whose ``config/`` is in ``store_path``."""
    filters, wanted = consumer_filters(store_path), checked_group(group)
    return [one for one in filters if wanted in (None, one.consumer_group)]
