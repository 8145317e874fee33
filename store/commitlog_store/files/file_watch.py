"""FileWatch: waits until the kernel reports a change of files in some directories (inotify), or a moment has passed.

Linux reports what any process of this machine writes with ``write`` and ``pwrite``. It does not report what is written
through a mapping, as brokers write, nor what another machine writes into a shared directory; other systems have no
inotify. So every wait ends after ``LOOK_AGAIN_SECONDS``, and the caller looks again.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import sys
import time
from collections.abc import Iterable
from functools import cache

__all__ = ["LOOK_AGAIN_SECONDS", "FileWatch"]

LOOK_AGAIN_SECONDS = 0.1
# Each watch takes memory of the kernel, and their number is limited for each user.
_MOST_WATCHES = 1000

# <sys/inotify.h>
_IN_MODIFY = 0x2
_IN_MOVED_TO = 0x80
_IN_CREATE = 0x100
_IN_IGNORED = 0x8000
_EVENT = struct.Struct("iIII")
_READ_SIZE = 64 << 10


class FileWatch:
    """The watched directories below one directory. Call ``follow``, then look at the files, then ``wait``.

    A change after ``follow`` ends the wait, so none is missed between the look and the wait.
    """

    def __init__(self, root: str) -> None:
        """``root`` bounds the search for a parent of a directory that does not exist."""
        self._root = root
        self._descriptor = -1
        self._is_open = False
        self._watched: dict[str, int] = {}

    @property
    def reports(self) -> bool:
        """Whether the kernel reports changes; otherwise every wait is a pause."""
        return self._descriptor >= 0

    def follow(self, directories: Iterable[str]) -> None:
        """Watch these directories too; in place of one that does not exist, its nearest parent."""
        if not self._is_open:
            self._is_open = True
            self._descriptor = _inotify_init()
        if self._descriptor < 0:
            return
        for directory in directories:
            path = directory
            while path not in self._watched and len(self._watched) < _MOST_WATCHES:
                number = _inotify_add_watch(self._descriptor, path)
                if number >= 0:
                    self._watched[path] = number
                elif path != self._root and path.startswith(self._root):
                    path = os.path.dirname(path)
                else:
                    break

    def wait(self, seconds: float) -> None:
        """Return after a change, after ``seconds``, or when it is time to look again."""
        seconds = min(max(seconds, 0.0), LOOK_AGAIN_SECONDS)
        if self._descriptor < 0:
            time.sleep(seconds)
            return
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if poll.poll(seconds * 1000):
            self._take_events()

    def _take_events(self) -> None:
        """Read what was reported, so that the next wait does not end for it. Forget directories that are gone."""
        gone = set()
        while True:
            try:
                data = os.read(self._descriptor, _READ_SIZE)
            except BlockingIOError:
                break
            at = 0
            while at < len(data):
                number, mask, _, name_size = _EVENT.unpack_from(data, at)
                if mask & _IN_IGNORED:
                    gone.add(number)
                at += _EVENT.size + name_size
        if gone:
            self._watched = {path: number for path, number in self._watched.items() if number not in gone}

    def close(self) -> None:
        """End all watches. The next ``follow`` begins again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._is_open, self._watched = -1, False, {}

    def __del__(self) -> None:
        # Of a reader that was dropped: a user has few descriptors of inotify.
        self.close()


@cache
def _library() -> ctypes.CDLL | None:
    """The C library; None where it has no inotify."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    try:
        library.inotify_init1.argtypes = [ctypes.c_int]
        library.inotify_add_watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]
    except AttributeError:
        return None
    return library


def _inotify_init() -> int:
    """A descriptor; -1 where inotify does not exist, or this user has no descriptor of it left."""
    library = _library()
    return -1 if library is None else int(library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def _inotify_add_watch(descriptor: int, path: str) -> int:
    """The number of the watch; -1 if the directory does not exist or cannot be watched."""
    library = _library()
    assert library is not None
    return int(library.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE))
