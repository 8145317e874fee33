"""Stores with batch consume queues: an owner refuses them by name and changes nothing; their records are no damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog_store import MessageStore, StoreReader
from commitlog_store.errors import UnsupportedStore
from commitlog_store.format.sys_flag import INNER_BATCH_FLAG
from commitlog_store.verify.store import verify_store
from tests.store.owner.owned_store import small
from tests.support.store_builder import StoreBuilder


def _store(path: Path) -> StoreBuilder:
    """Two plain messages, and between them records of three messages each, as a broker lays them out."""
    builder = StoreBuilder(path, log_file_size=16 << 10)
    builder.append("plain", 0, [b"first"])
    for number in range(2):
        more = f"\x02INNER_NUM\x013\x02INNER_BASE\x01{number * 3}"
        builder.append("special", 0, [b"three messages"], more=more, sys_flag=INNER_BATCH_FLAG, queue_step=3)
    builder.append("plain", 0, [b"last"])
    builder.delete_queue("special", 0)
    return builder


def _contents(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@pytest.mark.parametrize("crashed", [False, True])
def test_a_store_with_batch_queues_is_not_owned(tmp_path: Path, crashed: bool) -> None:
    builder = _store(tmp_path / "store")
    if crashed:
        builder.write_abort()
    (builder.path / "batchconsumequeue" / "special" / "0").mkdir(parents=True)
    before = _contents(builder.path)
    with pytest.raises(UnsupportedStore, match=r"'special' .* batch consume queues") as raised:
        MessageStore.open(builder.path, small())
    assert "only a RocketMQ broker" in str(raised.value)
    assert _contents(builder.path) == before, "nothing was changed"
    with StoreReader.open(builder.path) as reader:
        assert sum(batch.num_rows for batch in reader.read("plain", 0, 0)) == 2


@pytest.mark.parametrize("with_queues", [False, True])
def test_verify_calls_them_another_kind_of_topic(tmp_path: Path, with_queues: bool) -> None:
    builder = _store(tmp_path / "store")
    if with_queues:
        (builder.path / "batchconsumequeue" / "special" / "0").mkdir(parents=True)
    findings = verify_store(builder.path)
    assert [(one.check, one.severity) for one in findings] == [("queue.kind", "note"), ("opening.refused", "note")]
    assert all("batch consume queues" in one.message for one in findings)


@pytest.mark.parametrize("crashed", [False, True])
def test_records_of_batch_queues_are_not_called_damaged(tmp_path: Path, crashed: bool) -> None:
    """A copy of the log alone, say: the directory of the batch queues is missing."""
    builder = _store(tmp_path / "store")
    if crashed:
        builder.write_abort()
    with pytest.raises(UnsupportedStore, match=r"'special' .* batch consume queues"):
        MessageStore.open(builder.path, small())
    with StoreReader.open(builder.path) as reader:
        assert sum(batch.num_rows for batch in reader.read("plain", 0, 0)) == 2
