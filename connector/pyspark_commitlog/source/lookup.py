"""``lookup``: adds to each row of a DataFrame the newest message that has the row's key, found through the index files.

The tasks do it, in an Arrow UDF: each opens the store once and looks up a whole Arrow batch of keys at a time.
docs/decisions/0017-lookup.md has the reasons.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark.sql.functions import col
from pyspark.sql.types import StringType, StructField, StructType
from pyspark.sql.utils import is_remote

from commitlog_store import OnDamage, StoreReader, column_type
from commitlog_store.paths import validate_topic
from pyspark_commitlog.errors import OptionError, SchemaError
from pyspark_commitlog.options.remote import RemoteOptions, is_archive
from pyspark_commitlog.options.stores import parse_archives, parse_commit_log, parse_one_place
from pyspark_commitlog.options.subscription import Subscription
from pyspark_commitlog.short_errors import with_short_errors
from pyspark_commitlog.source.schema import SPARK_TYPES, known_column
from pyspark_commitlog.spark_versions import find_arrow_udf
from pyspark_commitlog.worker_gc import leave_out_imported_modules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


# Always read, as the last column: it is NULL for a key without a message, and only then.
_PLACE = "queueOffset"


def lookup_place(
    path: str | os.PathLike[str], archive: str | None, of_archive: Mapping[str, Any], of_server: Mapping[str, Any]
) -> tuple[str, RemoteOptions]:
    """The store of a look-up, and how it is reached. ``OptionError`` for arguments that do not go with it."""
    text = os.fspath(path).strip()
    store = text if is_archive(text) else parse_one_place("path", os.fspath(path))
    archives = {} if archive is None else parse_archives("archive", archive, store, {})
    given = {name: value for name, value in of_archive.items() if value is not None}
    if given and not archives and not is_archive(store):
        name = next(iter(given))
        raise OptionError(f"{name} is for an archive: path or archive is s3://BUCKET/PREFIX or its like.", option=name)
    if "cache_dir" in given:
        given["cache_dir"] = os.path.abspath(given["cache_dir"])
    return store, RemoteOptions(archives=archives, **given, **of_server)


def add_messages(
    df: DataFrame, task: LookupTask, key_column: str | Column, *, message_column: str, how: Literal["left", "inner"]
) -> DataFrame:
    """``pyspark_commitlog.lookup``, which has the arguments. Those in ``task`` are not checked yet."""
    arrow_udf = find_arrow_udf()
    log = None if task.commit_log is None else parse_commit_log("store_path_commit_log", task.commit_log)
    validate_topic(task.topic)
    _check_choice("how", how, "left", "inner")
    _check_choice("on_damage", task.on_damage, "raise", "skip")
    task = replace(task, commit_log=log, columns=_checked_columns(task.columns))
    if message_column.lower() in (name.lower() for name in df.columns):
        raise SchemaError(
            f"The frame has a column {message_column} already; name another one with message_column=...",
            column=message_column,
        )
    key = _checked_key(df, key_column)
    # A client of Spark Connect may not have the store; the tasks do.
    if not is_remote():
        _refuse_hopeless(task, streaming=df.isStreaming)
    message = StructType([StructField(name, SPARK_TYPES[name]) for name in task.columns])
    # As a deterministic function it would be evaluated once in a filter on the message and again for its value.
    look_up = arrow_udf(task.run, message).asNondeterministic()
    found = df.withColumn(message_column, look_up(key))
    return found.where(col(_quoted(message_column)).isNotNull()) if how == "inner" else found


def _check_choice(option: str, value: str, one: str, other: str) -> None:
    """``OptionError`` for a value that is neither one nor the other."""
    if value not in (one, other):
        raise OptionError(f"{option} is {value!r}; expected {one} or {other}.", option=option, value=str(value))


def _checked_key(df: DataFrame, key_column: str | Column) -> Column:
    """``SchemaError`` for a key that is not a STRING."""
    key = col(key_column) if isinstance(key_column, str) else key_column
    key_type = df.select(key).schema.fields[0].dataType
    if not isinstance(key_type, StringType):
        raise SchemaError(
            f"The key is {key_type.simpleString().upper()}; keys of messages are STRING. Cast it, as in "
            "key_column=col('id').cast('string').",
            column=key_column if isinstance(key_column, str) else None,
        )
    return key


def _quoted(name: str) -> str:
    """The name as Spark takes it for one column, whatever it holds."""
    return "`" + name.replace("`", "``") + "`"


def _checked_columns(columns: Sequence[str]) -> tuple[str, ...]:
    if isinstance(columns, str) or not columns:
        raise SchemaError(f"columns is a list of one or more names, not {columns!r}.")
    names = tuple(known_column(name, SPARK_TYPES) for name in columns)
    for name in names:
        if names.count(name) > 1:
            raise SchemaError(f"The column {name} is named more than once.", column=name)
    return names


def _refuse_hopeless(task: LookupTask, *, streaming: bool) -> None:
    """Errors that can be known before any task: no store, no such topic, no index. A stream waits for the topic."""
    with task.open_store() as reader:
        subscription = Subscription(topics=(task.topic,))
        if streaming:
            subscription.warn_of_missing(reader)
        else:
            subscription.require_all(reader)
        holds_messages = any(one.min_offset < one.max_offset for one in subscription.bounds(reader).values())
        if holds_messages and not reader.index_files():
            raise OptionError(
                f"The store {task.path} has no index files, so its messages cannot be looked up by key. Brokers write "
                "them unless messageIndexEnable is false; for a copy of a store, copy the directory index too.",
                option="path",
                value=task.path,
            )


@with_short_errors
@dataclass(frozen=True, kw_only=True)
class LookupTask:
    """The settings of a task; pickled to the executors."""

    path: str
    commit_log: str | None = None
    topic: str
    columns: Sequence[str]
    on_damage: OnDamage
    verify_crc: bool = True
    remote: RemoteOptions = field(default_factory=RemoteOptions)

    def open_store(self) -> StoreReader:
        """The errors of ``StoreReader.open``."""
        return StoreReader.open(
            self.path, store_path_commit_log=self.commit_log, on_damage=self.on_damage, **self.remote.of(self.path)
        )

    def run(self, batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """The message of each key, in order; NULL without one. Raises the store's own errors."""
        first = next(batches, None)
        if first is None:
            return
        leave_out_imported_modules()
        fields = [pa.field(name, column_type(name)) for name in self.columns]
        with self.open_store() as reader:
            for keys in chain([first], batches):
                columns = [*self.columns, _PLACE]
                for found in reader.query_keys(self.topic, keys, columns=columns, verify_crc=self.verify_crc):
                    absent = found.column(len(fields)).is_null()
                    yield pa.StructArray.from_arrays(found.columns[:-1], fields=fields, mask=absent)
