"""The commands and the program of docs/mirror.md run as they stand, with a scripted master and broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.cli.commands import shell
from tests.store.cli.test_follow import SIZE, follow_to, sends, write_log
from tests.store.follower.test_remoting_config import ANSWERS
from tests.store.owner.owned_store import small
from tests.support.scripted_broker import ScriptedBroker
from tests.support.scripted_master import ScriptedMaster
from tests.support.source_tree import PROJECT

PAGE = (PROJECT / "docs" / "mirror.md").read_text(encoding="utf-8")


@pytest.fixture
def addresses(tmp_path: Path) -> Iterator[tuple[dict[str, str], int]]:
    """What stands in the page, and what is there; and the end of the master's log."""
    log = write_log(tmp_path / "master", [b"%d" % number for number in range(100)])
    answers = {**ANSWERS, 28: b'{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"1"}}'}
    with ScriptedMaster(sends(log)) as master, ScriptedBroker(answers) as broker:
        yield (
            {"10.0.0.7:10912": master.address, "10.0.0.7:10911": broker.address, "/data": str(tmp_path)},
            len(log),
        )


def replaced(text: str, addresses: dict[str, str]) -> str:
    for name, real in addresses.items():
        text = text.replace(name, real)
    return text


def test_the_commands_of_the_page_succeed(addresses: tuple[dict[str, str], int]) -> None:
    names, end = addresses
    (block,) = re.findall(r"^```bash\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    for line in block.splitlines():
        command = replaced(line, names)
        if command.startswith("commitlog follow "):
            follow_to(end, *command.split()[2:], *SIZE)
            continue
        done = shell(command)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        if "groups lag" in line:
            assert "billing" in done.stdout


def test_the_program_of_the_page_runs(
    addresses: tuple[dict[str, str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    follower = program.replace('/data/mirror"', '/data/mirror", config=CONFIG')
    exec(replaced(follower, addresses[0]), {"CONFIG": small()})
    assert "orders" in capsys.readouterr().out


def test_the_page_names_only_errors_that_exist() -> None:
    import commitlog_store.errors

    for name in re.findall(r"^\| `([A-Z]\w+)` \|", PAGE, flags=re.MULTILINE):
        assert name in commitlog_store.errors.__all__
