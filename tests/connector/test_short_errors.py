"""Errors as users see them, through a real Spark: the sentence that says what to do is in the first two lines."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

import pyspark_commitlog
from commitlog_store import Message, MessageStore
from commitlog_store.errors import CommitLogError
from pyspark_commitlog import DefaultSource
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.write import parse_batch_write_options
from tests.connector.sink.sink_helpers import SMALL, append, stream_to
from tests.connector.source.spark_helpers import Batches, read, stream
from tests.support.store_builder import StoreBuilder
from tests.support.waiting import WAIT_LIMIT_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_LOG_FILE = 8 << 10
_BODY = "concat('m', id) AS body"
_NULL_BODY = "if(id = 2, cast(null as string), concat('m', id)) AS body"
_BAD_TOPIC = "if(id = 2, 'no topic', 'orders') AS topic"
_MISSPELT = "OptionError: Unknown option 'startingofset'. Did you mean startingOffsets?"


class Stores:
    """A store that is whole, one that retention has shortened, one with a damaged record; and what reads and writes."""

    spark: SparkSession

    def __init__(self, base: Path) -> None:
        self.base = base
        self.whole, self.nowhere = base / "whole", base / "nowhere"
        with MessageStore.open(self.whole, parse_batch_write_options(SMALL | {"path": "x"}).store_config) as made:
            assert made.put_message(Message(queue_id=0, topic="orders", body=b"before")).ok
        self.late = StoreBuilder(base / "late", log_file_size=_LOG_FILE)
        self.late.append("orders", 0, [b"x" * 200] * 200)
        self.late.delete_log_files(3)
        self.damaged = StoreBuilder(base / "damaged", log_file_size=_LOG_FILE)
        place = int(self.damaged.append("orders", 0, [b"x" * 200] * 30)[10])
        with open(self.damaged.path / "commitlog" / f"{0:020d}", "r+b") as file:
            file.seek(place)
            file.write(b"junk")
        (base / "input").mkdir()
        (base / "input" / "numbers.txt").write_text("0\n1\n2\n3\n")

    def read(self, path: Path | str, schema: str | None = None, **options: str) -> None:
        read(self.spark, path, schema, subscribe="orders", **options).collect()

    def stream(self, path: Path | str, schema: str | None = None, **options: str) -> None:
        frame = stream(self.spark, path, schema, **{"subscribe": "orders", "startingOffsets": "earliest"} | options)
        query = frame.writeStream.format("noop").option("checkpointLocation", self._checkpoint())
        assert query.trigger(availableNow=True).start().awaitTermination(WAIT_LIMIT_S)

    def rows(self, *columns: str) -> DataFrame:
        return self.spark.range(0, 4, 1, 1).selectExpr(*columns)

    def write(self, *columns: str, **options: Any) -> None:
        append(self.rows(*columns), self.whole, **options)

    def write_to(self, path: Path | str) -> None:
        append(self.rows(_BODY), path)

    def stream_into(self, *columns: str, **options: Any) -> None:
        numbers = self.spark.readStream.text(str(self.base / "input")).selectExpr("cast(value AS int) AS id")
        stream_to(numbers.selectExpr(*columns), self.whole, self._checkpoint(), **options)

    def _checkpoint(self) -> str:
        return tempfile.mkdtemp(dir=self.base)

    def write_while_locked(self) -> None:
        with MessageStore.open(self.whole):
            self.write(_BODY, lockTimeout="0.1")

    def lose_what_a_stream_wants(self) -> None:
        """Retention deletes files between two batches of the query."""
        shrinking = StoreBuilder(self.base / "shrinking", log_file_size=_LOG_FILE)
        shrinking.append("orders", 0, [b"x" * 200] * 200)
        batches = Batches(self.base / "checkpoint-shrinking")
        batches.after = lambda _: shrinking.delete_log_files(6)
        given = {"subscribe": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
        batches.run(stream(self.spark, shrinking.path, **given))


class PlannedStores(Stores):
    """Reads and writes as far as Spark's driver plans them, by the calls of Spark's planning processes."""

    def read(self, path: Path | str, schema: str | None = None, **options: str) -> None:
        assert schema is None, "only Spark parses one"
        source = DefaultSource({"path": str(path), "subscribe": "orders"} | options)
        source.reader(source.schema()).partitions()

    def stream(self, path: Path | str, schema: str | None = None, **options: str) -> None:
        assert schema is None, "only Spark parses one"
        source = DefaultSource({"path": str(path), "subscribe": "orders", "startingOffsets": "earliest"} | options)
        source.streamReader(source.schema()).initialOffset()

    def write_to(self, path: Path | str) -> None:
        DefaultSource(SMALL | {"path": str(path)}).writer(StructType().add("body", "string"), overwrite=False)


@pytest.fixture(scope="module")
def stores(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stores:
    made = Stores(tmp_path_factory.mktemp("short-errors"))
    made.spark = spark
    return made


@pytest.fixture(scope="module")
def planned_stores(tmp_path_factory: pytest.TempPathFactory) -> PlannedStores:
    return PlannedStores(tmp_path_factory.mktemp("short-errors-planned"))


class Mistake(NamedTuple):
    """``run`` fails with the sentence; Spark has ``lines_before`` lines of its own before it."""

    run: Callable[[Stores], None]
    sentence: str
    lines_before: int = 0


MISTAKES: Mapping[str, Mistake] = {
    "misspelt option of a batch": Mistake(lambda on: on.read(on.whole, startingOfset="earliest"), _MISSPELT),
    "misspelt option of a stream": Mistake(lambda on: on.stream(on.whole, startingOfset="earliest"), _MISSPELT),
    "misspelt option beside a schema": Mistake(
        lambda on: on.stream(on.whole, "body BINARY", startingOfset="earliest"), _MISSPELT
    ),
    "option of batches in a stream": Mistake(
        lambda on: on.stream(on.whole, endingOffsets="latest"), "OptionError: Option endingOffsets is for batch reads"
    ),
    "misspelt option of a write": Mistake(
        lambda on: on.write(_BODY, topc="orders"), "OptionError: Unknown option 'topc'. Did you mean topic?"
    ),
    "misspelt option of a streaming write": Mistake(
        lambda on: on.stream_into(_BODY, topc="orders"), "OptionError: Unknown option 'topc'. Did you mean topic?"
    ),
    "path without a store": Mistake(
        lambda on: on.read(on.nowhere), "nowhere: the directory does not exist. The option path names the directory"
    ),
    "path without a store, in a stream": Mistake(
        lambda on: on.stream(on.nowhere), "nowhere: the directory does not exist. The option path names the directory"
    ),
    "two paths with a comma": Mistake(
        lambda on: on.read(f"{on.whole},{on.late.path}"),
        "expected one store, or several with a name for each, such as 'a=/",
    ),
    "two paths with a comma, in a stream": Mistake(
        lambda on: on.stream(f"{on.whole}, {on.late.path}"),
        "expected one store, or several with a name for each, such as 'a=/",
    ),
    "two paths with a comma, in a write": Mistake(
        lambda on: on.write_to(f"{on.whole},{on.late.path}"), "expected one store. A comma in a path is %2C"
    ),
    "two relative paths with a comma": Mistake(
        lambda on: on.read("data/a,data/b"), "Several stores have a name each, as in broker-a=/data/a,broker-b=/data/b."
    ),
    "path in an object store": Mistake(
        lambda on: on.read("oss://bucket/store"), "does not offer: copy the store to a local or mounted file system"
    ),
    "path in an object store, in a write": Mistake(
        lambda on: on.write_to("hdfs://namenode:8020/store"), "Object storage has archives, which are read alone"
    ),
    "path in DBFS": Mistake(lambda on: on.read("dbfs:/mnt/store"), "where Databricks mounts it, /dbfs/mnt/store."),
    "URI of another host": Mistake(
        lambda on: on.read("file://host/data/store"),
        "not of the host 'host': file:///data/store, or the path",
    ),
    "address of a name server": Mistake(
        lambda on: on.stream("localhost:9876"), "It is the address of a broker or a name server, and stores are files"
    ),
    "addresses of name servers": Mistake(
        lambda on: on.read("10.0.0.1:9876;10.0.0.2:9876"), "of a copy, which 'commitlog follow HOST:10912 DIR' keeps."
    ),
    "path of a file of the log": Mistake(
        lambda on: on.read(on.whole / "commitlog" / f"{0:020d}"),
        "/whole/commitlog/00000000000000000000 is a file; a store",
    ),
    "path of the log": Mistake(lambda on: on.read(on.whole / "commitlog"), "It is within a store: did you mean /"),
    "path of the queues, in a stream": Mistake(
        lambda on: on.stream(on.whole / "consumequeue"), "It is within a store: did you mean /"
    ),
    "path of the log, in a write": Mistake(
        lambda on: on.write_to(on.whole / "commitlog"), "It is within a store: did you mean /"
    ),
    "path of a directory that the store keeps for itself, in a write": Mistake(
        lambda on: on.write_to(on.whole / "staging" / "new"),
        "a directory that it keeps for itself: no store",
    ),
    "path of a file, in a write": Mistake(
        lambda on: on.write_to(on.whole / "commitlog" / f"{0:020d}"),
        "is a file; a store is a directory that",
    ),
    "unknown column": Mistake(
        lambda on: on.read(on.whole, "bdy BINARY"), "SchemaError: Unknown column 'bdy'. Did you mean body?"
    ),
    "unknown column of a stream": Mistake(
        lambda on: on.stream(on.whole, "bdy BINARY"), "SchemaError: Unknown column 'bdy'. Did you mean body?"
    ),
    "column of a wrong type": Mistake(
        lambda on: on.write(_BODY, "'1' AS queueId"), "SchemaError: Column queueId is STRING; expected INT"
    ),
    "column of a wrong type, in a stream": Mistake(
        lambda on: on.stream_into(_BODY, "'1' AS queueId"), "SchemaError: Column queueId is STRING; expected INT"
    ),
    "offset that is gone": Mistake(
        lambda on: on.read(on.late.path, startingOffsets='{"orders":{"0":3}}'),
        "DataLossError: Option startingOffsets: Topic 'orders', queue 0: wanted offsets [3, 200), available are [",
    ),
    "messages that a stream lost": Mistake(
        Stores.lose_what_a_stream_wants, "DataLossError: Topic 'orders', queue 0: wanted offsets [20, "
    ),
    "damaged record": Mistake(
        lambda on: on.read(on.damaged.path), "set the option corruptRecordMode to skip. commitlog verify lists", 1
    ),
    "damaged record in a stream": Mistake(
        lambda on: on.stream(on.damaged.path), "set the option corruptRecordMode to skip. commitlog verify lists"
    ),
    "row without a body": Mistake(
        lambda on: on.write(_NULL_BODY), "PutRefused: MESSAGE_ILLEGAL: Message in row 2 of partition 0 (topic", 1
    ),
    "row without a body, in a stream": Mistake(
        lambda on: on.stream_into(_NULL_BODY), "PutRefused: MESSAGE_ILLEGAL: Message in row 2 of partition 0 (topic"
    ),
    "row with an illegal topic": Mistake(
        lambda on: on.write(_BODY, _BAD_TOPIC), "(topic 'no topic', no queue given): A topic is made of letters", 1
    ),
    "row with an illegal topic, in a stream": Mistake(
        lambda on: on.stream_into(_BODY, _BAD_TOPIC), "(topic 'no topic', no queue given): A topic is made of letters"
    ),
    "store of another owner": Mistake(Stores.write_while_locked, "Waited 0.1 s for it. Nothing was written. The"),
    "full disk": Mistake(
        lambda on: on.write(_BODY, diskSpaceWarningLevelRatio="0.000001"), "Nothing was written. Free some space"
    ),
}


# Paths that planning refuses, where Spark adds nothing: one of each of its three processes is run through Spark.
PATHS = {
    name: mistake
    for name, mistake in MISTAKES.items()
    if name.startswith(("path", "two ", "URI", "address")) and not name.startswith(("path without", "path of a file,"))
}
_RUN = [pytest.param(name, marks=[pytest.mark.stress] if name in PATHS else []) for name in MISTAKES]


@pytest.mark.parametrize("mistake", PATHS.values(), ids=PATHS)
def test_planning_says_it_first(planned_stores: PlannedStores, mistake: Mistake) -> None:
    with pytest.raises(CommitLogError) as caught:
        mistake.run(planned_stores)
    assert mistake.sentence in f"{type(caught.value).__name__}: {caught.value}".splitlines()[0]


@pytest.mark.parametrize("name", _RUN)
def test_the_sentence_comes_first(stores: Stores, name: str) -> None:
    from pyspark.errors import PySparkException

    mistake = MISTAKES[name]
    with pytest.raises(PySparkException) as caught:
        mistake.run(stores)
    said = str(caught.value)
    assert mistake.sentence in said.splitlines()[mistake.lines_before], said
    assert "Traceback" not in said


def test_an_error_of_the_users_own_keeps_its_traceback(stores: Stores) -> None:
    """Also in a worker in which a read of a damaged store would have failed before."""
    from pyspark.errors import PythonException
    from pyspark.sql.functions import udf

    def parse(body: bytes) -> int:
        return int(body)

    frame: DataFrame = read(stores.spark, stores.whole, subscribe="orders")
    for _ in range(2):
        with pytest.raises(PythonException, match="CorruptRecord"):
            stores.read(stores.damaged.path)
        with pytest.raises(PythonException, match=r"(?s)Traceback.* in parse\n.*ValueError: invalid literal"):
            frame.select(udf(parse, "int", useArrow=False)("body")).collect()


def test_an_error_in_a_program_of_the_user_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever Spark starts later would inherit it."""
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    with pytest.raises(OptionError):
        DefaultSource({}).schema()
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


@pytest.mark.parametrize(("given", "then"), [(None, "1"), ("", ""), ("1", "1")])
def test_an_empty_variable_brings_tracebacks_back(
    monkeypatch: pytest.MonkeyPatch, given: str | None, then: str
) -> None:
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", given or "")
    if given is None:
        monkeypatch.delenv("SPARK_HIDE_TRACEBACK")
    with pytest.raises(OptionError):
        DefaultSource({}).schema()
    assert os.environ["SPARK_HIDE_TRACEBACK"] == then


def test_all_that_spark_calls_has_short_errors() -> None:
    called = (DataSource, DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter)
    prefix = f"{pyspark_commitlog.__name__}."
    modules = [importlib.import_module(one.name) for one in pkgutil.walk_packages(pyspark_commitlog.__path__, prefix)]
    kinds = {
        kind
        for module in (pyspark_commitlog, *modules)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, called) and kind.__module__.startswith(pyspark_commitlog.__name__)
    }
    assert len(kinds) >= 7
    methods = {
        f"{kind.__name__}.{name}": method
        for kind in kinds
        for name, method in vars(kind).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }
    assert [name for name, method in methods.items() if not hasattr(method, "__wrapped__")] == []
