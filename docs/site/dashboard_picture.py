"""Draws docs/pictures/dashboard-*.png, the pages' overview with its charts in both modes.

``python -m docs.site.dashboard_picture`` needs ``pip install playwright`` and a chromium in PATH.
"""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from commitlog_store import MessageStore, StoreReader
from commitlog_store.format.figures_record import Figures, name_hash
from commitlog_store.reader import OnDamage
from commitlog_store.serve.figures.figure_ring import FigureRing
from commitlog_store.serve.http.front import HttpFront
from commitlog_store.serve.listen import ListenSettings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PICTURES = Path(__file__).parents[1] / "pictures"
MODES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
# How many messages each group has not consumed, and how many it has given up.
_GROUPS = {"billing": (1840, 3), "shipping": (260, 0), "analytics": (75, 1), "audit": (0, 0)}
_MESSAGES = 2000
# Figures of so many hours, up to now, of messages of this size.
_HOURS = 3
_BODY_SIZE = 240
# Shown in place of a temporary directory, whose name differs from run to run.
_SHOWN_PATH = "/var/lib/rocketmq/store"


def fill(store: MessageStore) -> None:
    """Orders, and groups that lag."""
    store.put_messages([{"topic": "orders", "body": b'{"order": %d}' % one, "queueId": 0} for one in range(_MESSAGES)])
    store.put_messages([{"topic": "payments", "body": b"paid", "queueId": 0} for _ in range(_MESSAGES // 4)])
    store.dispatch()
    for group, (lag, given_up) in _GROUPS.items():
        with store.consumer(group, ["orders"]) as consumer:
            left = _MESSAGES - lag
            while left and (found := consumer.poll(max_messages=left, timeout_s=60)):
                for message in found[: given_up if left == _MESSAGES - lag else 0]:
                    consumer.retry(message, -1)
                left -= len(found)
            consumer.commit(sync=True)
    store.dispatch()


def add_figures(store: MessageStore, now: int) -> None:
    """What a server would have kept of the last hours: orders by waves, and groups that fall behind and catch up."""
    ring, first = FigureRing(store.path), now // 60 * 60 - _HOURS * 3600
    begin, _ = store.physical_bounds()
    for minute in range(_HOURS * 60):
        stored = int(60 * (340 + 128 * math.sin(minute / 9) + 30 * math.sin(minute * 1.7)))
        read = int(60 * (800 + 300 * math.sin((minute - 4) / 9) + 50 * math.sin(minute * 2.3)))
        counts = {"stored": stored, "read": read, "failed_puts": 0}
        sizes = {"stored_bytes": stored * _BODY_SIZE, "read_bytes": read * _BODY_SIZE}
        states = {"log_begin": begin, "log_end": minute << 20, "disk_used": 31 << 30, "disk_size": 100 << 30}
        to_end = _HOURS * 60 - 1 - minute
        lags = {
            name_hash(group): int(lag * (1 - 0.3 * math.sin(to_end / (11 + 3 * place))))
            for place, (group, (lag, _)) in enumerate(_GROUPS.items())
        }
        numbers = counts | sizes | states | {"not_dispatched": 0}
        ring.add(Figures(begin=first + minute * 60, seconds=60, measured_ms=60_000, numbers=numbers, lags=lags))


def _open(path: str, on_damage: OnDamage) -> StoreReader:
    return StoreReader.open(path, on_damage=on_damage)


def draw(browser: Browser, url: str, directory: Path) -> None:
    for mode in MODES:
        page = browser.new_page(viewport={"width": 1100, "height": 1270}, color_scheme=mode)
        page.goto(f"{url}/topics?sort=messages")  # counts the messages, which the overview shows then
        page.goto(f"{url}/verify")
        page.goto(url)
        page.locator("main p code").first.evaluate("(code, path) => { code.textContent = path; }", _SHOWN_PATH)
        page.locator("[data-drawn]").wait_for(state="attached")
        page.screenshot(path=str(directory / f"dashboard-{mode}.png"))
        page.close()


def main(directory: Path = PICTURES) -> int:
    from playwright.sync_api import sync_playwright

    chromium = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
    if chromium is None:
        print("No chromium is in PATH: apt-get install chromium.", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as temporary, MessageStore.open(f"{temporary}/store") as store:
        fill(store)
        add_figures(store, int(time.time()))
        front = HttpFront({"": partial(_open, store.path)}, ListenSettings.parse("127.0.0.1:0"), owned=store)
        front.start()
        try:
            with sync_playwright() as started:
                browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                draw(browser, front.url, directory)
                browser.close()
        finally:
            front.stop(10.0)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
