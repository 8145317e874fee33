"""Message types: ``Message`` for producers, ``MessageExtBrokerInner`` for brokers, ``MessageExt`` for readers.

The names are RocketMQ's own (``org.apache.rocketmq.common.message.Message``, ``MessageExtBrokerInner``,
``MessageExt``; ``org.apache.rocketmq.store.PutMessageStatus``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from commitlog_store.put_status import PutMessageStatus

__all__ = ["Message", "MessageExt", "MessageExtBrokerInner", "PutMessageStatus"]


# Stands for "not given", so that each message without properties gets a mapping of its own.
_NO_PROPERTIES: Mapping[str, str] = {}


@dataclass(frozen=True, kw_only=True, init=False)
class Message:
    """A message as an application writes it.

    ``tags``, ``keys``, ``sharding_key`` and ``delay_level`` are stored among the properties (``TAGS``, ``KEYS``
    separated by spaces, ``__SHARDINGKEY``, ``DELAY``); ``properties`` holds the others. ``flag`` is the application's
    own number and means nothing to the store.

    Without ``queue_id`` the store chooses the queue: by the hash of ``sharding_key``, so that messages with the same
    key keep their order, or else the topic's queues in turn. ``delay_level`` is a level of ``message_delay_level``,
    from 1 on, and another number is refused; None and 0 mean no delay. ``deliver_at`` is a time of delivery instead:
    a ``datetime`` with a time zone, or milliseconds since the epoch (property ``TIMER_DELIVER_MS``); one that has
    passed means no delay. ``born_timestamp`` is milliseconds since the epoch (the years 1 to 9999); None is the time
    of the put.

    ::

        Message(topic="orders", body=b"paid 12.50", tags="paid", keys=["k1", "k2"], properties={"region": "eu"})
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: Sequence[str] = ()
    queue_id: int | None = None
    flag: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    sharding_key: str | None = None
    delay_level: int | None = None
    born_timestamp: int | None = None
    deliver_at: datetime | int | None = None

    def __init__(
        self,
        *,
        topic: str,
        body: bytes,
        tags: str | None = None,
        keys: Sequence[str] = (),
        queue_id: int | None = None,
        flag: int = 0,
        properties: Mapping[str, str] = _NO_PROPERTIES,
        sharding_key: str | None = None,
        delay_level: int | None = None,
        born_timestamp: int | None = None,
        deliver_at: datetime | int | None = None,
    ) -> None:
        # The generated __init__ of a frozen class calls object.__setattr__ for each field: twice as long, and one
        # message is made for each put.
        fields = self.__dict__
        fields["topic"] = topic
        fields["body"] = body
        fields["tags"] = tags
        fields["keys"] = keys
        fields["queue_id"] = queue_id
        fields["flag"] = flag
        fields["properties"] = {} if properties is _NO_PROPERTIES else properties
        # Seldom given. Without them, the class's own None stands for each (``PlainRecords`` counts on it).
        if sharding_key is not None:
            fields["sharding_key"] = sharding_key
        if delay_level is not None:
            fields["delay_level"] = delay_level
        if born_timestamp is not None:
            fields["born_timestamp"] = born_timestamp
        if deliver_at is not None:
            fields["deliver_at"] = deliver_at


@dataclass(frozen=True, kw_only=True)
class MessageExtBrokerInner(Message):
    """A message with a broker's fields: for transactions, delayed messages, replication and copies of messages.

    What is refused of a ``Message`` and stored of this: topics to which producers may not send
    (``SCHEDULE_TOPIC_XXXX``, half and op messages, ...), names of topics up to 255 characters, properties that only
    brokers give (``REAL_TOPIC``, ``TRAN_MSG``, ``PGROUP``, ...) and those that ask for a timer (``TIMER_DELIVER_MS``,
    ...). Refused of both: batches of several messages (``INNER_NUM``), light queues (``INNER_MULTI_DISPATCH``), and
    topics that are kept in batch consume queues or compacted.

    ``body`` is stored unchanged: a caller that sets the system flag's compression bits has compressed it. Its queue is
    0 unless it names one: the store chooses none for it. A host (``"ip:port"``) that is None is the store's own. For
    example, what a producer's half message is::

        MessageExtBrokerInner(
            topic="RMQ_SYS_TRANS_HALF_TOPIC",
            body=b"...",
            properties={"REAL_TOPIC": "orders", "REAL_QID": "0", "TRAN_MSG": "true", "PGROUP": "payments"},
        )
    """

    queue_id: int = 0
    sys_flag: int = 0
    born_host: str | None = None
    store_host: str | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


@dataclass(frozen=True, kw_only=True)
class MessageExt(Message):
    """A message stored in the CommitLog.

    ``body`` is decompressed when the system flag says that it was compressed; ``body_crc`` is over the stored bytes.
    ``properties`` holds every property of the record, ``TAGS`` and ``KEYS`` included. Times are milliseconds since
    the epoch, as they are stored: ``born_timestamp`` may be any number that a producer gave a broker. Hosts are
    ``"ip:port"`` as RocketMQ prints them (an IPv6 address uncompressed, without brackets).

    ::

        with StoreReader.open("/data/store") as reader:
            (message,) = reader.query("orders", "k1", limit=1)
            print(message.queue_offset, message.store_timestamp, message.properties, message.unique_key)
    """

    queue_id: int = 0
    queue_offset: int
    physical_offset: int
    store_size: int
    sys_flag: int
    body_crc: int
    # With a field of its own: that of ``Message`` has a default.
    born_timestamp: int = field()
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

    @property
    def original_topic(self) -> str:
        """The topic that the producer sent it to: of a message that is consumed again, and of a dead letter too."""
        return self.properties.get("RETRY_TOPIC", self.topic)
