"""Each kind of damage to each store: what is said is what is, in all commands, and what opening does.

A case keeps all rules of ``rules.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from commitlog_store import assess_store, salvage_store
from tests.damage_table.case import CaseMaker
from tests.damage_table.kinds import KINDS
from tests.damage_table.rules import broken
from tests.store.cli.commands import ended
from tests.support.local_spark import PROJECT

STORES = ("closed", "killed", "rocketmq", "rocketmq-killed", "torn")
# In `make check`, the stores that are not listed here have these kinds; `make stress` has all.
OFTEN = ("log: newest file gone", "log: body flipped", "queue: a unit zeroed")

# Of the stores that are, these kinds are left to `make stress`: others are much alike. The verdicts of each kind are
# compared with docs/troubleshooting.md.
RARELY = (
    *("log: first file short", "log: middle file short", "log: a sector zeroed", "log: QUEUEID flipped"),
    *("log: a property flipped", "log: a property in a batch flipped", "log: file allocated ahead short"),
    *("log: middle file not readable", "queue: file short", "queue: newest file short", "queue: file zeroed"),
    *("queue: directory of a queue gone", "index: a file gone", "index: file short", "checkpoint: gone"),
    *("gate: garbage", "config: consumerOffset.json garbage", "log: a foreign file"),
    *(f"log: {field} flipped" for field in ("TOTALSIZE", "BODYCRC", "QUEUEOFFSET", "PHYSICALOFFSET")),
    *("log: middle file empty", "log: directory gone", "log: length of the properties flipped", "log: a page zeroed"),
    *("queue: size of a unit flipped", "queue: newest file gone", "index: all gone", "checkpoint: empty"),
    *(f"config: {name} garbage" for name in ("topics.json", "batchLedger.json", "createdBy.json")),
    *(f"config: {name} and its .bak garbage" for name in ("consumerOffset.json", "createdBy.json", "topics.json")),
    *("log: newest file short of its zeros", "log: middle file zeroed", "log: body in a batch flipped"),
    *("log: MAGICCODE flipped", "log: a directory in the place of a file", "queue: the last unit zeroed"),
    *("queue: a foreign file", "queue: file not readable", "index: an entry flipped", "index: file not readable"),
    *("checkpoint: garbage", "checkpoint: a directory"),
)


def cases() -> Iterator[object]:
    for store in STORES:
        for kind in KINDS.values():
            if (kind.only and store not in kind.only) or (store == "torn" and not kind.only):
                continue
            often = kind.name in OFTEN or (store in ("closed", "torn") and kind.name not in RARELY)
            marks = () if often else (pytest.mark.stress,)
            yield pytest.param(store, kind.name, id=f"{store}-{kind.name}", marks=marks)


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> CaseMaker:
    return CaseMaker(tmp_path_factory.mktemp("damage-table"))


@pytest.mark.parametrize(("store", "kind"), list(cases()))
def test_what_is_said_is_what_is(maker: CaseMaker, store: str, kind: str) -> None:
    assert broken(maker.case(store, kind)) == {}


@pytest.mark.parametrize("of_queue", ["newest file gone", "file gone", "file zeroed", "file short", "all gone"])
@pytest.mark.parametrize("of_log", ["newest file zeroed", "middle file gone", "body flipped", "first file gone"])
def test_a_queue_and_the_log_that_are_damaged_together_have_one_count(
    maker: CaseMaker, of_queue: str, of_log: str
) -> None:
    path, _, case = maker.damaged("closed", f"queue: {of_queue} + log: {of_log}")
    quick, deep, salvaged = assess_store(path), assess_store(path, deep=True), salvage_store(path)
    assert (deep.found, deep.lost) == (salvaged.found, salvaged.lost) == (len(case.truth.found), len(case.truth.lost))
    assert quick.lost <= deep.lost


def test_a_rebuild_cuts_nothing_off_the_log(maker: CaseMaker) -> None:
    path, _, _ = maker.damaged("rocketmq-killed", "log: body of the newest message flipped")
    logs = {file: file.read_bytes() for file in (path / "commitlog").iterdir()}
    done = ended("repair", path, "--rebuild")
    assert done.returncode == 1
    assert "nothing was cut" in done.stderr
    assert {file: file.read_bytes() for file in (path / "commitlog").iterdir()} == logs


def test_a_damaged_unit_of_a_closed_store_is_mended_by_a_rebuild(maker: CaseMaker) -> None:
    path, _, _ = maker.damaged("closed", "queue: a unit zeroed")
    assert ended("cat", path, "audit").returncode == 1
    assert json.loads(ended("doctor", "--deep", path, "--json").stdout)["nextSteps"] == [
        f"commitlog repair {path} --rebuild"
    ]
    assert "built again" in ended("repair", path, "--rebuild").stdout
    assert ended("cat", path, "audit").returncode == 0
    assert ended("verify", path).returncode == 0


def test_a_topic_that_has_lost_its_queues_is_not_called_misspelt(maker: CaseMaker) -> None:
    path, _, _ = maker.damaged("closed", "queue: directory of a queue gone")
    done = ended("cat", path, "audit")
    assert done.returncode == 1
    assert "The store lacks messages at its end: Of 14 consume-queue files, 12 exist." in done.stderr
    assert f"Run: commitlog doctor {path}." in done.stderr


def test_the_page_says_what_doctor_says(maker: CaseMaker) -> None:
    """docs/troubleshooting.md has each kind once, in a row with its verdicts and what opening does."""
    page = (PROJECT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    section = page.partition("### Kinds of damage\n")[2].partition("\n#")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    rows = [row for row in rows[2:] if len(row) == 5]
    shown = {kind.strip(): tuple(row[1:4]) for row in rows for kind in row[0].split(";")}
    assert len(shown) == sum(len(row[0].split(";")) for row in rows)
    assert shown.keys() == KINDS.keys() - {"nothing"}
    wrong = {}
    for kind, row in shown.items():
        found = maker.outcome("torn" if KINDS[kind].only == ("torn",) else "closed", kind)
        if row != found:
            wrong[kind] = found
    assert not wrong
