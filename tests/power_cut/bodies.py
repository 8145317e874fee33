"""The bodies of the messages of ``writer``, by which each is known again."""

from __future__ import annotations


def body_of(kind: str, number: int, size: int) -> bytes:
    return f"{kind}:{number}:".encode() + b"%d" % (number % 10) * size


def number_of(body: bytes) -> int:
    return int(body.split(b":")[1])


def rows_of(version: int, rows: int) -> list[bytes]:
    """The bodies of one batch: each says its version, which row it is, and how many there are."""
    return [f"batch:{version}:{row}:{rows}:".encode() + b"r" * (row * 7 % 200) for row in range(rows)]


def version_and_rows(body: bytes) -> tuple[int, int, int]:
    """Version, row and number of rows."""
    _, version, row, rows, _ = body.split(b":", 4)
    return int(version), int(row), int(rows)
