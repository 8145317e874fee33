"""Draws docs/pictures/dashboard-*.png, the pages' overview in both modes: ``python -m docs.site.dashboard_picture``.

It needs ``pip install playwright`` and a chromium in PATH.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from commitlog_store import MessageStore, StoreReader
from commitlog_store.reader import OnDamage
from commitlog_store.serve.http.front import HttpFront
from commitlog_store.serve.listen import ListenSettings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PICTURES = Path(__file__).parents[1] / "pictures"
MODES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
# How many messages each group has not consumed, and how many it has given up.
_GROUPS = {"billing": (1840, 3), "shipping": (260, 0), "analytics": (75, 1), "audit": (0, 0)}
_MESSAGES = 2000
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


def _open(path: str, on_damage: OnDamage) -> StoreReader:
    return StoreReader.open(path, on_damage=on_damage)


def draw(browser: Browser, url: str, directory: Path) -> None:
    for mode in MODES:
        page = browser.new_page(viewport={"width": 1100, "height": 610}, color_scheme=mode)
        page.goto(f"{url}/topics?sort=messages")  # counts the messages, which the overview shows then
        page.goto(f"{url}/verify")
        page.goto(url)
        page.locator("main p code").first.evaluate("(code, path) => { code.textContent = path; }", _SHOWN_PATH)
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
