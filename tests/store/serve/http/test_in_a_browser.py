"""The pages in a real browser: a user finds the order with a key, sees which group lags, sends a dead letter again."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from commitlog_store import Message, MessageStore, SubscriptionGroupConfig
from commitlog_store.format.figures_record import COUNTS, STATES, Figures, name_hash
from commitlog_store.serve.figures.figure_ring import FigureRing
from commitlog_store.serve.tokens import Role, new_token
from tests.store.serve.http.browsers import browser_page
from tests.store.serve.http.fronts import shown
from tests.store.serve.http.test_accessibility import PATHS
from tests.store.serve.verifying import stop_when_begun

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser_page() as page:
        yield page


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path_factory.mktemp("browser") / "store") as store:
        for number in range(30):
            store.put("orders", b'{"order": %d}' % number, keys=[f"order-{number}"])
        store.put("orders", b"<script>alert('body')</script>", keys=["html"])
        store.put("payments", b"x")
        for group, topic in (("billing", "orders"), ("audit", "payments")):
            with store.consumer(group, [topic]) as consumer:
                assert consumer.poll(max_messages=1, timeout_s=60)
                consumer.commit(sync=True)
        for number in range(2):
            store.put("parcels", b"parcel %d" % number, keys=[f"parcel-{number}"], queue_id=0)
        with store.consumer("shipping", "parcels") as consumer:
            for message in consumer.poll(2, 60):
                consumer.retry(message, -1)
            consumer.commit(sync=True)
        store.set_group_settings(SubscriptionGroupConfig(group_name="waiting"))
        for body in (b"half", b"the other half"):
            store.half_messages.prepare(Message(topic="parcels", body=body), "payments")
        with store.transaction("loader", 7) as batch:
            batch.put_messages([{"topic": "oddities", "body": b"\xff\xfe broken", "keys": "broken"}])
        store.dispatch()
        yield store


@pytest.fixture(scope="module")
def admin_url(owned: MessageStore, page: Page, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A front at which the page's browser has signed in as an admin."""
    tokens = str(tmp_path_factory.mktemp("admin") / "tokens.jsonl")
    token = new_token(tokens, "boss", Role.ADMIN)
    with shown(owned=owned, tokens=tokens) as front:
        page.goto(front.url)
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Overview").wait_for()
        yield front.url


@pytest.fixture(scope="module")
def url(owned: MessageStore) -> Iterator[str]:
    with shown(owned=owned) as front:
        yield front.url


def test_a_user_signs_in_and_out(page: Page, owned: MessageStore, tmp_path: Path) -> None:
    """A browser names its own origin in the form: else it would be taken for another site's."""
    token = new_token(str(tmp_path / "tokens.jsonl"), "ana", Role.READ)
    with shown(owned=owned, tokens=str(tmp_path / "tokens.jsonl")) as front:
        page.goto(f"{front.url}/groups")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Consumer groups").wait_for()
        page.get_by_role("button", name="Sign out ana").click()
        page.get_by_role("heading", name="Sign in").wait_for()


def test_a_user_finds_the_order_with_a_key(page: Page, url: str) -> None:
    page.goto(url)
    page.get_by_role("link", name="Messages", exact=True).click()
    page.get_by_label("Key", exact=True).fill("order-17")
    page.get_by_role("button", name="Search").click()
    row = page.get_by_role("row").filter(has_text="order-17")
    row.get_by_role("link").click()
    page.get_by_role("heading", name="Message in orders").wait_for()
    assert '"order": 17' in page.locator("pre").inner_text()


def test_a_user_sees_which_group_lags(page: Page, url: str) -> None:
    page.goto(url)
    rows = page.get_by_role("table", name="Groups that lag most").get_by_role("row")
    assert "billing" in rows.nth(1).inner_text()
    page.get_by_role("link", name="billing").click()
    page.get_by_role("heading", name="billing").wait_for()
    assert "orders" in page.get_by_role("table", name="Positions").inner_text()


def test_a_search_as_one_types_changes_the_list_and_the_address(page: Page, url: str) -> None:
    page.goto(f"{url}/topics")
    page.get_by_label("Name contains").press_sequentially("pay")
    page.wait_for_url("**/topics?q=pay*")
    assert page.get_by_role("link", name="orders").count() == 0
    assert page.get_by_role("link", name="payments").count() == 1


def test_a_click_sorts_topics_by_size_and_another_one_the_other_way(page: Page, url: str) -> None:
    page.goto(f"{url}/topics")
    largest = page.get_by_role("table", name="Topics").locator("tbody tr th").first
    page.get_by_role("link", name="Size").click()
    page.wait_for_url("**sort=size*")
    assert "orders" in largest.inner_text()
    page.get_by_role("link", name="Size").click()
    page.wait_for_url(lambda address: "falling" not in address)
    assert "orders" not in largest.inner_text()


