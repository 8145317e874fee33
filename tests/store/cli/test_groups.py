"""``commitlog groups`` and ``commitlog topics``."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from commitlog_store import Message, PutMessageStatus, StoreReader, commit_group_offsets
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.queries.texts import duration_text
from tests.store.cli.commands import ended, iso, lines, on_a_terminal, plain, run
from tests.store.owner.owned_store import open_store, put_ok
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", [0, 1], [b"x"] * 40, step_ms=1000)
    builder.append("returns", 0, [b"x"] * 5)
    builder.append("%RETRY%billing", 0, [b"x"] * 3)
    commit_group_offsets(builder.path, "billing", {("orders", 0): 15, ("orders", 1): 20, ("%RETRY%billing", 0): 1})
    commit_group_offsets(builder.path, "audit", {("returns", 0): 0})
    return builder.path


def _positions(store: Path, group: str, topic: str = "orders") -> dict[int, int]:
    return ConsumerOffsets(str(store)).get(group, topic)


def test_groups_are_listed_with_what_waits(store: Path) -> None:
    audit, billing = lines("groups", "ls", store, "--json")
    assert (audit["group"], audit["lag"], audit["topics"]) == ("audit", 5, 1)
    assert (billing["group"], billing["lag"], billing["queues"], billing["retryMessages"]) == ("billing", 7, 3, 2)
    assert billing["lagMs"] > 0
    table = run("groups", "ls", store)
    assert [line.split()[0] for line in table.splitlines()] == ["group", "audit", "billing"]


def test_system_groups_are_left_out_unless_all_is_asked_for(store: Path) -> None:
    offsets = ConsumerOffsets(str(store))
    for group in ("CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER"):
        offsets.commit(group, {("orders", 0): 1})
    offsets.flush()
    for command in ("ls", "lag"):
        shown = run("groups", command, store)
        assert shown.endswith("2 groups of RocketMQ's or the store's own: --all shows them too.\n")
        assert {row["group"] for row in lines("groups", command, store, "--json")} == {"audit", "billing"}
        everything = lines("groups", command, store, "--json", "--all")
        assert {row["group"] for row in everything} == {"CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER", "audit", "billing"}
    assert [row["isSystem"] for row in lines("groups", "ls", store, "--json", "--all")] == [True, True, False, False]
    assert run("groups", "lag", store, "TOOLS_CONSUMER").count("TOOLS_CONSUMER") > 0, "it is named"


def test_lag_has_a_row_for_each_queue(store: Path) -> None:
    rows = lines("groups", "lag", store, "billing", "--json")
    assert [(row["topic"], row["queueId"], row["committedOffset"], row["lag"]) for row in rows] == [
        ("%RETRY%billing", 0, 1, 2), ("orders", 0, 15, 5), ("orders", 1, 20, 0),
    ]  # fmt: skip
    with StoreReader.open(store) as reader:
        assert rows[1]["oldestWaitingTimestamp"] == iso(reader.store_timestamp("orders", 0, 15))
    assert len(lines("groups", "lag", store, "--json")) == 4
    csv = run("groups", "lag", store, "-o", "csv").splitlines()
    assert csv[0].startswith("group,topic,queueId,committedOffset")
    assert "error" not in run("groups", "lag", store).splitlines()[0]


def test_lag_is_a_time_that_people_read(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.now_ms = int(time.time() * 1000) - (3 * 60 + 12) * 60_000 - 5000
    builder.append("orders", 0, [b"x"] * 5)
    commit_group_offsets(builder.path, "billing", {("orders", 0): 2})
    for command in (["ls"], ["lag"], ["lag", "--full"]):
        heading, row = run("groups", command[0], builder.path, *command[1:]).splitlines()
        assert " behind" in heading
        assert " 3  3 h 12 min " in row
    (found,) = lines("groups", "lag", builder.path, "--json")
    assert found["lagMs"] >= (3 * 60 + 12) * 60_000
    assert "behind" not in found


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 s"),
        (999, "< 1 s"),
        (42_900, "42 s"),
        (725_000, "12 min 5 s"),
        (3_600_000, "1 h"),
        (11_520_000, "3 h 12 min"),
        (86_399_000, "23 h 59 min"),
        (450_000_000, "5 d 5 h"),
        (86_400_000 + 60_000, "1 d"),
    ],
)
def test_lengths_of_time_have_two_units(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text


LONG = "a_very_long_name_of_a_topic_" * 4 + "end"


@pytest.fixture
def wide_store(tmp_path: Path) -> Path:
    """Names, offsets and lags as wide as they get."""
    builder = StoreBuilder(tmp_path / "store", queue_file_units=50)
    for topic in (LONG, "orders"):
        builder.start_queue_at(topic, 1000, 9_876_543_200)
        builder.append(topic, 1000, [b"x"] * 20)
    group = "a_very_long_name_of_a_group_" * 3 + "end"
    commit_group_offsets(builder.path, group, {(LONG, 1000): 9_876_543_205, ("orders", 1000): 77})
    commit_group_offsets(builder.path, "b", {("orders", 1000): 9_876_543_220})
    return builder.path


@pytest.mark.parametrize(
    "command", [["ls"], ["lag"], ["lag", "b"], ["reset", "b", "--to", "latest", "--dry-run"]], ids=" ".join
)
def test_tables_about_groups_fit_eighty_columns(wide_store: Path, command: list[str]) -> None:
    shown = on_a_terminal(80, "groups", command[0], wide_store, *command[1:]).splitlines()
    shown = [line for line in shown if not line.rstrip().endswith(".")]  # what is unread is said in sentences
    assert all(len(line.rstrip()) <= 80 for line in shown), shown
    heading = shown[0].split()
    assert set(heading) >= ({"from", "to"} if command[0] == "reset" else {"lag", "behind"})
    assert not any(line.lstrip() != line for line in shown), "no row is folded"


def test_names_of_groups_and_topics_are_whole_in_pipes_and_with_full(wide_store: Path) -> None:
    assert "…" in on_a_terminal(80, "groups", "lag", wide_store)
    for whole in (run("groups", "lag", wide_store), on_a_terminal(80, "groups", "lag", wide_store, "--full")):
        assert LONG in whole
        assert "…" not in whole
        assert {"group", "topic", "position", "first", "end", "lag", "behind", "lost"} <= set(
            whole.splitlines()[0].split()
        )


def test_a_position_that_is_wrong_is_explained_below_the_table(store: Path) -> None:
    commit_group_offsets(store, "audit", {("gone", 0): 3})
    (row,) = [one for one in lines("groups", "lag", store, "audit", "--json") if one["topic"] == "gone"]
    assert row["error"] in " ".join(on_a_terminal(80, "groups", "lag", store, "audit").split("\r\n"))
    assert row["error"] in run("groups", "lag", store, "audit")


def test_an_unknown_group_is_said(store: Path) -> None:
    result = ended("groups", "lag", store, "nobody")
    assert (result.returncode, result.stdout) == (1, "")
    assert "has no positions of group 'nobody'." in plain(result.stderr)
    assert "Did you mean" not in result.stderr


def test_a_misspelt_group_is_answered_with_the_near_one(store: Path) -> None:
    result = ended("groups", "lag", store, "biling")
    assert result.returncode == 1
    assert "has no positions of group 'biling'. Did you mean 'billing'?" in plain(result.stderr)


def test_a_reset_shows_and_changes_nothing_without_yes(store: Path) -> None:
    path = store / "config" / "consumerOffset.json"
    before = path.read_bytes()
    result = ended("groups", "reset", store, "billing", "--to", "earliest", "--json")
    assert result.returncode == 1
    assert [(row["queueId"], row["from"], row["to"]) for row in map(json.loads, result.stdout.splitlines())] == [
        (0, 15, 0), (1, 20, 0),
    ]  # fmt: skip
    assert "Nothing is changed without --yes." in result.stderr
    shown = run("groups", "reset", store, "billing", "--to", "earliest", "--json", "--dry-run")
    assert shown == result.stdout
    assert path.read_bytes() == before


def test_a_reset_shows_what_is_skipped_and_what_comes_again(store: Path) -> None:
    ahead = run("groups", "reset", store, "billing", "--to", "latest", "--dry-run")
    assert "Group billing has not read 5 messages of them: orders 5." in plain(ahead)
    back = run("groups", "reset", store, "billing", "--to", "earliest", "--dry-run")
    assert "Group billing gets 35 messages again: orders 35. No consumer group has unread messages" in plain(back)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--to", "earliest"], {0: 0, 1: 0}),
        (["--to", "latest"], {0: 20, 1: 20}),
        (["--to", "7", "--topic", "orders"], {0: 7, 1: 7}),
        (["--to", "7", "--topic", "orders", "--queue", "1"], {0: 15, 1: 7}),
        (["--to", "99", "--topic", "orders"], {0: 20, 1: 20}),
        (["--to", iso(FIRST_STORE_TIME + 10_000)], {0: 5, 1: 5}),
        (["--to", "2h"], {0: 20, 1: 20}),
    ],
    ids=str,
)
def test_a_reset_moves_the_group(store: Path, options: list[str], expected: dict[int, int]) -> None:
    run("groups", "reset", store, "billing", *options, "--yes")
    assert _positions(store, "billing") == expected
    assert _positions(store, "billing", "%RETRY%billing") == {0: 1}, "retries stay"
    assert _positions(store, "audit", "returns") == {0: 0}


def test_a_new_group_gets_its_first_positions(store: Path) -> None:
    result = ended("groups", "reset", store, "new", "--to", "latest", "--yes")
    assert result.returncode == 1
    assert "name a topic with --topic" in plain(result.stderr)
    run("groups", "reset", store, "new", "--to", "latest", "--topic", "orders", "--yes")
    assert _positions(store, "new") == {0: 20, 1: 20}


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["billing", "--to", "7"], 2, "give --topic"),
        (["billing", "--to", "9" * 30, "--topic", "orders"], 2, "beyond all queue offsets"),
        (["billing", "--to", "soon"], 2, "soon"),
        (["billing", "--to", "latest", "--topic", "gone"], 1, "gone"),
        (["bill@ing", "--to", "latest"], 1, "A consumer group is made of"),
    ],
)
def test_a_reset_that_cannot_be_is_said(store: Path, options: list[str], code: int, words: str) -> None:
    result = ended("groups", "reset", store, *options, "--yes")
    assert result.returncode == code
    assert words in plain(result.stderr)


def test_an_open_store_is_not_changed(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store)
        store.dispatch()
        for command in (
            ("groups", "reset", tmp_path, "billing", "--to", "latest", "--topic", "orders", "--yes"),
            ("topics", "create", tmp_path, "orders", "--queues", "2"),
        ):
            result = ended(*command)
            assert result.returncode == 1
            assert "cannot be opened for writing" in plain(result.stderr)
    assert not (tmp_path / "config" / "consumerOffset.json").exists()


def test_topics_are_created_listed_and_closed(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    assert run("topics", "create", tmp_path, "orders", "--queues", "8") == (
        "Topic 'orders' is listed now: 8 queues, perm 6.\n"
    )
    assert run("topics", "create", tmp_path, "orders", "--queues", "2", "--perm", "4") == (
        "Topic 'orders' was listed already: 8 queues, perm 6 is 4 now.\n"
    )
    with open_store(tmp_path) as store:
        assert store.put_message(Message(topic="orders", body=b"x")).status is PutMessageStatus.MESSAGE_ILLEGAL
        put_ok(store, topic="returns")
    orders, returns = lines("topics", "ls", tmp_path, "--json")
    assert (orders["perm"], orders["writeQueueNums"], orders["queues"]) == (4, 8, None)
    assert (returns["perm"], returns["queues"], returns["messages"]) == (6, 1, 1)
    assert run("topics", "ls", tmp_path).splitlines()[0].split()[:2] == ["topic", "perm"]
    result = ended("topics", "create", tmp_path, "../x", "--queues", "8")
    assert result.returncode == 2
