"""A served store gives what its directory gives: the same answers, batches, errors and reports of damage."""

from __future__ import annotations

import pickle
import random
import re
import weakref
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from commitlog_store import MessageFilter, MessageStore, StoreReader
from commitlog_store.columnar.columns import ALL_COLUMNS
from commitlog_store.errors import CommitLogError, InvalidValue, ReaderClosed, RemoteFailed, TopicNotFound
from commitlog_store.reader import QueueInfo
from commitlog_store.remote.connection import Connection, RemoteAddress
from commitlog_store.remote.reader import RemoteReader
from tests.store.serve.servers import served
from tests.support import golden

QUESTIONS = [
    "aborted",
    "batches",
    "checkpoint",
    "dead_letters",
    "group_filters",
    "group_settings",
    "lost_ends",
    "delay_levels",
    "index_files",
    "log_start",
    "pending_half_messages",
    "physical_bounds",
    "topics",
    "waiting_timers",
]


@pytest.fixture(scope="module", params=[golden.ROCKETMQ_533, golden.ROCKETMQ_498, golden.ROCKETMQ_533_HALF])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StoreReader, ...]]:
    """Readers of one store: of its directory, and through a server."""
    path = golden.copy_golden(request.param, tmp_path_factory.mktemp("served") / "store")
    with served(path) as url, StoreReader.open(path) as local, StoreReader.open(url) as remote:
        yield local, remote


def _said(reader: StoreReader, question: str, *given: Any, **named: Any) -> Any:
    """The answer, or the error with its fields."""
    try:
        ask = getattr(reader, question)
        found = ask(*given, **named) if callable(ask) else ask
        return list(found) if isinstance(found, Iterator) else found
    except CommitLogError as error:
        text = re.sub(r"grpc://[0-9.:]*[0-9]|/\S*/store", "PATH", str(error))
        return type(error), text, {name: str(value) for name, value in vars(error).items()}


def _queues(reader: StoreReader) -> list[tuple[str, int, int, int]]:
    infos = reader.queue_infos(lambda: [(one, number) for one in reader.topics() for number in reader.queue_ids(one)])
    return [(info.topic, info.queue_id, info.min_offset, info.max_offset) for info in infos]


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_about_the_store(both: tuple[StoreReader, ...], question: str) -> None:
    local, remote = both
    assert _said(remote, question) == _said(local, question)


def test_questions_about_queues(both: tuple[StoreReader, ...]) -> None:
    local, remote = both
    assert _queues(remote) == _queues(local)
    now = 1_800_000_000_000
    assert remote.groups(now_ms=now) == local.groups(now_ms=now)
    for topic, queue_id, start, stop in _queues(local):
        queue, middle = (topic, queue_id), (start + stop) // 2
        questions: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
            ("queue_infos", ([queue],), {}),
            ("fence", (*queue, middle), {}),
            ("store_timestamp", (*queue, middle), {}),
            ("offset_by_time", (*queue, 1_700_000_000_000), {"boundary": "upper"}),
            ("first_offset_from", (*queue, 1000, start, stop), {}),
            ("get_message", (*queue, start, 3), {}),
            ("get_message", (*queue, start), {"tags": "TagA || TagB", "max_bytes": 10_000}),
            ("get_message", (*queue, stop + 5), {}),
            ("wait_for_any", ({queue: start}, 0), {}),
        ]
        for question, given, named in questions:
            assert _said(remote, question, *given, **named) == _said(local, question, *given, **named), question
        units = [np.concatenate(list(reader.units(*queue, start, stop, chunk=10))) for reader in both if start < stop]
        assert not units or (units[0] == units[1]).all()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"columns": ALL_COLUMNS, "max_batch_rows": 7},
        {"filter": MessageFilter.parse(tags="TagA || paid", filter="TAGS IS NOT NULL")},
        {"columns": ["queueOffset"], "max_batch_bytes": 2000},
    ],
    ids=["default", "all columns", "filter", "small"],
)
def test_reads(both: tuple[StoreReader, ...], options: dict[str, Any]) -> None:
    local, remote = both
    for wanted in _queues(local):
        assert _said(remote, "read", *wanted, **options) == _said(local, "read", *wanted, **options)


