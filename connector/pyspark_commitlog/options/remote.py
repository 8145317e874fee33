"""Options of stores at an address: a server shows them, or they are archives. And what a client needs.

No option is a key of object storage: options show in plans. Keys are in the environment of driver and executors, in
profiles, or in the machine's role.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, get_args

from commitlog_store import FilterAt
from commitlog_store.paths import ARCHIVE_SCHEMES, REMOTE_SCHEMES
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options import values

# Bytes of a file with a token or certificates.
_LARGEST_FILE = 1 << 20


def is_remote(path: str) -> bool:
    """Whether a store's path is the address of a server."""
    return path.startswith(REMOTE_SCHEMES)


def is_archive(path: str) -> bool:
    """Whether a store's path is the address of an archive in object storage."""
    return path.startswith(ARCHIVE_SCHEMES)


def is_address(path: str) -> bool:
    """Whether a store's path is an address, and no directory."""
    return is_remote(path) or is_archive(path)


@dataclass(frozen=True, kw_only=True)
class RemoteOptions:
    """What a client takes beside an address, and ``filter_at`` of a reader. The token is never shown.

    The last five are of archives: None where the environment or a default decides. ``archives`` has the archive of
    each store that is read together with one, by the store's path.
    """

    token: str | None = field(default=None, repr=False)
    tls_root_certificates: bytes | None = field(default=None, repr=False)
    rpc_timeout_s: float = 30.0
    filter_at: FilterAt = "reader"
    endpoint: str | None = None
    region: str | None = None
    cache_dir: str | None = None
    cache_size: int | None = None
    archives: Mapping[str, str] = field(default_factory=dict)

    def of_client(self) -> dict[str, Any]:
        """The arguments of any client for an address."""
        return {
            "token": self.token,
            "tls_root_certificates": self.tls_root_certificates,
            "rpc_timeout_s": self.rpc_timeout_s,
        }

    def reads_archive(self, path: str) -> bool:
        """Whether a store is an archive, or is read together with one."""
        return is_archive(path) or path in self.archives

    def of(self, path: str) -> dict[str, Any]:
        """The arguments of ``StoreReader.open`` for a store; none for a directory without an archive."""
        found = {**self.of_client(), "filter_at": self.filter_at} if is_remote(path) else {}
        if path in self.archives:
            found["archive"] = self.archives[path]
        if is_archive(path) or path in self.archives:
            given = {"endpoint": self.endpoint, "region": self.region}
            storage = {name: value for name, value in given.items() if value is not None}
            found |= {"storage_options": storage, "cache_dir": self.cache_dir, "cache_size": self.cache_size}
        return found


def parse_remote(
    given: Mapping[str, str], paths: Mapping[str | None, str], archives: Mapping[str, str] | None = None
) -> RemoteOptions:
    """The options, of stores at these paths, with their archives. ``OptionError`` without an address among them."""
    found: dict[str, Any] = {"archives": dict(archives or {})}
    for name, (key, parse) in (_PARSERS | _OF_ARCHIVES).items():
        if name not in given:
            continue
        if name in _OF_ARCHIVES:
            if not archives and not any(map(is_archive, paths.values())):
                raise OptionError(
                    f"Option {name} is for an archive: path, or the option archive, is s3://BUCKET/PREFIX or another "
                    "address of object storage then. Leave the option out.",
                    option=name,
                )
        elif not any(map(is_remote, paths.values())):
            raise OptionError(
                f"Option {name} is for a store that commitlog serve shows: path is grpc://HOST:PORT then, and it is a "
                "directory here. Leave the option out.",
                option=name,
            )
        if key in found:
            raise OptionError("Options token and tokenFile exclude each other; found both.", option=name)
        found[key] = parse(name, given[name])
    return RemoteOptions(**found)


def refuse_at_address(option: str, value: str, paths: Sequence[str]) -> None:
    """``OptionError`` if one of the stores that an option is for is at an address: it needs their files."""
    addresses = [path for path in paths if is_address(path)]
    if addresses:
        what = "an archive" if all(map(is_archive, addresses)) else "a server"
        raise OptionError(
            f"Option {option} needs the files of the store, and path is the address of {what}. Leave it out, or give "
            "the store's directory.",
            option=option,
            value=value,
        )


def _token(option: str, value: str) -> str:
    token = value.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        # Its value is not shown.
        raise OptionError(f"Option {option} is not a token, which is one word of ASCII letters.", option=option)
    return token


def _token_of_file(option: str, value: str) -> str:
    try:
        return _token(option, _read(option, value).decode("ascii"))
    except UnicodeDecodeError:
        raise OptionError(f"The file of option {option}, {value}, holds no token.", option=option) from None


def _read(option: str, value: str) -> bytes:
    path = values.parse_path(option, value)
    try:
        with open(path, "rb") as file:
            return file.read(_LARGEST_FILE)
    except OSError as error:
        _refuse_file(option, path, error)


def _refuse_file(option: str, path: str, error: OSError) -> NoReturn:
    raise OptionError(
        f"The file of option {option}, {os.path.abspath(path)}, cannot be read: {error.strerror}. It is read on the "
        "driver.",
        option=option,
        value=path,
    ) from error


def _filter_at(option: str, value: str) -> str:
    place = value.strip().lower()
    if place not in get_args(FilterAt):
        values.refuse(option, value, "reader or server")
    return place


def _text(option: str, value: str) -> str:
    text = value.strip()
    if not text or "@" in text:  # keys within an endpoint would be shown
        raise OptionError(f"Option {option} is empty, or has an '@': no keys are given within it.", option=option)
    return text


def _directory(option: str, value: str) -> str:
    return os.path.abspath(values.parse_path(option, value))


_PARSERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "token": ("token", _token),
    "tokenFile": ("token", _token_of_file),
    "tlsRootCertificates": ("tls_root_certificates", _read),
    "rpcTimeout": ("rpc_timeout_s", values.parse_duration),
    "filterAt": ("filter_at", _filter_at),
}
_OF_ARCHIVES: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "endpoint": ("endpoint", _text),
    "region": ("region", _text),
    "cacheDir": ("cache_dir", _directory),
    "cacheSize": ("cache_size", values.parse_bytes),
}
ARCHIVE_OPTIONS = tuple(_OF_ARCHIVES)
REMOTE_OPTIONS = (*_PARSERS, *ARCHIVE_OPTIONS)
# Those of a server's clients that do not choose messages.
CLIENT_OPTIONS = tuple(name for name in _PARSERS if name != "filterAt")
