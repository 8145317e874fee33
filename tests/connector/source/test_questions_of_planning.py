"""Planning over a server takes as many questions for 400 queues as for 4."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from commitlog_store import MessageStore, StoreReader
from commitlog_store.remote.wire import Question
from commitlog_store.serve.flight_server import StoreServer
from pyspark_commitlog.options.read import parse_batch_options, parse_stream_options
from pyspark_commitlog.source.batch_source import CommitLogBatchReader
from pyspark_commitlog.source.schema import check_schema
from pyspark_commitlog.source.stream_planner import StreamPlanner
from pyspark_commitlog.source.task import ReadTask
from tests.store.serve.servers import served
from tests.support.store_builder import StoreBuilder

FIRST_STORE_TIME = 1_700_000_000_000
COLUMNS = StructType([StructField("queueOffset", LongType())])
# Four topics in both cases: named ones are listed in one question, too.
TOPICS = ("a", "b", "c", "d")


class Questions:
    """How many questions servers of this process were asked. An access log has a line after the client goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._count = 0
        answer = StoreServer._answer

        def counted(server: StoreServer, call: str, question: Question) -> bytes:
            self._count += 1
            return answer(server, call, question)

        monkeypatch.setattr(StoreServer, "_answer", counted)

    def taken(self) -> int:
        """Those since the last time."""
        taken, self._count = self._count, 0
        return taken


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> Questions:
    return Questions(monkeypatch)


def _append(builder: StoreBuilder, queues: int, each: int) -> None:
    for topic in TOPICS:
        numbers = [number % (queues // len(TOPICS)) for number in range(each * queues // len(TOPICS))]
        builder.append(topic, numbers, [b"body"] * len(numbers))


def _trigger(url: str, questions: Questions, builder: StoreBuilder, queues: int, **options: str) -> Counter[str]:
    """The questions of a new query's first trigger, of its second, and of one after a restart."""
    counts: Counter[str] = Counter()
    given = {} if "subscribePattern" in options else {"subscribe": ",".join(TOPICS)}
    parsed = parse_stream_options({"path": url, **given, **options})
    planner = StreamPlanner.open(parsed)
    counts["open"] = questions.taken()
    start = planner.initial_offset()
    counts["initialOffset"] = questions.taken()
    limited = True
    before = end = start
    for name in ("first", "second", "third"):
        end = planner.latest_offset(start, limited=limited)
        counts[f"{name} latestOffset"] = questions.taken()
        assert (start == end) == (name == "third")
        planner.partitions(start, end)
        counts[f"{name} partitions"] = questions.taken()
        planner.oldest_waiting(end)
        counts[f"{name} oldest"] = questions.taken()
        if name == "first":
            _append(builder, queues, 3)
            limited = False
            before = start = end
        elif name == "second":
            start = end
    planner.close()
    # The batch before is repeated after a crash.
    again = StreamPlanner.open(parsed)
    questions.taken()
    assert again.partitions(before, end)
    counts["repeated partitions"] = questions.taken()
    _append(builder, queues, 1)
    again.latest_offset(end, limited=True)
    counts["latestOffset after a restart"] = questions.taken()
    again.close()
    return counts


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "earliest"},
        {"startingOffsets": "latest"},
        {"startingTimestamp": str(FIRST_STORE_TIME)},
        {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "{twice}"},
        {"startingOffsets": "earliest", "maxBytesPerTrigger": "{bytes}", "failOnDataLoss": "false"},
        {"subscribePattern": "[a-d]", "startingOffsets": "earliest"},
    ],
    ids=["earliest", "latest", "by time", "rows", "bytes", "pattern"],
)
def test_a_trigger_asks_as_often_for_100_queues_as_for_4(
    tmp_path: Path, questions: Questions, options: dict[str, str]
) -> None:
    found = []
    for queues in (4, 100):
        builder = StoreBuilder(tmp_path / str(queues), log_file_size=1 << 20)
        _append(builder, queues, 5)
        with served(builder.path) as url:
            limits = {"twice": 2 * queues, "bytes": 300 * queues}
            given = {name: value.format(**limits) for name, value in options.items()}
            found.append(_trigger(url, questions, builder, queues, **given))
    assert found[0] == found[1]
    assert max(found[0].values()) <= 12, found[0]
    # What was listed before is not listed again; ages, fences and units of partitions are one question each.
    assert found[0]["second latestOffset"] <= 4, found[0]
    assert found[0]["third latestOffset"] == 1, found[0]
    assert max(found[0][f"{name} partitions"] for name in ("first", "second", "third")) <= 2, found[0]


