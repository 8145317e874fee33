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
    """The watched directories and files below one directory. Call ``follow``, then look at the files, then ``wait``.

    A change after ``follow`` ends the wait, so none is missed between the look and the wait. Changes of other files do
    not end it, also of those that lie beside a watched one.
    """

    def __init__(self, root: str) -> None:
        """``root`` bounds the search for a parent of a directory that does not exist."""
        self._root = root
        self._inotify: INotify | None = None
        self._is_open = False
        self._watched: dict[str, int] = {}
        # By the number of a watch: the names in that directory that are waited for; None for all.
        self._names: dict[int, set[str] | None] = {}

    @property
    def reports(self) -> bool:
        """Whether the kernel reports changes; otherwise every wait is a pause."""
        return self._inotify is not None

    def follow(self, directories: Iterable[str], files: Iterable[str] = ()) -> None:
        """Watch these too: all files of a directory, and single files, which may not exist yet.

        In place of a directory that does not exist, its name is watched in the nearest parent that does.
        """
        if not self._is_open:
            self._is_open, self._inotify = True, _open_inotify()
        if self._inotify is None:
            return
        for file in files:  # first: they are few, and no more watches are added after the most
            self._follow(self._inotify, *os.path.split(file))
        for directory in directories:
            self._follow(self._inotify, directory, None)

    def _follow(self, inotify: INotify, directory: str, name: str | None) -> None:
        """Watch one name in a directory, or with None all of it."""
        while directory not in self._watched:
            if len(self._watched) >= _MOST_WATCHES:
                return
            try:
                changes = flags.MODIFY | flags.MOVED_TO | flags.CREATE
                self._watched[directory] = inotify.add_watch(directory, changes)
            except OSError:  # it does not exist, or cannot be watched
                if directory == self._root or not directory.startswith(self._root):
                    return
                directory, name = os.path.split(directory)
        number = self._watched[directory]
        names = self._names.setdefault(number, set())
        if name is None:
            self._names[number] = None
        elif names is not None:
            names.add(name)

    def wait(self, seconds: float) -> bool:
        """Return after a change, after ``seconds``, or when it is time to look again. Whether one was reported."""
        left = seconds = min(max(seconds, 0.0), LOOK_AGAIN_SECONDS)
        if self._inotify is None:
            time.sleep(seconds)
            return False
        ends = time.monotonic() + seconds
        while True:
            events = self._inotify.read(timeout=left * 1000)
            gone = {event.wd for event in events if event.mask & flags.IGNORED}  # directories that were removed
            if gone:
                self._watched = {path: number for path, number in self._watched.items() if number not in gone}
                for number in gone:
                    self._names.pop(number, None)
            if any(self._is_awaited(event.wd, event.name) for event in events):
                return True
            if not left:
                return False
            left = max(ends - time.monotonic(), 0.0)

    def _is_awaited(self, number: int, name: str) -> bool:
        """Whether an event ends a wait. One of an unknown watch does: it may say that events were lost."""
        names = self._names.get(number)
        return names is None or name in names

    def close(self) -> None:
        """End all watches. The next ``follow`` begins again."""
        if self._inotify is not None:
            os.close(self._inotify.fileno())
        self._inotify, self._is_open, self._watched, self._names = None, False, {}, {}

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
