"""The option ``metadata``: which table about the store is read instead of its messages."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options import values
from pyspark_commitlog.options.stores import parse_commit_logs, parse_one_store, parse_stores

__all__ = ["MetadataOptions", "parse_metadata_options"]

# Spark's own options, which it may give to a source along with the user's.
_SPARKS = frozenset({"__paths__"})


class MetadataOptions(NamedTuple):
    """A read of a table about the stores, whose directories are given by name; a plain path has the name None."""

    stores: Mapping[str | None, str]
    table: str
    skips_missing_stores: bool = False
    commit_logs: Mapping[str | None, str] = MappingProxyType({})


def parse_metadata_options(options: Mapping[str, str]) -> MetadataOptions | None:
    """The options of a read with ``metadata``; None without it. ``OptionError``."""
    given = {name.lower(): value for name, value in options.items() if name.lower() not in _SPARKS}
    if "metadata" not in given or given.keys() >= values.OF_A_CATALOG:  # which ``parse_options`` refuses
        return None
    from commitlog_store import METADATA_SCHEMAS  # here, so that reads of messages do not wait for its import

    table = values.option_text("metadata", given.pop("metadata")).strip().lower()
    if table not in METADATA_SCHEMAS:
        values.refuse("metadata", table, f"one of {', '.join(METADATA_SCHEMAS)}")
    path = given.pop("path", None)
    if path is None:
        raise OptionError(
            'Option path is missing: name the store directory, as in .load("/data/store").', option="path"
        )
    stores: dict[str | None, str] = dict(parse_stores("path", values.option_text("path", path)).items())
    log = given.pop("storepathcommitlog", None)
    named = {name: directory for name, directory in stores.items() if name is not None}
    logs = {} if log is None else parse_commit_logs("storePathCommitLog", values.option_text("path", log), named)
    skips = bool(stores) and values.parse_missing_store("onMissingStore", given.pop("onmissingstore", "fail"))
    if given:
        name = next(iter(given))
        raise OptionError(
            f"Option {name} is given with metadata={table}, which reads a table about the store and takes no other "
            f"option than path, storePathCommitLog and onMissingStore: leave one out.",
            option=name,
            value=str(given[name]),
        )
    return MetadataOptions(stores or {None: parse_one_store("path", path)}, table, skips, logs)
