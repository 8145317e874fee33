"""How ``StoreReader.open`` finds the reader for a path: a directory, a server, an archive, or a store with its archive.

The readers of servers and archives stand on ``StoreReader``, and on packages that few programs need: they are imported
by their names, when such a path is opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from commitlog_store.batch.log_snapshot import LogSnapshot, take_snapshot
from commitlog_store.errors import InvalidValue
from commitlog_store.files import disk
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.store_directory import check_log_directory, check_store_directory
from commitlog_store.paths import ARCHIVE_SCHEMES, REMOTE_SCHEMES, archive_hint, checked_choice, without_secrets
from commitlog_store.queue.lost_log import refuse_lost_log
from commitlog_store.reading.damage import OnDamage, checked_on_damage
from commitlog_store.recovery.kept import is_kept_piece, read_kept_piece

FilterAt = Literal["reader", "server"]

_Reader = TypeVar("_Reader")


class Directory(NamedTuple):
    """The checked directory of a store, and whether its queues are derived from its log."""

    paths: StorePaths
    from_log: bool


@dataclass(frozen=True, kw_only=True)
class OpenOptions:
    """The options of ``StoreReader.open``, which has their meanings."""

    store_path_commit_log: str | os.PathLike[str] | None = None
    from_log: bool = False
    on_damage: OnDamage = "raise"
    token: str | None = field(default=None, repr=False)
    tls_root_certificates: bytes | None = None
    rpc_timeout_s: float = 30.0
    filter_at: FilterAt = "reader"
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    cache_dir: str | os.PathLike[str] | None = None
    cache_size: int | None = None

    def __post_init__(self) -> None:
        checked_on_damage(self.on_damage)

    @property
    def of_archive(self) -> tuple[object, ...]:
        """Those for an archive alone, in the order in which its functions take them."""
        return self.storage_options, self.cache_dir, self.cache_size

    @property
    def of_server(self) -> dict[str, Any]:
        """Those for a served store."""
        names = ("token", "tls_root_certificates", "rpc_timeout_s", "on_damage", "filter_at")
        return {name: getattr(self, name) for name in names}

    @property
    def are_of_directory(self) -> bool:
        """Whether some are for a directory alone."""
        return self.from_log or self.store_path_commit_log is not None


def open_reader(
    path: str | os.PathLike[str],
    archive: str | None,
    options: OpenOptions,
    of_directory: Callable[[Directory], _Reader],
) -> _Reader:
    """The reader for the kind of ``path``. ``of_directory`` makes that of a directory; errors: ``StoreReader.open``."""
    found: _Reader
    if archive is not None:
        found = _with_archive(path, archive, options, of_directory)
    elif isinstance(path, str) and path.startswith(ARCHIVE_SCHEMES):
        found = _of_archive(path, options)
    elif any(given is not None for given in options.of_archive):
        raise InvalidValue("storage_options, cache_dir and cache_size are for an archive in object storage.")
    elif isinstance(path, str) and path.startswith(REMOTE_SCHEMES):
        found = _of_server(path, options)
    else:
        found = of_directory(_checked_directory(path, options))
    return found


def _with_archive(
    path: str | os.PathLike[str], archive: str, options: OpenOptions, of_directory: Callable[[Directory], _Reader]
) -> Any:
    _refuse_archive(os.fspath(path), archive, from_log=options.from_log)
    alone = replace(options, storage_options=None, cache_dir=None, cache_size=None)
    live = open_reader(path, None, alone, of_directory)
    open_history = import_module("commitlog_store.history.opening").open_history
    return open_history(live, archive, options.on_damage, *options.of_archive)


def _of_archive(url: str, options: OpenOptions) -> Any:
    if options.are_of_directory or options.filter_at != "reader":
        raise InvalidValue("from_log, store_path_commit_log and filter_at are not for an archive.")
    open_archive = import_module("commitlog_store.archive_reader.reader").open_archive
    return open_archive(url, options.on_damage, *options.of_archive)


def _of_server(url: str, options: OpenOptions) -> Any:
    if options.are_of_directory:
        raise InvalidValue("from_log and store_path_commit_log are for a directory, not for a served store.")
    return import_module("commitlog_store.remote.reader").RemoteReader.connect(url, **options.of_server)


def _checked_directory(path: str | os.PathLike[str], options: OpenOptions) -> Directory:
    if checked_filter_at(options.filter_at) != "reader":
        raise InvalidValue(
            f"filter_at={options.filter_at!r} is for a store that commitlog serve shows, not a directory."
        )
    directory = disk.absolute_path(path)
    check_store_directory(directory)
    paths = StorePaths.of(directory, options.store_path_commit_log)
    check_log_directory(paths, exists=True)
    # A piece that recovery or repair has kept has no queues of its own.
    return Directory(paths, options.from_log or is_kept_piece(directory))


def checked_filter_at(given: FilterAt) -> FilterAt:
    """``InvalidValue``."""
    return checked_choice("filter_at", given, get_args(FilterAt))


def _refuse_archive(path: str, archive: object, *, from_log: bool) -> None:
    """``InvalidValue`` unless it can be the archive of the store at a path."""
    if not isinstance(archive, str):
        raise InvalidValue(f"archive is the address of an archive, such as s3://BUCKET/PREFIX, not {archive!r}.")
    shown = without_secrets(archive)
    if not archive.startswith(ARCHIVE_SCHEMES):
        raise InvalidValue(
            f"archive is the address of an archive, such as s3://BUCKET/PREFIX, not {shown!r}.{archive_hint(archive)}"
        )
    if path.startswith(ARCHIVE_SCHEMES):
        raise InvalidValue(
            f"archive is {shown!r}, that of a store: {without_secrets(path)!r} is an archive itself. Leave it out."
        )
    if from_log:
        raise InvalidValue(
            "from_log shows the log of a store alone, and archive adds what retention has deleted: give one of them."
        )


def open_log(paths: StorePaths, *, from_log: bool) -> tuple[CommitLog, LogSnapshot | None]:
    """The log of a store, and with ``from_log`` its snapshot. ``LogNotFound``, and the errors of ``take_snapshot``."""
    commit_log = CommitLog(paths.commit_log)
    try:
        refuse_lost_log(paths.root, commit_log)
        return commit_log, _snapshot_of(paths.root, commit_log) if from_log else None
    except BaseException:
        commit_log.close()
        raise


def _snapshot_of(path: str, commit_log: CommitLog) -> LogSnapshot:
    """The log of the store at ``path`` as it is now, with the queues that are derived from it."""
    if not is_kept_piece(path):
        return take_snapshot(path, commit_log)
    piece = read_kept_piece(path)
    return take_snapshot(path, commit_log, begin_at=piece.start, all_committed=not piece.uncommitted)
