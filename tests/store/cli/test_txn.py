"""``commitlog txn``: committed batches, for people and for programs, and resetting an application."""

from __future__ import annotations

import csv
import io
import os
import re
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from commitlog_store import StoreReader
from commitlog_store.cli import main
from commitlog_store.cli.app import app
from commitlog_store.files import store_lock
from tests.store.batch.batches import commit, expected, table
from tests.store.cli.commands import lines, run, script
from tests.store.owner.owned_store import open_store, put_ok
from tests.support.clean_store import assert_clean
from tests.support.stored_bodies import topic_bodies

HEADINGS = ["application", "version", "fingerprint", "rows", "committed (UTC)", "physical offset"]
QUERY = "7d1f2c36-43a1-4a51-9f8e-6f2f2d0b5a11"
FINGERPRINT = "0123456789abcdef" * 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store with an index: two batches of an application, one of a streaming query."""
    with open_store(tmp_path / "store") as store:
        put_ok(store, topic="others", keys=["k"])
        assert commit(store, 8, app="night loader")
        assert commit(store, 9, app="night loader", count=12)
        assert commit(store, 0, app=QUERY, fingerprint=FINGERPRINT)
    return tmp_path / "store"


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs the command as the script does, in this process: the one sentence on stderr that it ends with."""

    def run_refused(*arguments: object, code: int = 1) -> str:
        monkeypatch.setattr(sys, "argv", ["commitlog", "txn", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (code, "")
        assert err.startswith("commitlog: ")
        assert err.endswith("\n")
        assert err.count("\n") == 1
        return err

    return run_refused


def cells(*arguments: object) -> list[list[str]]:
    """The table that is printed. Columns are two spaces apart."""
    return [re.split(" {2,}", line.rstrip()) for line in run("txn", "ls", *arguments).splitlines()]


def applications(path: Path) -> list[str]:
    return [str(batch["application"]) for batch in lines("txn", "ls", path, "--json")]


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_the_table_has_the_last_batch_of_each_application(path: Path) -> None:
    with StoreReader.open(path) as reader:
        known = reader.batches()
    assert [(one.batch.app_id, one.batch.version, one.rows) for one in known] == [
        (QUERY, 0, 30),
        ("night loader", 9, 12),
    ]
    headings, *rows = cells(path)
    assert headings == HEADINGS
    for row, one in zip(rows, known, strict=True):
        committed = datetime.fromtimestamp(one.store_timestamp / 1000, tz=timezone.utc)
        assert row == [
            one.batch.app_id,
            str(one.batch.version),
            one.batch.fingerprint or "-",
            str(one.rows),
            committed.strftime("%Y-%m-%d %H:%M:%S.") + f"{one.store_timestamp % 1000:03}",
            str(one.physical_offset),
        ]


def test_json_has_an_object_a_line(path: Path) -> None:
    with StoreReader.open(path) as reader:
        known = reader.batches()
    assert lines("txn", "ls", path, "--json") == [
        {
            "application": one.batch.app_id,
            "version": one.batch.version,
            "fingerprint": one.batch.fingerprint,
            "rows": one.rows,
            "storeTimestamp": one.store_timestamp,
            "physicalOffset": one.physical_offset,
            "end": one.end,
        }
        for one in known
    ]


def test_csv_has_a_row_for_each_application(path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run("txn", "ls", path, "-o", "csv"))))
    objects = lines("txn", "ls", path, "-o", "json")
    assert rows == [{name: str(value) for name, value in one.items()} for one in objects]


def test_without_committed_batches_nothing_is_listed(tmp_path: Path, golden_533: Path) -> None:
    open_store(tmp_path / "empty").close()
    for path in (tmp_path / "empty", golden_533):
        assert cells(path) == [HEADINGS]
        assert run("txn", "ls", path, "--json") == "", "programs get no line, not an empty list"


