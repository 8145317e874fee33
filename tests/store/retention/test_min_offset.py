"""Where a queue begins when files of the log are gone: RocketMQ's statements of ``correctMinOffset``, in our words."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from commitlog_store import MessageStore, StoreReader
from commitlog_store.recovery.start import StartKind
from commitlog_store.testing import start_of
from commitlog_store.verify.store import verify_store
from tests.store.retention.small_stores import SMALL, fill, log_bases


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store: 40 messages of an idle topic, then 60 of another one."""
    path = tmp_path_factory.mktemp("min-offset") / "store"
    with MessageStore.open(path, SMALL) as store:
        fill(store, 40, topic="idle")
        fill(store, 60)
    return path


def test_a_queue_begins_at_the_first_message_that_the_log_has_and_at_its_end_without_any(
    full: Path, tmp_path: Path
) -> None:
    """Whoever deleted the files: the beginning is looked for, and not noted."""
    path = tmp_path / "store"
    shutil.copytree(full, path)
    with StoreReader.open(path) as reader:
        places = {
            topic: [
                place
                for batch in reader.read(topic, 0, 0, columns=["physicalOffset"])
                for place in batch["physicalOffset"].to_pylist()
            ]
            for topic in ("idle", "orders")
        }
    bases = log_bases(path)
    for removed, start in pairwise(bases):
        (path / "commitlog" / f"{removed:020d}").unlink()
        if start > max(places["orders"]):
            break
        with StoreReader.open(path) as reader:
            for topic, all_places in places.items():
                info = reader.queue_info(topic, 0)
                expected = sum(place < start for place in all_places)
                assert (info.min_offset, info.max_offset) == (expected, len(all_places)), (topic, start)
    with StoreReader.open(path) as reader:
        assert reader.queue_info("idle", 0).min_offset == 40


def test_a_queue_of_fillers_alone_is_empty_and_keeps_its_end(full: Path, tmp_path: Path) -> None:
    """As RocketMQ after 5.3.3 makes it with ``initializeWithOffset``, in a store without our mark in the checkpoint."""
    path = tmp_path / "store"
    shutil.copytree(full, path)
    queue = path / "consumequeue" / "begun" / "0"
    queue.mkdir(parents=True)
    filler = (0).to_bytes(8, "big") + (0x7FFF_FFFF).to_bytes(4, "big") + (0).to_bytes(8, "big")
    for base in range(0, 100, 10):
        (queue / f"{base * 20:020d}").write_bytes(filler * 10)
    (queue / f"{2000:020d}").write_bytes(bytes(200))
    (path / "checkpoint").unlink()
    for _ in range(2):
        with StoreReader.open(path) as reader:
            info = reader.queue_info("begun", 0)
            assert (info.min_offset, info.max_offset) == (100, 100)
        with MessageStore.open(path, SMALL) as store:
            assert start_of(store).kind is not StartKind.REBUILD
            store.clean(max_bytes=40_000)
    with MessageStore.open(path, SMALL) as store:
        fill(store, 1, topic="begun")
    with StoreReader.open(path) as reader:
        info = reader.queue_info("begun", 0)
        assert (info.min_offset, info.max_offset) == (100, 101)
    assert [one for one in verify_store(path) if one.severity == "error"] == []
