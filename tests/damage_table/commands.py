"""What each command, reader and opening says about a store, and what it delivers."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from commitlog_store import MessageStore, StoreReader
from commitlog_store.errors import CommitLogError
from tests.damage_table.truth import Key
from tests.store.cli.commands import ended

_CAPABILITY_VERSION = 0x20080522
_FILE_CAPABILITIES = 0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


class Answer(NamedTuple):
    """What a command says: its exit code (of Python: 0, or 1 for an error), counts if it has any, and the messages."""

    exit_code: int
    text: str
    lost: int | None = None
    found: int | None = None
    delivered: Mapping[Key, bytes] = MappingProxyType({})
    facts: Mapping[str, Any] = MappingProxyType({})


class Opening(NamedTuple):
    """How the opening of a store ends: the error's name, and what was cut and kept; then what a reader delivers."""

    refused: str
    cut: int
    cut_at: int | None
    after: Answer


@contextlib.contextmanager
def file_modes_hold() -> Iterator[None]:
    """The modes of files hold for this thread, and those that it starts, also if it is root's."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, data) == 0
    before = data[0]
    data[0] &= ~_FILE_CAPABILITIES
    assert libc.capset(header, data) == 0
    try:
        yield
    finally:
        data[0] = before
        assert libc.capset(header, data) == 0


def _run(*arguments: object) -> tuple[int, str, str]:
    done = ended(*arguments)
    return done.returncode, done.stdout, done.stderr


def _object(printed: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed) if printed.startswith("{") else {}
    return found


def info(store: Path, topics: list[str]) -> Answer:
    code, printed, said = _run("info", store, "--json")
    return Answer(code, said, facts=_object(printed))


def doctor(store: Path, topics: list[str]) -> Answer:
    code, printed, said = _run("doctor", store, "--json")
    facts = _object(printed)
    return Answer(code, said, facts.get("lost"), facts.get("found"), facts=facts)


def doctor_deep(store: Path, topics: list[str]) -> Answer:
    code, printed, said = _run("doctor", "--deep", store, "--json")
    facts = _object(printed)
    return Answer(code, said, facts.get("lost"), facts.get("found"), facts=facts)


def verify(store: Path, topics: list[str]) -> Answer:
    code, printed, said = _run("verify", store, "--json")
    facts = _object(printed)
    found = sum(topic["found"] for topic in facts["topics"]) if facts else None
    return Answer(code, said, facts.get("lost"), found, facts=facts)


def repair(store: Path, topics: list[str]) -> Answer:
    """``text`` is what it says to people."""
    code, printed, said = _run("repair", store, "--json")
    _, text, _ = _run("repair", store)
    return Answer(code, text + said, facts=_object(printed))


def salvage(store: Path, topics: list[str]) -> Answer:
    code, printed, said = _run("salvage", store, "--json")
    facts = _object(printed)
    return Answer(code, said, facts.get("lost"), facts.get("found"), facts=facts)


def cat(store: Path, topics: list[str]) -> Answer:
    return _printed(*_run("cat", store, "*", "--json"))


def cat_skip(store: Path, topics: list[str]) -> Answer:
    return _printed(*_run("cat", store, "*", "--json", "--on-damage", "skip"))


def cat_from_log(store: Path, topics: list[str]) -> Answer:
    return _printed(*_run("cat", store, "*", "--json", "--from-log", "--on-damage", "skip"))


def export(store: Path, topics: list[str]) -> Answer:
    target = store.with_name(store.name + ".ndjson")
    code, _, said = _run("export", store, "--to", f"ndjson:{target}")
    printed = target.read_text() if target.exists() else ""
    return _printed(code, printed, said)


def read(store: Path, topics: list[str]) -> Answer:
    """``StoreReader.read`` of each queue, with its defaults."""
    return _read(store, topics, skip=False)


def read_skip(store: Path, topics: list[str]) -> Answer:
    return _read(store, topics, skip=True)


def _read(store: Path, topics: list[str], *, skip: bool) -> Answer:
    delivered: dict[Key, bytes] = {}
    errors: list[str] = []
    try:
        with StoreReader.open(store, on_damage="skip" if skip else "raise") as reader:
            for topic in topics:
                _collect(delivered, errors, reader, topic)
            errors += [*(str(one) for one in reader.skipped), *reader.lost_ends()]
    except CommitLogError as error:
        errors.append(f"{type(error).__name__}: {error}")
    return Answer(int(bool(errors)), "\n".join(errors), delivered=delivered)


def _collect(delivered: dict[Key, bytes], errors: list[str], reader: StoreReader, topic: str) -> None:
    """The messages of a topic, queue by queue; what a queue ends with is its own."""
    try:
        queues = reader.queues(topic)
    except CommitLogError as error:
        errors.append(f"{type(error).__name__}: {error}")
        return
    for queue in queues:
        try:
            for batch in reader.read(topic, queue.queue_id, queue.min_offset, columns=["queueOffset", "body"]):
                offsets, bodies = (batch[name].to_pylist() for name in ("queueOffset", "body"))
                delivered.update(
                    (Key(topic, queue.queue_id, offset), body) for offset, body in zip(offsets, bodies, strict=True)
                )
        except CommitLogError as error:
            errors.append(f"{type(error).__name__}: {error}")


def _printed(code: int, printed: str, said: str) -> Answer:
    delivered = {}
    for line in printed.splitlines():
        row = json.loads(line)
        body = row["body"].encode() if "body" in row else base64.b64decode(row["bodyBase64"])
        delivered[Key(row["topic"], row["queueId"], row["queueOffset"])] = body
    return Answer(code, said, delivered=delivered)


LOOKS: dict[str, Callable[[Path, list[str]], Answer]] = {
    "doctor": doctor,
    "doctor --deep": doctor_deep,
    "info": info,
    "verify": verify,
    "repair": repair,
    "salvage": salvage,
    "cat": cat,
    "cat skip": cat_skip,
    "cat from log": cat_from_log,
    "export": export,
    "read": read,
    "read skip": read_skip,
}


READERS = ("cat", "cat skip", "cat from log", "export", "read", "read skip")


def get(store: Path, place: int) -> Answer:
    return _printed(*_run("get", store, place, "--json"))


def salvage_into(store: Path, target: Path, topics: list[str]) -> tuple[Answer, Answer]:
    """What a salvage says, and what is read from the new store."""
    code, printed, said = _run("salvage", store, "--to", target, "--json")
    facts = _object(printed)
    after = read(target, _left(target, topics)) if facts else Answer(2, "no store")
    return Answer(code, said, facts.get("lost"), facts.get("found"), facts=facts), after


def open_store(store: Path, topics: list[str]) -> Opening:
    """Open a copy, close it, and read all of it from its log."""
    try:
        opened = MessageStore.open(store)
        recovered = opened.recovered
        opened.close()
    except CommitLogError as error:
        return Opening(type(error).__name__, 0, None, Answer(1, str(error)))
    kept = None if recovered is None else recovered.kept
    cut, cut_at = (0, None) if kept is None else (kept.messages, kept.start)
    return Opening("", cut, cut_at, read_skip(store, topics))


def suggested(doctor: Answer, repair: Answer) -> list[str]:
    """The commands that ``doctor --deep`` and ``repair`` suggest for a shell."""
    of_repair = [line.strip() for line in repair.text.splitlines() if line.startswith("  commitlog ")]
    return list(dict.fromkeys([*doctor.facts.get("nextSteps", []), *of_repair]))


def run_step(words: list[str], store: Path, target: Path, topics: list[str]) -> tuple[int, str, Answer | None]:
    """Run a suggested command, and read what it has left at ``target``, unless it only looks at ``store``."""
    answer = ["--yes"] if "--accept-lost-log" in words else []  # no terminal is here to be asked
    code, _, said = _run(*words[1:], *answer)
    if "--to" in words:
        return code, said, read(target, _left(target, topics))
    changes = {"--cut-at", "--accept-lost-log", "--rebuild"} & set(words)
    return code, said, read(store, _left(store, topics)) if changes else None


def _left(store: Path, topics: list[str]) -> list[str]:
    """The topics that are left: one may have lost all its messages."""
    with StoreReader.open(store) as reader:
        return [topic for topic in topics if topic in reader.topics()]