def test_listing_beside_an_owner_shows_what_readers_see(tmp_path: Path) -> None:
    """Read in the owner's own process, where a reader that touched the lock's file would drop the lock."""
    with open_store(tmp_path) as store:
        assert commit(store, 1)
        store.dispatch()
        with store.transaction("slow", 1) as batch:
            batch.put_messages(table("slow"), topic="orders")
            assert applications(tmp_path) == ["loader"], "a batch is listed when it is committed, and not before"
        store.dispatch()
        assert applications(tmp_path) == ["loader", "slow"]
        assert script("txn", "ls", tmp_path, "--json").stdout == run("txn", "ls", tmp_path, "--json")
        done = script("txn", "reset", tmp_path, "slow", "--yes")
        assert (done.returncode, done.stdout) == (1, "")
        assert f"process {os.getpid()} (" in done.stderr, "the owner has its lock still"


def test_listing_changes_nothing(path: Path) -> None:
    before = contents(path)
    run("txn", "ls", path)
    run("txn", "ls", path, "--json")
    assert contents(path) == before


def test_names_cannot_drive_the_terminal_nor_the_tables_style(tmp_path: Path) -> None:
    name = "\x1b[2J[red]größer\n:warning:"
    with open_store(tmp_path) as store:
        commit(store, 1, app=name, fingerprint="\x1b[31m")
    (_, row) = cells(tmp_path)
    assert row[:3] == ["\\x1b[2J[red]größer\\n:warning:", "1", "\\x1b[31m"]
    assert applications(tmp_path) == [name], "programs get it as it is"
    said = run("txn", "reset", tmp_path, name, "--yes")
    assert said == "Forgot '\\x1b[2J[red]größer\\n:warning:', whose last batch was 1.\n"


def test_a_query_that_was_reset_writes_from_any_number_on(path: Path) -> None:
    assert run("txn", "reset", path, "night loader", "--yes") == "Forgot 'night loader', whose last batch was 9.\n"
    assert applications(path) == [QUERY], "the others are remembered"
    assert_clean(path)
    with open_store(path) as store:
        assert store.recovered is None, "the command closed the store"
        assert commit(store, 3, app="night loader")
        assert not commit(store, 0, app=QUERY, fingerprint=FINGERPRINT)
    of_thirty = expected("night loader8", f"{QUERY}0{FINGERPRINT}", "night loader3")
    assert sorted(topic_bodies(path)) == sorted(of_thirty + expected("night loader9", count=12)), "messages stay"
    assert [(one["application"], one["version"]) for one in lines("txn", "ls", path, "--json")] == [
        (QUERY, 0),
        ("night loader", 3),
    ]


def test_the_id_of_a_streaming_query_is_reset_as_any_application(path: Path) -> None:
    assert run("txn", "reset", path, QUERY, "--yes") == f"Forgot '{QUERY}', whose last batch was 0.\n"
    assert applications(path) == ["night loader"]
    run("txn", "reset", path, "night loader", "--yes")
    assert cells(path) == [HEADINGS]


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("day loader", " Did you mean 'night loader'?"),
        ("NIGHT LOADER", " Did you mean 'night loader'?"),
        (QUERY[:-1], f" Did you mean '{QUERY}'?"),
        ("orders", ""),
        ("", ""),
    ],
)
def test_an_unknown_query_ends_with_code_1_the_nearest_one_and_the_list_of_known_ones(
    path: Path, refused: Callable[..., str], query: str, hint: str
) -> None:
    before = applications(path)
    assert refused("reset", path, query) == (
        f"commitlog: The store at {path} has no batches of application {query!r}.{hint} "
        f"It has those of: '{QUERY}', 'night loader'.\n"
    )
    assert applications(path) == before


def test_a_store_without_applications_says_so(tmp_path: Path, refused: Callable[..., str]) -> None:
    open_store(tmp_path).close()
    known = f"The store at {tmp_path} has no batches of any application."
    assert refused("reset", tmp_path, QUERY) == f"commitlog: {known}\n"


