"""Options of a read with ``metadata``: a table about stores in place of their messages, with the same places."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from commitlog_store.paths import without_secrets
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options import values
from pyspark_commitlog.options.read import OPTION_NAMES
from pyspark_commitlog.options.remote import (
    ARCHIVE_OPTIONS,
    CLIENT_OPTIONS,
    RemoteOptions,
    is_archive,
    parse_remote,
    refuse_at_address,
)
from pyspark_commitlog.options.stores import parse_archives, parse_commit_logs, parse_skips, parse_store, parse_stores

_METADATA = "metadata"
_COMMIT_LOG = "storePathCommitLog"
_ARCHIVE = "archive"
_MISSING_STORE = "onMissingStore"
# Where the stores are, and how they are reached: as for messages.
_TAKEN = ("path", _COMMIT_LOG, _ARCHIVE, _MISSING_STORE, *CLIENT_OPTIONS, *ARCHIVE_OPTIONS)
# Spark's own options, which it may give to a source along with the user's.
_SPARKS = frozenset({"__paths__"})
# Tables that are made of a store's files, and what to do with an archive instead.
_OF_FILES = {
    "files": "'commitlog restore {url} DIR' makes a store with files of it",
    "findings": "'commitlog archive --check --deep {url}' compares its objects with their checksums",
}


class MetadataOptions(NamedTuple):
    """A read of a table about the stores, whose places are given by name; a plain path has the name None."""

    stores: Mapping[str | None, str]
    table: str
    skips_missing_stores: bool = False
    commit_logs: Mapping[str | None, str] = MappingProxyType({})
    remote: RemoteOptions = RemoteOptions()


def parse_metadata_options(options: Mapping[str, str]) -> MetadataOptions | None:
    """The options of a read with ``metadata``; None without it. ``OptionError``."""
    given = {name.lower(): value for name, value in options.items() if name.lower() not in _SPARKS}
    if _METADATA not in given or given.keys() >= values.OF_A_CATALOG:  # which ``parse_options`` refuses
        return None
    table = _table(given.pop(_METADATA))
    found = {name: values.option_text(name, given.pop(name.lower())) for name in _TAKEN if name.lower() in given}
    for lower, value in given.items():
        name = next((known for known in OPTION_NAMES if known.lower() == lower), lower)
        raise OptionError(
            f"Option {name} is given with metadata={table}, which reads a table about the store and takes no other "
            f"option than path, {_COMMIT_LOG}, {_MISSING_STORE}, {_ARCHIVE}, and those of a served store and of an "
            "archive: leave one out.",
            option=name,
            value=str(value),
        )
    if "path" not in found:
        raise OptionError(
            'Option path is missing: name the store directory, as in .load("/data/store").', option="path"
        )
    stores = parse_stores("path", found["path"])
    paths: dict[str | None, str] = dict(stores.items()) or {None: parse_store("path", found["path"])}
    logs = parse_commit_logs(_COMMIT_LOG, found[_COMMIT_LOG], stores) if _COMMIT_LOG in found else {}
    if logs:
        refuse_at_address(_COMMIT_LOG, found[_COMMIT_LOG], [paths[name] for name in logs])
    path = "" if stores else paths[None]
    archives = parse_archives(_ARCHIVE, found[_ARCHIVE], path, stores) if _ARCHIVE in found else {}
    _refuse_archives(table, [*paths.values()], archives)
    skips = parse_skips(_MISSING_STORE, found.get(_MISSING_STORE, "fail"), stores)
    return MetadataOptions(paths, table, skips, logs, parse_remote(found, paths, archives))


def _table(given: object) -> str:
    from commitlog_store import METADATA_SCHEMAS  # here, so that reads of messages do not wait for its import

    table = values.option_text(_METADATA, given).strip().lower()
    if table not in METADATA_SCHEMAS:
        values.refuse(_METADATA, table, f"one of {', '.join(METADATA_SCHEMAS)}")
    return table


def _refuse_archives(table: str, paths: list[str], archives: Mapping[str, str]) -> None:
    """``OptionError`` for a table of a store's files where a store is an archive, or is read together with one."""
    if table not in _OF_FILES:
        return
    for url in filter(is_archive, paths):
        shown = without_secrets(url)
        raise OptionError(
            f"Option metadata is {table!r}, which is made of the files of a store, and {shown} is an archive: "
            f"{_OF_FILES[table].format(url=shlex.quote(shown))}.",
            option=_METADATA,
            value=table,
        )
    for url in archives.values():
        shown = without_secrets(url)
        raise OptionError(
            f"Option archive is given with metadata={table}, which is made of the files of the store in path alone: "
            f"leave it out. For the archive, {_OF_FILES[table].format(url=shlex.quote(shown))}.",
            option=_ARCHIVE,
            value=shown,
        )
