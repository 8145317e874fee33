"""AuditLog: a line of JSON before each action of an admin, and one after it, with its outcome::

    {"at":"2026-11-21T09:30:00.123Z","id":"5e0c...","event":"begins","action":"redrive","by":"ana",
     "from":"127.0.0.1:51234","names":{"name":"billing"},"fields":{"to":"retry"}}
    {"at":"2026-11-21T09:30:00.321Z","id":"5e0c...","event":"done","result":"Redriven: 3 dead letters of ..."}

The events after ``begins`` are ``done``, ``refused`` (nothing was done), ``failed`` (perhaps a part was done) and
``unknown`` (opening the store again decides); ``result`` is the sentence or the error that the admin was shown.
A file of 16 MiB becomes ``audit.jsonl.1``; nine older ones stay.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec

from commitlog_store.errors import OutcomeUnknown, Refused
from commitlog_store.files.line_log import LineLog

Event = Literal["done", "refused", "failed", "unknown"]
# Characters of a value.
_LONGEST = 1000
# Of a file in bytes, some 30,000 actions; and how many older files stay.
_LARGEST, _KEPT = 16 << 20, 9


class AuditLog:
    """Any number of threads."""

    def __init__(self, path: str) -> None:
        self._lines = LineLog(path, largest=_LARGEST, kept=_KEPT)

    def begin(self, *, action: str, by: str, peer: str, names: Mapping[str, str], fields: Mapping[str, object]) -> str:
        """Note that an action begins, on the device. Returns its id. The errors of ``LineLog.append``."""
        entry = secrets.token_hex(8)
        self._append(entry, "begins", {"action": action, "by": by, "from": peer, "names": names, "fields": fields})
        return entry

    def end(self, entry: str, event: Event, result: str) -> None:
        """Note how it ended. The errors of ``LineLog.append``."""
        self._append(entry, event, {"result": result})

    def _append(self, entry: str, event: str, more: Mapping[str, object]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._lines.append(msgspec.json.encode({"at": now, "id": entry, "event": event, **_shortened(more)}))


def event_of(error: Exception, *, is_atomic: bool) -> Event:
    if isinstance(error, OutcomeUnknown):
        return "unknown"
    return "refused" if is_atomic and isinstance(error, Refused) else "failed"


def _shortened(values: Mapping[str, object]) -> dict[str, object]:
    """Long texts cut, so that a line is bounded; what UTF-8 has no bytes for, escaped."""
    found: dict[str, object] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found[name] = _shortened(value)
        elif isinstance(value, str):
            text = value.encode(errors="backslashreplace").decode()
            found[name] = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
        else:
            found[name] = value
    return found
