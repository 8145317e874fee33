"""What RocketMQ's own recovery does to queues and index is not an error; opening adds the entries it leaves out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from commitlog_store import Message, MessageStore, StoreReader
from commitlog_store.columnar.dispatch import dispatch_requests, index_entries
from commitlog_store.columnar.scan import scan_records
from commitlog_store.format.checkpoint import Checkpoint, encode_checkpoint
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.format.index_file import entry_offset
from commitlog_store.index.file_writer import IndexFileWriter
from commitlog_store.recovery.forecast import forecast_open
from commitlog_store.recovery.start import StartKind
from commitlog_store.verify.findings import FINDINGS_PER_FILE
from commitlog_store.verify.store import verify_store
from tests.store.verify.made_store import CONFIG, checks, damage, files, flip, only

MESSAGES = 60
# Each message has a unique key and a key of its own: two entries.
KEYS = 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store as RocketMQ closes one, whose index is to be written by the test."""
    store = tmp_path / "store"
    with MessageStore.open(store, CONFIG) as opened:
        for number in range(MESSAGES):
            properties = {"UNIQ_KEY": f"unique-{number}"}
            message = Message(
                queue_id=0, topic="orders", body=b"b" * 100, keys=[f"key-{number}"], properties=properties
            )
            opened.put_message(message).raise_for_status()
    as_rocketmq_leaves_it(store)
    for file in files(store, "index"):
        file.unlink()
    return store


def as_rocketmq_leaves_it(store: Path) -> None:
    """Its checkpoint holds times and nothing else."""
    with StoreReader.open(store) as reader:
        found = reader.checkpoint()
    assert found is not None
    times = found.physic_msg_timestamp
    (store / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(times, times, times)))


def write_index(store: Path, *stretches: range) -> None:
    """An index file for each stretch of the log's entries; entry 2n and 2n + 1 are those of message n."""
    (log,) = files(store, "commitlog")
    scan = scan_records(np.frombuffer(log.read_bytes(), np.uint8), 0, check_crc=True)
    requests = dispatch_requests(scan, ())
    hashes, rows = index_entries(scan)
    assert len(hashes) == KEYS * MESSAGES
    for number, stretch in enumerate(stretches):
        file = IndexFileWriter.create(str(store / "index" / f"2026010100000000{number}"), 100, 400)
        picked = rows[list(stretch)]
        file.put(hashes[list(stretch)], requests.physical_offsets[picked], requests.store_timestamps[picked])
        file.flush()
        file.close()


ALL = KEYS * MESSAGES
REPEATED = {
    "whole message, in the next file": (range(40), range(38, ALL)),
    "whole message, of which the last key had no room": (range(39), range(38, ALL)),
    "whole message, at the file's end": ([*range(40), 38, 39], range(40, ALL)),
    "one key, at the file's end": ([*range(39), 38], range(39, ALL)),
    "many messages, in the next file": (range(40), range(10, ALL)),
    "many messages, over several files": (range(40), range(90), range(4, 60), range(30, ALL)),
    "many messages, at the log's end": (range(ALL), range(50, ALL)),
    "in the same file": ([*range(40), *range(38, ALL)],),
    "nothing": (range(40), range(40, ALL)),
}


@pytest.mark.parametrize("repeated", REPEATED)
def test_the_message_that_recovery_indexes_once_more_is_not_an_error(path: Path, repeated: str) -> None:
    write_index(path, *(list(stretch) for stretch in REPEATED[repeated]))  # type: ignore[arg-type]
    assert verify_store(path) == []


def test_an_entry_without_a_message_is_still_an_error(path: Path) -> None:
    write_index(path, range(40), range(36, ALL))
    flip(files(path, "index")[1], entry_offset(2, 100) + 3)  # the hash of a key that stands there again
    assert ("index.entry", "error") in checks(path)


