"""Where the parts of a store lie: in its directory, and the log perhaps in another one (``storePathCommitLog``)."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass

from commitlog_store.paths import COMMIT_LOG, CONSUME_QUEUE, INDEX, checked_commit_log


@dataclass(frozen=True, slots=True)
class StorePaths:
    """The directories of a store and of its log, as absolute paths. The only place that knows where the log lies."""

    root: str
    commit_log: str

    @classmethod
    def of(cls, root: str, commit_log: object = None) -> StorePaths:
        """The paths of the store in the directory ``root``, whose log is there, or in ``commit_log``.

        ``InvalidValue`` for what cannot be the name of one directory.
        """
        if commit_log is None:
            return cls(root, os.path.join(root, COMMIT_LOG))
        return cls(root, os.path.abspath(checked_commit_log(commit_log)))

    @property
    def elsewhere(self) -> str | None:
        """The log's directory if it is not the usual one."""
        return None if self.commit_log == os.path.join(self.root, COMMIT_LOG) else self.commit_log

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories that have all files of the store, none of them within another."""
        inside = self.commit_log.startswith(os.path.join(self.root, ""))
        return (self.root,) if inside else (self.root, self.commit_log)

    @property
    def disks(self) -> tuple[str, ...]:
        """A path on each disk of the store: log, queues and index may lie on others than its directory."""
        return (*map(self.part, (COMMIT_LOG, CONSUME_QUEUE, INDEX)), self.root)

    @property
    def for_shell(self) -> str:
        """The store as arguments of a command, quoted: its directory, and ``--commit-log`` if the log is elsewhere."""
        log = "" if self.elsewhere is None else f" --commit-log {shlex.quote(self.commit_log)}"
        return f"{shlex.quote(self.root)}{log}"

    def holds_log_file(self, path: str) -> bool:
        """Whether a path is that of the log's directory, or of a file in it."""
        return self.commit_log in (path, os.path.dirname(path))

    def part(self, name: str) -> str:
        """The path of a directory or file of the store by its name there."""
        return self.commit_log if name == COMMIT_LOG else os.path.join(self.root, name)
