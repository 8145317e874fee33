"""A search of messages says what it did not look at, and a body is shown as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import InvalidValue
from commitlog_store.serve.http.pages import message_search
from commitlog_store.serve.http.pages.body_forms import SHOWN_BYTES, shown_body
from commitlog_store.serve.http.pages.message_search import MessageSearch
from tests.support.store_builder import StoreBuilder


@pytest.mark.parametrize("tags", ["rare", "paid"])
def test_a_search_from_an_offset_says_what_it_did_not_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tags: str
) -> None:
    StoreBuilder(tmp_path).append("orders", 0, [b"x"] * 100, tags=["paid"] * 5 + ["other"] * 94 + ["rare"])
    monkeypatch.setattr(message_search, "_MOST_LOOKED_AT", 50)
    search = MessageSearch.parse({"topic": "orders", "queue": "0", "offset": "2", "tags": tags})
    with StoreReader.open(tmp_path) as reader:
        found = search.find(reader, 50)
        assert [row["queueOffset"] for row in found.rows] == ([2, 3, 4] if tags == "paid" else [])
        assert "48 later ones were not looked at" in found.note
        assert search.find(reader, 3).note == ("" if tags == "paid" else found.note)


def test_an_offset_and_a_time_to_begin_with_are_refused() -> None:
    with pytest.raises(InvalidValue, match="not both"):
        MessageSearch.parse({"topic": "orders", "queue": "0", "offset": "2", "since": "1h"})


def test_json_keeps_numbers_and_repeated_names_as_they_are() -> None:
    shown = shown_body(b'{"price": 1.10, "id": 12345678901234567890.5, "id": 1E400}')
    assert shown.form == "json"
    assert shown.text.split() == ["{", '"price":', "1.10,", '"id":', "12345678901234567890.5,", '"id":', "1E400", "}"]


@pytest.mark.parametrize("depth", [500, 20_000])
def test_deep_json_is_shown_as_text(depth: int) -> None:
    """Each of its elements would be indented by hundreds of characters."""
    body = b"[" * depth + b",".join([b"1"] * 10_000) + b"]" * depth
    assert len(body) <= SHOWN_BYTES
    assert shown_body(body).form == "text"
