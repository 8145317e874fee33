"""Messages of an archive by key: the same as in the directory's index, for a request a segment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.archive.archiver import archive_store
from commitlog_store.archive.check import check_archive
from commitlog_store.archive.generations import newest
from commitlog_store.archive.index_objects import (
    INDEX_HEAD,
    decode_index_head,
    decode_places,
    decode_rows,
    encode_index,
    mixed_hashes,
    places_start,
    window,
)
from commitlog_store.archive.manifest import Segment
from commitlog_store.archive_reader.reader import ArchiveReader
from commitlog_store.cli.app import app
from commitlog_store.errors import ArchiveDamaged
from commitlog_store.object_storage.checked_pages import CHECKED_PAGE
from commitlog_store.object_storage.object_store import ObjectStore
from commitlog_store.object_storage.page_cache import PageCache
from tests.store.cli.commands import ended, plain
from tests.support import golden

MESSAGES = 300
# One key that all messages have, some that several have, and one of each alone.
KEYS = ["all", *(f"k{number}" for number in range(0, 40, 13)), "only37", "only299", "no"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Log files of 4 KiB, some twenty of them."""
    path = tmp_path_factory.mktemp("keys") / "store"
    config = MessageStoreConfig.embedded(mapped_file_size_commit_log=4 << 10)
    with MessageStore.open(path, config) as store:
        store.put_messages(
            [
                Message(topic="orders", body=b"%d" % one * 60, keys=["all", f"k{one % 40}", f"only{one}"])
                for one in range(MESSAGES)
            ]
        )
        store.put_message(Message(topic="audit", body=b"x", keys=["all"]))
    return path


@pytest.fixture(scope="module")
def url(store: Path) -> str:
    past = store.parent / "past"
    archive_store(store, f"file://{past}", with_last=True)
    return f"archive+file://{past}"


def opened(url: str) -> ArchiveReader:
    reader = StoreReader.open(url)
    assert isinstance(reader, ArchiveReader)
    return reader


def test_keys_are_found_as_in_the_directory(store: Path, url: str) -> None:
    with StoreReader.open(store) as directory, opened(url) as archive:
        middle = directory.store_timestamp("orders", 0, 20)
        for key in KEYS:
            for limit in (1, 5, 1000):
                for begin, end in ((0, 2**62), (0, middle), (middle, 2**62), (middle + 10**9, 2**62)):
                    expected = directory.query("orders", key, begin=begin, end=end, limit=limit)
                    assert archive.query("orders", key, begin=begin, end=end, limit=limit) == expected, key
        assert len(archive.query("orders", "all", limit=1000)) == MESSAGES
        assert len(archive.query("audit", "all")) == 1
        # Few keys are looked up one by one, and many in all rows of a segment.
        for keys in (KEYS, [*KEYS, None, "", *(f"only{number}" for number in range(MESSAGES))]):
            tables = [
                pa.Table.from_batches(reader.query_keys("orders", keys, columns=["queueOffset", "keys", "body"]))
                for reader in (directory, archive)
            ]
            assert tables[0].equals(tables[1])
            assert tables[0].num_rows == len(keys)


@pytest.mark.parametrize("name", [golden.ROCKETMQ_533, golden.ROCKETMQ_498])
def test_keys_of_a_golden_store_are_found_as_in_its_index(name: str, tmp_path: Path) -> None:
    store = golden.copy_golden(name, tmp_path / "store")
    (store / "abort").unlink(missing_ok=True)
    archive_store(store, f"file://{tmp_path}/past", with_last=True)
    found = 0
    with StoreReader.open(store) as directory, opened(f"archive+file://{tmp_path}/past") as archive:
        for topic in directory.topics():
            rows = directory.scan(topic, columns=["keys", "uniqKey"]).read_all().to_pylist()
            keys = {row["uniqKey"] for row in rows} | {key for row in rows for key in (row["keys"] or "").split()}
            for key in sorted(keys - {None})[::9]:
                expected = directory.query(topic, key)
                assert archive.query(topic, key) == expected
                found += len(expected)
    assert found > 5


