"""Damaged objects of an archive, each kind in each way: the error names object, byte, expected, found, advice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.archive.archiver import archive_store
from commitlog_store.archive.check import check_archive
from commitlog_store.archive.generations import newest
from commitlog_store.archive.manifest import Manifest, ObjectRef
from commitlog_store.archive_reader.opened_archive import OpenedArchive
from commitlog_store.errors import ArchiveDamaged, CorruptRecord
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.object_storage.object_store import ObjectStore
from commitlog_store.object_storage.page_cache import PageCache
from tests.store.archive.archives import url_of

MESSAGES = 500


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of some 36 segments, so with a closed group, and without earlier generations."""
    path = tmp_path_factory.mktemp("damaged")
    config = MessageStoreConfig.embedded(mapped_file_size_commit_log=4 << 10)
    with MessageStore.open(path / "store", config) as store:
        store.put_messages(
            [
                Message(topic="orders", queue_id=one % 2, body=b"%d" % one * 60, keys=["all", f"only{one}"])
                for one in range(MESSAGES)
            ]
        )
    archive_store(path / "store", url_of(path / "past"), with_last=True)
    return path / "past"


def read(reader: StoreReader) -> object:
    return [batch.num_rows for queue in (0, 1) for batch in reader.read("orders", queue, 0, verify_crc=True)]


def pull(reader: StoreReader) -> object:
    """Pulls from all over both queues."""
    return [reader.get_message("orders", queue, at) for queue in (0, 1) for at in range(0, MESSAGES // 2, 8)]


def query(reader: StoreReader) -> object:
    return reader.query("orders", "all", limit=2 * MESSAGES)


def query_keys(reader: StoreReader) -> object:
    return list(reader.query_keys("orders", [f"only{one}" for one in range(MESSAGES)]))


def settings(reader: StoreReader) -> object:
    return reader.topic_settings()


OBJECTS: dict[str, tuple[Callable[[Manifest], str], list[Callable[[StoreReader], object]]]] = {
    "catalog": (lambda manifest: manifest.catalog.name, [read]),
    "group": (lambda manifest: manifest.groups[0].table.name, [read]),
    "units": (lambda manifest: manifest.segments[3].units.name, [read]),
    "index": (lambda manifest: manifest.segments[3].index.name, [query, query_keys]),
    "log": (lambda manifest: manifest.segments[3].log.name, [read, pull, query]),
    "config": (lambda manifest: manifest.config["topics.json"].name, [settings]),
}


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "missing": bytes,
    "empty": lambda data: data[:0],
    "cut": lambda data: data[: len(data) * 2 // 3],
    "first byte": lambda data: flipped(data, 0),
    "last byte": lambda data: flipped(data, len(data) - 1),
    "other content": lambda data: bytes(reversed(data)),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_damaged_object_is_named_with_byte_expected_found_and_advice(kind: str, past: Path) -> None:
    name_of, questions = OBJECTS[kind]
    name = name_of(newest(ObjectStore.open(url_of(past))))
    path, whole = past / name, (past / name).read_bytes()
    try:
        for what, damage in DAMAGE.items():
            if (kind, what) == ("log", "last byte"):
                continue  # no record is there
            bad = None if what == "missing" else damage(whole)
            path.write_bytes(bad) if bad is not None else path.unlink()
            for question in questions:
                with (
                    pytest.raises((ArchiveDamaged, CorruptRecord)) as raised,
                    StoreReader.open(f"archive+file://{past}") as reader,
                ):
                    question(reader)
                error = raised.value
                assert isinstance(error, ArchiveDamaged | CorruptRecord)
                assert name in str(error), what
                assert "Restore the object" in str(error), what
                assert isinstance(error, CorruptRecord) == (kind == "log" and what in ("first byte", "other content"))
                if bad is not None:
                    assert isinstance(error.expected, str | int), what
                    assert error.expected != error.found
                    assert 0 <= error.offset <= len(whole), what
            if what in ("cut", "last byte"):
                assert any(name in problem for problem in check_archive(url_of(past), deep=True).problems), what
    finally:
        path.write_bytes(whole)


def test_a_manifest_is_compared_with_its_checksum(past: Path) -> None:
    path = min((past / "manifest").iterdir())
    whole = path.read_bytes()
    digit = whole.index(b'"units_head": ') + len(b'"units_head": ')
    try:
        for bad in (
            b"",
            whole[: len(whole) // 2],
            flipped(whole, digit),
            whole.replace(b'"records": 1', b'"records": 2'),
            whole.rpartition(b',\n "crc32": ')[0] + b"\n}\n",
        ):
            path.write_bytes(bad)
            with pytest.raises(ArchiveDamaged, match=f"{path.name} is not a manifest .*Restore the object"):
                StoreReader.open(f"archive+file://{past}")
    finally:
        path.write_bytes(whole)


def test_a_cache_that_has_an_object_as_it_was_when_it_was_damaged_is_corrected(past: Path, tmp_path: Path) -> None:
    ref = newest(ObjectStore.open(url_of(past))).segments[3].units
    cache = PageCache(str(tmp_path / "cache"))
    cache.put(ref.sha256[:32], 0, bytes(ref.size))
    with StoreReader.open(f"archive+file://{past}", cache_dir=tmp_path / "cache") as reader:
        assert read(reader)
    kept = bytearray(ref.size)
    assert cache.read_into(memoryview(kept), ref.sha256[:32], 0)
    assert kept == (past / ref.name).read_bytes()


def test_a_large_damaged_object_is_compared_where_it_leads_to_a_wrong_place(
    past: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a unit object of many pages only some are read, without a checksum: a wrong place shows the damage."""
    monkeypatch.setattr("commitlog_store.object_storage.pages.PAGE", 64)
    monkeypatch.setattr("commitlog_store.object_storage.pages._PAGES_OF_A_REQUEST", 1)
    segment = newest(ObjectStore.open(url_of(past))).segments[3]
    path, whole = past / segment.units.name, (past / segment.units.name).read_bytes()
    try:
        path.write_bytes(flipped(whole, segment.units_head + 7))
        with (
            pytest.raises(ArchiveDamaged, match=f"{segment.units.name} .*CRC-32"),
            StoreReader.open(f"archive+file://{past}") as reader,
        ):
            read(reader)
    finally:
        path.write_bytes(whole)


def test_a_damaged_object_that_misleads_many_messages_is_compared_once(
    past: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commitlog_store.object_storage.pages.PAGE", 64)
    monkeypatch.setattr("commitlog_store.object_storage.pages._PAGES_OF_A_REQUEST", 1)
    compared: list[str] = []
    compare = OpenedArchive.compare

    def counted(archive: OpenedArchive, ref: ObjectRef) -> None:
        compared.append(ref.name)
        compare(archive, ref)

    monkeypatch.setattr(OpenedArchive, "compare", counted)
    segment = newest(ObjectStore.open(url_of(past))).segments[3]
    path, whole = past / segment.units.name, (past / segment.units.name).read_bytes()
    bad = bytearray(whole)
    bad[segment.units_head + 7 :: UNIT_SIZE] = bytes(one ^ 1 for one in bad[segment.units_head + 7 :: UNIT_SIZE])
    try:
        path.write_bytes(bad)
        with StoreReader.open(f"archive+file://{past}", on_damage="skip") as reader:
            read(reader)
            lost = reader.skipped
    finally:
        path.write_bytes(whole)
    assert sum(one.stop - one.start for one in lost) == segment.rows > 9
    assert all(segment.units.name in str(one.reason) for one in lost)
    assert compared == [segment.units.name]
