"""The golden files are all there and are what their README says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import golden


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        (golden.ROCKETMQ_533, {"store": 1, "queue": 20, "message": 1178, "offsetByTime": 300, "query": 18}),
        (golden.ROCKETMQ_498, {"store": 1, "queue": 17, "message": 604, "offsetByTime": 255, "query": 9}),
    ],
)
def test_every_answer_is_there(name: str, counts: dict[str, int]) -> None:
    assert {kind: len(answers) for kind, answers in golden.expected(name).items()} == counts


@pytest.mark.parametrize("name", [golden.ROCKETMQ_533, golden.ROCKETMQ_498])
def test_answers_agree_with_each_other(name: str) -> None:
    """A queue's bounds hold as many messages as are listed for it, and every number is an int."""
    answers = golden.expected(name)
    for queue in answers["queue"]:
        listed = [
            message["queueOffset"]
            for message in answers["message"]
            if (message["topic"], message["queueId"]) == (queue["topic"], queue["queueId"])
        ]
        assert listed == list(range(queue["min"], queue["max"]))
    numbers = ("queueOffset", "physicalOffset", "storeSize", "tagsCode", "bodyCrc", "sysFlag", "storeTimestamp")
    assert all(type(message[number]) is int for message in answers["message"] for number in numbers)


def test_copies_hold_even_the_empty_files(golden_533: Path, golden_498: Path, golden_broker_config: Path) -> None:
    assert (golden_533 / "abort.bak").stat().st_size == 0
    assert (golden_498 / "abort").stat().st_size == 0
    assert not (golden_533 / "abort").exists()
    assert (golden_broker_config / "topics.json").is_file()
    assert {path.stat().st_size for path in (golden_533 / "commitlog").iterdir()} == {256 * 1024}


def test_fixtures_give_the_answers_by_kind(
    expected_533: dict[str, list[dict[str, Any]]], expected_498: dict[str, list[dict[str, Any]]]
) -> None:
    assert expected_533["store"][0]["maxPhysicOffset"] == 965_939
    assert expected_498["store"][0]["maxPhysicOffset"] == 538_727
