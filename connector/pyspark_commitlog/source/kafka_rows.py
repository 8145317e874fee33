"""``rowFormat=kafka`` of the source: the columns of Spark's Kafka source, from those of the store.

==============  =============================================  ============================================
column          Spark's type                                   from
==============  =============================================  ============================================
key             BINARY                                         keys, all of them; NULL without
value           BINARY                                         body
topic           STRING                                         topic
partition       INT                                            queueId
offset          BIGINT                                         queueOffset
timestamp       TIMESTAMP                                      storeTimestamp
timestampType   INT                                            1: LogAppendTime
headers         ARRAY<STRUCT<key: STRING, value: BINARY>>      properties of applications; NULL without any
==============  =============================================  ============================================

Source: Spark ``connector/kafka-0-10-sql/.../KafkaRecordToRowConverter.scala``; why these: decision 0015.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from commitlog_store import column_type

HEADERS_COLUMN = "headers"
HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
# Properties that are another column's, or that stores, brokers and producers set themselves. None of them is a header.
NO_HEADERS: tuple[str, ...] = (
    *("KEYS", "__SHARDINGKEY", "UNIQ_KEY", "WAIT", "CLUSTER"),
    *("REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "__CRC32#"),
    *("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "INNER_NUM", "INNER_BASE"),
)
_ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_LOG_APPEND_TIME = 1


class KafkaColumn(NamedTuple):
    """One column: its types, the store's column that it is made from (None: a constant), and how.

    ``convert`` takes the store's column, or the number of rows.
    """

    spark_type: DataType
    arrow_type: pa.DataType
    store_column: str | None
    convert: Callable[[pa.Array, int], pa.Array]
    may_be_null: bool = False


def _same(column: pa.Array, count: int) -> pa.Array:
    del count
    return column


def _key(keys: pa.Array, count: int) -> pa.Array:
    del count
    return keys.cast(pa.binary())


def _timestamp_type(column: pa.Array, count: int) -> pa.Array:
    del column
    return pa.array(np.full(count, _LOG_APPEND_TIME, np.int32))


def _headers(properties: pa.MapArray, count: int) -> pa.Array:
    del count
    import pyarrow.compute as pc

    bounds = properties.offsets.to_numpy()
    first, last = int(bounds[0]), int(bounds[-1])
    names, values = properties.keys.slice(first, last - first), properties.items.slice(first, last - first)
    keep = pc.invert(pc.is_in(names, value_set=pa.array(NO_HEADERS)))
    kept_before = np.zeros(last - first + 1, np.int32)
    np.cumsum(keep.to_numpy(zero_copy_only=False), out=kept_before[1:])
    bounds = kept_before[bounds - first]
    entries = pa.StructArray.from_arrays(
        [names.filter(keep), values.filter(keep).cast(pa.binary())], fields=list(_ARROW_HEADERS.value_type)
    )
    none = bounds[1:] == bounds[:-1]
    return pa.ListArray.from_arrays(pa.array(bounds), entries, type=_ARROW_HEADERS, mask=pa.array(none))


def _column(spark_type: DataType, store_column: str) -> KafkaColumn:
    return KafkaColumn(spark_type, column_type(store_column), store_column, _same)


KAFKA_COLUMNS: Mapping[str, KafkaColumn] = MappingProxyType(
    {
        "key": KafkaColumn(BinaryType(), pa.binary(), "keys", _key, may_be_null=True),
        "value": _column(BinaryType(), "body"),
        "topic": _column(StringType(), "topic"),
        "partition": _column(IntegerType(), "queueId"),
        "offset": _column(LongType(), "queueOffset"),
        "timestamp": _column(TimestampType(), "storeTimestamp"),
        "timestampType": KafkaColumn(IntegerType(), pa.int32(), None, _timestamp_type),
        HEADERS_COLUMN: KafkaColumn(HEADERS_TYPE, _ARROW_HEADERS, "properties", _headers, may_be_null=True),
    }
)
