"""Addresses in HDFS, and name nodes that are not there. ``archive/test_hdfs.py`` has a real one."""

from __future__ import annotations

import importlib
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import ArchiveFailed, InvalidValue
from commitlog_store.object_storage import hdfs_client
from commitlog_store.object_storage.address import StorageAddress
from commitlog_store.object_storage.cloud_client import load_obstore
from commitlog_store.object_storage.hdfs_client import HdfsFailure
from commitlog_store.object_storage.object_store import ObjectStore
from tests.support.programs import child_environment

CALLS: list[Callable[[ObjectStore], object]] = [
    lambda objects: objects.get("x"),
    lambda objects: objects.put("x", [b"x"], 1),
    lambda objects: list(objects.list()),
]


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a name node that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        yield port


@pytest.mark.parametrize("call", CALLS)
def test_a_name_node_that_refuses_connections_is_named_with_the_reason(call: Callable[[ObjectStore], object]) -> None:
    objects = ObjectStore.open("hdfs://127.0.0.1:1/a", retry_timeout_s=0.5)
    began = time.monotonic()
    with pytest.raises(ArchiveFailed, match=r"hdfs://127\.0\.0\.1:1/a/.*: Connection refused") as failed:
        call(objects)
    assert failed.value.__cause__ is None
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("call", CALLS)
def test_a_name_node_that_never_answers_is_an_error_in_time(
    call: Callable[[ObjectStore], object], silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hdfs-native itself would wait without end."""
    monkeypatch.setattr(hdfs_client, "_CLEANING_S", 0.2)
    objects = ObjectStore.open(f"hdfs://127.0.0.1:{silent}/a", retry_timeout_s=0.5)
    with pytest.raises(ArchiveFailed, match=rf"hdfs://127\.0\.0\.1:{silent}/a/.*: no answer within 0.5 s"):
        call(objects)


def test_an_address_without_a_port_has_hadoops_own() -> None:
    """Unless it is a name service of Hadoop's settings."""
    with pytest.raises(ArchiveFailed, match="Connection refused"):
        ObjectStore.open("hdfs://127.0.0.1/a", retry_timeout_s=0.1).get("x")
    settings = {"dfs.ha.namenodes.past": "a", "dfs.namenode.rpc-address.past.a": "127.0.0.1:1"}
    with pytest.raises(ArchiveFailed, match="Connection refused"):
        ObjectStore.open("hdfs://past/a", options=settings, retry_timeout_s=0.1).get("x")


@pytest.mark.parametrize("url", ["hdfs://host:8020", "hdfs://host/", "hdfs:///", "webhdfs://host/a", "hdfs://u@host/a"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue, match=r"An archive is s3://|The address of an archive"):
        StorageAddress.parse(url)


def test_an_address_without_a_name_node_needs_hadoops_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidValue, match=r"hdfs:///a cannot be used: .*No fs\.defaultFS setting"):
        ObjectStore.open("hdfs:///a")
    default = {"fs.defaultFS": "hdfs://127.0.0.1:1"}
    with pytest.raises(ArchiveFailed, match="Connection refused"):
        ObjectStore.open("hdfs:///a", options=default, retry_timeout_s=0.1).get("x")


def test_a_port_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidValue, match="hdfs://host:99999/a cannot be used: Port out of range"):
        ObjectStore.open("hdfs://host:99999/a")


@pytest.mark.parametrize("name", ["endpoint", "region", "no_such_option"])
def test_settings_that_are_not_hadoops_are_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match=f"Hadoop's, such as .*: '{name}' is not one of them"):
        StoreReader.open("hdfs://host:1/a", storage_options={name: "x"})


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    hdfs_client.load_hdfs_native.cache_clear()
    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(InvalidValue, match=r"needs the package hdfs-native: pip install 'pyspark-commitlog\[hdfs\]'"):
        StorageAddress.parse("hdfs://host:1/a").connect()


def test_the_extra_hdfs_is_enough_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    load_obstore.cache_clear()
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    objects = ObjectStore.open("hdfs://127.0.0.1:1/a", retry_timeout_s=0.1)
    for call in CALLS:
        with pytest.raises(ArchiveFailed, match="Connection refused"):
            call(objects)
    with pytest.raises(InvalidValue, match="need the package obstore"):
        ObjectStore.open("s3://bucket/a")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            (
                r'RPCError("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Name node is in \"safe mode\".'
                r'\n\tat org.apache.hadoop.hdfs.server.namenode.FSNamesystem.check(FSNamesystem.java:1)")'
            ),
            'Name node is in "safe mode"',
        ),
        ("File does not exist: /a\n\tat org.apache.hadoop.X.y(X.java:87)\n\tat Z", "File does not exist: /a"),
        ('DataTransferError("no more data nodes")', 'DataTransferError("no more data nodes")'),
        ("", "RuntimeError"),
    ],
)
def test_javas_stack_is_not_shown(text: str, said: str) -> None:
    assert str(HdfsFailure(RuntimeError(text))) == said


def test_a_process_may_end_while_a_request_is_under_way() -> None:
    """A thread that comes back from Rust while the interpreter is taken down would abort the process."""
    program = """
import sys, threading, time, types
from commitlog_store.object_storage.object_store import ObjectStore

class TakenDownSlowly:
    def __del__(self, sleep=time.sleep):
        sleep(1.5)

sys.modules["slow"] = types.ModuleType("slow")
sys.modules["slow"].one = TakenDownSlowly()
objects = ObjectStore.open("hdfs://127.0.0.1:1/a", retry_timeout_s=1)
threading.Thread(target=objects.get, args=("x",), daemon=True).start()
time.sleep(0.2)
"""
    # Not quick_programs: those do not take an interpreter down.
    done = subprocess.run(
        [sys.executable, "-c", program], env=child_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not re.search("FATAL|Traceback", done.stderr)
