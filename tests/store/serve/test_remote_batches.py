"""Batches through a server: what is committed is what a directory gets, once, whatever happens to calls and answers."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commitlog_store import BatchId, MessageStore, RemoteBatches, StagedFile, StoreReader
from commitlog_store.errors import (
    BatchConflict,
    CorruptStaging,
    InvalidValue,
    NotServed,
    PutNotConfirmed,
    RemoteAccessRefused,
    RemoteFailed,
    StagingLost,
)
from commitlog_store.remote import uploads
from commitlog_store.serve.flight_server import StoreServer
from commitlog_store.serve.listen import ListenSettings
from commitlog_store.serve.store_writer import ForgottenWrites
from commitlog_store.serve.tokens import Role, new_token
from commitlog_store.stager import BatchStager
from tests.store.serve.cutting_proxy import CuttingProxy
from tests.store.serve.servers import ServeProcess, served
from tests.support import quick_programs
from tests.support.clean_store import assert_clean
from tests.support.programs import may_mount
from tests.support.waiting import wait_for

BATCH = BatchId("loader", 3)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    MessageStore.open(tmp_path / "store").close()
    return tmp_path / "store"


@pytest.fixture
def server(store: Path) -> Iterator[ServeProcess]:
    with ServeProcess(store) as process:
        yield process


def port_of(server: ServeProcess) -> int:
    return int(server.url.rpartition(":")[2])


def upload(batches: RemoteBatches, batch: BatchId, *bodies: bytes, partition: int = 0) -> StagedFile:
    with BatchStager(batches, batch, queue_counts={"orders": 1}, topic="orders", partition=partition) as stager:
        stager.put(pa.table({"body": list(bodies)}))
        staged = stager.finish()
    assert staged is not None
    return staged


def commit(batches: RemoteBatches, batch: BatchId, *staged: StagedFile) -> Any:
    return batches.commit(batch, staged, new_topic_queues=1, on_device=True)


def bodies_of(place: Path | str) -> list[bytes]:
    with StoreReader.open(place) as reader:
        if "orders" not in reader.topics():
            return []
        found: list[bytes] = reader.scan("orders", columns=["body"]).read_all()["body"].to_pylist()
        return found


def staged_files(store: Path) -> list[Path]:
    return [path for path in (store / "staging").rglob("*") if path.is_file()]


def test_an_upload_of_many_parts_is_one_staged_file(
    store: Path, server: ServeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "PART_SIZE", 1000)
    bodies = [os.urandom(300) for _ in range(100)]
    with RemoteBatches.connect(server.url) as batches:
        files = [upload(batches, BATCH, *bodies[:60]), upload(batches, BATCH, *bodies[60:], partition=1)]
        assert sorted(map(str, staged_files(store))) == sorted(str(store / one.path) for one in files)
        assert commit(batches, BATCH, *files).rows == 100
        assert commit(batches, BATCH, *files).already_there
        with pytest.raises(BatchConflict, match=f"The server at {server.url}: "):
            commit(batches, BatchId("loader", 2, "other"), *files)
    assert bodies_of(store) == bodies
    assert not staged_files(store)
    assert server.stop()[0] == 0
    assert_clean(store)


def test_an_upload_that_is_given_up_is_removed(
    store: Path, server: ServeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "PART_SIZE", 1000)
    with RemoteBatches.connect(server.url) as batches:
        with BatchStager(batches, BATCH, queue_counts={}, topic="orders") as stager:
            stager.put(pa.table({"body": [b"a" * 2500]}))
            assert len(staged_files(store)) == 1
        assert not staged_files(store), "it was not finished"
        batches.remove([upload(batches, BATCH, b"a")])
        assert not staged_files(store)
        with BatchStager(batches, BATCH, queue_counts={}, topic="orders") as stager:
            assert stager.finish() is None


def test_an_upload_that_is_not_whole_is_not_committed(store: Path, server: ServeProcess) -> None:
    with RemoteBatches.connect(server.url) as batches:
        whole = upload(batches, BATCH, b"a" * 2000)
        os.truncate(store / whole.path, whole.size - 1)
        with pytest.raises(CorruptStaging, match="The server at"):
            commit(batches, BATCH, whole)
        os.unlink(store / whole.path)
        with pytest.raises(StagingLost):
            commit(batches, BATCH, whole)
        with pytest.raises(InvalidValue, match="is not the path of a staged file"):
            commit(batches, BATCH, StagedFile("../../etc/passwd", 1, 1, 1))
        own, other = upload(batches, BATCH, b"a"), upload(batches, BatchId("other", 3), b"b")
        with pytest.raises(InvalidValue, match=r"The server at .* is named twice"):
            commit(batches, BATCH, own, own)
        with pytest.raises(InvalidValue, match="is not one of batch 3 of 'loader'"):
            commit(batches, BATCH, own, other)
        with pytest.raises(InvalidValue, match="belongs to an application"):
            commit(batches, BatchId(""), own)
        with pytest.raises(CorruptStaging, match="Part in one at byte 0: expected checksum"):
            batches.ask("upload_part", BATCH, "one", 0, b"damaged", 1, None)
        with pytest.raises(InvalidValue, match="belongs to the store"):
            batches.ask("upload_part", BatchId("rmq-epoch"), "one", 0, b"", 0, None)
    assert bodies_of(store) == []


@pytest.mark.parametrize("answers", [1, 3])
def test_an_answer_that_was_lost_is_asked_for_again(store: Path, server: ServeProcess, answers: int) -> None:
    """The answers to parts and to the commit hold the batch's id."""
    with CuttingProxy(port_of(server)) as proxy, RemoteBatches.connect(proxy.url) as batches:
        for version in (3, 4):
            batch = BatchId("loader", version)
            proxy.lose_answers(b"loader", answers)
            staged = upload(batches, batch, b"%d" % version)
            assert not proxy.answers_to_lose
            proxy.lose_answers(b"loader", answers)
            assert commit(batches, batch, staged).already_there
            assert not proxy.answers_to_lose
    assert bodies_of(store) == [b"3", b"4"]
    assert not staged_files(store)


