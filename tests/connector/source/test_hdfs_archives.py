"""Spark reads an archive in a real HDFS, whose jars are fetched: a long run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from commitlog_store.archive.archiver import archive_store
from tests.support.hdfs_server import hdfs_server
from tests.support.store_builder import StoreBuilder


@pytest.mark.stress
def test_an_archive_in_hdfs_has_the_rows_of_the_directory(spark: SparkSession, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", log_file_size=16 << 10)
    builder.append("orders", [0, 1, 2], [b"%d" % number * 30 for number in range(300)])
    with hdfs_server(tmp_path) as server:
        url = f"{server.url}/past/orders"
        archive_store(tmp_path / "store", url, with_last=True)
        reader = spark.read.format("commitlog").option("subscribe", "orders")
        expected = reader.load(str(tmp_path / "store")).orderBy("queueId", "queueOffset").collect()
        assert len(expected) == 300
        assert reader.load(url).orderBy("queueId", "queueOffset").collect() == expected
        for file in sorted((tmp_path / "store" / "commitlog").iterdir())[:1]:
            file.unlink()
        history = reader.option("archive", url).load(str(tmp_path / "store"))
        assert history.orderBy("queueId", "queueOffset").collect() == expected
