"""``commitlog dlq``: dead letters are listed, redriven and exported; ``produce`` puts none into its own topic again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from commitlog_store import (
    Message,
    MessageExtBrokerInner,
    MessageStore,
    MessageStoreConfig,
    StoreReader,
    commit_group_offsets,
)
from tests.store.cli.commands import ended, lines, plain, run, shell
from tests.store.verify.made_store import flip

CONFIG = MessageStoreConfig.embedded(max_hash_slot_num=1_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store in which group billing gave up three messages of orders, and a group of RocketMQ's own gave up one."""
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        for body in (b"1", b"2", b"3"):
            store.put("orders", body, queue_id=0, tags="paid", properties={"region": "eu"})
        store.dispatch()
        for group in ("billing", "TOOLS_CONSUMER"):
            with store.consumer(group, "orders") as consumer:
                for message in consumer.poll(3 if group == "billing" else 1):
                    consumer.retry(message, -1)
    return tmp_path / "store"


def bodies(path: Path, topic: str) -> list[bytes]:
    with StoreReader.open(path) as reader:
        return reader.scan(topic).read_all()["body"].to_pylist() if topic in reader.topics() else []


def test_groups_with_dead_letters_are_listed(path: Path) -> None:
    (row,) = lines("dlq", "ls", path, "--json")
    assert (row["group"], row["deadLetters"], row["waiting"], row["redriven"], row["error"]) == (
        "billing",
        3,
        3,
        0,
        None,
    )
    assert row["oldest"] <= row["newest"]
    assert [one["group"] for one in lines("dlq", "ls", path, "--json", "--all")] == ["TOOLS_CONSUMER", "billing"]
    run("dlq", "redrive", path, "billing", "-n", "2", "--yes")
    heading, values = (line.split() for line in run("dlq", "ls", path, "billing").splitlines())
    assert heading == ["group", "deadLetters", "waiting", "redriven", "oldest", "newest"]
    assert values[:4] == ["billing", "3", "1", "2"]
    done = ended("dlq", "ls", path, "nobody")
    assert (done.returncode, "no dead letters of group 'nobody'" in done.stderr) == (1, True)


def test_a_redrive_shows_asks_and_redrives_once(path: Path) -> None:
    shown = ended("dlq", "redrive", path, "billing")
    assert (shown.returncode, shown.stderr) == (1, "commitlog: Nothing is changed without --yes.\n")
    assert shown.stdout == "It would redrive 3 dead letters of group billing: 3 to %RETRY%billing.\n"
    assert bodies(path, "%RETRY%billing") == []
    assert run("dlq", "redrive", path, "billing", "--yes") == "Redriven: 3 dead letters of group billing.\n"
    assert run("dlq", "redrive", path, "billing", "--yes") == "Redriven: 0 dead letters of group billing.\n"
    assert run("dlq", "redrive", path, "billing") == "Group billing has no dead letters to redrive.\n"
    assert bodies(path, "%RETRY%billing") == [b"1", b"2", b"3"]


def test_dead_letters_that_are_left_are_no_lag(path: Path) -> None:
    run("dlq", "redrive", path, "billing", "-n", "1", "--yes")
    assert "%DLQ%billing" not in [row["topic"] for row in lines("groups", "lag", path, "billing", "--json")]
    (row,) = lines("groups", "ls", path, "--json")
    assert (row["lag"], row["retryMessages"], row["deadLetters"]) == (0, 1, 3)
    commit_group_offsets(path, "TOOLS_CONSUMER", {("orders", 0): 3})
    done = ended("doctor", path, "--warn", "lag=1")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("option", ["--yes", "--dry-run"])
def test_a_misspelt_group_is_said_with_those_that_have_dead_letters(path: Path, option: str) -> None:
    done = ended("dlq", "redrive", path, "biling", option)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no dead letters of group 'biling'; groups that have some: TOOLS_CONSUMER, billing." in done.stderr