def test_requests_that_break_off_and_come_again_store_nothing_twice(store: Path, server: ServeProcess) -> None:
    bodies = [os.urandom(200_000) for _ in range(10)]
    with CuttingProxy(port_of(server)) as proxy:
        for cut in (60, 300, 5_000, 1_000_000):
            proxy.break_requests(cut, 2)
            with RemoteBatches.connect(proxy.url) as batches:
                staged = upload(batches, BatchId("loader", cut), *bodies)
            proxy.break_requests(min(cut, 300), 2)
            with RemoteBatches.connect(proxy.url) as batches:
                assert commit(batches, BatchId("loader", cut), staged).rows == 10
            assert not proxy.requests_to_break
        assert proxy.replay() > 4
        versions = itertools.count(2_000_000)
        with RemoteBatches.connect(proxy.url) as batches:

            def a_commit_removes_what_came_late() -> bool:
                """A server may still be busy with the last of them, though its connection is closed."""
                batch = BatchId("loader", next(versions))
                commit(batches, batch, upload(batches, batch, b"last"))
                return not staged_files(store)

            wait_for(a_commit_removes_what_came_late)
    assert bodies_of(store) == [*(4 * bodies), *(next(versions) - 2_000_000) * [b"last"]]


def test_a_server_that_comes_back_goes_on(store: Path, server: ServeProcess) -> None:
    """Killed between the parts, and between the upload and the commit."""
    place = server.url.removeprefix("grpc://")
    with RemoteBatches.connect(server.url) as batches:
        first = upload(batches, BATCH, b"a")
        server.process.kill()
        server.process.wait()
        with ServeProcess(store, listen=place) as second:
            files = [first, upload(batches, BATCH, b"b", partition=1)]
            second.process.kill()
            second.process.wait()
            with ServeProcess(store, listen=place) as third:
                assert commit(batches, BATCH, *files).rows == 2
                assert third.stop()[0] == 0
    assert bodies_of(store) == [b"a", b"b"]
    assert_clean(store)


def test_a_commit_without_an_answer_is_of_unknown_outcome(store: Path, server: ServeProcess) -> None:
    with RemoteBatches.connect(server.url, rpc_timeout_s=0.3) as batches:
        staged = upload(batches, BATCH, b"a")
        server.stop(signal.SIGKILL)
        with pytest.raises(PutNotConfirmed, match="Whether it is in the store shows when it is committed"):
            commit(batches, BATCH, staged)
        with pytest.raises(RemoteFailed, match="No server of commitlog serve answers"):
            upload(batches, BATCH, b"a")
        with pytest.raises(RemoteFailed):
            batches.staging_plan(None, 4)


def test_a_commit_whose_answer_does_not_come_is_found_out_by_the_next_one(store: Path, server: ServeProcess) -> None:
    """The connection lasts, and says nothing."""
    given_up = threading.Event()
    with CuttingProxy(port_of(server)) as proxy, RemoteBatches.connect(server.url) as batches:
        staged = upload(batches, BATCH, b"a")
        proxy.lose_answers(b"loader", 1, then=lambda: wait_for(given_up.is_set))
        with RemoteBatches.connect(proxy.url, rpc_timeout_s=1) as impatient:
            with pytest.raises(PutNotConfirmed, match="did not answer commit_batch within 1"):
                commit(impatient, BATCH, staged)
            assert not proxy.answers_to_lose
            given_up.set()
            assert commit(batches, BATCH, staged).already_there
    assert bodies_of(store) == [b"a"]