def test_a_key_costs_a_request_for_each_segment_of_the_time(store: Path, url: str) -> None:
    with opened(url) as archive:
        segments = archive.facts().log_files
        assert segments > 15
        opening = archive.stats().requests
        assert archive.query("orders", "no") == []
        assert archive.stats().requests - opening == segments
        # Rows, places and records of small segments are in one page each.
        before = archive.stats().requests
        assert len(archive.query("orders", "only37")) == 1
        assert archive.stats().requests - before == 1
    with opened(url) as archive:
        newest_ms = archive.store_timestamp("audit", 0, 0)
        before = archive.stats().requests
        assert archive.query("orders", "all", begin=newest_ms + 1) == []
        assert archive.stats().requests == before
        # The newest are in the last segments: those before are not needed, though some are asked ahead.
        assert len(archive.query("orders", "all", limit=1)) == 1
        assert archive.stats().requests - before <= 8


def test_commands_print_what_they_print_of_the_directory(store: Path, url: str, tmp_path: Path) -> None:
    runner = CliRunner()
    for command in (["query", "PATH", "k7", "--json"], ["get", "PATH", "only37", "-t", "orders", "--json"]):
        printed = [
            runner.invoke(app, [path if word == "PATH" else word for word in command] + more)
            for path, more in ((str(store), []), (url, []), (str(store), ["--archive", url]))
        ]
        assert [one.exit_code for one in printed] == [0, 0, 0]
        assert printed[0].stdout == printed[1].stdout == printed[2].stdout != ""
    cache = ["--cache-dir", str(tmp_path / "cache"), "--cache-size", "1G"]
    cached = ["query", url, "k7", "-t", "orders", *cache, "--stats"]
    said = [runner.invoke(app, cached).stderr for _ in range(2)]
    assert "from the cache" in said[0]
    assert said[0].endswith("0 bytes from the cache.\n")
    assert said[1].startswith("commitlog: 2 requests to object storage: ")
    assert not said[1].endswith(" 0 bytes from the cache.\n")
    exported = runner.invoke(app, ["export", url, "--to", f"ndjson:{tmp_path}/rows", "-t", "audit", "--stats"])
    for failing in (
        ["export", url, "--to", f"ndjson:{tmp_path}/rows", "-t", "audit", "--stats"],  # exists already
        ["export", url, "--to", f"ndjson:{tmp_path}/others", "-t", "no such topic", "--stats"],
        ["cat", url, "no such topic", "--stats"],
        ["cat", f"{url}/nothing", "audit", "--stats"],
    ):
        failed = ended(*failing)
        assert failed.returncode not in (0, 130), failing
        assert "to object storage: " in failed.stderr, failing
    assert "requests to object storage" in exported.stderr
    refused = runner.invoke(app, ["query", str(store), "k7", "--cache-size", "1G"])
    assert (refused.exit_code, "--cache-size: For an archive" in plain(refused.stderr)) == (2, True)


def test_every_hash_is_in_its_window() -> None:
    random = np.random.default_rng(7)
    alike = (np.arange(50_000) * 31 + 17).astype(np.int32)
    for hashes in (random.integers(0, 2**31, 50_000).astype(np.int32), alike, alike[:1], alike[:3]):
        positions = np.arange(len(hashes), dtype=np.int64) * 100
        parts, count = encode_index(
            np.concatenate([hashes, hashes[:2]]), np.concatenate([positions, positions[:2] + 7])
        )
        data = b"".join(parts)
        assert decode_index_head(data, "index") == (count, len(decode_places(data[places_start(count) :])))
        rows = decode_rows(data[INDEX_HEAD : places_start(count)])
        assert count == len(np.unique(hashes))
        wide = 0
        for row, mixed in enumerate(
            mixed_hashes(np.unique(hashes))[np.argsort(mixed_hashes(np.unique(hashes)))].tolist()
        ):
            assert rows["mixed"][row] == mixed
            low, high = window(mixed, count)
            wide = max(wide, high - low)
            assert low <= row < high
        assert wide <= 2 * (3 * 224 + 16)


