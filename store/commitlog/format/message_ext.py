"""From a record to the message that applications know."""

from __future__ import annotations

from commitlog.format import message_id
from commitlog.format.properties import KEY_SEPARATOR, KEYS, TAGS, decode_properties, decode_utf8
from commitlog.format.record import Record
from commitlog.message import MessageExt

__all__ = ["message_of"]


def message_of(record: Record, body: bytes) -> MessageExt:
    """The record's fields under the names of ``MessageExt``; ``body`` is the record's, unpacked."""
    properties = decode_properties(record.properties)
    return MessageExt(
        topic=decode_utf8(record.topic),
        body=body,
        tags=properties.get(TAGS),
        keys=tuple(key for key in properties.get(KEYS, "").split(KEY_SEPARATOR) if key),
        queue_id=record.queue_id,
        flag=record.flag,
        properties=properties,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        store_size=record.total_size,
        sys_flag=record.sys_flag,
        body_crc=record.body_crc,
        born_timestamp=record.born_timestamp,
        born_host=message_id.format_host(record.born_ip, record.born_port),
        store_timestamp=record.store_timestamp,
        store_host=message_id.format_host(record.store_ip, record.store_port),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        message_id=message_id.encode_message_id(record.store_ip, record.store_port, record.physical_offset),
    )
