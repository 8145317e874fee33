"""JsonConfigFile: one JSON file of ``<store>/config/``, read as a broker reads it and replaced whole.

A broker writes such a file with fastjson: indented with tabs, no space after a colon, integers as names without quotes.
The content before the last change lies beside it, with ``.bak``::

    {
        "dataVersion":{"counter":12,"stateVersion":0,"timestamp":1700000000000},
        "offsetTable":{"orders@billing":{0:12,1:9}}
    }

A file that is missing, empty or damaged is read from its ``.bak``: RocketMQ 5.x overwrites in place, so a crash leaves
that. Members that this package does not know stay as they are.

A file is written under another name, synced, and renamed: whenever the machine stops, it is the old one or the new one.
Only the owner of a store writes: a live broker overwrites these files from its memory and does not read them again.

Source: RocketMQ ``common/ConfigManager.java``, ``common/MixAll.java`` (``string2File``),
``remoting/protocol/DataVersion.java``.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import time
import zlib
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Annotated, Any, TypeVar, cast

import msgspec

from commitlog_store.errors import CorruptConfig, NotAStore, ReadFailed, StoreAccessDenied
from commitlog_store.files import disk
from commitlog_store.files.whole_file import replace_failed, replace_file, sync_names_beside
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.paths import BACKUP_SUFFIX

_LOG = logging.getLogger(__name__)

# Bytes of a file that is still read; far beyond what a broker ever writes.
LARGEST_CONFIG = 256 << 20
# A text, or an integer that is the name of a member: fastjson leaves the quotes off.
_TEXT_OR_INTEGER_NAME = re.compile(r'"(?:[^"\\]|\\.)*"|([{,]\s*)(-?[0-9]+)(?=\s*:)', re.DOTALL)
# How ``encode_config`` begins a row, and ends a table that is the last member and has rows.
_ROW_START = b"{\n\t\t"
_TABLE_END = b"\n\t}\n}"
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class _Version(msgspec.Struct):
    counter: Annotated[int, msgspec.Meta(ge=0, le=MAX_LONG - 1)] = 0


class JsonConfigFile:
    """A file of ``config/``. ``subject`` begins the sentence of an error: ``"The list of topics"``.

    ``check(file, root)`` raises ``CorruptConfig`` for an object that a broker would not read; its ``.bak`` counts then.
    """

    def __init__(
        self, path: str, subject: str, check: Callable[[JsonConfigFile, dict[str, Any]], object] | None = None
    ) -> None:
        self.path = path
        self.subject = subject
        self._check = check
        # Length and CRC-32 of the content that was read or written last, and can be used; whether it was written here.
        self._sound: tuple[int, int] | None = None
        self._is_own = False

    def read(self) -> dict[str, Any]:
        """The whole content, an object; empty if there is neither the file nor its ``.bak``.

        A file that is missing or cannot be used is read from its ``.bak``, with a warning in the log.
        ``CorruptConfig`` if neither can be used: it names the file itself; ``ReadFailed``.
        """
        try:
            return self._read_one(self.path)
        except FileNotFoundError:
            fault: CorruptConfig | None = None
        except CorruptConfig as error:
            fault = error
        try:
            root = self._read_one(self.path + BACKUP_SUFFIX)
        except FileNotFoundError:
            if fault is None:
                return {}
            raise fault from None
        except CorruptConfig as error:
            raise fault or error from None
        _LOG.warning(
            "%s%s is read instead of %s, which is %s.",
            self.path,
            BACKUP_SUFFIX,
            self.path,
            "missing" if fault is None else f"damaged: {fault}",
        )
        return root

    def _read_one(self, path: str) -> dict[str, Any]:
        data = self._bytes_of(path)
        root = self._decoded(data, path)
        if path == self.path and self._sound != (now := _sum_of(data)):
            self._sound, self._is_own = now, False
        return root

    def _decoded(self, data: bytes, path: str) -> dict[str, Any]:
        root = decode_config(data, path, self.subject)
        if self._check is not None:
            self._check(self, root)
        return root

    def content(self) -> bytes:
        """The bytes of the file. ``FileNotFoundError``, ``CorruptConfig`` if they are too many, ``ReadFailed``."""
        return self._bytes_of(self.path)

    def _bytes_of(self, path: str) -> bytes:
        try:
            return disk.read_file(path, LARGEST_CONFIG)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise self.corrupt(0, f"at most {LARGEST_CONFIG} bytes", "more") from error
            raise ReadFailed("read", path=path, cause=error) from error

    def write(self, root: Mapping[str, Any], *, integer_names: bool = False) -> None:
        """Replace the content, and keep the old one as ``.bak`` if it can be used.

        ``integer_names``: integers as names of members stand without quotes, as brokers write offset tables.
        ``NotAStore`` for a symbolic link in place of the file (invariant 10), ``StoreAccessDenied``,
        ``CorruptConfig`` for what JSON has no text for; ``DiskFull``, and then the file is the old one;
        ``StoreIOError``, and then it is the old or the new one.
        """
        data = encode_config(root, self.path, self.subject, integer_names=integer_names)
        self._refuse_links()
        try:
            old: bytes | None = self.content()
            if _sum_of(old or b"") != self._sound:  # most were read for this write, or written by the one before
                self._decoded(old or b"", self.path)
        except (FileNotFoundError, CorruptConfig):
            old = None  # what a broker would not read either must not replace a good .bak
        self._replace(data, old)

    def add_rows(
        self, table: str, rows: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> bool:
        """Add new rows to the table that is the last member, and replace the members ``before`` it by ``after``.

        As ``write``, but nothing is decoded: most of a content of megabytes is copied. False, and nothing is changed,
        unless this object has written the content, with these members and a row at least.
        """
        try:
            old = self.content()
        except (FileNotFoundError, CorruptConfig):
            return False
        head, new_head = (f"{_laid_out(members)[:-2]},\n\t{json.dumps(table)}:{{\n\t\t" for members in (before, after))
        own = self._is_own and _sum_of(old) == self._sound
        if not (own and old.startswith(head.encode("ascii")) and old.endswith(_TABLE_END)):
            return False
        more = encode_config({table: rows}, self.path, self.subject)
        between = len(_laid_out({table: {}})) - len("{}\n}") + len(_ROW_START)
        inside = more[between : -len(_TABLE_END)]
        self._refuse_links()
        kept = memoryview(old)[len(head) : -len(_TABLE_END)]
        self._replace(b"".join([new_head.encode("ascii"), kept, b",\n\t\t", inside, _TABLE_END]), old)
        return True

    def _replace(self, data: bytes, old: bytes | None) -> None:
        """``write`` these bytes; ``old`` is the content to be kept, if it can be used."""
        self._sound = None
        directory = os.path.dirname(self.path)
        try:
            if not disk.exists(directory):
                disk.make_directory(directory)
                disk.sync_directory(os.path.dirname(directory))
            if old is not None:
                # A copy, not the old file renamed: a file of this name exists at every moment.
                replace_file(self.path + BACKUP_SUFFIX, old)
            replace_file(self.path, data)
        except PermissionError as error:
            raise StoreAccessDenied(
                f"No permission to write {self.path}: run as the store's user, or change the mode of {directory}.",
                path=self.path,
            ) from error
        except OSError as error:
            raise replace_failed(self.path, error) from error
        sync_names_beside(self.path)
        self._sound, self._is_own = _sum_of(data), True

    def _refuse_links(self) -> None:
        for place in (os.path.dirname(self.path), self.path):
            if disk.is_symlink(place):
                raise NotAStore(
                    f"{place} is a symbolic link; a store is written only where it lies. Put its target in its place.",
                    path=place,
                )

    def corrupt(self, offset: int, expected: object, found: object) -> CorruptConfig:
        """The error of a content that no broker writes."""
        return _corrupt(self.path, self.subject, offset, expected, found)

    def checked(self, value: object, kind: type[_Struct], expected: str) -> _Struct:
        """What this package uses of ``value``, by its msgspec type. ``CorruptConfig``."""
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise self.corrupt(0, expected, str(error)) from error


def _sum_of(data: bytes) -> tuple[int, int]:
    return len(data), zlib.crc32(data)


def decode_config(data: bytes, path: str, subject: str) -> dict[str, Any]:
    """The object that the file holds; names that are integers come as texts. ``CorruptConfig``."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"the byte {data[error.start]:#04x}"
        raise _corrupt(path, subject, error.start, "UTF-8 text", found) from error
    try:
        root = _loaded(text)
    except (ValueError, RecursionError) as error:
        place = error.pos if isinstance(error, json.JSONDecodeError) else 0
        raise _corrupt(path, subject, place, "JSON", str(error)) from error
    if not isinstance(root, dict):
        raise _corrupt(path, subject, 0, "an object", f"{type(root).__name__}")
    return cast("dict[str, Any]", root)


def _loaded(text: str) -> Any:
    """``ValueError``, ``RecursionError``."""
    with contextlib.suppress(ValueError):  # most files have no such names, and to look for them takes most of the time
        return json.loads(text)
    return json.loads(
        _TEXT_OR_INTEGER_NAME.sub(lambda found: f'{found[1]}"{found[2]}"' if found[2] else found[0], text)
    )


def encode_config(root: Mapping[str, Any], path: str, subject: str, *, integer_names: bool = False) -> bytes:
    """The object as a broker's fastjson lays it out. ``CorruptConfig`` for values that JSON has no text for.

    Such are a number beyond all floats, and too deep nesting.
    """
    try:
        text = _laid_out(root)
    except (ValueError, RecursionError) as error:
        raise _corrupt(path, subject, 0, "JSON that can be written again", str(error)) from error
    if integer_names:
        text = _QUOTED_INTEGER_NAME.sub(lambda found: found[1] or found[0], text)
    return text.encode("ascii")


def _laid_out(root: Mapping[str, Any]) -> str:
    """``json.dumps(root, indent="\\t")``, whose encoder in Python takes several times as long for large tables."""
    members = []
    for name, value in root.items():
        table = _table(value) if isinstance(value, dict) else None
        if table is None:
            members.append(json.dumps({name: value}, indent="\t", separators=(",", ":"), allow_nan=False)[3:-2])
        else:
            members.append(f"{json.dumps(name)}:{table}")
    inside = ",\n\t".join(members)
    return f"{{\n\t{inside}\n}}" if members else "{}"


_CONTAINERS = (dict, list, tuple)


def _table(value: dict[str, Any]) -> str | None:
    """A member of the root that is an object of flat objects, as the tables of topics and groups; None for others."""
    rows = list(value.values())
    if not rows or not all(rows) or set(map(type, rows)) != {dict} or set(map(type, value)) != {str}:
        return None
    members = list(chain.from_iterable(map(dict.values, rows)))
    kinds = {kind for kind in set(map(type, members)) if issubclass(kind, _CONTAINERS)}
    if kinds and any(one for one in members if type(one) in kinds):
        return None
    # No string of JSON has a line break in it, so these are the places between two rows.
    between = ",\n\t\t\t"
    bodies = json.dumps(rows, separators=(between, ":"), allow_nan=False)[2:-2].split(f"}}{between}{{")
    names = json.dumps(list(value), separators=("\n", ":"))[1:-1].split("\n")
    lines = (f"{name}:{{\n\t\t\t{body}\n\t\t}}" for name, body in zip(names, bodies, strict=True))
    return "{\n\t\t" + ",\n\t\t".join(lines) + "\n\t}"


# A text that is a value or no integer, or an integer that is the name of a member.
_QUOTED_INTEGER_NAME = re.compile(r'"(0|-?[1-9][0-9]{0,18})"(?=:)|"(?:[^"\\]|\\.)*"')


def next_version(version: Any, file: JsonConfigFile) -> dict[str, Any]:
    """The version after this one (``DataVersion.nextVersion``), by which copies of the file are compared.

    stateVersion is that of a broker's controller; it has precedence over the rest, and stays.
    """
    expected = f"an object with 0 to {MAX_LONG - 1} as counter of dataVersion"
    counter = file.checked(version, _Version, expected).counter
    known = {"counter": 0, "stateVersion": 0, **version}
    return {**known, "counter": counter + 1, "timestamp": int(time.time() * 1000)}


def _corrupt(path: str, subject: str, offset: int, expected: object, found: object) -> CorruptConfig:
    return CorruptConfig(
        subject,
        path=path,
        offset=offset,
        expected=expected,
        found=found,
        advice="Restore it (a broker keeps a copy beside it, with .bak), or remove it.",
    )
