"""The pages of files and disk, replication and settings, over real HTTP: of an owned store, and beside its owner."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from commitlog_store import LogFollower, MessageStore, MessageStoreConfig
from commitlog_store.retention.decision import LogFile
from commitlog_store.serve.http.pages.disk_use import bytes_a_second, full_at
from tests.store.serve.http.fronts import browsing
from tests.support.waiting import WAIT_LIMIT_S, wait_for

_PAGE = {"accept": "text/html"}
_FILE = 64 << 10
_HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    config = MessageStoreConfig(
        mapped_file_size_commit_log=_FILE, retention_bytes=2 * _FILE, clean_resource_interval=3_600_000,
        retention_enable=True, file_reserved_time=48, ha_listen_address="127.0.0.1:0",
        ha_allow="127.0.0.0/8",
    )  # fmt: skip
    with MessageStore.open(tmp_path_factory.mktemp("operation") / "store", config) as store:
        for _ in range(30):
            store.put("orders", b"x" * 10_000)
        store.flush()
        yield store


@pytest.fixture(scope="module")
def owner(store: MessageStore) -> Iterator[httpx.Client]:
    with browsing(owned=store, headers=_PAGE) as client:
        yield client


def _text(client: httpx.Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_the_disk_page_says_what_retention_takes_and_when(store: MessageStore, owner: httpx.Client) -> None:
    page = _text(owner, "/disk")
    report = store.clean(dry_run=True)
    assert report.deleted
    assert f"The limits take {len(report.deleted)} files" in page
    assert page.count("<td>bytes</td>") == len(report.deleted)
    assert page.count('<th scope="row">') == 5
    assert "48 h" in page
    assert "Puts refused above" in page
    assert "90 %" in page
    assert "Growth since" in page


def test_the_replication_page_names_the_address_for_slaves(store: MessageStore, owner: httpx.Client) -> None:
    page = _text(owner, "/replication")
    assert store.ha_address is not None
    assert store.ha_address in page
    assert "ASYNC_MASTER" in page
    assert "No slave is connected." in page


def test_the_replication_page_shows_a_slave_that_has_everything(
    store: MessageStore, owner: httpx.Client, tmp_path: Path
) -> None:
    assert store.ha_address is not None
    config = MessageStoreConfig(mapped_file_size_commit_log=_FILE)
    with LogFollower(store.ha_address, tmp_path / "mirror", config=config) as slave:
        end = store.physical_bounds()[1]
        slave.wait_for(end, timeout_s=WAIT_LIMIT_S)
        wait_for(lambda: [one.behind for one in store.slaves()] == [0])
        page = _text(owner, "/replication")
        assert store.slaves()[0].address in page
        assert page.count(f'<td class="n">{end:,}</td>') == 2  # sent and acknowledged
    wait_for(lambda: not store.slaves())
    assert "No slave is connected." in _text(owner, "/replication")


def test_the_settings_page_tells_those_that_were_set_from_defaults(owner: httpx.Client) -> None:
    page = _text(owner, "/settings?changed=1")
    assert page.count("set by the owner") == 7
    assert "file_reserved_time" in page
    assert "delete_when" not in page
    assert "delete_when" in _text(owner, "/settings")


def test_beside_the_owner_the_pages_say_who_knows(store: MessageStore) -> None:
    with browsing(Path(store.path), headers=_PAGE) as client:
        assert "its limits; this server is beside it" in _text(client, "/disk")
        assert "its slaves; this server is beside it" in _text(client, "/replication")
        assert "its settings; this server is beside it" in _text(client, "/settings")


def test_growth_is_that_since_the_newest_file_that_is_an_hour_old() -> None:
    now = time.time_ns() // 1_000_000
    times = [now - 5 * _HOUR_MS, now - 2 * _HOUR_MS, now - 60_000, None]
    files = [LogFile(base=n * 100, end=n * 100 + 100, path=str(n), newest_ms=at) for n, at in enumerate(times)]
    assert bytes_a_second(files, now - 9 * _HOUR_MS, 7_400, now) == (1.0, now - 2 * _HOUR_MS)
    assert bytes_a_second(files[2:], None, 360, now) == (1.0, now - 60_000)
    assert bytes_a_second(files[3:], now - 60_000, 360, now) == (1.0, now - 60_000)
    assert bytes_a_second(files[3:], None, 360, now) is None
    assert full_at(3_600, 1.0, now) == now + _HOUR_MS
    assert full_at(3_600, 0.0, now) is None
