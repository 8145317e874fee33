"""The kinds of damage: each a function that damages a store's files, and what is known of it without any command.

``seen`` says where it shows: at a quick look (names, sizes, ends, marks), only when everything is read, nowhere since
no checksum covers those bytes (docs/invariants.md), or nowhere since nothing is wrong. What is harmless may be reported
or not: any opening mends it.
"""

from __future__ import annotations

import enum
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.damage_table.made_stores import copy_store
from tests.damage_table.truth import Stored


class Seen(enum.Enum):
    """What it takes to see the damage."""

    QUICK = "quick"
    DEEP = "deep"
    NEVER = "never"
    HARMLESS = "harmless"
    NOTHING_WRONG = "nothing wrong"


class Subject(NamedTuple):
    """A copy of a store that is to be damaged, and the records that it holds."""

    path: Path
    records: list[Stored]
    backup: Path

    @property
    def logs(self) -> list[Path]:
        """The log's files that hold records: one more is allocated ahead."""
        files = sorted(self.path.joinpath("commitlog").iterdir())
        return [file for file in files if any(file.read_bytes())]

    def middle(self) -> Stored:
        """A message in the middle of the log, and of its queue; of no batch."""
        logs = self.logs
        file = logs[len(logs) // 2 - 1]
        inside = [one for one in self.records if 0 <= one.place - int(file.name) < file.stat().st_size]
        return next(one for one in inside[len(inside) // 2 :] if _is_plain(one))

    def newest(self) -> Stored:
        return next(one for one in reversed(self.records) if _is_plain(one))

    def of_a_batch(self) -> Stored:
        return next(one for one in self.records if one.key.topic == "orders" and _BATCHED.search(one.properties))

    def place(self, one: Stored) -> tuple[Path, int]:
        """The file of a record, and the byte where it begins."""
        file = max(file for file in self.logs if int(file.name) <= one.place)
        return file, one.place - int(file.name)

    def queue(self, topic: str, queue_id: int = 0) -> list[Path]:
        return sorted((self.path / "consumequeue" / topic / str(queue_id)).iterdir())


# Rows of a batch are those from number 70 on (``made_stores``).
_BATCHED = re.compile(rb"\x01key-\d+-7\d")


def _is_plain(one: Stored) -> bool:
    topic, properties = one.key.topic, one.properties
    return topic == "orders" and one.in_queue and b"PGROUP" not in properties and not _BATCHED.search(properties)


class Kind(NamedTuple):
    """One row of the table. ``only`` names the stores that it fits; all if empty."""

    name: str
    seen: Seen
    damage: Callable[[Subject], None]
    only: tuple[str, ...] = ()


KINDS: dict[str, Kind] = {}

OURS = ("closed", "killed")


def kind(name: str, seen: Seen, *only: str) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    def add(damage: Callable[[Subject], None]) -> Callable[[Subject], None]:
        assert name not in KINDS
        KINDS[name] = Kind(name, seen, damage, only)
        return damage

    return add


def flip(path: Path, at: int, count: int = 1) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(count)
        file.seek(at)
        file.write(bytes(byte ^ 0x55 for byte in old))


def zero(path: Path, at: int, count: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(count))


def shorten(path: Path, size: int) -> None:
    os.truncate(path, size)


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def written(path: Path) -> int:
    """The bytes of a file before its last zeros."""
    return len(path.read_bytes().rstrip(b"\0"))


@kind("nothing", Seen.NOTHING_WRONG)
def _(store: Subject) -> None:
    pass


@kind("log: newest file gone", Seen.QUICK)
def _(store: Subject) -> None:
    store.logs[-1].unlink()


@kind("log: middle file gone", Seen.QUICK)
def _(store: Subject) -> None:
    store.logs[len(store.logs) // 2].unlink()


@kind("log: first file gone", Seen.NOTHING_WRONG)
def _(store: Subject) -> None:
    store.logs[0].unlink()


@kind("log: newest file short", Seen.QUICK)
def _(store: Subject) -> None:
    shorten(store.logs[-1], written(store.logs[-1]) // 2)


@kind("log: newest file short of its zeros", Seen.QUICK)
def _(store: Subject) -> None:
    shorten(store.logs[-1], written(store.logs[-1]) // 4096 * 4096 + 4096)


@kind("log: middle file short", Seen.QUICK)
def _(store: Subject) -> None:
    file = store.logs[len(store.logs) // 2]
    shorten(file, file.stat().st_size // 2)


@kind("log: first file short", Seen.QUICK)
def _(store: Subject) -> None:
    shorten(store.logs[0], store.logs[0].stat().st_size // 2)


@kind("log: middle file empty", Seen.QUICK)
def _(store: Subject) -> None:
    shorten(store.logs[len(store.logs) // 2], 0)


@kind("log: two files swapped", Seen.QUICK)
def _(store: Subject) -> None:
    swap(*store.logs[1:3])


@kind("log: newest file zeroed", Seen.QUICK)
def _(store: Subject) -> None:
    zero(store.logs[-1], 0, store.logs[-1].stat().st_size)


@kind("log: middle file zeroed", Seen.QUICK)
def _(store: Subject) -> None:
    file = store.logs[len(store.logs) // 2]
    zero(file, 0, file.stat().st_size)


@kind("log: a sector zeroed", Seen.DEEP)
def _(store: Subject) -> None:
    file, at = store.place(store.middle())
    zero(file, (at + 256) // 512 * 512, 512)


@kind("log: a page zeroed", Seen.DEEP)
def _(store: Subject) -> None:
    file, at = store.place(store.middle())
    zero(file, (at + 2048) // 4096 * 4096, 4096)


@kind("log: a page of the newest file zeroed", Seen.DEEP)
def _(store: Subject) -> None:
    file = store.logs[-1]
    zero(file, written(file) // 2 // 4096 * 4096, 4096)


def _flip_field(name: str, at_field: int, size: int) -> None:
    @kind(f"log: {name} flipped", Seen.DEEP)
    def _(store: Subject) -> None:
        file, at = store.place(store.middle())
        flip(file, at + at_field, size)


for _name, _at, _size in (
    ("TOTALSIZE", 0, 4),
    ("MAGICCODE", 4, 4),
    ("BODYCRC", 8, 4),
    ("QUEUEID", 15, 1),
    ("QUEUEOFFSET", 26, 2),
    ("PHYSICALOFFSET", 34, 2),
):
    _flip_field(_name, _at, _size)


@kind("log: body flipped", Seen.DEEP)
def _(store: Subject) -> None:
    one = store.middle()
    file, at = store.place(one)
    flip(file, at + file.read_bytes()[at : at + one.size].index(one.body) + len(one.body) // 2)


@kind("log: body of the newest message flipped", Seen.DEEP)
def _(store: Subject) -> None:
    one = store.newest()
    file, at = store.place(one)
    flip(file, at + file.read_bytes()[at : at + one.size].index(one.body))


@kind("log: length of the properties flipped", Seen.DEEP)
def _(store: Subject) -> None:
    one = store.middle()
    file, at = store.place(one)
    flip(file, at + one.size - len(one.properties) - 1)


@kind("log: a property flipped", Seen.NEVER)
def _(store: Subject) -> None:
    one = store.middle()
    file, at = store.place(one)
    flip(file, at + one.size - len(one.properties) + one.properties.index(b"\x01") + 1)


@kind("log: body in a batch flipped", Seen.DEEP, *OURS)
def _(store: Subject) -> None:
    one = store.of_a_batch()
    file, at = store.place(one)
    flip(file, at + file.read_bytes()[at : at + one.size].index(one.body))


@kind("log: a property in a batch flipped", Seen.DEEP, *OURS)
def _(store: Subject) -> None:
    one = store.of_a_batch()
    file, at = store.place(one)
    flip(file, at + one.size - len(one.properties) + one.properties.index(b"\x01") + 1)


@kind("log: file allocated ahead gone", Seen.NOTHING_WRONG, *OURS)
def _(store: Subject) -> None:
    max(store.path.joinpath("commitlog").iterdir()).unlink()


@kind("log: file allocated ahead short", Seen.QUICK, *OURS)
def _(store: Subject) -> None:
    shorten(max(store.path.joinpath("commitlog").iterdir()), 4096)


@kind("log: directory empty (not mounted)", Seen.QUICK)
def _(store: Subject) -> None:
    for file in store.path.joinpath("commitlog").iterdir():
        file.unlink()


@kind("log: directory gone", Seen.QUICK)
def _(store: Subject) -> None:
    shutil.rmtree(store.path / "commitlog")


@kind("log: a directory in the place of a file", Seen.QUICK)
def _(store: Subject) -> None:
    file = store.logs[len(store.logs) // 2]
    file.unlink()
    file.mkdir()


@kind("log: a foreign file", Seen.NOTHING_WRONG)
def _(store: Subject) -> None:
    (store.path / "commitlog" / "notes.txt").write_text("mine")


@kind("log: newest file not readable", Seen.QUICK)
def _(store: Subject) -> None:
    store.logs[-1].chmod(0)


@kind("log: middle file not readable", Seen.QUICK)
def _(store: Subject) -> None:
    store.logs[len(store.logs) // 2].chmod(0)


@kind("queue: file gone", Seen.QUICK)
def _(store: Subject) -> None:
    store.queue("audit")[0].unlink()


@kind("queue: newest file gone", Seen.QUICK)
def _(store: Subject) -> None:
    store.queue("audit")[-1].unlink()


@kind("queue: file short", Seen.QUICK)
def _(store: Subject) -> None:
    shorten(store.queue("audit")[0], 410)


@kind("queue: newest file short", Seen.QUICK)
def _(store: Subject) -> None:
    file = store.queue("audit")[-1]
    shorten(file, written(file) // 2 // 20 * 20)


@kind("queue: file zeroed", Seen.DEEP)
def _(store: Subject) -> None:
    file = store.queue("audit")[0]
    zero(file, 0, file.stat().st_size)


@kind("queue: a unit zeroed", Seen.DEEP)
def _(store: Subject) -> None:
    zero(store.queue("audit")[0], 20 * 20, 20)


@kind("queue: the last unit zeroed", Seen.QUICK)
def _(store: Subject) -> None:
    file = store.queue("audit")[-1]
    end = -(-written(file) // 20) * 20
    zero(file, end - 20, 20)


@kind("queue: physical offset of a unit flipped", Seen.DEEP)
def _(store: Subject) -> None:
    flip(store.queue("audit")[0], 20 * 20 + 5, 2)


@kind("queue: size of a unit flipped", Seen.DEEP)
def _(store: Subject) -> None:
    flip(store.queue("audit")[0], 20 * 20 + 10, 1)


@kind("queue: two queues swapped", Seen.DEEP)
def _(store: Subject) -> None:
    root = store.path / "consumequeue" / "orders"
    swap(root / "0", root / "1")


@kind("queue: directory of a queue gone", Seen.QUICK)
def _(store: Subject) -> None:
    shutil.rmtree(store.path / "consumequeue" / "audit" / "0")


@kind("queue: all gone", Seen.QUICK)
def _(store: Subject) -> None:
    shutil.rmtree(store.path / "consumequeue")


@kind("queue: a foreign file", Seen.NOTHING_WRONG)
def _(store: Subject) -> None:
    (store.path / "consumequeue" / "audit" / "0" / "notes.txt").write_text("mine")


@kind("queue: file not readable", Seen.QUICK)
def _(store: Subject) -> None:
    store.queue("audit")[0].chmod(0)


def _index(store: Subject) -> list[Path]:
    return sorted((store.path / "index").iterdir())


@kind("index: header flipped", Seen.DEEP)
def _(store: Subject) -> None:
    flip(_index(store)[0], 24, 8)


@kind("index: an entry flipped", Seen.DEEP)
def _(store: Subject) -> None:
    file = _index(store)[0]
    # Header, slots and entries are 40, 4 and 20 bytes; the last entry is the last thing written.
    last = -(-(written(file) - 40) // 4) * 4 + 40
    flip(file, last - 20 + 8, 4)


@kind("index: a file gone", Seen.QUICK)
def _(store: Subject) -> None:
    _index(store)[0].unlink()


@kind("index: file short", Seen.QUICK)
def _(store: Subject) -> None:
    shorten(_index(store)[0], 1000)


@kind("index: file not readable", Seen.QUICK)
def _(store: Subject) -> None:
    _index(store)[0].chmod(0)


@kind("index: all gone", Seen.QUICK)
def _(store: Subject) -> None:
    shutil.rmtree(store.path / "index")


@kind("checkpoint: gone", Seen.NOTHING_WRONG)
def _(store: Subject) -> None:
    (store.path / "checkpoint").unlink()


@kind("checkpoint: garbage", Seen.QUICK)
def _(store: Subject) -> None:
    (store.path / "checkpoint").write_bytes(bytes(range(256)) * 16)


@kind("checkpoint: empty", Seen.QUICK)
def _(store: Subject) -> None:
    (store.path / "checkpoint").write_bytes(b"")


@kind("checkpoint: a directory", Seen.QUICK)
def _(store: Subject) -> None:
    (store.path / "checkpoint").unlink()
    (store.path / "checkpoint").mkdir()


@kind("checkpoint: not readable", Seen.QUICK)
def _(store: Subject) -> None:
    (store.path / "checkpoint").chmod(0)


@kind("checkpoint: of a backup", Seen.HARMLESS, *OURS)
def _(store: Subject) -> None:
    shutil.copy(store.backup / "checkpoint", store.path / "checkpoint")


def _config(name: str, *, with_bak: bool, seen: Seen) -> None:
    @kind(f"config: {name} {'and its .bak ' if with_bak else ''}garbage", seen, *OURS)
    def _(store: Subject) -> None:
        file = store.path / "config" / name
        bak = file.with_name(f"{name}.bak")
        shutil.copy(file, bak)
        file.write_bytes(b'{"half')
        if with_bak:
            bak.write_bytes(b"\xff\xfe")


for _file in ("topics.json", "consumerOffset.json", "batchLedger.json", "createdBy.json"):
    _config(_file, with_bak=False, seen=Seen.QUICK)
    _config(_file, with_bak=True, seen=Seen.QUICK)


@kind("gate: gone", Seen.NOTHING_WRONG, *OURS)
def _(store: Subject) -> None:
    (store.path / "gate").unlink()


@kind("gate: garbage", Seen.HARMLESS, *OURS)
def _(store: Subject) -> None:
    (store.path / "gate").write_bytes(b"garbage")


@kind("copy of a live store, log first", Seen.QUICK, "torn")
def _(store: Subject) -> None:
    pass


@kind("a backup copied over a newer store", Seen.QUICK, *OURS)
def _(store: Subject) -> None:
    copy_store(store.backup, store.path)
