"""Changes of a store between any two calls that a reader of it makes to the operating system.

``files/disk.py`` is the seam: the reader's calls are counted there, and the change comes before one of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from commitlog_store.files import disk

# Every function of the seam that looks at a file or a directory.
_LOOKS = (
    *("data_extents", "directory_signature", "exists", "file_key", "file_signature", "file_size", "first_hole"),
    *("identity", "identity_of", "is_directory", "is_file", "is_symlink", "list_directories", "list_names", "map_file"),
    *("may_read", "modified_at", "open_file", "read_at", "read_cached", "read_file", "read_into", "size_at"),
    *("size_of", "stamp", "surely_has_names", "tree_files"),
)


class Calls:
    """How many calls the thread has made so far."""

    def __init__(self, changes: Mapping[int, Callable[[], object]]) -> None:
        self.made = 0
        self._changes = changes
        self._thread = threading.get_ident()
        self._changing = False

    def before_each(self) -> None:
        """Before a call: the change that is due then, if any, whose own calls are not counted."""
        if self._changing or threading.get_ident() != self._thread:
            return
        self.made += 1
        change = self._changes.get(self.made)
        if change is not None:
            self._changing = True
            try:
                change()
            finally:
                self._changing = False


@contextmanager
def change_before(changes: Mapping[int, Callable[[], object]]) -> Iterator[Calls]:
    """Within it, each change runs before the call of that number, from 1 on, that this thread makes."""
    calls = Calls(changes)

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            calls.before_each()
            return real(*given, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in _LOOKS:
            patch.setattr(disk, name, counted(getattr(disk, name)))
        yield calls


def spread(count: int, most: int) -> list[int]:
    """At most so many of the numbers from 1 to ``count``, evenly spread, the first and the last among them."""
    if count <= most:
        return list(range(1, count + 1))
    return sorted({1 + round(step * (count - 1) / (most - 1)) for step in range(most)})
