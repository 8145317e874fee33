"""Puts of every kind, made from a seed. RocketMQ and this package are given the same ones."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from tests.interop.command_process import Json

# The property by which a message is known again, whatever else it holds.
NAME = "NAME"

_TAGS = [None, "TagA", "TagB", "täg-日本", "Aa", "BB", "😀"]
_PREPARED, _COMMIT, _ROLLBACK = 4, 8, 12
# An hour, two hours: the messages stay where they are for as long as a test takes.
_DELAY_LEVELS = (17, 18)
_STORE_HOST = "10.1.2.3:10911"
_HOST_V6 = "fd00:0:0:0:0:0:1:2:10911"


@dataclass
class Operations:
    """An endless supply of puts. ``run`` is part of all names, so that those of several supplies differ.

    ``long_topics``: more than 127 characters, which 5.x stores in records of its second version. ``tables`` and
    ``transactions`` are for MessageStore, which alone has them.
    """

    run: str
    seed: int
    largest_body: int = 16_000
    long_topics: bool = False
    tables: bool = False
    transactions: bool = False
    _count: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def take(self, count: int) -> list[Json]:
        """The next so many operations."""
        return list(islice(self.endless(), count))

    def endless(self) -> Iterator[Json]:
        while True:
            kind = self._chance.choices(
                ["message", "batch", "table", "transaction"], [12, 2, 2 * self.tables, self.transactions]
            )[0]
            if kind == "message":
                yield {"kind": kind, "messages": [self._single()]}
            elif kind == "batch":
                yield {"kind": kind, "messages": self._batch()}
            else:
                operation: Json = {"kind": kind, "messages": self._table()}
                if kind == "transaction":
                    operation |= {"application": f"app-{self.run}", "version": self._count}
                yield operation

    def _single(self) -> Json:
        chance = self._chance
        message = self._message(largest=self.largest_body if chance.randrange(20) == 0 else 8_000)
        special = chance.randrange(24)
        if special < 2:
            message["sysFlag"] = _PREPARED
        elif special < 4:
            message["sysFlag"] = chance.choice([_COMMIT, _ROLLBACK])
            message["preparedTransactionOffset"] = chance.randrange(1 << 40)
        elif special == 4:
            message["delayLevel"] = chance.choice(_DELAY_LEVELS)
        elif special < 8 and message["body"]:
            message["compression"] = chance.choice(["ZLIB", "LZ4", "ZSTD"])
            if special == 7:  # more than a block of LZ4 that pyarrow makes
                message["body"] = base64.b64encode(message["topic"].encode() * 10_000).decode()
        if special == 9:
            message["properties"]["WAIT"] = "false"
        message |= {
            "reconsumeTimes": chance.choice([0, 0, 1, 16]),
            "bornTimestamp": chance.choice([0, 1_700_000_000_123]),
            "bornHost": chance.choice(["192.168.1.9:0", "10.9.8.7:65535", _HOST_V6]),
            "storeHost": chance.choice([_STORE_HOST] * 4 + [_HOST_V6]),
        }
        return message

    def _batch(self) -> list[Json]:
        topic, queue_id = self._topic(), self._chance.randrange(4)
        while topic.startswith("%RETRY%"):  # a broker takes no batch for it, and so do we
            topic = self._topic()
        messages = [self._message(largest=1_000) for _ in range(self._chance.randrange(1, 9))]
        return [message | {"topic": topic, "queueId": queue_id} for message in messages]

    def _table(self) -> list[Json]:
        messages = [self._message(largest=1_000) for _ in range(self._chance.choice([1, 3, 30, 200]))]
        for message in messages:
            if self._chance.randrange(40) == 0:
                message["delayLevel"] = _DELAY_LEVELS[0]
        return messages

    def _message(self, *, largest: int) -> Json:
        chance = self._chance
        self._count += 1
        name = f"{self.run}-{self._count}"
        return {
            "topic": self._topic(),
            "queueId": chance.randrange(4),
            "body": base64.b64encode(self._body(name, largest)).decode(),
            "tags": chance.choice(_TAGS),
            "keys": self._keys(name),
            "flag": chance.randrange(-(2**31), 2**31),
            "properties": self._properties(name),
            "sysFlag": 0,
            "compression": None,
            "delayLevel": 0,
            "reconsumeTimes": 0,
            "bornTimestamp": 1_700_000_000_000,
            "bornHost": "192.168.1.9:40000",
            "storeHost": _STORE_HOST,
            "preparedTransactionOffset": 0,
        }

    def _topic(self) -> str:
        kind = self._chance.randrange(40)
        if kind == 0:
            return "%RETRY%group"
        if kind == 1:
            return "P" * 127
        if kind == 2 and self.long_topics:
            # The longest that MessageStore creates: a consumer group's.
            return "%RETRY%" + "L" * 154
        return f"topic-{self._chance.choice('ABCD')}"

    def _body(self, name: str, largest: int) -> bytes:
        kind = self._chance.randrange(12)
        if kind == 0:
            return b""
        if kind == 1:
            return bytes(self._chance.randrange(300))  # zeros, as what never reached the disk looks
        return name.encode() + self._chance.randbytes(self._chance.randrange(largest if kind < 4 else 300))

    def _keys(self, name: str) -> list[str]:
        number = self._chance.randrange(50)
        # "Aa" and "BB" have the same hash in Java, and so in the index.
        return self._chance.choice(
            [[], [], [f"k{number}"], ["Aa", "BB", f"k{number}"], [f"schlüssel-{number % 9}", "😀"], [name]]
        )

    def _properties(self, name: str) -> dict[str, str]:
        chance = self._chance
        properties = {NAME: name}
        if chance.randrange(3) == 0:
            properties["UNIQ_KEY"] = f"unique-{name}"
        if chance.randrange(6) == 0:
            properties["ünï="] = "värde 😀 \n x"
        if chance.randrange(60) == 0:
            properties["large"] = "p" * 20_000
        return properties


def message_of(topic: str, body: bytes, delay_level: int = 0) -> Json:
    """A plain message for queue 0 of a topic."""
    return {
        "topic": topic,
        "queueId": 0,
        "body": base64.b64encode(body).decode(),
        "tags": None,
        "keys": [],
        "flag": 0,
        "properties": {},
        "sysFlag": 0,
        "compression": None,
        "delayLevel": delay_level,
        "bornTimestamp": 1_700_000_000_123,
        "bornHost": "192.168.1.9:0",
        "storeHost": _STORE_HOST,
        "reconsumeTimes": 0,
        "preparedTransactionOffset": 0,
    }
