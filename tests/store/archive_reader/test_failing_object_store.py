"""Archives on a server of S3's protocol: what it fails to answer is asked again, and nothing secret shows."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import obstore
import pytest

from commitlog_store import StoreReader
from commitlog_store.archive.archiver import archive_store
from commitlog_store.archive.generations import newest, newest_or_none
from commitlog_store.archive_reader.reader import ArchiveReader
from commitlog_store.errors import (
    ArchiveAccessRefused,
    ArchiveDamaged,
    ArchiveFailed,
    ArchiveNotFound,
    InvalidValue,
    StoreForked,
)
from commitlog_store.object_storage.address import StorageAddress
from commitlog_store.object_storage.cloud_client import said
from commitlog_store.object_storage.counted import counted_storage
from commitlog_store.object_storage.object_store import ObjectCut, ObjectStore
from tests.support.http_proxy import HttpProxy
from tests.support.s3_server import BUCKET, KEYS, SECRET, options_for, s3_server
from tests.support.same_answers import same_answers
from tests.support.store_builder import StoreBuilder

URL = f"s3://{BUCKET}/orders"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archived") / "store"
    builder = StoreBuilder(path, log_file_size=64 << 10)
    for number in range(4):
        builder.append("orders", [0, 1], [b"%d" % number * 200] * 300, tags=["ab"[one % 2] for one in range(300)])
    return path


@pytest.fixture(scope="module")
def proxy(store: Path) -> Iterator[HttpProxy]:
    with s3_server() as endpoint, HttpProxy(endpoint) as proxy:
        archive_store(store, URL, with_last=True, options=options_for(endpoint))
        yield proxy


def opened(proxy: HttpProxy, **more: object) -> ArchiveReader:
    reader = StoreReader.open(URL, storage_options=options_for(proxy.url), **more)  # type: ignore[arg-type]
    assert isinstance(reader, ArchiveReader)
    return reader


def test_an_archive_on_a_server_answers_as_the_directory(store: Path, proxy: HttpProxy) -> None:
    with StoreReader.open(store) as directory, opened(proxy) as archive:
        assert archive.stats().requests == 3
        assert same_answers(directory, archive) == 1200


@pytest.mark.parametrize("fault", ["500", "503", "slow", "cut", "empty"])
def test_what_fails_is_asked_again(fault: str, store: Path, proxy: HttpProxy) -> None:
    with StoreReader.open(store) as directory:
        expected = directory.scan("orders").read_all()
    proxy.faults.extend([fault, "", fault, "", fault])
    before = proxy.done[fault]
    with opened(proxy) as archive:
        proxy.faults.extend([fault, fault, "", fault])
        assert archive.scan("orders").read_all().equals(expected)
        assert (archive.stats().repeated > 0) == (fault == "cut")
    proxy.faults.clear()
    assert proxy.done[fault] > before


def test_archivers_ask_again_and_count_as_readers_do(store: Path, proxy: HttpProxy) -> None:
    with counted_storage() as counter:
        objects = ObjectStore.open(f"s3://{BUCKET}/again", options=options_for(proxy.url))
        archive_store(store, objects, with_last=True)
    proxy.faults.extend(["cut", "cut", "", "cut"])
    with counted_storage() as unrelated:
        manifest = newest(objects)
    proxy.faults.clear()
    assert manifest.stop
    assert objects.stats.repeated >= 2
    assert objects.stats == counter.stats
    assert objects.stats.requests > len(manifest.objects())
    assert unrelated.stats.requests == 0
    log = manifest.segments[0].log
    with pytest.raises(ObjectCut, match=f"{log.name} has {log.size} bytes"):
        objects.get_ranges(log.name, [(0, 8), (log.size - 4, log.size + 4)])


@pytest.mark.parametrize(
    ("method", "what"), [("GET", "list"), ("HEAD", "look at"), ("PUT", "write"), ("POST", "write")]
)
def test_archivers_that_lack_a_permission_say_which_and_continue_with_it(
    method: str, what: str, proxy: HttpProxy, tmp_path: Path
) -> None:
    # POST begins an upload in parts.
    builder = StoreBuilder(tmp_path / "store", log_file_size=12 << 20)
    builder.append("orders", [0], [b"x" * (1 << 20)] * 24)
    objects = ObjectStore.open(f"s3://{BUCKET}/{method}", options=options_for(proxy.url))
    proxy.forbidden.add(method)
    with pytest.raises(
        ArchiveAccessRefused, match=f"refuses to let this client {what} s3://{BUCKET}/{method}"
    ) as refused:
        archive_store(tmp_path / "store", objects)
    proxy.forbidden.clear()
    assert SECRET not in str(refused.value)
    assert newest_or_none(objects) is None
    assert archive_store(tmp_path / "store", objects).added == 2


def test_what_fails_for_good_is_named_without_secrets(
    proxy: HttpProxy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    at_once = {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=1), "base": 2}
    retries = {"max_retries": 10, "backoff": at_once, "retry_timeout": timedelta(seconds=60)}
    monkeypatch.setattr(StorageAddress, "_retries", lambda _: retries)
    with opened(proxy) as archive:
        assert SECRET not in repr(archive) + repr(archive.access)
        proxy.faults.extend(["cut"] * 2000)
        with pytest.raises(ArchiveFailed, match="asked for 5 times") as failed:
            list(archive.read("orders", 0, 0))
        proxy.faults.clear()
    with pytest.raises(ArchiveNotFound, match="No archive at") as missing:
        StoreReader.open(f"s3://{BUCKET}/nothing", storage_options=options_for(proxy.url))
    with pytest.raises(InvalidValue) as wrong:
        StoreReader.open(URL, storage_options={**options_for(proxy.url), "no such setting": SECRET})
    with pytest.raises(InvalidValue) as shown:
        StoreReader.open(f"s3://key:{SECRET}@{BUCKET}/orders")
    for text in (*map(str, (failed.value, missing.value, wrong.value, shown.value)), caplog.text):
        assert SECRET not in text
        assert "Debug source" not in text


def test_keys_of_the_environment_are_found(proxy: HttpProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    for name, value in KEYS.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    with StoreReader.open(URL) as archive:
        assert archive.topics() == ["orders"]
        assert SECRET.encode() not in pickle.dumps(archive)


def test_the_cache_spares_requests_and_survives_damage(store: Path, proxy: HttpProxy, tmp_path: Path) -> None:
    with StoreReader.open(store) as directory:
        expected = directory.scan("orders").read_all()
    with opened(proxy, cache_dir=tmp_path) as archive:
        assert archive.scan("orders").read_all().equals(expected)
        cold = archive.stats().requests
    with opened(proxy, cache_dir=tmp_path) as archive:
        assert archive.scan("orders").read_all().equals(expected)
        assert archive.stats().requests == 2 < cold
    for page in [one for one in tmp_path.rglob("*") if one.is_file()][::2]:
        page.write_bytes(page.read_bytes()[:-3])
    with opened(proxy, cache_dir=tmp_path) as archive:
        assert archive.scan("orders").read_all().equals(expected)
        assert 2 < archive.stats().requests <= cold


def test_tags_are_decided_before_records_are_fetched(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", log_file_size=8 << 20)
    for tag, count in (("a", 8000), ("rare", 200), ("a", 8000)):
        builder.append("orders", 0, [b"x" * 1024] * count, tags=tag)
    archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
    with StoreReader.open(f"archive+file://{tmp_path}/past") as archive:
        assert isinstance(archive, ArchiveReader)
        read = archive.read("orders", 0, 0, tags="rare", columns=["queueOffset"])
        assert sum(batch.num_rows for batch in read) == 200
        # The wanted are 230 KiB of 18 MiB; the units are 320 KiB.
        assert archive.stats().bytes_fetched < 1_500_000


def test_an_object_that_is_gone_is_named(store: Path, tmp_path: Path) -> None:
    archive_store(store, f"file://{tmp_path}/past", with_last=True)
    gone = sorted((tmp_path / "past" / "commitlog").iterdir())[1]
    gone.unlink()
    with (
        StoreReader.open(f"archive+file://{tmp_path}/past") as archive,
        pytest.raises(ArchiveDamaged, match=f"{gone.name} is missing"),
    ):
        archive.scan("orders").read_all()


@pytest.mark.parametrize(
    "address", ["s3://", "s3:///x", "archive+file://host/x", "archive+file:///", "s3://b/p?sig=1", "http://x/y"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidValue):
        StorageAddress.parse(address)


def test_profiles_need_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "archives")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidValue, match="boto3"):
        StorageAddress.parse(URL).connect()


@pytest.mark.parametrize("url", ["archive+file:///tmp", "hdfs://host:1/a"])
def test_a_forked_child_is_refused(url: str) -> None:
    address = StorageAddress.parse(url)
    address.connect()
    child = os.fork()
    if child == 0:
        try:
            address.connect()
        except StoreForked:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_an_answer_of_s3_is_shown_without_the_token_that_it_repeats() -> None:
    answer = (
        'Generic S3 error: 400 Bad Request: <?xml version="1.0"?>\n<Error><Code>InvalidToken</Code>'
        f"<Message>The token is malformed.</Message><Token-0>{SECRET}</Token-0></Error>\n\nDebug source: Token {SECRET}"
    )
    for text in (answer, answer.partition("</Token-0>")[0]):
        assert said(OSError(text)) == "Generic S3 error: 400 Bad Request: InvalidToken: The token is malformed"


@pytest.mark.parametrize(
    ("url", "in_order"),
    [("s3://bucket/a", True), ("s3://bucket--usw2-az1--x-s3/a", False), ("gs://b/a", True), ("file:///d", False)],
)
def test_where_listings_begin_with_the_first_names(url: str, in_order: bool) -> None:
    assert StorageAddress.parse(url).lists_in_order == in_order


def test_a_directory_without_permission_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests run as root, whom no mode stops: the text is obstore's."""
    objects = ObjectStore.open(f"file://{tmp_path}")
    texts = iter(["Generic LocalFileSystem error: Unable to open file /a/x: Permission denied (os error 13)"])

    def refuse(*_: object) -> None:
        raise obstore.exceptions.GenericError(next(texts))

    monkeypatch.setattr(obstore, "get", refuse)
    with pytest.raises(ArchiveAccessRefused, match=f"No permission to read file://{tmp_path}/x: run as a user who may"):
        objects.get("x")


def test_the_same_failure_reads_the_same_however_long_a_request_took() -> None:
    """A server's log has a line when an archive fails in another way, and none for each repetition."""
    texts = {
        said(OSError(f"Error performing PUT http://127.0.0.1/x in {took} - Server returned 403"))
        for took in ("1.5ms", "998.1µs", "12s")
    }
    assert texts == {"Error performing PUT http://127.0.0.1/x - Server returned 403"}
