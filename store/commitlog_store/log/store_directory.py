"""Check of a store directory by the names in it: whether it is a store that can be read, or owned."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from urllib.parse import quote

from commitlog_store.columnar.dispatch import DispatchRequests, inner_batch_topics
from commitlog_store.columnar.scan import RecordScan
from commitlog_store.errors import LogNotFound, NotAStore, StoreNotFound, UnsupportedStore
from commitlog_store.files import disk
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.paths import (
    ABORT,
    ARCHIVE_IDENTITY,
    ARCHIVE_MANIFESTS,
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    COMMIT_LOG,
    COMPACTION_CONSUME_QUEUE,
    CONFIG,
    CONSUME_QUEUE,
    GATE,
    INDEX,
    KEPT,
    LOCK,
    REPAIR,
    SETTLED,
    STAGING,
)

_DIRECTORIES = (COMMIT_LOG, CONSUME_QUEUE, INDEX)
_FILES = (CHECKPOINT, ABORT, LOCK)
_FILE_NAME_DIGITS = (20, 17)  # of the log and the queues, of the index
# The directories of a store in which there is no other store.
_INNER = frozenset({*_DIRECTORIES, CONFIG, STAGING, REPAIR})
_MOST_LEVELS = 4  # consumequeue/<topic>/<queue id>/<file>
# A store's first owner makes its directory and, right after, the lock in it: how often to look at an empty one.
_LOOK_AGAIN_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02)


def check_store_directory(path: str) -> None:
    """Return for a store directory of the default kind; raise the fitting ``StoreOpenError`` for any other path."""
    path = disk.absolute_path(path)
    try:
        names = _listed(path)
    except FileNotFoundError:
        raise StoreNotFound(f"No store at {path}: the directory does not exist.{_hint(path)}", path=path) from None
    except NotADirectoryError:
        raise not_a_directory(path) from None
    except (OSError, ValueError) as error:  # an overlong name, a link to itself, a zero byte
        raise StoreNotFound(f"No store at {path}: {error}.", path=path) from error
    if not names & {*_DIRECTORIES, *_FILES}:
        raise NotAStore(f"{path} is not a store: it holds neither {_known()}.{_hint(path, names)}", path=path)
    if names >= {ARCHIVE_IDENTITY, ARCHIVE_MANIFESTS} and not names & {*_FILES}:
        raise NotAStore(
            f"{path} is an archive, not a store. It is read at its address, archive+file://{quote(path)}; 'commitlog "
            "restore' makes a store of it.",
            path=path,
        )
    for name in _DIRECTORIES:
        inner = os.path.join(path, name)
        if name in names:
            try:
                disk.directory_signature(inner)
            except NotADirectoryError:
                raise NotAStore(f"{inner} should be a directory of the store, but is a file.", path=inner) from None
            except FileNotFoundError:
                if disk.is_symlink(inner):
                    raise NotAStore(
                        f"{inner} should be a directory of the store, but is a symbolic link that leads nowhere. "
                        "Mount or restore what it leads to, or remove it.",
                        path=inner,
                    ) from None
                names.remove(name)  # removed since the listing
    _refuse_other_kinds(path, names)


def check_log_directory(paths: StorePaths, *, exists: bool) -> None:
    """``NotAStore`` or ``LogNotFound`` for a log's directory elsewhere that is not one, or is not there.

    Unless it ``exists``, it is to be made: the directory above it must be there, so that a disk that is not mounted
    does not get a new log in its place.
    """
    path = paths.elsewhere
    if path is None or disk.is_directory(path):
        return
    if disk.exists(path):
        raise NotAStore(f"{path} should be the directory of the log (store_path_commit_log), but is none.", path=path)
    if exists:
        raise LogNotFound.at(path, "that is where it was said to be")
    if not disk.is_directory(os.path.dirname(path)):
        raise LogNotFound.at(path, f"{os.path.dirname(path)}, which does not exist, was said to hold it")


def _listed(path: str) -> set[str]:
    for pause in _LOOK_AGAIN_SECONDS:
        if names := disk.list_names(path):
            return set(names)
        time.sleep(pause)
    return set(disk.list_names(path))


def _known() -> str:
    return ", ".join(f"'{name}'" for name in _DIRECTORIES) + f" nor '{CHECKPOINT}'"


def refuse_linked_directories(paths: StorePaths) -> None:
    """``NotAStore`` for a part of the store that is a link: an owner writes through none (invariant 10)."""
    for name in (*_DIRECTORIES, CONFIG):
        inner = paths.part(name)
        if disk.is_symlink(inner):
            do = "Open the directory it leads to"
            if name == COMMIT_LOG:
                do = "Name the directory it leads to in store_path_commit_log"
            raise NotAStore(
                f"{inner} is a symbolic link; a store is written only where it lies. {do}, or mount it there.",
                path=inner,
            )


OWNERS_FILES = (LOCK, ABORT, GATE, SETTLED)
"""The files by which an owner shows what it does, in the store's directory."""


