"""Settings: those that the store's owner has in force, and which of them are not the default.

No setting holds a secret: those of tokens and keys are paths of files.
"""

from __future__ import annotations

import dataclasses
import enum

from commitlog_store.config import MessageStoreConfig
from commitlog_store.reader import StoreReader
from commitlog_store.serve.http.pages.views import Asked, Values, View


def _look(reader: StoreReader, asked: Asked) -> Values:
    config = None if asked.owned is None else asked.owned.config
    changed_only = asked.text("changed") == "1"
    rows = [] if config is None else [row for row in _rows(config) if row["is_changed"] or not changed_only]
    return {"path": reader.path, "is_known": config is not None, "rows": rows, "changed_only": changed_only}


def _rows(config: MessageStoreConfig) -> list[Values]:
    usual = MessageStoreConfig()
    rows = []
    for field in dataclasses.fields(config):
        value, default = getattr(config, field.name), getattr(usual, field.name)
        rows.append(
            {"name": field.name, "value": _text(value), "default": _text(default), "is_changed": value != default}
        )
    return rows


def _text(value: object) -> str:
    """As a configuration has it; a dash for what is empty."""
    if value is None or value == "":
        return "–"
    if isinstance(value, enum.Enum):
        return value.name
    return str(value).lower() if isinstance(value, bool) else str(value)


VIEW = View(name="settings", path="/settings", look=_look, is_live=False)
