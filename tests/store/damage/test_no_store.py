"""Paths that hold no store, or a store of another kind: refused by name when opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlog import (
    LogFollower,
    StoreReader,
    commit_group_offsets,
    export_store,
    promote,
    repair_store,
    salvage_store,
    store_metadata,
    verify_store,
)
from commitlog.errors import InvalidValue, NotAStore, StoreNotFound, StoreOpenError, UnsupportedStore
from tests.support.store_builder import StoreBuilder

__all__: list[str] = []


def test_a_missing_path_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFound, match="the directory does not exist") as raised:
        StoreReader.open(tmp_path / "nothing")
    assert raised.value.path == str(tmp_path / "nothing")
    assert raised.value.path in str(raised.value)


def test_a_file_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"?")
    with pytest.raises(NotAStore, match="is a file"):
        StoreReader.open(tmp_path / "file")
    with pytest.raises(StoreOpenError):
        StoreReader.open(tmp_path / "file" / "below")


def test_a_directory_of_other_things_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    with pytest.raises(NotAStore, match="holds neither 'commitlog'"):
        StoreReader.open(tmp_path)


def test_a_path_that_no_file_system_has_is_not_found() -> None:
    with pytest.raises(StoreNotFound):
        StoreReader.open("x" * 5000)


_OPENING: dict[str, Callable[[Any], object]] = {
    "StoreReader": StoreReader.open,
    "LogFollower": lambda path: LogFollower("127.0.0.1:1", path),
    "commit_group_offsets": lambda path: commit_group_offsets(path, "billing", {}),
    "export_store": lambda path: export_store(path, "csv:/nowhere/x.csv"),
    "promote": promote,
    "repair_store": repair_store,
    "salvage_store": salvage_store,
    "store_metadata": lambda path: store_metadata(path, "queues"),
    "verify_store": verify_store,
}


@pytest.mark.parametrize("name", _OPENING)
@pytest.mark.parametrize("path", [b"/tmp", "", None, 5, "a\0b"], ids=repr)
def test_an_argument_that_is_not_a_path_is_refused_by_name(name: str, path: Any) -> None:
    """An empty one is not the current directory, and bytes are not joined with texts."""
    with pytest.raises(InvalidValue, match="path is the directory of a store"):
        _OPENING[name](path)


def test_a_link_that_leads_to_itself_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(StoreOpenError):
        StoreReader.open(tmp_path / "loop")


def test_a_store_near_the_path_is_suggested(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store").path
    with pytest.raises(NotAStore, match=f"Did you mean {store}"):
        StoreReader.open(tmp_path)
    (store / "commitlog" / f"{0:020d}").write_bytes(b"")
    with pytest.raises(NotAStore, match=f"did you mean {store}"):
        StoreReader.open(store / "commitlog")


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index"])
def test_a_file_in_place_of_a_directory_of_the_store_is_refused(tmp_path: Path, name: str) -> None:
    store = StoreBuilder(tmp_path / "store").path
    (store / name).rmdir()
    (store / name).write_bytes(b"?")
    with pytest.raises(NotAStore, match="should be a directory") as raised:
        StoreReader.open(store)
    assert raised.value.path == str(store / name)


def test_rocksdb_consume_queues_are_refused_by_name(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store").path
    for name in ("CURRENT", "MANIFEST-000005", "000012.sst", "LOCK"):
        (store / "consumequeue" / name).write_bytes(b"")
    with pytest.raises(UnsupportedStore, match="RocksDB"):
        StoreReader.open(store)


def test_dledger_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "dledger-n0").mkdir()
    (tmp_path / "consumequeue").mkdir()
    with pytest.raises(UnsupportedStore, match="dledger-n0"):
        StoreReader.open(tmp_path)


@pytest.mark.parametrize(
    ("directory", "words"), [("batchconsumequeue", "batch"), ("compaction/compactionCq", "compaction topic")]
)
def test_topics_of_another_kind_are_refused_by_name_and_the_others_read(
    tmp_path: Path, directory: str, words: str
) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("plain", 0, [b"x"])
    builder.append("special", 0, [b"y"])
    (builder.path / directory / "special" / "0").mkdir(parents=True)
    with StoreReader.open(builder.path) as reader:
        with pytest.raises(UnsupportedStore, match=words) as raised:
            reader.queues("special")
        assert "'special'" in str(raised.value)
        assert reader.queues("plain")[0].max_offset == 1
        assert reader.physical_bounds()[1] > 0
