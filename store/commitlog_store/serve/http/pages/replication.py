"""Replication: the store's role, the address for its slaves, and how far behind each of them is."""

from __future__ import annotations

from commitlog_store.reader import StoreReader
from commitlog_store.serve.http.pages.views import Asked, Values, View


def _look(reader: StoreReader, asked: Asked) -> Values:
    owned = asked.owned
    if owned is None:
        return {"path": reader.path, "config": None, "address": None, "slaves": (), "log_end": None}
    return {
        "path": reader.path, "config": owned.config, "address": owned.ha_address, "slaves": owned.slaves(),
        "log_end": owned.physical_bounds()[1],
    }  # fmt: skip


VIEW = View(name="replication", path="/replication", look=_look)