def test_opening_fills_the_hole_that_a_dropped_index_file_leaves(path: Path) -> None:
    write_index(path, range(40), range(60, ALL))
    assert "RocketMQ drops an index file" in only(path, "index.missing-key", "note").message
    with StoreReader.open(path) as reader:
        assert reader.query("orders", "key-25") == []
    with MessageStore.open(path, CONFIG) as opened:
        assert opened.recovered is not None
    assert verify_store(path) == []
    with StoreReader.open(path) as reader:
        assert len(reader.query("orders", "key-25")) == 1


def test_opening_restores_the_only_index_file_that_a_broker_dropped(path: Path) -> None:
    """The next one begins where the broker's recovery began: at the start of a later log file."""
    write_index(path, range(60, ALL))
    missing = only(path, "index.missing-key", "note").message
    assert missing.startswith("Expected 60 keys of the messages at the physical offsets 0 to ")
    assert "RocketMQ drops an index file" in missing
    with StoreReader.open(path) as reader:
        assert reader.query("orders", "key-25") == []
    with MessageStore.open(path, CONFIG) as opened:
        assert opened.recovered is not None
    with StoreReader.open(path) as reader:
        assert [len(reader.query("orders", f"key-{number}")) for number in range(MESSAGES)] == [1] * MESSAGES


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("left", [0, 1])
def test_opening_adds_what_no_index_file_of_a_broker_holds(tmp_path: Path, left: int, keyed: bool) -> None:
    """Messages before the part that is scanned are indexed too; a store without keys is not read from its start."""
    store = tmp_path / "store"
    config = replace(CONFIG, mapped_file_size_commit_log=4 << 10, max_index_num=20)
    with MessageStore.open(store, config) as opened:
        for number in range(MESSAGES):
            keys = [f"key-{number}"] if (keyed and number < 40) or number < 10 * left else []
            opened.put_message(Message(queue_id=0, topic="orders", body=b"b" * 300, keys=keys)).raise_for_status()
    as_rocketmq_leaves_it(store)
    for file in files(store, "index")[left:]:
        file.unlink()
    assert forecast_open(store, config).start.kind is (StartKind.REBUILD if keyed else StartKind.SCAN)
    with MessageStore.open(store, config) as opened:
        assert opened.recovered is not None
        assert (opened.recovered.started_at == 0) is keyed
    with StoreReader.open(store) as reader:
        found = [len(reader.query("orders", f"key-{number}")) for number in range(MESSAGES)]
    assert found == [int((keyed and number < 40) or number < 10 * left) for number in range(MESSAGES)]


def test_messages_without_keys_before_the_index_are_not_missing_in_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with MessageStore.open(store, CONFIG) as opened:
        for number in range(MESSAGES):
            keys = ["key"] if number > 40 else []
            opened.put_message(Message(queue_id=0, topic="orders", body=b"b" * 100, keys=keys)).raise_for_status()
    as_rocketmq_leaves_it(store)
    (before,) = files(store, "index")
    content = before.read_bytes()
    MessageStore.open(store, CONFIG).close()
    assert [file.read_bytes() for file in files(store, "index")] == [content]


def test_an_index_without_a_hole_is_kept_as_it_is(path: Path) -> None:
    write_index(path, range(40), range(38, ALL))
    before = [file.read_bytes() for file in files(path, "index")]
    with MessageStore.open(path, CONFIG):
        pass
    assert [file.read_bytes() for file in files(path, "index")] == before


def test_delivery_times_that_recovery_has_lost_are_notes_however_many(tmp_path: Path) -> None:
    """RocketMQ 4.9 recovers its queues before it has read its delay levels, and writes codes of tags."""
    store, count = tmp_path / "store", FINDINGS_PER_FILE + 10
    with MessageStore.open(store, CONFIG) as opened:
        for number in range(count):
            message = Message(queue_id=0, topic="orders", body=b"%d" % number, properties={"DELAY": "18"})
            opened.put_message(message).raise_for_status()
    (queue,) = files(store, "consumequeue/SCHEDULE_TOPIC_XXXX/17")
    for number in range(count):
        damage(queue, number * UNIT_SIZE + 12, bytes(8))
    found = checks(store)
    assert found
    assert set(found) == {("queue.unit", "note")}
