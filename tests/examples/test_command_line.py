"""The commands of docs/command-line.md run as they stand, on a golden store in place of the path they name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from commitlog_store.cli.exit_codes import EXIT_CODES
from commitlog_store.cli.message_format import LETTERS
from tests.store.cli.commands import shell
from tests.support.local_spark import PROJECT

PAGE = (PROJECT / "docs" / "command-line.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: " ".join(block.split()[:2]))
def test_the_commands_of_the_page_succeed(golden_533: Path, tmp_path: Path, block: str) -> None:
    for line in block.splitlines():
        command = line.replace("/data/store", str(golden_533)).replace("/tmp/shop", str(tmp_path / "shop"))
        command = command.replace("/lake/", f"{tmp_path}/lake/")
        # The index files of a new store would have their full size.
        for made in (" --create", "/salvaged"):
            command = command.replace(made, f"{made} --max-hash-slot-num 100 --max-index-num 400")
        done = shell(command)
        assert done.returncode == 0, (line, done.stderr)


def test_the_page_has_every_exit_code_and_letter() -> None:
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in PAGE
    for letter in LETTERS:
        assert f"`%{letter}`" in PAGE
