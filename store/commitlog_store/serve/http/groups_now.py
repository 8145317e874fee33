"""Positions and settings of consumer groups as they are now: of an owned store in memory, else they are read."""

from __future__ import annotations

from collections.abc import Sequence

from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.groups.group_settings import SubscriptionGroupConfig
from commitlog_store.groups.positions import committed_offsets
from commitlog_store.reader import StoreReader
from commitlog_store.store import MessageStore, owned_by


def positions_now(reader: StoreReader, owned: MessageStore | None) -> ConsumerOffsets:
    """The positions of all groups, for looking only. ``CorruptConfig``, ``ReadFailed``."""
    return committed_offsets(reader) if owned is None else owned_by(owned).groups.offsets


def settings_now(reader: StoreReader, owned: MessageStore | None) -> Sequence[SubscriptionGroupConfig]:
    """The settings of all groups that have some, by name. ``CorruptConfig``, ``ReadFailed``."""
    if owned is None:
        return reader.group_settings()
    return owned_by(owned).groups.subscription_groups.all()


def settings_of_group(reader: StoreReader, owned: MessageStore | None, group: str) -> SubscriptionGroupConfig | None:
    """Those of one group; None if it has none. ``CorruptConfig``, ``ReadFailed``."""
    if owned is None:
        return next(iter(reader.group_settings(group)), None)
    return owned_by(owned).groups.subscription_groups.get(group)
