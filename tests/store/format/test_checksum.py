"""CRC-32: all implementations compute the same number."""

from __future__ import annotations

import random
import subprocess
import sys
import zlib

import crcmod.predefined
import pytest

from commitlog_store.format.checksum import crc32, crc32_combine

_BY_DEFINITION = crcmod.predefined.mkCrcFun("crc-32")


@pytest.mark.parametrize("size", [0, 1, 7, 15, 16, 17, 63, 64, 65, 100, 1024, 4095, 4097, (1 << 20) + 3])
def test_all_implementations_agree(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert crc32(data) == zlib.crc32(data) == _BY_DEFINITION(data)
    assert crc32(memoryview(data)[1:]) == zlib.crc32(data[1:])


@pytest.mark.parametrize("cut", [0, 1, 5, 64, 1000, 4096])
def test_a_checksum_can_be_continued(cut: int) -> None:
    data = random.Random(cut).randbytes(5000)
    assert crc32(data[cut:], crc32(data[:cut])) == zlib.crc32(data)


@pytest.mark.parametrize("sizes", [(0, 0), (0, 5), (5, 0), (1, 1), (64, 4097), (1000, (1 << 20) + 3)])
def test_two_checksums_make_that_of_both_pieces_together(sizes: tuple[int, int]) -> None:
    first, second = (random.Random(size).randbytes(size) for size in sizes)
    assert crc32_combine(crc32(first), crc32(second), len(second)) == zlib.crc32(first + second)


def test_the_checksum_of_the_standard_text_is_the_catalogues() -> None:
    assert crc32(b"123456789") == 0xCBF43926


def test_without_wheels_the_interpreters_own_is_used() -> None:
    program = "import sys; sys.modules['zlib_ng'] = None; import zlib; from commitlog_store.format import checksum; "
    program += "assert checksum.crc32 is zlib.crc32; "
    program += "assert checksum.crc32_combine(zlib.crc32(b'one'), zlib.crc32(b'more'), 4) == zlib.crc32(b'onemore')"
    subprocess.run([sys.executable, "-c", program], check=True)
