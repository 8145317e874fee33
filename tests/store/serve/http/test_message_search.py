"""A search of messages says what it did not look at, and a body is shown as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog_store import MessageStore, StoreReader
from commitlog_store.errors import InvalidValue
from commitlog_store.reader import query_within
from commitlog_store.serve.http.pages import message_search
from commitlog_store.serve.http.pages.message_search import MessageSearch
from commitlog_store.serve.http.pages.messages import SHOWN_BYTES, shown_body
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


def test_a_search_by_key_reads_no_more_bodies_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_search, "MOST_BODY_BYTES", 250)
    with MessageStore.open(tmp_path / "store") as store:
        bodies = [b"1" * 100, b"2" * 100, b"3" * 100, b"4" * 100, b"5" * 100]
        for body, topic in zip(bodies, ("orders", "orders", "parcels", "orders", "parcels"), strict=True):
            store.put(topic, body, queue_id=0, keys=["k"])
        store.dispatch()
    search = MessageSearch.parse({"key": "k"})
    with StoreReader.open(tmp_path / "store") as reader:
        found = search.find(reader, 50)
        assert [(row["topic"], row["queueOffset"]) for row in found.rows] == [
            ("parcels", 0),
            ("orders", 2),
            ("parcels", 1),
        ]
        assert "there may be older ones" in found.note
        within = query_within(reader, "orders", "k", begin=0, end=1 << 60, limit=9, most_bytes=150, verify_crc=True)
        assert [one.queue_offset for one in within] == [1, 2]
        assert [row["queueOffset"] for row in search.find(reader, 2).rows] == [2, 1]
        assert search.find(reader, 2).note == ""
    with StoreReader.open(tmp_path / "store", from_log=True) as reader:
        assert [row["queueOffset"] for row in search.find(reader, 50).rows] == [0, 2, 1]


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
