"""A topic that a broker deleted stays deleted when its store is opened here, and no other topic is taken for one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog_store import FlushDiskType, Message, MessageStore, StoreReader, verify_store
from commitlog_store.errors import CorruptStoreError, TopicNotFound
from commitlog_store.format.record import field_offset
from commitlog_store.log.store_checkpoint import StoreCheckpoint
from commitlog_store.testing import kill
from tests.crash.workloads import slow_clock, small_config
from tests.support.clean_store import assert_clean

CONFIG = small_config(FlushDiskType.SYNC_FLUSH, log_size=4 << 10)
GONE, KEPT = "orders", "kept"


def put(store: MessageStore, topic: str, count: int, *, queues: int = 3) -> None:
    for number in range(count):
        body = f"{topic} {number} ".encode() * 8
        message = Message(topic=topic, body=body, queue_id=number % queues, keys=[f"{topic}-{number}"])
        store.put_message(message).raise_for_status()


def list_topics(path: Path, *topics: str) -> None:
    (path / "config").mkdir(exist_ok=True)
    (path / "config/topics.json.bak").unlink(missing_ok=True)
    table = {topic: {"topicName": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for topic in topics}
    (path / "config/topics.json").write_text(json.dumps({"topicConfigTable": table}))


def leave_as_a_broker(path: Path) -> None:
    """Without the mark, which a broker overtakes: only the checkpoint's times are left."""
    file = path / "checkpoint"
    data = file.read_bytes()
    file.write_bytes(data[:512] + bytes(len(data) - 512))
    (path / "config/createdBy.json").unlink(missing_ok=True)


def delete(path: Path, topic: str) -> None:
    shutil.rmtree(path / "consumequeue" / topic)


def broker_store(path: Path, *puts: tuple[str, int]) -> None:
    """A store that a broker has closed, with so many messages of the topics; the topic "orders" is deleted then."""
    with slow_clock(), MessageStore.open(path, CONFIG) as store:
        for topic, count in puts:
            put(store, topic, count)
    leave_as_a_broker(path)
    list_topics(path, KEPT)
    delete(path, GONE)


def flushed_up_to_file(path: Path, number: int) -> list[int]:
    """The broker is killed, and its checkpoint names the time of a log file's first message. The files' places."""
    (path / "abort").touch()
    files = sorted(int(file.name) for file in (path / "commitlog").iterdir())
    with StoreReader.open(path) as reader:
        flushed = reader.message_at(files[number]).store_timestamp
    checkpoint = StoreCheckpoint.load(str(path / "checkpoint"))
    checkpoint.restart(physic=flushed + 3_000, logics=flushed + 3_000, index=0)
    checkpoint.flush(None)
    checkpoint.close()
    return files


def ends(path: Path) -> dict[tuple[str, int], tuple[int, int]]:
    with StoreReader.open(path) as reader:
        queues = [queue for topic in reader.topics() for queue in reader.queues(topic)]
        return {(one.topic, one.queue_id): (one.min_offset, one.max_offset) for one in queues if one.max_offset}


def places(path: Path, topic: str) -> list[int]:
    with StoreReader.open(path) as reader:
        try:
            queues = reader.queues(topic)
        except TopicNotFound:
            return []
        units = [
            reader.units(topic, queue.queue_id, queue.min_offset, queue.max_offset)
            for queue in queues
            if queue.max_offset
        ]
        return sorted(int(one["physical_offset"]) for blocks in units for block in blocks for one in block)


IN_THE_MIDDLE = [(GONE, 30), (KEPT, 34), (GONE, 31), (KEPT, 7)]


