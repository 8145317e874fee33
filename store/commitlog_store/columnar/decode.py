"""Decodes a block's records into the requested Arrow columns: the second step of reading, after ``locate``.

Variable parts become Arrow ``binary_view`` arrays over the input bytes; the cast to ``binary`` copies each value once,
in C++. Nothing that is returned refers to the input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from commitlog_store.columnar import columns as column_table
from commitlog_store.columnar.bodies import plain_bodies
from commitlog_store.columnar.locate import RecordBlock
from commitlog_store.format import message_id, sys_flag
from commitlog_store.format.arrays import ByteArray
from commitlog_store.format.properties import KEYS, TAGS, UNIQ_KEY
from commitlog_store.format.timestamps import is_timestamp


def _time(block: RecordBlock, name: str) -> pa.Array:
    """The times as microseconds; null for a number that is not a timestamp: a broker stores any that a client gives."""
    kind, values = column_table.column_type("storeTimestamp"), block.field(name)
    good = is_timestamp(values)
    if not good.all():
        return pa.array(np.where(good, values, 0) * 1000, kind, mask=~good)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values * 1000)])


def _hosts(block: RecordBlock, which: str) -> pa.Array:
    """``ip:port`` texts. Hosts repeat, so each different one is formatted once."""
    ips = np.ascontiguousarray(block.headers[f"{which}_ip"])
    ports = np.ascontiguousarray(block.headers[f"{which}_port"])
    width = ips.dtype.itemsize
    flag = sys_flag.BORNHOST_V6_FLAG if which == "born" else sys_flag.STOREHOSTADDRESS_V6_FLAG
    joined = np.empty((len(ips), width + 5), np.uint8)
    joined[:, :width] = ips.view(np.uint8).reshape(-1, width)
    joined[:, width : width + 4] = ports.view(np.uint8).reshape(-1, 4)
    joined[:, width + 4] = (block.sys_flags & flag) != 0
    packed = joined.view(f"V{width + 5}").reshape(-1)
    if (joined == joined[:1]).all():  # one client, as in most stretches of a queue: sorting costs more than all else
        unique, codes = packed[:1], np.zeros(len(packed), np.int64)
    else:
        unique, codes = np.unique(packed, return_inverse=True)
    texts = []
    for host in unique:
        raw = host.tobytes()
        ip = raw[:16] if raw[-1] else raw[:4]
        texts.append(message_id.format_host(ip, int.from_bytes(raw[width : width + 4], "big", signed=True)))
    return pa.array(texts, pa.string()).take(pa.array(codes.reshape(-1)))


_HEX = np.frombuffer(b"".join(b"%02X" % value for value in range(256)), "V2")


def _message_ids(block: RecordBlock) -> pa.Array:
    """Offset message ids: store host, port and physical offset as upper-case hex."""
    width = block.headers["store_ip"].dtype.itemsize
    raw = np.empty((len(block.headers), width + 12), np.uint8)
    for name, start, size in (("store_ip", 0, width), ("store_port", width, 4), ("physical_offset", width + 4, 8)):
        raw[:, start : start + size] = np.ascontiguousarray(block.headers[name]).view(np.uint8).reshape(-1, size)
    wide = (block.sys_flags & sys_flag.STOREHOSTADDRESS_V6_FLAG) != 0
    if width == 4 or wide.all():
        return _hex_texts(raw)
    ids = np.empty(len(raw), object)
    ids[wide] = _hex_texts(raw[wide]).to_pylist()
    ids[~wide] = _hex_texts(np.delete(raw[~wide], np.s_[4:16], axis=1)).to_pylist()
    return pa.array(ids, pa.string())


def _hex_texts(raw: ByteArray) -> pa.Array:
    count, width = raw.shape
    digits = np.ascontiguousarray(_HEX[raw])
    offsets = np.arange(0, (count + 1) * width * 2, width * 2, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(digits.view(np.uint8))])


@lru_cache(maxsize=8)
def _constant(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def _numbers(field: str) -> Callable[[RecordBlock], pa.Array]:
    return lambda block: pa.array(block.field(field))


def _topics(block: RecordBlock) -> pa.Array:
    topic = block.place.topic
    return _constant(topic, pa.string(), len(block.headers)) if isinstance(topic, str) else topic


def _queue_ids(block: RecordBlock) -> pa.Array:
    queue_id = block.place.queue_id
    return _constant(queue_id, pa.int32(), len(block.headers)) if isinstance(queue_id, int) else pa.array(queue_id)


def _property_text(name: str) -> Callable[[RecordBlock], pa.Array]:
    return lambda block: block.properties.text(name)


# One line per column.
_BUILDERS: dict[str, Callable[[RecordBlock], pa.Array]] = {
    "topic": _topics,
    "tags": _property_text(TAGS),
    "keys": _property_text(KEYS),
    "queueId": _queue_ids,
    "queueOffset": lambda block: pa.array(block.place.queue_offsets),
    "body": plain_bodies,
    "bornTimestamp": lambda block: _time(block, "born_timestamp"),
    "storeTimestamp": lambda block: _time(block, "store_timestamp"),
    "properties": lambda block: block.properties.map(),
    "msgId": _message_ids,
    "uniqKey": _property_text(UNIQ_KEY),
    "bornHost": lambda block: _hosts(block, "born"),
    "storeHost": lambda block: _hosts(block, "store"),
    "physicalOffset": _numbers("physical_offset"),
    "preparedTransactionOffset": _numbers("prepared_transaction_offset"),
    "storeSize": lambda block: pa.array(block.sizes.astype(np.int32)),
    "flag": _numbers("flag"),
    "sysFlag": _numbers("sys_flag"),
    "bodyCrc": _numbers("body_crc"),
    "reconsumeTimes": _numbers("reconsume_times"),
}

assert set(_BUILDERS) == set(column_table.ALL_COLUMNS)


def record_batch(block: RecordBlock, columns: Sequence[str]) -> pa.RecordBatch:
    """The named columns of the block's records, in the order given. It refers to none of the block's bytes.

    Without columns, the batch has as many rows as with some.
    """
    if not columns:
        return pa.record_batch({"row": pa.nulls(len(block.sizes))}).select([])
    return pa.RecordBatch.from_arrays(
        [_BUILDERS[name](block) for name in columns], schema=column_table.arrow_schema(columns)
    )
