"""The Spark data source ``commitlog``: reads and writes RocketMQ stores, as batches and as streams.

Spark imports this package to discover the source, on the driver and in every Python worker, and registers *no* Python
source at all when one such import fails. So it holds the class Spark looks for and ``lookup``; all that can be slow or
can fail is imported inside the methods. Importing it before the ``SparkSession`` is made also points Spark's
Python workers at this interpreter, see ``worker_python``, lets Spark speak with them through Unix domain sockets, see
``unix_sockets``, lets writes in other threads find the source, see ``thread_sessions``, and gives advice for a missing
mode, see ``save_modes``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pyspark_commitlog.save_modes import explain_modes
from pyspark_commitlog.short_errors import with_short_errors
from pyspark_commitlog.thread_sessions import find_source_in_all_threads
from pyspark_commitlog.unix_sockets import use_unix_sockets
from pyspark_commitlog.worker_python import use_this_python_in_workers

try:
    from pyspark.sql.datasource import DataSource
except ImportError as error:
    raise ImportError(
        "pyspark_commitlog needs PySpark 4.0 to 4.3, which cannot be imported here. "
        "Install it with: pip install 'pyspark-commitlog[spark]'"
    ) from error

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from pyspark_commitlog.source.stream_source import StreamSource

__all__ = ["DefaultSource", "lookup"]


@with_short_errors
class DefaultSource(DataSource):
    """``read``, ``readStream``, ``write`` and ``writeStream`` with ``.format("commitlog")``.

    docs/source.md and docs/sink.md have the options and the guarantees.

    Spark makes one for each read or write, with the options in ``self.options``, and calls the method that it needs.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``.format(...)`` and ``USING``."""
        return "commitlog"

    def schema(self) -> StructType:
        """The columns if the user names none. Raises ``OptionError`` for options that can never be right."""
        from pyspark_commitlog.options.metadata import parse_metadata_options
        from pyspark_commitlog.options.read import parse_options_of_any_read
        from pyspark_commitlog.source.schema import default_schema

        metadata = parse_metadata_options(self.options)
        if metadata is not None:
            from pyspark_commitlog.source.metadata_source import metadata_schema

            return metadata_schema(metadata.table, of_stores=None not in metadata.stores)
        return default_schema(parse_options_of_any_read(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read of these columns.

        ``OptionError``; ``SchemaError`` for columns that the source does not have, or has with another type. The
        store itself is opened when Spark asks for the partitions.
        """
        from pyspark_commitlog.options.metadata import parse_metadata_options
        from pyspark_commitlog.options.read import parse_batch_options
        from pyspark_commitlog.source.batch_source import CommitLogBatchReader
        from pyspark_commitlog.source.schema import check_schema

        metadata = parse_metadata_options(self.options)
        if metadata is not None:
            from pyspark_commitlog.source.metadata_source import MetadataReader

            return MetadataReader(metadata, schema)
        options = parse_batch_options(self.options)
        return CommitLogBatchReader(options, check_schema(schema, kafka_rows=options.kafka_rows))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read of these columns; each trigger looks at the store.

        The errors are those of ``reader``, but its first call raises them: see ``RefusedStreamReader``.
        """
        from pyspark_commitlog.errors import ConnectorError
        from pyspark_commitlog.options.read import parse_stream_options
        from pyspark_commitlog.source.schema import check_schema
        from pyspark_commitlog.source.stream_source import RefusedStreamReader

        try:
            options = parse_stream_options(self.options)
            return _stream_reader_class()(options, check_schema(schema, kafka_rows=options.kafka_rows))
        except ConnectorError as error:
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write of rows with these columns. Spark calls this on the driver, before the tasks begin, and nothing
        else there: so a missing store is created here, and its topics are read for all tasks.

        ``OptionError``, also for every mode but ``append``; ``SchemaError``; ``StoreOpenError`` for a path that is not
        a store, or a store that cannot be opened; ``StoreIOError``, ``CorruptConfig``.
        """
        from pyspark_commitlog.options.write import parse_batch_write_options
        from pyspark_commitlog.sink.commit import plan_write
        from pyspark_commitlog.sink.kafka_columns import sink_columns
        from pyspark_commitlog.sink.writers import CommitLogBatchWriter, refuse_overwrite

        refuse_overwrite(overwrite, streaming=False)
        options = parse_batch_write_options(self.options)
        columns = sink_columns(schema, options)
        return CommitLogBatchWriter(plan_write(options, columns))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The write of a streaming query's next micro-batch. The errors are those of ``writer``."""
        from pyspark_commitlog.options.write import parse_stream_write_options
        from pyspark_commitlog.sink.commit import plan_write
        from pyspark_commitlog.sink.kafka_columns import sink_columns
        from pyspark_commitlog.sink.writers import CommitLogStreamWriter, refuse_overwrite

        refuse_overwrite(overwrite, streaming=True)
        options = parse_stream_write_options(self.options)
        columns = sink_columns(schema, options)
        return CommitLogStreamWriter(plan_write(options, columns))


