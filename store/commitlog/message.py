"""The message types: what a producer hands in, what the store answers, and what it gives back.

The names are RocketMQ's own (``org.apache.rocketmq.common.message.Message``, ``MessageExtBrokerInner``, ``MessageExt``;
``org.apache.rocketmq.store.PutMessageStatus``, ``PutMessageResult``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from commitlog.errors import put_error
from commitlog.put_status import PutMessageStatus

__all__ = ["Message", "MessageExt", "MessageExtBrokerInner", "PutMessageResult", "PutMessageStatus"]


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
class MessageExtBrokerInner(Message):
    """A message with what a broker knows of it: for those who write transactions, replicate, or copy messages.

    ``body`` is stored as it is: who sets the system flag's compression bits has compressed it. ``born_timestamp`` is
    milliseconds; None, as for the hosts (``"ip:port"``), takes the store's own.
    """

    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: str | None = None
    store_host: str | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class PutMessageResult(NamedTuple):
    """How a put ended, and where the message lies.

    Offsets and the store time (ms) are -1, and the id is empty, for a message that is not in the log. A batch has one
    result: its first message's offsets, ids separated by commas, and ``message_num`` messages. ``reason`` says in a
    sentence why the status is not PUT_OK.
    """

    status: PutMessageStatus
    message_id: str = ""
    physical_offset: int = -1
    queue_offset: int = -1
    store_timestamp: int = -1
    message_num: int = 1
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether the status is PUT_OK."""
        return self.status is PutMessageStatus.PUT_OK

    def raise_for_status(self) -> PutMessageResult:
        """This result when it is PUT_OK; else ``PutRefused``, or ``PutNotConfirmed`` when the message may be stored."""
        if self.status is not PutMessageStatus.PUT_OK:
            raise put_error(self.status, self.reason)
        return self


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
