"""A task resumes after an error: after the last message it gave, whatever fillers lie between."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from commitlog_store import FILLER_SIZE
from commitlog_store.format.consume_queue_unit import UNIT_FILE_DTYPE
from pyspark_commitlog.errors import DataLossError
from pyspark_commitlog.options.read import parse_options
from pyspark_commitlog.source.partitions import RangePartition
from pyspark_commitlog.source.schema import check_schema
from pyspark_commitlog.source.task import ReadTask
from pyspark_commitlog.source.units_of_ranges import QueueRange
from tests.support.store_builder import StoreBuilder

WHOLE = RangePartition((QueueRange("orders", 0, 0, 105),))
PLACE = StructType([StructField("queueOffset", LongType()), StructField("storeSize", IntegerType())])


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    """105 offsets, of which [30, 35) are fillers; 14 messages to a file of the log."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=16 << 10)
    builder.append("orders", 0, [b"x" * 1000] * 30)
    fillers = np.zeros(5, UNIT_FILE_DTYPE)
    fillers["size"] = FILLER_SIZE
    builder.write_units("orders", 0, 30, fillers)
    builder.start_queue_at("orders", 0, 35)
    builder.append("orders", 0, [b"x" * 1000] * 70)
    return builder


def task(store: StoreBuilder, schema: StructType = PLACE, *, fail: bool = False) -> ReadTask:
    options = {"path": str(store.path), "subscribe": "orders", "failOnDataLoss": str(fail), "verifyCrc": "true"}
    return ReadTask(parse_options(options), check_schema(schema))


MESSAGES = [*range(30), *range(35, 105)]


def test_fillers_give_no_rows(store: StoreBuilder) -> None:
    assert [offset for batch in task(store).read(WHOLE) for offset in batch.column(0).to_pylist()] == MESSAGES


def test_after_a_hole_after_fillers_no_row_comes_twice(store: StoreBuilder, caplog: pytest.LogCaptureFixture) -> None:
    path = sorted((store.path / "commitlog").iterdir())[4]  # messages 56 to 69, at offsets 61 to 74
    path.unlink()
    found = [offset for batch in task(store).read(WHOLE) for offset in batch.column(0).to_pylist()]
    assert found == [offset for offset in MESSAGES if not 61 <= offset < 75]
    assert f"of the wanted offsets [61, 105), [61, 75) cannot be read, since {path} is missing" in caplog.text
    with pytest.raises(DataLossError, match=r"\[61, 75\) cannot be read"):
        list(task(store, fail=True).read(WHOLE))


@pytest.mark.parametrize("chosen", [{"tags": "rare"}, {"filter": "TAGS CONTAINS 'rare'"}], ids=str)
def test_a_selective_task_resumes_after_what_it_looked_at(tmp_path: Path, chosen: dict[str, str]) -> None:
    """Retention overtakes a task that has found nothing for a while: only what it had not looked at is lost."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=16 << 10)
    builder.append(
        "orders", 0, [b"x" * 1000] * 140, tags=["rare" if row in (3, 60, 120) else "often" for row in range(140)]
    )
    path = sorted((builder.path / "commitlog").iterdir())[4]  # messages 56 to 69
    path.unlink()
    options = {"path": str(builder.path), "subscribe": "orders", "failOnDataLoss": "false", **chosen}
    wanted = RangePartition((QueueRange("orders", 0, 0, 140),))
    batches = ReadTask(parse_options(options), check_schema(PLACE)).read(wanted)
    assert [offset for batch in batches for offset in batch.column(0).to_pylist()] == [3, 120]
    strict = ReadTask(parse_options(options | {"failOnDataLoss": "true"}), check_schema(PLACE)).read(wanted)
    with pytest.raises(DataLossError, match=r"\[(56|60), 70\) cannot be read"):
        list(strict)


def test_after_retention_after_fillers_no_row_comes_twice(store: StoreBuilder) -> None:
    batches = task(store).read(WHOLE)
    read = [next(batches) for _ in range(4)]  # a batch ends with a file of the log: up to message 55, at offset 60
    assert read[-1].column(0)[-1].as_py() == 60
    store.delete_log_files(5)
    read += batches
    assert [offset for batch in read for offset in batch.column(0).to_pylist()] == [
        offset for offset in MESSAGES if not 61 <= offset < 75
    ]


def test_messages_before_a_hole_are_read_though_the_hole_is_noticed_early(store: StoreBuilder) -> None:
    """A unit that points into the hole, out of order, is met while the messages before it are still to be read."""
    queue = store.path / "consumequeue" / "orders" / "0" / f"{0:020}"
    units = np.fromfile(queue, UNIT_FILE_DTYPE)
    units["physical_offset"][56] = units["physical_offset"][77]
    units.tofile(queue)
    sorted((store.path / "commitlog").iterdir())[5].unlink()  # offsets 75 to 88
    found = [offset for batch in task(store).read(WHOLE) for offset in batch.column(0).to_pylist()]
    assert found == [*range(30), *range(35, 56), *range(57, 75), *range(89, 105)]


def test_a_schema_without_the_offset_gets_only_its_own_columns(store: StoreBuilder) -> None:
    schema = StructType([StructField("storeSize", IntegerType())])
    batches = list(task(store, schema).read(WHOLE))
    assert {tuple(batch.schema.names) for batch in batches} == {("storeSize",)}
    assert sum(batch.num_rows for batch in batches) == len(MESSAGES)
