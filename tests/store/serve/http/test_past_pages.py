"""Charts of the past: which pages have them, the JSON that they are drawn of, and the table of the same numbers."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import httpx
import pytest

from commitlog_store import MessageStore
from commitlog_store.format.figures_record import COUNTS, STATES, Figures, name_hash
from commitlog_store.serve.figures.figure_ring import FigureRing
from tests.store.serve.http.fronts import browsing

_PAGE = {"accept": "text/html"}
_EVIL = "<b>evil</b>"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    """With 20 minutes of figures up to now: 2 messages a second, of which ``orders`` has one."""
    with MessageStore.open(tmp_path_factory.mktemp("past") / "store") as store:
        store.put("orders", b"x", queue_id=0)
        store.put("quiet", b"x", queue_id=0)
        store.commit_group_offsets("billing", {("orders", 0): 0})
        ring, minute = FigureRing(store.path), int(time.time()) // 60 * 60
        for begin in range(minute - 20 * 60, minute + 120, 60):
            numbers = dict.fromkeys(COUNTS, 120) | dict.fromkeys(STATES, 3 << 20)
            topics, lags = {name_hash("orders"): (60, 6000, 30)}, {name_hash("billing"): 17}
            ring.add(Figures(begin=begin, seconds=60, measured_ms=60_000, numbers=numbers, topics=topics, lags=lags))
        yield store


@pytest.fixture(scope="module")
def client(store: MessageStore) -> Iterator[httpx.Client]:
    with browsing(owned=store, headers=_PAGE) as client:
        yield client


def _text(client: httpx.Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    return answer.text


@pytest.mark.parametrize("path", ["/", "/topics/orders", "/disk"])
def test_a_page_has_charts_and_a_link_to_their_numbers(client: httpx.Client, path: str) -> None:
    page = _text(client, path)
    assert page.count("data-series=") >= 2
    (figures,) = re.findall(r'data-figures="([^"]+)"', page)
    (table,) = re.findall(r'href="(/figures[^"]*)"', page)
    found = client.get(figures.replace("&amp;", "&")).json()
    wanted = {name for series in re.findall(r'data-series="([^"]+)"', page) for name in series.split()}
    names = {one["name"] for one in found["series"]}
    assert wanted - {"lag:*"} <= names
    assert [one["values"][-1] for one in found["series"] if one["name"] == "stored"] == [1 if "orders" in path else 2]
    assert "Messages stored a second" in _text(client, table.replace("&amp;", "&"))


def test_the_address_of_figures_has_a_value_for_each_time(client: httpx.Client) -> None:
    for span, step, count in (("1h", 60, 60), ("24h", 600, 144), ("7d", 3600, 168)):
        found = client.get(f"/figures.json?span={span}").json()
        assert (found["stepSeconds"], len(found["times"])) == (step, count)
        values = {one["name"]: one["values"] for one in found["series"]}
        assert {len(one) for one in values.values()} == {count}
        assert values["lag:billing"][-1] == 17
        assert values["stored"][-1] == 2
        assert values["stored"][0] is None
    quiet = client.get("/figures.json?topic=quiet").json()
    assert quiet["series"][0]["values"][-1] == 0


def test_the_table_has_the_numbers_of_the_charts(client: httpx.Client) -> None:
    page = _text(client, "/figures?span=1h")
    assert 19 <= page.count('<th scope="row">') <= 22
    assert "Lag of billing" in page
    assert page.count('<td class="n">17</td>') >= 19
    assert "2.0 B" not in page


def test_what_does_not_exist_is_named(client: httpx.Client) -> None:
    assert "span is one of 1h, 24h, 7d" in _text(client, "/figures.json?span=1y", 400)
    assert "nothing" in _text(client, "/figures?topic=nothing", 404)
    for path in ("/figures", "/figures.json"):
        assert "no store &#39;b&#39;" in _text(client, f"{path}?store=b", 404)
    assert _EVIL not in _text(client, f"/figures?topic={_EVIL}", 400)


def test_a_store_without_figures_has_no_charts(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("bare") / "store"
    with MessageStore.open(path) as store:
        store.put("orders", b"x")
    with browsing(path, headers=_PAGE) as client:
        assert "data-series" not in _text(client, "/")
        assert "No figures are kept of this time." in _text(client, "/figures")
