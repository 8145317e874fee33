"""Stores whose log lies in another directory (RocketMQ's ``storePathCommitLog``), written and read."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import (
    BrokerProperties,
    LogFollower,
    Message,
    MessageStore,
    MessageStoreConfig,
    StoreReader,
    repair_store,
    store_metadata,
)
from commitlog_store.errors import InvalidValue, LogLost, LogNotFound, NotAStore
from commitlog_store.retention.survey import clean_request, forecast_clean


def settings(log: Path | str | None) -> MessageStoreConfig:
    return MessageStoreConfig.embedded(
        store_path_commit_log=None if log is None else str(log),
        mapped_file_size_commit_log=64 << 10,
        disk_space_warning_level_ratio=1.0,
        retention_enable=False,
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk" / "log"


def bodies(store: Path, log: Path | None) -> list[bytes]:
    with StoreReader.open(store, store_path_commit_log=log) as reader:
        return [body for one in reader.scan("orders", columns=["body"]) for body in one.column(0).to_pylist()]


def filled(store: Path, log: Path, count: int = 10) -> list[bytes]:
    with MessageStore.open(store, settings(log)) as owner:
        for number in range(count):
            owner.put("orders", b"%05d" % number, queue_id=0, keys=[f"k{number}"])
    return [b"%05d" % number for number in range(count)]


def test_the_log_alone_is_in_the_directory_that_is_named(store: Path, log: Path) -> None:
    expected = filled(store, log)
    assert [one.name for one in log.iterdir()] == [f"{0:020d}"]
    assert not (store / "commitlog").exists()
    assert {"lock", "checkpoint", "config", "consumequeue", "index"} <= {one.name for one in store.iterdir()}
    assert bodies(store, log) == expected
    with StoreReader.open(store, store_path_commit_log=log) as reader:
        assert reader.query("orders", "k3")[0].body == b"00003"
        assert reader.message_at(0).body == b"00000"
        copy = pickle.loads(pickle.dumps(reader))
    with copy:
        assert copy.queue_info("orders", 0).max_offset == 10
    with StoreReader.open(store, store_path_commit_log=log, from_log=True) as reader:
        assert reader.queue_info("orders", 0).max_offset == 10


def test_the_owner_opens_again_clean_after_a_crash_and_rebuilds(store: Path, log: Path) -> None:
    expected = filled(store, log)
    with MessageStore.open(store, settings(log)) as owner:
        assert owner.recovered is None
        assert owner.reader().queue_info("orders", 0).max_offset == 10
        consumer_read = owner.get_message("orders", 0, 3)
        assert consumer_read.messages[0].body == b"00003"
    (store / "abort").write_bytes(b"")
    with MessageStore.open(store, settings(log)) as owner:
        assert owner.recovered is not None
    shutil.rmtree(store / "consumequeue")
    with MessageStore.open(store, settings(log)):
        pass
    assert bodies(store, log) == expected


def test_batches_half_messages_and_groups_work(store: Path, log: Path) -> None:
    with MessageStore.open(store, settings(log)) as owner:
        with owner.transaction("app", version=1) as transaction:
            transaction.put_messages(pa.table({"topic": ["orders"] * 3, "body": [b"a", b"b", b"c"]}))
        handle = owner.half_messages.prepare(Message(topic="orders", body=b"half"), producer_group="p")
        owner.half_messages.commit(handle)
        owner.dispatch()
        assert owner.reader().batches()[0].rows == 3
    with MessageStore.open(store, settings(log)) as owner:
        assert not owner.half_messages.pending()
    assert sorted(bodies(store, log)) == [b"a", b"b", b"c", b"half"]
    assert not (store / "commitlog").exists()


def test_retention_deletes_files_of_the_log_elsewhere(store: Path, log: Path) -> None:
    with MessageStore.open(store, settings(log)) as owner:
        for _ in range(30):
            owner.put("orders", b"x" * 10_000)
        request = clean_request(older_than_hours=None, max_bytes=1)
    before = len(list(log.iterdir()))
    found = forecast_clean(store, request, store_path_commit_log=log)
    assert found.deleted
    with pytest.raises(LogNotFound):
        forecast_clean(store, request)
    with MessageStore.open(store, settings(log)) as owner:
        owner.clean(max_bytes=1)
    assert len(list(log.iterdir())) < before


def test_a_forgotten_place_is_an_error_by_name(store: Path, log: Path) -> None:
    filled(store, log)
    with pytest.raises(LogNotFound, match="store_path_commit_log"):
        StoreReader.open(store)
    with pytest.raises(LogLost, match=f"{store}/commitlog holds no file"):
        MessageStore.open(store, settings(None))
    assert list((store / "commitlog").iterdir()) == []
    assert len(bodies(store, log)) == 10


def test_a_disk_that_is_not_mounted_is_an_error_by_name(store: Path, log: Path) -> None:
    filled(store, log)
    shutil.move(log, log.with_name("aside"))
    with pytest.raises(LogNotFound, match=f"{log}: .*that is where it was said to be"):
        StoreReader.open(store, store_path_commit_log=log)
    log.mkdir()
    with pytest.raises(LogNotFound, match=f"not at {log}: "):
        StoreReader.open(store, store_path_commit_log=log)
    with pytest.raises(LogLost, match=f"{log} holds no file"):
        MessageStore.open(store, settings(log))


def test_a_log_is_not_made_in_a_directory_that_does_not_exist(store: Path, tmp_path: Path) -> None:
    with pytest.raises(LogNotFound, match="Is its disk mounted"):
        MessageStore.open(store, settings(tmp_path / "not mounted" / "log"))
    assert not store.exists()


def test_a_file_is_not_a_logs_directory(store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotAStore, match="should be the directory of the log"):
        MessageStore.open(store, settings(tmp_path / "file"))


@pytest.mark.parametrize(
    "open_it",
    [
        lambda _: MessageStoreConfig(store_path_commit_log="/a/log,/b/log"),
        lambda _: MessageStoreConfig.from_mapping({"store_path_commit_log": "/a/log,/b/log"}),
        lambda _: BrokerProperties.parse("storePathCommitLog = /a/log,/b/log", "broker.conf"),
        lambda store: StoreReader.open(store, store_path_commit_log="/a/log,/b/log"),
    ],
)
def test_several_directories_are_refused_with_what_to_do(store: Path, open_it: Callable[[Path], object]) -> None:
    store.mkdir()
    (store / "lock").write_bytes(b"")
    with pytest.raises(InvalidValue, match=r"MultiPath.* is not read; link its files into one directory"):
        open_it(store)


@pytest.mark.parametrize("wrong", ["", "  ", 7, b"/log", "a\0b"])
def test_what_is_not_a_directorys_name_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidValue, match="store_path_commit_log is the directory of the log files"):
        MessageStoreConfig(store_path_commit_log=wrong)  # type: ignore[arg-type]


def test_a_broker_conf_names_it(store: Path, log: Path) -> None:
    found = BrokerProperties.parse(f"storePathRootDir={store}\nstorePathCommitLog={log}")
    assert found.unused == {}
    assert found.config.store_path_commit_log == str(log)
    assert found.store_path_root_dir is not None
    with MessageStore.open(found.store_path_root_dir, found.config) as owner:
        owner.put("orders", b"x")
    assert list(log.iterdir())


def test_links_to_the_files_of_several_directories_are_read(store: Path, log: Path, tmp_path: Path) -> None:
    with MessageStore.open(store, settings(log)) as owner:
        for _ in range(30):
            owner.put("orders", b"x" * 10_000)
    links = tmp_path / "links"
    links.mkdir()
    for number, file in enumerate(sorted(log.iterdir())):
        part = tmp_path / f"part-{number % 2}"
        part.mkdir(exist_ok=True)
        (links / file.name).symlink_to(shutil.move(file, part / file.name))
    assert len(bodies(store, links)) == 30


def test_an_owner_refuses_a_link_and_takes_the_directory_it_leads_to(store: Path, log: Path) -> None:
    filled(store, log)
    (store / "commitlog").symlink_to(log)
    assert len(bodies(store, None)) == 10
    with pytest.raises(NotAStore, match="Name the directory it leads to in store_path_commit_log"):
        MessageStore.open(store, settings(None))
    with MessageStore.open(store, settings(log)) as owner:
        owner.put("orders", b"x")
    assert len(bodies(store, log)) == 11


def test_repair_looks_at_the_log_elsewhere_and_cuts_it(store: Path, log: Path) -> None:
    filled(store, log, 200)
    file = log / f"{0:020d}"
    with StoreReader.open(store, store_path_commit_log=log) as reader:
        place = next(iter(reader.units("orders", 0, 100, 101)))["physical_offset"][0]
    with file.open("r+b") as opened:
        opened.seek(int(place) + 4)
        opened.write(b"junk")
    (store / "abort").write_bytes(b"")
    report = repair_store(store, config=settings(log))
    assert (report.cut_at, report.messages) == (place, 99)
    repair_store(store, config=settings(log), cut_at=report.cut_at)
    assert len(bodies(store, log)) == 100


def test_metadata_lists_the_files_of_the_log_elsewhere(store: Path, log: Path) -> None:
    filled(store, log)
    table = store_metadata(store, "files", store_path_commit_log=log).to_pylist()
    (row,) = [row for row in table if row["kind"] == "commitlog"]
    assert (row["path"], row["firstOffset"]) == (f"commitlog/{0:020d}", 0)


def test_a_mirror_has_its_log_in_its_directory(store: Path, log: Path) -> None:
    with pytest.raises(InvalidValue, match="not set for a mirror: its log is in its directory"):
        LogFollower("127.0.0.1:1", store, config=settings(log))
    assert not store.exists()
