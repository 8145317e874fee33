"""``get_message``: RocketMQ's statuses for every kind of position, and what one call gives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store import (
    GetMessageResult,
    GetMessageStatus,
    Message,
    MessageFilter,
    MessageStore,
    MessageStoreConfig,
    QueueInfo,
    StoreReader,
)
from commitlog_store.errors import CorruptRecord, InvalidValue, OffsetOutOfRange, StoreBusy, StoreClosed
from commitlog_store.format.record import HEADER_SIZE, field_offset
from commitlog_store.queue import get_message
from commitlog_store.reading.damage import OnDamage
from tests.support.golden import ROCKETMQ_533, expected
from tests.support.store_builder import StoreBuilder

S = GetMessageStatus
# 200 bytes of body, and about 120 bytes of everything else.
BODY = b"x" * 200


def built(path: Path) -> StoreBuilder:
    """Queue 0 of "orders" has the offsets 20 to 99 in files of 30 units, its first messages have expired."""
    builder = StoreBuilder(path / "store", log_file_size=8192, queue_file_units=30)
    builder.append("orders", 0, [BODY] * 100, tags=["paid", "sent"] * 50, more=[f"n\x01{n}\x02" for n in range(100)])
    while True:
        with StoreReader.open(builder.path) as reader:
            if reader.queue_info("orders", 0).min_offset >= 20:
                return builder
        builder.delete_log_files(1)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[StoreReader]:
    with StoreReader.open(built(tmp_path).path) as reader:
        yield reader


def offsets(result: GetMessageResult) -> list[int]:
    return [message.queue_offset for message in result.messages]


def test_every_position_has_its_status_and_the_offset_to_continue_at(reader: StoreReader) -> None:
    low = reader.queue_info("orders", 0).min_offset
    answers = {
        ("nowhere", 0, 5): (S.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0),
        ("orders", 7, 5): (S.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0),
        ("orders", 0, -3): (S.OFFSET_TOO_SMALL, low, low, 100),
        ("orders", 0, low - 1): (S.OFFSET_TOO_SMALL, low, low, 100),
        ("orders", 0, 100): (S.OFFSET_OVERFLOW_ONE, 100, low, 100),
        ("orders", 0, 101): (S.OFFSET_OVERFLOW_BADLY, 100, low, 100),
        ("orders", 0, 2**62): (S.OFFSET_OVERFLOW_BADLY, 100, low, 100),
        ("orders", 0, 99): (S.FOUND, 100, low, 100),
    }
    for position, answer in answers.items():
        result = reader.get_message(*position)
        found = (result.status, result.next_begin_offset, result.min_offset, result.max_offset)
        assert found == answer, position


def test_a_queue_whose_messages_have_all_expired_keeps_its_end(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", log_file_size=4096)
    builder.append("quiet", 0, [BODY] * 5)
    builder.append("busy", 0, [BODY] * 50)
    builder.delete_log_files(2)
    with StoreReader.open(builder.path) as reader:
        assert reader.get_message("quiet", 0, 4).status is S.OFFSET_TOO_SMALL
        assert reader.get_message("quiet", 0, 5).status is S.OFFSET_OVERFLOW_ONE


def test_a_queue_without_any_message_is_empty(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    (builder.path / "consumequeue" / "orders" / "0").mkdir(parents=True)
    with StoreReader.open(builder.path) as reader:
        result = reader.get_message("orders", 0, 3)
    assert (result.status, result.next_begin_offset) == (S.NO_MESSAGE_IN_QUEUE, 0)


def test_one_call_gives_32_messages_and_ends_with_the_queues_file(reader: StoreReader) -> None:
    low = reader.queue_info("orders", 0).min_offset
    assert offsets(reader.get_message("orders", 0, low)) == list(range(low, 30)), "the first file ends at 30"
    assert offsets(reader.get_message("orders", 0, 30)) == list(range(30, 60))
    assert offsets(reader.get_message("orders", 0, 60, 7)) == list(range(60, 67))
    assert reader.get_message("orders", 0, 60, 7).next_begin_offset == 67


def test_bytes_end_a_call_but_never_before_the_first_message(reader: StoreReader) -> None:
    size = reader.get_message("orders", 0, 40, 1).messages[0].store_size
    assert offsets(reader.get_message("orders", 0, 40, max_bytes=1)) == [40]
    assert offsets(reader.get_message("orders", 0, 40, max_bytes=3 * size)) == [40, 41, 42]
    assert offsets(reader.get_message("orders", 0, 40, max_bytes=3 * size - 1)) == [40, 41]


@pytest.mark.parametrize(
    "wanted",
    [
        MessageFilter.parse(tags="sent"),
        MessageFilter.parse(filter="TAGS = 'sent'"),
        MessageFilter.parse(filter="n > 0 AND TAGS = 'sent'"),
        MessageFilter.parse(tags="sent", filter="n >= 0"),
    ],
)
def test_a_filter_leaves_messages_out_and_the_position_passes_them(reader: StoreReader, wanted: MessageFilter) -> None:
    result = reader.get_message("orders", 0, 40, 3, filter=wanted)
    assert offsets(result) == [41, 43, 45]
    assert result.next_begin_offset == 46, "the message after the last one would exceed the limit"
    rest = reader.get_message("orders", 0, 46, filter=wanted)
    assert offsets(rest) == list(range(47, 60, 2))
    assert rest.next_begin_offset == 60, "the end of the queue's file"


def test_without_a_match_the_position_passes_what_was_looked_at(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", queue_file_units=5000)
    builder.append("orders", 0, [b""] * 2500)
    with StoreReader.open(builder.path) as reader:
        for wanted in (MessageFilter.parse(tags="other"), MessageFilter.parse(filter="amount > 100")):
            positions = [0]
            while not (result := reader.get_message("orders", 0, positions[-1], filter=wanted)).may_wait:
                assert result.status is S.NO_MATCHED_MESSAGE
                positions.append(result.next_begin_offset)
            assert positions == [0, 800, 1600, 2400, 2500], "16,000 bytes of units a call"


def test_messages_that_retention_removes_during_the_call_are_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = built(tmp_path)
    with StoreReader.open(builder.path) as reader:
        low = reader.queue_info("orders", 0).min_offset
        look = reader.queue_info

        def look_and_remove(topic: str, queue_id: int) -> QueueInfo:
            """The files go between the look at the bounds and the reading."""
            info = look(topic, queue_id)
            builder.delete_log_files(2)
            return info

        monkeypatch.setattr(reader, "queue_info", look_and_remove)
        result = reader.get_message("orders", 0, low)
        assert (result.status, result.next_begin_offset) == (S.MESSAGE_WAS_REMOVING, 30)
        assert look("orders", 0).min_offset > 30


def test_a_queue_file_that_is_gone_is_passed(tmp_path: Path) -> None:
    builder = built(tmp_path)
    (builder.path / "consumequeue" / "orders" / "0" / f"{30 * 20:020}").unlink()
    with StoreReader.open(builder.path) as reader:
        result = reader.get_message("orders", 0, 45)
    assert (result.status, result.next_begin_offset) == (S.OFFSET_FOUND_NULL, 60)


def test_damage_is_an_error_or_is_skipped_and_reported(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    places = builder.append("orders", 0, [BODY] * 5)
    log = next((builder.path / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    data[int(places[2]) + 100] ^= 1
    log.write_bytes(data)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptRecord):
        reader.get_message("orders", 0, 0)
    with StoreReader.open(builder.path, on_damage="skip") as reader:
        assert offsets(reader.get_message("orders", 0, 0)) == [0, 1, 3, 4]
        assert [(gap.start, gap.stop) for gap in reader.skipped] == [(2, 3)]


# Tags whose hash codes are the same, and others.
TAGS = ["Aa", "BB", None, "paid", "BB", "Aa", "paid", "BB", "BB", "Aa", None, "sent"]


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """A closed store whose queue 0 has a message with each of ``TAGS``, between those of another queue."""
    with MessageStore.open(tmp_path / "few") as store:
        for number, tags in enumerate(TAGS):
            for queue_id in (0, 1):
                body = b"%d" % number * (number + 1)
                store.put("orders", body, tags=tags, keys=["k"], queue_id=queue_id, properties={"number": str(number)})
    return tmp_path / "few"


def answers(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at_a_time: int,
    on_damage: OnDamage = "raise",
    *,
    from_log: bool = False,
) -> list[object]:
    """What pulls from every offset give, when so many messages are read one by one."""
    monkeypatch.setattr(get_message, "_FEW", at_a_time)
    found: list[object] = []
    with StoreReader.open(path, on_damage=on_damage, from_log=from_log) as reader:
        for offset in range(len(TAGS)):
            for tags in (None, "Aa", "BB || paid", "nobodys"):
                for most, size in ((32, 262_144), (3, 262_144), (32, 400)):
                    try:
                        found.append(reader.get_message("orders", 0, offset, most, max_bytes=size, tags=tags))
                    except CorruptRecord as damage:
                        found.append(str(damage))
        found.append(list(reader.skipped))
    return found


def test_few_messages_are_answered_as_many_are(few: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one = answers(few, monkeypatch, 16)
    assert one_by_one == answers(few, monkeypatch, 0)
    assert [len(one.messages) for one in one_by_one[:4:3]] == [len(TAGS), 3]  # type: ignore[attr-defined]


@pytest.mark.parametrize("from_log", [False, True])
@pytest.mark.parametrize("on_damage", ["raise", "skip"])
@pytest.mark.parametrize("field", ["body", "queue_id", "queue_offset", "physical_offset", "total_size"])
def test_damage_among_few_messages_is_reported_as_among_many(
    few: Path, monkeypatch: pytest.MonkeyPatch, field: str, on_damage: OnDamage, from_log: bool
) -> None:
    with StoreReader.open(few) as reader:
        place = reader.get_message("orders", 0, 5).messages[0].physical_offset
    (log,) = (few / "commitlog").iterdir()
    at = place + (HEADER_SIZE if field == "body" else field_offset(field) + 1)
    with log.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    one_by_one = answers(few, monkeypatch, 16, on_damage, from_log=from_log)
    assert one_by_one == answers(few, monkeypatch, 0, on_damage, from_log=from_log)
    assert any(isinstance(one, str) for one in one_by_one) or one_by_one[-1]


def test_limits_below_one_are_refused(reader: StoreReader) -> None:
    with pytest.raises(InvalidValue, match="max_messages is at least 1"):
        reader.get_message("orders", 0, 0, 0)
    with pytest.raises(InvalidValue, match="max_bytes is at least 1"):
        reader.get_message("orders", 0, 0, max_bytes=0)


def test_what_is_not_a_number_is_refused(reader: StoreReader) -> None:
    wrong: list[dict[str, object]] = [
        {"wait_s": float("nan")}, {"wait_s": "1"}, {"wait_s": None}, {"max_messages": "3"}, {"max_bytes": 1.5},
        {"offset": "5"}, {"offset": 1.0}, {"offset": True},
    ]  # fmt: skip
    for arguments in wrong:
        with pytest.raises(InvalidValue, match=f"{next(iter(arguments))} is "):
            reader.get_message(**{"topic": "orders", "queue_id": 0, "offset": 0, **arguments})  # type: ignore[arg-type]
    for place in (("orders", 0, -1), ("orders", "0", 1), ("no topic", 0, 1), (None, 0, 1)):
        with pytest.raises(InvalidValue):
            reader.wait_for_any({place[:2]: place[2]}, 1)  # type: ignore[dict-item]
    for timeout_s in (float("nan"), "1"):
        with pytest.raises(InvalidValue, match="timeout_s is a number of seconds"):
            reader.wait_for_any({("orders", 0): 0}, timeout_s)  # type: ignore[arg-type]


def test_rocketmqs_messages_are_all_found_from_position_to_position(golden_533: Path) -> None:
    answers = expected(ROCKETMQ_533)
    with StoreReader.open(golden_533) as reader:
        for queue in answers["queue"]:
            topic, queue_id = queue["topic"], queue["queueId"]
            position, places = 0, []
            while not (result := reader.get_message(topic, queue_id, position)).may_wait:
                places += [message.physical_offset for message in result.messages]
                assert result.next_begin_offset > position
                position = result.next_begin_offset
            info = reader.queue_info(topic, queue_id)
            units = list(reader.units(topic, queue_id, info.min_offset, info.max_offset))
            assert places == [place for chunk in units for place in chunk["physical_offset"].tolist()]
            if places:
                assert reader.get_message(topic, queue_id, info.min_offset).messages[0] == reader.message_at(places[0])


def test_any_number_of_threads_of_the_owner_pull(tmp_path: Path) -> None:
    config = MessageStoreConfig(mapped_file_size_commit_log=1 << 20)
    with MessageStore.open(tmp_path / "store", config) as store:
        for number in range(100):
            store.put_message(Message(topic="orders", body=b"%d" % number, queue_id=0))
        store.dispatch()
        found: list[list[bytes]] = []

        def pull() -> None:
            position, bodies = 0, []
            while (result := store.get_message("orders", 0, position)).messages:
                bodies += [message.body for message in result.messages]
                position = result.next_begin_offset
            found.append(bodies)

        threads = [threading.Thread(target=pull) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [[b"%d" % number for number in range(100)]] * 4
        store.set_readable(False)
        with pytest.raises(StoreClosed):
            store.get_message("orders", 0, 0)
    with pytest.raises(StoreClosed):
        store.get_message("orders", 0, 0)


def test_retention_that_is_faster_than_every_look_is_named(
    reader: StoreReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = iter(range(1000))

    def outrun(*_: object, **__: object) -> None:
        low = next(starts)
        raise OffsetOutOfRange(topic="orders", queue_id=0, start=0, stop=1, min_offset=low, max_offset=1000)

    monkeypatch.setattr("commitlog_store.batch.consistent_reads._PAUSES", (0.0, 0.0))
    monkeypatch.setattr("commitlog_store.queue.get_message.Pulls._pull", outrun)
    with pytest.raises(StoreBusy, match=r"changed during each of 2 looks at it: retention deleted files"):
        reader.get_message("orders", 0, 50)
