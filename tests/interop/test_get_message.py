"""``get_message`` beside RocketMQ's own, on one store: a table of positions, limits and tags."""

from __future__ import annotations

from pathlib import Path

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from tests.interop.rocketmq import RocketMq, message_store_settings

SETTINGS: dict[str, object] = {
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 100 * 20,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}
MESSAGES = 950


def test_every_position_gets_the_answer_that_rocketmq_gives(rocketmq: RocketMq, tmp_path: Path) -> None:
    path = tmp_path / "store"
    config = MessageStoreConfig.from_mapping(message_store_settings(SETTINGS))
    with MessageStore.open(path, config) as store:
        for number in range(MESSAGES):
            # The bodies are of 0 to 20 KiB, so that bytes end some of the calls.
            body = b"x" * (number * 131 % 300 if number % 50 else 20_000)
            tag = ("paid", "sent", "rare")[2 if number % 400 == 399 else number % 2]
            store.put_message(Message(topic="orders", body=body, tags=tag, queue_id=0)).raise_for_status()
        store.put_message(Message(topic="quiet", body=b"", queue_id=3)).raise_for_status()
    offsets = [-5, -1, *range(0, MESSAGES, 37), 99, 100, 101, MESSAGES - 1, MESSAGES, MESSAGES + 1, 10**9, 2**62]
    positions: list[tuple[str, int, int, int, str | None]] = [
        ("orders", 0, offset, most, wanted)
        for offset in offsets
        for most in (1, 5, 32)
        for wanted in (None, "paid", "rare", "absent")
    ]
    positions += [("quiet", 3, offset, 32, None) for offset in (-1, 0, 1, 2)]
    with rocketmq.open(path, SETTINGS) as process:
        theirs = process.ask("getMessage", positions=positions)["answers"]
        process.close()
    wrong = []
    with StoreReader.open(path) as reader:
        for position, answer in zip(positions, theirs, strict=True):
            topic, queue_id, offset, most, tags = position
            # RocketMQ's limits for what is in memory; the store is far smaller than memory.
            result = reader.get_message(topic, queue_id, offset, most, tags=tags)
            places = [message.physical_offset for message in result.messages]
            ours = [result.status.name, result.next_begin_offset, result.min_offset, result.max_offset, places]
            if ours != answer:
                wrong.append(f"{position}: {ours} here, {answer} in RocketMQ")
    assert not wrong, "\n".join(wrong[:20])
