"""Looks at a served store: tables about it, its assessment, exports, and filters that the server compares."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.flight as flight
import pytest

from commitlog_store import METADATA_SCHEMAS, MessageFilter, MessageStore, StoreReader, export_store, store_metadata
from commitlog_store.errors import InvalidValue, RemoteFailed, StoreLocked
from commitlog_store.queue.log_blocks import BlockLimits
from commitlog_store.remote.wire import WIRE_VERSION, decode_error
from tests.store.cli.commands import run
from tests.store.serve.servers import SPOKEN, served
from tests.support import golden


@pytest.fixture(scope="module")
def golden_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden.copy_golden(golden.ROCKETMQ_533, tmp_path_factory.mktemp("served") / "store")


@pytest.fixture(scope="module")
def url(golden_store: Path) -> Iterator[str]:
    with served(golden_store) as address:
        yield address


@pytest.mark.parametrize("table", METADATA_SCHEMAS)
def test_a_table_about_the_store_is_that_of_the_directory(golden_store: Path, url: str, table: str) -> None:
    found, expected = store_metadata(url, table), store_metadata(golden_store, table)
    if table == "groups":  # how long messages wait is asked at another time
        found, expected = found.drop_columns(["lagMs"]), expected.drop_columns(["lagMs"])
    assert found == expected
    assert found.num_rows or table in ("batches", "groups", "findings")


def test_topics_are_listed_as_those_of_the_directory(tmp_path: Path) -> None:
    """With the numbers of queues and the perms of ``config/topics.json``."""
    path = tmp_path / "store"
    with MessageStore.open(path) as store:
        store.create_topic("orders", 8, read_queues=12)
        store.put("orders", b"x")
    with served(path) as url, StoreReader.open(path) as local, StoreReader.open(url) as remote:
        assert remote.topic_settings() == local.topic_settings()
        assert remote.topic_settings()["orders"].read_queue_nums == 12
        assert run("topics", "ls", url) == run("topics", "ls", path)


def test_another_table_is_refused_with_a_suggestion(url: str) -> None:
    with pytest.raises(InvalidValue, match=r"Unknown table 'queue'\. Did you mean 'queues'"):
        store_metadata(url, "queue")


@pytest.mark.parametrize("state", ["owned", "killed", "cut"])
def test_a_store_that_would_not_open_is_assessed_with_its_error(tmp_path: Path, state: str) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path) as store:
        store.put("orders", b"x")
        store.dispatch()
        if state == "owned":
            with served(owned=store) as url, StoreReader.open(url) as remote:
                assessment = remote.facts().assessment
                assert assessment is not None
                assert isinstance(assessment.opening.refusal, StoreLocked)
                assert "verdict OK" in run("info", url)
            return
    if state == "killed":
        (path / "abort").touch()
    with served(path) as url, StoreReader.open(url) as remote, StoreReader.open(path) as local:
        if state == "cut":
            os.truncate(path / "commitlog" / f"{0:020d}", 50)
        far, near = remote.facts().assessment, local.facts().assessment
        assert far is not None
        assert near is not None
        assert (far.opening.kind, far.opening.reason) == (near.opening.kind, near.opening.reason)
        assert (far.opening.kind == "refused") == (state == "cut")
        assert type(far.opening.refusal) is type(near.opening.refusal)
        assert str(far.opening.refusal) == str(near.opening.refusal)
        assert far.findings == near.findings


def test_facts_and_assessment_are_those_of_the_directory(golden_store: Path, url: str) -> None:
    with StoreReader.open(golden_store) as local, StoreReader.open(url) as remote:
        facts = [reader.facts() for reader in (remote, local)]
        far, near = (replace(one.assessment, seconds=0.0) for one in facts if one.assessment)
        assert far == near
        assert all(one.log_disk_free and one.log_disk_used for one in facts)
        # Other programs write to the disk, too.
        far_rest, near_rest = (replace(one, assessment=None, log_disk_free=0, log_disk_used=0.0) for one in facts)
        assert far_rest == near_rest
        assert remote.facts(assessed=False).assessment is None


@pytest.mark.parametrize(
    "command", [["info"], ["info", "--queues", "--sizes"], ["info", "-o", "csv"], ["doctor"], ["doctor", "-o", "csv"]]
)
def test_commands_show_what_they_show_of_the_directory(golden_store: Path, url: str, command: list[str]) -> None:
    shown = []
    for path in (url, str(golden_store)):
        text = run(command[0], path, *command[1:])
        shown.append(re.sub(r"overdue by [^\n]*|[0-9.]+ s\b", "", text.replace(url, str(golden_store))))
    assert shown[0] == shown[1]


def test_an_export_has_the_rows_of_the_directory_and_is_resumed_with_either(
    golden_store: Path, url: str, tmp_path: Path
) -> None:
    for name, path in (("far", url), ("near", str(golden_store))):
        export_store(path, f"ndjson:{tmp_path / name}", topics=["orders"])
    assert (tmp_path / "far").read_bytes() == (tmp_path / "near").read_bytes() != b""
    again = export_store(url, f"ndjson:{tmp_path / 'far'}", topics=["orders"], resume=True)
    assert again.rows == 0 < again.total_rows


def _filtered(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store") as store:
        rows = [
            {"topic": "orders", "body": b"b%d" % n, "keys": f"k{n % 7}", "properties": {"amount": str(n % 100)}}
            for n in range(2_000)
        ]
        store.put_messages(rows)
    return tmp_path / "store"


@pytest.mark.parametrize("chosen", [{"filter": "amount > 97"}, {"keys": "k3"}, {"filter": "amount < 0"}, {}])
def test_a_filter_at_the_server_gives_the_same_rows_and_sends_less(tmp_path: Path, chosen: dict[str, Any]) -> None:
    path = _filtered(tmp_path)
    with (
        served(path) as url,
        StoreReader.open(path) as local,
        StoreReader.open(url) as remote,
        StoreReader.open(url, filter_at="server") as filtered,
    ):
        tables = [reader.scan("orders", **chosen).read_all() for reader in (local, remote, filtered)]
        assert tables[0] == tables[1] == tables[2]
        if chosen:
            queue = filtered.queues("orders")[0]
            ranges = [("orders", queue.queue_id, queue.min_offset, queue.max_offset)]
            wanted = MessageFilter.parse(**chosen)
            sent = []
            for reader in (remote, filtered):
                blocks, parts = reader.blocks_of(ranges)
                pieces = blocks.of_ranges(parts, BlockLimits(), wanted=wanted)
                sent.append(sum(len(one.data) for one in pieces))
            assert sent[1] < sent[0] / 2


def test_a_filter_is_at_the_server_or_at_the_reader(tmp_path: Path) -> None:
    path = _filtered(tmp_path)
    with pytest.raises(InvalidValue, match="is for a store that commitlog serve shows, not a directory"):
        StoreReader.open(path, filter_at="server")
    with pytest.raises(InvalidValue, match="filter_at is 'reader' or 'server', not 'client'"):
        StoreReader.open(path, filter_at="client")  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [WIRE_VERSION - 1, WIRE_VERSION + 1])
def test_a_client_of_another_version_is_refused_with_both(
    url: str, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr("commitlog_store.remote.connection.WIRE_VERSION", version)
    with pytest.raises(RemoteFailed, match=f"speaks version {version} .* this server version {WIRE_VERSION}: "):
        StoreReader.open(url)


def test_a_client_without_a_version_is_refused(url: str) -> None:
    with flight.FlightClient(url) as client, pytest.raises(flight.FlightServerError) as caught:
        list(client.do_action(flight.Action("topics", b"")))
    assert "speaks version none" in str(decode_error(caught.value.extra_info))
    with flight.FlightClient(url) as client, pytest.raises(flight.FlightServerError) as caught:
        client.do_get(flight.Ticket(b"")).read_all()
    assert "speaks version none" in str(decode_error(caught.value.extra_info))


def test_a_question_that_is_not_utf_8_is_refused_by_name(url: str) -> None:
    """A text of MessagePack, with one byte."""
    for ask in (
        lambda client: list(client.do_action(flight.Action("topics", b"\x93\xa1\xff\xa5raise\x90"), SPOKEN)),
        lambda client: client.do_get(flight.Ticket(b"\x9a\xa1\xff"), SPOKEN).read_all(),
    ):
        with flight.FlightClient(url) as client, pytest.raises(flight.FlightServerError) as caught:
            ask(client)
        assert isinstance(decode_error(caught.value.extra_info), InvalidValue)
