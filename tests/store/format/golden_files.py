"""Files of the golden stores for the codec tests. Codecs alter no file, so the files are read where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import golden

GOLDEN = Path(__file__).parents[2] / "golden"

STORES = (golden.ROCKETMQ_533, golden.ROCKETMQ_498)


def messages(name: str) -> list[dict[str, Any]]:
    """Every message that RocketMQ read back from the golden store."""
    return golden.expected(name)["message"]


def delayed(message: dict[str, Any]) -> bool:
    """Whether the unit's tags code is a delivery time."""
    return bool(message["topic"] == "SCHEDULE_TOPIC_XXXX")


def store_file(name: str, *parts: str) -> bytes:
    """The bytes of a file of the golden store."""
    return GOLDEN.joinpath(name, "store", *parts).read_bytes()


def queue_files() -> list[Any]:
    """Every consume-queue file of the golden stores, as parameters that are named after it."""
    found = [path for name in STORES for path in sorted((GOLDEN / name / "store" / "consumequeue").glob("*/*/*"))]
    assert found
    return [pytest.param(path, id=str(path.relative_to(GOLDEN))[:60]) for path in found]
