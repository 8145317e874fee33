"""`commitlog archive` killed at a chosen request to a real S3 server: before the server has it, or after it has."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store.archive.archiver import archive_store
from commitlog_store.archive.check import check_archive
from commitlog_store.archive.gc import gc_archive
from commitlog_store.archive.generations import newest, newest_or_none
from commitlog_store.archive.restore import restore_store
from commitlog_store.object_storage.object_store import ObjectStore
from tests.store.archive.archives import archived_bytes, assert_sound, log_bytes, small_store
from tests.support.killing_proxy import KillingProxy
from tests.support.long_runs import Progress, part_of
from tests.support.s3_server import BUCKET, options_for, s3_server

# A segment takes about fourteen requests: these kills come at each of them, and in the next segment.
_REQUESTS = 25
KILLS, STRESS_KILLS = 5, part_of(200)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


def _check_kills(endpoint: str, tmp_path: Path, name: str, kills: int, progress: Progress | None = None) -> None:
    store, url = tmp_path / "store", f"s3://{BUCKET}/{name}"
    small_store(store, 400 if kills < STRESS_KILLS else 12_000)
    objects = ObjectStore.open(url, options=options_for(endpoint))
    committed = 0
    with KillingProxy(endpoint) as proxy:
        command = [sys.executable, "-m", "commitlog_store", "archive", str(store), url, "--endpoint", proxy.url]
        for number in range(kills):
            at = 1 + (number * _REQUESTS // kills if kills < _REQUESTS else number % _REQUESTS)
            is_after = bool(number // _REQUESTS % 2 if kills > _REQUESTS else number % 2)
            assert proxy.run(command, at, is_after=is_after) == -signal.SIGKILL
            if progress is not None:
                progress.count("archivers killed beside S3", number + 1)
            manifest = newest_or_none(objects)
            if manifest is not None:
                assert manifest.generation == len(manifest.segments) >= committed, "nothing twice, nothing lost"
                committed = len(manifest.segments)
    archive_store(store, objects)
    data = archived_bytes(objects)
    assert data == log_bytes(store)[: len(data)]
    gc_archive(objects, older_than_s=-60)
    assert_sound(objects)
    assert check_archive(objects).unnamed == 0
    manifest = newest(objects)
    assert len(list(objects.list())) == len({ref.name for ref in manifest.objects()}) + 2, "no orphan is left"


def test_an_archiver_that_is_killed_at_a_request_continues(endpoint: str, tmp_path: Path) -> None:
    _check_kills(endpoint, tmp_path, "five", KILLS)


@pytest.mark.stress
@pytest.mark.timeout(3600)
def test_an_archiver_that_is_killed_at_200_requests_continues(
    endpoint: str, tmp_path: Path, progress: Progress
) -> None:
    _check_kills(endpoint, tmp_path, "two-hundred", STRESS_KILLS, progress)


@pytest.mark.parametrize("name", ["golden_533", "golden_498"])
def test_a_golden_store_comes_back_from_s3_byte_for_byte(
    name: str, endpoint: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store: Path = request.getfixturevalue(name)
    objects = ObjectStore.open(f"s3://{BUCKET}/{name}", options=options_for(endpoint))
    archive_store(store, objects, with_last=True)
    report = restore_store(objects, tmp_path / "restored")
    restored = log_bytes(tmp_path / "restored")
    assert restored[: report.stop] == log_bytes(store)[: report.stop]
    assert not any(restored[report.stop :])
