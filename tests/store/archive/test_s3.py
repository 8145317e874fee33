"""Archives in S3: a real server of its protocol, in a process of its own (moto; ``make`` installs it)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import StoreReader
from commitlog_store.archive.archiver import archive_store
from commitlog_store.archive.check import check_archive
from commitlog_store.archive.gc import gc_archive
from commitlog_store.archive.generations import newest
from commitlog_store.archive.restore import restore_store
from commitlog_store.errors import ArchiveFailed, ArchiveMismatch, ArchiveNotFound
from commitlog_store.object_storage.clients import PART_SIZE
from commitlog_store.object_storage.object_store import ObjectStore
from tests.store.archive.archives import FILE_SIZE, add_messages, archived_bytes, assert_sound, log_bytes, small_store
from tests.support import quick_programs
from tests.support.s3_server import BUCKET, SECRET, options_for, s3_server
from tests.support.store_builder import StoreBuilder


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def objects(endpoint: str, request: pytest.FixtureRequest) -> ObjectStore:
    """A prefix of the test's own."""
    return ObjectStore.open(f"s3://{BUCKET}/{request.node.name}", options=options_for(endpoint))


def test_a_store_is_archived_checked_and_restored(objects: ObjectStore, tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 200)
    archive_store(tmp_path / "store", objects)
    add_messages(builder, 200)
    report = archive_store(tmp_path / "store", objects, with_last=True)
    assert archived_bytes(objects) == log_bytes(tmp_path / "store")[: report.stop]
    assert_sound(objects)
    gc_archive(objects, older_than_s=-60)
    assert_sound(objects)
    assert check_archive(objects).unnamed == 0
    restore_store(objects, tmp_path / "restored")
    assert log_bytes(tmp_path / "restored") == log_bytes(tmp_path / "store")


def test_topics_are_archived_on_from_the_part_that_is_in_the_bucket(objects: ObjectStore, tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 130)
    archive_store(tmp_path / "store", objects, topics="orders", with_last=True)
    add_messages(builder, 170)
    archive_store(tmp_path / "store", objects, topics="orders", with_last=True)
    assert_sound(objects)
    archive_store(tmp_path / "store", f"file://{tmp_path / 'once'}", topics="orders", with_last=True)
    assert archived_bytes(objects) == archived_bytes(ObjectStore.open(f"file://{tmp_path / 'once'}"))
    restore_store(objects, tmp_path / "restored")
    with StoreReader.open(tmp_path / "store") as store, StoreReader.open(tmp_path / "restored") as restored:
        assert restored.topics() == ["orders"]
        for queue in store.queues("orders"):
            there, here = (
                pa.Table.from_batches(reader.read("orders", queue.queue_id, 0, columns=["queueOffset", "body"]))
                for reader in (restored, store)
            )
            assert there == here


def test_a_conditional_put_succeeds_once(objects: ObjectStore) -> None:
    assert [objects.put_new("manifest/1", data) for data in (b"a", b"b", b"a")] == [True, False, False]
    assert objects.get("manifest/1") == b"a"


def test_a_large_object_is_put_in_parts_and_read_in_ranges(objects: ObjectStore) -> None:
    pieces = [bytes([number]) * (3 << 20) for number in range(7)]
    data = b"".join(pieces)
    assert len(data) > 2 * PART_SIZE
    objects.put("commitlog/x", iter(pieces), len(data))
    assert objects.get_ranges("commitlog/x", [(0, 10), (PART_SIZE - 5, PART_SIZE + 5)]) == [
        data[:10],
        data[PART_SIZE - 5 : PART_SIZE + 5],
    ]

    def broken() -> Iterator[bytes]:
        yield from pieces
        raise ValueError("the file was changed")

    with pytest.raises(ValueError, match="changed"):
        objects.put("commitlog/y", broken(), 10 * len(data))
    assert objects.head("commitlog/y") is None


def test_a_listing_begins_with_the_newest_manifest(objects: ObjectStore, tmp_path: Path) -> None:
    small_store(tmp_path / "store", 600)
    archive_store(tmp_path / "store", objects)
    names = [one.name for one in objects.list("manifest", first_only=True)]
    assert names == sorted(names)
    assert newest(objects).generation == len(names)


def test_another_store_is_refused(objects: ObjectStore, tmp_path: Path) -> None:
    small_store(tmp_path / "one", 200)
    StoreBuilder(tmp_path / "other", log_file_size=FILE_SIZE).append("logs", 0, [b"y" * 100] * 300)
    archive_store(tmp_path / "one", objects)
    with pytest.raises(ArchiveMismatch):
        archive_store(tmp_path / "other", objects)


def test_the_command_takes_keys_from_the_environment(endpoint: str, tmp_path: Path) -> None:
    small_store(tmp_path / "store", 200)
    environment = os.environ | {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET}
    environment |= {"AWS_REGION": "us-east-1"}
    for arguments in (
        ["archive", str(tmp_path / "store"), f"s3://{BUCKET}/command"],
        ["archive", "--check", f"s3://{BUCKET}/command", "--deep"],
        ["restore", f"s3://{BUCKET}/command", str(tmp_path / "restored")],
    ):
        done = quick_programs.run(
            [sys.executable, "-m", "commitlog_store", *arguments, "--endpoint", endpoint],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert SECRET not in done.stdout + done.stderr


def test_a_bucket_that_does_not_exist_is_an_error_of_each_call(endpoint: str) -> None:
    objects = ObjectStore.open("s3://no-such-bucket/x", options=options_for(endpoint), retry_timeout_s=1.0)
    calls: list[Callable[[], object]] = [
        lambda: list(objects.list()),
        lambda: objects.put("a", [b"a"], 1),
        lambda: objects.put_new("a", b"a"),
    ]
    for call in calls:
        with pytest.raises(ArchiveFailed, match="no-such-bucket"):
            call()


def test_errors_have_no_secret(endpoint: str, tmp_path: Path) -> None:
    small_store(tmp_path / "store", 200)
    for url, address in (("s3://no-such-bucket/x", endpoint), (f"s3://{BUCKET}/x", "http://127.0.0.1:1")):
        objects = ObjectStore.open(url, options=options_for(address), retry_timeout_s=1.0)
        with pytest.raises((ArchiveFailed, ArchiveNotFound)) as caught:
            archive_store(tmp_path / "store", objects)
        assert SECRET not in str(caught.value)
        assert url in str(caught.value)
        assert caught.value.__cause__ is None
