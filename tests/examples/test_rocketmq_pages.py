"""The Python of docs/rocketmq-for-tests.md and docs/producers-into-spark.md runs as it stands.

`tests/interop/clients` runs the pages' Java and Go.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.examples.test_readme import blocks_of
from tests.store.serve.rocketmq.remoting_client import RemotingClient
from tests.store.serve.servers import ServeProcess
from tests.store.test_rocketmq_for_tests import run_pytest
from tests.support.local_spark import PROJECT
from tests.support.spark_programs import SparkPrograms

# Stands for the reader's own program.
PLACE_ORDER = f"""#!{sys.executable}
import sys
sys.path.insert(0, {str(PROJECT)!r})
from tests.store.serve.rocketmq.remoting_client import RemotingClient
with RemotingClient(sys.argv[3]) as client:
    client.send("orders", b"order " + sys.argv[1].encode())
"""


def page(name: str) -> str:
    return (PROJECT / "docs" / name).read_text(encoding="utf-8")


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    program = tmp_path / "place-order"
    program.write_text(PLACE_ORDER)
    program.chmod(0o755)
    said = run_pytest(tmp_path, "\n\n".join(blocks_of(page("rocketmq-for-tests.md"))))
    assert "2 passed" in said, said


@pytest.mark.spark
def test_producers_reach_spark(spark_programs: SparkPrograms, tmp_path: Path) -> None:
    produce, read = blocks_of(page("producers-into-spark.md"))
    with ServeProcess(tmp_path / "store", "--rocketmq", "127.0.0.1:0") as server:
        with RemotingClient(server.broker) as client:
            assert client.send("orders", b"7.00", properties={"TAGS": "paid", "region": "US"}).code == 0
            assert client.send("orders", b"8.00", properties={"TAGS": "open"}).code == 0
        program = tmp_path / "program.py"
        text = (produce + read).replace("grpc://127.0.0.1:8815", server.url).replace("/tmp/paid", f"{tmp_path}/paid")
        program.write_text(f"{text}query.processAllAvailable()\nquery.stop()\n")
        ran = spark_programs.run(program, directory=tmp_path)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert ran.stdout.startswith("PutMessageStatus.PUT_OK")
    rows = pq.read_table(tmp_path / "paid").to_pylist()
    assert sorted((row["amount"], row["region"]) for row in rows) == [("12.50", "EU"), ("7.00", "US")]
