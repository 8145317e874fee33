"""Deletion of the objects of an archive that its newest generation does not name: parts of the last file that a closed
file has replaced, earlier catalogs and manifests, and what a killed archiver has left."""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass

from commitlog_store.archive.generations import newest
from commitlog_store.archive.layout import IDENTITY, generation_of
from commitlog_store.archive.object_store import ObjectStore
from commitlog_store.archive.uploads import GRACE_S
from commitlog_store.files import disk

__all__ = ["ArchiveGcReport", "gc_archive"]

_MS = 1000
# How the object store of a local disk names a file until it is whole.
_UNFINISHED = re.compile(r".+#[0-9]+")


@dataclass(frozen=True, kw_only=True)
class ArchiveGcReport:
    """What was deleted, or with ``dry_run`` would be: objects and bytes; and objects that are too young for that."""

    url: str
    generation: int
    deleted: int
    size: int
    young: int


def gc_archive(
    url: str | ObjectStore,
    *,
    older_than_s: float = GRACE_S,
    dry_run: bool = False,
    options: dict[str, str] | None = None,
    now_s: float | None = None,
) -> ArchiveGcReport:
    """Delete what the newest generation of the archive at ``url`` does not name, and what is as old.

    An archiver may be about to name an object, and a reader may be reading an earlier generation: give a shorter time
    than a day only while neither runs. ``ArchiveNotFound`` without a manifest: then nothing is deleted. ::

        print(gc_archive("s3://bucket/orders").deleted)
    """
    objects = url if isinstance(url, ObjectStore) else ObjectStore.open(url, options=options)
    before_ms = ((time.time() if now_s is None else now_s) - older_than_s) * _MS
    # The listing comes first: what it shows, and a later manifest does not name, no manifest is about to name.
    found = list(objects.list())
    manifest = newest(objects)
    named = {ref.name for ref in manifest.objects()} | {IDENTITY}
    unnamed = [one for one in found if one.name not in named and generation_of(one.name) != manifest.generation]
    old = [one for one in unnamed if one.modified_ms <= before_ms]
    unfinished = _unfinished(objects.directory, before_ms) if objects.directory else []
    if not dry_run:
        # Manifests first: none names what is missing.
        objects.delete([one.name for one in old if generation_of(one.name) is not None])
        objects.delete([one.name for one in old if generation_of(one.name) is None])
        for path, _ in unfinished:
            with contextlib.suppress(FileNotFoundError):
                disk.unlink(path)
    return ArchiveGcReport(
        url=str(objects),
        generation=manifest.generation,
        deleted=len(old) + len(unfinished),
        size=sum(one.size for one in old) + sum(size for _, size in unfinished),
        young=len(unnamed) - len(old),
    )


def _unfinished(directory: str, before_ms: float) -> list[tuple[str, int]]:
    """The files of a local disk that a killed archiver was writing, and their sizes."""
    found = []
    for folder in disk.list_directories(directory):
        for name in disk.list_names(os.path.join(directory, folder)):
            path = os.path.join(directory, folder, name)
            if _UNFINISHED.fullmatch(name) and disk.modified_at(path) * _MS <= before_ms:
                found.append((path, disk.file_size(path)))
    return found