def owners_file_fault(path: str) -> str | None:
    """What is wrong with one of ``OWNERS_FILES``: it is a directory or a link. None if it is a file, or is missing."""
    if disk.is_symlink(path):
        found = "a symbolic link" if disk.is_file(disk.real_path(path)) else "a symbolic link that leads to no file"
    elif disk.is_directory(path):
        found = "a directory"
    else:
        return None
    do = "Remove or rename it while the store has no owner: the next one makes the file."
    if os.path.basename(path) == ABORT:
        do = "Replace it with an empty file: the next owner then looks for the log's end, as after a crash."
    return f"{path} is {found}; expected a file, which the store's owner writes. {do}"


def refuse_odd_files(root: str) -> None:
    """``NotAStore`` for a file of the owner's that is a directory or a link, and so cannot be written."""
    for name in OWNERS_FILES:
        path = os.path.join(root, name)
        if name == ABORT and disk.is_symlink(path):
            continue  # an owner replaces it
        if (fault := owners_file_fault(path)) is not None:
            raise NotAStore(fault, path=path)


def not_a_directory(path: str) -> NotAStore:
    """The error for the path of a file, or for one below a file."""
    return NotAStore(
        f"{path} is a file; a store is a directory that holds '{COMMIT_LOG}' and '{CONSUME_QUEUE}'.{_hint(path)}",
        path=path,
    )


def _hint(path: str, names: Collection[str] = ()) -> str:
    """The store's directory that was probably meant, as a sentence to follow another one."""
    for name in ("store", "rocketmq-store"):
        if name in names:
            return f" Did you mean {os.path.join(path, name)}?"
    with_files = any(name.isdigit() and len(name) in _FILE_NAME_DIGITS for name in (*names, os.path.basename(path)))
    around = _store_around(path, with_files=with_files)
    return "" if around is None else f" It is within a store: did you mean {around}?"


def _store_around(path: str, *, with_files: bool = False) -> str | None:
    """The store's directory above a path that is a part of it; None for a path elsewhere.

    A directory with nothing but 'commitlog' need not be a store, unless the path is ``with_files`` of a store.
    """
    at, inner = os.path.split(path)
    for _ in range(_MOST_LEVELS):
        if inner in _INNER or inner in _FILES:
            others = [disk.exists(os.path.join(at, name)) for name in (CONSUME_QUEUE, *_FILES)]
            if disk.exists(os.path.join(at, COMMIT_LOG)) and (with_files or any(others)):
                return at
        at, inner = os.path.split(at)
    return None


def refuse_store_within(path: str) -> None:
    """``NotAStore`` for a new store in a directory that a store keeps for itself: that one's owner may delete it."""
    around = _store_around(path)
    if around is not None:
        raise NotAStore(
            f"{path} is within the store {around}, in a directory that it keeps for itself: no store is created there. "
            f"Did you mean {around}?",
            path=path,
        )


