"""Numbers of topics on their pages: size, first and last message, rates of storing and of reading."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog_store import MessageStore, StoreReader
from commitlog_store.decoders.topic_decoders import TopicDecoders
from commitlog_store.queries.queue_sizes import SAMPLE, mean_sizes
from commitlog_store.serve.group_clients import GroupClients
from commitlog_store.serve.http.pages import topics
from commitlog_store.serve.http.pages.known_sizes import KnownSizes
from commitlog_store.serve.http.pages.views import Asked, SharedAnswers, Values
from commitlog_store.serve.verification import Verification
from commitlog_store.sizes import size_text
from tests.store.serve.http.fronts import browsing


def _asked(owned: MessageStore | None, now: float, before: Values | None = None) -> Asked:
    return Asked(
        names={},
        query={},
        shared=SharedAnswers(),
        owned=owned,
        group_clients=GroupClients(),
        decoders=TopicDecoders(),
        verification=Verification(),
        now=now,
        before=before,
    )


def test_the_list_has_rates_of_storing_and_of_reading_between_two_looks(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store, store.reader() as reader:

        def put(count: int) -> None:
            for _ in range(count):
                store.put("orders", b"x", queue_id=0)
            store.dispatch()

        put(4)
        first = topics.LIST.look(reader, _asked(store, 100.0))
        assert [(row["rate"], row["read_rate"]) for row in first["rows"]] == [(None, None)]
        put(6)
        assert len(store.get_message("orders", 0, 0, 8).messages) == 8
        (row,) = topics.LIST.look(reader, _asked(store, 102.0, first))["rows"]
        assert (row["rate"], row["read_rate"]) == (3.0, 4.0)
        (beside,) = topics.LIST.look(reader, _asked(None, 102.0, topics.LIST.look(reader, _asked(None, 100.0))))["rows"]
        assert (beside["rate"], beside["read_rate"]) == (0.0, None), "the owner alone knows what is read"


def test_pages_show_the_size_and_the_first_and_last_message(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        stored = [store.put("orders", b"x" * 3000, queue_id=number % 2) for number in range(10)]
        store.dispatch()
        with store.reader() as reader:
            (row,) = topics.LIST.look(reader, _asked(store, 1.0))["rows"]
            places = [("orders", one.queue_id, one.queue_offset) for one in stored]
            times = [when for when in reader.store_timestamps(places) if isinstance(when, int)]
        low, high = store.physical_bounds()
        assert row["size"] == high - low
        assert (row["first"], row["last"]) == (min(times), max(times))
        with browsing(owned=store, headers={"accept": "text/html"}) as client:
            cells = re.findall(r"<td[^>]*>([^<]*)</td>", client.get("/topics?q=orders").text)
            page = client.get("/topics/orders").text
        assert cells[:3] == ["2", "10", size_text(high - low)]
        assert cells[5].endswith(" ago")
        assert f"<dt>Size</dt><dd>{size_text(high - low)}</dd>" in page
        assert re.search(r"<dt>First message</dt><dd>[^<]+ ago</dd>", page)


def test_a_long_queue_is_measured_at_its_ends_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path) as store:
        for _ in range(2):
            store.put_messages([{"body": b"x" * 100, "queueId": 0}] * 2 * SAMPLE, topic="orders")
        store.put("short", b"one")
        store.dispatch()
        with StoreReader.open(tmp_path) as reader:
            infos = reader.queues("orders") + reader.queues("short")
            read: list[int] = []
            whole: Callable[..., object] = reader.units_of

            def counted(ranges: list[tuple[str, int, int, int]]) -> object:
                read.extend(stop - start for _, _, start, stop in ranges)
                return whole(ranges)

            monkeypatch.setattr(reader, "units_of", counted)
            means = mean_sizes(reader, infos)
            assert max(read) <= 2 * SAMPLE
            size = sum(mean * (one.max_offset - one.min_offset) for mean, one in zip(means, infos, strict=True))
            low, high = store.physical_bounds()
            assert 0.9 * (high - low) < size <= high - low
            known = KnownSizes(clock=lambda: 1.0)
            once = known.of(reader, infos)
            assert sum(once) == round(size)
            read.clear()
            assert known.of(reader, infos) == once
            assert not read


def test_a_queue_that_cannot_be_read_leaves_the_size_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path) as store, store.reader() as reader:
        store.put("orders", b"x")
        store.dispatch()

        def fail(_: object) -> object:
            return reader.queue_info("nothing", 0)

        monkeypatch.setattr(reader, "units_of", fail)
        (row,) = topics.LIST.look(reader, _asked(store, 1.0))["rows"]
    assert (row["messages"], row["size"]) == (1, None)
