"""Long pieces of a log are read from the cache to where they are wanted, and from the archive where that fails."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from commitlog_store import StoreReader
from commitlog_store.archive.archiver import archive_store
from commitlog_store.object_storage.object_store import ObjectStore
from commitlog_store.object_storage.page_cache import PageCache
from commitlog_store.object_storage.pages import PAGE, ObjectPages, PageLimits, StoredObject
from tests.support.store_builder import StoreBuilder


def test_pages_that_are_cached_damaged_or_gone_make_the_same_rows(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", log_file_size=6 << 20)
    random = np.random.default_rng(3)
    for _ in range(10):
        builder.append("orders", [0], [random.bytes(3000) for _ in range(300)])
    archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
    with StoreReader.open(tmp_path / "store") as directory:
        expected = directory.scan("orders").read_all()

    def read() -> tuple[int, int]:
        with StoreReader.open(f"archive+file://{tmp_path}/past", cache_dir=tmp_path / "cache") as reader:
            assert reader.scan("orders").read_all().equals(expected)
            stats = reader.stats()
            return stats.bytes_fetched, stats.bytes_from_cache

    size = builder.position
    fetched, _ = read()
    assert fetched > size
    fetched, cached = read()
    assert fetched < 64 << 10
    assert size < cached < 1.2 * size, "a page is read about once"
    pages = sorted(one for one in (tmp_path / "cache").rglob("*-*") if one.stat().st_size > PAGE)
    for page in pages[::5]:
        page.unlink()
    for page in pages[1::5]:
        page.write_bytes(bytes(page.stat().st_size))
    fetched, _ = read()
    assert len(pages[::5]) * PAGE < fetched < size
    fetched, _ = read()
    assert fetched < 64 << 10


def test_what_will_be_read_is_announced_in_any_order(tmp_path: Path) -> None:
    data = np.random.default_rng(4).bytes(20 * PAGE + 77)
    (tmp_path / "log").write_bytes(data)
    objects = ObjectStore.open(f"file://{tmp_path}")
    source = StoredObject("log", len(data), "ab12")
    for cache in (None, PageCache(str(tmp_path / "cache"))):
        pages = ObjectPages(objects, cache)
        before = objects.stats.requests
        places = [(15 * PAGE - 3, 9), (PAGE, 10), (PAGE + 50, 3 * PAGE), (20 * PAGE, 77)]
        starts, sizes = (np.array(numbers, np.int64) for numbers in zip(*places, strict=True))
        ahead = pages.ahead()
        ahead.expect(source, starts, starts + sizes)
        for start, size in places:
            assert bytes(pages.read(source, start, start + size)) == data[start : start + size]
        # Pages 1 to 4, 14 and 15, and the last one.
        assert objects.stats.requests - before == 3
        ahead.close()
        pages.close()


def test_what_continues_a_request_that_waits_is_fetched_with_it(tmp_path: Path) -> None:
    data = np.random.default_rng(5).bytes(60 * PAGE)
    (tmp_path / "log").write_bytes(data)
    objects = ObjectStore.open(f"file://{tmp_path}")
    source = StoredObject("log", len(data), "ab12")
    pages = ObjectPages(objects, limits=PageLimits(ahead=PAGE))
    ahead = pages.ahead()
    # The first one is fetched at once; those after it wait. The third one begins in the last page of the second.
    for low, high in pairwise((0, 10 * PAGE, 15 * PAGE + 100, 50 * PAGE, 51 * PAGE)):
        ahead.expect(source, np.array([low]), np.array([high]))
    for at in range(0, 51 * PAGE, PAGE):
        assert bytes(pages.read(source, at, at + PAGE)) == data[at : at + PAGE]
    # Pages 0 to 9, 10 to 41, 42 to 50.
    assert objects.stats.requests == 3
    pages.close()
