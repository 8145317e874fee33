"""The command ``commitlog serve``: how it begins and ends, and what clients see when it dies and comes back."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.errors import RemoteFailed, StoreForked, StoreLocked
from commitlog_store.paths import FIGURES
from commitlog_store.serve.figures.figure_ring import FigureRing
from commitlog_store.serve.figures.series import of_store
from tests.store.cli.commands import ended, plain
from tests.store.owner.owned_store import small
from tests.store.serve.servers import ServeProcess
from tests.support.clean_store import assert_clean
from tests.support.waiting import WAIT_LIMIT_S


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store") as store:
        bodies = [b"%05d" % number * 200 for number in range(20_000)]
        store.put_messages(pa.table({"topic": ["orders"] * 20_000, "body": bodies, "queueId": [0] * 20_000}))
    return tmp_path / "store"


def test_it_says_what_it_serves_and_stops_at_sigterm(store: Path) -> None:
    with ServeProcess(store, "--read-only", new_interpreter=True) as server:
        assert f"serving {store} (read only) at {server.url} to every client of this host" in server.first_line
        with StoreReader.open(server.url) as reader:
            assert reader.queue_info("orders", 0).max_offset == 20_000
        code, said = server.stop()
        assert code == 0
        assert "stopping" in said
    assert not (store / FIGURES).exists()


def test_an_owner_serves_its_store_and_closes_it_cleanly(store: Path) -> None:
    with ServeProcess(store, new_interpreter=True) as server:
        assert "(its owner)" in server.first_line
        with pytest.raises(StoreLocked):
            MessageStore.open(store)
        with StoreReader.open(server.url) as reader:
            assert reader.aborted
            assert reader.scan("orders", columns=["queueOffset"]).read_all().num_rows == 20_000
        assert server.stop(signal.SIGINT)[0] == 0
    assert_clean(store)
    # The minute that has begun is kept, too.
    assert not of_store(FigureRing(str(store)), "24h", time.time() + 60).is_empty


def test_a_new_store_is_served_with_create_only_and_the_first_line_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()  # where a disk is not mounted
    for name in ("empty", "mistyped"):
        refused = ended("serve", tmp_path / name)
        assert refused.returncode == 2
        assert "With --create, a new store is created." in refused.stderr
    (tmp_path / "file").touch()
    (tmp_path / "letters" / "store").mkdir(parents=True)
    for name in ("file", "letters"):
        refused = ended("serve", tmp_path / name)
        assert (refused.returncode, "--create" in refused.stderr) == (2, False), "it would not help"
    assert not (tmp_path / "mistyped").exists()
    assert not any((tmp_path / "empty").iterdir())
    lonely = ended("serve", tmp_path / "empty", "--create", "--read-only")
    assert "A store is created by its owner" in lonely.stderr
    for said in ("(its owner; a new store)", "(its owner)"):
        with ServeProcess(tmp_path / "new") as server:
            assert said in server.first_line
            assert server.stop()[0] == 0


@pytest.mark.parametrize("how", [[], ["--read-only"]], ids=["owned", "read only"])
def test_the_log_is_where_the_brokers_file_says(tmp_path: Path, how: list[str]) -> None:
    log = str(tmp_path / "log")
    with MessageStore.open(tmp_path / "store", MessageStoreConfig(store_path_commit_log=log)) as store:
        store.put("orders", b"x")
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathCommitLog={log}\n")
    with ServeProcess(tmp_path / "store", *how, "--config", config) as server:
        assert server.url, server.first_line
        with StoreReader.open(server.url) as reader:
            assert reader.scan("orders").read_all()["body"].to_pylist() == [b"x"]


def test_a_brokers_file_that_cannot_be_read_is_refused_with_read_only_too(store: Path, tmp_path: Path) -> None:
    refused = ended("serve", store, "--read-only", "--config", tmp_path / "missing.conf")
    assert refused.returncode == 2
    assert "Invalid value for --config" in refused.stderr


def test_several_stores_do_not_share_a_log(store: Path, tmp_path: Path) -> None:
    refused = ended("serve", f"a={store}", f"b={tmp_path / 'b'}", "--read-only", "--commit-log", tmp_path / "log")
    assert refused.returncode == 1
    assert "One log belongs to one store, and --commit-log names one for 2 stores" in refused.stderr
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathCommitLog={tmp_path / 'log'}\nbrokerName=a\nflushDiskType=SYNC_FLUSH\n")
    refused = ended("serve", f"a={store}", f"b={tmp_path / 'b'}", "--read-only", "--config", config)
    assert refused.returncode == 1
    assert f"storePathCommitLog of {config} names one for 2 stores: serve the store of that log" in refused.stderr


def test_a_copy_is_not_shown_with_the_log_of_the_live_store(tmp_path: Path) -> None:
    log, live, copy = tmp_path / "log", tmp_path / "live", tmp_path / "copy"
    with MessageStore.open(live, small(store_path_commit_log=str(log))) as store:
        store.put("orders", b"copied")
    shutil.copytree(live, copy)
    shutil.copytree(log, copy / "commitlog")
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathRootDir={live}\nstorePathCommitLog={log}\nflushDiskType=SYNC_FLUSH\n")
    refused = ended("serve", copy, "--read-only", "--config", config)
    assert refused.returncode == 2
    said = plain(refused.stderr).replace(" ", "")  # a long path is cut into lines
    expected = f"is that of the store at {live}, not of {copy}. Name the log of {copy} with --commit-log DIR"
    assert expected.replace(" ", "") in said
    (tmp_path / "link").symlink_to(live)
    own_log = ["--commit-log", str(copy / "commitlog")]
    for path, options in ((copy, own_log), (tmp_path / "link", [])):
        with ServeProcess(path, "--read-only", "--config", config, *options) as server:
            assert f"{config}: not used with --read-only: flushDiskType." in server.first_line
            assert server.process.stderr is not None
            assert f"serving {path} (read only)" in server.process.stderr.readline()


def test_a_store_that_is_none_is_an_error_at_once(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "nothing", "--read-only") as server:
        assert server.process.wait(WAIT_LIMIT_S) == 2
        assert "nothing" in server.first_line


def test_reads_go_on_when_the_server_comes_back(store: Path) -> None:
    with ServeProcess(store, "--read-only") as server, StoreReader.open(server.url) as reader:
        batches = iter(reader.scan("orders", columns=["queueOffset", "body"]))
        rows = [next(batches)]
        server.process.kill()
        server.process.wait()
        with ServeProcess(store, "--read-only", listen=server.url.removeprefix("grpc://")):
            rows += batches
            assert reader.topics() == ["orders"]
        offsets = pa.Table.from_batches(rows)["queueOffset"].to_pylist()
        assert offsets == list(range(20_000))


def test_a_server_that_stays_away_is_named_in_time(store: Path) -> None:
    with ServeProcess(store, "--read-only") as server, StoreReader.open(server.url, rpc_timeout_s=1) as reader:
        server.stop()
        begun = time.monotonic()
        with pytest.raises(RemoteFailed, match="No server of commitlog serve answers at"):
            reader.topics()
        assert time.monotonic() - begun < 20


def test_a_reader_that_stops_reading_does_not_keep_it_from_stopping(store: Path) -> None:
    with ServeProcess(store, "--read-only", "--drain-timeout", "0.2") as server, StoreReader.open(server.url) as reader:
        batches = iter(reader.scan("orders"))
        next(batches)  # and no further
        code, said = server.stop()
        assert code == 0
        assert "cut off" in said or "stopping" in said


def test_calls_wait_for_nobody(store: Path) -> None:
    """32 readers that do not read on, and questions beside them."""
    with ServeProcess(store, "--read-only") as server:
        readers = [StoreReader.open(server.url) for _ in range(32)]
        streams = [iter(reader.scan("orders")) for reader in readers]
        for stream in streams:
            next(stream)
        with StoreReader.open(server.url) as reader:
            assert reader.scan("orders", columns=["queueOffset"]).read_all().num_rows == 20_000
        for one in readers:
            one.close()


def test_a_wait_ends_with_ctrl_c(store: Path) -> None:
    with ServeProcess(store, "--read-only") as server, StoreReader.open(server.url) as reader:
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            reader.wait_for_any({("orders", 0): 20_000}, 60)
        assert time.monotonic() - begun < 20
        timer.join()


def test_a_forked_child_is_told(store: Path) -> None:
    with ServeProcess(store, "--read-only") as server, StoreReader.open(server.url) as reader:
        reader.topics()
        pid = os.fork()
        if pid == 0:
            try:
                reader.topics()
            except StoreForked:
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert reader.topics() == ["orders"]
