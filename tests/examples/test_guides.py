"""The Python of the guides for programs without Spark runs as it stands, on a store in place of the one they name."""

from __future__ import annotations

import contextlib
import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from tests.examples.test_readme import blocks_of
from tests.support.local_spark import PROJECT

_GUIDES = (
    *("configuration.md", "consumer-groups.md", "consuming.md", "delayed-messages.md", "half-messages.md"),
    *("python.md", "retention.md"),
)


class _EnoughRead(Exception):
    """Ends a loop that waits for further messages."""


def _handle(message: Message) -> None:
    if message.body == b"last":
        raise _EnoughRead


@pytest.mark.parametrize("guide", _GUIDES)
def test_the_python_of_a_guide_runs(guide: str, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text(f"flushDiskType=SYNC_FLUSH\nstorePathRootDir={tmp_path}/store\n")
    with MessageStore.open(tmp_path / "store", MessageStoreConfig(max_hash_slot_num=1_000)) as store:
        for body in (b"first", b"last"):
            store.put("orders", body, queue_id=0, tags="paid", keys=["k"], properties={"amount": "200"})
    blocks = blocks_of((PROJECT / "docs" / guide).read_text(encoding="utf-8"))
    assert blocks
    for number, block in enumerate(blocks):
        if "polars" in block:
            continue  # it is not installed where the tests run
        program = block.replace("/opt/rocketmq/conf", str(tmp_path)).replace("/data/", f"{tmp_path}/")
        with contextlib.ExitStack() as stack, contextlib.suppress(_EnoughRead):
            exec(compile(program, f"{guide}, block {number}", "exec"), _names(block, tmp_path, stack))


def _names(block: str, directory: Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    """The names that a page leaves to its reader; of a block without imports, also what earlier ones have opened."""
    names: dict[str, Any] = {
        "__name__": "guide", "handle": _handle, "TemporaryProblem": OSError, "version": 1, "invoices_of": _invoices_of,
        "datetime": dt.datetime, "timedelta": dt.timedelta, "timezone": dt.timezone, "Message": Message,
    }  # fmt: skip
    if "import" in block:
        return names
    if "reader." in block:
        return {**names, "reader": stack.enter_context(StoreReader.open(directory / "store"))}
    store = stack.enter_context(MessageStore.open(directory / "store"))
    names["store"] = store
    if "consumer" in block:
        names["consumer"] = stack.enter_context(store.consumer("invoices", ["orders"]))
    return names


def _invoices_of(orders: pa.RecordBatch) -> pa.Table:
    return pa.table({"topic": ["invoices"] * orders.num_rows, "body": orders.column("body")})
