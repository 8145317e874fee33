"""Archives in a real HDFS: the same as in object storage. Hadoop's jars are fetched, so these are long runs."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pa_parquet
import pytest

from commitlog_store import StoreReader, export_store
from commitlog_store.archive.archiver import ArchiveReport, archive_store
from commitlog_store.archive.check import check_archive
from commitlog_store.archive.gc import gc_archive
from commitlog_store.archive.generations import newest, newest_or_none
from commitlog_store.archive.restore import restore_store
from commitlog_store.errors import ArchiveAccessRefused, ArchiveFailed, ArchiveNotFound, InvalidValue
from commitlog_store.object_storage import hdfs_client
from commitlog_store.object_storage.clients import PART_SIZE
from commitlog_store.object_storage.object_store import ObjectCut, ObjectStore
from tests.store.archive.archives import add_messages, archived_bytes, assert_sound, log_bytes, small_store
from tests.store.cli.commands import ended
from tests.support import quick_programs
from tests.support.hdfs_server import HdfsServer, hdfs_server
from tests.support.programs import child_environment
from tests.support.store_builder import StoreBuilder

pytestmark = [pytest.mark.stress, pytest.mark.timeout(900)]

KILLS = 6


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    with hdfs_server(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.fixture
def url(server: HdfsServer, request: pytest.FixtureRequest) -> str:
    """A directory of the test's own, which does not exist."""
    return f"{server.url}/tests/{request.node.originalname}-{next(_number)}"


_number = itertools.count()


def test_a_store_is_archived_read_checked_and_restored(url: str, tmp_path: Path) -> None:
    objects = ObjectStore.open(url)
    with pytest.raises(ArchiveNotFound, match="it has no manifest"):
        StoreReader.open(url)
    builder = small_store(tmp_path / "store", 200)
    archive_store(tmp_path / "store", url)
    add_messages(builder, 200)
    report = archive_store(tmp_path / "store", url, with_last=True)
    assert archived_bytes(objects) == log_bytes(tmp_path / "store")[: report.stop]
    assert_sound(objects)
    gc_archive(objects, older_than_s=-60)
    assert check_archive(objects).unnamed == 0
    with StoreReader.open(url) as archive, StoreReader.open(tmp_path / "store") as directory:
        assert archive.stats().requests == 3
        assert archive.scan("orders").read_all().equals(directory.scan("orders").read_all())
    restore_store(objects, tmp_path / "restored")
    assert log_bytes(tmp_path / "restored") == log_bytes(tmp_path / "store")


