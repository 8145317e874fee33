"""``rowFormat=kafka`` of the sink: the columns of Spark's Kafka sink, brought under the store's names.

==============  =============================================  ============================================
column          Spark's type                                   becomes
==============  =============================================  ============================================
value           BINARY or STRING                               body
key             BINARY or STRING, as UTF-8                     keys, and shardingKey: equal keys share a queue
topic           STRING                                         topic; the option of that name wins
partition       INT                                            queueId; NULL: by key, else the queues in turn
headers         ARRAY<STRUCT<key: STRING, value: BINARY>>      properties
offset, timestamp, timestampType                               nothing: only Kafka's source has them
==============  =============================================  ============================================

Source: Spark ``connector/kafka-0-10-sql/.../KafkaWriter.scala``; why these: decision 0015.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, NullType, StringType, StructType

from pyspark_commitlog.errors import SchemaError
from pyspark_commitlog.options.values import did_you_mean
from pyspark_commitlog.options.write import SinkOptions
from pyspark_commitlog.sink.columns import SinkColumns, check_sink_schema, is_bytes, is_text, require_topic

# Kafka's columns, and those of a message that each of them gives.
_GIVES: Mapping[str, tuple[str, ...]] = {
    "value": ("body",),
    "key": ("keys", "shardingKey"),
    "topic": ("topic",),
    "partition": ("queueId",),
    "headers": ("properties",),
}
_OF_THE_SOURCE = ("offset", "timestamp", "timestampType")
_HEADERS = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
# The properties that the column key gives.
_OF_THE_KEY = ("KEYS", "__SHARDINGKEY")


def _are_headers(kind: DataType) -> bool:
    """As Kafka's, whatever is nullable."""
    return (
        isinstance(kind, ArrayType)
        and isinstance(kind.elementType, StructType)
        and [(field.name.lower(), type(field.dataType)) for field in kind.elementType.fields]
        == [("key", StringType), ("value", BinaryType)]
    )


_TYPES: Mapping[str, tuple[Callable[[DataType], bool], str]] = {
    "value": (is_bytes, "BINARY or STRING"),
    "key": (is_bytes, "BINARY or STRING"),
    "topic": (is_text, "STRING"),
    "partition": (lambda kind: isinstance(kind, IntegerType), "INT"),
    "headers": (_are_headers, _HEADERS),
}


@dataclass(frozen=True)
class KafkaColumns(SinkColumns):
    """``places`` are the columns of a frame that count, by Kafka's name."""

    places: Mapping[str, int]

    def fault(self, batch: pa.RecordBatch) -> tuple[int, str] | None:
        """A header that no property can hold: one without a name, the second one of a name, or one that is the key."""
        if "headers" not in self.places or pa.types.is_null(batch.column(self.places["headers"]).type):
            return None
        owner, names = _flat(batch.column(self.places["headers"]))
        if names.null_count:
            row = int(owner[names.is_null().to_numpy(zero_copy_only=False)][0])
            return row, "one of its headers has no key"
        codes = names.dictionary_encode()
        indices = codes.indices.to_numpy(zero_copy_only=False)
        for name in _OF_THE_KEY:
            code = codes.dictionary.index(name).as_py()
            if code >= 0:
                return int(owner[indices == code][0]), f"its header {name!r} is given by the column key: leave it out"
        entries = owner * max(1, len(codes.dictionary)) + indices
        found, counts = np.unique(entries, return_counts=True)
        if (counts == 1).all():
            return None
        row, code = divmod(int(found[counts > 1][0]), len(codes.dictionary))
        name = codes.dictionary[code].as_py()
        return row, f"its header {name!r} is given twice, and a message has each property once"

    def rename(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = []
        for name, place in self.places.items():
            column = batch.column(place)
            if name == "key" and not pa.types.is_null(column.type):
                column = _as_text(column)
            elif name == "headers" and not pa.types.is_null(column.type):
                column = _properties(column)
            arrays += [column] * len(_GIVES[name])
        return pa.RecordBatch.from_arrays(arrays, names=list(self.names))


def _as_text(values: pa.Array) -> pa.Array:
    """Bytes of any type as text. Nothing is checked: the store refuses by row what is not UTF-8."""
    return values.cast(pa.large_string(), safe=False)


def _flat(headers: pa.ListArray) -> tuple[np.ndarray, pa.Array]:
    """The row of each header, and its key; a frame may spell the fields in its own way."""
    lengths = headers.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(headers)), lengths), headers.flatten().field(0)


def _properties(headers: pa.ListArray) -> pa.MapArray:
    bounds = np.zeros(len(headers) + 1, np.int32)
    np.cumsum(headers.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), out=bounds[1:])
    entries = headers.flatten()
    return pa.MapArray.from_arrays(pa.array(bounds), entries.field(0), _as_text(entries.field(1)))


def sink_columns(schema: StructType, options: SinkOptions) -> SinkColumns:
    """The checked columns of a frame, Kafka's or RocketMQ's. ``SchemaError``."""
    if not options.kafka_rows:
        return check_sink_schema(schema, topic=options.topic)
    known = {name.lower(): name for name in (*_GIVES, *_OF_THE_SOURCE)}
    places: dict[str, int] = {}
    for place, field in enumerate(schema.fields):
        name = known.get(field.name.lower())
        if name is None:
            raise SchemaError(
                f"Unknown column {field.name!r}.{did_you_mean(field.name, known)} The columns of rowFormat=kafka are: "
                f"{', '.join(known.values())}.",
                column=field.name,
            )
        if name in places:
            raise SchemaError(f"The column {name} is given twice; keep one of them.", column=name)
        if name in _OF_THE_SOURCE or (name == "topic" and options.topic is not None):
            continue
        takes, names = _TYPES[name]
        if not takes(field.dataType) and (name == "value" or not isinstance(field.dataType, NullType)):
            found = field.dataType.simpleString().upper()
            raise SchemaError(f"Column {field.name} is {found}; expected {names}, as in Kafka.", column=name)
        places[name] = place
    if "value" not in places:
        raise SchemaError(
            "The column value is missing; it holds the messages' contents: BINARY or STRING.", column="value"
        )
    require_topic(places, options.topic)
    shown = {given: schema.fields[place].name for name, place in places.items() for given in _GIVES[name]}
    return KafkaColumns(tuple(given for name in places for given in _GIVES[name]), places, shown=shown)
