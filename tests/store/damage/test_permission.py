"""Missing permissions of a reader are reported with the path."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator

import pytest

from tests.support import quick_programs
from tests.support.store_builder import StoreBuilder

# Who owns the store when root runs the tests.
OTHER_USER = 65534

# Drop the capabilities that let root read despite the modes of files: the numbers are those of capset(2).
WITHOUT_CAPABILITIES = """
import ctypes
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
assert ctypes.CDLL(None, use_errno=True).capset(header, (ctypes.c_uint32 * 6)()) == 0, ctypes.get_errno()
"""


def run_with_file_modes(program: str) -> str:
    """What a program prints for which the modes of files hold, as they do not for root.

    It stays the same user: interpreter and clone may lie where only that user can look.
    """
    text = WITHOUT_CAPABILITIES if os.geteuid() == 0 else ""
    text += "from commitlog_store import StoreReader\nfrom commitlog_store.errors import *\n" + textwrap.dedent(program)
    done = quick_programs.run(
        [sys.executable, "-c", text], cwd="/", capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def open_builder(builder: StoreBuilder) -> Iterator[StoreBuilder]:
    """A store that everybody may read; root's belongs to another user."""

    def open_all() -> None:
        for path in [builder.path, *builder.path.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)

    open_all()
    if os.geteuid() == 0:
        for path in [builder.path, *builder.path.rglob("*")]:
            os.chown(path, OTHER_USER, OTHER_USER)
    yield builder
    open_all()


def test_every_user_reads_a_store_that_is_readable_for_all(open_builder: StoreBuilder) -> None:
    """A store of another user is opened read-only, without a lock: that is enough."""
    said = run_with_file_modes(
        f"print(sum(b.num_rows for b in StoreReader.open({str(open_builder.path)!r}).read('a', 0, 0)))"
    )
    assert said == "10"


@pytest.mark.parametrize(
    "closed",
    [
        ".", "commitlog", "consumequeue", "consumequeue/a", "consumequeue/a/0", f"consumequeue/a/0/{0:020d}",
        f"commitlog/{0:020d}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", [0o000, 0o200])
def test_no_permission_is_reported_with_the_path(open_builder: StoreBuilder, closed: str, mode: int) -> None:
    """A mode that lets names be listed but not their files be opened refuses directories in another place."""
    path = open_builder.path / closed
    path.chmod(mode | (0o444 if mode and path.is_dir() else 0))
    said = run_with_file_modes(
        f"""
        try:
            reader = StoreReader.open({str(open_builder.path)!r})
            print(sum(batch.num_rows for batch in reader.read("a", 0, 0)))
        except StoreAccessDenied as error:
            print(error.path)
            assert error.path in str(error) and "permission" in str(error).lower()
        """
    )
    assert said.startswith(str(path.resolve() if closed == "." else path)), said


def test_no_permission_for_one_topic_leaves_the_others(open_builder: StoreBuilder) -> None:
    (open_builder.path / "consumequeue" / "a").chmod(0)
    said = run_with_file_modes(
        f"""
        reader = StoreReader.open({str(open_builder.path)!r})
        print(reader.topics(), reader.queue_info("b", 0).max_offset)
        """
    )
    assert said == "['a', 'b', 'packed'] 5"
