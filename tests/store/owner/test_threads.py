"""The threads of an open store: each is in the table of docs/architecture.md, and ends with the store."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from commitlog_store import FlushDiskType, MessageStore
from tests.store.owner.owned_store import small
from tests.support.waiting import wait_for

ARCHITECTURE = Path(__file__).parents[3] / "docs" / "architecture.md"


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def _listed() -> set[str]:
    """The names in the first column of the table of threads."""
    section = ARCHITECTURE.read_text(encoding="utf-8").split("| thread | what it does |")[1].split("\n\n")[0]
    return set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))


@pytest.mark.parametrize(
    "settings",
    [
        {"flush_disk_type": FlushDiskType.SYNC_FLUSH, "ha_listen_address": "127.0.0.1:0"},
        {"transient_store_pool_enable": True, "retention_enable": True},
    ],
    ids=["SYNC_FLUSH, slaves", "ASYNC_FLUSH, pool, retention"],
)
def test_the_threads_of_an_open_store_are_the_documented_ones_and_end_with_it(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    before = _threads()
    with MessageStore.open(tmp_path / "store", small(**settings)) as store:
        store.half_messages.start_checks(lambda _: "unknown")
        started = _threads() - before
        assert {"StoreJobs", "ReputMessageService", "ScheduleMessageService"} <= started
        assert started <= _listed()
    wait_for(lambda: not _threads() & started)  # the job thread ends just after the close
