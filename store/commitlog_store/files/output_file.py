"""A file that is written from its start to its end, for exports: buffered, synced, continued after a crash.

pyarrow takes it as a file object: it has ``write``, ``tell``, ``flush``, ``close`` and ``closed``.
"""

from __future__ import annotations

from commitlog_store.files import disk
from commitlog_store.files.error_paths import errors_name

# Small writes are gathered up to this size.
_BUFFER_SIZE = 1 << 20


class OutputFile:
    """A new file, or one that is continued at a length. ``OSError`` names the file."""

    def __init__(self, path: str, descriptor: int, length: int) -> None:
        """Use ``create`` or ``continued``."""
        self.path = path
        self.closed = False
        self._descriptor = descriptor
        self._written = length
        self._parts: list[disk.Bytes] = []
        self._waiting = 0

    @classmethod
    def create(cls, path: str) -> OutputFile:
        """A new file, which other users may read unless the umask forbids it. ``FileExistsError``."""
        return cls(path, disk.create_file(path, shared=True), 0)

    @classmethod
    def continued(cls, path: str, length: int) -> OutputFile:
        """An existing file, cut to ``length`` bytes; what follows is written there."""
        descriptor = disk.open_for_writing(path)
        with errors_name(path):
            disk.truncate(descriptor, length)
        return cls(path, descriptor, length)

    def write(self, data: disk.Bytes) -> int:
        """Add bytes. Returns their number."""
        size = len(data)
        # The caller may use the memory again.
        self._parts.append(bytes(data))
        self._waiting += size
        if self._waiting >= _BUFFER_SIZE:
            self.flush()
        return size

    def tell(self) -> int:
        """The number of bytes, gathered ones included."""
        return self._written + self._waiting

    def flush(self) -> None:
        """Hand gathered bytes to the operating system."""
        if not self._parts:
            return
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        with errors_name(self.path):
            disk.write_at(self._descriptor, data, self._written)
        self._written += len(data)
        self._parts, self._waiting = [], 0

    def sync(self) -> None:
        """Return when all bytes are on the device."""
        self.flush()
        with errors_name(self.path):
            disk.sync(self._descriptor)

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        if not self.closed:
            try:
                self.flush()
            finally:
                self.closed = True
                disk.close(self._descriptor)

    def abandon(self) -> None:
        """Close the file without its gathered bytes, after a failure."""
        self._parts, self._waiting = [], 0
        self.close()