@pytest.mark.parametrize("name", ["golden_533", "golden_498"])
def test_a_golden_store_comes_back_byte_for_byte(
    name: str, url: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store: Path = request.getfixturevalue(name)
    archive_store(store, url, with_last=True)
    report = restore_store(url, tmp_path / "restored")
    assert log_bytes(tmp_path / "restored")[: report.stop] == log_bytes(store)[: report.stop]


def test_a_new_name_is_given_once_though_many_ask_at_once(url: str) -> None:
    """What a rename without overwrite promises, and the commit of a manifest needs."""
    objects = ObjectStore.open(url)
    assert [objects.put_new("manifest/1", data) for data in (b"a", b"b", b"a")] == [True, False, False]
    assert objects.get("manifest/1") == b"a"
    for number in range(10):
        name, begin, put = f"manifest/race-{number}", threading.Barrier(4), list[bytes]()

        def race(data: bytes, name: str = name, begin: threading.Barrier = begin, put: list[bytes] = put) -> None:
            begin.wait()
            if ObjectStore.open(url).put_new(name, data):
                put.append(data)

        threads = [threading.Thread(target=race, args=(b"%d" % one,)) for one in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [objects.get(name)] == put
    assert len(list(objects.list(unfinished=True))) == 11


def test_a_large_object_appears_whole_or_not_at_all(url: str) -> None:
    objects = ObjectStore.open(url)
    pieces = [bytes([number]) * (3 << 20) for number in range(7)]
    data, seen = b"".join(pieces), list[tuple[object, int]]()

    def watched() -> Iterator[bytes]:
        for piece in pieces:
            yield piece
            seen.append((objects.head("commitlog/x"), len(list(objects.list()))))

    objects.put("commitlog/x", watched(), len(data))
    assert seen == [(None, 0)] * 7
    assert objects.get("commitlog/x") == data
    assert objects.get_ranges("commitlog/x", [(0, 10), (PART_SIZE - 5, PART_SIZE + 5)]) == [
        data[:10],
        data[PART_SIZE - 5 : PART_SIZE + 5],
    ]
    for start, stop in ((0, len(data) + 1), (1 << 40, 1 << 41)):
        with pytest.raises(ObjectCut, match=f"commitlog/x has {len(data)} bytes"):
            objects.piece("commitlog/x", start, stop)
    objects.put("commitlog/x", [b"another"], 7)
    assert objects.get("commitlog/x") == b"another"

    def broken() -> Iterator[bytes]:
        yield from pieces
        raise ValueError("the file was changed")

    with pytest.raises(ValueError, match="changed"):
        objects.put("commitlog/y", broken(), 10 * len(data))
    assert [one.name for one in objects.list(unfinished=True)] == ["commitlog/x"]


def test_listings_are_of_a_folder_in_order_and_in_pieces(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_client, "LISTED_AT_ONCE", 10)
    objects = ObjectStore.open(url)
    assert list(objects.list()) == []
    assert list(objects.list("manifest", first_only=True)) == []
    names = [f"manifest/{number:04d}" for number in random.sample(range(25), 25)]
    for name in names:
        objects.put(name, [], 0)
    objects.put("log/a b%20ü", [b"x"], 1)
    requests = objects.stats.requests
    assert [one.name for one in objects.list("manifest", first_only=True)] == sorted(names)[:10]
    assert objects.stats.requests == requests + 1
    assert [one.name for one in objects.list("manifest")] == sorted(names)
    assert {one.name for one in objects.list()} == {*names, "log/a b%20ü"}
    [found] = objects.list("log")
    assert found == objects.head("log/a b%20ü")
    assert abs(found.modified_ms / 1000 - time.time()) < 60
    objects.delete(["log/a b%20ü", "log/missing", "missing/at-all"])
    assert list(objects.list("log")) == []


def test_two_archivers_at_once_make_one_archive(url: str, tmp_path: Path) -> None:
    small_store(tmp_path / "store", 400)
    begin, reports, failures = threading.Barrier(2), list[ArchiveReport](), list[Exception]()

    def archive() -> None:
        begin.wait()
        try:
            reports.append(archive_store(tmp_path / "store", url))
        except Exception as error:  # noqa: BLE001 - the test fails with it
            failures.append(error)

    threads = [threading.Thread(target=archive) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    objects = ObjectStore.open(url)
    manifest = newest(objects)
    assert sum(report.added for report in reports) == len(manifest.segments) == manifest.generation
    data = archived_bytes(objects)
    assert data == log_bytes(tmp_path / "store")[: len(data)]
    assert_sound(objects)


def test_a_killed_archiver_continues_and_leaves_no_file_for_good(url: str, tmp_path: Path) -> None:
    small_store(tmp_path / "store", 600)
    objects, left = ObjectStore.open(url), 0
    command = [sys.executable, "-m", "commitlog_store", "archive", str(tmp_path / "store"), url]
    for number in range(KILLS):
        before = len(list(objects.list(unfinished=True)))
        process = quick_programs.Popen(
            command, env=child_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and len(list(objects.list(unfinished=True))) <= before + number:
            time.sleep(0.01)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        left += len(list(objects.list(unfinished=True))) - len(list(objects.list()))
        if newest_or_none(objects) is not None:
            assert_sound(objects)
    assert left, "no kill came while a file was written"
    archive_store(tmp_path / "store", url, with_last=True)
    data = archived_bytes(objects)
    assert data == log_bytes(tmp_path / "store")[: len(data)]
    gc_archive(objects, older_than_s=-60)
    assert_sound(objects)
    named = {ref.name for ref in newest(objects).objects()}
    assert len(list(objects.list(unfinished=True))) == len(named) + 2, "no orphan is left"


def test_an_unfinished_file_of_an_archiver_that_runs_stays(url: str, tmp_path: Path) -> None:
    small_store(tmp_path / "store", 100)
    archive_store(tmp_path / "store", url)
    objects = ObjectStore.open(url)
    name = newest(objects).segments[0].log.name

    def parts() -> Iterator[bytes]:
        yield b"x" * PART_SIZE
        assert gc_archive(objects).deleted == 0
        yield b"y"

    objects.put(name, parts(), PART_SIZE + 1)
    assert objects.head(name).size == PART_SIZE + 1  # type: ignore[union-attr]


def test_an_export_is_resumed_with_each_row_once(url: str, tmp_path: Path) -> None:
    built = StoreBuilder(tmp_path / "store")
    built.append("orders", [0, 1], [b"%06d" % row * 20 for row in range(300)])
    export_store(built.path, f"parquet:{url}", file_size=4_000)
    built.append("orders", [0, 1], [b"more"] * 100)
    with pytest.raises(InvalidValue, match=r"exists already.*--resume"):
        export_store(built.path, f"parquet:{url}")
    objects = ObjectStore.open(url)
    unfinished = "topic=orders/part-00000099-0123456789abcdef.parquet#unfinished-0123456789abcdef"
    objects.put(unfinished, [b"half"], 4)
    assert export_store(built.path, f"parquet:{url}", resume=True).rows == 100
    rows: list[tuple[int, int]] = []
    for one in objects.list("topic=orders", unfinished=True):
        (tmp_path / "part").write_bytes(objects.get(one.name) or b"")
        rows += [(row["queueId"], row["queueOffset"]) for row in pa_parquet.read_table(tmp_path / "part").to_pylist()]
    assert sorted(rows) == [(queue, at) for queue in (0, 1) for at in range(200)]


def test_a_directory_and_its_archive_are_one_history(url: str, tmp_path: Path) -> None:
    small_store(tmp_path / "store", 400)
    archive_store(tmp_path / "store", url)
    with StoreReader.open(tmp_path / "store") as directory:
        expected = directory.scan("orders").read_all()
    for file in sorted((tmp_path / "store" / "commitlog").iterdir())[:2]:
        file.unlink()
    with StoreReader.open(tmp_path / "store", archive=url, cache_dir=tmp_path / "cache") as reader:
        assert reader.scan("orders").read_all().equals(expected)


def test_the_commands_take_an_address_in_hdfs(url: str, tmp_path: Path) -> None:
    small_store(tmp_path / "store", 200)
    assert ended("archive", str(tmp_path / "store"), url).returncode == 0
    assert ended("archive", "--check", url, "--deep").returncode == 0
    shown = ended("cat", url, "orders", "--json", "--count", "2", "--stats")
    assert [json.loads(line)["topic"] for line in shown.stdout.splitlines()] == ["orders"] * 2
    assert "requests to object storage" in shown.stderr
    assert ended("archive", "--gc", url).returncode == 0
    assert ended("restore", url, str(tmp_path / "restored")).returncode == 0


def test_a_user_without_permission_is_named(server: HdfsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others' directory exists, and has the object."""
    ObjectStore.open(f"{server.url}/locked/a").put("a", [b"a"], 1)
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    objects = ObjectStore.open(f"{server.url}/locked/a")
    calls: list[tuple[str, Callable[[], object]]] = [
        ("list", lambda: list(objects.list())),
        ("write", lambda: objects.put("a", [b"a"], 1)),
        ("write", lambda: objects.put_new("a", b"a")),
        ("look at", lambda: objects.head("a")),
        ("read", lambda: objects.get("a")),
    ]
    for what, call in calls:
        with pytest.raises(ArchiveAccessRefused, match=rf"{what} hdfs://.*user=somebody.*HADOOP_USER_NAME") as refused:
            call()
        assert "\tat " not in str(refused.value)
        assert "\\" not in str(refused.value)


def test_a_name_service_is_looked_up_in_the_settings_of_hadoop(
    server: HdfsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first name node does not answer."""
    address = server.url.removeprefix("hdfs://")
    settings = {
        "fs.defaultFS": "hdfs://past",
        "dfs.ha.namenodes.past": "a,b",
        "dfs.namenode.rpc-address.past.a": "127.0.0.1:1",
        "dfs.namenode.rpc-address.past.b": address,
    }
    ObjectStore.open(f"{server.url}/tests/service").put("a", [b"content"], 7)
    assert ObjectStore.open("hdfs://past/tests/service", options=settings).get("a") == b"content"
    properties = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()
    )
    (tmp_path / "hdfs-site.xml").write_text(f"<configuration>{properties}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert ObjectStore.open("hdfs://past/tests/service").get("a") == b"content"
    assert ObjectStore.open("hdfs:///tests/service").get("a") == b"content"


def test_a_name_node_that_does_not_answer_is_an_error_and_is_asked_again_later(url: str, server: HdfsServer) -> None:
    objects = ObjectStore.open(url, retry_timeout_s=2)
    objects.put("a", [b"content"], 7)
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        for call in (lambda: objects.get("a"), lambda: objects.put("b", [b"b"], 1), lambda: list(objects.list())):
            began = time.monotonic()
            with pytest.raises(ArchiveFailed, match=f"{url}.*: no answer within 2 s"):
                call()
            assert time.monotonic() - began < 30
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    assert ObjectStore.open(url).get("a") == b"content"
    assert objects.get("a") == b"content"


def test_a_name_node_that_has_ended_is_named(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 100)
    with hdfs_server(tmp_path) as server:
        url = f"{server.url}/a"
        archive_store(tmp_path / "store", url)
        reader = StoreReader.open(url)
        server.process.kill()
        server.process.wait()
        objects = ObjectStore.open(url, retry_timeout_s=1)
        with pytest.raises(ArchiveFailed, match=f"Failed to read {url}/x, asked for .*: Connection refused"):
            objects.get("x")
        reader.close()


def test_an_archive_continues_when_another_name_node_takes_over(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 200)
    with hdfs_server(tmp_path, "pair") as server:
        first = server.url.removeprefix("hdfs://")
        settings = {
            "dfs.ha.namenodes.past": "a,b",
            "dfs.namenode.rpc-address.past.a": first,
            "dfs.namenode.rpc-address.past.b": f"127.0.0.1:{server.port}",
        }
        url = "hdfs://past/open/orders"
        objects = ObjectStore.open(url, options=settings)
        archive_store(tmp_path / "store", objects)
        with StoreReader.open(url, storage_options=settings) as archive:
            server.fail_over()
            add_messages(builder, 200)
            report = archive_store(tmp_path / "store", objects, with_last=True)
            assert report.added
            assert archived_bytes(objects) == log_bytes(tmp_path / "store")[: report.stop]
            assert_sound(objects)
            assert archive.scan("orders").read_all().num_rows
        with pytest.raises(ArchiveFailed, match="standby"):
            ObjectStore.open(f"{server.url}/open/orders", retry_timeout_s=0.5).put("x", [b"x"], 1)


def test_kerberos_takes_the_keytab_of_the_environment(tmp_path: Path) -> None:
    """All connections are encrypted, too."""
    small_store(tmp_path / "store", 200)
    with hdfs_server(tmp_path, "kerberos") as server:
        environment = child_environment() | {
            "HADOOP_CONF_DIR": str(server.directory / "conf"),
            "KRB5_CONFIG": server.krb5_conf,
            "KRB5CCNAME": str(tmp_path / "tickets"),
        }

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "commitlog_store", *arguments]
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

        refused = run("archive", str(tmp_path / "store"), "hdfs:///open/a")
        assert refused.returncode == 1
        assert "refuses to let this client list hdfs:///open/a/manifest" in refused.stderr
        assert "No Kerberos credentials available" in refused.stderr
        environment["KRB5_CLIENT_KTNAME"] = str(server.directory / "alice.keytab")
        for arguments in (
            ("archive", str(tmp_path / "store"), "hdfs:///open/a", "--with-last"),
            ("archive", "--check", "--deep", "hdfs:///open/a"),
            ("restore", "hdfs:///open/a", str(tmp_path / "restored")),
        ):
            done = run(*arguments)
            assert done.returncode == 0, done.stderr
        refused = run("archive", str(tmp_path / "store"), "hdfs:///of-alice")
        assert "Permission denied: user=alice" in refused.stderr
    assert log_bytes(tmp_path / "restored") == log_bytes(tmp_path / "store")
