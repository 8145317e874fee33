"""A store that a server owns is administered by its address, with the questions and the results of a directory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import MessageStore, RemoteStore, StoreReader, connect
from commitlog_store.errors import CommitLogError, InvalidValue, RemoteAccessRefused, TopicInUse, TopicNotFound
from commitlog_store.groups.group_settings import SubscriptionGroupConfig
from commitlog_store.remote import administration
from commitlog_store.remote.session import Session
from commitlog_store.retention.survey import clean_request
from commitlog_store.serve.tokens import Role, new_token
from tests.store.cli.commands import answered, ended, lines, plain, run
from tests.store.consumers.test_redrive import give_up, polled
from tests.store.retention.small_stores import SMALL, Clock, fill, log_bases, store_clock
from tests.store.serve.servers import served
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import wait_for


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[MessageStore]:
    """Old messages of topic orders, of which group billing has read 5, and an empty topic."""
    with store_clock(Clock()), MessageStore.open(tmp_path / "store", SMALL) as store:
        fill(store, 100)
        store.commit_group_offsets("billing", {("orders", 0): 5})
        yield store


@pytest.fixture
def url(owned: MessageStore) -> Iterator[str]:
    with served(owned=owned) as address:
        yield address


@pytest.fixture
def remote(url: str) -> Iterator[RemoteStore]:
    with connect(url) as store:
        yield store


def test_a_topic_is_deleted_as_by_its_owner(owned: MessageStore, remote: RemoteStore) -> None:
    with pytest.raises(TopicInUse, match="it has messages in the log"):
        remote.delete_topic("orders")
    remote.delete_topic("orders", with_messages=True)
    with pytest.raises(TopicNotFound):
        remote.delete_topic("orders", with_messages=True)
    with owned.reader() as reader:
        assert reader.topics() == []
        assert reader.group_offsets("billing") == {}


def test_topics_that_are_not_listed_or_have_expired_are_deleted(owned: MessageStore, remote: RemoteStore) -> None:
    Path(owned.path, "config", "topics.json").write_text('{"topicConfigTable":{}}')
    fill(owned, 1, topic="kept")
    assert remote.expired_topics() == owned.expired_topics() == []
    assert remote.clean_unused_topics(["kept"], dry_run=True) == ["orders"]
    with pytest.raises(InvalidValue, match="retain is a list of topics, not 'kept'"):
        remote.clean_unused_topics("kept")
    assert remote.clean_unused_topics(["kept"]) == ["orders"]
    with owned.reader() as reader:
        assert reader.topics() == ["kept"]


def test_old_files_go_as_by_the_owner(owned: MessageStore, remote: RemoteStore) -> None:
    before = log_bases(Path(owned.path))
    shown = remote.clean(older_than_hours=72, dry_run=True)
    assert shown == owned.clean(older_than_hours=72, dry_run=True)
    held = remote.clean(older_than_hours=72, dry_run=True, keep_for=["billing"], keep_at_most_hours=9e6)
    assert (held.deleted, held.holders) == ([], ("consumer group billing",))
    request = clean_request(older_than_hours=72, max_bytes=None)
    assert remote.clean_as(replace(request, first=before[1])).deleted == [], "the log begins before it"
    assert remote.clean_as(replace(request, first=before[0], most=2)).deleted == shown.deleted[:2]
    done = remote.clean(older_than_hours=72)
    assert done.deleted == shown.deleted[2:]
    assert log_bases(Path(owned.path))[0] == done.log_start == shown.log_start
    with pytest.raises(InvalidValue, match="Nothing says what may be deleted"):
        remote.clean()
    with pytest.raises(InvalidValue, match="keep_for goes with"):
        remote.clean(keep_for=["billing"])


def test_settings_of_a_group_are_written(owned: MessageStore, remote: RemoteStore) -> None:
    settings = SubscriptionGroupConfig(group_name="billing", retry_max_times=3)
    remote.set_group_settings(settings)
    with owned.reader() as reader:
        assert reader.group_settings("billing") == [settings]
    with pytest.raises(InvalidValue, match="are a SubscriptionGroupConfig, not"):
        remote.set_group_settings("billing")  # type: ignore[arg-type]


@pytest.mark.parametrize("where", ["remote", "owned"])
def test_positions_are_set_if_they_are_as_expected(owned: MessageStore, remote: RemoteStore, where: str) -> None:
    store: MessageStore | RemoteStore = owned if where == "owned" else remote
    assert store.commit_group_offsets("billing", {("orders", 0): 7})
    assert not store.commit_group_offsets("billing", {("orders", 0): 8}, expected={("orders", 0): 6})
    assert not store.commit_group_offsets("billing", {("orders", 0): 8}, expected={("orders", 0): None})
    assert store.commit_group_offsets("new", {("orders", 0): 1}, expected={("orders", 0): None})
    with StoreReader.open(owned.path) as reader:  # it is in the file when the call returns
        assert reader.group_offsets("billing") == {("orders", 0): 7}
        assert reader.group_offsets("new") == {("orders", 0): 1}
    with pytest.raises(InvalidValue, match="A position is a queue offset of 0 to"):
        store.commit_group_offsets("billing", {("orders", 0): -1})


def test_positions_of_a_group_with_open_consumers_are_theirs(owned: MessageStore, remote: RemoteStore) -> None:
    with remote.consumer("billing", ["orders"]) as consumer:
        consumer.poll(10)
        with pytest.raises(InvalidValue, match="Group 'billing' has 1 consumers that are open"):
            remote.commit_group_offsets("billing", {("orders", 0): 50})
        consumer.commit(sync=True)
    remote.commit_group_offsets("billing", {("orders", 0): 50})
    with remote.consumer("billing", ["orders"]) as consumer:
        assert consumer.poll(1)[0].queue_offset == 50


def test_dead_letters_are_put_back_in_several_calls(
    owned: MessageStore, remote: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(administration, "_MOST_REDRIVEN", 2)
    bodies = [b"%d" % number for number in range(5)]
    give_up(owned, *bodies, topic="bills")
    assert [remote.redrive("billing", max_messages=3), remote.redrive("billing"), remote.redrive("billing")] == [
        3,
        2,
        0,
    ]
    assert [one.body for one in polled(owned, topic="bills")] == bodies


def test_a_store_that_is_closed_lets_dead_letters_be_put_back_to_the_end(
    owned: MessageStore, remote: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(administration, "_MOST_REDRIVEN", 2)
    give_up(owned, *[b"%d" % number for number in range(5)], topic="bills")
    once = Session.once

    def once_and_closed(session: Session, *call: Any, **options: Any) -> Any:
        found = once(session, *call, **options)
        remote.close()
        return found

    monkeypatch.setattr(Session, "once", once_and_closed)
    assert remote.redrive("billing") == 5


CALLS: dict[str, Callable[[RemoteStore], object]] = {
    "delete_topic": lambda store: store.delete_topic("orders", with_messages=True),
    "clean_unused_topics": lambda store: store.clean_unused_topics(["orders"]),
    "clean": lambda store: store.clean(older_than_hours=72),
    "set_group_settings": lambda store: store.set_group_settings(SubscriptionGroupConfig(group_name="billing")),
    "reset_group_offsets": lambda store: store.commit_group_offsets("billing", {("orders", 0): 1}, expected={}),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_token_that_may_write_does_not_administer(owned: MessageStore, tmp_path: Path, call: str) -> None:
    tokens = str(tmp_path / "tokens")
    write, admin = new_token(tokens, "spark", Role.WRITE), new_token(tokens, "night shift", Role.ADMIN)
    before = owned.physical_bounds()
    with served(owned=owned, tokens=tokens) as url:
        with connect(url, token=write) as store:
            with pytest.raises(
                RemoteAccessRefused, match=f"'spark' may read and write, and {call} administers .*admin"
            ):
                CALLS[call](store)
            store.commit_group_offsets("audit", {("orders", 0): 1})
            assert store.redrive("billing") == 0
        assert owned.physical_bounds() == before
        with connect(url, token=admin) as store:
            CALLS[call](store)


def test_a_deletion_whose_answer_was_lost_is_no_error(url: str, owned: MessageStore) -> None:
    """Done again, it would find no such topic."""
    failed: list[CommitLogError] = []
    with TcpProxy(int(url.rpartition(":")[2])) as proxy, connect(proxy.url) as remote:

        def delete() -> None:
            try:
                remote.delete_topic("orders", with_messages=True)
            except CommitLogError as error:
                failed.append(error)

        proxy.lose_answers = True
        thread = threading.Thread(target=delete)
        thread.start()
        wait_for(lambda: not Path(owned.path, "consumequeue", "orders").exists())
        proxy.lose_answers = False
        proxy.cut()
        thread.join()
    assert failed == []


COMMANDS = (
    (["clean", "--older-than", "72h"], "Delete them?"),
    (["topics", "rm", "orders", "--with-messages"], "Delete them?"),
    (["groups", "reset", "billing", "--to", "latest"], "Set these positions?"),
    (["dlq", "redrive", "accounts"], "Redrive them?"),
)


def arguments(command: list[str], place: str) -> list[object]:
    words = 1 if command[0] == "clean" else 2
    return [*command[:words], place, *command[words:]]


def state(store: MessageStore) -> Any:
    with store.reader() as reader:
        groups = [reader.group_offsets(group) for group in ("billing", "accounts")]
        return log_bases(Path(store.path)), reader.topics(), groups, store.physical_bounds()


def _dead_letters(store: MessageStore) -> None:
    store.put("%DLQ%accounts", b"dead", queue_id=0)
    store.dispatch()


@pytest.mark.parametrize(("command", "question"), COMMANDS, ids=[" ".join(one) for one, _ in COMMANDS])
def test_a_command_asks_and_shows_as_for_a_directory(
    owned: MessageStore, url: str, command: list[str], question: str
) -> None:
    _dead_letters(owned)
    before = state(owned)
    looked = ended(*arguments(command, url))
    assert (looked.returncode, looked.stderr) == (1, "commitlog: Nothing is changed without --yes.\n")
    assert run(*arguments(command, url), "--yes", "--dry-run") == looked.stdout
    beside = run(*arguments(command, owned.path), "--dry-run")
    assert looked.stdout.replace(url, owned.path) == beside
    code, _, asked = answered(b"n\n", *arguments(command, url))
    assert (code, f"{question} [y/N]" in plain(asked)) == (1, True)
    assert state(owned) == before
    code, _, asked = answered(b"y\n", *arguments(command, url))
    assert code == 0, asked
    assert state(owned) != before


@pytest.mark.parametrize(("command", "question"), COMMANDS, ids=[" ".join(one) for one, _ in COMMANDS])
def test_a_command_does_it_with_yes(owned: MessageStore, url: str, command: list[str], question: str) -> None:
    _dead_letters(owned)
    before = state(owned)
    assert ended(*arguments(command, url), "--yes").returncode == 0, question
    assert state(owned) != before
    wrong = ended(*arguments(command, url), "--yes", "--lock-timeout", "5")
    assert wrong.returncode == 2
    assert "the server owns the store" in plain(wrong.stderr)


def test_a_server_that_cleans_by_itself_in_between_is_asked_again(owned: MessageStore, url: str) -> None:
    """What was shown is gone, and as many other files would go in its place."""
    first, second, third, *_ = log_bases(Path(owned.path))
    command = ["clean", url, "--max-bytes", str(owned.physical_bounds()[1] - second)]

    def clean_now() -> None:
        owned.clean(max_bytes=owned.physical_bounds()[1] - third)

    code, shown, asked = answered(b"y\n", *command, before_answer=clean_now)
    assert f"{first:020d}  " in shown
    assert "The store has changed since this was shown" in plain(asked)
    assert (code, log_bases(Path(owned.path))[0]) == (0, third)


def test_positions_that_moved_since_they_were_shown_are_shown_again(owned: MessageStore, url: str) -> None:
    command = ["groups", "reset", url, "billing", "--to", "earliest"]

    def read_more() -> None:
        owned.commit_group_offsets("billing", {("orders", 0): 60})

    code, shown, asked = answered(b"y\n", *command, before_answer=read_more)
    assert code == 0, asked
    assert shown.index("gets 5 messages again") < shown.index("gets 60 messages again")
    with owned.reader() as reader:
        assert reader.group_offsets("billing") == {("orders", 0): 0}


def test_a_server_that_does_not_own_its_store_refuses(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        fill(store, 3)
    with served(tmp_path / "store") as url:
        done = ended("topics", "rm", url, "orders", "--with-messages", "--yes")
    assert done.returncode != 0
    assert "shows its stores read only" in done.stderr
    assert lines("topics", "ls", tmp_path / "store", "--json")[0]["messages"] == 3
