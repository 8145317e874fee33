"""Messages whose bodies say their number, and how the tests here read them back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from commitlog_store import StoreReader
from tests.support.store_builder import StoreBuilder

SMALL_LOG = 4096  # bytes a CommitLog file
UNITS = 10  # units a queue file


def body(number: int) -> bytes:
    return f"message {number} ".encode() + b"." * (number * 37 % 300)


def made_bodies(count: int, start: int = 0) -> list[bytes]:
    return [body(number) for number in range(start, start + count)]


def read(reader: StoreReader, start: int = 0, stop: int | None = None, **options: Any) -> list[tuple[int, bytes]]:
    """Queue offsets and bodies, of queue 0 of topic ``t`` by default."""
    wanted: dict[str, Any] = {
        "topic": "t",
        "queue_id": 0,
        "verify_crc": True,
        "columns": ["queueOffset", "body"],
        **options,
    }
    batches = reader.read(start=start, stop=stop, **wanted)
    return [(row["queueOffset"], row["body"]) for batch in batches for row in batch.to_pylist()]


def numbered(start: int, stop: int) -> list[tuple[int, bytes]]:
    return [(number, body(number)) for number in range(start, stop)]


def bounds(reader: StoreReader, topic: str = "t", queue_id: int = 0) -> tuple[int, int]:
    info = reader.queue_info(topic, queue_id)
    return info.min_offset, info.max_offset


def log_files(builder: StoreBuilder) -> list[Path]:
    return sorted((builder.path / "commitlog").iterdir())


def queue_files(builder: StoreBuilder, topic: str = "t", queue_id: int = 0) -> list[Path]:
    return sorted((builder.path / "consumequeue" / topic / str(queue_id)).iterdir())
