"""``metadata=...`` takes the places and options that a read of messages takes: an archive, and a store with one."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import store_metadata
from commitlog_store.archive.archiver import archive_store
from commitlog_store.errors import ArchiveNotFound
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.metadata import parse_metadata_options
from pyspark_commitlog.source.metadata_source import MetadataReader, metadata_schema
from tests.store.history.test_one_history import aged_store
from tests.store.owner.owned_store import open_store
from tests.support.s3_server import KEYS, options_for, s3_server

S3 = "s3://past/orders"


def table_of(table: str, path: object, **options: str) -> pa.Table:
    """What Spark reads, by its reader in place of its session. The partitions are sent, as Spark sends them."""
    parsed = parse_metadata_options({"metadata": table, "path": str(path)} | options)
    assert parsed is not None
    reader = MetadataReader(parsed, metadata_schema(table, of_stores=None not in parsed.stores))
    parts = pickle.loads(pickle.dumps(reader.partitions()))
    return pa.Table.from_batches([batch for one in parts for batch in reader.read(one)])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Its consumer group has read two messages, and an application has committed two batches."""
    with open_store(tmp_path / "store", mapped_file_size_commit_log=4 << 10) as owner:
        for number in range(30):
            owner.put("orders", b"%d" % number * 60, queue_id=number % 3)
        for version in (1, 2):
            with owner.transaction("loader", version) as batch:
                batch.put_messages(pa.table({"body": ["x", "y"]}), topic="loaded")
        owner.commit_group_offsets("billing", {("orders", 0): 2})
    return tmp_path / "store"


@pytest.mark.parametrize("table", ["topics", "queues", "groups", "batches"])
def test_an_archive_as_a_plain_path_has_the_rows_of_its_directory(store: Path, tmp_path: Path, table: str) -> None:
    archive_store(store, f"file://{tmp_path}/past", with_last=True)
    cache = tmp_path / "cache"
    found = table_of(table, f"archive+file://{tmp_path}/past", cacheDir=str(cache), cacheSize="1m")
    expected = store_metadata(store, table)
    of_time = ["lagMs"] if table == "groups" else []
    assert found.drop_columns(of_time) == expected.drop_columns(of_time)
    assert found.num_rows
    assert table != "queues" or list(cache.rglob("*-0"))


def test_the_endpoint_of_an_archive_is_an_option(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    with s3_server() as endpoint:
        archive_store(store, S3, with_last=True, options=options_for(endpoint))
        found = table_of("topics", f" {S3}", endpoint=endpoint, region="us-east-1")
        assert found == store_metadata(store, "topics")


def test_a_store_with_its_archive_has_the_rows_of_both(tmp_path: Path) -> None:
    aged = aged_store(tmp_path)
    whole = store_metadata(aged.whole, "queues")
    assert table_of("queues", aged.store, archive=aged.archive) == whole != store_metadata(aged.store, "queues")
    by_name = table_of("queues", f"a={aged.store},b={aged.whole}", archive=f"a={aged.archive}")
    assert by_name.drop_columns("store") == pa.concat_tables([whole, whole])


def test_an_archive_that_is_missing_is_skipped_by_name_alone(store: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    empty = f"archive+file://{tmp_path}/empty"
    found = table_of("topics", f"here={store},past={empty}", onMissingStore="skip")
    assert set(found["store"].to_pylist()) == {"here"}
    with pytest.raises(ArchiveNotFound):
        table_of("topics", empty)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"metadata": "files", "path": S3},
            f"made of the files of a store, and {S3} is an archive: 'commitlog restore {S3} DIR' makes a store",
        ),
        ({"metadata": "findings", "path": f"a=/data/a,b={S3}"}, f"'commitlog archive --check --deep {S3}' compares"),
        (
            {"metadata": "files", "path": "/data/a", "archive": S3},
            "archive is given with metadata=files, which is made of the files of the store in path alone: leave it out",
        ),
        ({"metadata": "findings", "path": "a=/data/a", "archive": f"a={S3}"}, "For the archive, 'commitlog archive"),
        ({"path": S3, "archive": "s3://past/x"}, "no archive for s3://past/orders, which is one"),
        ({"path": "/data/a", "endpoint": "http://127.0.0.1:9000"}, "Option endpoint is for an archive"),
        ({"path": S3, "token": "t"}, "Option token is for a store that commitlog serve shows"),
        ({"path": S3, "storePathCommitLog": "/log"}, "needs the files of the store, and path is the address of an arc"),
        ({"path": "a=/a,b=grpc://h:1", "storePathCommitLog": "b=/log"}, "and path is the address of a server"),
        ({"path": "/data/a", "onMissingStore": "skip"}, "skip needs name=path there"),
        ({"path": S3, "filterAt": "server"}, "Option filterAt is given with metadata=queues"),
    ],
)
def test_what_does_not_go_with_a_table_is_refused_with_what_to_do(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_metadata_options({"metadata": "queues"} | options)
    assert said in str(refused.value)


def test_the_command_for_an_archive_has_its_whole_address() -> None:
    """A container of Azure stands before ``@``, where other addresses have keys."""
    url = "abfs://box@account/orders"
    with pytest.raises(OptionError) as refused:
        parse_metadata_options({"metadata": "files", "path": url})
    assert f"'commitlog restore {url} DIR'" in str(refused.value)


def test_a_log_elsewhere_goes_with_a_directory_beside_addresses() -> None:
    parsed = parse_metadata_options(
        {"metadata": "queues", "path": f"a=/data/a,b={S3}", "storePathCommitLog": "a=/log", "onMissingStore": "fail"}
    )
    assert parsed is not None
    assert parsed.commit_logs == {"a": "/log"}
