"""A reader at a server takes what a reader of the directory takes, and refuses the rest with the same kind of error."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commitlog_store import Message, MessageStore, RemoteStore, StoreReader, connect
from commitlog_store.errors import CommitLogError, InvalidValue
from tests.store.damage.test_wrong_arguments import WRONG
from tests.store.serve.servers import served


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StoreReader, StoreReader]]:
    """Of a store that the server owns: by its address, and of its directory."""
    with MessageStore.open(tmp_path_factory.mktemp("owned") / "store") as store:
        for number in range(3):
            store.put("a", b"x", queue_id=0, keys=[f"k{number}"])
        store.dispatch()
        with served(owned=store) as url, StoreReader.open(url) as far, StoreReader.open(store.path) as near:
            yield far, near


@pytest.mark.parametrize("name", WRONG)
def test_an_argument_of_the_wrong_type_is_refused(readers: tuple[StoreReader, StoreReader], name: str) -> None:
    call, _ = WRONG[name]
    for reader in readers:
        with pytest.raises(InvalidValue):
            call(reader)


ZERO, ONE = np.int64(0), np.int32(1)
NUMBERS: dict[str, Callable[[Any], object]] = {
    "message_at": lambda reader: reader.message_at(ZERO),
    "read": lambda reader: [batch.num_rows for batch in reader.read("a", ZERO, ONE, np.uint8(3))],
    "store_timestamp": lambda reader: reader.store_timestamp("a", ZERO, ONE),
    "get_message": lambda reader: reader.get_message("a", ZERO, ONE, np.int16(5)).messages,
    "fence": lambda reader: reader.fence("a", ZERO, ONE),
    "queue_info": lambda reader: reader.queue_info("a", ZERO),
    "wait_for_any": lambda reader: reader.wait_for_any({("a", ZERO): ONE}, 0),
    "first_offset_from": lambda reader: reader.first_offset_from("a", ZERO, ZERO, 0, ONE),
    "offset_by_time": lambda reader: reader.offset_by_time("a", ZERO, np.int64(1_700_000_000_000)),
    "query": lambda reader: reader.query("a", "k0", limit=ONE),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_integers_of_numpy_are_integers(readers: tuple[StoreReader, StoreReader], name: str) -> None:
    """As those that a program takes from a table are."""
    far, near = (NUMBERS[name](reader) for reader in readers)
    assert far == near


BEYOND: dict[str, Callable[[StoreReader], object]] = {
    "a queue id": lambda reader: reader.queue_infos([("a", 2**70)]),
    "a place": lambda reader: reader.message_at(2**70),
    "an id": lambda reader: reader.message_by_id("\ud800"),
    "a topic": lambda reader: reader.queues("\ud800"),
}


@pytest.mark.parametrize("name", BEYOND)
def test_what_cannot_travel_is_an_error_of_this_package(readers: tuple[StoreReader, StoreReader], name: str) -> None:
    for reader in readers:
        with pytest.raises(CommitLogError):
            BEYOND[name](reader)


def test_no_message_has_an_offset_below_0(readers: tuple[StoreReader, StoreReader]) -> None:
    for reader in readers:
        assert reader.fences([("a", 0, -1)]) == [None]


def test_places_may_come_from_an_iterator(
    readers: tuple[StoreReader, StoreReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a directory is looked at twice, since its owner changed it."""
    far, near = readers
    repeat = near._reads.repeat
    monkeypatch.setattr(near._reads, "repeat", lambda ask, **how: (repeat(ask, **how), repeat(ask, **how))[1])
    places, searches = [("a", 0, 0), ("a", 0, 1)], [("a", 0, 0, 0, 1), ("a", 0, 1, 0, 2)]
    expected = (far.store_timestamps(places), far.fences(places), far.first_offsets_from(searches))
    assert all(len(found) == 2 for found in expected)
    for reader in readers:
        found = (
            reader.store_timestamps(iter(places)),  # type: ignore[arg-type]
            reader.fences(iter(places)),  # type: ignore[arg-type]
            reader.first_offsets_from(iter(searches)),  # type: ignore[arg-type]
        )
        assert found == expected


