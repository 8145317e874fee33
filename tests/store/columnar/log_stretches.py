"""Stretches of a log for tests of the scan and of dispatch: records back to back, and what one-record decoding says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from commitlog_store.format.arrays import ByteArray
from commitlog_store.format.record import Decoded, Record, body_crc, decode_record, header_size
from tests.store.columnar.record_blocks import plain_record
from tests.support.encoders import encode_record


def stretch(records: Sequence[Record], base: int) -> bytes:
    """The bytes of the records one after another from ``base``; each gets its own position."""
    data = b""
    for record in records:
        data += encode_record(replace(record, physical_offset=base + len(data)))
    return data


def as_array(data: bytes) -> ByteArray:
    return np.frombuffer(data, np.uint8)


def walked(data: bytes, base: int, check_crc: bool) -> tuple[list[Record], int, Decoded | None]:
    """What decoding record by record finds: the records, their end, and what stands there."""
    records: list[Record] = []
    at = 0
    while at < len(data):
        found = decode_record(data[at:], physical_offset=base + at, check_crc=check_crc)
        if not isinstance(found, Record):
            return records, at, found
        records.append(found)
        at += found.total_size
    return records, at, None


def record_of(
    topic: str = "orders",
    properties: str = "",
    *,
    body: bytes = b"hello",
    queue_id: int = 3,
    queue_offset: int = 0,
    flags: int = 0,
    store_timestamp: int = 2,
) -> Record:
    """A v1 record of these values."""
    texts = topic.encode(), properties.encode()
    return replace(
        plain_record(flags=flags),
        total_size=header_size(flags) + len(body) + 1 + len(texts[0]) + 2 + len(texts[1]),
        body=body,
        body_crc=body_crc(body),
        topic=texts[0],
        properties=texts[1],
        queue_id=queue_id,
        queue_offset=queue_offset,
        store_timestamp=store_timestamp,
    )
