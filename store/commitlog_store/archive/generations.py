"""Generations of an archive: finding the newest manifest, and committing the next one.

The conditional put of a manifest is the commit. Of two archivers that add to the same generation one succeeds; the
other one reads what that one committed, and continues from there.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from commitlog_store.archive.damage import RESTORE_ADVICE
from commitlog_store.archive.layout import IDENTITY, MANIFEST, generation_of, manifest_name
from commitlog_store.archive.manifest import (
    Identity,
    Manifest,
    ObjectRef,
    contradiction_in,
    decode_identity,
    decode_manifest,
    encode_identity,
    encode_manifest,
)
from commitlog_store.errors import ArchiveDamaged, ArchiveNotFound
from commitlog_store.format.checksum import crc32
from commitlog_store.object_storage.object_store import ObjectStore

# How often to look for the newest manifest again, when that which was listed is deleted before it is read.
_LOOKS = 8


class StoredManifest(NamedTuple):
    """A manifest, and the object that it is."""

    manifest: Manifest
    ref: ObjectRef


def newest_or_none(objects: ObjectStore, known: Manifest | None = None) -> Manifest | None:
    """The newest generation, by two requests; None without any. ``ArchiveDamaged``, ``UnsupportedArchive``.

    ``known`` is one that was read before. A listing that does not show it is an old one: then names are asked for,
    which object stores answer from what they hold.
    """
    found = _newest(objects, known)
    return None if found is None else found.manifest


def _newest(objects: ObjectStore, known: Manifest | None) -> StoredManifest | None:
    name = ""
    for _ in range(_LOOKS):
        found = [generation_of(one.name) for one in objects.list(MANIFEST, first_only=True)]
        last = max((one for one in found if one is not None), default=0)
        if known is not None and last < known.generation:
            return _by_name(objects, known)
        if not last:
            return None
        name = manifest_name(last)
        manifest = _read(objects, last)
        if manifest is not None:
            return manifest
    raise ArchiveDamaged(f"{objects} lists {name}, and does not have it. Try again.", name=name)


def _by_name(objects: ObjectStore, known: Manifest) -> StoredManifest | None:
    """The last of the generations from a known one on; None without that one: the archive was deleted."""
    found = _read(objects, known.generation)
    following = found
    while following is not None:
        found, following = following, _read(objects, following.manifest.generation + 1)
    return found


def read_generation(objects: ObjectStore, generation: int) -> Manifest | None:
    """The manifest of a generation; None without it. ``ArchiveDamaged``, ``UnsupportedArchive``."""
    found = _read(objects, generation)
    return None if found is None else found.manifest


def _read(objects: ObjectStore, generation: int) -> StoredManifest | None:
    name = manifest_name(generation)
    data = objects.get(name)
    if data is None:
        return None
    manifest = decode_manifest(data, f"{objects}/{name}")
    if manifest.generation != generation:
        raise ArchiveDamaged(
            f"{objects}/{name} says that it is generation {manifest.generation}, which has another name. "
            f"{RESTORE_ADVICE}",
            name=name,
        )
    sha256 = hashlib.sha256(data).hexdigest()
    return StoredManifest(manifest, ObjectRef(name=name, size=len(data), crc32=crc32(data), sha256=sha256))


def newest(objects: ObjectStore) -> Manifest:
    """The newest generation. ``ArchiveNotFound`` and the errors of ``newest_or_none``."""
    return newest_stored(objects).manifest


def newest_stored(objects: ObjectStore, known: Manifest | None = None) -> StoredManifest:
    """As ``newest``, and as ``newest_or_none`` with a ``known`` one, with the manifest's object."""
    manifest = _newest(objects, known)
    if manifest is None:
        raise ArchiveNotFound(
            f"No archive at {objects}: it has no manifest. 'commitlog archive PATH {objects}' makes one.",
            path=str(objects),
        )
    return manifest


def commit(objects: ObjectStore, manifest: Manifest) -> bool:
    """Make a manifest the newest one; False when another archiver has committed that generation."""
    if problem := contradiction_in(manifest):
        raise ValueError(f"generation {manifest.generation} would contradict itself, and was not committed: {problem}")
    name, data = manifest_name(manifest.generation), encode_manifest(manifest)
    # The same bytes are those of a request of ours whose answer was lost.
    return objects.put_new(name, data) or objects.get(name) == data


def read_identity(objects: ObjectStore) -> Identity | None:
    """The identity; None where nothing was archived yet. ``ArchiveDamaged``, ``UnsupportedArchive``."""
    data = objects.get(IDENTITY)
    return None if data is None else decode_identity(data, f"{objects}/{IDENTITY}")


def create_identity(objects: ObjectStore, identity: Identity) -> Identity:
    """Give the archive an identity; that of another archiver, if that one was faster."""
    if objects.put_new(IDENTITY, encode_identity(identity)):
        return identity
    return read_identity(objects) or identity
