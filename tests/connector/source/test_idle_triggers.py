"""An idle trigger over many queues: whether anything came is found without asking each queue."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

from commitlog_store import Fence, Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.files import disk
from commitlog_store.testing import parts_of
from pyspark_commitlog.errors import DataLossError
from pyspark_commitlog.options.read import parse_stream_options
from pyspark_commitlog.source.limits_by_spark import CommitLogStreamReader
from pyspark_commitlog.source.schema import check_schema
from pyspark_commitlog.source.stream_planner import StreamPlanner
from tests.support.store_builder import StoreBuilder

TOPICS = 40
BODY = StructType([StructField("body", BinaryType())])
CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=20 * 50, schedule_enable=False
)
Offset = dict[str, Any]


def put(store: MessageStore, topic: str) -> None:
    store.put_message(Message(topic=topic, body=b"body", queue_id=0)).raise_for_status()


def settle(store: MessageStore) -> None:
    store.dispatch()
    parts_of(store).engine.reput.settle()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", CONFIG) as opened:
        for number in range(TOPICS):
            put(opened, f"topic-{number}")
        settle(opened)
        yield opened


def planner(path: Path) -> StreamPlanner:
    return StreamPlanner.open(
        parse_stream_options({"path": str(path), "subscribePattern": "topic-.*", "startingOffsets": "earliest"})
    )


def all_read(planned: StreamPlanner) -> Offset:
    """The offset after all messages, once an idle trigger has seen that nothing follows."""
    end = planned.latest_offset(planned.initial_offset(), limited=True)
    assert planned.latest_offset(end, limited=True) is end
    return end


def opened_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    opened: list[str] = []
    real = disk.open_file

    def open_file(path: str) -> int:
        opened.append(path)
        return real(path)

    monkeypatch.setattr(disk, "open_file", open_file)
    return opened


def test_an_idle_trigger_opens_no_file_of_a_queue(
    store: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = planner(tmp_path / "store")
    end = all_read(planned)
    opened = opened_files(monkeypatch)
    assert planned.latest_offset(end, limited=True) is end
    assert not [path for path in opened if "consumequeue" in path]
    planned.close()


def test_the_first_trigger_asks_no_queue_again_that_the_start_has_asked(
    store: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = planner(tmp_path / "store")
    start = planned.initial_offset()
    asked: list[object] = []
    queue_infos = StoreReader.queue_infos

    def counted(reader: StoreReader, queues: Any) -> Any:
        asked.append(queues)
        return queue_infos(reader, queues)

    monkeypatch.setattr(StoreReader, "queue_infos", counted)
    end = planned.latest_offset(start, limited=True)
    assert not asked
    put(store, "topic-7")
    settle(store)
    assert planned.latest_offset(end, limited=True)["offsets"]["topic-7"]["0"] == 2
    assert len(asked) == 1
    planned.close()


@pytest.mark.parametrize("topic", ["topic-7", "topic-new"])
def test_a_message_between_the_start_and_the_first_trigger_is_planned(
    topic: str, store: MessageStore, tmp_path: Path
) -> None:
    planned = planner(tmp_path / "store")
    start = planned.initial_offset()
    put(store, topic)
    settle(store)
    before = start["offsets"].get(topic, {"0": 0})["0"]
    assert planned.latest_offset(start, limited=True)["offsets"][topic]["0"] == before + 1 + (topic == "topic-7")
    planned.close()


@pytest.mark.parametrize("topic", ["topic-7", "topic-new"])
def test_a_message_that_comes_after_idle_triggers_is_planned(topic: str, store: MessageStore, tmp_path: Path) -> None:
    planned = planner(tmp_path / "store")
    end = all_read(planned)
    for _ in range(3):
        put(store, topic)
        settle(store)
        following = planned.latest_offset(end, limited=True)
        assert following["offsets"][topic]["0"] == end["offsets"].get(topic, {"0": 0})["0"] + 1
        end = following
        assert planned.latest_offset(end, limited=True) is end
    planned.close()


def test_a_topic_that_is_deleted_after_idle_triggers_is_a_loss(store: MessageStore, tmp_path: Path) -> None:
    planned = planner(tmp_path / "store")
    end = all_read(planned)
    store.delete_topic("topic-3", with_messages=True)
    settle(store)
    with pytest.raises(DataLossError):
        planned.latest_offset(end, limited=True)
    planned.close()


def test_idle_triggers_over_a_copy_see_what_the_next_copy_brings(store: MessageStore, tmp_path: Path) -> None:
    """Nobody owns a copy, so each trigger asks its queues."""
    store.flush()
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    planned = planner(tmp_path / "copy")
    end = all_read(planned)
    put(store, "topic-7")
    settle(store)
    for part in ("commitlog", "settled", "consumequeue"):
        source, target = tmp_path / "store" / part, tmp_path / "copy" / part
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)
        if part != "consumequeue":
            assert planned.latest_offset(end, limited=True) is end
    assert planned.latest_offset(end, limited=True)["offsets"]["topic-7"]["0"] == 2
    planned.close()


class Clock:
    """Seconds that a test moves."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def broker(tmp_path: Path) -> StoreBuilder:
    """A store as a broker writes it."""
    made = StoreBuilder(tmp_path / "broker")
    for number in range(TOPICS):
        made.append(f"topic-{number}", 0, [b"body"])
    return made


