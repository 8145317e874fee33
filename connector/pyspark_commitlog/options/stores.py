"""Several stores in the option ``path``: ``broker-a=/data/a,broker-b=/data/b``, and JSON of offsets by store.

A text names stores if it begins with a name and ``=``, before any ``/`` or ``:``. Every comma then separates two
stores, so a path with a comma is written as a URI there, ``broker-a=file:///data/a%2Cb``. All other texts are one plain
path, whatever commas and signs it has; ``./`` makes a plain path of a relative one that looks like a name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping

from commitlog_store.errors import InvalidValue
from commitlog_store.paths import archive_hint, checked_commit_log, without_secrets
from pyspark_commitlog.options import values
from pyspark_commitlog.options.remote import is_address, is_archive, is_remote
from pyspark_commitlog.options.values import OffsetRule, did_you_mean

_LOOKS_NAMED = re.compile(r"[^/:=]*=")
# Paths with a comma between them, where names were left out.
_LOOKS_LISTED = re.compile(r",\s*(?:/|~|\.\.?/|file:)")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def parse_stores(option: str, value: str) -> dict[str, str]:
    """The directory of each named store, absolute, in the order of their names; empty for a plain path.

    ``OptionError`` for a wrong name, a name given twice, two names of one directory, and several paths without names.
    """
    if _LOOKS_NAMED.match(value) is None:
        if _LOOKS_LISTED.search(value):
            values.refuse(option, value, _with_names(value))
        return {}
    stores: dict[str, str] = {}
    name_of: dict[str, str] = {}
    for part in value.split(","):
        name, sign, path = (text.strip() for text in part.partition("="))
        if not sign or _NAME.fullmatch(name) is None:
            values.refuse(
                option,
                value,
                "stores as name=path, separated by commas, whose names are made of letters, digits, '-', '_' and '.'; "
                f"found {part.strip()!r}. A comma in a path is %2C in a file: URI, and a plain path that has an = "
                "begins with / or ./",
            )
        if name in stores:
            values.refuse(option, value, f"another name for each store; {name!r} is given twice")
        stores[name] = parse_store(option, path)
        place = stores[name] if is_address(stores[name]) else os.path.realpath(stores[name])
        other = name_of.setdefault(place, name)
        if other != name:
            values.refuse(option, value, f"another directory for each store; {other!r} and {name!r} are the same one")
    return dict(sorted(stores.items()))


def _with_names(value: str) -> str:
    """What several paths should have been."""
    paths = [path.strip() for path in value.split(",")]
    named = ",".join(f"{chr(ord('a') + number % 26)}={path}" for number, path in enumerate(paths))
    return (
        f"one store, or several with a name for each, such as {named!r}, names that last as long as the checkpoint. A "
        "comma in a path is %2C in a file: URI"
    )


def parse_store(option: str, value: str) -> str:
    """The absolute path of a store's directory, or the address of a server or of an archive. ``OptionError``."""
    return value.strip() if is_address(value.strip()) else os.path.abspath(values.parse_path(option, value))


def parse_one_store(option: str, value: str) -> str:
    """The absolute path of one store. ``OptionError`` for a text that names stores, and for several paths."""
    if _LOOKS_NAMED.match(value) is not None:
        values.refuse(
            option,
            value,
            "one store, by its path alone: only reads of messages and of metadata take several, as name=path. A path "
            "that has an = begins with / or ./",
        )
    if _LOOKS_LISTED.search(value):
        values.refuse(option, value, "one store. A comma in a path is %2C in a file: URI")
    return os.path.abspath(values.parse_path(option, value))


def parse_one_place(option: str, value: str) -> str:
    """The absolute path of one store, or the address of a server of it. ``OptionError``."""
    return value.strip() if is_remote(value.strip()) else parse_one_store(option, value)


def parse_commit_log(option: str, value: str) -> str:
    """The absolute path of the directory of one store's log. ``OptionError``."""
    try:
        return os.path.abspath(checked_commit_log(values.parse_path(option, value)))
    except InvalidValue as error:
        values.refuse(option, value, error.expected)


def parse_commit_logs(option: str, value: str, stores: Mapping[str, str]) -> dict[str | None, str]:
    """The directories of logs that are not in their stores, by the store's name; a store without a name has None."""
    return _by_name(option, value, stores, "directories") if stores else {None: parse_commit_log(option, value)}


def parse_skips(option: str, value: str, stores: Mapping[str, str]) -> bool:
    """Whether a store that is unavailable is skipped. ``OptionError``: only a named store may be."""
    skips = values.parse_fail_or_skip(option, value)
    if skips and not stores:
        values.refuse(option, value, "fail where path has no names; skip needs name=path there")
    return skips


def parse_archives(option: str, value: str, path: str, stores: Mapping[str, str]) -> dict[str, str]:
    """The archives of stores, by the stores' paths. ``OptionError``, also for a store that is an archive itself."""
    found = (
        {stores[name or ""]: url for name, url in _by_name(option, value, stores, "archives").items()}
        if stores
        else {path: value.strip()}
    )
    for store, url in found.items():
        if not is_archive(url):
            expected = f"the address of an archive, such as s3://BUCKET/PREFIX, not {without_secrets(url)!r}"
            hint = archive_hint(url).removesuffix(".")
            values.refuse(option, without_secrets(value), f"{expected}.{hint}" if hint else expected)
        if is_archive(store):
            values.refuse(option, value, f"no archive for {store}, which is one: path has the store that it is made of")
    return found


def _by_name(option: str, value: str, stores: Mapping[str, str], what: str) -> dict[str | None, str]:
    """Places by the names of stores in path. ``OptionError``."""
    found = parse_stores(option, value)
    if not found:
        values.refuse(option, value, f"{what} by the names of the stores in path: name=..., with commas between")
    for name in found:
        if name not in stores:
            hint = did_you_mean(name, {known.lower(): known for known in stores})
            values.refuse(option, value, f"names of the stores in path, {', '.join(stores)}; found {name!r}.{hint}")
    return dict(found.items())


def parse_by_store(
    parse: Callable[[str, str, int], OffsetRule], option: str, value: str, default: int, stores: Mapping[str, str]
) -> OffsetRule:
    """The rule of several stores: JSON of stores, each with what ``parse`` takes; other texts are a rule for all."""
    by_store = values.parse_json(option, value)
    if not isinstance(by_store, dict):
        return parse(option, value, default)
    for name in by_store:
        if name not in stores:
            values.refuse(
                option,
                value,
                f"JSON by store, such as {{{json.dumps(min(stores))}:{{...}}}}; path names no store {name!r}."
                f"{did_you_mean(name, {known.lower(): known for known in stores})} Its stores are: {', '.join(stores)}",
            )
    texts = {name: said if isinstance(said, str) else json.dumps(said) for name, said in by_store.items()}
    rules = {name: parse(option, text, default) for name, text in texts.items()}
    return OffsetRule(default=default, stores=rules)