def test_a_damaged_index_is_named_and_reads_go_on(store: Path, url: str, tmp_path: Path) -> None:
    archive_store(store, f"file://{tmp_path}/past", with_last=True)
    segment = newest(ObjectStore.open(f"file://{tmp_path}/past")).segments[2]
    path = tmp_path / "past" / segment.index.name
    data = bytearray(path.read_bytes())
    data[INDEX_HEAD : places_start(segment.index_rows)] = b"\xff" * 8 * segment.index_rows
    path.write_bytes(data)
    with opened(f"archive+file://{tmp_path}/past") as archive:
        with pytest.raises(ArchiveDamaged, match=f"{segment.index.name} is not as the archive's manifest says"):
            archive.query("orders", "all", limit=1000)
        assert archive.scan("orders").read_all().num_rows == MESSAGES


# So many keys that rows and places of one segment have several pages.
LARGE = 60_000


def large_archive(path: Path) -> tuple[Segment, str]:
    """An archive with a segment of that many keys: it, and the archive's address."""
    config = MessageStoreConfig.embedded(mapped_file_size_commit_log=4 << 20)
    with MessageStore.open(path / "store", config) as store:
        names = [f"k{number}" for number in range(LARGE)]
        store.put_messages(
            [Message(topic="orders", queue_id=0, body=b"x", keys=names[at : at + 500]) for at in range(0, LARGE, 500)]
        )
    archive_store(path / "store", f"file://{path}/past", with_last=True)
    (segment,) = newest(ObjectStore.open(f"file://{path}/past")).segments
    return segment, f"archive+file://{path}/past"


def test_a_flipped_byte_anywhere_in_a_large_index_is_noticed(tmp_path: Path) -> None:
    """A flipped bit of a hash, of a first place or of a place may leave an index that contradicts nothing."""
    segment, url = large_archive(tmp_path)
    assert segment.index.size > 2 * CHECKED_PAGE
    assert check_archive(url.removeprefix("archive+"), deep=True).problems == []
    with opened(url) as archive:
        keys = [*(f"k{number}" for number in range(0, LARGE, 200)), "none"]
        found = pa.Table.from_batches(archive.query_keys("orders", keys, columns=["queueOffset"]))
        expected = [int(key[1:]) // 500 for key in keys[:-1]]
        assert found.column("queueOffset").to_pylist() == [*expected, None]
        for key, offset in list(zip(keys, expected, strict=False))[::10]:
            assert [one.queue_offset for one in archive.query("orders", key)] == [offset]
        assert archive.query("orders", "none") == []
        assert archive.index_files()[0].index_count == LARGE
    path = tmp_path / "past" / segment.index.name
    whole = path.read_bytes()
    anywhere = range(INDEX_HEAD + 3, len(whole), len(whole) // 8)
    of_checksums = [CHECKED_PAGE - 4, CHECKED_PAGE - 1, len(whole) - 4, len(whole) - 1]
    for at in (*anywhere, *of_checksums, CHECKED_PAGE - 5, CHECKED_PAGE, len(whole) - 5):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        page = at // CHECKED_PAGE * CHECKED_PAGE
        with opened(url) as archive, pytest.raises(ArchiveDamaged, match=f"{segment.index.name}.* at byte {page}:"):
            list(archive.query_keys("orders", [f"k{number}" for number in range(LARGE)]))
    (problem,) = check_archive(url.removeprefix("archive+"), deep=True).problems
    assert segment.index.name in problem
    # A cache may have a page as it was while the object was damaged.
    path.write_bytes(whole)
    cache = PageCache(str(tmp_path / "cache"))
    cache.put(segment.index.sha256[:32], 1, bytes(CHECKED_PAGE))
    with StoreReader.open(url, cache_dir=tmp_path / "cache") as archive:
        found = pa.Table.from_batches(archive.query_keys("orders", keys, columns=["queueOffset"]))
        assert found.column("queueOffset").to_pylist() == [*expected, None]