@pytest.mark.parametrize("refused_by", ["a server that is read only", "a token file without the token"])
def test_a_commit_is_of_unknown_outcome_when_only_its_repetition_is_refused(tmp_path: Path, refused_by: str) -> None:
    path, tokens = tmp_path / "store", tmp_path / "tokens.jsonl"
    token = new_token(str(tokens), "spark", Role.WRITE)
    with MessageStore.open(path) as owned, contextlib.ExitStack() as stack:
        url = stack.enter_context(served(owned=owned, tokens=str(tokens)))
        proxy = stack.enter_context(CuttingProxy(int(url.rpartition(":")[2])))
        batches = stack.enter_context(RemoteBatches.connect(proxy.url, token=token))
        staged = upload(batches, BATCH, b"a")

        def refuse() -> None:
            if refused_by.startswith("a token"):
                tokens.write_text("")
            else:
                proxy.retarget(int(stack.enter_context(served(path)).rpartition(":")[2]))

        proxy.lose_answers(b"loader", 1, then=refuse)
        with pytest.raises(PutNotConfirmed, match="Whether it is in the store shows when it is committed again"):
            commit(batches, BATCH, staged)
        with pytest.raises((RemoteAccessRefused, NotServed)):
            commit(batches, BATCH, staged)
    assert bodies_of(path) == [b"a"]


@pytest.mark.parametrize("name", ["..", "../a", "a/b", "", "a\0b"])
def test_names_that_lead_elsewhere_are_refused(store: Path, server: ServeProcess, name: str) -> None:
    staged = StagedFile(f"staging/a/0/{name}", 1, 1, 1)
    with RemoteBatches.connect(server.url) as batches:
        with pytest.raises(InvalidValue, match="An upload is called by letters"):
            batches.ask("upload_part", BATCH, name, 0, b"", 0, None)
        with pytest.raises(InvalidValue, match="not the path of a staged file"):
            commit(batches, BATCH, staged)
        with pytest.raises(InvalidValue, match="not the path of a staged file"):
            batches.remove([staged])
    assert not staged_files(store)


def test_a_write_without_a_name_is_forgotten(store: Path, server: ServeProcess) -> None:
    unnamed = BatchId("write-0123")
    with RemoteBatches.connect(server.url) as batches:
        staged = upload(batches, unnamed, b"a")
        assert not commit(batches, unnamed, staged).already_there
        assert commit(batches, unnamed, staged).already_there
        batches.forget_write(unnamed)
        with pytest.raises(StagingLost):
            commit(batches, unnamed, staged)
        commit(batches, BATCH, upload(batches, BATCH, b"b"))
        batches.forget_write(BATCH)
    with StoreReader.open(store) as reader:
        assert [one.batch for one in reader.batches()] == [BATCH]


def test_calls_for_a_write_that_has_ended_come_late_and_are_refused(store: Path, server: ServeProcess) -> None:
    """Else a part and a commit that the network held back would store the write a second time."""
    unnamed = BatchId("write-0123")
    with RemoteBatches.connect(server.url) as batches:
        staged = upload(batches, unnamed, b"a")
        commit(batches, unnamed, staged)
        batches.forget_write(unnamed)
        with pytest.raises(StagingLost, match="this call came late"):
            upload(batches, unnamed, b"a")
        with pytest.raises(StagingLost, match="this call came late"):
            commit(batches, unnamed, staged)
    assert bodies_of(store) == [b"a"]
    assert not staged_files(store)


def test_forgotten_writes_are_bounded() -> None:
    forgotten = ForgottenWrites(most=2)
    for number in range(3):
        forgotten.add(BatchId(f"write-{number}"))
    forgotten.refuse(BatchId("write-0"))
    for number in (1, 2):
        with pytest.raises(StagingLost):
            forgotten.refuse(BatchId(f"write-{number}"))


def test_commits_of_many_clients_are_stored_once_each(store: Path, server: ServeProcess) -> None:
    def write(number: int) -> None:
        batch = BatchId(f"app-{number}", 1)
        with RemoteBatches.connect(server.url) as batches:
            staged = upload(batches, batch, b"%d" % number)
            results[number] = [commit(batches, batch, staged).already_there for _ in range(2)]

    results: dict[int, list[bool]] = {}
    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [False, True] for number in range(8)}
    assert sorted(bodies_of(store)) == [b"%d" % number for number in range(8)]


