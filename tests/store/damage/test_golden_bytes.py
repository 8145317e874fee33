"""Bytes of RocketMQ's own stores damaged, one at a time: the right rows, or a named error.

The first tests take a few records, queues and entries, and every byte of those; the ones marked ``stress`` take every
byte that was written. Of the two stores, one was closed cleanly and one has been left by a crash.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from commitlog_store import Message, MessageStore, StoreReader
from commitlog_store.errors import CorruptConsumeQueue
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.format.record import MAGIC_V2
from commitlog_store.format.sys_flag import BORNHOST_V6_FLAG, COMPRESSED_FLAG
from tests.store.damage.filled_store import flips
from tests.store.damage.golden_flips import GoldenStore, StoredMessage
from tests.support import golden

Values = Callable[[int], Iterable[int]]

BOTH = pytest.mark.parametrize("name", [golden.ROCKETMQ_533, golden.ROCKETMQ_498])


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], GoldenStore]:
    """Each golden store, copied once: every flip is undone."""
    made: dict[str, GoldenStore] = {}

    def store(name: str) -> GoldenStore:
        if name not in made:
            made[name] = GoldenStore(name, tmp_path_factory.mktemp("golden-bytes") / "store")
        return made[name]

    return store


def one_bit(byte: int) -> tuple[int, ...]:
    return (byte ^ 1 << byte % 8,)


# Each byte with one bit flipped, and under ``stress`` with four other values.
in_turns = pytest.mark.parametrize("values", [one_bit, pytest.param(flips, marks=pytest.mark.stress)])


def _version(store: GoldenStore, message: StoredMessage) -> int:
    at = message.physical_offset % (1 << 18) + 4
    return int.from_bytes(store.log_file(message.physical_offset).read_bytes()[at : at + 4], "big")


@in_turns
def test_every_byte_of_a_record_of_each_kind(stores: Callable[[str], GoldenStore], values: Values) -> None:
    store = stores(golden.ROCKETMQ_533)
    kinds: list[Callable[[StoredMessage], bool]] = [
        lambda message: message.sys_flag == 0 and message.size < 400,
        lambda message: _version(store, message) == MAGIC_V2,
        lambda message: bool(message.sys_flag & BORNHOST_V6_FLAG) and message.size < 500,
    ]
    chosen = [next(filter(kind, store.messages)) for kind in kinds]
    packed = {message.sys_flag: message for message in store.messages if message.sys_flag & COMPRESSED_FLAG}
    assert len(packed) == 4, "zlib of old and of now, LZ4, Zstandard"
    for message in [*chosen, *packed.values()]:
        store.flip_record(message, values)


@in_turns
@BOTH
def test_every_byte_of_a_queues_last_record(stores: Callable[[str], GoldenStore], name: str, values: Values) -> None:
    store = stores(name)
    last = {(message.topic, message.queue_id): message for message in store.messages}
    store.flip_record(last["SCHEDULE_TOPIC_XXXX", 2], values)


@BOTH
def test_every_byte_of_the_units_of_the_shortest_queues(stores: Callable[[str], GoldenStore], name: str) -> None:
    store = stores(name)
    for topic, queue_id in sorted(store.ends, key=lambda queue: store.ends[queue])[:2]:
        store.flip_queue(topic, queue_id, one_bit)


@pytest.mark.stress
@BOTH
def test_every_byte_of_every_last_unit(stores: Callable[[str], GoldenStore], name: str) -> None:
    """The one that could vanish: no record follows it."""
    store = stores(name)
    for topic, queue_id in store.ends:
        store.flip_queue(topic, queue_id, last=1)


@in_turns
@BOTH
def test_every_byte_of_the_index_header_and_of_some_entries(
    stores: Callable[[str], GoldenStore], name: str, values: Values
) -> None:
    store = stores(name)
    entries = store.index_keys()
    store.flip_index([entries[0], entries[-1]], values, header=True)
    store.flip_index(entries[1:-1:150], values, header=False)


@pytest.mark.parametrize("step", [16, pytest.param(1, marks=pytest.mark.stress)])
def test_every_byte_of_the_checkpoint(stores: Callable[[str], GoldenStore], step: int) -> None:
    """And one in so many of those after its times, which no field has."""
    stores(golden.ROCKETMQ_498).flip_checkpoint(one_bit if step > 1 else flips, step)


@BOTH
def test_bytes_sampled_over_the_whole_log(stores: Callable[[str], GoldenStore], name: str) -> None:
    store = stores(name)
    chance = random.Random(533)
    for message in chance.sample(store.messages, 60):
        store.flip_record(message, places=chance.sample(range(message.size), 4))


@BOTH
@pytest.mark.stress
def test_every_byte_of_every_record(stores: Callable[[str], GoldenStore], name: str) -> None:
    store = stores(name)
    for message in store.messages:
        store.flip_record(message, one_bit)


@BOTH
@pytest.mark.stress
def test_every_byte_of_every_queue(stores: Callable[[str], GoldenStore], name: str) -> None:
    store = stores(name)
    for topic, queue_id in store.ends:
        store.flip_queue(topic, queue_id)


@BOTH
@pytest.mark.stress
def test_every_byte_of_every_index_entry(stores: Callable[[str], GoldenStore], name: str) -> None:
    store = stores(name)
    store.flip_index(store.index_keys(), flips, header=False)


@BOTH
def test_zeroed_units_are_no_end_of_a_queue(name: str, stores: Callable[[str], GoldenStore], tmp_path: Path) -> None:
    """Any three of a queue's units but the last; and the owner that opens the store gives no offset twice."""
    store = stores(name)
    queue = max((key for key in store.ends if not key[0].startswith("%")), key=store.ends.__getitem__)
    end = store.ends[queue]
    assert end > 20
    for first in range(0, end - 3, 3):
        damaged = Path(shutil.copytree(store.path, tmp_path / str(first))) if first % 15 == 0 else store.path
        file = damaged / "consumequeue" / queue[0] / str(queue[1]) / f"{0:020d}"
        whole = file.read_bytes()
        file.write_bytes(whole[: first * UNIT_SIZE] + bytes(3 * UNIT_SIZE) + whole[(first + 3) * UNIT_SIZE :])
        with StoreReader.open(damaged) as reader:
            assert reader.queue_info(*queue).max_offset == end, first
            with pytest.raises(CorruptConsumeQueue, match=str(file)):
                list(reader.read(*queue, 0))
        if damaged is store.path:
            file.write_bytes(whole)
            continue
        with MessageStore.open(damaged) as owner:
            message = Message(topic=queue[0], body=b"new", queue_id=queue[1])
            assert owner.put_message(message).raise_for_status().queue_offset == end
        with MessageStore.open(damaged, rebuild=True), StoreReader.open(damaged) as reader:
            assert sum(batch.num_rows for batch in reader.read(*queue, 0)) == end + 1
        shutil.rmtree(damaged)