def test_a_task_of_a_trigger_opens_the_store_and_asks_for_its_blocks(tmp_path: Path, questions: Questions) -> None:
    builder = StoreBuilder(tmp_path / "store", log_file_size=1 << 20)
    _append(builder, 100, 5)
    with served(builder.path) as url:
        options = parse_stream_options({"path": url, "subscribe": ",".join(TOPICS), "startingOffsets": "earliest"})
        planner = StreamPlanner.open(options)
        start = planner.initial_offset()
        tasks = planner.partitions(start, planner.latest_offset(start, limited=True))
        planner.close()
        questions.taken()
        rows = [sum(b.num_rows for b in ReadTask(options, check_schema(COLUMNS)).read(one)) for one in tasks]
        assert sum(rows) == 500
        assert questions.taken() == len(tasks)  # beside a stream of blocks each


def test_triggers_over_a_settled_store_ask_only_for_what_has_moved(tmp_path: Path, questions: Questions) -> None:
    path = tmp_path / "store"
    topics = [f"topic-{number % 40}" for number in range(400)]
    with MessageStore.open(path) as store:
        store.put_messages(pa.table({"topic": topics, "body": [b"x"] * 400}))
    given = {"subscribePattern": "topic-.*", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "25"}
    plans: list[Any] = []
    with served(path) as url:
        for where in (str(path), url):
            planner = StreamPlanner.open(parse_stream_options({"path": where, **given}))
            start = planner.initial_offset()
            for number in range(16):
                questions.taken()
                end = planner.latest_offset(start, limited=True)
                assert where != url or questions.taken() <= 3 + (number == 0)
                plans.append((where == url, end, planner.partitions(start, end)))
                start = end
            planner.close()
    assert [one[1:] for one in plans[:16]] == [one[1:] for one in plans[16:]]
    assert sum(part.stop - part.start for _, _, parts in plans[:16] for one in parts for part in one.ranges) == 400


def test_a_batch_read_asks_as_often_for_400_queues_as_for_4(tmp_path: Path, questions: Questions) -> None:
    found = []
    for queues in (4, 400):
        builder = StoreBuilder(tmp_path / str(queues), log_file_size=1 << 20)
        _append(builder, queues, 5)
        given = {"subscribe": ",".join(TOPICS), "startingTimestamp": str(FIRST_STORE_TIME)}
        with served(builder.path) as url:
            options = parse_batch_options({"path": url, **given})
            CommitLogBatchReader(options, check_schema(COLUMNS)).partitions()
            found.append(questions.taken())
    assert found[0] == found[1] <= 12


def test_a_plan_over_a_server_is_that_over_the_directory(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", log_file_size=1 << 20)
    _append(builder, 40, 30)
    plans: list[Any] = []
    with served(builder.path) as url:
        for path in (str(builder.path), url):
            for limit in ({}, {"maxBytesPerTrigger": "20k"}, {"maxOffsetsPerTrigger": "77", "minPartitions": "9"}):
                given = {"path": path, "subscribe": ",".join(TOPICS), "startingOffsets": "earliest"}
                planner = StreamPlanner.open(parse_stream_options(given | limit))
                start = planner.initial_offset()
                end = planner.latest_offset(start, limited=True)
                plans.append((start, end, planner.partitions(start, end), planner.oldest_waiting(end)))
                planner.close()
    assert plans[:3] == plans[3:]
    with StoreReader.open(builder.path) as reader:
        assert len(reader.topics()) == len(TOPICS)
