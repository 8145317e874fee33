"""Readers for the tasks of a plan, of archives and histories: they begin with the manifest with which it was made.

So a task does not look for the newest manifest, and reads the generation that was planned; where a cache on the local
disk has what it reads, it asks object storage for nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

from commitlog_store.archive.manifest import ObjectRef
from commitlog_store.archive_reader.reader import ArchiveReader, open_archive
from commitlog_store.history.opening import open_history
from commitlog_store.history.reader import HistoryReader
from commitlog_store.reader import OnDamage, StoreReader

PlannedManifest: TypeAlias = ObjectRef
"""A manifest's name, size and checksums. It is pickled."""


def manifest_of(reader: StoreReader) -> PlannedManifest | None:
    """The manifest with which the reader of an archive, or of a history, answers; None for another reader."""
    archive = reader.past if isinstance(reader, HistoryReader) else reader
    return archive.manifest if isinstance(archive, ArchiveReader) else None


def open_planned(
    path: str,
    manifest: PlannedManifest | None,
    *,
    archive: str | None = None,
    on_damage: OnDamage = "raise",
    storage_options: Mapping[str, str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | None = None,
    **of_live_store: Any,
) -> StoreReader:
    """``StoreReader.open`` of an archive, or of a store with its ``archive``, with the manifest of ``manifest_of``."""
    of_archive = (on_damage, storage_options, cache_dir, cache_size, manifest)
    if archive is None:
        return open_archive(path, *of_archive)
    live = StoreReader.open(path, on_damage=on_damage, **of_live_store)
    return open_history(live, archive, *of_archive)