def _refuse_other_kinds(path: str, names: set[str]) -> None:
    others = sorted(name for name in names if name.startswith(CONSUME_QUEUE) and name != CONSUME_QUEUE)
    if CONSUME_QUEUE in names:
        # Every task of a Spark query opens the store: the names of all topics take milliseconds.
        disk.check_may_list(os.path.join(path, CONSUME_QUEUE))
        if others and _has_directories(os.path.join(path, CONSUME_QUEUE)):
            others = []
    for name in [CONSUME_QUEUE, *others]:
        if name in names and _is_rocksdb(os.path.join(path, name)):
            raise UnsupportedStore(
                f"{path} keeps its consume queues in RocksDB ({name}). Only the default store type, with consume-queue "
                "files, can be read.",
                path=path,
            )
    ledgers = sorted(name for name in names if name.startswith("dledger-"))
    if ledgers and COMMIT_LOG not in names:
        raise UnsupportedStore(
            f"{path} keeps its log in DLedger files ({ledgers[0]}), whose records have another frame. Only the default "
            "CommitLog can be read.",
            path=path,
        )


def _has_directories(path: str) -> bool:
    return disk.surely_has_names(path) or any(
        disk.is_directory(os.path.join(path, name)) for name in disk.list_names(path)
    )


def _is_rocksdb(path: str) -> bool:
    if not disk.exists(os.path.join(path, "CURRENT")) or not disk.is_directory(path):
        return False
    return any(name.startswith("MANIFEST-") for name in disk.list_names(path))


_OTHER_KINDS = (
    (BATCH_CONSUME_QUEUE, "is kept in batch consume queues"),
    (COMPACTION_CONSUME_QUEUE, "is a compaction topic"),
)


def has_other_kinds(path: str) -> bool:
    """Whether a store may have topics whose messages are not in a plain consume queue."""
    return any(disk.is_directory(os.path.join(path, directory)) for directory, _ in _OTHER_KINDS)


def other_topic_kind(path: str, topic: str) -> str | None:
    """The kind of a topic whose messages are not in a plain consume queue, after its name in a sentence; else None."""
    for directory, what in _OTHER_KINDS:
        if disk.is_directory(f"{path}/{directory}/{topic}"):  # asked for each topic
            return f"{what} ({directory}/{topic})"
    return None


def refuse_kept_piece(path: str) -> None:
    """``NotAStore`` for a piece that was cut off a log: it is kept to be read, and has no owner."""
    if disk.exists(os.path.join(path, KEPT)):
        raise NotAStore(
            f"{path} is a piece that was cut off a store's log, and is kept to be read: it is not opened for writing. "
            "StoreReader and the commands that look read it; 'commitlog salvage' makes a store of it.",
            path=path,
        )


def check_topic_kind(path: str, topic: str) -> None:
    """``UnsupportedStore`` for a topic whose messages are not in a plain consume queue."""
    if kind := other_topic_kind(path, topic):
        raise UnsupportedStore(f"Topic {topic!r} in {path} {kind}, which this package does not read.", path=path)


def refuse_batch_queues(path: str) -> None:
    """``UnsupportedStore`` for an owner where a topic has batch consume queues: an owner keeps all queues complete.

    A broker dispatches only what comes after the last message of all its queues, so that it would not complete them.
    """
    directory = os.path.join(path, BATCH_CONSUME_QUEUE)
    names = sorted(disk.list_names(directory)) if disk.is_directory(directory) else []
    topics = [name for name in names if disk.is_directory(os.path.join(directory, name))]
    if topics:
        raise _batch_queues(path, topics)


def refuse_inner_batches(scan: RecordScan, requests: DispatchRequests, path: str) -> None:
    """``UnsupportedStore`` for an owner whose log holds records for batch consume queues, of which it has no files."""
    if topics := inner_batch_topics(scan, requests):
        raise _batch_queues(path, topics)


def _batch_queues(path: str, topics: list[str]) -> UnsupportedStore:
    more = f" and {len(topics) - 1} more" if len(topics) > 1 else ""
    return UnsupportedStore(
        f"Topic {topics[0]!r}{more} in {path} is kept in batch consume queues ({BATCH_CONSUME_QUEUE}), which this "
        "package does not write: only a RocketMQ broker can own this store. StoreReader reads its other topics.",
        path=path,
    )