# Of each kind of value that an argument may wrongly be: also what looks like places, ranges and positions.
KINDS: tuple[Any, ...] = (
    *(None, True, "0", "", "no name", b"a", 1.5, -1, ..., [], [5], ["a"], {}, {("a", 0): "1"}),
    *([("a", 0)], [("a", "0")], [("a", 0, "0")], [("a", 0, 0, None)], [("a", 0, 0, 0, "0")]),
)
# What the other arguments of a call are.
GOOD: dict[str, Any] = {
    "topic": "a",
    "queue_id": 0,
    "start": 0,
    "stop": 1,
    "offset": 0,
    "physical_offset": 0,
    "key": "k0",
    "keys": ["k0"],
    "timestamp_ms": 1_700_000_000_000,
    "group": "g",
    "message_id_text": "0" * 32,
    "app_id": "app",
    "max_messages": 1,
    "table": [],
    "retain": ["a"],
    "message": Message(topic="a", body=b"x"),
    "messages": [],
    "version": 1,
    "queues": 1,
    "offsets": {},
    "topics": ["a"],
    "body": b"x",
    "settings": None,
    "request": None,
    "producer_group": "p",
    "handle": None,
    "message_id": "0" * 32,
}
# Calls without arguments to compare, coroutines of others, those that call back, one that reads the whole store, and
# `clean`, whose settings are the server's.
APART = {"open", "close", "connect", "interrupt_with", "metadata", "clean", "clean_as", "aput", "aput_messages"} | {
    *("check", "start_checks", "assess")
}
# Arguments that are not looked at while there is nothing to do.
UNSEEN = {("offsets_by_time", "on_damage"), ("redrive", "on_damage")}


def _outcome(call: Callable[..., Any], given: Mapping[str, Any], places: Collection[str]) -> tuple[str, str]:
    """The kind of an error of this package and its words, without the place; of others, and of answers, that it is one.

    Functions and lists that are None are an error of Python's own on both sides.
    """
    try:
        answer = call(**given)
        if isinstance(answer, Iterator):
            list(answer)
        elif hasattr(answer, "close"):
            answer.close()
    except CommitLogError as error:
        words = str(error)
        for place in places:
            words = words.replace(place, "PLACE")
        return type(error).__name__, words
    except (TypeError, AttributeError, ValueError):
        return "an error of Python", ""
    return "an answer", ""


def _differences(near: object, far: object, kind: type, places: Collection[str]) -> dict[str, Any]:
    """Calls, with one wrong argument each, that do not end alike."""
    found: dict[str, Any] = {}
    for name, function in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith("_") or name in APART or not hasattr(near, name):
            continue
        parameters = [one for one in inspect.signature(function).parameters.values() if one.name != "self"]
        needed = {one.name: GOOD.get(one.name, []) for one in parameters if one.default is one.empty}
        if name.startswith("wait_for"):
            needed["timeout_s"] = 0
        for one, value in product((one.name for one in parameters), KINDS):
            if (name, one) in UNSEEN or (one == "timeout_s" and value is None):
                continue
            given = needed | {one: value}
            ends = [_outcome(getattr(side, name), given, places) for side in (near, far)]
            if ends[0] != ends[1]:
                found[f"{name}({one}={value!r})"] = ends
    return found


def test_each_call_of_a_reader_refuses_each_kind_of_wrong_value_in_the_same_words(
    readers: tuple[StoreReader, StoreReader],
) -> None:
    far, near = readers
    assert _differences(near, far, StoreReader, (far.path, near.path)) == {}


def test_each_call_of_a_store_refuses_each_kind_of_wrong_value_in_the_same_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    with (
        MessageStore.open(tmp_path / "near") as near,
        MessageStore.open(tmp_path / "far") as owned,
        served(owned=owned) as url,
        connect(url) as far,
    ):
        places = (url, near.path, owned.path)
        assert _differences(near, far, RemoteStore, places) == {}
        kind = type(far.half_messages)
        assert _differences(near.half_messages, far.half_messages, kind, places) == {}
