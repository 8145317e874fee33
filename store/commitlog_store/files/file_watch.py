"""FileWatch: waits until the kernel reports a change of files in some directories (inotify), or a moment has passed.

Linux reports what any process of this machine writes with ``write`` and ``pwrite``. It does not report what is written
through a mapping, as brokers write, nor what another machine writes into a shared directory; other systems have no
inotify. So every wait ends after ``LOOK_AGAIN_SECONDS``, and the caller looks again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

try:
    from inotify_simple import INotify, flags
except ImportError:  # it is a dependency on Linux only
    INotify = None


LOOK_AGAIN_SECONDS = 0.1
# Each watch takes memory of the kernel, and their number is limited for each user.
_MOST_WATCHES = 1000


class FileWatch:
    """The watched directories below one directory. Call ``follow``, then look at the files, then ``wait``.

    A change after ``follow`` ends the wait, so none is missed between the look and the wait.
    """

    def __init__(self, root: str) -> None:
        """``root`` bounds the search for a parent of a directory that does not exist."""
        self._root = root
        self._inotify: INotify | None = None
        self._is_open = False
        self._watched: dict[str, int] = {}

    @property
    def reports(self) -> bool:
        """Whether the kernel reports changes; otherwise every wait is a pause."""
        return self._inotify is not None

    def follow(self, directories: Iterable[str]) -> None:
        """Watch these directories too; in place of one that does not exist, its nearest parent."""
        if not self._is_open:
            self._is_open, self._inotify = True, _open_inotify()
        if self._inotify is None:
            return
        for directory in directories:
            path = directory
            while path not in self._watched and len(self._watched) < _MOST_WATCHES:
                try:
                    changes = flags.MODIFY | flags.MOVED_TO | flags.CREATE
                    self._watched[path] = self._inotify.add_watch(path, changes)
                except OSError:  # it does not exist, or cannot be watched
                    if path == self._root or not path.startswith(self._root):
                        break
                    path = os.path.dirname(path)

    def wait(self, seconds: float) -> None:
        """Return after a change, after ``seconds``, or when it is time to look again."""
        seconds = min(max(seconds, 0.0), LOOK_AGAIN_SECONDS)
        if self._inotify is None:
            time.sleep(seconds)
            return
        events = self._inotify.read(timeout=seconds * 1000)
        gone = {event.wd for event in events if event.mask & flags.IGNORED}  # directories that were removed
        if gone:
            self._watched = {path: number for path, number in self._watched.items() if number not in gone}

    def close(self) -> None:
        """End all watches. The next ``follow`` begins again."""
        if self._inotify is not None:
            os.close(self._inotify.fileno())
        self._inotify, self._is_open, self._watched = None, False, {}

    def __del__(self) -> None:
        # Of a reader that was dropped: a user has few descriptors of inotify.
        self.close()


def _open_inotify() -> INotify | None:
    """None where inotify does not exist, or this user has no descriptor of it left."""
    try:
        # The watch closes it: a descriptor that is collected before the watch would warn that it was not closed.
        return INotify and INotify(nonblocking=True, closefd=False)
    except OSError:
        return None
