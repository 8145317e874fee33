"""One cell block of the table: a damaged store, what is true of it, and what every command says about it."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tests.damage_table.commands import (
    LOOKS,
    READERS,
    Answer,
    Opening,
    doctor,
    doctor_deep,
    file_modes_hold,
    get,
    open_store,
    run_step,
    salvage_into,
    suggested,
)
from tests.damage_table.kinds import KINDS, Kind, Subject
from tests.damage_table.made_stores import StoreStates, copy_store
from tests.damage_table.truth import Fate, Key, Stored, Truth, records_of, truth_of, units_of

_SYSTEM_TOPICS = ("rmq_sys_", "RMQ_SYS_", "SCHEDULE_TOPIC_XXXX")
_PACKED_KEY = re.compile(rb"KEYS\x01z(\d+)")


@dataclass(frozen=True)
class Step:
    """A command that another one suggests, run on a copy, and what is read there after it."""

    command: str
    exit_code: int
    text: str
    after: Answer | None


@dataclass
class Case:
    """Everything about one kind of damage to one store.

    ``bodies`` are those of all messages as they were put; ``user`` is the part that is not in topics of the system.
    ``hidden`` are messages that no reader can miss: without a mark in the checkpoint, they are before or after all
    units that are left of their queue, or after the end of a log that a crash explains.
    """

    store: str
    kind: Kind
    path: Path
    truth: Truth
    bodies: dict[Key, bytes]
    user: dict[Key, bytes]
    hidden: set[Key]
    places: dict[Key, int]
    unreadable_files: bool
    aborted: bool
    looks: dict[str, Answer] = field(default_factory=dict)
    gets: dict[Key, Answer] = field(default_factory=dict)
    salvaged: tuple[Answer, Answer] | None = None
    opened: Opening | None = None
    steps: list[Step] = field(default_factory=list)
    changed_by_looking: bool = False

    @property
    def reads_matter(self) -> bool:
        """Whether the damage is to anything that messages are read from."""
        return not self.kind.name.startswith(("index:", "checkpoint:", "config:"))

    @cached_property
    def found(self) -> set[Key]:
        """The user's messages whose records are whole."""
        return self.truth.found & self.user.keys()

    @cached_property
    def readable(self) -> set[Key]:
        """Those whose units are too: what a reader can deliver through the queues."""
        return self.found & self.truth.reachable


