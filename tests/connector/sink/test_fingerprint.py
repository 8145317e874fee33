"""Fingerprint of a batch: finds the query's checkpoint, and distinguishes the plans of a batch."""

from __future__ import annotations

import json
import logging
import os
import socket
from functools import partial
from pathlib import Path

import pytest

from commitlog_store.object_storage import reading
from commitlog_store.object_storage.object_store import ObjectStore
from pyspark_commitlog.options.write import SinkOptions, parse_stream_write_options
from pyspark_commitlog.sink import fingerprint
from pyspark_commitlog.sink.fingerprint import checkpoint_fingerprint
from tests.support.hdfs_server import hdfs_server
from tests.support.s3_server import BUCKET, KEYS, SECRET, options_for, s3_server

QUERY = "0f3a"


@pytest.fixture(autouse=True)
def no_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that says nothing about a cloud."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(fingerprint, "_warned", set())


def options(**sparks: str) -> SinkOptions:
    return parse_stream_write_options({"path": "/store"} | sparks)


def checkpoint(path: Path, query_id: str = QUERY, plan: str = "v1\nplan") -> Path:
    (path / "offsets").mkdir(parents=True)
    (path / "metadata").write_text(json.dumps({"id": query_id}))
    (path / "offsets" / "4").write_text(plan)
    return path


def test_the_same_plan_gives_the_same_fingerprint(tmp_path: Path) -> None:
    one, same, other = (checkpoint(tmp_path / name, plan=name[0]) for name in ("a1", "a2", "b"))
    first, second, third = (
        checkpoint_fingerprint(options(checkpointlocation=str(path)), None, QUERY, 4) for path in (one, same, other)
    )
    assert len(first) == 32
    assert first == second != third


@pytest.mark.parametrize("name", ["plain", "with space", "with%20escape"])
@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}"])
def test_paths_and_uris_name_the_directory_as_it_is_written(tmp_path: Path, name: str, form: str) -> None:
    """Spark makes a directory with '%20' in its name for such a URI."""
    path = checkpoint(tmp_path / name)
    assert checkpoint_fingerprint(options(checkpointlocation=form.format(path)), None, QUERY, 4)


def test_an_escaped_uri_is_tried_too(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "with space")
    assert checkpoint_fingerprint(options(checkpointlocation=path.as_uri()), None, QUERY, 4)


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_dots_in_a_path_are_resolved_in_the_text_as_spark_does(tmp_path: Path, form: str) -> None:
    """The system would go into the directory first, which is not there."""
    checkpoint(tmp_path / "c")
    location = form.format(f"{tmp_path}/notthere/../c")
    assert checkpoint_fingerprint(options(checkpointlocation=location), None, QUERY, 4)


def test_the_sessions_root_and_the_querys_name_give_the_checkpoint(tmp_path: Path) -> None:
    checkpoint(tmp_path / "my query")
    assert checkpoint_fingerprint(options(queryname="my query"), str(tmp_path), QUERY, 4)
    assert checkpoint_fingerprint(options(queryname="my query"), tmp_path.as_uri(), QUERY, 4)


def test_a_query_without_a_name_is_new_at_every_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert checkpoint_fingerprint(options(), str(tmp_path), QUERY, 4) == ""
    assert not caplog.records


@pytest.mark.parametrize("location", ["webhdfs://host/c", "s3a://bucket/c", "file://elsewhere/c", "/not/there"])
def test_a_checkpoint_that_cannot_be_read_is_warned_about_once(location: str, caplog: pytest.LogCaptureFixture) -> None:
    query_id = f"query {hash(location)}"
    with caplog.at_level(logging.WARNING):
        for batch_id in (4, 5):
            assert checkpoint_fingerprint(options(checkpointlocation=location), None, query_id, batch_id) == ""
    assert [record.getMessage().count(location) for record in caplog.records] == [1]


def test_a_checkpoint_of_another_query_is_not_taken(tmp_path: Path) -> None:
    """A local directory may have the path that the checkpoint has on another file system."""
    path = checkpoint(tmp_path / "c", query_id="another")
    assert checkpoint_fingerprint(options(checkpointlocation=str(path)), None, QUERY, 4) == ""


def test_a_checkpoint_in_object_storage_has_the_fingerprint_that_it_has_on_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = checkpoint(tmp_path / "c")
    location = f"s3a://{BUCKET}/checkpoints/c"
    asked = options(checkpointlocation=location)
    assert checkpoint_fingerprint(asked, None, QUERY, 4) == ""
    assert "no AWS_* variable" in caplog.text
    for name, given in KEYS.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", given)
    with s3_server() as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        objects = ObjectStore.open(location, options=options_for(endpoint))
        for name in ("metadata", "offsets/4"):
            objects.put(name, [(path / name).read_bytes()], (path / name).stat().st_size)
        found = checkpoint_fingerprint(asked, None, QUERY, 4)
        assert found == checkpoint_fingerprint(options(checkpointlocation=str(path)), None, QUERY, 4) != ""
        assert checkpoint_fingerprint(options(queryname="c"), f"s3a://{BUCKET}/checkpoints", QUERY, 4) == found
        assert checkpoint_fingerprint(asked, None, QUERY, 5) == ""
        assert checkpoint_fingerprint(asked, None, "another", 4) == ""
        assert "of another query" in caplog.text
    with socket.create_server(("127.0.0.1", 0)) as ended:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{ended.getsockname()[1]}")
    assert checkpoint_fingerprint(asked, None, "after the server", 4) == ""
    assert "Failed to read" in caplog.text
    assert SECRET not in caplog.text


def test_a_checkpoint_in_hdfs_that_is_not_there_has_the_reason_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "read_object", partial(reading.read_object, timeout_s=0.1))
    asked = options(checkpointlocation="hdfs://127.0.0.1:1/checkpoints/c")
    for batch_id in (4, 5):
        assert checkpoint_fingerprint(asked, None, "of HDFS", batch_id) == ""
    [record] = caplog.records
    assert "nor as objects: Failed to read hdfs://127.0.0.1:1/checkpoints/c/metadata" in record.getMessage()
    assert "Connection refused" in record.getMessage()


@pytest.mark.stress
def test_a_checkpoint_in_hdfs_has_the_fingerprint_that_it_has_on_a_disk(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "c")
    with hdfs_server(tmp_path) as server:
        location = f"{server.url}/checkpoints/c"
        objects = ObjectStore.open(location)
        for name in ("metadata", "offsets/4"):
            objects.put(name, [(path / name).read_bytes()], (path / name).stat().st_size)
        asked = options(checkpointlocation=location)
        found = checkpoint_fingerprint(asked, None, QUERY, 4)
        assert found == checkpoint_fingerprint(options(checkpointlocation=str(path)), None, QUERY, 4) != ""
        assert checkpoint_fingerprint(options(queryname="c"), f"{server.url}/checkpoints", QUERY, 4) == found
        assert checkpoint_fingerprint(asked, None, QUERY, 5) == ""
        assert checkpoint_fingerprint(asked, None, "another", 4) == ""
