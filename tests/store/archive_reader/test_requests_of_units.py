"""Units of an archive are fetched for all queues of a segment at once, and for several segments at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from commitlog_store import StoreReader
from commitlog_store.archive.archiver import archive_store
from commitlog_store.archive_reader import reader as reader_module
from commitlog_store.object_storage.pages import PAGE
from tests.support.store_builder import StoreBuilder

QUEUES, EACH = 4, 40_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two log files. In the first one each queue has 700 KB of units, so that two queues share a page."""
    path = tmp_path_factory.mktemp("units")
    builder = StoreBuilder(path / "store", log_file_size=18 << 20, queue_file_units=100_000)
    for _ in range(8):
        builder.append("orders", list(range(QUEUES)), [b"x"] * (EACH * QUEUES // 8))
    archive_store(path / "store", f"file://{path}/past", with_last=True)
    return path


@pytest.mark.parametrize("units_ahead", [500_000, EACH])
def test_units_of_many_queues_take_a_request_a_segment(
    store: Path, units_ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "_UNITS_AHEAD", units_ahead)
    ranges = [("orders", queue, 0, EACH) for queue in range(QUEUES)]
    with StoreReader.open(f"archive+file://{store}/past") as archive, StoreReader.open(store / "store") as directory:
        found, expected = (
            [np.concatenate([units for at, units in reader.units_of(ranges) if at == number]) for number in range(4)]
            for reader in (archive, directory)
        )
        assert all((one == other).all() for one, other in zip(found, expected, strict=True))
        # Listing, manifest and head of the catalog; the queues' rows may be in the head's page.
        opening, segments = 4, 2
        groups = 1 if units_ahead > EACH else QUEUES
        assert archive.stats().requests <= opening + segments * groups
        before = archive.stats()
        assert before.bytes_fetched < EACH * QUEUES * 20 + 4 * PAGE
        read = archive.read_side_by_side(ranges, columns=["queueOffset"])
        assert sum(batch.num_rows for batch in read) == EACH * QUEUES
        # All units are in memory: the rest are requests for the log, of up to 8 MiB.
        assert archive.stats().requests - before.requests <= 6
