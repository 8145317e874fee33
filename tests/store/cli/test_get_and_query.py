"""``commitlog get`` and ``commitlog query``; and that no command writes to the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog_store import StoreReader
from tests.store.cli.commands import EXPECTED, ended, lines, run
from tests.store.owner.owned_store import open_store, put_ok


def test_get_finds_a_message_by_id_and_by_place(golden_533: Path) -> None:
    for message in EXPECTED["message"][::97]:
        (by_id,) = lines("get", golden_533, message["msgId"], "--json")
        (by_place,) = lines("get", golden_533, message["physicalOffset"], "--json")
        assert by_id == by_place
        assert by_id["properties"] == message["properties"]
        text = run("get", golden_533, message["msgId"])
        assert message["msgId"] in text
        assert all(f"{name} = {value}" in text for name, value in message["properties"].items())


def test_query_finds_what_rocketmq_finds(golden_533: Path) -> None:
    for answer in EXPECTED["query"]:
        found = lines("query", golden_533, answer["key"], "--topic", answer["topic"], "--json")
        assert [row["physicalOffset"] for row in found] == answer["physicalOffsets"]
    answer = EXPECTED["query"][0]
    with StoreReader.open(golden_533) as reader:
        stored = reader.message_at(answer["physicalOffsets"][0]).store_timestamp
    asked = ("query", golden_533, answer["key"], "--topic", answer["topic"])
    assert run(*asked, "--since", stored, "--until", stored + 1)
    for times in (["--since", stored + 1], ["--until", stored], ["--until", 0]):
        done = ended(*asked, *times)
        assert (done.returncode, done.stdout) == (1, "")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with open_store(tmp_path / "shop") as store:
        for topic in ("orders", "payments", "orders", "pay", "refunds"):
            put_ok(store, topic, topic.encode(), keys=["k75"])
    return tmp_path / "shop"


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ([], ["orders", "payments", "orders", "pay", "refunds"]),
        (["-t", "orders"], ["orders", "orders"]),
        (["-t", "pay*", "--topic", "orders"], ["orders", "payments", "orders", "pay"]),
        (["-n", "2"], ["pay", "refunds"]),
        (["-t", "orders", "-t", "pay*", "-n", "2"], ["orders", "pay"]),
    ],
    ids=" ".join,
)
def test_query_searches_the_topics_that_are_named_or_all(shop: Path, options: list[str], found: list[str]) -> None:
    assert [row["body"] for row in lines("query", shop, "k75", *options, "--json")] == found


def test_a_key_that_no_topic_has_is_said(shop: Path) -> None:
    done = ended("query", shop, "k9")
    assert (done.returncode, done.stdout) == (1, "")
    assert "No message of any of 4 topics with key 'k9'" in done.stderr
    done = ended("query", shop, "k75", "-t", "ordres")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Did you mean 'orders'?" in done.stderr


def test_a_topic_before_the_key_is_answered_with_how_it_is_typed(shop: Path) -> None:
    done = ended("query", shop, "orders", "k75")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"commitlog: The key comes first, and topics are options: commitlog query {shop} k75 --topic orders\n"
    )


def test_the_store_is_not_written_to(golden_533: Path) -> None:
    """Inspecting a store must leave it as it was: no lock, no time stamp, no new file."""
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in golden_533.rglob("*")}
    for arguments in (["info"], ["cat", "orders"], ["tail", "orders"], ["query", "k75"], ["get", "0"]):
        run(arguments[0], golden_533, *arguments[1:])
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in golden_533.rglob("*")} == before
