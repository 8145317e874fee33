"""Arguments of a wrong type, of calls that write, copy or delete: an error that names them, and nothing is done."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commitlog_store import Message, MessageStore, StoreReader, archive_store, commit_group_offsets, export_store
from commitlog_store.errors import InvalidValue, NotAStore, TopicNotFound
from tests.store.owner.owned_store import open_store, put_ok
from tests.store.serve.servers import served


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store") as store:
        put_ok(store, body=b"one")
    return tmp_path / "store"


_PARQUET = "parquet:/nowhere/of/this/test"
CALLS: dict[str, tuple[Callable[[Any], object], str]] = {
    "an export without a target": (lambda path: export_store(path, None), "target is FORMAT:PLACE"),  # type: ignore[arg-type]
    "an export to a path": (lambda path: export_store(path, path), "target is FORMAT:PLACE"),
    "an export of None columns": (
        lambda path: export_store(path, _PARQUET, columns=None),  # type: ignore[arg-type]
        "columns is a list of names, not None",
    ),
    "an export of a text of columns": (
        lambda path: export_store(path, _PARQUET, columns="body"),
        "columns is a list of names, not the text 'body'",
    ),
    "an export into files of None": (
        lambda path: export_store(path, _PARQUET, file_size=None),  # type: ignore[arg-type]
        "file_size is an int, not None",
    ),
    "an archive without an address": (lambda path: archive_store(path, None), "is a text, not of the type NoneType"),  # type: ignore[arg-type]
    "an archive at a path": (lambda path: archive_store(path, path), "is a text, not of the type "),
    "a position that is a text": (
        lambda path: commit_group_offsets(path, "g", {("orders", 0): "3"}),  # type: ignore[dict-item]
        "offset is an int, not '3'",
    ),
    "positions and a wait of None": (
        lambda path: commit_group_offsets(path, "g", {("orders", 0): 0}, lock_timeout_s=None),  # type: ignore[arg-type]
        "lock_timeout_s is a number of seconds, not None",
    ),
    "positions and a wait that is no number": (
        lambda path: commit_group_offsets(path, "g", {("orders", 0): 0}, lock_timeout_s=float("nan")),
        "lock_timeout_s is a number of seconds, not nan",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_argument_of_the_wrong_type_is_refused_by_its_name(path: Path, name: str) -> None:
    call, words = CALLS[name]
    with pytest.raises(InvalidValue, match=words):
        call(path)


@pytest.mark.parametrize("kind", ["directory", "archive", "both", "address"])
def test_topics_and_ranges_may_come_from_an_iterator(path: Path, tmp_path: Path, kind: str) -> None:
    archive_store(path, f"file://{tmp_path}/past", with_last=True)
    past = f"archive+file://{tmp_path}/past"
    with served(path) as url:
        places: dict[str, str | Path] = {"directory": path, "archive": past, "both": path, "address": url}
        with StoreReader.open(places[kind], archive=past if kind == "both" else None) as reader:
            many = [*["orders"] * 100, "nowhere"]
            expected = reader.queue_ids_of(many)
            found = reader.queue_ids_of(iter(many))  # type: ignore[arg-type]
            assert found[:-1] == expected[:-1] == [[0]] * 100
            assert isinstance(found[-1], TopicNotFound)
            units = [part.tobytes() for _, part in reader.units_of(iter([("orders", 0, 0, 1)]))]  # type: ignore[arg-type]
            assert units == [part.tobytes() for _, part in reader.units_of([("orders", 0, 0, 1)])] != []
            for wrong in (5, None, "orders"):
                with pytest.raises(InvalidValue, match="A list of topic is expected, not"):
                    reader.queue_ids_of(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("keep_for", [None, 5, "billing", b"billing", [None], [5]])
def test_what_cannot_hold_files_is_refused(path: Path, keep_for: Any) -> None:
    with open_store(path) as store, pytest.raises(InvalidValue, match="keep_for"):
        store.clean(older_than_hours=1, keep_for=keep_for, dry_run=True)


def test_a_checkpoint_may_be_named_by_bytes_as_paths_may(path: Path, tmp_path: Path) -> None:
    with open_store(path) as store, pytest.raises(InvalidValue, match="no-checkpoint"):
        store.clean(older_than_hours=1, keep_for=[bytes(tmp_path / "no-checkpoint")], dry_run=True)  # type: ignore[list-item]


@pytest.mark.parametrize(
    "row", [{"keys": "\ud800"}, {"keys": ["\ud800"]}, {"delayLevel": "\ud800"}, {"tags": "\ud800"}], ids=ascii
)
def test_half_a_character_in_a_row_is_refused(path: Path, row: dict[str, Any]) -> None:
    """As JSON may hold: ``json.loads('"\\\\ud800"')``."""
    with open_store(path) as store, pytest.raises(InvalidValue, match=f"{next(iter(row))!r} of row 0"):
        store.put_messages([{"body": b"x", **row}], topic="orders")


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_store_cannot_be_pickled_or_copied(path: Path, duplicate: Callable[[MessageStore], object]) -> None:
    """A copy that is dropped would close the store."""
    with open_store(path) as store:
        with pytest.raises(InvalidValue, match=f"this process owns {path}"):
            duplicate(store)
        put_ok(store, body=b"two")


def test_a_file_in_the_place_of_the_logs_directory_is_reported(path: Path) -> None:
    with open_store(path) as store:
        log = path / "commitlog"
        moved = log.rename(path / "moved")
        log.touch()
        with pytest.raises(NotAStore, match=f"{log} should be the directory of the log, but is a file"):
            store.half_messages.pending()
        log.unlink()
        moved.rename(log)
        assert store.half_messages.pending() == []


ARRAY = np.array([0, 1])
ARRAYS: dict[str, Callable[[MessageStore, StoreReader], object]] = {
    "a queue": lambda store, _: store.put("orders", b"x", queue_id=ARRAY),  # type: ignore[arg-type]
    "a flag": lambda store, _: store.put_message(Message(topic="orders", body=b"x", flag=ARRAY)),  # type: ignore[arg-type]
    "a delay": lambda store, _: store.put("orders", b"x", delay=ARRAY),  # type: ignore[arg-type]
    "an offset": lambda _, reader: next(reader.read("orders", 0, ARRAY)),  # type: ignore[arg-type]
    "a place": lambda store, _: store.wait_for_messages("orders", 0, ARRAY, timeout_s=0),  # type: ignore[arg-type]
    "a wait": lambda store, _: store.wait_for_messages("orders", 0, 5, timeout_s=ARRAY),  # type: ignore[arg-type]
    "a time": lambda _, reader: reader.offset_by_time("orders", 0, ARRAY),  # type: ignore[arg-type]
    "the number of a row": lambda store, _: store.put_messages([{"body": b"x"}], topic="orders", first_row=ARRAY),  # type: ignore[arg-type]
    "a row's number of a wrong type": lambda store, _: store.put_messages([], topic="orders", first_row="0"),  # type: ignore[arg-type]
    "half a character in a path": lambda *_: MessageStore.open("\ud800"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_what_is_nearly_a_number_or_a_path_is_refused(path: Path, name: str) -> None:
    """An array of numpy has the method by which its numbers are ints, and then fails."""
    with open_store(path) as store, store.reader() as reader, pytest.raises(InvalidValue, match=r"array\(|'0'|ud800"):
        ARRAYS[name](store, reader)
