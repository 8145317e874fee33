"""The file ``config/archiveHold.json``: what retention waits for in an archive, for ``info`` and for other processes.

::

    {"url": "s3://bucket/x", "archived": 1073741824, "askedMs": 1700000000000, "failure": "", "atMostMs": 604800000}

The owner of a store writes it when the archive has more, and when the archive stops or begins to answer. It decides
nothing: an owner asks the archive itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from commitlog_store.config_files.json_file import JsonConfigFile
from commitlog_store.files import disk
from commitlog_store.paths import ARCHIVE_HOLD, CONFIG


@dataclass(frozen=True, kw_only=True)
class ArchiveHoldStatus:
    """What retention waits for: the archive has the log whole up to ``archived`` (physical offset).

    ``asked_ms`` is the time of the last answer, 0 without any; ``failure`` the reason why there was none since. What is
    older than ``at_most_ms`` goes all the same; None without that limit.
    """

    url: str
    archived: int = 0
    asked_ms: int = 0
    failure: str = ""
    at_most_ms: int | None = None


def read_status(store_path: str) -> ArchiveHoldStatus | None:
    """What the store's last owner wrote; None where retention waited for no archive.

    ``CorruptConfig``, ``ReadFailed``.
    """
    file = _status_file(store_path)
    root = file.read()
    if not root:
        return None
    at_most = root.get("atMostMs")
    return ArchiveHoldStatus(
        url=_typed(file, root, "url", str),
        archived=_typed(file, root, "archived", int),
        asked_ms=_typed(file, root, "askedMs", int),
        failure=_typed(file, root, "failure", str),
        at_most_ms=None if at_most is None else _typed(file, root, "atMostMs", int),
    )


def _typed(file: JsonConfigFile, root: dict[str, Any], name: str, kind: type) -> Any:
    if not isinstance(root.get(name), kind):
        raise file.corrupt(0, f"{name}, {kind.__name__}", repr(root.get(name))[:80])
    return root[name]


def write_status(store_path: str, status: ArchiveHoldStatus) -> None:
    """Of an open store, by its owner. ``StoreIOError``."""
    _status_file(store_path).write(
        {
            "url": status.url,
            "archived": status.archived,
            "askedMs": status.asked_ms,
            "failure": status.failure,
            "atMostMs": status.at_most_ms,
        }
    )


def forget_status(store_path: str) -> None:
    """Retention waits for no archive any more. ``StoreIOError``."""
    file = _status_file(store_path)
    if disk.exists(file.path):
        file.write({})


def _status_file(store_path: str) -> JsonConfigFile:
    return JsonConfigFile(os.path.join(store_path, CONFIG, ARCHIVE_HOLD), "What retention waits for in an archive")
