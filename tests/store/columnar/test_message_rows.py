"""A list of messages becomes a table column by column; what that gives is what each value by itself gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store import Message, MessageStore
from commitlog_store.columnar.columns import PUT_COLUMNS
from commitlog_store.columnar.message_rows import message_rows
from commitlog_store.errors import InvalidValue
from commitlog_store.message import MessageExtBrokerInner

FIELDS = dict(
    zip(
        PUT_COLUMNS,
        ("body", "topic", "tags", "keys", "queue_id", "sharding_key", "properties", "flag", "born_timestamp",
         "delay_level"),
        strict=True,
    )
)  # fmt: skip
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
messages = st.builds(
    Message,
    topic=st.sampled_from(["orders", "audit"]),
    body=st.binary(max_size=8),
    tags=st.none() | texts,
    keys=st.one_of(st.just(()), st.lists(texts, max_size=3), st.lists(texts, max_size=2).map(tuple)),
    queue_id=st.none() | st.integers(0, 7),
    flag=st.integers(-5, 5),
    properties=st.dictionaries(texts, texts, max_size=2),
    sharding_key=st.none() | texts,
    delay_level=st.none() | st.integers(0, 3),
    born_timestamp=st.none() | st.integers(0, 2**41),
)


def values(rows: Any) -> list[dict[str, Any]]:
    """What the rows say: nulls, and lists without an entry, say nothing."""
    return [{name: value for name, value in row.items() if value not in (None, [])} for row in rows.to_pylist()]


@given(st.lists(messages, min_size=1, max_size=6))
def test_messages_give_what_dicts_of_their_values_give(given_messages: list[Message]) -> None:
    dicts = [{name: getattr(one, field) for name, field in FIELDS.items()} for one in given_messages]
    rows, expected = message_rows(given_messages), message_rows(dicts)
    assert values(rows) == values(expected)
    for name in rows.schema.names:
        assert rows.schema.field(name).type == expected.schema.field(name).type


@pytest.mark.parametrize(
    ("field", "value", "column"),
    [
        ("body", "text", "body"), ("topic", b"orders", "topic"), ("tags", 7, "tags"),
        ("tags", "\ud800", "tags"), ("keys", [1], "keys"), ("keys", [b"k"], "keys"), ("keys", "k1 k2", "keys"),
        ("queue_id", 1.5, "queueId"), ("queue_id", True, "queueId"), ("queue_id", 2**63, "queueId"),
        ("properties", {"a": 1}, "properties"), ("properties", {b"a": "1"}, "properties"),
        ("delay_level", "10s", "delayLevel"), ("sharding_key", 3, "shardingKey"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_with_its_row(
    tmp_path: Path, field: str, value: object, column: str
) -> None:
    odd = Message(**{"topic": "orders", "body": b"x", field: value})  # type: ignore[arg-type]
    with MessageStore.open(tmp_path / "store") as store:
        with pytest.raises(InvalidValue) as refused:
            store.put_messages([Message(topic="orders", body=b"a"), odd])
        assert field in str(refused.value) or column in str(refused.value)
        assert "ow 1" in str(refused.value), "the row is named"
        assert store.physical_bounds()[1] == 0, "nothing is stored"


def test_messages_of_a_broker_are_refused() -> None:
    with pytest.raises(InvalidValue, match="row 1 is a MessageExtBrokerInner"):
        message_rows([Message(topic="orders", body=b"a"), MessageExtBrokerInner(topic="orders", body=b"b")])


def test_a_list_of_messages_is_stored_as_each_of_them_is(tmp_path: Path) -> None:
    given_messages = [
        Message(topic="orders", body=b"a", tags="paid", keys=["k1", "k2"], queue_id=0, properties={"region": "eu"}),
        Message(topic="orders", body=b"b", queue_id=0, flag=3),
        Message(topic="orders", body=b"", queue_id=0, sharding_key="s", born_timestamp=1_700_000_000_000),
    ]
    stored = []
    for name in ("together", "one by one"):
        with MessageStore.open(tmp_path / name) as store:
            if name == "together":
                store.put_messages(given_messages).raise_for_status()
            else:
                for one in given_messages:
                    store.put_message(one).raise_for_status()
            store.dispatch()
            found = store.get_message("orders", 0, 0).messages
            stored.append([(m.body, m.tags, tuple(m.keys), m.flag, m.sharding_key, dict(m.properties)) for m in found])
    assert len(stored[0]) == len(given_messages)
    assert stored[0] == stored[1]
