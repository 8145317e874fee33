"""``commitlog serve --archive``: a real server of S3's protocol, real processes, and the service step by step."""

from __future__ import annotations

import dataclasses
import logging
import re
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest

from commitlog_store import MessageStore, connect
from commitlog_store.archive.generations import newest
from commitlog_store.errors import InvalidValue
from commitlog_store.object_storage.object_store import ObjectStore
from commitlog_store.serve.archive_service import ArchiveService
from tests.store.archive.archives import archived_bytes, assert_sound, log_bytes
from tests.store.cli.commands import ended
from tests.store.retention.small_stores import SMALL, fill, log_bases
from tests.store.serve.http.scrapes import scrape, value
from tests.store.serve.servers import ServeProcess
from tests.support.clean_store import assert_clean
from tests.support.s3_server import BUCKET, KEYS, SECRET, options_for, s3_server
from tests.support.waiting import WAIT_LIMIT_S, wait_for

FILE = SMALL.mapped_file_size_commit_log


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of S3 in the environment, as a service has them."""
    for name, given in KEYS.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", given)


def _scraped(line: str) -> dict[str, float]:
    found = re.search(r"http://\S+(?= to browsers)", line)
    assert found is not None, line
    with httpx.Client(base_url=found[0]) as client:
        samples = scrape(client)
    return {one.name: one.value for one in samples if one.name.startswith("commitlog_archive_")} | {
        "end": value(samples, "commitlog_log_max_offset_bytes")
    }


@pytest.mark.usefixtures("keys")
def test_an_owner_archives_files_as_they_close_and_retention_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"mappedFileSizeCommitLog={FILE}\nretentionBytes={FILE}\n")
    with s3_server() as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        url = f"s3://{BUCKET}/served"
        options = ("--config", conf, "--archive", url, "--http", "127.0.0.1:0")
        with ServeProcess(tmp_path / "store", *options) as server:
            assert f"and archives it at {url}" in server.first_line
            with connect(server.url) as store:
                for _ in range(100):
                    store.put("orders", b"x" * 1000)
                wait_for(
                    lambda: (
                        (found := _scraped(server.first_line))["end"] // FILE * FILE
                        == found["commitlog_archive_stop_offset_bytes"]
                        > 0
                    )
                )
                found = _scraped(server.first_line)
                assert found["commitlog_archive_waiting_bytes"] == found["commitlog_archive_failing"] == 0
                assert found["commitlog_archive_uploaded_bytes_total"] > found["end"] - FILE
                stop = found["commitlog_archive_stop_offset_bytes"]
                kept = {"max_bytes": 0, "keep_for": [f"archive:{url}"], "keep_at_most_hours": 1e5}
                wait_for(lambda: store.clean(**kept).log_start == stop)  # type: ignore[arg-type]
            code, said = server.stop()
        assert code == 0
        assert SECRET not in said + server.first_line
        assert_clean(tmp_path / "store")
        objects = ObjectStore.open(url, options=options_for(endpoint))
        assert newest(objects).stop == stop == log_bases(tmp_path / "store")[0]
        assert_sound(objects)


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("kind", ["refuses", "is silent"])
def test_a_store_is_served_and_stops_in_time_while_object_storage(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        fill(store, 40)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1] if kind == "is silent" else 1
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        options = ("--archive", f"s3://{BUCKET}/x", "--drain-timeout", "0.5")
        with ServeProcess(tmp_path / "store", *options) as server:
            with connect(server.url) as remote:
                assert remote.put("orders", b"x").queue_offset >= 0
            begun = time.monotonic()
            code, said = server.stop(signal.SIGTERM)
            assert (code, time.monotonic() - begun < 20) == (0, True)
            assert "stopping" in said
    assert_clean(tmp_path / "store")


def test_a_failure_is_logged_once_repeated_with_back_off_and_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, archive = tmp_path / "store", tmp_path / "archive"
    with MessageStore.open(path, SMALL) as store, caplog.at_level(logging.WARNING):
        fill(store, 60)
        service = ArchiveService.open(str(path), f"file://{archive}")
        assert service.run_once() == 0.0
        (manifest,) = (archive / "manifest").iterdir()
        whole = manifest.read_bytes()
        manifest.write_bytes(b"damaged")
        assert [service.run_once() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
        assert service.state.failures == 8
        assert "is not a manifest" in service.state.failure
        manifest.write_bytes(whole)
        while service.run_once() == 0.0:
            pass
        state = service.state
        assert (state.failure, state.waiting) == ("", 0)
        fill(store, 30)
        service.begin_stop()
        assert service.run_once() == 0.0, "an upload that was begun ends"
        assert service.stop(1.0)
        assert newest(ObjectStore.open(f"file://{archive}")).stop == state.archived
    said = [one.getMessage() for one in caplog.records if one.name.endswith("archive_service")]
    assert len(said) == 2
    assert "waits: " in said[0]
    assert "continues" in said[1]
    objects = ObjectStore.open(f"file://{archive}")
    assert archived_bytes(objects) == log_bytes(path)[: state.archived]


def test_several_stores_are_not_archived_to_one_place(tmp_path: Path) -> None:
    with ServeProcess("a=/a", "b=/b", "--read-only", "--archive", f"file://{tmp_path}") as server:
        assert server.process.wait(WAIT_LIMIT_S) == 1
        assert "--archive goes with one store" in server.first_line


@pytest.mark.parametrize("how", [[], ["--read-only"]], ids=["owned", "read only"])
@pytest.mark.parametrize("place", ["past", "commitlog", "consumequeue/orders"])
def test_no_archive_is_made_in_the_stores_own_directory(tmp_path: Path, place: str, how: list[str]) -> None:
    """A server that only reads would write there, and files of the log have other files beside them then."""
    store = tmp_path / "store"
    with MessageStore.open(store, SMALL) as opened:
        fill(opened, 3)
    before = {path for path in store.rglob("*") if path.is_dir()} | set((store / "commitlog").iterdir())
    done = ended("serve", store, *how, "--archive", f"file://{store}/{place}", "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert f"{place} is in the directory {store} of the store itself. Give another one." in done.stderr
    assert before >= {path for path in store.rglob("*") if path.is_dir() and path.name != "config"}
    assert before >= set((store / "commitlog").iterdir())
    with pytest.raises(InvalidValue, match="is in the directory"):
        MessageStore.open(store, dataclasses.replace(SMALL, retention_archive=f"file://{store}/{place}"))
    assert not (store / "abort").exists(), "nothing was opened"


def test_no_store_is_made_for_an_archive_in_its_directory(tmp_path: Path) -> None:
    new = tmp_path / "new"
    done = ended("serve", new, "--create", "--archive", f"file://{new}/past", "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert "is in the directory" in done.stderr
    assert not new.exists()
