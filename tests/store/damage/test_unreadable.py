"""A disk that fails reads: a named error with the file, for whatever the read was."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import StoreReader, export_store
from commitlog_store.errors import ReadFailed
from commitlog_store.files import disk
from tests.support.store_builder import StoreBuilder

_READS: dict[str, tuple[str, Callable[[StoreReader], object]]] = {
    "one message": ("commitlog", lambda reader: reader.message_at(0)),
    "a batch": ("commitlog", lambda reader: list(reader.read("a", 0, 0))),
    "a key": ("commitlog", lambda reader: reader.query("a", "k0")),
    "an index": ("index", lambda reader: reader.query("a", "k0")),
    "the bounds of a queue": ("consumequeue", lambda reader: reader.queues("a")),
    "units": ("consumequeue", lambda reader: list(reader.units("a", 0, 0, 3))),
    "an export": ("commitlog", lambda reader: export_store(reader.path, f"csv:{reader.path}-export.csv")),
}


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Make every read of a file below a directory fail, as a bad sector does."""

    def fail_below(directory: Path) -> None:
        def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
            def read(descriptor: int, *arguments: Any) -> Any:
                if Path(f"/proc/self/fd/{descriptor}").resolve().is_relative_to(directory):
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return call(descriptor, *arguments)

            return read

        for name in ("read_at", "read_into"):
            monkeypatch.setattr(disk, name, guarded(getattr(disk, name)))

    return fail_below


@pytest.mark.parametrize("name", _READS)
@pytest.mark.parametrize("on_damage", ["raise", "skip"])
def test_a_read_that_the_disk_fails_is_an_error_that_names_the_file(
    builder: StoreBuilder, failing: Callable[[Path], None], name: str, on_damage: Any
) -> None:
    """It is no damage, which may be skipped: the next attempt may succeed. And it is not the target's fault."""
    directory, read = _READS[name]
    below = builder.path / directory
    with StoreReader.open(builder.path, on_damage=on_damage) as reader:
        failing(below)
        with pytest.raises(ReadFailed, match=r"Cannot read .*: Input/output error") as raised:
            read(reader)
    assert raised.value.errno == errno.EIO
    assert Path(raised.value.path).is_relative_to(below)
