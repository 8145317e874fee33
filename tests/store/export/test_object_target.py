"""Exports into a real S3 server: each row exactly once, also after a kill, and never by two exports at once."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pa_parquet
import pytest

from commitlog_store import ExportReport, StoreReader, export_store
from commitlog_store.errors import InvalidValue, TailLost, TargetFailed
from commitlog_store.export.object_target import ObjectPlace
from commitlog_store.export.targets import parse_target
from commitlog_store.object_storage.object_store import ObjectStore
from tests.support.killing_proxy import KillingProxy
from tests.support.s3_server import BUCKET, KEYS, options_for, s3_server
from tests.support.store_builder import StoreBuilder

TEN = ["topic", "queueId", "queueOffset", "tags"]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        for name, given in KEYS.items():
            patch.setenv(f"AWS_{name.upper()}", given)
        yield endpoint


def _store(path: Path, count: int = 300) -> StoreBuilder:
    built = StoreBuilder(path)
    for topic in ("orders", "clicks"):
        built.append(topic, [0, 1], [b"%06d" % row * 20 for row in range(count)], tags=["paid"] * count)
    return built


def _rows(endpoint: str, url: str) -> list[tuple[str, int, int]]:
    """Topic, queue id and offset of each row in the objects below a prefix, as any reader of it finds them."""
    objects = ObjectStore.open(url, options=options_for(endpoint))
    found: list[tuple[str, int, int]] = []
    for one in objects.list():
        folder, _, name = one.name.rpartition("/")
        if folder == "_export":
            continue
        data = objects.get(one.name)
        assert data is not None
        if name.endswith(".parquet"):
            rows = pa_parquet.read_table(io.BytesIO(data)).to_pylist()
            topic = folder.removeprefix("topic=")
            found += [(topic, row["queueId"], row["queueOffset"]) for row in rows]
        elif name.endswith(".csv"):
            rows = list(csv.DictReader(io.StringIO(data.decode())))
            found += [(row["topic"], int(row["queueId"]), int(row["queueOffset"])) for row in rows]
        else:
            rows = [json.loads(line) for line in data.splitlines()]
            found += [(row["topic"], row["queueId"], row["queueOffset"]) for row in rows]
    return sorted(found)


def _stored(path: Path) -> list[tuple[str, int, int]]:
    with StoreReader.open(path) as reader:
        infos = [info for topic in reader.topics() for info in reader.queues(topic)]
    return sorted((one.topic, one.queue_id, at) for one in infos for at in range(one.min_offset, one.max_offset))


@pytest.mark.parametrize("form", ["parquet", "ndjson", "csv"])
def test_an_export_continues_where_it_ended(form: str, endpoint: str, tmp_path: Path) -> None:
    built, url = _store(tmp_path / "store"), f"s3://{BUCKET}/continued-{form}"
    report = export_store(built.path, f"{form}:{url}", columns=TEN, file_size=4_000)
    assert report.committed > 3
    built.append("orders", [0, 1], [b"more"] * 100, tags=["paid"] * 100)
    with pytest.raises(InvalidValue, match=r"exists already.*--resume"):
        export_store(built.path, f"{form}:{url}", columns=TEN)
    report = export_store(built.path, f"{form}:{url}", columns=TEN, resume=True)
    assert report.rows == 100
    assert _rows(endpoint, url) == _stored(built.path)
    objects = ObjectStore.open(url, options=options_for(endpoint))
    assert len(list(objects.list("_export"))) <= 2, "old states go"
    victim = next(one.name for one in objects.list() if not one.name.startswith("_export"))
    objects.delete([victim])
    with pytest.raises(InvalidValue, match="are left"):
        export_store(built.path, f"{form}:{url}", columns=TEN, resume=True)


def test_a_killed_export_is_resumed_with_each_row_once(endpoint: str, tmp_path: Path) -> None:
    built, url = StoreBuilder(tmp_path / "store"), f"s3://{BUCKET}/killed"
    for number in range(12):
        built.append(f"topic-{number}", [0], [b"x" * 100] * 50, tags=["paid"] * 50)
    program = f"""
from commitlog_store import export_store
export_store({str(built.path)!r}, "parquet:{url}", file_size=4_000, resume=True)
"""
    command = [sys.executable, "-c", program]
    with KillingProxy(endpoint) as proxy:
        for at, is_after in ((6, True), (11, False), (16, True)):
            assert proxy.run(command, at, is_after=is_after) == -signal.SIGKILL
    export_store(built.path, f"parquet:{url}", resume=True)
    assert _rows(endpoint, url) == _stored(built.path)


@pytest.mark.parametrize(("slow", "fast"), [(4_000, 1_000_000), (1_000_000, 1_000_000), (1_000_000, 500)])
def test_an_export_that_another_call_has_continued_cannot_commit(
    slow: int, fast: int, endpoint: str, tmp_path: Path
) -> None:
    """Also not under the name of a generation that the other one has deleted. What it put is deleted at once."""
    built, url = _store(tmp_path / "store", 300), f"s3://{BUCKET}/two-{slow}-{fast}"
    target = f"ndjson:{url}"
    raced: list[ExportReport] = []

    def race(done: int, _total: int) -> None:
        if done and not raced:
            raced.append(export_store(built.path, target, columns=TEN, file_size=fast, resume=True))

    with pytest.raises(TargetFailed, match="another export is writing there"):
        export_store(built.path, target, columns=TEN, file_size=slow, progress=race)
    assert _rows(endpoint, url) == _stored(built.path)
    assert export_store(built.path, target, columns=TEN, resume=True).rows == 0
    assert _rows(endpoint, url) == _stored(built.path)


def test_a_call_that_was_overtaken_deletes_nothing_of_the_other(endpoint: str, tmp_path: Path) -> None:
    """It stopped for a while before its claim, or after it: what was committed in between stays."""
    built, url = _store(tmp_path / "store"), f"s3://{BUCKET}/overtaken"
    export_store(built.path, f"ndjson:{url}", columns=TEN, topics=["clicks"], file_size=500)
    for is_claimed in (False, True):
        slow = ObjectPlace(parse_target(f"ndjson:{url}", objects=True))
        state = slow.load(resume=True)
        assert state is not None
        if is_claimed:
            slow.save(state)
        built.append("orders", [0, 1], [b"more"] * 100, tags=["paid"] * 100)
        export_store(built.path, f"ndjson:{url}", columns=TEN, file_size=500, resume=True)
        with pytest.raises(TargetFailed, match="another export is writing there"):
            slow.writer(TEN, state.committed, file_size=500, compression="snappy") if is_claimed else slow.save(state)
        assert _rows(endpoint, url) == _stored(built.path)


def test_the_fence_is_that_of_exports_on_disk(endpoint: str, tmp_path: Path) -> None:
    """A store that lost its end and grew again has other messages at the offsets that were exported."""
    url = f"s3://{BUCKET}/fence"
    built = StoreBuilder(tmp_path / "store")
    built.append("orders", [0], [b"first"] * 10)
    export_store(built.path, f"ndjson:{url}")
    os.rename(built.path, tmp_path / "lost")
    built = StoreBuilder(tmp_path / "store")
    built.append("orders", [0], [b"other"] * 20)
    with pytest.raises(TailLost):
        export_store(built.path, f"ndjson:{url}", resume=True)
    state = ObjectPlace(parse_target(f"ndjson:{url}", objects=True)).load(resume=True)
    assert state is not None
    assert state.queues == {"orders": {"0": 10}}
    assert endpoint
