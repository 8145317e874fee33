"""Numbers of topics on their pages: size, first and last message, rates of storing and of reading."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from commitlog_store import MessageStore, StoreReader
from commitlog_store.decoders.topic_decoders import TopicDecoders
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, Units
from commitlog_store.queries.queue_sizes import SAMPLE, queue_sizes
from commitlog_store.serve.connection_counts import GroupClients
from commitlog_store.serve.http.pages import topics
from commitlog_store.serve.http.pages.known_numbers import KnownSizes
from commitlog_store.serve.http.pages.views import Asked, SharedAnswers, Values
from commitlog_store.serve.verification import Verification
from commitlog_store.sizes import size_text
from tests.store.serve.http.fronts import browsing


def _asked(
    owned: MessageStore | None,
    now: float,
    before: Values | None = None,
    *,
    names: Mapping[str, str] | None = None,
    shared: SharedAnswers | None = None,
) -> Asked:
    return Asked(
        names=names or {},
        query={},
        shared=shared or SharedAnswers(),
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


@contextlib.contextmanager
def _looking(path: Path) -> Iterator[tuple[MessageStore, StoreReader]]:
    with MessageStore.open(path) as store, store.reader() as reader:
        yield store, reader


def _put(store: MessageStore, topic: str, queues: Sequence[int], size: int = 100) -> None:
    store.put_messages([{"body": b"x" * size, "queueId": queue} for queue in queues], topic=topic)
    store.dispatch()


def _counted(reader: StoreReader, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Gets the queues that are measured from now on: those whose units are read."""
    whole = reader.units_of
    measured: list[tuple[str, int]] = []

    def counted(ranges: Sequence[tuple[str, int, int, int]]) -> object:
        measured.extend(dict.fromkeys((topic, queue) for topic, queue, _, _ in ranges))
        return whole(ranges)

    monkeypatch.setattr(reader, "units_of", counted)
    return measured


def test_a_long_queue_is_measured_at_its_ends_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _looking(tmp_path) as (store, reader):
        _put(store, "orders", [0] * 4 * SAMPLE)
        _put(store, "short", [0])
        infos = reader.queues("orders") + reader.queues("short")
        read: list[int] = []
        whole: Callable[..., object] = reader.units_of

        def counted(ranges: list[tuple[str, int, int, int]]) -> object:
            read.extend(stop - start for _, _, start, stop in ranges)
            return whole(ranges)

        monkeypatch.setattr(reader, "units_of", counted)
        size = sum(queue_sizes(reader, infos))
        assert max(read) <= 2 * SAMPLE
        low, high = store.physical_bounds()
        assert 0.9 * (high - low) < size <= high - low


def test_an_offset_without_a_message_has_no_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _looking(tmp_path) as (store, reader):
        _put(store, "orders", [0] * 10)
        whole: Callable[..., Iterator[tuple[int, Units]]] = reader.units_of

        def with_fillers(ranges: object) -> Iterator[tuple[int, Units]]:
            for number, units in whole(ranges):
                filled = units.copy()
                filled["size"][::2] = FILLER_SIZE
                yield number, filled

        (size,) = queue_sizes(reader, reader.queues("orders"))
        monkeypatch.setattr(reader, "units_of", with_fillers)
        assert queue_sizes(reader, reader.queues("orders")) == [size / 2]


def test_sizes_follow_a_queue_that_grows_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = KnownSizes(clock=lambda: 1.0)
    with _looking(tmp_path) as (store, reader):

        def look() -> tuple[int | None, int | None]:
            """What is shown, and what a measurement of now gives."""
            (shown,), (now,) = (one.of(reader, reader.queues("orders")) for one in (known, KnownSizes()))
            return shown, now

        _put(store, "orders", [0], size=1_000_000)
        assert look()[0] == sum(store.physical_bounds()) - 2 * store.physical_bounds()[0]
        _put(store, "orders", [0] * 1000)
        shown, now = look()
        assert shown == now, "not a thousand times the first message"
        measured = _counted(reader, monkeypatch)
        assert known.of(reader, reader.queues("orders")) == [shown]
        _put(store, "orders", [0] * 100)
        assert shown is not None
        assert known.of(reader, reader.queues("orders")) == [round(shown * 1101 / 1001)]
        assert not measured, "a tenth more are as large as those before"
        _put(store, "orders", [0], size=1000)
        shown, now = look()
        assert shown == now
        store.delete_topic("orders", with_messages=True)
        _put(store, "orders", [0] * 10)
        shown, now = look()
        assert shown == now


def test_sizes_of_one_look_are_measured_again_in_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1.0
    known = KnownSizes(clock=lambda: now)
    with _looking(tmp_path) as (store, reader):
        _put(store, "orders", range(64))
        infos = reader.queues("orders")
        measured, counts = _counted(reader, monkeypatch), []
        first = known.of(reader, infos)
        for _ in range(30):
            now += 2
            measured.clear()
            assert known.of(reader, infos) == first
            counts.append(len(measured))
    assert sum(counts[:14]) == 0, "they hold for half a minute"
    assert max(counts) <= 8
    assert sum(counts) >= 64, "and for a minute at most"


