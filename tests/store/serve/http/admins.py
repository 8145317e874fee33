"""An admin that has signed in at a front: sends forms as a browser does, and confirms what is shown."""

from __future__ import annotations

import contextlib
import html
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx

from commitlog_store import MessageStore
from commitlog_store.serve.tokens import Role, new_token
from tests.store.serve.http.fronts import browsing

_HIDDEN = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)">')


class Admin:
    def __init__(self, client: httpx.Client, tokens: Path, token: str) -> None:
        self.client = client
        self.tokens = tokens
        self.token = token

    def page(self, path: str) -> str:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    def form_token(self) -> str:
        return _hidden(self.page("/topics/orders/produce"))["form_token"]

    def ask(self, path: str, **fields: str) -> httpx.Response:
        """The first step: the page that shows what would be done."""
        return self.client.post(path, data={"form_token": self.form_token(), **fields})

    def confirm(self, path: str, shown: httpx.Response, **changed: str) -> httpx.Response:
        """The second step, with the hidden fields of the page that was shown."""
        return self.client.post(path, data={**_hidden(shown.text), **changed})

    def act(self, path: str, **fields: str) -> str:
        """Both steps; the page about what was done."""
        shown = self.ask(path, **fields)
        assert shown.status_code == 200, shown.text
        done = self.confirm(path, shown)
        assert done.status_code == 200, done.text
        return html.unescape(done.text)


class Forms(HTMLParser):
    """The forms of a page that post: by action, the fields that a browser sends without further input."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.posts: dict[str, dict[str, str]] = {}
        self._fields: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._fields = {}
            if given.get("method") == "post":
                self.posts[given["action"]] = self._fields
        elif tag == "input" and "name" in given:
            self._fields[given["name"]] = given.get("value", "")


def press(client: httpx.Client, page: httpx.Response, action: str) -> httpx.Response:
    """Press the button of the page's form with this action, as a browser does."""
    assert page.status_code == 200, page.text
    return client.post(action, data=Forms(page.text).posts[action], headers={"referer": str(page.url)})


def _hidden(page: str) -> dict[str, str]:
    return {html.unescape(name): html.unescape(value) for name, value in _HIDDEN.findall(page)}


@contextlib.contextmanager
def signed_in(store: MessageStore, directory: Path, role: Role = Role.ADMIN) -> Iterator[Admin]:
    """A front of an open store, and a browser that has signed in with a token of this role."""
    tokens = directory / "tokens.jsonl"
    token = new_token(str(tokens), "ana", role)
    with browsing(owned=store, tokens=str(tokens), headers={"accept": "text/html"}) as client:
        client.post("/sign-in", data={"token": token})
        yield Admin(client, tokens, token)


def audit(store: MessageStore) -> list[dict[str, Any]]:
    """The lines of the audit log."""
    path = Path(store.path) / "audit.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
