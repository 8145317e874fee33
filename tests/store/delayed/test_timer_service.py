"""TimerMessageService: timer messages reach their topics at their time, each once, whatever happens in between."""

from __future__ import annotations

import random
import shutil
import time
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import pytest

from commitlog_store import Message, MessageExtBrokerInner, MessageStore, PutMessageStatus, StoreReader, connect
from commitlog_store.delayed.timer_check import TimerCheckFile
from commitlog_store.errors import InvalidValue, PutRefused
from commitlog_store.files.limits import DiskUse
from commitlog_store.format.properties import TIMER_DELIVER_MS, TIMER_OUT_MS
from commitlog_store.format.timer_messages import TIMER_TOPIC, out_ms
from commitlog_store.testing import kill, parts_of
from tests.store.owner.owned_store import open_store, put_ok
from tests.store.serve.servers import served
from tests.support.clean_store import assert_clean
from tests.support.delayed import Deliverer, bodies_of, timer_of
from tests.support.waiting import wait_for

MS = 1000


def without_service(path: Path, **settings: object) -> MessageStore:
    return open_store(path, schedule_enable=False, mapped_file_size_timer_log=1_040, **settings)


def put_at(store: MessageStore, due_ms: int, body: bytes, topic: str = "orders", queue_id: int = 0) -> None:
    store.put_message(Message(topic=topic, body=body, queue_id=queue_id, deliver_at=due_ms)).raise_for_status()


def now_ms() -> int:
    return int(time.time() * MS)


def at(deliverer: Deliverer, ms: int) -> None:
    """Set the clock and do all that is due."""
    deliverer.now = ms / MS
    while deliverer.step() == 0:
        pass


def end(deliverer: Deliverer) -> None:
    """Close the store as its own service would."""
    store = deliverer.store
    parts_of(store).engine.run(deliverer.service.save)
    deliverer.service.close()
    store.close()