def test_reads_of_several_queues(both: tuple[StoreReader, ...]) -> None:
    local, remote = both
    for topic in local.topics():
        ranges = [one for one in _queues(local) if one[0] == topic]
        assert remote.read_together(ranges) == local.read_together(ranges)
        side_by_side = [reader.read_side_by_side(ranges, columns=ALL_COLUMNS) for reader in both]
        assert list(side_by_side[0]) == list(side_by_side[1])
        assert side_by_side[0].positions == side_by_side[1].positions
    assert remote.read_together(_queues(local)) == local.read_together(_queues(local))
    assert remote.scan("*", columns=ALL_COLUMNS).read_all() == local.scan("*", columns=ALL_COLUMNS).read_all()


def test_single_messages_and_keys(both: tuple[StoreReader, ...]) -> None:
    local, remote = both
    for topic in local.topics():
        keys: list[str | None] = [None, "no such key", "a b"]
        for message in local.scan(topic, columns=["physicalOffset", "keys"]).read_all().to_pylist()[:50]:
            place = message["physicalOffset"]
            found = remote.message_at(place)
            assert found == local.message_at(place)
            assert remote.message_by_id(found.message_id) == local.message_by_id(found.message_id)
            keys += found.keys
        assert _said(remote, "query_keys", topic, keys) == _said(local, "query_keys", topic, keys)
        for key in keys[3:6]:
            assert remote.query(topic, str(key)) == local.query(topic, str(key))


def test_errors_are_those_of_the_directory(both: tuple[StoreReader, ...]) -> None:
    local, remote = both
    topic, queue_id, start, stop = _queues(local)[0]
    questions: list[tuple[Any, ...]] = [
        ("queue_ids", "no-such-topic"),
        ("queue_info", topic, 4711),
        ("read", topic, queue_id, stop, start),
        ("read", topic, queue_id, start, stop + 10),
        ("message_at", 3),
        ("message_by_id", "xyz"),
        ("query", topic, ""),
        ("query_keys", topic, [1, 2]),
        ("get_message", topic, queue_id, start, 0),
        ("offset_by_time", topic, queue_id, 1_700_000_000),
        ("wait_for_any", {(topic, -1): 0}, 0),
        ("scan", "no-such-*"),
    ]
    for question, *given in questions:
        assert _said(remote, question, *given) == _said(local, question, *given), question
        assert isinstance(_said(local, question, *given), tuple)


@pytest.mark.parametrize("on_damage", ["raise", "skip", "skip-records"])
def test_damage_is_what_it_is_in_the_directory(tmp_path: Path, on_damage: Any) -> None:
    path = golden.copy_golden(golden.ROCKETMQ_533, tmp_path / "store")
    chance = random.Random(7)
    with StoreReader.open(path) as reader:
        start, end = reader.physical_bounds()
        topics = [one for one in reader.topics() if not one.startswith("rmq_sys")]
    for _ in range(12):
        place = chance.randrange(start, end)
        for file in sorted((path / "commitlog").iterdir()):
            base, size = int(file.name), file.stat().st_size
            if base <= place < base + size:
                with file.open("r+b") as stream:
                    stream.seek(place - base)
                    stream.write(bytes([chance.randrange(256) for _ in range(16)]))
    with (
        served(path) as url,
        StoreReader.open(path, on_damage=on_damage) as local,
        StoreReader.open(url, on_damage=on_damage) as remote,
    ):
        for topic in topics:
            for info in local.queues(topic):
                wanted = (topic, info.queue_id, info.min_offset, info.max_offset)
                assert _rows_and_error(remote, wanted) == _rows_and_error(local, wanted)
        assert remote.skipped == local.skipped
        assert (on_damage == "raise") == (not local.skipped)


def _rows_and_error(reader: StoreReader, wanted: tuple[str, int, int, int]) -> tuple[Any, ...]:
    batches = reader.read(*wanted)
    rows: list[Any] = []
    try:
        for batch in batches:
            rows += batch.to_pylist()
    except CommitLogError as error:
        return rows, batches.position, type(error), str(error)
    return rows, batches.position


