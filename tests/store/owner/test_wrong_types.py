"""Messages and arguments of the wrong type: an error that names them, and nothing in the log."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commitlog_store import Message, MessageExtBrokerInner, MessageStore, PutMessageStatus
from commitlog_store.errors import InvalidValue
from commitlog_store.format.single_record import encode_message
from tests.store.owner.owned_store import SYNC, open_store, put_ok, rows, small
from tests.support.stored_bodies import bodies

_ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL
_NUMBERS = array("i", range(10))
_GRID: Any = np.arange(24, dtype=np.int16).reshape(4, 6)

WRONG_FIELDS: list[dict[str, Any]] = [
    *({"body": value} for value in (None, "text", 5, [1, 2])),
    *({"topic": value} for value in (None, b"orders", ["orders"], 5)),
    *({"queue_id": value} for value in ("1", 1.0, True)),
    *({"delay_level": value} for value in ("1", 1.0, True)),
    *({"born_timestamp": value} for value in ("1", 1.0, True)),
    *({"sharding_key": value} for value in (5, 0, b"key")),
    *({"flag": value} for value in ("1", None, 1.5)),
    *({"tags": value} for value in (5, 0, b"paid", ["paid"])),
    *({"keys": value} for value in (None, 5, [1], [None], b"key", "key")),
    *({"properties": value} for value in (None, 5, "a", {"a": 1}, {"a": ["b"]}, {"a": b"b"}, {1: "a"})),
    {"properties": {"DELAY": 3}},
    {"properties": {"WAIT": False}},
]
WRONG_BROKER_FIELDS: list[dict[str, Any]] = [
    {"sys_flag": "1"},
    {"born_timestamp": "now"},
    {"born_host": 5},
    {"store_host": b"1.2.3.4:5"},
    {"reconsume_times": None},
    {"prepared_transaction_offset": 1.5},
    {"keys": [1]},
    {"properties": 5},
]
BUFFERS = {
    "array": _NUMBERS,
    "wide view": memoryview(_NUMBERS),
    "every other": memoryview(_NUMBERS)[::2],
    "grid": memoryview(_GRID),
    "turned": memoryview(_GRID.T),
    "nothing": memoryview(array("i")),
    "bytearray": bytearray(b"body"),
    "view": memoryview(b"body")[1:],
}


@pytest.mark.parametrize("fields", WRONG_FIELDS, ids=str)
def test_a_field_of_the_wrong_type_is_refused_by_its_name(tmp_path: Path, fields: dict[str, Any]) -> None:
    given: dict[str, Any] = {"topic": "orders", "body": b"x", "queue_id": 0}
    message = Message(**given | fields)
    with open_store(tmp_path) as store:
        put_ok(store, body=b"before")
        end = store.physical_bounds()
        with pytest.raises(InvalidValue, match=f"field {next(iter(fields))}"):
            store.put_message(message)
        with pytest.raises(InvalidValue, match=f"field {next(iter(fields))}"):
            store.put_message_batch([message])
        assert store.physical_bounds() == end
        put_ok(store, body=b"behind")
        assert bodies(store) == [b"before", b"behind"]
        assert [path.name for path in (tmp_path / "consumequeue" / "orders").iterdir()] == ["0"]


@pytest.mark.parametrize("fields", WRONG_BROKER_FIELDS, ids=str)
def test_a_field_of_the_wrong_type_in_a_broker_message_is_refused_by_its_name(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    with open_store(tmp_path) as store:
        with pytest.raises(InvalidValue, match=f"field {next(iter(fields))}"):
            store.put_message(MessageExtBrokerInner(**{"topic": "orders", "body": b"x"} | fields))
        assert store.physical_bounds() == (0, 0)


@pytest.mark.parametrize(
    "fields",
    [
        *({"flag": value} for value in (2**31, -(2**31) - 1)),
        {"sys_flag": 2**31},
        {"born_timestamp": 2**63},
        {"reconsume_times": -(2**31) - 1},
        {"prepared_transaction_offset": 2**63},
    ],
    ids=str,
)
def test_a_number_that_does_not_fit_its_field_is_answered_by_a_status(tmp_path: Path, fields: dict[str, Any]) -> None:
    kind = Message if "flag" in fields else MessageExtBrokerInner
    with open_store(tmp_path) as store:
        result = store.put_message(kind(**{"topic": "orders", "body": b"x"} | fields))
        assert (result.status, f"field {next(iter(fields))}" in result.reason) == (_ILLEGAL, True), result
        assert store.physical_bounds() == (0, 0)


@pytest.mark.parametrize("given", [None, {"topic": "orders", "body": b"x"}, "orders"], ids=str)
def test_an_argument_that_is_not_a_message_raises(tmp_path: Path, given: Any) -> None:
    with open_store(tmp_path) as store, pytest.raises(InvalidValue, match="is a Message"):
        store.put_message(given)


@pytest.mark.parametrize("given", [None, 5, Message(topic="orders", body=b""), "orders", [None]], ids=str)
def test_an_argument_that_is_not_a_batch_raises(tmp_path: Path, given: Any) -> None:
    with open_store(tmp_path) as store:
        with pytest.raises(InvalidValue, match=r"is a list of messages|is a Message"):
            store.put_message_batch(given)
        with pytest.raises(InvalidValue, match="list"):
            store.put_message_batch(Message(topic="orders", body=b"") for _ in range(3))  # type: ignore[arg-type]
        assert store.physical_bounds() == (0, 0)


def test_an_empty_batch_is_answered_by_a_status(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert store.put_message_batch([]).status is _ILLEGAL


@pytest.mark.parametrize("body", BUFFERS.values(), ids=BUFFERS)
@pytest.mark.parametrize("settings", [{}, {"flush_disk_type": SYNC}], ids=str)
def test_the_body_may_be_any_buffer_and_counts_by_its_bytes(
    tmp_path: Path, body: Any, settings: dict[str, object]
) -> None:
    """A length that counts wider items would make a record after which no record is found."""
    stored = memoryview(body).tobytes()
    with open_store(tmp_path, **settings) as store:
        put_ok(store, body=body)
        assert store.put_message_batch([Message(topic="orders", body=body, queue_id=0)] * 2).ok
        put_ok(store, body=b"behind")
        assert bodies(store) == [stored, stored, stored, b"behind"]
    with open_store(tmp_path) as store:
        assert store.recovered is None
        assert bodies(store) == [stored, stored, stored, b"behind"]


def test_the_size_of_a_body_is_that_of_its_bytes(tmp_path: Path) -> None:
    with open_store(tmp_path, max_message_size=39) as store:
        result = store.put_message(Message(topic="orders", body=_NUMBERS))  # type: ignore[arg-type]
        assert (result.status, "40 bytes" in result.reason) == (_ILLEGAL, True), result


def test_a_record_of_another_length_than_it_says_is_not_written() -> None:
    host = (b"\x7f\0\0\1", 10911)
    with pytest.raises(InvalidValue, match="take 132 bytes and count as 102"):
        encode_message(
            b"t",
            memoryview(_NUMBERS),  # type: ignore[arg-type]
            b"",
            queue_id=0,
            flag=0,
            sys_flag=0,
            born_timestamp=0,
            born_host=host,
            store_host=host,
        )


def test_keys_may_be_any_iterable(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, keys=(key for key in ["a", "", "b"]))
        assert rows(store)[0]["keys"] == "a b"


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, queue_id=np.int64(3), flag=np.int16(7))
        assert [(row["queueId"], row["flag"]) for row in rows(store, queue_id=3)] == [(3, 7)]
        assert store.put("orders", b"x", delay=np.int64(3)).queue_id == 2  # type: ignore[arg-type]
        store.create_topic("bills", np.int64(3))  # type: ignore[arg-type]


def test_names_and_numbers_of_topics_are_checked(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        with pytest.raises(InvalidValue, match="queues is an int, not '4'"):
            store.create_topic("orders", "4")  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match="topics is a name, or a list of names, not None"):
            store.consumer("billing", None)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match="A consumer group is text, not None"):
            store.consumer(None, "orders")  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [b"/tmp", "", None, 5, "with\0nul"], ids=repr)
def test_an_argument_that_is_not_a_path_is_not_opened(
    path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue, match="path is"):
        MessageStore.open(path, small())
    assert list(tmp_path.iterdir()) == [], "an empty path is not the current directory"


@pytest.mark.parametrize("config", [{"flush_disk_type": SYNC}, {}, "SYNC_FLUSH", 0], ids=str)
def test_an_argument_that_is_not_a_config_is_refused(tmp_path: Path, config: Any) -> None:
    with pytest.raises(InvalidValue, match="config is a MessageStoreConfig"):
        MessageStore.open(tmp_path, config)
    assert list(tmp_path.iterdir()) == []
