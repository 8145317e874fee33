"""The pages, over real HTTP: what they show, what they never run, and what they refuse."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from markupsafe import escape

from commitlog_store import MessageStore
from tests.store.serve.http.fronts import browsing, client_of, shown

_PAGE = {"accept": "text/html"}
HTML_BODY = b"<script>alert(1)</script><img src=x onerror=alert(2)>"
BROKEN = b"\xff\xfe broken \x80 utf-8"
EVIL = "\u202egnp.exe\x1b[31m<b>"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "store"
    with MessageStore.open(path) as store:
        store.put("orders", b'{"id": 17, "region": "eu"}', keys=["order-17"], tags="paid", properties={"amount": "250"})
        store.put("orders", HTML_BODY, keys=["html"], tags="sent", properties={EVIL: EVIL})
        store.put("orders", BROKEN, keys=["broken"], tags="paid", properties={"amount": "50"})
        store.put("payments", b"x" * 100_000, keys=["large"])
        with store.consumer("billing", ["orders"]) as consumer:
            assert consumer.poll(max_messages=1, timeout_s=60)
            consumer.commit(sync=True)
        with store.consumer("audit", ["payments"]) as consumer:
            assert consumer.poll(max_messages=10, timeout_s=60)
            consumer.commit(sync=True)
    return path


@pytest.fixture(scope="module")
def client(store: Path) -> Iterator[httpx.Client]:
    with browsing(store, headers=_PAGE) as client:
        yield client


def _text(client: httpx.Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    return answer.text


def test_the_overview_names_the_store_and_the_group_that_lags(store: Path, client: httpx.Client) -> None:
    page = _text(client, "/")
    assert str(store) in page
    assert page.index("billing") < page.index("audit")
    assert "data-live=" in page


def test_topics_are_found_by_a_part_of_their_name(client: httpx.Client) -> None:
    assert "payments" in _text(client, "/topics")
    page = _text(client, "/topics?q=ORD")
    assert "/topics/orders" in page
    assert "payments" not in page
    assert "No topic has such a name." in _text(client, "/topics?q=nothing")
    assert "rmq_sys" not in _text(client, "/topics")


@pytest.mark.parametrize(
    ("order", "kept"),
    [
        ("/topics?sort=size&order=falling", {"sort": "size", "order": "falling"}),
        ("/topics?sort=messages", {"sort": "messages"}),
        ("/topics", {}),
        ("/groups?sort=lag", {"sort": "lag"}),
        ("/groups", {}),
    ],
)
def test_a_search_keeps_the_order_of_the_list(client: httpx.Client, order: str, kept: dict[str, str]) -> None:
    form = _text(client, order).partition("<form role=")[2].partition("</form>")[0]
    assert dict(re.findall(r'<input type="hidden" name="(\w+)" value="(\w+)">', form)) == kept


def test_a_part_is_answered_without_its_page(client: httpx.Client) -> None:
    part = client.get("/topics?q=ord", headers={"hx-request": "true", "hx-target": "live"}).text
    assert "orders" in part
    assert "<html" not in part


def test_a_topic_shows_queues_and_groups(client: httpx.Client) -> None:
    page = _text(client, "/topics/orders")
    assert "/groups/billing" in page
    assert "First offset" in page
    assert "has no topic" in _text(client, "/topics/nothing", 404) or "nothing" in _text(client, "/topics/nothing", 404)


def test_a_chart_counts_what_was_stored(client: httpx.Client) -> None:
    found = client.get("/topics/orders/stored.json").json()
    assert sum(found["counts"]) == 3
    assert len(found["times"]) == len(found["counts"]) == 60
    assert client.get("/topics/orders/stored.json?span=1y").status_code == 400


def test_a_group_shows_what_waits_in_each_queue(client: httpx.Client) -> None:
    page = _text(client, "/groups/billing")
    assert "/topics/orders" in page
    assert "Behind" in page
    assert "billing" in _text(client, "/groups?q=bill")
    assert "billing" not in _text(client, "/groups?q=audit")
    assert "has no group" in _text(client, "/groups/nothing", 404)


@pytest.mark.parametrize(
    ("query", "found", "missing"),
    [
        ("key=order-17", "order-17", "broken"),
        ("key=order-17&topic=orders", "order-17", "broken"),
        ("topic=orders&tags=paid", "broken", "html"),
        ("topic=orders&filter=amount+%3E+100", "order-17", "broken"),
        ("topic=orders&since=1h", "order-17", "zzz"),
        ("id=0", "order-17", "broken"),
    ],
)
def test_messages_are_found(client: httpx.Client, query: str, found: str, missing: str) -> None:
    rows = _text(client, f"/messages?{query}").partition("<tbody>")[2].partition("</tbody>")[0]
    assert found in rows
    assert missing not in rows


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("tags=paid", "Give a topic"),
        ("topic=orders&filter=amount+%3E", "filter"),
        ("topic=orders&since=yesteryear", "is not a time"),
        ("topic=orders&offset=3", "give the topic and the queue"),
        ("topic=orders&queue=-1", "is a number from 0"),
        ("topic=ordres", "Did you mean"),
        ("id=zz", "As a unique key"),
        ("key=none", "No message of any of"),
    ],
)
def test_a_search_that_finds_nothing_says_why(client: httpx.Client, query: str, reason: str) -> None:
    assert escape(reason) in _text(client, f"/messages?{query}")


def _place(client: httpx.Client, key: str) -> str:
    rows = _text(client, f"/messages?key={key}").partition("<tbody>")[2]
    return rows.partition('href="')[2].partition('"')[0]


def test_html_in_a_message_is_text(client: httpx.Client) -> None:
    place = _place(client, "html")
    for page in (_text(client, place), _text(client, f"{place}?as=text"), _text(client, "/messages?topic=orders")):
        assert "<script>alert" not in page
        assert "<img src=x" not in page
    assert escape(HTML_BODY.decode()) in _text(client, place)


def test_no_character_turns_others_round_or_drives_a_terminal(client: httpx.Client) -> None:
    page = _text(client, _place(client, "html"))
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert "\\u202egnp.exe\\x1b[31m&lt;b&gt;" in page


def test_a_body_that_is_not_text_is_shown_in_hexadecimal(client: httpx.Client) -> None:
    place = _place(client, "broken")
    assert "ff fe 20 62 72 6f 6b 65 6e" in _text(client, place)
    assert "\\xff\\xfe broken" in _text(client, f"{place}?as=text")
    assert client.get(f"{place}/body").content == BROKEN


def test_json_is_indented_and_large_bodies_are_cut(client: httpx.Client) -> None:
    assert escape('  "region": "eu"') in _text(client, _place(client, "order-17"))
    page = _text(client, _place(client, "large"))
    assert len(page) < 100_000
    assert "more are not shown" in page


def test_what_was_found_can_be_downloaded(client: httpx.Client) -> None:
    answer = client.get("/messages/download?topic=orders&tags=paid")
    assert answer.headers["content-disposition"] == 'attachment; filename="messages.ndjson"'
    assert "sandbox" in answer.headers["content-security-policy"]
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert [row["keys"] for row in rows] == ["order-17", "broken"]
    table = pq.read_table(io.BytesIO(client.get("/messages/download?topic=orders&format=parquet").content))
    assert table.column("body").to_pylist()[1:] == [HTML_BODY, BROKEN]
    assert client.get("/messages/download?topic=orders&format=exe").status_code == 400


def test_downloads_can_be_left_out(store: Path) -> None:
    with browsing(store, downloads=False, headers=_PAGE) as client:
        assert "ownload" not in _text(client, "/messages?topic=orders") + _text(client, "/messages/0")
        assert client.get("/messages/download?topic=orders").status_code == 404
        assert client.get("/messages/0/body").status_code == 404


def test_pages_have_no_script_and_no_style_of_their_own(client: httpx.Client) -> None:
    of_topic = ("/topics/orders", "/messages?topic=orders", "/messages/0")
    for path in ("/", "/topics", "/groups", "/groups/billing", *of_topic):
        page = _text(client, path)
        assert "<style" not in page
        assert " style=" not in page
        assert " onclick=" not in page
        assert page.count("<script") == page.count('<script src="/static/')
        assert "//" not in page.replace("https://", "").partition("<body>")[0].replace("<!DOCTYPE", "")


def test_files_of_the_pages_are_kept_by_browsers(client: httpx.Client) -> None:
    answer = client.get("/static/commitlog.js")
    assert answer.headers["content-type"].startswith("text/javascript")
    again = client.get("/static/commitlog.js", headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304
    assert client.get("/static/pages.py").status_code == 404
    assert client.get("/static/..%2f__init__.py").status_code == 404


def test_errors_are_pages_for_browsers_and_lines_for_programs(client: httpx.Client) -> None:
    assert "<h1>Not found</h1>" in _text(client, "/nothing", 404)
    answer = client.get("/groups/nothing", headers={"accept": "application/json"})
    assert answer.headers["content-type"].startswith("text/plain")


def _events(client: httpx.Client, path: str, count: int) -> list[str]:
    """The data of the first events of a stream."""
    found: list[str] = []
    with client.stream("GET", path) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        data: list[str] = []
        for line in answer.iter_lines():
            if line.startswith("data: "):
                data.append(line.removeprefix("data: "))
            elif not line and data:
                found.append("\n".join(data))
                data = []
            if len(found) == count:
                break
    return found


def test_a_page_is_sent_again_when_it_changes(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as owned:
        owned.put("orders", b"one")
        with browsing(owned=owned) as client, client.stream("GET", "/live/topics") as answer:
            assert answer.headers["x-accel-buffering"] == "no", "nginx passes each event on at once"
            lines = answer.iter_lines()
            assert any("orders" in line for line in lines)
            owned.put("payments", b"two")
            deadline = time.monotonic() + 60
            assert any("/topics/payments" in line for line in lines if time.monotonic() < deadline)


def test_streams_end_when_the_server_stops(store: Path) -> None:
    with shown(store) as front, client_of(front) as client, client.stream("GET", "/live/") as answer:
        lines = answer.iter_lines()
        next(lines)
        begun = time.monotonic()
        front.stop(60.0)
        list(lines)
        assert time.monotonic() - begun < 50


def test_several_stores_have_pages_each(store: Path, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "other") as other:
        other.put("elsewhere", b"x")
    with browsing(a=store, b=tmp_path / "other", headers=_PAGE) as client:
        assert "elsewhere" in _text(client, "/topics?store=b")
        assert "elsewhere" not in _text(client, "/topics")
        assert "/topics/elsewhere?store=b" in _text(client, "/topics?store=b")
        assert "has no store" in _text(client, "/topics?store=c", 404)
        assert "has no store" in _text(client, "/live/topics?store=c", 404)


def test_the_first_page_of_2000_topics_asks_for_what_it_shows(tmp_path: Path) -> None:
    """At the server: 150 ms are meant, in a machine that does nothing else."""
    topics = [f"topic-{number:04d}" for number in range(2000)]
    with MessageStore.open(tmp_path / "store") as store:
        store.put_messages(pa.table({"topic": topics, "queueId": [0] * 2000, "body": [b"x"] * 2000}))
    with browsing(tmp_path / "store", headers=_PAGE) as client:
        _text(client, "/topics")  # imports, and the first look at the directory
        page, took = "", []
        for _ in range(3):
            begun = time.monotonic()
            page = _text(client, "/topics?page=2")
            took.append(time.monotonic() - begun)
        assert "topic-0050" in page
        assert "topic-0049" not in page
        assert "Page 2 of 40" in page
        assert min(took) < 5.0
        assert "2,000" in _text(client, "/"), "the number of topics"
