"""Accessibility: what each page must have for screen readers and keyboards, and what axe finds in a real browser."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from commitlog_store import Message, MessageStore, SubscriptionGroupConfig
from commitlog_store.serve.http.pages import static_files
from tests.store.serve.http.admins import Admin, signed_in

PATHS = (
    "/", "/topics", "/topics/orders", "/topics/orders/produce", "/messages", "/messages?topic=orders", "/messages/0",
    "/messages?topic=nothing", "/groups", "/groups/billing", "/groups/billing/reset", "/groups/waiting",
    "/dead-letters", "/dead-letters/shipping", "/delayed", "/half", "/batches", "/disk", "/verify", "/replication",
    "/settings",
)  # fmt: skip
_VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "path", "rect"})


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    directory = tmp_path_factory.mktemp("accessibility")
    with MessageStore.open(directory / "store") as store:
        fill(store)
        with store.consumer("billing", ["orders"]), signed_in(store, directory) as admin:
            yield admin


def fill(store: MessageStore) -> None:
    """Something to see on each page."""
    for number in range(30):
        store.put("orders", b'{"order": %d}' % number, keys=[f"order-{number}"], tags="paid")
    store.put("payments", b"\xff\x00")
    store.put("parcels", b"parcel", queue_id=0)
    store.put_message(Message(topic="orders", body=b"later", delay_level=18)).raise_for_status()
    with store.transaction("loader", 7) as batch:
        batch.put_messages([{"topic": "payments", "body": b"x"}])
    for group, topic in (("billing", "orders"), ("audit", "payments")):
        with store.consumer(group, [topic]) as consumer:
            assert consumer.poll(max_messages=1, timeout_s=60)
            consumer.commit(sync=True)
    with store.consumer("shipping", "parcels") as consumer:
        for message in consumer.poll(1, 60):
            consumer.retry(message, -1)
        consumer.commit(sync=True)
    store.set_group_settings(SubscriptionGroupConfig(group_name="waiting"))
    store.half_messages.prepare(Message(topic="parcels", body=b"half"), "payments")
    store.dispatch()


class Element:
    def __init__(self, name: str, given: dict[str, str | None], within: Element | None) -> None:
        self.name, self.given, self.within = name, given, within
        self.text = ""

    def ancestors(self) -> Iterator[Element]:
        one = self.within
        while one is not None:
            yield one
            one = one.within


class Page(HTMLParser):
    """The elements of a page, in its order. A tag that is not closed, or not the one to be closed, is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(text)
        self.close()
        assert not self._open, [one.name for one in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"{tag} has an attribute twice: {names}"
        one = Element(tag, dict(attrs), self._open[-1] if self._open else None)
        self.elements.append(one)
        if tag not in _VOID:
            self._open.append(one)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self._open.pop().name == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        for one in self._open:
            one.text += data

    def all(self, *names: str) -> list[Element]:
        return [one for one in self.elements if one.name in names]


def _faults(page: Page) -> Iterator[str]:
    """What is wrong with a page, in words."""
    for name in ("h1", "main", "title", "footer"):
        if len(page.all(name)) != 1:
            yield f"{len(page.all(name))} elements {name}"
    if page.all("html")[0].given.get("lang") != "en":
        yield "no lang"
    ids = Counter(one.given["id"] for one in page.elements if "id" in one.given)
    yield from (f"the id {one!r} {count} times" for one, count in ids.items() if count > 1)
    first = next(one for one in page.all("a"))
    if first.given.get("href") != "#main" or "main" not in ids:
        yield "no skip link before the other links"
    levels = [int(one.name[1]) for one in page.all("h1", "h2", "h3", "h4")]
    yield from (f"h{b} after h{a}" for a, b in pairwise(levels) if b > a + 1)
    navs = [one.given.get("aria-label") for one in page.all("nav")]
    if None in navs or len(set(navs)) != len(navs):
        yield f"nav elements without labels of their own: {navs}"
    for one in page.elements:
        yield from _faults_of(page, one, ids)


def _faults_of(page: Page, one: Element, ids: Counter[str | None]) -> Iterator[str]:
    given, name = one.given, one.name
    if int(given.get("tabindex") or 0) > 0:
        yield f"{name} has a tabindex of its own"
    for attribute in ("aria-labelledby", "aria-describedby", "for"):
        if attribute in given and not all(part in ids for part in (given[attribute] or "").split()):
            yield f"{attribute} of {name} names {given[attribute]}, which is not there"
    if name in ("input", "select", "textarea") and given.get("type") != "hidden":
        labels = {label.given.get("for") for label in page.all("label")}
        wrapped = any(parent.name == "label" for parent in one.ancestors())
        if not (wrapped or given.get("aria-label") or given.get("id") in labels):
            yield f"{name} {given.get('name')} has no label"
    if name in ("a", "button") and not (one.text.strip() or given.get("aria-label")):
        yield f"{name} {given} has no text"
    if name == "table" and not (given.get("aria-label") or given.get("aria-labelledby")):
        yield "a table has no name"
    if given.get("class") == "wide" and given.get("tabindex") != "0":
        yield "a table that may be wider than the screen cannot be scrolled with keys"
    if name == "th" and given.get("scope") not in ("col", "row"):
        yield f"th {one.text!r} has no scope"
    if (name in ("progress", "meter") or given.get("role") == "img") and not given.get("aria-label"):
        yield f"{name} has no name"
    if any(attribute.startswith("on") or attribute == "style" for attribute in given):
        yield f"{name} has a script or a style of its own"


def test_pages_have_what_screen_readers_and_keyboards_need(admin: Admin) -> None:
    assert {path: found for path in PATHS if (found := list(_faults(Page(admin.page(path)))))} == {}


def test_pages_have_titles_of_their_own(admin: Admin) -> None:
    titles = Counter(Page(admin.page(path)).all("title")[0].text for path in PATHS)
    assert {title: count for title, count in titles.items() if count > 1} == {}


def test_pages_in_between_have_it_too(admin: Admin) -> None:
    """Sign-in, an error, what would be done, what was done."""
    shown = admin.ask("/verify/start", name="")
    pages = {"confirm": shown.text, "done": admin.confirm("/verify/start", shown).text}
    pages["error"] = admin.client.get("/messages/9999999999").text
    with httpx.Client(base_url=admin.client.base_url, trust_env=False, headers={"accept": "text/html"}) as stranger:
        pages["sign in"] = stranger.get("/sign-in").text
    for name, text in pages.items():
        assert list(_faults(Page(text))) == [], name


def test_the_finder_of_faults_finds_them() -> None:
    text = (
        '<html><title>x</title><a href="/">x</a><main id="main"><h1>x</h1><h3>x</h3>'
        '<div class="wide"><table><th>x</th></table></div>'
        '<input name="q"><a href="/" tabindex="2"></a><nav></nav></main><footer></footer></html>'
    )
    assert len(list(_faults(Page(text)))) == 10


_COLOR = re.compile(r"#([0-9a-f]{6})\b")
# The backgrounds of Pico's two modes.
_LIGHT, _DARK = "ffffff", "13171f"


def test_our_style_keeps_the_focus_and_its_colours_can_be_read() -> None:
    """All is Pico's in both modes, but the background of chosen buttons, whose text is white, and lines of charts."""
    style = Path(static_files.__file__).parents[1].joinpath("static/commitlog.css").read_text()
    assert "outline" not in style
    lines = [line for line in style.splitlines() if "--chart-0:" in line]
    light, dark = (_COLOR.findall(line) for line in lines)
    assert "dark" in lines[1]
    others = [color for line in style.splitlines() if line not in lines for color in _COLOR.findall(line)]
    assert min(_contrast(color, "ffffff") for color in others) >= 4.5
    assert min(_contrast(color, _LIGHT) for color in light) >= 3
    assert min(_contrast(color, _DARK) for color in dark) >= 3


def _contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