def test_new_topics_show_without_a_reload(page: Page, url: str, owned: MessageStore) -> None:
    page.goto(f"{url}/topics")
    page.get_by_role("link", name="orders").wait_for()
    owned.put("brand-new", b"x")
    page.get_by_role("link", name="brand-new").wait_for()


def test_a_topic_has_a_chart_of_what_was_stored(page: Page, url: str) -> None:
    page.goto(f"{url}/topics/orders")
    page.get_by_text("31 messages stored in the last 1h.").wait_for()
    assert page.locator(".chart canvas").count() == 1
    page.get_by_role("button", name="24h").click()
    page.get_by_text("31 messages stored in the last 24h.").wait_for()


def test_a_script_in_a_body_does_not_run(page: Page, url: str) -> None:
    page.goto(f"{url}/messages?key=html")
    page.get_by_role("row").filter(has_text="html").get_by_role("link").click()
    page.get_by_role("heading", name="Message in orders").wait_for()
    assert "<script>alert('body')</script>" in page.locator("pre").inner_text()


def test_a_body_of_broken_utf_8_is_shown_in_hexadecimal_and_as_text(page: Page, url: str) -> None:
    page.goto(f"{url}/messages?key=broken")
    page.get_by_role("row").filter(has_text="broken").get_by_role("link").click()
    page.get_by_role("heading", name="Message in oddities").wait_for()
    assert "ff fe 20 62 72 6f 6b 65 6e" in page.locator("pre").inner_text()
    page.get_by_role("button", name="Text", exact=True).click()
    page.wait_for_url("**as=text*")
    assert "\\xff\\xfe broken" in page.locator("pre").inner_text()


def test_a_user_sees_when_the_disk_will_be_full(page: Page, url: str) -> None:
    page.goto(url)
    page.get_by_role("link", name="Disk", exact=True).click()
    page.get_by_role("heading", name="Files and disk").wait_for()
    full_at = page.locator("dl.figures > div").filter(has_text="Disk full at").inner_text()
    found = re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d", full_at)
    assert found is not None, full_at
    assert datetime.fromisoformat(f"{found[0]}+00:00") > datetime.now(timezone.utc)
    assert "if it goes on so and nothing is deleted" in page.get_by_role("main").inner_text()