def test_a_deleted_topic_stays_deleted_whatever_happens_to_the_store_later(tmp_path: Path) -> None:
    broker_store(tmp_path, *IN_THE_MIDDLE)
    kept = {(KEPT, 0): (0, 15), (KEPT, 1): (0, 13), (KEPT, 2): (0, 13)}
    assert ends(tmp_path) == kept
    assert_clean(tmp_path)
    with MessageStore.open(tmp_path, CONFIG):
        assert ends(tmp_path) == kept
    assert_clean(tmp_path)
    store = MessageStore.open(tmp_path, CONFIG)
    put(store, GONE, 4, queues=2)
    put(store, KEPT, 1)
    kill(store)
    now = kept | {(KEPT, 0): (0, 16), (GONE, 0): (0, 2), (GONE, 1): (0, 2)}
    with MessageStore.open(tmp_path, CONFIG):
        assert ends(tmp_path) == now, "the topic begins at 0, as in a broker"
    with MessageStore.open(tmp_path, CONFIG, rebuild=True) as store:
        assert ends(tmp_path) == now
        with store.reader() as reader:
            assert len(reader.query(GONE, f"{GONE}-29", limit=10)) == 2, "the index still leads to deleted messages"
    assert_clean(tmp_path)


def test_a_rebuild_that_is_interrupted_does_not_bring_the_topic_back(tmp_path: Path) -> None:
    broker_store(tmp_path, *IN_THE_MIDDLE)
    before = ends(tmp_path)

    class Interrupt(Exception):
        pass

    def interrupt(done: int, _total: int) -> None:
        raise Interrupt

    for _ in range(2):
        with pytest.raises(Interrupt):
            MessageStore.open(tmp_path, CONFIG, rebuild=True, progress=interrupt)
    with MessageStore.open(tmp_path, CONFIG):
        assert ends(tmp_path) == before
    assert_clean(tmp_path)


def test_messages_after_the_last_one_of_all_queues_come_back(tmp_path: Path) -> None:
    """A broker may not have dispatched them, so it dispatches them when it starts."""
    broker_store(tmp_path, (GONE, 30), (KEPT, 20), (GONE, 9))
    last = max(places(tmp_path, KEPT))
    findings = [one for one in verify_store(tmp_path) if one.topic == GONE]
    assert {one.severity for one in findings} == {"note"}
    assert any("opening the store writes them" in one.message for one in findings)
    with MessageStore.open(tmp_path, CONFIG):
        pass
    back = places(tmp_path, GONE)
    assert len(back) == 9
    assert min(back) > last
    assert ends(tmp_path)[GONE, 0] == (10, 13)
    assert_clean(tmp_path)


def keep_listed(path: Path) -> None:
    list_topics(path, GONE, KEPT)


def lose_the_list(path: Path) -> None:
    (path / "config/topics.json").unlink()


def spoil_the_list(path: Path) -> None:
    (path / "config/topics.json").write_text("{")


def lose_all_queues(path: Path) -> None:
    shutil.rmtree(path / "consumequeue")


def lose_the_times(path: Path) -> None:
    (path / "checkpoint").unlink()


@pytest.mark.parametrize("evidence", [keep_listed, lose_the_list, spoil_the_list, lose_all_queues, lose_the_times])
def test_a_topic_comes_back_when_it_may_have_lost_its_queues(evidence: Callable[[Path], None], tmp_path: Path) -> None:
    broker_store(tmp_path, *IN_THE_MIDDLE)
    evidence(tmp_path)
    with MessageStore.open(tmp_path, CONFIG):
        assert len(places(tmp_path, GONE)) == 61
        assert len(places(tmp_path, KEPT)) == 41
    if evidence is not spoil_the_list:
        assert_clean(tmp_path)


