"""Paths that hold no store, or a store of another kind: refused by name when opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import (
    LogFollower,
    MessageStore,
    StoreReader,
    commit_group_offsets,
    export_store,
    promote,
    repair_store,
    salvage_store,
    store_metadata,
    verify_store,
)
from commitlog_store.errors import InvalidValue, NotAStore, StoreNotFound, StoreOpenError, UnsupportedStore
from tests.store.cli.commands import ended
from tests.support.store_builder import StoreBuilder


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


NO_PATHS = {
    "oss://bucket/store": "Files of a store are mapped into memory, which oss: does not offer: copy the store to",
    "webhdfs://namenode/store": "which webhdfs: does not offer: copy the store to a local or mounted file system",
    "HDFS://namenode:8020/a": "The scheme of an address is written in lower case: hdfs://namenode:8020/a.",
    "hdfs:/namenode/a": "and is a string, not a pathlib.Path: 'hdfs://namenode/a'.",
    "dbfs:/mnt/store": "give the path where Databricks mounts it, /dbfs/mnt/store.",
    "file:///data/store": "option path only: give the path alone, or archive+file:///data/store to read an archive",
    "GRPC://127.0.0.1:8815": "The scheme of an address is written in lower case: grpc://127.0.0.1:8815.",
    "s3:/bucket/orders": "An address has two slashes, and is a string, not a pathlib.Path: 's3://bucket/orders'.",
    "archive+file:/data/a": "and is a string, not a pathlib.Path: 'archive+file:///data/a'.",
    "S3://bucket/orders": "The scheme of an address is written in lower case: s3://bucket/orders.",
    "localhost:9876": "It is the address of a broker or a name server, and stores are files: give the broker's",
    "10.0.0.1:9876;10.0.0.2:9876": "or the path of a copy, which 'commitlog follow HOST:10912 DIR' keeps.",
}


@pytest.mark.parametrize("open_it", [StoreReader.open, MessageStore.open])
@pytest.mark.parametrize("path", NO_PATHS)
def test_a_uri_or_an_address_is_answered_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str, open_it: Callable[[str], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotAStore) as raised:
        open_it(path)
    assert str(raised.value).startswith(f"{path!r} is not the path of a store's directory. ")
    assert NO_PATHS[path] in str(raised.value)
    assert not list(tmp_path.iterdir()), "nothing is created"


@pytest.mark.parametrize("path", NO_PATHS)
def test_a_directory_of_such_a_name_is_given_with_a_dot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    MessageStore.open(f"./{path}").close()
    StoreReader.open(f"./{path}").close()


def test_commands_answer_a_uri_and_an_address_too() -> None:
    for command in (["info"], ["verify"], ["topics", "ls"], ["produce", "--create", "--topic", "orders"]):
        for path, said in NO_PATHS.items():
            outcome = ended(*command, path)
            assert (outcome.returncode, said in outcome.stderr) == (2, True), (command, path, outcome)


def test_a_tilde_is_the_home_directory_as_in_a_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for path in ("~/store", Path("~") / "store"):
        with MessageStore.open(path) as store:
            assert store.path == str(tmp_path / "store")
        with StoreReader.open(path) as reader:
            assert reader.path == str(tmp_path / "store")
    MessageStore.open("./~/store").close()
    assert (tmp_path / "~" / "store" / "commitlog").is_dir()
    with pytest.raises(StoreNotFound, match=rf"No store at {tmp_path}/~nobody-is-called-so/store:"):
        StoreReader.open("~nobody-is-called-so/store")


PARTS = (
    "commitlog",
    f"commitlog/{0:020d}",
    f"commitlog/{1 << 30:020d}",
    "consumequeue",
    "consumequeue/orders",
    "consumequeue/orders/0",
    f"consumequeue/orders/0/{0:020d}",
    "checkpoint",
    "config/topics.json",
)


@pytest.mark.parametrize("part", PARTS)
def test_the_store_is_named_for_the_path_of_a_part_of_it(tmp_path: Path, part: str) -> None:
    builder = StoreBuilder(tmp_path / "shop")
    builder.append("orders", 0, [b"x"])
    (builder.path / "checkpoint").touch()
    with pytest.raises(StoreOpenError, match=rf"It is within a store: did you mean {builder.path}\?$"):
        StoreReader.open(builder.path / part)


@pytest.mark.parametrize("part", ["commitlog", f"commitlog/{0:020d}"])
def test_the_store_is_named_where_only_its_log_is_left(tmp_path: Path, part: str) -> None:
    builder = StoreBuilder(tmp_path / "shop")
    builder.append("orders", 0, [b"x"])
    (tmp_path / "log").mkdir()
    (builder.path / "commitlog").rename(tmp_path / "log" / "commitlog")
    with pytest.raises(NotAStore, match=rf"did you mean {tmp_path}/log\?"):
        StoreReader.open(tmp_path / "log" / part)


def test_no_store_is_created_in_a_directory_that_a_store_keeps_for_itself(tmp_path: Path) -> None:
    """An owner of the store would delete it as the left files of a batch, or take it for a topic."""
    MessageStore.open(tmp_path / "shop").close()
    for part in ("staging", "index/new", "commitlog", "consumequeue/orders", "config/x/y"):
        said = rf"{part} is within the store {tmp_path}/shop, in a directory that it keeps"
        with pytest.raises(NotAStore, match=said):
            MessageStore.open(tmp_path / "shop" / part)
    MessageStore.open(tmp_path / "commitlog" / "shop").close()  # a directory of that name need not be a log


def test_no_store_is_created_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "orders.json").write_text("{}")
    for path in (tmp_path / "orders.json", tmp_path / "orders.json" / "store"):
        with pytest.raises(NotAStore, match=r"orders.json is a file; a store is a directory"):
            MessageStore.open(path)


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
