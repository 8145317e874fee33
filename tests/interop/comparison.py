"""RocketMQ's answers about a store against those of ``StoreReader``, field by field."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commitlog_store import FILLER_SIZE, MessageExt, StoreReader
from commitlog_store.format.record import BLANK_MAGIC
from commitlog_store.format.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK_TYPE
from tests.interop.command_process import Json
from tests.interop.rocketmq import RocketMq
from tests.interop.store_process import StoreProcess

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMES_PER_QUEUE = 5


@dataclass(frozen=True, kw_only=True)
class Answers:
    """All that RocketMQ reads in a store."""

    end: int
    start: int
    messages: list[Json]
    queues: list[Json]
    found: dict[tuple[str, str], list[int]]
    """Physical offsets, by topic and key."""
    offsets_by_time: dict[tuple[str, int, int], list[int]]
    """By topic, queue id and time: from 5.x, the lower and the upper offset."""

    def with_key(self, topic: str, key: str) -> list[int]:
        """Physical offsets of the messages that the index should lead to: those that were rolled back are not in it."""
        in_index = [one for one in self.messages if one["sysFlag"] & TRANSACTION_MASK != TRANSACTION_ROLLBACK_TYPE]
        having = [one for one in in_index if one["topic"] == topic and key in _keys(one)]
        return [message["physicalOffset"] for message in having]


def answers_of(process: StoreProcess) -> Answers:
    """Ask a RocketMQ that has a store open."""
    told = process.ask("describe")
    keys = sorted({(message["topic"], key) for message in told["messages"] for key in _keys(message)})
    times = list(_times(told["queues"], told["messages"]))
    return Answers(
        start=told["minPhysicalOffset"],
        end=told["maxPhysicalOffset"],
        messages=told["messages"],
        queues=told["queues"],
        found=dict(zip(keys, process.ask("query", keys=keys)["found"], strict=True)),
        offsets_by_time=dict(zip(times, process.ask("offsetsByTime", times=times)["offsets"], strict=True)),
    )


def _keys(message: Json) -> set[str]:
    properties = message["properties"]
    return {*properties.get("KEYS", "").split(), *filter(None, [properties.get("UNIQ_KEY")])}


def _times(queues: list[Json], messages: list[Json]) -> Iterator[tuple[str, int, int]]:
    """For each queue some store times of its messages, and those a millisecond beside them."""
    stored = {message["physicalOffset"]: message["storeTimestamp"] for message in messages}
    for queue in queues:
        times = [stored[unit[0]] for unit in queue["units"] if unit[0] in stored]
        picked = times[:: max(1, len(times) // TIMES_PER_QUEUE)] + times[-1:]
        for time in sorted({time + beside for time in picked for beside in (-1, 0, 1)}):
            yield queue["topic"], queue["queueId"], time


def assert_reads_alike(
    answers: Answers, path: Path, rocketmq: RocketMq, *, index_recovered_by_rocketmq: bool = False
) -> None:
    """``StoreReader`` reads at ``path`` what RocketMQ answered of this store.

    ``index_recovered_by_rocketmq``: the answers are those of a RocketMQ that recovered a copy after a crash. It drops
    its newest index file then and indexes again only what it scans, so that its queries find a part.
    """
    with StoreReader.open(path) as reader:
        _assert_same_end(answers, reader.physical_bounds(), path)
        stored = {}
        for message in answers.messages:
            stored[message["physicalOffset"]] = one = reader.message_at(message["physicalOffset"])
            assert _as_answer(one) == message
        _assert_same_queues(answers, reader)
        for queue in answers.queues:
            _assert_same_units(queue, reader, lenient=not rocketmq.is_five)
            _assert_same_rows(queue, reader, stored)
        for (topic, key), found in answers.found.items():
            ours = [message.physical_offset for message in reader.query(topic, key, limit=1_000_000)]
            if index_recovered_by_rocketmq:
                assert set(found) <= set(ours) <= set(answers.with_key(topic, key)), f"{topic!r}, key {key!r}"
            else:
                assert ours == found, f"{topic!r}, key {key!r}"
        if rocketmq.is_five:  # 4.x finds some offset near the time, by rules of its own
            _assert_same_offsets_by_time(answers, reader)


def _assert_same_end(answers: Answers, ours: tuple[int, int], path: Path) -> None:
    start, end = ours
    assert start == answers.start
    if end == answers.end:
        return
    # Recovering, RocketMQ ends the log before a blank filler that nothing follows, and this package ends it
    # after the filler: the same messages, and the next record goes to the next file either way.
    files = sorted((path / "commitlog").iterdir())
    size = files[0].stat().st_size
    assert end % size == 0
    assert answers.end == _start_of_filler(path / "commitlog" / f"{end - size:020d}", answers.end % size) + end - size


def _start_of_filler(file: Path, position: int) -> int:
    """The position, when a blank filler to the end of the file starts there."""
    with file.open("rb") as log:
        head = os.pread(log.fileno(), 8, position)
    assert int.from_bytes(head[:4], "big") == file.stat().st_size - position
    assert int.from_bytes(head[4:], "big") == BLANK_MAGIC
    return position


def _as_answer(message: MessageExt) -> dict[str, Any]:
    assert message.tags == message.properties.get("TAGS")
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "bodyCrc": message.body_crc,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": message.born_host,
        "storeTimestamp": message.store_timestamp,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "msgId": message.message_id,
        "properties": dict(message.properties),
        "bodySha256": hashlib.sha256(message.body).hexdigest(),
    }


def _assert_same_queues(answers: Answers, reader: StoreReader) -> None:
    """Empty queues may exist or not: RocketMQ makes a queue when it is asked for it."""
    theirs = [(q["topic"], q["queueId"], q["minOffset"], q["maxOffset"]) for q in answers.queues if q["maxOffset"]]
    queues = [queue for topic in reader.topics() for queue in reader.queues(topic)]
    ours = [(q.topic, q.queue_id, q.min_offset, q.max_offset) for q in queues if q.max_offset]
    assert ours == sorted(theirs)


def _assert_same_units(queue: Json, reader: StoreReader, *, lenient: bool) -> None:
    topic, queue_id = queue["topic"], queue["queueId"]
    if not queue["maxOffset"]:
        return
    ours = [
        [int(unit["physical_offset"]), int(unit["size"]), int(unit["tags_code"])]
        for units in reader.units(topic, queue_id, queue["minOffset"], queue["maxOffset"])
        for unit in units
    ]
    theirs = queue["units"]
    if lenient and topic == SCHEDULE_TOPIC:
        # Recovering, 4.x writes the tag's hash, since it knows no delays yet; dispatching, the time of delivery.
        ours, theirs = [unit[:2] for unit in ours], [unit[:2] for unit in theirs]
    assert ours == theirs, f"{topic!r}, queue {queue_id}"


def _assert_same_rows(queue: Json, reader: StoreReader, stored: dict[int, MessageExt]) -> None:
    """What Spark's tasks read of a queue is what RocketMQ gives its consumers, and what the log says."""
    if not queue["maxOffset"]:
        return
    with_message = [place for place, size, _ in queue["units"] if size != FILLER_SIZE]
    assert queue["consumed"] == with_message, "RocketMQ gives its consumers each message once, in order"
    columns = ["queueOffset", "physicalOffset", "body", "properties", "msgId"]
    batches = reader.read(
        queue["topic"], queue["queueId"], queue["minOffset"], queue["maxOffset"], columns=columns, verify_crc=True
    )
    rows = [
        (row["queueOffset"], row["physicalOffset"], row["body"], dict(row["properties"]), row["msgId"])
        for batch in batches
        for row in batch.to_pylist()
    ]
    messages = [stored[place] for place in with_message]
    assert rows == [
        (one.queue_offset, one.physical_offset, one.body, dict(one.properties), one.message_id) for one in messages
    ]


def _assert_same_offsets_by_time(answers: Answers, reader: StoreReader) -> None:
    for (topic, queue_id, time), offsets in answers.offsets_by_time.items():
        ours = [
            reader.offset_by_time(topic, queue_id, time, boundary="lower"),
            reader.offset_by_time(topic, queue_id, time, boundary="upper"),
        ]
        assert ours == offsets, f"{topic!r}, queue {queue_id}, time {time}"
