"""Pages of 1,000,000 messages, 2,000 topics and 1,000 groups: what each costs the server, and a browser on them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from commitlog_store import MessageStore
from commitlog_store.serve.http.front import HttpFront
from commitlog_store.serve.http.served_stores import ServedStores
from tests.store.serve.http.browsers import browser_page, keep_picture
from tests.store.serve.http.fronts import client_of, shown
from tests.support.counted_calls import counted_calls

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.stress

TOPICS = ("orders", "parcels", "payments", "refunds")
MESSAGES, QUEUES, GROUPS, DEAD, SMALL_TOPICS = 1_000_000, 4, 1_000, 1_000, 2_000
# Of each queue of orders, by each group more than by the one before.
CONSUMED = 60
PATHS = (
    "/", "/topics", "/topics?sort=messages", "/topics?sort=size", "/topics/orders", "/messages",
    "/messages?topic=orders", "/messages?topic=orders&key=orders-249999", "/messages/0", "/groups", "/groups?sort=lag",
    "/groups?page=20",
    "/groups/group-0999", "/dead-letters", "/dead-letters/group-0007", "/delayed", "/half", "/batches", "/disk",
    "/verify", "/replication", "/settings", "/figures?span=7d",
)  # fmt: skip
# What asks for all queues once takes half a million. A page that calls a function for each message takes more.
MOST_CALLS = 750_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path_factory.mktemp("many") / "store") as store:
        count = MESSAGES // len(TOPICS)
        bodies = pa.array([b'{"order": %d}' % number for number in range(count)], pa.binary())
        queue_ids = pa.array(np.arange(count) % QUEUES, pa.int32())
        for topic in TOPICS:
            keys = [f"{topic}-{number}" for number in range(count)]
            store.put_messages(pa.table({"body": bodies, "keys": keys, "queueId": queue_ids}), topic=topic)
        small = [f"topic-{number:04}" for number in range(SMALL_TOPICS)]
        store.put_messages(pa.table({"topic": small, "body": [b"x"] * SMALL_TOPICS, "queueId": [0] * SMALL_TOPICS}))
        for number in range(GROUPS):
            consumed = {("orders", queue): CONSUMED * number for queue in range(QUEUES)}
            store.commit_group_offsets(f"group-{number:04}", consumed)
        store.put_messages([{"body": b"given up"}] * DEAD, topic="%DLQ%group-0007")
        store.dispatch()
        yield store


class CountedStores:
    """Counts the functions that are called to read the stores of a front."""

    def __init__(self, stores: ServedStores) -> None:
        self._in_thread: Callable[..., Awaitable[Any]] = stores.in_thread
        self.calls: list[int] = []

    async def in_thread(self, work: Callable[[], Any], **how: Any) -> Any:
        def counted() -> Any:
            found: list[Any] = []
            self.calls.append(counted_calls(lambda: found.append(work())))
            return found[0]

        return await self._in_thread(counted, **how)


def calls_of(client: httpx.Client, stores: CountedStores, path: str) -> int:
    stores.calls.clear()
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return sum(stores.calls)


def test_the_first_page_of_each_kind_is_cheap(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may ask for all groups or topics, once for all."""
    with shown(owned=store) as front, client_of(front, headers={"accept": "text/html"}) as client:
        assert client.get("/").status_code == 200  # imports
        stores = CountedStores(front.stores)
        monkeypatch.setattr(front.stores, "in_thread", stores.in_thread)
        calls = {path: calls_of(client, stores, path) for path in PATHS}
    assert all(calls.values()), "the page asked nothing"
    assert {path: count for path, count in calls.items() if count > MOST_CALLS} == {}


@pytest.fixture(scope="module")
def front(store: MessageStore) -> Iterator[HttpFront]:
    with shown(owned=store) as front:
        yield front


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser_page() as page:
        yield page


def test_each_page_is_shown(page: Page, front: HttpFront) -> None:
    for path in PATHS:
        answer = page.goto(front.url + path)
        assert answer is not None
        assert answer.status == 200, path
        page.get_by_role("heading", level=1).wait_for()
        keep_picture(page, path)


def lag_of(group: int) -> int:
    return MESSAGES // len(TOPICS) - QUEUES * CONSUMED * group


def test_a_user_finds_a_group_among_a_thousand(page: Page, front: HttpFront) -> None:
    page.goto(f"{front.url}/groups")
    page.get_by_text("Page 1 of 20").wait_for()
    first = page.get_by_role("row").nth(1)
    assert "group-0000" in first.inner_text(), "the group with the largest lag"
    page.get_by_label("Name contains").press_sequentially("0998")
    page.wait_for_url("**/groups?q=0998*")
    page.get_by_role("link", name="group-0998").click()
    page.get_by_role("heading", name="group-0998").wait_for()
    page.get_by_text(f"{lag_of(998):,}").first.wait_for()


def test_a_user_finds_a_topic_among_two_thousand(page: Page, front: HttpFront) -> None:
    page.goto(f"{front.url}/topics")
    page.get_by_text(f"Page 1 of {-(-(SMALL_TOPICS + len(TOPICS)) // 50)}").wait_for()
    page.get_by_label("Name contains").press_sequentially("1777")
    page.wait_for_url("**/topics?q=1777*")
    page.get_by_role("link", name="topic-1777").click()
    page.get_by_role("heading", name="topic-1777").wait_for()


def test_a_user_finds_one_of_a_million_messages_by_its_key(page: Page, front: HttpFront) -> None:
    page.goto(f"{front.url}/messages?topic=orders&key=orders-249999")
    row = page.get_by_role("row").filter(has_text="orders-249999")
    row.get_by_role("link").click()
    page.get_by_role("heading", name="Message in orders").wait_for()
    assert '"order": 249999' in page.locator("pre").inner_text()


def test_a_new_position_shows_without_a_reload(page: Page, front: HttpFront, store: MessageStore) -> None:
    """Some ten seconds later: what open pages ask of all groups takes a hundredth of a processor."""
    page.goto(f"{front.url}/groups?q=group-0999")
    page.get_by_role("row").filter(has_text=f"{lag_of(999):,}").wait_for()
    store.commit_group_offsets("group-0999", {("orders", 0): CONSUMED * 999 + 1_000})
    page.get_by_role("row").filter(has_text=f"{lag_of(999) - 1_000:,}").wait_for()
