"""The program of docs/replication.md runs as it stands, and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from commitlog_store import MessageStoreConfig
from tests.support.source_tree import PROJECT

PAGE = (PROJECT / "docs" / "replication.md").read_text(encoding="utf-8")


def test_the_program_prints_what_the_page_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    exec(program.replace("/data/store", str(tmp_path / "store")), {})
    address, status = capsys.readouterr().out.splitlines()
    assert address.startswith("slaves may connect to 127.0.0.1:")
    assert status.startswith("SLAVE_NOT_AVAILABLE - The message is in the log of this store alone")


def test_the_defaults_in_the_table_are_those_of_the_settings() -> None:
    shown = dict(re.findall(r"^\| `(\w+)` \| ([\d,]+ ?(?:KiB|MiB|ms)?) \|", PAGE, re.MULTILINE))
    units = {"KiB": 1 << 10, "MiB": 1 << 20, "ms": 1, "": 1}
    assert len(shown) == 6
    for name, text in shown.items():
        number, _, unit = text.partition(" ")
        assert getattr(MessageStoreConfig(), name) == int(number.replace(",", "")) * units[unit], name