def test_a_redrive_to_the_topic_says_that_other_groups_get_it_again(path: Path) -> None:
    shown = run("dlq", "redrive", path, "billing", "--to", "topic", "-n", "2", "--dry-run")
    assert "2 dead letters of group billing: 2 to orders." in shown
    assert "All groups that consume these topics get the messages again" in shown
    run("dlq", "redrive", path, "billing", "--to", "topic", "-n", "2", "--yes")
    assert sorted(bodies(path, "orders")) == [b"1", b"1", b"2", b"2", b"3"]


def test_a_reset_of_the_position_redrives_again(path: Path) -> None:
    run("dlq", "redrive", path, "billing", "--yes")
    run("groups", "reset", path, "billing", "--to", "earliest", "--yes")
    assert "no dead letters" in run("dlq", "redrive", path, "billing", "--dry-run"), "only what --topic names"
    run("groups", "reset", path, "billing", "--topic", "%DLQ%billing", "--to", "2", "--yes")
    assert "redrive 1 dead letter of group billing" in run("dlq", "redrive", path, "billing", "--dry-run")


def test_dead_letters_are_exported(path: Path, tmp_path: Path) -> None:
    run("dlq", "export", path, "billing", "--to", f"ndjson:{tmp_path / 'dead.ndjson'}")
    rows = [json.loads(line) for line in (tmp_path / "dead.ndjson").read_text().splitlines()]
    assert [(row["topic"], row["body"], row["properties"]["RETRY_TOPIC"]) for row in rows] == [
        ("%DLQ%billing", "1", "orders"), ("%DLQ%billing", "2", "orders"), ("%DLQ%billing", "3", "orders"),
    ]  # fmt: skip


def test_dead_letters_do_not_fall_back_into_their_topic(path: Path) -> None:
    done = shell(f"commitlog cat {path} '%DLQ%billing' --json | commitlog produce {path} --ndjson")
    assert done.returncode == 1
    assert "its topic '%DLQ%billing' belongs to a consumer group" in done.stderr
    assert "commitlog dlq redrive PATH billing" in done.stderr
    assert bodies(path, "%DLQ%billing") == [b"1", b"2", b"3"]


def test_a_line_for_another_topic_leaves_the_notes_of_the_group_behind(path: Path) -> None:
    (line, *_) = lines("cat", path, "%DLQ%billing", "--json")
    text = json.dumps({**line, "topic": "again"})
    done = shell(f"commitlog produce {path} --ndjson <<< '{text}'")
    assert done.returncode == 0, done.stderr
    (row,) = lines("cat", path, "again", "--json")
    assert row["properties"]["region"] == "eu"
    assert row["properties"].keys().isdisjoint({"RETRY_TOPIC", "ORIGIN_MESSAGE_ID"})