def planner_of_broker(broker: StoreBuilder, clock: Clock, pattern: str = "topic-.*") -> StreamPlanner:
    options = {"path": str(broker.path), "subscribePattern": pattern, "startingOffsets": "earliest"}
    return StreamPlanner(parse_stream_options(options), clock=clock)


def test_an_idle_trigger_beside_a_broker_opens_no_file_of_a_queue(
    broker: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    planned = planner_of_broker(broker, clock)
    end = all_read(planned)
    opened = opened_files(monkeypatch)
    assert planned.latest_offset(end, limited=True) is end
    assert not [path for path in opened if "consumequeue" in path]
    clock.now_s += 1.5  # now and then all the same
    assert planned.latest_offset(end, limited=True) is end
    assert len([path for path in opened if "consumequeue" in path]) >= TOPICS
    planned.close()


def test_the_log_of_a_broker_is_not_looked_at_for_a_few_queues(
    broker: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking them costs hardly more, and beside a busy broker a look is for nothing."""
    looks: list[int] = []
    real = StoreReader.dispatched_state

    def counted(reader: StoreReader, known: Fence, most_records: int) -> object | None:
        looks.append(most_records)
        return real(reader, known, most_records)

    monkeypatch.setattr(StoreReader, "dispatched_state", counted)
    for pattern, expected in (("topic-1.?", []), ("topic-.*", [11] * 2)):
        planned = planner_of_broker(broker, Clock(), pattern)
        end = all_read(planned)
        assert planned.latest_offset(end, limited=True) is end
        assert looks == expected
        planned.close()


def test_a_long_look_at_a_brokers_queues_comes_again_after_ten_seconds(
    broker: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue may show late, on a network file system: without a bound, a long look would delay it by minutes."""
    clock = Clock()
    planned = planner_of_broker(broker, clock)
    real = StoreReader.settled_queue_infos

    def slow(*arguments: Any) -> Any:
        clock.now_s += 5
        return real(*arguments)

    monkeypatch.setattr(StoreReader, "settled_queue_infos", slow)
    end = all_read(planned)
    looks = planned.looks
    clock.now_s += 9
    assert planned.latest_offset(end, limited=True) is end
    assert planned.looks == looks
    clock.now_s += 1.5
    assert planned.latest_offset(end, limited=True) is end
    assert planned.looks == looks + 1
    planned.close()


def test_the_second_question_for_the_start_looks_at_no_queue(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark asks for it twice in the first batch, before and after it plans the end."""
    planned = planner(Path(store.path))
    looks: list[object] = []
    real = StoreReader.settled_queue_infos

    def noting(*arguments: Any) -> Any:
        looks.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(StoreReader, "settled_queue_infos", noting)
    start = planned.initial_offset()
    end = planned.latest_offset(start, limited=True)
    assert planned.initial_offset() == start
    assert len(looks) == 1
    assert len(planned.partitions(planned.initial_offset(), end)) >= 1
    put(store, "topic-new")
    settle(store)
    assert "topic-new" in planned.initial_offset()["offsets"]
    planned.close()


@pytest.mark.parametrize("topic", ["topic-7", "topic-new", "other"])
def test_a_message_that_a_broker_puts_after_idle_triggers_is_planned(topic: str, broker: StoreBuilder) -> None:
    planned = planner_of_broker(broker, Clock())
    end = all_read(planned)
    for _ in range(3):
        broker.append(topic, 0, [b"body"])
        following = planned.latest_offset(end, limited=True)
        if topic == "other":
            assert following is end
            continue
        assert following["offsets"][topic]["0"] == broker.next_offsets[topic, 0]
        end = following
        assert planned.latest_offset(end, limited=True) is end
    planned.close()


def test_messages_that_a_broker_dispatches_late_are_planned_when_they_come(broker: StoreBuilder) -> None:
    """The log has them before their queues do, in any order of triggers; the clock stands still."""
    planned = planner_of_broker(broker, Clock())
    end = all_read(planned)
    queues = [broker.path / "consumequeue" / f"topic-{number}" / "0" / f"{0:020d}" for number in (3, 5)]
    before = [queue.read_bytes() for queue in queues]
    for number in (3, 5):
        broker.append(f"topic-{number}", 0, [b"late"])
    after = [queue.read_bytes() for queue in queues]
    for queue, content in zip(queues, before, strict=True):
        queue.write_bytes(content)
    for queue, content, topic in zip(queues, after, ("topic-3", "topic-5"), strict=True):
        assert planned.latest_offset(end, limited=True) is end
        assert planned.latest_offset(end, limited=True) is end
        queue.write_bytes(content)
        end = planned.latest_offset(end, limited=True)
        assert end["offsets"][topic]["0"] == 2
    assert planned.latest_offset(end, limited=True) is end
    planned.close()


def test_a_topic_that_a_broker_deletes_after_idle_triggers_is_a_loss(broker: StoreBuilder) -> None:
    planned = planner_of_broker(broker, Clock())
    end = all_read(planned)
    shutil.rmtree(broker.path / "consumequeue" / "topic-3")
    with pytest.raises(DataLossError):
        planned.latest_offset(end, limited=True)
    planned.close()


def test_a_queue_that_loses_messages_without_the_log_is_found_out_by_the_next_look(broker: StoreBuilder) -> None:
    clock = Clock()
    planned = planner_of_broker(broker, clock)
    end = all_read(planned)
    broker.delete_queue("topic-3", 0)
    clock.now_s += 1.5
    with pytest.raises(DataLossError):
        planned.latest_offset(end, limited=True)
    planned.close()


def test_an_idle_trigger_makes_no_report_of_all_queues_again(store: MessageStore, tmp_path: Path) -> None:
    """Spark asks for one each trigger. A new one is made when the queues were looked at, or a batch has ended."""
    options = {"path": str(tmp_path / "store"), "subscribePattern": "topic-.*", "startingOffsets": "earliest"}
    reader = CommitLogStreamReader(parse_stream_options(options), check_schema(BODY))
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(end, ReadAllAvailable()) is end
    report = reader.reportLatestOffset()
    assert reader.latestOffset(end, ReadAllAvailable()) is end
    assert reader.reportLatestOffset() is report
    put(store, "topic-7")
    settle(store)
    end = reader.latestOffset(end, ReadAllAvailable())
    newer = reader.reportLatestOffset()
    assert newer["offsets"]["topic-7"] == end["offsets"]["topic-7"] == {"0": 2}
    assert report["offsets"]["topic-7"] == {"0": 1}
    reader.stop()
