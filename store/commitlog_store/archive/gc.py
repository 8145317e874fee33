"""Deletion of the objects of an archive that its newest generation does not name: parts of the last file that a closed
file has replaced, earlier catalogs and manifests, and what a killed archiver has left.

An object that a reader may be reading stays: it is named by the generation that was the newest one a day ago, or it is
younger than a day. What archivers do not name, such as another archive below the same prefix, stays as well.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass

from commitlog_store.archive.generations import newest, read_generation
from commitlog_store.archive.layout import IDENTITY, generation_of, is_of_archive, manifest_name
from commitlog_store.archive.uploads import GRACE_S
from commitlog_store.files import disk
from commitlog_store.object_storage.clients import Listed, whole_name
from commitlog_store.object_storage.object_store import ObjectStore

_MS = 1000
# The object store of a local disk names a file NAME#NUMBER until it is whole.
_UNFINISHED = "#"


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
    found = [one for one in objects.list(unfinished=True) if is_of_archive(whole_name(one.name))]
    manifest = newest(objects)
    named = {ref.name for ref in manifest.objects()} | {IDENTITY, manifest_name(manifest.generation)}
    named |= _named_before(objects, found, before_ms)
    unnamed = [one for one in found if one.name not in named]
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


def _named_before(objects: ObjectStore, found: list[Listed], before_ms: float) -> set[str]:
    """The objects of the generation that was the newest one at that time, and its manifest: readers may have it."""
    generations = [generation_of(one.name) or 0 for one in found if one.modified_ms <= before_ms]
    last = max(generations, default=0)
    manifest = read_generation(objects, last) if last else None
    return set() if manifest is None else {ref.name for ref in manifest.objects()} | {manifest_name(last)}


def _unfinished(directory: str, before_ms: float) -> list[tuple[str, int]]:
    """The files of a local disk that a killed archiver was writing, and their sizes."""
    found = []
    for folder in disk.list_directories(directory):
        for name in disk.list_names(os.path.join(directory, folder)):
            path = os.path.join(directory, folder, name)
            whole, mark, number = name.rpartition(_UNFINISHED)
            is_ours = bool(mark) and number.isdigit() and is_of_archive(f"{folder}/{whole}")
            if is_ours and disk.modified_at(path) * _MS <= before_ms:
                found.append((path, disk.file_size(path)))
    return found