class CaseMaker:
    """Makes the cases in a directory, from stores that are made once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.states = StoreStates(root / "states")
        self._records: dict[str, list[Stored]] = {}
        self._outcomes: dict[tuple[str, str], tuple[str, str, str]] = {}

    def records(self, store: str) -> list[Stored]:
        """The records that the store has without damage; of the torn copy, those that its owner had put by then."""
        name = "killed" if store == "torn" else store
        if name not in self._records:
            self._records[name] = list(records_of(self.states.path(name)))
        return self._records[name]

    def damaged(self, store: str, kind: str) -> tuple[Path, Path, Case]:
        """Two copies of a damaged store, and the case without what commands say. ``kind`` may be several: ``a + b``."""
        base = self._root / "case"
        shutil.rmtree(base, ignore_errors=True)
        path, other = base / "store", base / "copy"
        source, records = self.states.path(store), self.records(store)
        copy_store(source, path)
        for one in kind.split(" + "):
            KINDS[one].damage(Subject(path, records, self.states.path("backup")))
        closed = [file for file in path.rglob("*") if file.is_file() and not file.stat().st_mode & 0o400]
        for file in closed:
            file.chmod(0o600)
        truth = truth_of(path, records, units_of(source))
        copy_store(path, other)
        hidden = _hidden(other, truth, {one.key: one.place for one in records if one.in_queue})
        for file in closed:
            file.chmod(0)
            (other / file.relative_to(path)).chmod(0)
        bodies = {one.key: _as_put(one) for one in records if one.in_queue}
        user = {key: body for key, body in bodies.items() if not key.topic.startswith(_SYSTEM_TOPICS)}
        places = {one.key: one.place for one in records if one.in_queue}
        first, aborted = KINDS[kind.split(" + ", maxsplit=1)[0]], (other / "abort").exists()
        case = Case(store, first, path, truth, bodies, user, hidden, places, bool(closed), aborted)
        return path, other, case

    def case(self, store: str, kind: str) -> Case:
        """The case with everything that is said."""
        path, other, case = self.damaged(store, kind)
        topics = sorted({key.topic for key in case.user})
        before = _digest(path)
        with file_modes_hold():
            for name, look in LOOKS.items():
                if case.reads_matter or name not in READERS:
                    case.looks[name] = look(path, topics)
            for key in _samples(case) if case.reads_matter else ():
                case.gets[key] = get(path, case.places[key])
            case.changed_by_looking = _digest(path) != before
            case.salvaged = salvage_into(path, path.with_name("salvaged"), topics)
            steps = [] if case.unreadable_files else suggested(case.looks["doctor --deep"], case.looks["repair"])
            for number, command in enumerate(steps):
                case.steps.append(self._step(path, command, number, topics))
            case.opened = open_store(other, topics)
        self._note_outcome(case, case.looks["doctor"], case.looks["doctor --deep"], case.opened)
        return case

    def outcome(self, store: str, kind: str) -> tuple[str, str, str]:
        """The verdicts of a quick and a deep look, and whether the store "opens" or is "refused"."""
        if (store, kind) not in self._outcomes:
            path, other, case = self.damaged(store, kind)
            with file_modes_hold():
                self._note_outcome(case, doctor(path, []), doctor_deep(path, []), open_store(other, []))
        return self._outcomes[store, kind]

    def _note_outcome(self, case: Case, quick: Answer, deep: Answer, opened: Opening) -> None:
        opening = "refused" if opened.refused else "opens"
        self._outcomes[case.store, case.kind.name] = (quick.facts["verdict"], deep.facts["verdict"], opening)

    def _step(self, path: Path, command: str, number: int, topics: list[str]) -> Step:
        """Run a suggested command on a copy."""
        target, there = path.with_name(f"to-{number}"), path.with_name(f"step-{number}")
        copy_store(path, there)
        words = [
            str(target) if word == "DIRECTORY" else word.replace(str(path), str(there)) for word in shlex.split(command)
        ]
        return Step(command, *run_step(words, there, target, topics))


def _hidden(store: Path, truth: Truth, places: dict[Key, int]) -> set[Key]:
    """Messages that no reader can miss, where the checkpoint has no mark; with one, it says where all ended."""
    ends: dict[tuple[str, int], int] = {}
    first: dict[tuple[str, int], int] = {}
    for key in units_of(store):
        queue = key.topic, key.queue_id
        ends[queue] = max(ends.get(queue, 0), key.queue_offset)
        first[queue] = min(first.get(queue, key.queue_offset), key.queue_offset)
    log_end = max((places[key] for key in truth.found), default=-1)
    aborted, mark = (store / "abort").exists(), _mark(store)
    hidden = set()
    for key in truth.fates:
        queue = key.topic, key.queue_id
        outside = queue not in ends or not first[queue] <= key.queue_offset <= ends[queue]
        # A crash may leave units unwritten, which no mark counts.
        known = mark is not None and (not aborted or queue not in ends)
        if outside and not known:
            hidden.add(key)
        if aborted and places[key] > log_end and (mark is None or places[key] >= mark):
            hidden.add(key)
    return hidden


def _mark(store: Path) -> int | None:
    """The place up to which the log was flushed, of a checkpoint with a mark."""
    data = (store / "checkpoint").read_bytes() if (store / "checkpoint").is_file() else b""
    return int.from_bytes(data[520:528], "big") if data[512:516] == b"PYCL" else None


def _as_put(one: Stored) -> bytes:
    """The body before compression: tests/golden/README.md says what was put."""
    if not one.compressed:
        return one.body
    key = _PACKED_KEY.search(one.properties)
    assert key is not None
    return b"compressed body %s " % key[1] * 400


def _samples(case: Case) -> list[Key]:
    """A message that is whole, and one that is not."""
    some = [sorted(case.found)[:1], sorted(case.truth.of(Fate.LOST) & case.user.keys())[:1]]
    return [key for keys in some for key in keys]


def _digest(path: Path) -> str:
    """Names, sizes, time stamps and contents of all files."""
    digest = hashlib.blake2b()
    for file in sorted(path.rglob("*")):
        state = file.stat()
        digest.update(f"{file} {state.st_size} {state.st_mtime_ns} {state.st_mode}".encode())
        if file.is_file() and state.st_mode & 0o400:
            digest.update(file.read_bytes())
    return digest.hexdigest()
