"""A page of a real browser, for tests; they are skipped without playwright and chromium."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

_CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
_LIMIT_MS = 60_000


@contextlib.contextmanager
def browser_page() -> Iterator[Page]:
    """A page of a browser that fails the test if the page breaks its own policy or a script fails."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if _CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(_LIMIT_MS)
        faults: list[str] = []
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
        yield page
        browser.close()
        assert not faults, faults


def keep_picture(page: Page, path: str) -> None:
    """A picture of the page at this path, in the directory that ``BROWSER_PICTURES`` names; none without it."""
    if directory := os.environ.get("BROWSER_PICTURES"):
        name = re.sub(r"\W+", "-", path).strip("-") or "overview"
        page.screenshot(path=Path(directory) / f"{name}.png", full_page=True)
