"""Tokens: who may ask a server, and what. The file holds hashes only, one token a line, as JSON::

    {"name":"spark","role":"read","sha256":"9f86d0...","created":"2026-11-24T15:00:00Z","expires":"2027-02-22T15:00:00Z"}

Without ``expires`` a token is good until its line is removed.
A token is 256 random bits, so its hash needs no salt and no stretching: it cannot be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Literal

import msgspec

from commitlog_store.errors import InvalidValue, RemoteAccessRefused
from commitlog_store.files import disk

_PREFIX = "clt_"
# Bytes of a token file: 100,000 tokens.
_LARGEST = 16 << 20
_RoleName = Literal["read", "write", "admin"]


class Role(IntEnum):
    """What a token allows; each includes those before it."""

    READ = 1
    WRITE = 2
    ADMIN = 3


class _Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    role: _RoleName
    sha256: str
    created: str = ""
    expires: datetime | None = None

    def is_expired(self, now: datetime) -> bool:
        return self.expires is not None and self.expires <= now


def new_token(path: str, name: str, role: Role, *, expires_in_s: float | None = None) -> str:
    """Add a token to a file, which is made if it does not exist. The token is shown here and never again.

    It takes the place of an expired one of this name. ``InvalidValue`` for a name that the file has otherwise.
    """
    directory = os.path.dirname(os.path.abspath(path))
    if not disk.is_directory(directory):
        raise InvalidValue(f"The token file {path} cannot be made: {directory} is not a directory.")
    now = datetime.now(UTC).replace(microsecond=0)
    entries = _read(path) if disk.exists(path) else []
    entries = [entry for entry in entries if entry.name != name or not entry.is_expired(now)]
    if any(entry.name == name for entry in entries):
        raise InvalidValue(f"{path} has a token {name!r} already; remove its line first, or choose another name.")
    token = _PREFIX + secrets.token_urlsafe(32)
    created = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        expires = None if expires_in_s is None else now + timedelta(seconds=expires_in_s)
    except OverflowError:
        raise InvalidValue("A token expires before the year 10000, or never.") from None
    entries.append(_Entry(name, role.name.lower(), _hash(token), created, expires))  # type: ignore[arg-type]
    lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
    _replace(path, lines)
    return token


class TokenFile:
    """The tokens of a file, which is read again when it has changed."""

    def __init__(self, path: str) -> None:
        """``InvalidValue``, ``ReadFailed``."""
        if not disk.exists(path):
            raise InvalidValue(f"No token file at {path}: `commitlog token new {path} --name NAME` makes one.")
        self._path = path
        self._entries = _read(path)
        self._seen = disk.file_signature(path)

    def role_of(self, token: str) -> tuple[str, Role]:
        """The name and role of a token. ``RemoteAccessRefused``."""
        if (seen := disk.file_signature(self._path)) != self._seen:
            self._entries, self._seen = _read(self._path), seen
        given = _hash(token)
        found = None
        for entry in self._entries:  # all of them, and each in constant time: time says nothing about a token
            if hmac.compare_digest(entry.sha256, given):
                found = entry
        if found is None:
            raise RemoteAccessRefused("The server does not know this token.")
        if found.is_expired(datetime.now(UTC)):
            raise RemoteAccessRefused(
                f"The token {found.name!r} expired at {found.expires:%Y-%m-%dT%H:%M:%SZ}. `commitlog token new` makes "
                "another one."
            )
        return found.name, Role[found.role.upper()]


def _replace(path: str, data: bytes) -> None:
    """Whole or not at all, readable by its owner only."""
    new = f"{path}.new"
    if disk.exists(new):  # of an attempt that was killed
        disk.unlink(new)
    descriptor = disk.create_file(new)
    try:
        disk.write_at(descriptor, data, 0)
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
    disk.rename(new, path)
    disk.sync_directory(os.path.dirname(os.path.abspath(path)))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _read(path: str) -> list[_Entry]:
    entries = []
    for number, line in enumerate(disk.read_file(path, _LARGEST).splitlines(), 1):
        if line.strip():
            try:
                entries.append(msgspec.json.decode(line, type=_Entry))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise InvalidValue(
                    f"Line {number} of {path} is no token: {error}. `commitlog token new` writes such lines."
                ) from error
    return entries
