"""A broker leaves no mark of its log's end: the queues of a store that it closed show that messages are gone there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import (
    MessageStore,
    StoreReader,
    Verdict,
    assess_store,
    repair_store,
)
from commitlog_store.errors import DamagedLog
from tests.store.owner.owned_store import put_ok, small
from tests.store.recovery.test_broker_deletions import leave_as_a_broker

_CONFIG = small(mapped_file_size_commit_log=4096)
_MESSAGES = 60


def _store(path: Path) -> list[Path]:
    """A store that a broker has closed; the files of its log that have records."""
    with MessageStore.open(path, _CONFIG) as store:
        for number in range(_MESSAGES):
            put_ok(store, body=b"%03d" % number * 100, queue_id=0)
    leave_as_a_broker(path)
    return [file for file in sorted((path / "commitlog").iterdir()) if file.read_bytes().strip(b"\0")]


def _invert(file: Path, first: int = 0) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:first] + bytes(byte ^ 0xFF if byte else 0 for byte in data[first:]))


def _place_of_the_last_message(path: Path) -> int:
    with StoreReader.open(path) as reader:
        rows = pa.Table.from_batches(reader.read("orders", 0, _MESSAGES - 1, columns=["physicalOffset"]))
    place: int = rows["physicalOffset"][-1].as_py()
    return place


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_log_whose_last_files_are_damaged_is_not_cut_silently(tmp_path: Path, count: int) -> None:
    path = tmp_path / "store"
    for file in _store(path)[-count:]:
        _invert(file)
    before = [file.read_bytes() for file in sorted((path / "commitlog").iterdir())]
    for _ in range(2):  # a refused opening leaves what the next one needs
        with pytest.raises(DamagedLog, match=r"by its consume queues \d+ messages follow"):
            MessageStore.open(path, _CONFIG)
    assert [file.read_bytes() for file in sorted((path / "commitlog").iterdir())] == before
    found = assess_store(path, deep=True)
    assert found.found is not None
    assert (found.verdict, found.found + found.lost) == (Verdict.DOES_NOT_OPEN, _MESSAGES)


def test_a_cut_keeps_the_damaged_bytes(tmp_path: Path) -> None:
    path = tmp_path / "store"
    last = _store(path)[-1]
    _invert(last)
    damaged = last.read_bytes()
    with pytest.raises(DamagedLog) as caught:
        MessageStore.open(path, _CONFIG)
    assert caught.value.cut_at == int(last.name)
    lost = assess_store(path, deep=True).lost
    report = repair_store(path, cut_at=caught.value.cut_at)
    assert report.kept is not None
    assert (Path(report.kept.path) / "commitlog" / last.name).read_bytes() == damaged
    with StoreReader.open(path) as reader:
        assert reader.queues("orders")[0].max_offset == _MESSAGES - lost


def test_the_last_message_alone_is_missed_too(tmp_path: Path) -> None:
    path = tmp_path / "store"
    last = _store(path)[-1]
    _invert(last, _place_of_the_last_message(path) - int(last.name))
    with pytest.raises(DamagedLog, match="by its consume queues 1 messages follow"):
        MessageStore.open(path, _CONFIG)


def test_bytes_that_no_unit_leads_to_are_no_lost_messages(tmp_path: Path) -> None:
    path = tmp_path / "store"
    last = _store(path)[-1]
    data, at = last.read_bytes(), _place_of_the_last_message(path) - int(last.name)
    end = at + int.from_bytes(data[at : at + 4], "big")
    last.write_bytes(data[:end].ljust(end + 20, b"?").ljust(len(data), b"\0"))
    assert last.stat().st_size == len(data)
    with MessageStore.open(path, _CONFIG):
        pass
    with StoreReader.open(path) as reader:
        assert reader.queues("orders")[0].max_offset == _MESSAGES
