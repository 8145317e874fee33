"""A reader that has asked many queues before answers as a new one does, whatever the owner has done in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import Fence, MessageStore, MessageStoreConfig, QueueInfo, StoreReader
from commitlog_store.errors import OffsetOutOfRange
from commitlog_store.files import disk
from commitlog_store.reading import bounds, settled_answers
from commitlog_store.testing import parts_of
from tests.store.serve.servers import served

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 14, mapped_file_size_consume_queue=20 * 50, schedule_enable=False
)
Answers = tuple[list[QueueInfo], list[Fence | None], list[tuple[int, list[tuple[int, ...]]]]]


def fill(store: MessageStore, topics: int, rows: int) -> None:
    """Messages in four queues of each topic."""
    names = [f"t{row % topics:02}" for row in range(rows)]
    queue_ids = [row // topics % 4 for row in range(rows)]
    store.put_messages(pa.table({"topic": names, "queueId": queue_ids, "body": [b"x" * 50] * rows}))
    store.dispatch()
    parts_of(store).engine.reput.settle()


def answers(reader: StoreReader) -> Answers:
    """Of all queues: bounds, the fences of the last messages, and the units of the first and the last ones."""
    infos = reader.queue_infos(lambda: [(one, queue) for one in reader.topics() for queue in reader.queue_ids(one)])
    held = [one for one in infos if one.min_offset < one.max_offset]
    fences = reader.fences([(one.topic, one.queue_id, one.max_offset - 1) for one in held])
    ends = [(one.topic, one.queue_id, one.max_offset - 1, one.max_offset) for one in held]
    starts = [(one.topic, one.queue_id, one.min_offset, min(one.min_offset + 40, one.max_offset)) for one in held]
    units = [(number, found.tolist()) for number, found in reader.units_of([*starts, *ends])]
    return infos, fences, units


def assert_same(reader: StoreReader, new: StoreReader) -> None:
    """Both answer alike. While the owner dispatches between the answers, they are asked again."""
    expected, found = answers(new), answers(reader)
    while (again := answers(new)) != expected:
        expected, found = again, answers(reader)
    assert found == expected


@pytest.fixture(params=["directory", "address"])
def asked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[MessageStore, StoreReader]]:
    with MessageStore.open(tmp_path / "store", CONFIG) as store, served(owned=store) as url:
        fill(store, 10, 200)
        with StoreReader.open(tmp_path / "store" if request.param == "directory" else url) as reader:
            yield store, reader


def test_the_answers_are_those_of_a_new_reader(asked: tuple[MessageStore, StoreReader], tmp_path: Path) -> None:
    store, reader = asked
    steps: list[Callable[[], object]] = [
        lambda: fill(store, 10, 200),
        lambda: store.put("t00", b"not dispatched yet"),
        lambda: fill(store, 12, 600),  # two new topics
        lambda: store.delete_topic("t11", with_messages=True),
        parts_of(store).engine.reput.settle,
    ]
    for step in steps:
        before = answers(reader)
        with StoreReader.open(tmp_path / "store") as new:
            assert before == answers(reader) == answers(new)
            step()
            assert_same(reader, new)


def test_a_settled_store_is_not_asked_queue_by_queue_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        fill(store, 10, 200)
    opened = []
    open_file = disk.open_file

    def counted(path: str) -> int:
        opened.append(path)
        return open_file(path)

    with StoreReader.open(tmp_path / "store") as reader:
        first = answers(reader)
        monkeypatch.setattr(disk, "open_file", counted)
        assert answers(reader) == first
    assert len([path for path in opened if "consumequeue" in path]) <= len(first[0]), opened


@pytest.mark.parametrize("too_many", [False, True])
def test_bounds_are_kept_for_so_many_queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, too_many: bool) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        fill(store, 10, 200)
    queues = [(f"t{topic:02}", queue_id) for topic in range(10) for queue_id in range(4)]
    monkeypatch.setattr(bounds, "MOST_BOUNDS", len(queues) - too_many)
    monkeypatch.setattr(settled_answers, "MOST_BOUNDS", len(queues) - too_many)
    with StoreReader.open(tmp_path / "store") as reader:
        before = reader.queue_infos(queues)
        for _ in range(3):
            assert reader.queue_infos(queues) == before
        assert len(reader._settled.bounds) == (0 if too_many else 40)
        assert reader.queue_infos(queues[:20]) == before[:20]
        assert len(reader._settled.bounds) == (20 if too_many else 40)


def test_a_range_that_is_not_there_is_refused_before_its_first_unit(asked: tuple[MessageStore, StoreReader]) -> None:
    _, reader = asked
    ranges = [("t00", 0, 0, 1), ("t00", 1, 0, 1_000)]
    with pytest.raises(OffsetOutOfRange) as refused:
        reader.units_of(ranges)
    assert (refused.value.topic, refused.value.queue_id, refused.value.stop) == ("t00", 1, 1_000)
    with pytest.raises(OffsetOutOfRange):
        reader.read_together(ranges)
