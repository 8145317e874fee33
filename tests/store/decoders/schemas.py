"""Schemas for tests of decoders, as their tools write them, and bodies of them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ORDER = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": "string"},
        {"name": "paid", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
    ],
}  # fmt: skip
# A list that contains itself: a body of n bytes is n levels deep. And a list of values without a byte.
LINKED = {"type": "record", "name": "Linked", "fields": [{"name": "next", "type": ["null", "Linked"]}]}
NOTHINGS = {"type": "array", "items": "null"}
PAID_MS = 1_764_300_000_000


def write_schema(path: Path, schema: dict[str, Any]) -> str:
    path.write_text(json.dumps(schema))
    return str(path)


def avro_order(number: int = 17) -> bytes:
    stream = io.BytesIO()
    order = {"id": number, "note": "<b>", "paid": PAID_MS, "raw": b"\xff"}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(ORDER), order)
    return stream.getvalue()


def write_descriptors(path: Path) -> str:
    """A descriptor set with the message ``shop.Order``, as ``protoc --descriptor_set_out`` writes it."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind) in enumerate((("order_id", field.TYPE_INT32), ("region", field.TYPE_STRING)), start=1):
        message.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return str(path)


def protobuf_order(descriptors: str) -> bytes:
    found = descriptor_pb2.FileDescriptorSet.FromString(Path(descriptors).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in found.file:
        pool.Add(file)
    order: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    data: bytes = order(order_id=17, region="eu").SerializeToString()
    return data
