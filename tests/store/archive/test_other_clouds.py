"""Archives in the protocols of Azure and Google: the same as in S3's, and how settings of each cloud are given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from commitlog_store import StoreReader
from commitlog_store.archive.archiver import archive_store
from commitlog_store.archive.check import check_archive
from commitlog_store.archive.gc import gc_archive
from commitlog_store.archive.restore import restore_store
from commitlog_store.errors import ArchiveFailed, InvalidValue
from commitlog_store.object_storage.address import StorageAddress
from commitlog_store.object_storage.clients import PART_SIZE
from commitlog_store.object_storage.object_store import ObjectStore
from tests.store.archive.archives import add_messages, archived_bytes, assert_sound, log_bytes, small_store
from tests.store.cli.commands import ended
from tests.support.azure_server import ACCOUNT, CONTAINER, KEY, azure_server
from tests.support.http_proxy import GoogleProxy
from tests.support.s3_server import BUCKET, s3_server

TOKEN = "t0ken-that-is-never-shown"


class Cloud(NamedTuple):
    """A bucket, the options of a client, and the environment of one that has none but ``--endpoint``."""

    bucket: str
    options: dict[str, str]
    environment: dict[str, str]


@pytest.fixture(scope="module", params=["azure", "google"])
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    if request.param == "azure":
        with azure_server(tmp_path_factory.mktemp("azure")) as endpoint:
            options = {"endpoint": endpoint, "account_name": ACCOUNT, "account_key": KEY}
            environment = {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY}
            yield Cloud(f"az://{CONTAINER}", options, environment)
    else:
        with s3_server() as endpoint, GoogleProxy(endpoint) as proxy:
            options = {"endpoint": proxy.url, "bearer_token": TOKEN}
            yield Cloud(f"gs://{BUCKET}", options, {"GOOGLE_BEARER_TOKEN": TOKEN})
            assert proxy.credentials == {f"Bearer {TOKEN}"}


def test_a_store_is_archived_read_checked_and_restored(cloud: Cloud, tmp_path: Path) -> None:
    url = f"{cloud.bucket}/orders"
    objects = ObjectStore.open(url, options=cloud.options)
    builder = small_store(tmp_path / "store", 200)
    archive_store(tmp_path / "store", url, options=cloud.options)
    add_messages(builder, 200)
    report = archive_store(tmp_path / "store", url, with_last=True, options=cloud.options)
    assert archived_bytes(objects) == log_bytes(tmp_path / "store")[: report.stop]
    assert_sound(objects)
    gc_archive(objects, older_than_s=-60)
    assert check_archive(objects).unnamed == 0
    with (
        StoreReader.open(url, storage_options=cloud.options) as archive,
        StoreReader.open(tmp_path / "store") as directory,
    ):
        assert archive.stats().requests == 3
        assert archive.scan("orders").read_all().equals(directory.scan("orders").read_all())
    restore_store(objects, tmp_path / "restored")
    assert log_bytes(tmp_path / "restored") == log_bytes(tmp_path / "store")


def test_a_conditional_put_succeeds_once(cloud: Cloud) -> None:
    objects = ObjectStore.open(f"{cloud.bucket}/puts", options=cloud.options)
    assert [objects.put_new("manifest/1", data) for data in (b"a", b"b", b"a")] == [True, False, False]
    assert objects.get("manifest/1") == b"a"


def test_a_large_object_is_put_in_parts_and_read_in_ranges(cloud: Cloud) -> None:
    objects = ObjectStore.open(f"{cloud.bucket}/large", options=cloud.options)
    pieces = [bytes([number]) * (3 << 20) for number in range(7)]
    data = b"".join(pieces)
    assert len(data) > 2 * PART_SIZE
    objects.put("commitlog/x", iter(pieces), len(data))
    assert objects.get("commitlog/x") == data
    assert bytes(objects.piece("commitlog/x", PART_SIZE - 5, PART_SIZE + 5)) == data[PART_SIZE - 5 : PART_SIZE + 5]


def test_commands_take_keys_from_the_environment(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in cloud.environment.items():
        monkeypatch.setenv(name, value)
    small_store(tmp_path / "store", 200)
    url, endpoint = f"{cloud.bucket}/commands", cloud.options["endpoint"]
    assert ended("archive", str(tmp_path / "store"), url, "--endpoint", endpoint).returncode == 0
    assert ended("archive", "--check", url, "--endpoint", endpoint).returncode == 0
    shown = ended("cat", url, "orders", "--json", "--count", "2", "--endpoint", endpoint)
    assert shown.returncode == 0
    assert [json.loads(line)["topic"] for line in shown.stdout.splitlines()] == ["orders"] * 2


def test_errors_name_no_key(cloud: Cloud) -> None:
    objects = ObjectStore.open(f"{cloud.bucket}-that-does-not-exist/a", options=cloud.options, retry_timeout_s=2)
    with pytest.raises(ArchiveFailed) as failed:
        objects.put_new("x", b"")
    assert cloud.bucket in str(failed.value)
    for secret in (KEY, TOKEN, ACCOUNT + ":"):
        assert secret not in str(failed.value)


@pytest.mark.parametrize(
    ("url", "options", "variables"),
    [
        ("az://box/a", {"endpoint": "http://127.0.0.1:1"}, {}),
        ("abfs://box@account/a", {"azure_storage_endpoint": "http://127.0.0.1:1"}, {}),
        ("az://box/a", {}, {"AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:1"}),
        ("gs://box/a", {"endpoint": "http://127.0.0.1:1"}, {}),
        ("gs://box/a", {"base_url": "http://127.0.0.1:1"}, {}),
        ("gs://box/a", {}, {"GOOGLE_BASE_URL": "http://127.0.0.1:1"}),
        ("s3://box/a", {"endpoint": "http://127.0.0.1:1"}, {}),
        ("s3://box/a", {}, {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_REGION": "us-east-1"}),
    ],
)
def test_each_cloud_has_an_endpoint_of_ones_own(
    url: str, options: dict[str, str], variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is that of a connection to it: the plain endpoint is allowed, and no other host is asked."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    keys = {
        "az": {"account_name": "account", "account_key": KEY},
        "gs": {"bearer_token": TOKEN},
        "s3": {"access_key_id": "a", "secret_access_key": "b"},
    }["az" if url.startswith("abfs") else url[:2]]
    objects = ObjectStore.open(url, options=options | keys, retry_timeout_s=0.1)
    with pytest.raises(ArchiveFailed, match=r"http://127\.0\.0\.1:1/") as failed:
        objects.head("x")
    assert "builder error" not in str(failed.value)


@pytest.mark.parametrize("url", ["gs://box/a", "az://box/a", "s3://box/a"])
def test_options_that_a_cloud_does_not_have_are_refused(url: str) -> None:
    with pytest.raises(InvalidValue, match=r"not those of a client of it.*no_such_option"):
        StorageAddress.parse(url, options={"no_such_option": "x", "account_name": "a"}).connect()


def test_a_client_that_connects_later_refuses_options_then() -> None:
    address = StorageAddress.parse("s3://box/a", options={"no_such_option": "x"})
    objects = ObjectStore.at(address, connects=False)
    with pytest.raises(InvalidValue, match="not those of a client of it"):
        objects.get("x")