def test_dead_letters_are_copied_where_the_topic_is_named(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    done = shell(
        f"commitlog cat {path} '%DLQ%billing' --json"
        f" | commitlog produce {copy} --create --mapped-file-size-commit-log 4M --ndjson --topic '%DLQ%billing'"
    )
    assert done.returncode == 0, done.stderr
    run("dlq", "redrive", copy, "billing", "--to", "topic", "--yes")
    assert bodies(copy, "orders") == [b"1", b"2", b"3"]


def test_wrong_groups_are_refused(path: Path) -> None:
    for command in (["redrive"], ["export", "--to", "ndjson:x"]):
        done = ended("dlq", command[0], path, "no group", *command[1:])
        assert done.returncode in (1, 2)
        assert "A consumer group is made of" in plain(done.stderr)


def test_a_reader_lists_dead_letters(path: Path) -> None:
    with StoreReader.open(path) as reader:
        (row,) = reader.dead_letters("billing")
        assert (row.topic, row.messages, row.waiting) == ("%DLQ%billing", 3, 3)
        assert len(reader.dead_letters()) == 2
    with MessageStore.open(path, CONFIG) as store:
        store.put_message(Message(topic="orders", body=b"x")).raise_for_status()
        store.redrive("billing")
        store.dispatch()
        with store.reader() as reader:
            assert [one.waiting for one in reader.dead_letters("billing")] == [0]


@pytest.fixture
def damaged(path: Path) -> Path:
    """The store whose second dead letter of billing has a body that does not match its CRC."""
    with StoreReader.open(path) as reader:
        (second,) = reader.get_message("%DLQ%billing", 0, 1, 1).messages
    log = path / "commitlog" / "00000000000000000000"
    # The body of one byte follows the 84 bytes of numbers before it, and its length.
    flip(log, second.physical_offset + 88)
    return path


def test_a_damaged_dead_letter_is_skipped_or_redriven_as_it_is(damaged: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(damaged, tmp_path / "copy"))
    for _ in range(2):
        done = ended("dlq", "redrive", damaged, "billing", "--yes")
        assert (done.returncode, "CRC" in done.stderr) == (1, True), done.stderr
    assert bodies(damaged, "%RETRY%billing") == [b"1"]
    shown = run("dlq", "redrive", damaged, "billing", "--on-damage", "skip", "--dry-run")
    assert "Those that cannot be read are skipped" in shown
    done = ended("dlq", "redrive", damaged, "billing", "--on-damage", "skip", "--yes")
    assert (done.returncode, done.stdout) == (1, "Redriven: 1 dead letter of group billing.\n")
    assert "commitlog: 1 message skipped because of damage.\n" in done.stderr
    assert bodies(damaged, "%RETRY%billing") == [b"1", b"3"]
    assert "has no dead letters to redrive" in run("dlq", "redrive", damaged, "billing")
    run("dlq", "redrive", copy, "billing", "--no-verify-crc", "--yes")
    assert bodies(copy, "%RETRY%billing") == [b"1", b"\x22", b"3"]


def test_damaged_dead_letters_are_exported_like_other_messages(damaged: Path, tmp_path: Path) -> None:
    export = ["dlq", "export", damaged, "billing", "--to", f"ndjson:{tmp_path / 'dead'}"]
    assert ended(*export).returncode == 1
    done = ended(*export, "--resume", "--on-damage", "skip")
    assert (done.returncode, len((tmp_path / "dead").read_text().splitlines())) == (1, 2)
    run("dlq", "export", damaged, "billing", "--to", f"ndjson:{tmp_path / 'raw'}", "--no-verify-crc")
    assert len((tmp_path / "raw").read_text().splitlines()) == 3


@pytest.mark.parametrize("option", ["--dry-run", "--yes"])
def test_a_dead_letter_of_no_known_topic_is_refused_before_any_is_put_back(path: Path, option: str) -> None:
    with MessageStore.open(path, CONFIG) as store:
        lost = MessageExtBrokerInner(topic="%DLQ%billing", queue_id=0, body=b"x", reconsume_times=17)
        store.put_message(lost).raise_for_status()
    done = ended("dlq", "redrive", path, "billing", "--to", "topic", option)
    assert (done.returncode, done.stdout) == (1, "")
    assert "The dead letter at offset 3 of '%DLQ%billing' has no property RETRY_TOPIC" in done.stderr
    assert bodies(path, "orders") == [b"1", b"2", b"3"]


def test_dead_letters_of_a_log_elsewhere(path: Path, tmp_path: Path) -> None:
    (path / "commitlog").rename(tmp_path / "disk")
    log = ["--commit-log", tmp_path / "disk"]
    assert lines("dlq", "ls", path, "--json", *log)[0]["waiting"] == 3
    run("dlq", "export", path, "billing", "--to", f"ndjson:{tmp_path / 'dead'}", *log)
    assert run("dlq", "redrive", path, "billing", "--yes", *log) == "Redriven: 3 dead letters of group billing.\n"
    assert not (path / "commitlog").exists()