def test_many_tasks_with_many_topics_commit_in_one_question(store: Path, server: ServeProcess) -> None:
    """200 files that name 1,000 topics each: 16 MB if each file said so."""
    topics = [f"topic-of-the-customer-number-{number:06}" for number in range(1000)]
    table = pa.table({"topic": topics, "body": [b"a"] * 1000, "queueId": [0] * 1000})
    with RemoteBatches.connect(server.url) as batches:
        files = []
        for partition in range(200):
            with BatchStager(batches, BATCH, queue_counts={}, partition=partition) as stager:
                stager.put(table.slice(0, 1000 if partition == 0 else 1))
                files.append(stager.finish())
        whole = [one for one in files if one is not None]
        widest = [replace(one, topics=whole[0].topics) for one in whole]
        committed = batches.commit(BATCH, widest, new_topic_queues=1, on_device=True)
        assert committed.rows == 1199
        with StoreReader.open(server.url) as reader:
            assert len(reader.topics()) == 1001


_TEXT = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8)
_ROW = st.fixed_dictionaries(
    {
        "body": st.binary(min_size=1, max_size=400),
        "topic": st.sampled_from(["orders", "audit", "new"]),
        "tags": st.none() | _TEXT.filter(lambda text: "|" not in text),
        "keys": st.none() | st.lists(_TEXT, max_size=3),
        "queueId": st.none() | st.integers(0, 9),
        "shardingKey": st.none() | _TEXT,
        "flag": st.none() | st.integers(0, 9),
        "delayLevel": st.none() | st.integers(0, 18),
    }
)
_SCHEMA = pa.schema(
    [
        *(("body", pa.binary()), ("topic", pa.string()), ("tags", pa.string()), ("keys", pa.list_(pa.string()))),
        *(("queueId", pa.int32()), ("shardingKey", pa.string()), ("flag", pa.int32()), ("delayLevel", pa.int32())),
        ("bornTimestamp", pa.int64()),
    ]
)


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MessageStore, str]]:
    path = tmp_path_factory.mktemp("owned") / "store"
    listen = ListenSettings.parse("127.0.0.1:0", tls=None, tokens=None)
    with MessageStore.open(path) as store:
        server = StoreServer({"": lambda _: StoreReader.open(path)}, listen, owned=store)
        try:
            yield store, f"grpc://127.0.0.1:{server.port}"
        finally:
            server.shutdown()
            server.close()


_SMALL_ROW = {"body": b"b", "topic": "new", "tags": "a", "keys": ["k"], "queueId": 0} | dict.fromkeys(
    ["shardingKey", "flag", "delayLevel"]
)


# A part is a question to the server: parts of a few bytes take most of the time, so only few rows are cut so.
@example(rows=[_SMALL_ROW] * 2, part_size=1, chunks=1, partition=1)
@given(
    rows=st.lists(_ROW, min_size=1, max_size=30),
    part_size=st.integers(100, 3000),
    chunks=st.integers(1, 4),
    partition=st.integers(0, 3),
)
def test_an_uploaded_file_has_the_bytes_of_a_staged_one(
    owned: tuple[MessageStore, str], rows: list[dict[str, Any]], part_size: int, chunks: int, partition: int
) -> None:
    """For any rows, in parts of any size: so what is committed, and how, cannot differ."""
    store, url = owned
    table = pa.Table.from_pylist([row | {"bornTimestamp": 1_700_000_000_000} for row in rows], schema=_SCHEMA)
    found = []
    with pytest.MonkeyPatch.context() as patch, RemoteBatches.connect(url) as batches:
        patch.setattr(uploads, "PART_SIZE", part_size)
        for place in (batches, store.path):
            counts = {"orders": 4, "audit": 1}
            with BatchStager(place, BATCH, queue_counts=counts, partition=partition) as stager:
                for start in range(0, len(rows), chunks):
                    stager.put(table.slice(start, chunks))
                staged = stager.finish()
            assert staged is not None
            path = Path(store.path, staged.path)
            found.append((staged.rows, staged.size, staged.crc, staged.topics, path.read_bytes()))
            path.unlink()
    assert found[0] == found[1]


def test_a_full_disk_at_the_server_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    if not may_mount(mount):
        pytest.skip("mounting a small file system takes root, or a system that lets users have mounts of their own")
    ran = quick_programs.run_with_own_mounts("tests.store.serve.on_a_small_disk", mount, timeout=200)
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr[-3000:]