def test_a_read_that_is_longer_than_one_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlog_store.remote.blocks._BUDGET", 10_000)
    path = tmp_path / "store"
    with MessageStore.open(path) as store:
        bodies = [b"%d" % number * 50 for number in range(3_000)]
        store.put_messages(pa.table({"topic": ["orders"] * 3_000, "body": bodies, "tags": ["a", "b", "c"] * 1_000}))
    with served(path) as url, StoreReader.open(path) as local, StoreReader.open(url) as remote:
        for tags in (None, "a", "nothing"):
            read = [reader.scan("orders", tags=tags).read_all() for reader in (remote, local)]
            assert read[0] == read[1]
        ranges = [("orders", one.queue_id, one.min_offset, one.max_offset) for one in local.queues("orders")]
        assert pa.Table.from_batches(remote.read_side_by_side(ranges)) == pa.Table.from_batches(
            local.read_side_by_side(ranges)
        )
        assert remote.read_together(ranges) is not None


def test_new_messages_are_seen_and_waited_for(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.put("orders", b"one", queue_id=0)
        with served(tmp_path / "store") as url, StoreReader.open(url) as remote:
            assert not remote.wait_for_any({("orders", 0): 1}, 0.05)
            store.put("orders", b"two", queue_id=0)
            assert remote.wait_for_any({("orders", 0): 1}, 30)
            assert [one.body for one in remote.get_message("orders", 0, 1, wait_s=30).messages] == [b"two"]
            assert remote.scan("orders").read_all().num_rows == 2


def test_a_topic_that_came_after_the_last_look_is_found(tmp_path: Path) -> None:
    """Also where a reader assumes what it has listed before."""
    with MessageStore.open(tmp_path / "store") as store, served(owned=store) as url, StoreReader.open(url) as reader:
        for topic in ("a", "b"):
            with pytest.raises(TopicNotFound):
                next(iter(reader.scan(topic)), None)
            store.put(topic, b"x")
            store.dispatch()
            assert sum(map(len, reader.scan(topic))) == 1
        with pytest.raises(InvalidValue, match="queue_id"):
            reader.queue_infos(lambda: [("a", "0")])  # type: ignore[list-item]


def test_a_server_that_does_not_answer_is_waited_for_once_by_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def unanswered(_: RemoteReader, call: str, *arguments: object) -> None:
        asked.append((call, arguments))
        raise RemoteFailed("No server answers.")

    with MessageStore.open(tmp_path / "store") as store, served(owned=store) as url, StoreReader.open(url) as reader:
        monkeypatch.setattr(RemoteReader, "_ask", unanswered)
        with pytest.raises(RemoteFailed):
            reader.queue_infos(lambda: [(topic, 0) for topic in reader.topics()])
        monkeypatch.undo()
    assert asked == [("topics", ())]


def test_the_first_part_of_units_is_not_held_while_the_others_are_read(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store, served(owned=store) as url, StoreReader.open(url) as reader:
        for body in (b"a", b"b", b"c"):
            store.put("orders", body, queue_id=0)
        store.dispatch()
        parts = reader.units("orders", 0, 0, 3, chunk=1)
        first = weakref.ref(next(parts))
        next(parts)
        assert first() is None


def test_a_reader_is_opened_again_where_it_was_pickled_to(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.put("orders", b"one")
    with served(tmp_path / "store") as url, StoreReader.open(url, on_damage="skip") as remote:
        with pickle.loads(pickle.dumps(remote)) as again:
            assert again.topics() == remote.topics()
            assert repr(again) == repr(remote)
        with pytest.raises(ReaderClosed):
            again.topics()


def test_several_stores_have_names(tmp_path: Path) -> None:
    for name in "ab":
        with MessageStore.open(tmp_path / name) as store:
            store.put(f"of-{name}", b"one")
    with served(a=tmp_path / "a", b=tmp_path / "b") as url:
        with StoreReader.open(f"{url}/a") as one, StoreReader.open(f"{url}/b") as other:
            assert (one.topics(), other.topics()) == (["of-a"], ["of-b"])
        with pytest.raises(InvalidValue, match="has no store ''"):
            StoreReader.open(url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("grpc://", "A served store is grpc://HOST:PORT"),
        ("grpc://host:99999", "A served store is grpc://HOST:PORT"),
        ("grpc://me:secret@host", "A token is given by the option token"),
        ("grpc://secret@host:port", "A token is given by the option token"),
        ("grpc://secret@host?store=a", "A token is given by the option token"),
        ("grpc://host:1?x=1", "A served store is grpc://HOST:PORT"),
        ("grpc://host:0", "A served store is grpc://HOST:PORT"),
        ("grpc://[fe80::1%eth0]:1", "A served store is grpc://HOST:PORT"),
        ("grpc://a host:1", "A served store is grpc://HOST:PORT"),
    ],
)
def test_wrong_addresses(url: str, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        StoreReader.open(url)
    with pytest.raises(InvalidValue, match="are for a directory"):
        StoreReader.open("grpc://127.0.0.1:1", from_log=True)


@pytest.mark.parametrize("token", ["", " ", "two words", "s\u00e4cret", "secret\nmore", "secret" * 1000])
def test_what_cannot_be_a_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(InvalidValue, match="This is not a token") as raised:
        RemoteAddress.parse("grpc://host:1", token=token)
    assert "cret" not in str(raised.value)


def test_the_end_of_a_line_is_not_part_of_a_token() -> None:
    assert RemoteAddress.parse("grpc://host:1", token="clt_secret\n").token == "clt_secret"


def test_an_error_of_grpc_that_flight_does_not_know_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as RESOURCE_EXHAUSTED, which Flight raises as an ArrowInvalid."""

    def refuse(*_: object) -> None:
        raise pa.ArrowInvalid("gRPC returned resource exhausted error, with message: too large")

    MessageStore.open(tmp_path / "store").close()
    with served(tmp_path / "store") as url, StoreReader.open(url) as reader:
        monkeypatch.setattr(Connection, "_connected", refuse)
        with pytest.raises(RemoteFailed, match=r"failed at topics: too large\."):
            reader.topics()


def test_positions_are_found_by_a_reader_that_has_not_seen_the_queue(tmp_path: Path) -> None:
    """A server lends each call any of its readers, a new one or one that has not looked since."""
    with MessageStore.open(tmp_path / "store") as store:
        store.put_messages(pa.table({"topic": ["orders"] * 20, "body": [b"x"] * 20, "queueId": [0] * 20}))
        with StoreReader.open(tmp_path / "store") as before, StoreReader.open(tmp_path / "store") as knowing:
            assert before.wait_for_any({("orders", 0): 19}, 30)
            store.put_messages(pa.table({"topic": ["orders"] * 20, "body": [b"y"] * 20, "queueId": [0] * 20}))
            assert knowing.wait_for_any({("orders", 0): 39}, 30)
            bounds = knowing.queue_info("orders", 0)
            with StoreReader.open(tmp_path / "store") as fresh:
                for reader in (before, fresh):
                    assert reader.offsets_by_time([(bounds, 1_000_000_000_000)]) == [0]
                    assert reader.offsets_by_time([(bounds, 9_000_000_000_000)]) == [40]
            with StoreReader.open(tmp_path / "store") as fresh:
                assert fresh.fences([("orders", 0, 39)]) == knowing.fences([("orders", 0, 39)]) != [None]


def test_the_bounds_of_very_many_queues_fit_into_one_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each queue with its topic's name would be too large, here a sixteenth of what 140,000 queues are."""
    monkeypatch.setattr("commitlog_store.serve.flight_server._LARGEST_QUESTION", 1 << 20)
    topic = "t" * 127
    with MessageStore.open(tmp_path / "store") as store:
        store.put(topic, b"x", queue_id=0)
    with served(tmp_path / "store") as url, StoreReader.open(url) as reader:
        queues = [(topic, 0)] * 9_000
        assert reader.queue_infos(queues) == [QueueInfo(topic, 0, 0, 1)] * len(queues)
        assert reader.queue_infos([]) == []


def test_timer_messages_that_wait_come_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        for hours in (7, 3, 6, 4, 5):  # no delay level has these
            store.put("orders", b"later", delay=timedelta(hours=hours))
    for module in ("remote.reader", "serve.store_calls"):
        monkeypatch.setattr(f"commitlog_store.{module}.MOST_TIMERS", 2)
    with served(tmp_path / "store") as url, StoreReader.open(url) as far, StoreReader.open(tmp_path / "store") as near:
        assert far.waiting_timers() == near.waiting_timers()
        assert len(far.waiting_timers()) == 5
