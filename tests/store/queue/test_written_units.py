"""Where the units of a queue's file end: in sparse files, in files without holes, and at each edge."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog.files import disk
from commitlog.format.consume_queue_unit import UNIT_SIZE
from commitlog.queue.written_units import written_units

__all__: list[str] = []

CAPACITY = 20_000
# The least unit: its first eight bytes and its last ones are zero.
UNIT = (0).to_bytes(8, "big") + (91 << 8).to_bytes(4, "big") + bytes(8)


@pytest.mark.parametrize("count", [0, 1, 2, 204, 205, 206, 207, 410, 411, 9_999, 19_793, 19_794, 19_999, CAPACITY])
@pytest.mark.parametrize("sparse", [True, False])
def test_the_units_of_a_file_are_counted(count: int, sparse: bool, tmp_path: Path) -> None:
    file = tmp_path / "0"
    with file.open("wb") as stream:
        stream.write(UNIT * count)
        if sparse:
            stream.truncate(CAPACITY * UNIT_SIZE)
        else:
            stream.write(bytes((CAPACITY - count) * UNIT_SIZE))
    assert written_units(str(file)) == count


@pytest.mark.parametrize("sparse", [True, False])
def test_a_file_is_not_read_as_a_whole(sparse: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "0"
    with file.open("wb") as stream:
        stream.write(UNIT * 12_345)
        if sparse:
            stream.truncate(CAPACITY * UNIT_SIZE)
        else:
            stream.write(bytes((CAPACITY - 12_345) * UNIT_SIZE))
    reads: list[int] = []
    real = disk.read_at

    def read(descriptor: int, length: int, offset: int) -> bytes:
        reads.append(offset)
        return real(descriptor, length, offset)

    monkeypatch.setattr(disk, "read_at", read)
    assert written_units(str(file)) == 12_345
    assert len(reads) <= 12
