"""Verification of the JSON files of ``config/``: whether each can be used, and which are replaced by their ``.bak``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from commitlog_store.batch.ledger import saved_batches
from commitlog_store.config_files.json_file import LARGEST_CONFIG, decode_config
from commitlog_store.delayed.levels import DelayOffsetFile
from commitlog_store.errors import CommitLogError, CorruptConfig, StoreAccessDenied
from commitlog_store.files import disk
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.groups.group_settings import SubscriptionGroups, consumer_filters
from commitlog_store.paths import (
    ABORT,
    BACKUP_SUFFIX,
    BATCH_LEDGER,
    CONFIG,
    CONSUMER_FILTER_CONFIG,
    CONSUMER_OFFSET_CONFIG,
    CREATED_BY,
    DELAY_OFFSET_CONFIG,
    DELETED_TOPICS,
    KV_CONFIG,
    REPLICA_MARK,
    SUBSCRIPTION_GROUP_CONFIG,
    TOPICS_CONFIG,
)
from commitlog_store.queue.deleted_topics import DeletedTopics
from commitlog_store.queue.topic_config import read_topic_config
from commitlog_store.verify.findings import Findings

# Beside an owner, so often a file is looked at before it is called faulty, and so long between two looks.
_LOOKS = 25
_PAUSE_S = 0.02

# What each file holds, and how its reader reads it.
_FILES: dict[str, tuple[str, Callable[[str], object] | None]] = {
    TOPICS_CONFIG: ("the list of topics", read_topic_config),
    CONSUMER_OFFSET_CONFIG: ("the positions of consumer groups", ConsumerOffsets),
    SUBSCRIPTION_GROUP_CONFIG: ("the settings of consumer groups", SubscriptionGroups),
    CONSUMER_FILTER_CONFIG: ("the filters of consumer groups", consumer_filters),
    DELAY_OFFSET_CONFIG: ("the positions of delayed messages", lambda path: DelayOffsetFile(path).read()),
    DELETED_TOPICS: ("the list of deleted topics", lambda path: iter(DeletedTopics(path))),
    BATCH_LEDGER: ("the ledger of batches", saved_batches),
    KV_CONFIG: ("the settings of a name server", None),
    CREATED_BY: ("the note of the store's creation", None),
    REPLICA_MARK: ("the mark of a replica", None),
}


def check_config_files(store_path: str, findings: Findings) -> None:
    """Report files that are damaged or missing beside their ``.bak``, and what is used in their place."""
    directory = os.path.join(store_path, CONFIG)
    looks = _LOOKS if disk.exists(os.path.join(store_path, ABORT)) else 1
    for name, (subject, read) in _FILES.items():
        path = os.path.join(directory, name)
        fault = _lasting_fault(path, subject, looks)
        if fault is None and read is not None:
            try:
                read(store_path)
            except CommitLogError as error:
                fault = str(error)
        if fault is not None:
            findings.add("config.file", "error", path, fault)


def _lasting_fault(path: str, subject: str, looks: int) -> str | None:
    """``_fault``, but not of a file that an owner is just replacing: its name is missing for a moment then."""
    fault = _fault(path, subject)
    while fault is not None and (looks := looks - 1):
        time.sleep(_PAUSE_S)
        fault = _fault(path, subject)
    return fault


def _fault(path: str, subject: str) -> str | None:
    """What is wrong with a file by itself, and whether its ``.bak`` can be used; None when nothing is."""
    backup = path + BACKUP_SUFFIX
    try:
        fault = _read(path, subject)
    except FileNotFoundError:
        if not disk.exists(backup):
            return None  # a store need not have it
        fault = f"{path} is missing, and its copy {BACKUP_SUFFIX} exists."
    if fault is None:
        return None
    try:
        usable = _read(backup, subject) is None
    except FileNotFoundError:
        usable = False
    instead = f"{subject[0].upper()}{subject[1:]} is read from its {BACKUP_SUFFIX}, which may be older."
    return f"{fault} {instead}" if usable else fault


def _read(path: str, subject: str) -> str | None:
    """Why a file is not JSON that can be read. ``FileNotFoundError``."""
    try:
        decode_config(disk.read_file(path, LARGEST_CONFIG), path, subject[0].upper() + subject[1:])
    except FileNotFoundError:
        raise
    except (CorruptConfig, StoreAccessDenied) as error:
        return str(error)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}."
    return None
