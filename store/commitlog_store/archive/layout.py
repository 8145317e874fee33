"""Layout of an archive: the names of its objects below one prefix of a bucket.

::

    <prefix>/
      archive.json                        the identity: which store this is the archive of. Created before all else
      manifest/<20 digits>                one a generation, JSON (``manifest``): what the archive consists of
      catalog/<20 digits>-<16 hex>        one a generation: queues, bounds, and where units are (``catalog``)
      groups/<20 digits>-<16 hex>         where the units of each queue are in 32 consecutive segments (``catalog``)
      commitlog/<20 digits>-<16 hex>      a segment: a log file, byte for byte, or the written part of the last one
      units/<20 digits>-<16 hex>          the queue units of that segment's records (``unit_objects``)
      index/<20 digits>-<16 hex>          where that segment's messages are, by key (``index_objects``)
      config/<20 digits>-<16 hex>         a JSON file of the store's config/, as it was

The 20 digits are a physical offset: that of the segment's first byte; of a group's first segment; in ``catalog/`` and
``config/``, of the end of what is archived. The 16 hex digits begin the SHA-256 of the object's bytes. So a name never
gets other bytes: an upload may be repeated, two archivers of one store write the same objects, an archiver of a copy
that has diverged writes others, and a cache needs no more than the name.

A manifest's digits are 99999999999999999999 minus its generation, so that a listing begins with the newest one, and one
request finds it however many there are. An object that the newest manifest does not name does not exist.
"""

from __future__ import annotations

import re

from commitlog_store.errors import InvalidValue
from commitlog_store.paths import ARCHIVE_IDENTITY, ARCHIVE_MANIFESTS

IDENTITY = ARCHIVE_IDENTITY
MANIFEST = ARCHIVE_MANIFESTS
CATALOG = "catalog"
GROUPS = "groups"
COMMIT_LOG = "commitlog"
UNITS = "units"
INDEX = "index"
CONFIG = "config"

_LAST = 10**20 - 1
_DIGITS = 20
_HASH_DIGITS = 16
_KINDS = "|".join((CATALOG, GROUPS, COMMIT_LOG, UNITS, INDEX, CONFIG))
_OBJECT_NAME = re.compile(rf"(?:{_KINDS})/[0-9]{{{_DIGITS}}}-[0-9a-f]{{{_HASH_DIGITS}}}", re.ASCII)
_MANIFEST_NAME = re.compile(rf"{MANIFEST}/([0-9]{{{_DIGITS}}})", re.ASCII)


def manifest_name(generation: int) -> str:
    """The name of a generation's manifest. Generations count from 1. ``InvalidValue``."""
    if not 0 < generation <= _LAST:
        raise InvalidValue(f"A generation of an archive is a number from 1 on, not {generation}.")
    return f"{MANIFEST}/{_LAST - generation:0{_DIGITS}d}"


def generation_of(name: str) -> int | None:
    """The generation of a manifest, by its name below the prefix; None for another object."""
    found = _MANIFEST_NAME.fullmatch(name)
    return None if found is None else _LAST - int(found[1]) or None


def is_of_archive(name: str) -> bool:
    """Whether an object below the prefix has a name that archivers give. Others may be anything, and stay."""
    return name == IDENTITY or bool(_MANIFEST_NAME.fullmatch(name) or _OBJECT_NAME.fullmatch(name))


def object_name(kind: str, offset: int, sha256: str) -> str:
    """The name of an object of that kind (``COMMIT_LOG``, ...), by an offset and the SHA-256 of its bytes."""
    return f"{kind}/{offset:0{_DIGITS}d}-{sha256[:_HASH_DIGITS]}"
