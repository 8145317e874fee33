"""The two message types: what a producer hands in, and what the store gives back.

The names are RocketMQ's own (``org.apache.rocketmq.common.message.Message`` and ``MessageExt``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Message", "MessageExt"]


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message as an application writes it.

    ``tags`` and ``keys`` are stored among the properties (``TAGS``, and ``KEYS`` separated by spaces);
    ``properties`` holds the others. ``flag`` is the application's own number and means nothing to the store.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: Sequence[str] = ()
    queue_id: int = 0
    flag: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MessageExt(Message):
    """A message as it stands in the CommitLog.

    ``body`` is decompressed when the system flag says that it was compressed; ``body_crc`` is over the stored bytes.
    ``properties`` holds every property of the record, ``TAGS`` and ``KEYS`` included. Times are milliseconds since
    the epoch; hosts are ``"ip:port"`` as RocketMQ prints them (an IPv6 address uncompressed, without brackets).
    """

    queue_offset: int
    physical_offset: int
    store_size: int
    sys_flag: int
    body_crc: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    message_id: str

    @property
    def unique_key(self) -> str | None:
        """The client's own message id (property ``UNIQ_KEY``), if it set one."""
        return self.properties.get("UNIQ_KEY")
