"""Opening of an archive: settings that are given, or of the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

from commitlog_store.archive.manifest import ObjectRef
from commitlog_store.archive_reader.reader import ArchiveAccess, ArchiveReader
from commitlog_store.errors import InvalidValue, StoreAccessDenied
from commitlog_store.object_storage.address import StorageAddress
from commitlog_store.object_storage.page_cache import DEFAULT_LIMIT
from commitlog_store.queue.get_message import checked_count
from commitlog_store.reader import OnDamage

_CACHE_VARIABLE = "COMMITLOG_CACHE_DIR"


def open_archive(
    url: str,
    on_damage: OnDamage,
    storage_options: Mapping[str, str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | None = None,
    manifest: ObjectRef | None = None,
) -> ArchiveReader:
    """``StoreReader.open`` of an archive. ``COMMITLOG_CACHE_DIR`` is the cache's directory where none is given.

    With ``manifest``, that of another reader, it begins with that reader's generation and does not look for the newest.
    """
    directory = os.fspath(cache_dir) if cache_dir is not None else os.environ.get(_CACHE_VARIABLE, "")
    access = ArchiveAccess(
        address=StorageAddress.parse(url, options=storage_options),
        cache_dir=directory,
        cache_limit=DEFAULT_LIMIT if cache_size is None else checked_count("cache_size", cache_size),
        manifest=manifest,
    )
    try:
        return ArchiveReader(access, on_damage=on_damage)
    except (OSError, StoreAccessDenied) as error:
        raise InvalidValue(f"The cache of archives cannot be made in {directory}: {error}") from error
