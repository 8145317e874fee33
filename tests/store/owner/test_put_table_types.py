"""No call of the write path leaves it to pyarrow to find out the type of Python values.

It would look for dateutil among the modules each time, which costs 0.1 ms, and an interrupt in there is swallowed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import sys
import pyarrow as pa
from commitlog_store import BatchId, BatchStager, MessageStore

asked = []

class Watching:
    def find_spec(self, name, path=None, target=None):
        asked.append(name)

rows = pa.table(
    {
        "body": pa.array([b"a", None, b"c"], pa.binary()),
        "topic": pa.array(["orders", "bills", "orders"], pa.string()),
        "tags": pa.array(["x", None, ""], pa.string()),
        "keys": pa.array([["k1", "k2"], [], None], pa.list_(pa.string())),
        "shardingKey": pa.array(["s", None, None], pa.string()),
        "properties": pa.array([[("a", "b")], None, [("UNIQ_KEY", "u")]], pa.map_(pa.string(), pa.string())),
        "delayLevel": pa.array([0, None, 3], pa.int32()),
    }
)
plain = rows.select(["body", "topic"]).slice(2)
with MessageStore.open(sys.argv[1]) as store:
    store.put_messages(rows)  # what is imported once and for all is imported here
    with store.transaction("loader", 1) as batch:
        batch.put_messages(plain)
    sys.meta_path.insert(0, Watching())
    store.put_messages(rows)
    with store.transaction("loader", 2) as batch:
        batch.put_messages(rows.slice(2))
    with BatchStager(sys.argv[1], BatchId("stager", 1), queue_counts={}) as stager:
        stager.put(plain)
        stager.finish()
print(*asked)
"""


def test_the_write_path_imports_no_further_module(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert "dateutil" not in done.stdout.split()