def test_a_message_is_delivered_at_its_millisecond_and_not_before(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        deliverer, due = timer_of(store), now_ms() + 5_250
        put_at(store, due, b"later")
        at(deliverer, due - 1)
        assert bodies_of(store.path) == []
        assert deliverer.step() == pytest.approx(0.001)
        at(deliverer, due)
        assert bodies_of(store.path) == [b"later"]
        at(deliverer, due + 86_400_000)
        assert bodies_of(store.path) == [b"later"]


def test_messages_are_delivered_in_the_order_of_time_then_of_puts(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        deliverer, begun = timer_of(store), now_ms()
        for delay in (9_000, 3_000, 6_001, 6_000, 3_000, 7_200_000):
            put_at(store, begun + delay, b"%d" % delay)
        at(deliverer, begun + 10_000_000)
        assert bodies_of(store.path) == [b"3000", b"3000", b"6000", b"6001", b"9000", b"7200000"]


@pytest.mark.parametrize(
    ("given", "least", "most"),
    [
        ({"delay": timedelta(milliseconds=61_500)}, 61_500, 62_000),
        ({"delay": "90s"}, 90_000, 90_500),
        ({"properties": {"TIMER_DELAY_SEC": "100"}}, 100_000, 100_500),
        ({"properties": {"TIMER_DELAY_MS": "100"}}, 100, 600),
    ],
)
def test_a_delay_counts_from_the_put(tmp_path: Path, given: dict[str, object], least: int, most: int) -> None:
    with without_service(tmp_path) as store:
        deliverer = timer_of(store)
        stored = store.put("orders", b"later", **given).store_timestamp  # type: ignore[arg-type]
        at(deliverer, stored + least - 1_000)
        assert bodies_of(store.path) == []
        at(deliverer, stored + most)
        assert bodies_of(store.path) == [b"later"]


def test_the_message_waits_as_rocketmq_stores_it_and_the_copy_keeps_its_properties(tmp_path: Path) -> None:
    due = datetime.now(timezone.utc) + timedelta(hours=1)
    due_ms = int(due.timestamp() * MS)
    with without_service(tmp_path) as store:
        result = store.put("orders", b"x", queue_id=3, keys="k", deliver_at=due)
        store.dispatch()
        with store.reader() as reader:
            waiting = reader.message_at(result.physical_offset)
            assert (waiting.topic, waiting.queue_id) == (TIMER_TOPIC, 0)
            expected = {TIMER_DELIVER_MS: str(due_ms), TIMER_OUT_MS: str(out_ms(due_ms)), "KEYS": "k"}
            assert waiting.properties == expected | {"REAL_TOPIC": "orders", "REAL_QID": "3"}
        timer_of(store).everything()
        with store.reader() as reader:
            (copy,) = reader.query("orders", "k")
        assert (copy.queue_id, copy.properties) == (3, waiting.properties)


def test_whole_seconds_have_the_slot_before_them_as_in_rocketmq() -> None:
    assert [out_ms(due) for due in (10_000, 10_001, 10_999, 11_000)] == [9_000, 10_000, 10_000, 10_000]


def test_a_time_that_has_passed_stores_the_message_at_once(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        put_at(store, now_ms() - 1, b"now")
        store.dispatch()
        assert bodies_of(store.path) == [b"now"]


@pytest.mark.parametrize(
    "properties",
    [{"TIMER_DELAY_SEC": "259300"}, {"TIMER_DELIVER_MS": str(2**62)}, {"TIMER_DELAY_MS": "soon"}],
)
def test_a_time_too_far_ahead_is_refused_as_rocketmq_refuses_it(tmp_path: Path, properties: dict[str, str]) -> None:
    with without_service(tmp_path) as store:
        message = Message(topic="orders", body=b"x", properties=properties)
        inner = MessageExtBrokerInner(topic="orders", body=b"x", properties=properties)
        for one in (message, inner):
            assert store.put_message(one).status is PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL
        table = store.put_messages([message])
        assert table.status is PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL
        assert store.physical_bounds()[1] == 0


def test_the_longest_delay_is_a_setting_of_at_most_seven_days(tmp_path: Path) -> None:
    with without_service(tmp_path, timer_max_delay_sec=30 * 86_400) as store:
        store.put("orders", b"x", delay="7d")
        with pytest.raises(PutRefused, match="the most is 604,800 s"):
            store.put("orders", b"x", delay=timedelta(days=7, milliseconds=1))


def test_wrong_times_are_mistakes_of_the_program(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        for wrong in ("tomorrow", "0", "2h", timedelta(hours=1), True, 1.5):
            with pytest.raises(InvalidValue, match="deliver_at"):
                store.put("orders", b"x", deliver_at=wrong)  # type: ignore[arg-type]
        for naive in (datetime(2030, 1, 1), 1_900_000_000):  # noqa: DTZ001 - that is what is refused
            with pytest.raises(PutRefused, match="deliver_at"):
                store.put("orders", b"x", deliver_at=naive)
        with pytest.raises(InvalidValue, match="give one of them"):
            store.put("orders", b"x", delay=3, deliver_at=now_ms() + 9)
        with pytest.raises(InvalidValue, match="whole milliseconds"):
            store.put("orders", b"x", delay=timedelta(microseconds=1))
        with pytest.raises(PutRefused, match="TIMER_DEL_UNIQKEY"):
            store.put("orders", b"x", properties={"TIMER_DEL_UNIQKEY": "orders+k"})


def test_rows_of_a_table_wait_as_single_messages_do(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        due = now_ms() + 60_000
        rows = [
            Message(topic="orders", body=b"by time", queue_id=0, deliver_at=due),
            {"topic": "orders", "body": b"by delay", "queueId": 0, "properties": {"TIMER_DELAY_SEC": "50"}},
            {"topic": "orders", "body": b"at once", "queueId": 0},
            {
                "topic": "orders",
                "body": b"level",
                "queueId": 0,
                "delayLevel": 1,
                "properties": {"TIMER_DELAY_SEC": "9"},
            },
        ]
        store.put_messages(rows).raise_for_status()
        with store.transaction("loader", version=1) as batch:
            batch.put_messages([Message(topic="orders", body=b"staged", queue_id=0, deliver_at=due + 1)])
        store.dispatch()
        assert bodies_of(store.path) == [b"at once"]
        timer_of(store).everything()
        assert bodies_of(store.path) == [b"at once", b"by delay", b"by time", b"staged"]


def test_a_message_that_comes_when_its_time_has_passed_is_delivered_at_once(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        deliverer, begun = timer_of(store), now_ms()
        put_at(store, begun + 60_000, b"first")
        at(deliverer, begun + 60_000)
        put_at(store, begun + 30_000, b"late")
        put_at(store, begun + 90_000, b"later")
        at(deliverer, begun + 60_001)
        assert bodies_of(store.path) == [b"first", b"late"]
        kill(store)
    with without_service(tmp_path) as store:
        timer_of(store).everything()
        assert bodies_of(store.path) == [b"first", b"late", b"later"]


def test_a_backlog_of_one_second_goes_out_in_several_frames_and_survives_kills(tmp_path: Path) -> None:
    due, expected = now_ms() + 5_500, [b"%03d" % number * 20 for number in range(120)]
    store = without_service(tmp_path)
    for body in expected:
        put_at(store, due, body)
    for _ in range(5):
        deliverer = timer_of(store, frame_bytes=2_000, flush_interval_ms=1)
        deliverer.now = due / MS
        deliverer.step()
        deliverer.step()
        kill(store)
        store = without_service(tmp_path)
    with store:
        assert 0 < len(bodies_of(store.path)) < len(expected)
        timer_of(store).everything()
        assert bodies_of(store.path) == expected
    assert_clean(tmp_path)


@pytest.mark.parametrize("lost", ["timerlog", "config/timercheck", "both"])
def test_a_lost_timer_log_is_made_again_and_nothing_is_repeated(tmp_path: Path, lost: str) -> None:
    begun = now_ms()
    store = without_service(tmp_path)
    deliverer = timer_of(store)
    for number in range(60):
        put_at(store, begun + 5_000 + number * 100, b"%d" % number)
    at(deliverer, begun + 8_000)
    assert 0 < len(bodies_of(store.path)) < 60
    end(deliverer)
    for name in ("timerlog", "config/timercheck") if lost == "both" else (lost,):
        path = tmp_path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with without_service(tmp_path) as store:
        timer_of(store).everything()
        assert bodies_of(store.path) == [b"%d" % number for number in range(60)]


def test_what_one_owner_took_in_and_the_next_delivered_counts_as_delivered(tmp_path: Path) -> None:
    """The ledger of a frame says up to where messages were judged: also of those that an owner before had taken in."""
    begun = now_ms()
    store = without_service(tmp_path)
    deliverer = timer_of(store, flush_interval_ms=1)
    put_at(store, begun + 5_000, b"before")
    at(deliverer, begun + 5_000)
    put_at(store, begun + 6_000, b"once")
    at(deliverer, begun + 5_500)  # it is in the timer log, and the checkpoint says so
    kill(store)
    store = without_service(tmp_path)
    at(timer_of(store), begun + 6_000)
    with StoreReader.open(tmp_path) as reader:
        assert not reader.waiting_timers().num_rows
    kill(store)
    shutil.rmtree(tmp_path / "timerlog")
    (tmp_path / "config" / "timercheck").unlink()
    with without_service(tmp_path) as store:
        timer_of(store).everything()
        assert bodies_of(store.path) == [b"before", b"once"]


@pytest.mark.parametrize("damage", ["a unit", "short"])
def test_a_damaged_timer_log_is_made_again(tmp_path: Path, damage: str) -> None:
    begun = now_ms()
    store = without_service(tmp_path)
    for number in range(30):
        put_at(store, begun + 5_000 + number * 100, b"%d" % number)
    deliverer = timer_of(store)
    at(deliverer, begun + 6_500)
    end(deliverer)
    log = tmp_path / "timerlog" / ("0" * 20)
    data = bytearray(log.read_bytes())
    data[18 * 52 : 19 * 52] = bytes(52)
    log.write_bytes(data if damage == "a unit" else b"x" * 10)
    with without_service(tmp_path) as store:
        timer_of(store).everything()
        assert bodies_of(store.path) == [b"%d" % number for number in range(30)]


def test_units_that_the_checkpoint_does_not_count_are_cut_off(tmp_path: Path) -> None:
    begun = now_ms()
    store = without_service(tmp_path)
    deliverer = timer_of(store, flush_interval_ms=1)
    put_at(store, begun + 5_000, b"counted")
    at(deliverer, begun)
    deliverer.now += 1
    deliverer.step()
    own = TimerCheckFile(store.path).read()
    put_at(store, begun + 6_000, b"not counted")
    deliverer.service._flush_interval_s = 1e9
    deliverer.step()
    assert own is not None
    assert own.own is not None
    assert own.own.queue_offset == 1
    kill(store)
    log = tmp_path / "timerlog" / ("0" * 20)
    torn = bytearray(log.read_bytes())
    torn[own.own.end + 20 : own.own.end + 60] = b"\xff" * 40
    log.write_bytes(torn)
    with without_service(tmp_path) as store:
        timer_of(store).everything()
        assert bodies_of(store.path) == [b"counted", b"not counted"]


def test_a_poisoned_message_is_reported_and_blocks_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with without_service(tmp_path) as store:
        put_at(store, now_ms() + 5_000, b"good")
        for properties in (
            {},
            {"TIMER_OUT_MS": "soon"},
            {"TIMER_OUT_MS": "1"},
            {"TIMER_OUT_MS": "1", "REAL_TOPIC": "a"},
        ):
            store.put_message(MessageExtBrokerInner(topic=TIMER_TOPIC, body=b"bad", properties=properties))
        put_at(store, now_ms() + 5_000, b"fine")
        timer_of(store).everything()
        assert bodies_of(store.path) == [b"good", b"fine"]
        assert store.stats().delayed_skipped == 4
    assert "a timer message is not delivered, since it has no TIMER_OUT_MS" in caplog.text
    assert "it has no REAL_TOPIC" in caplog.text


def test_retention_learns_where_the_first_waiting_message_lies(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        deliverer, begun = timer_of(store), now_ms()
        holds = partial(parts_of(store).engine.run, deliverer.service.holds)
        assert holds() == []
        put_ok(store)
        first, later = (
            store.put_message(Message(topic="orders", body=b"x", deliver_at=begun + delay)) for delay in (5_000, 9_000)
        )
        store.dispatch()
        assert [hold.from_offset for hold in holds()] == [first.physical_offset]
        at(deliverer, begun + 6_000)
        parts_of(store).engine.run(deliverer.service._save_flushed)
        assert [hold.from_offset for hold in holds()] == [later.physical_offset]
        # And a service that delivers nothing finds the same in the files.
        other = parts_of(store).timer.holds
        assert [hold.from_offset for hold in parts_of(store).engine.run(other)] == [later.physical_offset]
        assert parts_of(store).engine.run(parts_of(store).timer.waiting_topics) == {"orders": 1}
        deliverer.everything()
        parts_of(store).engine.run(deliverer.service._save_flushed)
        assert holds() == []


def test_a_store_delivers_by_itself_soon_after_a_message_is_due(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put("orders", b"soon", queue_id=0, delay=timedelta(milliseconds=300))
        wait_for(lambda: bodies_of(store.path) == [b"soon"])
        stats = store.stats()
        assert (stats.delayed_delivered, stats.delayed_skipped) == (1, 0)
    assert_clean(tmp_path)
    with open_store(tmp_path) as store, StoreReader.open(tmp_path) as reader:
        assert store.batches() == []
        assert reader.batches() == []


@pytest.mark.parametrize("seed", range(5))
def test_each_message_is_delivered_once_and_in_time_whatever_happens(tmp_path: Path, seed: int) -> None:
    """Random puts, steps of the clock, kills, clean ends and lost timer logs, against a list of what is due."""
    chance = random.Random(seed)
    # The store's own clock is that of the machine; the service's runs ahead of it, so that every time is ahead of both.
    clock = now_ms() + 86_400_000
    due_of: dict[bytes, int] = {}
    store = without_service(tmp_path)
    deliverer = timer_of(store, frame_bytes=chance.choice([300, 3_000]), read_units=chance.choice([1, 3, 50]))
    for step in range(40):
        for _ in range(chance.randrange(8)):
            body = b"%d-%d" % (step, len(due_of))
            due_of[body] = clock + chance.choice([1, 400, 1_700, 60_000, 86_400_000])
            put_at(store, due_of[body], body)
        clock += chance.choice([0, 1, 250, 1_000, 30_000])
        deliverer.now = clock / MS
        for _ in range(chance.randrange(6)):
            deliverer.step()
        what = chance.random()
        if what < 0.15:
            kill(store) if what < 0.08 else end(deliverer)
            if what < 0.02:
                shutil.rmtree(tmp_path / "timerlog", ignore_errors=True)
            store = without_service(tmp_path)
            deliverer = timer_of(store, frame_bytes=chance.choice([300, 3_000]), read_units=chance.choice([1, 3, 50]))
            deliverer.now = clock / MS
        found = bodies_of(store.path)
        assert len(found) == len(set(found))
        assert all(due_of[body] <= clock for body in found)
    at(deliverer, clock)
    assert set(bodies_of(store.path)) == {body for body, due in due_of.items() if due <= clock}
    deliverer.everything(ahead_s=90_000)
    found = bodies_of(store.path)
    assert len(found) == len(due_of)
    assert set(found) == set(due_of)
    end(deliverer)
    assert len(list((tmp_path / "timerlog").iterdir())) <= 2  # those of which no message waits are deleted
    assert_clean(tmp_path)


def test_a_file_with_a_message_that_waits_is_kept_whoever_owns_the_store(tmp_path: Path) -> None:
    due = now_ms() + 3_600_000
    with without_service(tmp_path) as store:
        put_at(store, due, b"waits")
        for number in range(80):
            put_ok(store, "filler", b"%d" % number * 500)
        deliverer = timer_of(store)
        at(deliverer, due - 1_000)
        parts_of(store).engine.run(deliverer.service._save_flushed)
        report = store.clean(max_bytes=0)
        assert not report.deleted
        assert "timer messages that are not delivered yet" in str(report)
        at(deliverer, due)
        parts_of(store).engine.run(deliverer.service._save_flushed)
        assert store.clean(max_bytes=0).deleted
    with without_service(tmp_path) as store:
        put_at(store, now_ms() + 9_000, b"after it")
        timer_of(store).everything()
        assert bodies_of(store.path)[-1:] == [b"after it"]


def test_a_nearly_full_disk_leaves_messages_waiting_but_those_of_the_first_file(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        deliverer, due = timer_of(store), now_ms() + 5_000
        put_at(store, due + 1, b"first file")
        while store.physical_bounds()[1] < 40 << 10:
            put_ok(store, "filler", b"f" * 500)
        put_at(store, due + 2, b"last file")
        deliverer.now = due / MS
        deliverer.step()
        watermark = parts_of(store).engine.watermark
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(watermark, "_disk_use", lambda: DiskUse(store.path, 0.95))
            watermark.run_once()
            deliverer.now += 1
            for _ in range(5):
                deliverer.step()
            assert bodies_of(store.path) == [b"first file"]
        watermark.run_once()
        deliverer.everything()
        assert bodies_of(store.path) == [b"first file", b"last file"]


def test_queues_that_are_rebuilt_from_the_log_deliver_nothing_twice(tmp_path: Path) -> None:
    begun = now_ms()
    store = without_service(tmp_path)
    for number in range(30):
        put_at(store, begun + 5_000 + number * 100, b"%d" % number)
    deliverer = timer_of(store)
    at(deliverer, begun + 6_500)
    end(deliverer)
    shutil.rmtree(tmp_path / "consumequeue")
    with without_service(tmp_path) as store:
        timer_of(store).everything()
        assert sorted(bodies_of(store.path), key=int) == [b"%d" % number for number in range(30)]


def test_what_was_delivered_can_be_forgotten(tmp_path: Path) -> None:
    with without_service(tmp_path) as store:
        put_at(store, now_ms() + 5_000, b"again")
        timer_of(store).everything()
        store.forget_batches("rmq-timer")
    with without_service(tmp_path) as store:
        timer_of(store).everything()
        assert bodies_of(store.path) == [b"again", b"again"]


def test_a_server_takes_times_of_delivery_and_refuses_as_an_open_store_does(tmp_path: Path) -> None:
    with without_service(tmp_path) as owned, served(owned=owned) as url, connect(url) as remote:
        due = datetime.now(timezone.utc) + timedelta(minutes=1)
        remote.put("orders", b"by time", queue_id=0, deliver_at=due)
        remote.put("orders", b"by delay", queue_id=0, delay=timedelta(seconds=50))
        with pytest.raises(PutRefused, match="WHEEL_TIMER_MSG_ILLEGAL"):
            remote.put("orders", b"too far", delay=timedelta(days=4))
        with pytest.raises(InvalidValue, match="deliver_at"):
            remote.put("orders", b"x", deliver_at="tomorrow")  # type: ignore[arg-type]
        timer_of(owned).everything()
        assert bodies_of(owned.path) == [b"by delay", b"by time"]
