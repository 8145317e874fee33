"""Archives in an object store whose listings are old: names are answered at once, so nothing is lost or repeated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.archive.archiver import archive_store
from commitlog_store.archive.generations import newest_or_none, read_generation
from commitlog_store.archive_reader.reader import ArchiveReader
from commitlog_store.object_storage.object_store import ObjectStore
from tests.store.archive.archives import add_messages, archived_bytes, assert_sound, log_bytes, small_store
from tests.support.http_proxy import OldListings
from tests.support.s3_server import BUCKET, options_for, s3_server


@pytest.fixture
def proxy() -> Iterator[OldListings]:
    with s3_server() as endpoint, OldListings(endpoint) as proxy:
        yield proxy


def test_archivers_readers_and_histories_find_what_an_old_listing_does_not_show(
    proxy: OldListings, tmp_path: Path
) -> None:
    store, url, options = tmp_path / "store", f"s3://{BUCKET}/orders", options_for(proxy.url)
    builder = small_store(store, 200)
    first = archive_store(store, url, options=options)
    with StoreReader.open(url, storage_options=options) as reader:
        assert isinstance(reader, ArchiveReader)
        proxy.are_old = True
        add_messages(builder, 200)
        second = archive_store(store, url, options=options)
        assert second.added == second.segments - first.segments > 2
        assert reader.physical_bounds() == (0, first.stop)
        reader.look_again()
        assert reader.physical_bounds() == (0, second.stop)
        reader.look_again()
        assert reader.physical_bounds() == (0, second.stop), "an old listing takes nothing back"
    objects = ObjectStore.open(url, options=options)
    assert read_generation(objects, second.generation + 1) is None

    whole = log_bytes(store)
    with StoreReader.open(store) as directory:
        expected = directory.scan("*", columns=["topic", "queueOffset", "physicalOffset"]).read_all()
    for file in sorted((store / "commitlog").iterdir())[: first.segments + 2]:
        file.unlink()
    with StoreReader.open(store, archive=url, storage_options=options) as history:
        assert history.scan("*", columns=["topic", "queueOffset", "physicalOffset"]).read_all().equals(expected)
    proxy.are_old = False
    assert archived_bytes(objects) == whole[: second.stop]


def test_an_archive_that_no_listing_shows_is_continued(proxy: OldListings, tmp_path: Path) -> None:
    objects = ObjectStore.open(f"s3://{BUCKET}/unseen", options=options_for(proxy.url))
    builder = small_store(tmp_path / "store", 200)
    assert newest_or_none(objects) is None
    proxy.are_old = True
    first = archive_store(tmp_path / "store", objects)
    add_messages(builder, 100)
    second = archive_store(tmp_path / "store", objects)
    assert first.added + second.added == second.segments == second.generation
    proxy.are_old = False
    assert_sound(objects)