def test_a_topic_of_a_store_of_this_package_gets_its_lost_queues_back_listed_or_not(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        put(store, GONE, 30)
        put(store, KEPT, 20)
    list_topics(tmp_path, KEPT)
    delete(tmp_path, GONE)
    with MessageStore.open(tmp_path, CONFIG):
        assert len(places(tmp_path, GONE)) == 30
    delete(tmp_path, GONE)
    (tmp_path / "abort").touch()
    with MessageStore.open(tmp_path, CONFIG):
        assert len(places(tmp_path, GONE)) == 30
    assert_clean(tmp_path)


def test_a_topic_of_rocketmq_itself_comes_back_listed_or_not(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.put_message(Message(topic=KEPT, body=b"later", properties={"DELAY": "3"})).raise_for_status()
        put(store, KEPT, 5)
    leave_as_a_broker(tmp_path)
    list_topics(tmp_path, KEPT)
    before = ends(tmp_path)
    delete(tmp_path, "SCHEDULE_TOPIC_XXXX")
    assert ends(tmp_path) != before
    with MessageStore.open(tmp_path, CONFIG):
        assert ends(tmp_path) == before


def test_after_a_crash_a_topic_comes_back_from_the_file_on_that_may_not_be_flushed(tmp_path: Path) -> None:
    broker_store(tmp_path, *[(GONE, 20), (KEPT, 20)] * 4)
    files = flushed_up_to_file(tmp_path, 4)
    assert_clean(tmp_path)
    with MessageStore.open(tmp_path, CONFIG):
        back = places(tmp_path, GONE)
        assert back
        assert files[4] <= min(back) < files[5]
        assert len(places(tmp_path, KEPT)) == 80
    assert_clean(tmp_path)


def made_again(path: Path, *, queues: int, before: int = 60) -> None:
    """The topic was deleted and made again by a broker; its new messages are in the first queues only."""
    broker_store(path, (GONE, before), (KEPT, 20))
    # As a broker: offsets begin at 0 again, though the log has higher ones.
    with MessageStore.open(path, CONFIG) as store:
        put(store, GONE, 6 * queues, queues=queues)
        put(store, KEPT, 3)
    (path / "config/deletedTopics.json").unlink(missing_ok=True)
    (path / "config/deletedTopics.json.bak").unlink(missing_ok=True)
    leave_as_a_broker(path)
    list_topics(path, KEPT, GONE)


@pytest.mark.parametrize("queues", [1, 2, 3])
@pytest.mark.parametrize("rebuild", [False, True])
@pytest.mark.parametrize("before", [6, 60])
def test_a_topic_that_was_made_again_begins_with_its_new_messages(
    before: int, rebuild: bool, queues: int, tmp_path: Path
) -> None:
    made_again(tmp_path, queues=queues, before=before)
    there = ends(tmp_path)
    units = places(tmp_path, GONE)
    assert len(units) == 6 * queues
    assert_clean(tmp_path)
    with MessageStore.open(tmp_path, CONFIG, rebuild=rebuild):
        assert ends(tmp_path) == there
        assert places(tmp_path, GONE) == units
    assert_clean(tmp_path)
    with MessageStore.open(tmp_path, CONFIG, rebuild=True) as store:
        assert places(tmp_path, GONE) == units
        put(store, GONE, 3)
    assert_clean(tmp_path)


def _damage_first_unit(queue: Path) -> None:
    file = queue / f"{0:020d}"
    file.write_bytes(b"\xff" * 20 + file.read_bytes()[20:])


@pytest.mark.parametrize("lose", [_damage_first_unit, shutil.rmtree])
@pytest.mark.parametrize("before", [6, 60])
def test_a_topic_that_was_made_again_keeps_its_new_messages_when_queues_are_built_again(
    before: int, lose: Callable[[Path], None], tmp_path: Path
) -> None:
    """As doctor advises for such damage: the deleted messages must not take the places of the new ones."""
    made_again(tmp_path, queues=3, before=before)
    there, units = ends(tmp_path), places(tmp_path, GONE)
    for queue in sorted((tmp_path / "consumequeue" / GONE).iterdir()):
        lose(queue)
    for _ in range(2):
        with MessageStore.open(tmp_path, CONFIG, rebuild=True):
            assert ends(tmp_path) == there
            assert places(tmp_path, GONE) == units
        assert_clean(tmp_path)
    assert KEPT not in json.loads((tmp_path / "config/deletedTopics.json").read_text())["topics"]


def test_a_lone_offset_of_0_in_the_log_is_no_new_beginning(tmp_path: Path) -> None:
    """No CRC covers QUEUEOFFSET: a damaged one must not cost the messages before it."""
    with MessageStore.open(tmp_path, CONFIG) as store:
        put(store, KEPT, 30, queues=1)
    damaged = places(tmp_path, KEPT)[20]
    files = sorted((tmp_path / "commitlog").iterdir())
    file = max(one for one in files if int(one.name) <= damaged)
    with file.open("r+b") as log:
        log.seek(damaged - int(file.name) + field_offset("queue_offset"))
        log.write(bytes(8))
    shutil.rmtree(tmp_path / "consumequeue")
    with pytest.raises(CorruptStoreError, match=r"QUEUEOFFSET .* expected 20, found 0"):
        MessageStore.open(tmp_path, CONFIG)
    assert not (tmp_path / "config/deletedTopics.json").exists()


def test_a_queue_that_was_removed_by_hand_begins_again_and_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    """A broker gives the offsets of that queue again; the other queues of the topic have all of their messages."""
    with MessageStore.open(tmp_path, CONFIG) as store:
        put(store, KEPT, 30)
    shutil.rmtree(tmp_path / "consumequeue" / KEPT / "1")
    before = places(tmp_path, KEPT)
    (tmp_path / "config/deletedTopics.json").write_text(
        json.dumps({"topics": {KEPT: {"before": 0, "ends": {}, "queuesFrom": {"1": 1 << 20}}}})
    )
    leave_as_a_broker(tmp_path)
    list_topics(tmp_path, KEPT)
    with MessageStore.open(tmp_path, CONFIG) as store:
        (tmp_path / "config/deletedTopics.json").unlink()
        put(store, KEPT, 6)
    (tmp_path / "config/deletedTopics.json.bak").unlink(missing_ok=True)
    leave_as_a_broker(tmp_path)
    there = ends(tmp_path)
    assert there == {(KEPT, 0): (0, 12), (KEPT, 1): (0, 2), (KEPT, 2): (0, 12)}
    with MessageStore.open(tmp_path, CONFIG, rebuild=True):
        assert ends(tmp_path) == there
        assert set(before) < set(places(tmp_path, KEPT))
    assert_clean(tmp_path)


def test_a_second_broker_that_crashes_does_not_bring_back_what_the_first_one_deleted(tmp_path: Path) -> None:
    broker_store(tmp_path, *[(GONE, 20), (KEPT, 20)] * 4)
    with MessageStore.open(tmp_path, CONFIG) as store:
        put(store, KEPT, 3)
    kept = ends(tmp_path)
    leave_as_a_broker(tmp_path)
    # Its recovery begins at an earlier file than the place at which the store was taken over from the first one.
    flushed_up_to_file(tmp_path, 4)
    with MessageStore.open(tmp_path, CONFIG, rebuild=True):
        assert ends(tmp_path) == kept
    assert_clean(tmp_path)


def test_what_a_second_broker_deleted_stays_deleted_too(tmp_path: Path) -> None:
    broker_store(tmp_path, *[(GONE, 20), (KEPT, 20)] * 4)
    with MessageStore.open(tmp_path, CONFIG) as store:
        put(store, GONE, 9)
        put(store, "late", 9)
        put(store, KEPT, 3)
    leave_as_a_broker(tmp_path)
    list_topics(tmp_path, KEPT, GONE)
    delete(tmp_path, "late")
    left = ends(tmp_path)
    for _ in range(2):
        with MessageStore.open(tmp_path, CONFIG, rebuild=True):
            assert ends(tmp_path) == left
    assert_clean(tmp_path)
