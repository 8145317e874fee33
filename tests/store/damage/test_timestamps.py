"""Numbers that are not a time: null in tables of messages, the raw number in single messages, a finding of verify."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.format.timestamps import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from commitlog_store.verify.store import verify_store
from tests.support.store_builder import StoreBuilder

_BAD = [2**63 - 1, -(2**63), MAX_TIMESTAMP_MS + 1, MIN_TIMESTAMP_MS - 1, 1_700_000_000_000_000_000]


@pytest.mark.parametrize("born", _BAD)
def test_a_clients_impossible_clock_spoils_no_other_column(tmp_path: Path, born: int) -> None:
    """A broker stores what a client gives."""
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", 0, [b"before"])
    (place,) = builder.append("orders", 0, [b"odd"], born_timestamp=born).tolist()
    builder.append("orders", 0, [b"after"])
    with StoreReader.open(builder.path) as reader:
        found = [row for batch in reader.read("orders", 0, 0) for row in batch.to_pylist()]
        assert reader.message_at(place).born_timestamp == born
    assert [row["body"] for row in found] == [b"before", b"odd", b"after"]
    assert [row["bornTimestamp"] is None for row in found] == [False, True, False]
    assert all(row["storeTimestamp"] is not None for row in found)
    (finding,) = verify_store(builder.path)
    assert (finding.check, finding.severity, finding.offset) == ("log.timestamp", "note", place + 40)
    assert f"BORNTIMESTAMP of the record at physical offset {place}" in finding.message
    assert str(born) in finding.message


@pytest.mark.parametrize("stored", [2**63 - 2, -(2**63), MIN_TIMESTAMP_MS - 1])
def test_an_impossible_store_timestamp_is_null_and_an_error(tmp_path: Path, stored: int) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", 0, [b"before"])
    builder.now_ms = stored
    (place,) = builder.append("orders", 0, [b"odd"], born_timestamp=0).tolist()
    with StoreReader.open(builder.path) as reader:
        found = [row for batch in reader.read("orders", 0, 0) for row in batch.to_pylist()]
        assert reader.message_at(place).store_timestamp == stored
    assert [row["storeTimestamp"] is None for row in found] == [False, True]
    errors = [finding for finding in verify_store(builder.path) if finding.severity == "error"]
    assert ("log.timestamp", place + 56) in [(finding.check, finding.offset) for finding in errors]
