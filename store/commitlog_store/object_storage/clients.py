"""StorageClient: what a client of one kind of object storage does, and the names that its answers have.

``ObjectStore`` is the only caller. It repeats requests, counts them, and gives errors their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

# Parts of an upload, and how many of them are under way: memory is a few times their product.
PART_SIZE = 8 << 20
PARTS_AT_ONCE = 4
LISTED_AT_ONCE = 1000

_UNFINISHED = re.compile(r"#unfinished-[0-9a-f]{16}$")


class Listed(NamedTuple):
    """An object of a listing: its name below the prefix, its bytes, and when it was put (ms)."""

    name: str
    size: int
    modified_ms: int


class Failure(Enum):
    """Why a request failed."""

    MISSING = "no such object, or no such bucket"
    ACCESS = "the client may not"
    OTHER = "anything else"


class StorageClient(Protocol):
    """Requests to object storage, each once. They raise the client's own errors, which ``kind_of`` knows.

    Any number of threads may use it. Bytes may be fewer than were asked for, where the object ends.
    """

    credentials: str
    """Where this client's credentials come from: a sentence for a user who has no access."""

    def get(self, name: str) -> bytes: ...
    def get_range(self, name: str, start: int, stop: int) -> bytes | memoryview: ...
    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]: ...
    def head(self, name: str) -> Listed: ...

    def list(self, folder: str) -> Iterator[list[Listed]]:
        """The objects below a folder, or with "" all, each item an answer to one request."""
        ...

    def put(self, name: str, parts: Iterable[bytes | memoryview], size: int) -> None:
        """Put an object in place of one of that name, whole or not at all."""
        ...

    def put_new(self, name: str, data: bytes) -> bool:
        """Put an object; False if there is one of that name."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Delete at most ``LISTED_AT_ONCE`` objects."""
        ...

    def kind_of(self, error: Exception) -> Failure | None:
        """Why a request failed; None for an error that is not of a request."""
        ...

    def said(self, error: Exception) -> str:
        """The sentence of an error, without secrets."""
        ...


def unfinished_name(name: str, digits: str) -> str:
    """The name of an object until it is whole, where a client has to write it in place; 16 hexadecimal digits."""
    return f"{name}#unfinished-{digits}"


def whole_name(name: str) -> str:
    """The name that an object gets once it is whole."""
    return _UNFINISHED.sub("", name)
