"""ScheduleMessageService: delayed messages reach their topics when they are due, each once, and nothing blocks them."""

from __future__ import annotations

import json
import logging
import shutil
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import MessageExtBrokerInner, MessageStore, StoreReader
from commitlog_store.batch_id import BatchId, schedule_application
from commitlog_store.delayed.levels import DelayOffsetFile
from commitlog_store.errors import InvalidValue
from commitlog_store.files import disk
from commitlog_store.files.limits import DiskUse
from commitlog_store.format.properties import decode_properties
from commitlog_store.testing import kill, parts_of
from tests.store.owner.owned_store import open_store, put_ok, small
from tests.support.clean_store import assert_clean
from tests.support.delayed import Deliverer, bodies_of, delayed
from tests.support.waiting import wait_for

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def without_service(path: Path, **settings: object) -> MessageStore:
    return open_store(path, schedule_enable=False, **settings)


def waiting_calls(store: MessageStore, body: bytes, properties: dict[str, str], level: int = 1) -> None:
    """Put a message into a level's queue as it is, whatever its properties."""
    message = MessageExtBrokerInner(topic=SCHEDULE, queue_id=level - 1, body=body, properties=properties)
    assert store.put_message(message).ok


def test_a_message_is_delivered_when_it_is_due_and_not_before(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        deliverer = Deliverer(store)
        result = store.put_message(delayed(b"late", 3))
        deliverer.now = result.store_timestamp / 1000 + 9.5
        assert deliverer.step() == pytest.approx(0.5, abs=0.01)
        assert bodies_of(store.path) == []
        deliverer.now = result.store_timestamp / 1000 + 10
        assert deliverer.step() == 0
        assert bodies_of(store.path) == [b"late"]
        assert deliverer.step() == 1.0
        assert bodies_of(store.path) == [b"late"]


def test_the_copy_has_everything_of_the_original_and_is_not_delayed_again(tmp_path: Path) -> None:
    given = MessageExtBrokerInner(
        topic="orders",
        body=b"paid",
        queue_id=2,
        flag=7,
        tags="paid",
        keys=["k1"],
        properties={"DELAY": "1", "UNIQ_KEY": "U1", "colour": "red"},
        born_host="2001:db8::1:99",
        born_timestamp=1_600_000_000_123,
        reconsume_times=3,
    )
    with without_service(tmp_path) as store:
        deliverer = Deliverer(store)
        waits = store.put_message(given)
        assert waits.ok, waits
        deliverer.everything()
        with StoreReader.open(store.path) as reader:
            original = reader.message_at(waits.physical_offset)
            (copy,) = reader.query("orders", "U1")
            units = next(reader.units("orders", 2, 0, 1))
        assert (copy.topic, copy.queue_id, copy.queue_offset) == ("orders", 2, 0)
        assert copy.properties == original.properties
        assert {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "2"}.items() <= copy.properties.items()
        for name in ("body", "flag", "sys_flag", "born_host", "born_timestamp", "store_host", "reconsume_times"):
            assert getattr(copy, name) == getattr(original, name), name
        assert copy.store_timestamp >= original.store_timestamp
        assert int(units["tags_code"][0]) == 3433164  # "paid".hashCode(), and not a time
        assert bodies_of(store.path, tags="paid") == [b"paid"]
        assert bodies_of(store.path, tags="refunded") == []
        assert store.stats().delayed_delivered == 1


def test_messages_of_a_level_keep_their_order_in_every_queue(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        deliverer = Deliverer(store)
        numbers = list(range(500))
        store.put_messages(
            pa.table(
                {
                    "topic": ["orders" if n % 3 else "audit" for n in numbers],
                    "body": [b"%d" % n for n in numbers],
                    "queueId": pa.array([n % 2 for n in numbers], pa.int32()),
                    "delayLevel": pa.array([2] * len(numbers), pa.int32()),
                }
            )
        ).raise_for_status()
        deliverer.everything()
        for topic, chosen in (("orders", [n for n in numbers if n % 3]), ("audit", [n for n in numbers if not n % 3])):
            in_order = sorted(chosen, key=lambda n: (n % 2, n))
            assert bodies_of(store.path, topic) == [b"%d" % n for n in in_order]
    assert_clean(tmp_path)


def test_hosts_of_several_kinds_are_copied_each_as_it_is(tmp_path: Path) -> None:
    hosts = ["10.0.0.1:1", "2001:db8:0:0:0:0:0:1:2", "10.0.0.2:3", "2001:db8:0:0:0:0:0:2:4", "10.0.0.3:5"]
    with without_service(tmp_path) as store:
        deliverer = Deliverer(store)
        for host in hosts:
            given = MessageExtBrokerInner(topic="orders", body=host.encode(), properties={"DELAY": "1"}, born_host=host)
            assert store.put_message(given).ok
        deliverer.everything()
        assert bodies_of(store.path) == [host.encode() for host in hosts]
        with StoreReader.open(store.path) as reader:
            (batch,) = reader.read("orders", 0, 0, columns=["bornHost"])
        assert batch.column("bornHost").to_pylist() == hosts


def test_a_poisoned_message_is_reported_and_blocks_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bad = {
        "no topic": {"DELAY": "1", "REAL_QID": "0"},
        "no queue": {"DELAY": "1", "REAL_TOPIC": "orders"},
        "no number": {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "first"},
        "negative": {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "-1"},
        "too large": {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "2147483648"},
        "a path": {"DELAY": "1", "REAL_TOPIC": "../orders", "REAL_QID": "0"},
        "half": {"DELAY": "1", "REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
        "again": {"DELAY": "1", "REAL_TOPIC": SCHEDULE, "REAL_QID": "0"},
        "a frame": {"DELAY": "1", "REAL_TOPIC": "rmq_sys_commitlog_batch", "REAL_QID": "0"},
        "long": {"DELAY": "1", "REAL_TOPIC": "t" * 300, "REAL_QID": "0"},
    }
    with without_service(tmp_path) as store, caplog.at_level(logging.WARNING):
        deliverer = Deliverer(store)
        put_ok(store, body=b"first", properties={"DELAY": "1"})
        for name, properties in bad.items():
            waiting_calls(store, name.encode(), properties)
        put_ok(store, body=b"last", properties={"DELAY": "1"})
        deliverer.everything()
        assert bodies_of(store.path) == [b"first", b"last"]
        assert (store.stats().delayed_delivered, store.stats().delayed_skipped) == (2, len(bad))
        assert "it has no REAL_TOPIC: offset 1 of its queue" in caplog.text
        deliverer.service.save()
        assert DelayOffsetFile(store.path).read() == {1: 2 + len(bad)}


def test_a_damaged_record_is_skipped_and_its_neighbours_are_delivered(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        deliverer = Deliverer(store)
        places = [store.put_message(delayed(b"body %d" % n)).physical_offset for n in range(9)]
        store.flush()
        with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as log:
            log.seek(places[2] + 88)  # a byte of the body, and of a magic code
            log.write(b"B")
            log.seek(places[6] + 4)
            log.write(b"\0")
        deliverer.everything()
        assert bodies_of(store.path) == [b"body %d" % n for n in range(9) if n not in (2, 6)]
        assert store.stats().delayed_skipped == 2
        with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as log:
            log.seek(places[2] + 88)
            log.write(b"b")
            log.seek(places[6] + 4)
            log.write(b"\xda")


def test_a_backlog_goes_out_in_several_frames_of_bounded_size(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        deliverer = Deliverer(store, frame_bytes=4_000, piece_bytes=1_000)
        for number in range(60):
            store.put_message(delayed(b"%02d" % number * 100))
            store.put_message(delayed(b"other", 1, "audit"))
        deliverer.everything()
        assert bodies_of(store.path) == [b"%02d" % number * 100 for number in range(60)]
        with StoreReader.open(store.path) as reader:
            assert reader.queue_info("rmq_sys_commitlog_batch", 0).max_offset > 5
            (level,) = reader.delay_levels()
            assert (level.level, level.waiting, level.position, level.delay) == (1, 0, 120, 1000)
    assert_clean(tmp_path)


def test_a_restart_in_the_middle_of_a_backlog_continues_there(tmp_path: Path) -> None:
    expected = [b"%02d" % number * 50 for number in range(40)]
    with without_service(tmp_path) as store:
        for body in expected:
            store.put_message(delayed(body))
    for turn in range(4):
        store = without_service(tmp_path)
        deliverer = Deliverer(store, frame_bytes=2_000)
        deliverer.now += 3600
        assert deliverer.step() == 0
        if turn % 2:
            kill(store)  # delayOffset.json lacks this delivery, the ledger has it
        else:
            deliverer.service.save()
            store.close()
    with without_service(tmp_path) as store:
        assert 0 < len(bodies_of(store.path)) < len(expected)
        Deliverer(store).everything()
        assert bodies_of(store.path) == expected


def test_a_position_that_a_broker_moved_on_counts(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        for number in range(10):
            store.put_message(delayed(b"%d" % number))
        deliverer = Deliverer(store)
    DelayOffsetFile(str(tmp_path)).write({1: 7, 5: 3})
    with without_service(tmp_path) as store:
        deliverer = Deliverer(store)
        deliverer.everything()
        assert bodies_of(store.path) == [b"7", b"8", b"9"]
        deliverer.service.save()
    # Level 5 has no queue: the offset of its first message will be 0.
    assert DelayOffsetFile(str(tmp_path)).read() == {1: 10, 5: 0}
    DelayOffsetFile(str(tmp_path)).write({1: 2})  # an older copy: the ledger knows better
    with without_service(tmp_path) as store:
        Deliverer(store).everything()
        assert bodies_of(store.path) == [b"7", b"8", b"9"]


def test_the_offsets_are_written_as_brokers_write_them(tmp_path: Path) -> None:
    path = tmp_path / "config" / "delayOffset.json"
    with without_service(tmp_path) as store:
        deliverer = Deliverer(store)
        store.put_message(delayed(b"a", 1))
        store.put_message(delayed(b"b", 3))
        deliverer.everything()
        assert path.read_text() == '{\n\t"offsetTable":{\n\t\t1:1,\n\t\t3:1\n\t}\n}', "the interval has passed"
        version = '"dataVersion":{"counter":4,"stateVersion":9,"timestamp":5}'
        path.write_text("{" + version + ',"offsetTable":{1:1,3:1},"unknown":[1]}')
        store.put_message(delayed(b"c", 3))
        deliverer.everything()
    text = path.read_text()
    assert "3:2" in text
    found = json.loads(text.replace("1:1", '"1":1').replace("3:2", '"3":2'))
    assert found["offsetTable"] == {"1": 1, "3": 2}
    assert (found["dataVersion"]["counter"], found["dataVersion"]["stateVersion"], found["unknown"]) == (5, 9, [1])
    assert (tmp_path / "config" / "delayOffset.json.bak").exists()


def test_a_clock_that_was_set_back_makes_a_message_due_at_once(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        deliverer = Deliverer(store)
        store.put_message(delayed(b"in an hour", 17))
        deliverer.now -= 7200
        assert deliverer.step() == 0
        assert bodies_of(store.path) == [b"in an hour"]


def test_a_clock_that_was_set_forward_is_noticed_within_a_second(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        deliverer = Deliverer(store)
        store.put_message(delayed(b"in two hours", 18))
        assert deliverer.step() <= 1.0
        deliverer.now += 7201
        assert deliverer.step() == 0
        assert bodies_of(store.path) == [b"in two hours"]


def test_a_full_disk_leaves_the_message_waiting_and_the_store_writable(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        deliverer = Deliverer(store)
        store.put_message(delayed(b"a"))
        deliverer.now += 60
        watermark = parts_of(store).engine.watermark
        with pytest.MonkeyPatch.context() as patch:
            # Not by its result: the service looks again after each file that is made.
            patch.setattr(watermark, "_disk_use", lambda: DiskUse(store.path, 1.0))
            watermark.run_once()
            assert 0 < deliverer.step() < 1
        watermark.run_once()
        with pytest.MonkeyPatch.context() as patch:

            def full(*_: object) -> None:
                raise OSError(28, "No space left on device")

            patch.setattr(disk, "allocate", full)
            while store.physical_bounds()[1] < (15 << 10):
                put_ok(store, "filler", b"f" * 500)
            assert deliverer.step() > 0 or bodies_of(store.path) == [b"a"]
        assert store.writable
        deliverer.everything()
        assert bodies_of(store.path) == [b"a"]


def test_a_store_that_is_not_writable_delivers_nothing(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        deliverer = Deliverer(store)
        store.put_message(delayed(b"a"))
        deliverer.now += 60
        store.set_writable(False)
        assert deliverer.step() > 0
        assert bodies_of(store.path) == []
        store.set_writable(True)
        assert deliverer.step() == 0
        assert bodies_of(store.path) == [b"a"]


def test_damaged_offsets_stop_the_delivery_until_they_are_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with without_service(tmp_path) as store:
        deliverer = Deliverer(store)
        store.put_message(delayed(b"a"))
        path = tmp_path / "config" / "delayOffset.json"
        path.write_text('{"offsetTable":{1:-3}}')
        deliverer.now += 60
        assert deliverer.step() == 10.0
        assert bodies_of(store.path) == []
        assert "delayOffset.json" in caplog.text
        path.unlink()
        assert deliverer.step() == 0
        assert bodies_of(store.path) == [b"a"]


def test_a_queue_that_was_begun_again_is_delivered_from_its_start_on(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        deliverer = Deliverer(store)
        for number in range(3):
            store.put_message(delayed(b"%d" % number))
        deliverer.everything()
        store.put_message(delayed(b"old"))
        store.dispatch()
        DelayOffsetFile(store.path).write({1: 50})
        owned = parts_of(store)
        owned.engine.run(lambda: owned.engine.batches.commit_blocks(BatchId(schedule_application(1), 50), []))
        deliverer = Deliverer(store)
        deliverer.everything()
        assert store.stats().delayed_delivered == 3, "the queue ended before the position: nothing is due"
        store.put_message(delayed(b"newer"))
        deliverer.everything()
        assert bodies_of(store.path) == [b"0", b"1", b"2", b"newer"]


def test_a_position_after_the_end_passes_no_message_that_came_after_the_opening(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        store.put_message(delayed(b"known"))
    # As after the loss of the log's end: level 1 goes on after its queue, level 2 has no queue at all.
    DelayOffsetFile(str(tmp_path)).write({1: 5, 2: 5})
    with without_service(tmp_path) as store:
        deliverer = Deliverer(store)
        store.put_message(delayed(b"first"))
        store.put_message(delayed(b"second", 2))
        deliverer.everything()
        assert sorted(bodies_of(store.path)) == [b"first", b"second"]


def test_the_stores_own_batches_are_hidden_and_cannot_be_taken(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        store.put_message(delayed(b"a"))
        Deliverer(store).everything()
        assert store.batches() == []
        with StoreReader.open(store.path) as reader:
            assert reader.batches() == []
        with pytest.raises(InvalidValue, match="belongs to the store"):
            store.transaction("rmq-schedule/1", version=1)


def test_a_store_delivers_by_itself_soon_after_a_message_is_due(tmp_path: Path) -> None:
    with open_store(tmp_path, message_delay_level="1s 0s") as store:
        put_ok(store, body=b"now", properties={"DELAY": "2"})
        waits = put_ok(store, body=b"soon", queue_id=1, properties={"DELAY": "1"})
        assert store.wait_for_messages("orders", 0, 0, timeout_s=100)
        assert store.wait_for_messages("orders", 1, 0, timeout_s=100)
        assert time.time() * 1000 >= waits.store_timestamp + 1000
    assert DelayOffsetFile(str(tmp_path)).read() == {1: 1, 2: 1}
    assert sorted(bodies_of(str(tmp_path))) == [b"now", b"soon"]


def test_messages_of_a_transaction_are_delivered_once_it_is_committed(tmp_path: Path) -> None:
    table = pa.table({"topic": ["orders"], "body": [b"x"], "delayLevel": pa.array([1], pa.int32())})
    with without_service(tmp_path) as store:
        deliverer = Deliverer(store)
        with store.transaction("app", 1) as batch:
            batch.put_messages(table)
            deliverer.everything()
            assert bodies_of(store.path) == []
        deliverer.everything()
        assert bodies_of(store.path) == [b"x"]
        assert [one.batch.app_id for one in store.batches()] == ["app"]


@pytest.mark.parametrize("name", ["rocketmq-5.3.3", "rocketmq-4.9.8-crashed"])
def test_a_store_of_rocketmq_is_left_to_its_broker_unless_asked_for(name: str, tmp_path: Path) -> None:
    golden = Path(__file__).resolve().parents[2] / "golden" / name / "store"
    shutil.copytree(golden, tmp_path / "store")
    with MessageStore.open(tmp_path / "store", small()) as store:
        put_ok(store, body=b"later", properties={"DELAY": "1"})
    with without_service(tmp_path / "store") as store:
        left = Deliverer(store, enabled=None)
        left.everything()
        assert (store.stats().delayed_delivered, store.stats().delayed_skipped) == (0, 0)
        with StoreReader.open(store.path) as reader:
            waits = sum(level.waiting for level in reader.delay_levels())
        Deliverer(store).everything()
        stats = store.stats()
        assert stats.delayed_delivered + stats.delayed_skipped == waits
        assert stats.delayed_delivered > 0
    assert_clean(tmp_path / "store")


def test_a_store_that_a_broker_took_over_is_left_to_it(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        store.put_message(delayed(b"a"))
        config = tmp_path / "config"
        (config / "topics.json").write_text('{"topicConfigTable":{"TBW102":{"topicName":"TBW102"}}}')
        Deliverer(store, enabled=None).everything()
        assert bodies_of(store.path) == []
        (config / "topics.json").unlink()
        Deliverer(store, enabled=None).everything()
        assert bodies_of(store.path) == [b"a"]


def test_a_checksum_of_the_waiting_record_is_left_out_of_the_copy(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        real = {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"}
        waiting_calls(store, b"with", {**real, "__CRC32#": "123"})
        waiting_calls(store, b"without", real)
        Deliverer(store).everything()
        with StoreReader.open(store.path) as reader:
            (batch,) = reader.read("orders", 0, 0, columns=["properties"])
        assert [dict(row["properties"]) for row in batch.to_pylist()] == [real, real]
        assert decode_properties(b"") == {}


def test_a_delivery_before_a_close_leaves_nothing_to_recover(tmp_path: Path) -> None:
    with open_store(tmp_path, message_delay_level="0s") as store:
        put_ok(store, body=b"a", properties={"DELAY": "1"})
        wait_for(lambda: store.stats().delayed_delivered == 1)
    with without_service(tmp_path) as store:
        assert store.recovered is None
        assert bodies_of(store.path) == [b"a"]


def test_retention_learns_where_the_first_waiting_message_lies(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        deliverer = Deliverer(store)
        waiting_from = partial(parts_of(store).engine.run, deliverer.service.waiting_from)
        assert waiting_from() == {}
        store.put_message(delayed(b"soon", 1))
        later = store.put_message(delayed(b"later", 5))
        store.dispatch()
        assert waiting_from() == {1: 0, 5: later.physical_offset}
        deliverer.everything(ahead_s=2)
        assert waiting_from() == {5: later.physical_offset}
        deliverer.everything()
        assert waiting_from() == {}


def test_a_message_of_a_level_that_the_settings_lack_waits_for_its_time(tmp_path: Path) -> None:
    """RocketMQ delivers none of such a level; a delay that is not known makes no time too far ahead."""
    with without_service(tmp_path) as store:
        result = store.put_message(delayed(b"in two hours", 18))
    with without_service(tmp_path, message_delay_level="1s 2s") as store:
        deliverer = Deliverer(store)
        deliverer.now = result.store_timestamp / 1000 + 7199
        assert deliverer.step() > 0
        assert bodies_of(store.path) == []
        deliverer.now += 1
        assert deliverer.step() == 0
        assert bodies_of(store.path) == [b"in two hours"]


def test_a_level_above_the_highest_counts_as_the_highest(tmp_path: Path) -> None:
    with without_service(tmp_path, message_delay_level="5s 8s") as store:
        deliverer = Deliverer(store)
        result = store.put_message(delayed(b"a", 3))
        with StoreReader.open(store.path) as reader:
            store.dispatch()
            assert reader.queue_info(SCHEDULE, 1).max_offset == 1
        deliverer.now = result.store_timestamp / 1000 + 7.9
        assert deliverer.step() > 0
        deliverer.now += 0.1
        assert deliverer.step() == 0
        assert bodies_of(store.path) == [b"a"]


def test_a_unit_with_a_hash_code_for_a_time_is_due_by_its_record(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        result = store.put_message(delayed(b"a", 3, tags="paid"))
    unit = tmp_path / "consumequeue" / SCHEDULE / "2" / f"{0:020d}"
    data = bytearray(unit.read_bytes())
    data[12:20] = (3433164).to_bytes(8, "big")  # as RocketMQ 4 writes it while it recovers
    unit.write_bytes(data)
    with without_service(tmp_path) as store:
        deliverer = Deliverer(store)
        deliverer.now = result.store_timestamp / 1000 + 9
        assert deliverer.step() > 0
        assert bodies_of(store.path) == []
        deliverer.now += 1
        assert deliverer.step() == 0
        assert bodies_of(store.path) == [b"a"]
