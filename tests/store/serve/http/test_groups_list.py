"""The list of consumer groups: those with a position, and those that have settings or consumers alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store import MessageStore, StoreReader, SubscriptionGroupConfig
from commitlog_store.decoders.topic_decoders import TopicDecoders
from commitlog_store.serve.connection_counts import GroupClients
from commitlog_store.serve.http.pages import groups
from commitlog_store.serve.http.pages.latest_answer import LatestAnswer
from commitlog_store.serve.http.pages.views import Asked, SharedAnswers, Values
from commitlog_store.serve.verification import Verification
from tests.store.serve.http.fronts import browsing


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """Two messages, and 60 groups with settings."""
    with MessageStore.open(tmp_path / "store") as store:
        for queue in range(2):
            store.put("orders", b"x", queue_id=queue)
        for number in range(60):
            store.set_group_settings(SubscriptionGroupConfig(group_name=f"group-{number:02}"))
        store.dispatch()
        yield store


@pytest.fixture
def reader(store: MessageStore) -> Iterator[StoreReader]:
    with store.reader() as reader:
        yield reader


def _list(reader: StoreReader, owned: MessageStore | None, shared: SharedAnswers | None = None, **query: str) -> Values:
    asked = Asked(
        names={},
        query=query,
        shared=shared or SharedAnswers(),
        owned=owned,
        group_clients=GroupClients(),
        decoders=TopicDecoders(),
        verification=Verification(),
        now=1.0,
    )
    return groups.LIST.look(reader, asked)


@pytest.mark.parametrize("is_owned", [True, False], ids=["owned", "beside the owner"])
def test_of_many_groups_without_a_position_the_first_are_shown_and_the_others_found(
    store: MessageStore, reader: StoreReader, is_owned: bool
) -> None:
    found = _list(reader, store if is_owned else None)
    assert found["without"] == [f"group-{number:02}" for number in range(50)]
    assert found["more_without"] == 10
    assert _list(reader, store if is_owned else None, q="group-59")["without"] == ["group-59"]
    with browsing(owned=store, headers={"accept": "text/html"}) as client:
        assert "10 more are not shown: search by name." in client.get("/groups").text


def test_the_groups_without_a_position_are_on_the_first_page_alone(store: MessageStore, reader: StoreReader) -> None:
    for number in range(51):
        store.commit_group_offsets(f"consumes-{number}", {("orders", 0): 1})
    first, second = _list(reader, store), _list(reader, store, page="2")
    assert (len(first["rows"]), len(first["without"])) == (50, 50)
    assert (len(second["rows"]), second["without"], second["more_without"]) == (1, [], 0)


@pytest.mark.parametrize("is_owned", [True, False], ids=["owned", "beside the owner"])
def test_a_group_that_has_just_committed_is_not_listed_as_without_a_position(
    store: MessageStore, reader: StoreReader, is_owned: bool
) -> None:
    """The positions of all groups are an answer that serves all visitors for a while."""
    owned, shared = store if is_owned else None, SharedAnswers()
    shared.groups = LatestAnswer(lambda _: [], least_age_s=60.0)
    assert "group-00" in _list(reader, owned, shared)["without"]
    store.commit_group_offsets("group-00", {("orders", 0): 1})
    assert "group-00" not in _list(reader, owned, shared)["without"]


def test_the_owner_lists_groups_without_reading_their_file(
    store: MessageStore, reader: StoreReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("config/subscriptionGroup.json is read at each look")

    monkeypatch.setattr(StoreReader, "group_settings", fail)
    assert _list(reader, store)["without"]