def _stream_reader_class() -> type[StreamSource]:
    """What this PySpark calls as the reader of a stream."""
    from pyspark_commitlog.spark_versions import HAS_READ_LIMITS

    if HAS_READ_LIMITS:
        from pyspark_commitlog.source.limits_by_spark import CommitLogStreamReader

        return CommitLogStreamReader
    from pyspark_commitlog.source.limits_by_position import PositionStreamReader

    return PositionStreamReader


def lookup(
    df: DataFrame,
    path: str | os.PathLike[str],
    topic: str,
    key_column: str | Column,
    *,
    columns: Sequence[str] | None = None,
    message_column: str = "message",
    how: Literal["left", "inner"] = "left",
    on_damage: Literal["raise", "skip"] = "raise",
    store_path_commit_log: str | None = None,
    verify_crc: bool = True,
    token: str | None = None,
    tls_root_certificates: bytes | None = None,
    rpc_timeout_s: float = 30.0,
    archive: str | None = None,
    endpoint: str | None = None,
    region: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | None = None,
) -> DataFrame:
    """Add to each row of ``df`` the newest message of a topic that has the row's key, found through the index files.

    The message is a struct column ``message_column`` with ``columns`` of the source (by default its default columns).
    It is NULL where no message has the key; ``how="inner"`` leaves such rows out. ``key_column`` is a name or a
    ``Column``, of type STRING: a key of KEYS, or the unique key. With ``on_damage="skip"``, a damaged message gives
    way to the one before it; ``verify_crc=False`` takes bodies that do not match their CRC as they are.
    ``store_path_commit_log`` is the directory of the store's log, if it is not in the store. ``path`` may be the
    address of a ``commitlog serve``; ``token``, ``tls_root_certificates`` and ``rpc_timeout_s`` are then those of
    ``StoreReader.open``. It may be the address of an archive, and ``archive`` that of the archive of the store at
    ``path``, which is asked for keys that the store does not have (any more); ``endpoint``, ``region``, ``cache_dir``
    and ``cache_size`` are those of the source's options for archives. Each key costs a request for each file of the
    archive's log that is not in the cache.

    ``df`` may be a stream: each micro-batch sees the store as it is then. Raises ``OptionError``, ``SchemaError``,
    ``TopicNotFound`` and what opening a store raises; tasks raise ``CorruptIndex`` and ``CorruptRecord``::

        payments = spark.read.parquet("/data/payments")
        paid = pyspark_commitlog.lookup(payments, "/data/store", "orders", "orderId", columns=["tags", "body"])
        paid.select("orderId", "message.tags").show()
    """
    from commitlog_store import DEFAULT_COLUMNS
    from pyspark_commitlog.source.lookup import LookupTask, add_messages, lookup_place

    store, remote = lookup_place(
        path,
        archive,
        {"endpoint": endpoint, "region": region, "cache_dir": cache_dir, "cache_size": cache_size},
        {"token": token, "tls_root_certificates": tls_root_certificates, "rpc_timeout_s": rpc_timeout_s},
    )
    task = LookupTask(
        path=store,
        commit_log=store_path_commit_log,
        topic=topic,
        columns=DEFAULT_COLUMNS if columns is None else columns,
        on_damage=on_damage,
        verify_crc=verify_crc,
        remote=remote,
    )
    return add_messages(df, task, key_column, message_column=message_column, how=how)


use_this_python_in_workers()
use_unix_sockets()
find_source_in_all_threads(DefaultSource.name())
explain_modes(DefaultSource.name())