def test_pages_fit_a_narrow_screen(page: Page, url: str) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    waiting = ("/groups/waiting", "/dead-letters", "/dead-letters/shipping", "/delayed", "/half", "/batches")
    operation = ("/disk", "/verify", "/replication", "/settings")
    for path in ("/", "/topics", "/messages?topic=orders", "/messages/0", "/groups", *waiting, *operation):
        page.goto(url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
    page.set_viewport_size({"width": 1280, "height": 800})


@pytest.mark.stress
def test_axe_finds_nothing_in_either_mode(page: Page, admin_url: str) -> None:
    """It takes a second or two a page: `make test` has the checks of test_accessibility.py."""
    axe = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    script = Path(axe.__file__).with_name("axe.min.js").read_text()
    found = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for path in PATHS:
            page.goto(admin_url + path)
            page.evaluate(script)
            result = page.evaluate("() => axe.run(document)")
            found += [(scheme, path, one["id"], one["nodes"][0]["html"]) for one in result["violations"]]
    page.emulate_media(color_scheme="light")
    assert found == []


def test_a_user_verifies_the_store_and_sees_the_report_come(page: Page, admin_url: str) -> None:
    page.goto(f"{admin_url}/verify")
    page.get_by_role("button", name="Verify…").click()
    page.get_by_role("button", name="Verify it").click()
    page.get_by_role("main").get_by_role("link", name="Verify").click()
    page.get_by_role("heading", name="Last report").wait_for()
    page.get_by_text("Nothing is wrong.").wait_for()


def test_a_user_cancels_a_verification(page: Page, admin_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_when_begun(monkeypatch)
    page.goto(f"{admin_url}/verify")
    page.get_by_role("button", name="Verify…").click()
    page.get_by_role("button", name="Verify it").click()
    page.get_by_role("main").get_by_role("link", name="Verify").click()
    page.get_by_text("A verification that boss began is under way.").wait_for()
    page.get_by_role("button", name="Cancel it…").click()
    page.get_by_text("It would be ended without a report.").wait_for()
    page.get_by_role("button", name="Cancel it").click()
    page.get_by_text("The verification was cancelled.").wait_for()
    page.get_by_role("main").get_by_role("link", name="Verify").click()
    page.get_by_text("has no report: boss cancelled it.").wait_for()
    page.get_by_role("button", name="Verify…").wait_for()


def test_a_user_redrives_a_dead_letter(page: Page, admin_url: str, owned: MessageStore) -> None:
    page.goto(admin_url)
    page.get_by_role("link", name="Dead letters").click()
    page.get_by_role("link", name="shipping").click()
    page.get_by_label("How many").fill("1")
    page.get_by_role("button", name="Show what would be done").click()
    page.get_by_text("It would redrive 1 dead letter of group shipping: 1 to %RETRY%shipping.").wait_for()
    page.get_by_role("button", name="Redrive them").click()
    page.get_by_text("Redriven: 1 dead letter of group shipping.").wait_for()
    page.get_by_role("link", name="Dead letters of the group").click()
    assert page.get_by_role("cell", name="redriven").count() == 1
    with owned.consumer("shipping", "parcels") as consumer:
        assert [one.body for one in consumer.poll(2, 60)] == [b"parcel 0"]
        consumer.commit(sync=True)


def test_a_user_moves_a_group_and_produces_a_message(page: Page, admin_url: str, owned: MessageStore) -> None:
    page.goto(f"{admin_url}/groups/shipping")
    page.get_by_role("link", name="Move it to another position").click()
    page.get_by_label("To", exact=True).fill("earliest")
    page.get_by_label("Topic").fill("parcels")
    page.get_by_role("button", name="Show what would be done").click()
    page.get_by_text("Group shipping gets 2 messages again: parcels 2.").wait_for()
    page.get_by_role("button", name="Set these positions").click()
    page.get_by_text("has new positions in").wait_for()
    page.goto(f"{admin_url}/topics/parcels/produce")
    page.get_by_label("Body", exact=True).fill("\nfirst\nsecond <b>")
    page.get_by_label("Keys").fill("typed")
    page.get_by_role("button", name="Show what would be done").click()
    page.get_by_role("button", name="Put it").click()
    page.get_by_role("link", name="The message").click()
    page.get_by_role("heading", name="Message in parcels").wait_for()
    owned.dispatch()
    with owned.reader() as reader:
        (message,) = reader.query("parcels", "typed")
        assert message.body == b"\nfirst\nsecond <b>"
        assert reader.group_offsets("shipping")["parcels", 0] == 0


def test_a_user_ends_half_messages(page: Page, admin_url: str) -> None:
    page.goto(f"{admin_url}/half")
    page.get_by_role("button", name="Roll back").first.click()
    page.get_by_role("button", name="Roll it back").click()
    page.get_by_text("Rolled back the half message").wait_for()
    page.goto(f"{admin_url}/half")
    page.get_by_role("button", name="Commit").nth(1).wait_for(state="detached")
    page.get_by_role("button", name="Commit").click()
    page.get_by_role("button", name="Commit it").click()
    page.get_by_text("Committed the half message").wait_for()


def test_a_user_forgets_an_application(page: Page, admin_url: str) -> None:
    page.goto(f"{admin_url}/batches")
    page.get_by_role("button", name="Forget loader").click()
    page.get_by_role("button", name="Forget it").click()
    page.get_by_text("Forgot 'loader'. Its last batch was 7.").wait_for()


def test_charts_of_the_past_are_drawn_by_keyboard_and_again_when_figures_come(
    page: Page, url: str, owned: MessageStore
) -> None:
    ring, minute = FigureRing(owned.path), int(time.time()) // 60 * 60
    numbers = dict.fromkeys(COUNTS, 120) | dict.fromkeys(STATES, 3 << 20)
    lags = {name_hash("billing"): 17}
    hour = Figures(begin=0, seconds=60, measured_ms=60_000, numbers=numbers, lags=lags)
    for begin in range(minute - 1800, minute - 120, 60):
        ring.add(dataclasses.replace(hour, begin=begin))
    page.goto(url)
    past = page.locator("section.past")
    past.locator("canvas").nth(2).wait_for()
    assert past.locator("canvas").count() == 3
    assert past.get_by_text("Lag of billing").count() == 1
    past.get_by_role("button", name="7d").press("Enter")
    page.locator("section.past[data-drawn='7d']").wait_for()
    before = page.locator("#figures-at").get_attribute("data-at")
    for begin in (minute - 60, minute, minute + 60):
        ring.add(dataclasses.replace(hour, begin=begin))
    with page.expect_response(lambda answer: "/figures.json" in answer.url):
        page.wait_for_function("at => document.getElementById('figures-at').dataset.at !== at", arg=before)
    past.get_by_role("link", name="The same numbers as a table").click()
    page.get_by_role("heading", name="Figures of the past").wait_for()
