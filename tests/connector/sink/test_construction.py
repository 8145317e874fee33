"""Construction in the sink: planning a write touches files; making, pickling and unpickling its writers does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from pyspark_commitlog import DefaultSource
from pyspark_commitlog.errors import OptionError, SchemaError
from tests.connector.sink.sink_helpers import SMALL
from tests.support.waiting import WAIT_LIMIT_S

BODY = StructType([StructField("body", StringType())])

# Python reports each call to the system that names a file: of those, the ones below the directory in question.
_PROGRAM = """
import json, pickle, sys
from pyspark_commitlog.options.write import parse_batch_write_options, parse_stream_write_options
from pyspark_commitlog.sink.columns import SinkColumns
from pyspark_commitlog.sink.commit import plan_write
from pyspark_commitlog.sink.task import StageTask
from pyspark_commitlog.sink.writers import CommitLogBatchWriter, CommitLogStreamWriter

directory = sys.argv[1]
calls = []
sys.addaudithook(lambda event, given: calls.append(event) if any(directory in str(one) for one in given) else None)
given = {"path": directory + "/store", "topic": "orders"}
columns = SinkColumns(("body",))
batch, stream = parse_batch_write_options(given), parse_stream_write_options(given)
tasks = [StageTask(options=one, columns=columns, queue_counts={}) for one in (batch, stream)]
writers = [CommitLogBatchWriter(tasks[0]), CommitLogStreamWriter(tasks[1])]
pickle.loads(pickle.dumps(writers))
making = list(calls)
plan_write(batch, columns)
print(json.dumps({"making": making, "planning": calls[len(making):]}))
"""


def test_making_a_writer_touches_no_file_and_planning_the_write_does(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
        timeout=WAIT_LIMIT_S,
    )
    calls = json.loads(done.stdout)
    assert calls["making"] == []
    assert {"os.mkdir", "open"} <= set(calls["planning"]), "the check sees calls where they are made"
    assert (tmp_path / "store" / "commitlog").is_dir()


@pytest.mark.parametrize("kind", ["writer", "streamWriter"])
def test_bad_options_and_schemas_are_refused_before_a_file_is_touched(tmp_path: Path, kind: str) -> None:
    good = SMALL | {"path": str(tmp_path / "store")}
    with pytest.raises(OptionError, match="lockTimeout"):
        getattr(DefaultSource(good | {"lockTimeout": "soon"}), kind)(BODY, False)
    with pytest.raises(OptionError, match="append"):
        getattr(DefaultSource(good), kind)(BODY, True)
    with pytest.raises(SchemaError, match="Column body is INT"):
        getattr(DefaultSource(good), kind)(StructType([StructField("body", IntegerType())]), False)
    assert not list(tmp_path.iterdir())


def test_tasks_do_not_import_what_owns_a_store() -> None:
    """Every executor's Python imports what a pickled writer needs, while the rows wait."""
    program = "import sys, pyspark_commitlog.sink.writers; print('commitlog_store.store' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=WAIT_LIMIT_S
    )
    assert done.stdout.strip() == "False"
