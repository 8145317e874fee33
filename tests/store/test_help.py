"""The examples in the docstrings of the public names run as they stand, and so help() shows working code."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

import commitlog_store
from commitlog_store import Message, MessageStore, MessageStoreConfig
from tests.store.serve.servers import served

PUBLIC = {name: getattr(commitlog_store, name) for name in vars(commitlog_store)["__all__"]}
# Records that calls return, and enumerations: the examples of the calls show them.
WITHOUT_EXAMPLE = {
    "ArchiveCheckReport", "ArchiveGcReport", "ArchiveReport", "ObjectStore", "RestoreReport",
    "BodyCompression", "Checkpoint", "CommittedBatch", "CompressionType", "ExportReport", "Fence", "Finding",
    "FlushDiskType", "FollowerStatus", "Gap", "HalfMessagesChecked", "IndexFileInfo", "MessageExtBrokerInner",
    "PendingHalfMessage",
    "Promotion", "PutMessageStatus", "RepairReport",
    "SalvageReport", "SkippedRange", "StagedFile", "StorageStats", "Stray",
}  # fmt: skip
DOCUMENTED = {name: one for name, one in PUBLIC.items() if inspect.isclass(one) or inspect.isfunction(one)}
# Those of repair and verify are tested with their functions.
RUN = sorted(DOCUMENTED.keys() - WITHOUT_EXAMPLE - {"repair_store", "verify_store"})


def example_of(documented: object) -> str:
    """The first indented block after a paragraph that ends with two colons."""
    text = inspect.getdoc(documented) or ""
    lines = text.partition("::\n\n")[2].splitlines()
    block = []
    for line in lines:
        if line and not line.startswith("    "):
            break
        block.append(line)
    return textwrap.dedent("\n".join(block))


@pytest.mark.parametrize("name", sorted(DOCUMENTED.keys() - WITHOUT_EXAMPLE))
def test_help_of_a_public_name_has_an_example(name: str) -> None:
    assert example_of(DOCUMENTED[name]).strip()


@pytest.mark.parametrize("name", RUN)
def test_the_example_runs(tmp_path: Path, name: str) -> None:
    path = tmp_path / "store"
    config = MessageStoreConfig(
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=100,
        max_index_num=400,
    )
    with MessageStore.open(path, config) as store:
        for topic in ("orders", "audit"):
            store.put_message(Message(queue_id=0, topic=topic, body=b"x", keys=["k1"])).raise_for_status()
    code = example_of(DOCUMENTED[name]).replace("/data/store", str(path))
    names = {**PUBLIC, "pa": pa}
    if "s3://bucket/orders" in code:
        archive = f"file://{tmp_path}/archive"
        commitlog_store.archive_store(path, archive, with_last=True)
        code = code.replace("s3://bucket/orders", archive).replace("/data/restored", f"{tmp_path}/restored")
    if "grpc://127.0.0.1:8815" in code:
        with MessageStore.open(path, config) as store, served(owned=store) as url:
            exec(compile(code.replace("grpc://127.0.0.1:8815", url), name, "exec"), names)
    else:
        exec(compile(code, name, "exec"), names)


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_every_public_method_says_what_it_does(name: str) -> None:
    documented = DOCUMENTED[name]
    methods = vars(documented).items() if inspect.isclass(documented) else {name: documented}.items()
    for method, value in methods:
        function = getattr(value, "__func__", getattr(value, "fget", value))
        if not method.startswith("_") and inspect.isfunction(function):
            assert inspect.getdoc(function), f"{name}.{method}"