def test_a_relative_path_and_many_applications_read_as_a_sentence(
    tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store(tmp_path / "store") as store:
        for number in range(22):
            commit(store, 0, app=f"{chr(ord('a') + number) * 3}")
    said = refused("reset", "store", "xyz")
    assert said.startswith(
        "commitlog: The store at store has no batches of application 'xyz'. It has those of: 'aaa', "
    )
    assert said.endswith(", 'ttt' and 2 more.\n")


@pytest.mark.parametrize("options", [(), ("--lock-timeout", "0.1")], ids=["at once", "after a while"])
def test_a_store_with_an_owner_is_not_reset_and_the_owner_is_named(
    path: Path, refused: Callable[..., str], options: tuple[str, ...]
) -> None:
    with open_store(path) as store:
        said = refused("reset", path, QUERY, "--yes", *options)
        assert f"this process ({os.getpid()}) has it open already" in said
        assert str(path) in said
        assert not commit(store, 0, app=QUERY, fingerprint=FINGERPRINT), "nothing was forgotten"
    assert applications(path) == [QUERY, "night loader"]


def test_a_reset_waits_for_the_owner(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(path)
    # The owner goes as soon as the command waits for it.
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: store.close())
    monkeypatch.setattr(store_lock, "time", clock)
    assert run("txn", "reset", path, QUERY, "--lock-timeout", "30", "--yes").startswith(f"Forgot '{QUERY}'")
    assert applications(path) == ["night loader"]


def test_a_store_without_an_index_is_reset_without_making_one(tmp_path: Path) -> None:
    with open_store(tmp_path, message_index_enable=False) as store:
        commit(store, 1)
    run("txn", "reset", tmp_path, "loader", "--yes")
    assert not list((tmp_path / "index").iterdir())
    assert {file.stat().st_size for file in (tmp_path / "commitlog").iterdir()} == {16 << 10}, "the files' own size"
    assert_clean(tmp_path)


def test_a_store_whose_messages_have_no_keys_opens_without_a_scan_after_a_reset(tmp_path: Path) -> None:
    """It has no index files either, but was not written without an index: nothing is to be made up for."""
    with open_store(tmp_path) as store:
        commit(store, 1)
    run("txn", "reset", tmp_path, "loader", "--yes")
    with open_store(tmp_path) as store:
        assert store.recovered is None, "the log was read from its beginning, for an index of no keys"


@pytest.mark.parametrize("command", [("ls",), ("reset", QUERY)], ids=lambda command: command[0])
def test_a_path_that_is_not_a_store_ends_with_code_2_and_nothing_is_created(
    tmp_path: Path, refused: Callable[..., str], command: tuple[str, ...]
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").write_text("no store")
    before = contents(tmp_path)
    places = {
        tmp_path / "nowhere": "the directory does not exist",
        tmp_path / "other": "is not a store",
        tmp_path / "other" / "notes": "is a file",
    }
    for place, words in places.items():
        said = refused(command[0], place, *command[1:], code=2)
        assert str(place) in said
        assert words in said
    assert contents(tmp_path) == before
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("command", [("ls",), ("reset", QUERY)], ids=lambda command: command[0])
def test_a_damaged_ledger_is_named(path: Path, refused: Callable[..., str], command: tuple[str, ...]) -> None:
    ledger = path / "config" / "batchLedger.json"
    ledger.write_bytes(ledger.read_bytes()[:20])
    assert str(ledger) in refused(command[0], path, *command[1:])


@pytest.mark.parametrize(
    "arguments",
    [[], ["nope"], ["ls"], ["ls", ".", "extra"], ["reset", "."], ["reset", ".", QUERY, "--lock-timeout", "-1"]],
    ids=" ".join,
)
def test_wrong_usage_has_code_2_and_is_explained_on_stderr(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["txn", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: " in result.stderr
    assert "txn" in result.stderr
