"""``commitlog get`` and ``commitlog query``; and that no command writes to the store."""

from __future__ import annotations

from pathlib import Path

from commitlog import StoreReader
from tests.store.cli.commands import EXPECTED, ended, lines, run

__all__: list[str] = []


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
        found = lines("query", golden_533, answer["topic"], answer["key"], "--json")
        assert [row["physicalOffset"] for row in found] == answer["physicalOffsets"]
    answer = EXPECTED["query"][0]
    with StoreReader.open(golden_533) as reader:
        stored = reader.message_at(answer["physicalOffsets"][0]).store_timestamp
    assert run("query", golden_533, answer["topic"], answer["key"], "--since", stored, "--until", stored)
    done = ended("query", golden_533, answer["topic"], answer["key"], "--since", stored + 1)
    assert (done.returncode, done.stdout) == (1, "")


def test_the_store_is_not_written_to(golden_533: Path) -> None:
    """Inspecting a store must leave it as it was: no lock, no time stamp, no new file."""
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in golden_533.rglob("*")}
    for arguments in (["info"], ["cat", "orders"], ["tail", "orders"], ["query", "orders", "k75"], ["get", "0"]):
        run(arguments[0], golden_533, *arguments[1:])
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in golden_533.rglob("*")} == before