def test_a_queue_that_cannot_be_read_leaves_the_size_of_its_topic_alone_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = SharedAnswers()
    with _looking(tmp_path) as (store, reader):
        for topic in ("a", "broken", "c"):
            _put(store, topic, [0, 1])
        whole: Callable[..., object] = reader.units_of
        asked: list[set[str]] = []

        def fail(ranges: Sequence[tuple[str, int, int, int]]) -> object:
            asked.append({topic for topic, _, _, _ in ranges})
            return reader.queue_info("nothing", 0) if "broken" in asked[-1] else whole(ranges)

        monkeypatch.setattr(reader, "units_of", fail)
        rows = topics.LIST.look(reader, _asked(store, 1.0, shared=shared))["rows"]
        assert [(row["topic"], row["messages"], row["size"] is None) for row in rows] == [
            ("a", 2, False),
            ("broken", 2, True),
            ("c", 2, False),
        ]
        asked.clear()
        topics.LIST.look(reader, _asked(store, 2.0, shared=shared))
        assert set().union(*asked) == {"broken"}, "the sizes that were found are remembered"


def test_a_page_of_very_many_queues_goes_without_sizes_and_first_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commitlog_store.serve.http.pages.topics._MOST_QUEUES", 3)
    with _looking(tmp_path) as (store, reader):
        for topic, queues in (("a", range(2)), ("b", range(2)), ("c", range(1))):
            _put(store, topic, queues)
        rows = topics.LIST.look(reader, _asked(store, 1.0))["rows"]
        known = [[row[name] is not None for name in ("size", "first", "last")] for row in rows]
        assert known == [[True] * 3, [False, False, True], [True] * 3]


def test_the_times_of_last_messages_on_a_page_have_a_bound_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlog_store.serve.http.pages.topics._MOST_QUEUES", 1)
    monkeypatch.setattr("commitlog_store.serve.http.pages.topics._MOST_LAST_TIMES", 3)
    with _looking(tmp_path) as (store, reader):
        for topic, queues in (("a", range(2)), ("b", range(2)), ("c", range(1))):
            _put(store, topic, queues)
        whole = reader.store_timestamps
        asked: list[tuple[str, int, int]] = []

        def counted(places: Sequence[tuple[str, int, int]]) -> object:
            asked.extend(places)
            return whole(places)

        monkeypatch.setattr(reader, "store_timestamps", counted)
        rows = topics.LIST.look(reader, _asked(store, 1.0))["rows"]
        known = [[row[name] is not None for name in ("size", "first", "last")] for row in rows]
        assert known == [[False, False, True], [False] * 3, [True] * 3]
        assert {topic for topic, _, _ in asked} == {"a", "c"}
        page = topics.ONE.look(reader, _asked(store, 1.0, names={"name": "b"}))
        assert page["last"] is not None


def test_topics_are_sorted_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlog_store.serve.http.pages.topics._MOST_QUEUES", 1)
    with _looking(tmp_path) as (store, reader):
        _put(store, "few-large", [0], size=50_000)
        _put(store, "many-small", [0, 1] * 10)
        _put(store, "one-small", [0])
        whole: Callable[..., object] = reader.units_of

        def fail(ranges: Sequence[tuple[str, int, int, int]]) -> object:
            unreadable = any(topic == "one-small" for topic, _, _, _ in ranges)
            return reader.queue_info("nothing", 0) if unreadable else whole(ranges)

        monkeypatch.setattr(reader, "units_of", fail)
        shared = SharedAnswers()

        def shown(order: str) -> list[tuple[str, bool]]:
            asked = replace(_asked(store, 1.0, shared=shared), query={"sort": "size", "order": order})
            rows = topics.LIST.look(reader, asked)["rows"]
            assert [row["size"] for row in rows if row["topic"] == "few-large"] == [store_size("few-large")]
            return [(row["topic"], row["size"] is None) for row in rows]

        def store_size(topic: str) -> int:
            return round(sum(queue_sizes(reader, reader.queues(topic))))

        falling = [("few-large", False), ("many-small", False), ("one-small", True)]
        assert shown("falling") == falling, "topics beyond the limit of a page have their size here"
        assert shown("") == falling[::-1]
        with browsing(owned=store, headers={"accept": "text/html"}) as client:
            page = client.get("/topics?sort=size&order=falling").text
        assert page.index("few-large") < page.index("many-small")
        (header,) = re.findall(r'<a href="([^"]*)" aria-current="true">Size</a> <span aria-hidden="true">▾', page)
        assert "sort=size" in header
        assert "falling" not in header, "the next click sorts the other way"


@pytest.mark.parametrize(("queues", "is_empty"), [(1, False), (70, False), (1, True)])
def test_a_topic_has_the_same_numbers_in_the_list_and_on_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queues: int, is_empty: bool
) -> None:
    with _looking(tmp_path) as (store, reader):
        _put(store, "orders", range(queues))
        if is_empty:  # as after retention
            whole = reader.queue_infos
            monkeypatch.setattr(
                reader, "queue_infos", lambda keys: [replace(one, min_offset=one.max_offset) for one in whole(keys)]
            )
        (row,) = topics.LIST.look(reader, _asked(store, 1.0))["rows"]
        page = topics.ONE.look(reader, _asked(store, 1.0, names={"name": "orders"}))
        numbers = [row[name] for name in ("size", "first", "last", "messages")]
        assert numbers == [page[name] for name in ("size", "first", "last", "messages")]
        assert (numbers[0] == 0, numbers[1] is None) == (is_empty, is_empty)
