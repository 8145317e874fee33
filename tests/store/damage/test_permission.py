"""What a reader has no permission for is said so, with the path."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.store_builder import StoreBuilder

__all__: list[str] = []


def _as_nobody(program: str) -> str:
    """Run a program as a user who may read only what all may."""
    text = "import os\n"
    if os.geteuid() == 0:
        # The interpreter itself may lie where only root can look: everything is imported first.
        text = "import os, commitlog.reader, commitlog.cli.app\nimport encodings.idna, pyarrow.compute\n"
        text += "os.setgroups([])\nos.setgid(65534)\nos.setuid(65534)\n"
    text += "from commitlog import StoreReader\nfrom commitlog.errors import *\n" + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-c", text], cwd="/", capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def open_builder(builder: StoreBuilder) -> Iterator[StoreBuilder]:
    """A store that everybody may read: pytest's directories are private."""
    opened = []
    for directory in [builder.path, *builder.path.parents]:
        if directory == Path("/tmp") or directory == Path("/"):
            break
        opened.append((directory, directory.stat().st_mode))
        directory.chmod(0o755)
    for path in builder.path.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    yield builder
    for path in [builder.path, *builder.path.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    for directory, mode in opened:
        directory.chmod(mode & 0o7777)


def test_everybody_reads_what_everybody_may(open_builder: StoreBuilder) -> None:
    """A store of another user is opened read-only, without a lock: that is enough."""
    said = _as_nobody(f"print(sum(b.num_rows for b in StoreReader.open({str(open_builder.path)!r}).read('a', 0, 0)))")
    assert said == "10"


@pytest.mark.parametrize(
    "closed",
    [
        ".", "commitlog", "consumequeue", "consumequeue/a", "consumequeue/a/0", f"consumequeue/a/0/{0:020d}",
        f"commitlog/{0:020d}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", [0o000, 0o200])
def test_no_permission_is_said_so_with_the_path(open_builder: StoreBuilder, closed: str, mode: int) -> None:
    """A mode that lets names be listed and nothing behind them be reached refuses directories in another place."""
    path = open_builder.path / closed
    path.chmod(mode | (0o444 if mode and path.is_dir() else 0))
    said = _as_nobody(
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
    said = _as_nobody(
        f"""
        reader = StoreReader.open({str(open_builder.path)!r})
        print(reader.topics(), reader.queue_info("b", 0).max_offset)
        """
    )
    assert said == "['a', 'b', 'packed'] 5"
