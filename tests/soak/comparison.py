"""What must be true of a campaign at its end: each function yields what is not."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from commitlog_store import StoreReader, assess_store, check_archive, restore_store, verify_store
from tests.soak.base import GROUP, LATER, PLAIN, REMOTING_GROUP, STREAMED, TOPICS, WHOLE, Base
from tests.soak.campaign import CONSUMERS, PRODUCERS
from tests.soak.consumer import identity
from tests.soak.journal import Line, lines_of

# So many keys are looked up.
_KEYS = 200


@dataclass(frozen=True)
class Stored:
    """Where a message is, and since when."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int


Messages = dict[str, list[Stored]]


def all_faults(base: Base, *, spark: bool) -> Iterator[str]:
    """Read everything once, and compare it with the answers that each program got."""
    yield from _looked(base)
    yield from _logged(base)
    messages, order = _read(str(base.store), TOPICS, base.archive_to_read)
    for name in PRODUCERS:
        yield from _produced(name, base, messages)
    yield from _unknown(messages)
    yield from positions_ahead(base)
    yield from _consumed(base, order)
    yield from _found_by_key(base)
    yield from _known(base)
    if spark:
        for copy, topics in (("sink", STREAMED), ("copy", TOPICS)):
            _, copied = _read(str(base.path(copy)), topics)
            yield from _same_order(copy, {place: ids for place, ids in order.items() if place[0] in topics}, copied)
            yield from _healthy(base.path(copy))
    yield from _healthy(base.store)
    yield from _archived(base)


def _read(
    path: str, topics: tuple[str, ...], archive: str | None = None
) -> tuple[Messages, dict[tuple[str, int], list[str]]]:
    """All messages by what they are, and what they are in the order of each queue."""
    messages: Messages = defaultdict(list)
    order: dict[tuple[str, int], list[str]] = {}
    columns = ["queueOffset", "physicalOffset", "storeTimestamp", "body"]
    with StoreReader.open(path, archive=archive) as reader:
        for topic in topics:
            for queue in reader.queues(topic):
                ids = order.setdefault((topic, queue.queue_id), [])
                for batch in reader.read(topic, queue.queue_id, 0, columns=columns):
                    for row in batch.to_pylist():
                        stored_at = int(row["storeTimestamp"].timestamp() * 1000)
                        ids.append(identity(row["body"]))
                        messages[ids[-1]].append(
                            Stored(topic, queue.queue_id, row["queueOffset"], row["physicalOffset"], stored_at)
                        )
    return messages, order


def _produced(name: str, base: Base, messages: Messages) -> Iterator[str]:
    """Each message of a producer's journal, by the line that says most."""
    intents: dict[int, Line] = {}
    answers: dict[int, list[Line]] = defaultdict(list)
    for line in lines_of(base.journal(name)):
        if "topic" in line:
            intents.setdefault(line["n"], line)
        else:
            answers[line["n"]].append(line)
    for number, intent in intents.items():
        rows = intent.get("rows")
        ids = [f"{name}/{number}/"] if rows is None else [f"{name}/{number}/{row}/" for row in range(rows)]
        found = [messages.pop(one, []) for one in ids]
        for wrong in fate(intent, answers[number], found):
            yield f"{name} {number}: {wrong}; {intent} {answers[number]} {found}"


def fate(intent: Line, answers: list[Line], found: list[list[Stored]]) -> Iterator[str]:
    """What is wrong with the places at which the rows of one put were found."""
    said = {key: value for line in answers for key, value in line.items() if key != "n"}
    topic = intent["topic"]
    if any(len(places) > 1 for places in found):
        yield "stored twice"
    if any(place.topic != topic for places in found for place in places):
        yield "in another topic"
    if "wrong" in said:
        yield "another end than asked for"
    stored = sum(map(len, found))
    if topic == WHOLE:
        if stored not in (0, len(found)):
            yield "a part of a transaction"
        if "committed" in said and not stored:
            yield "a committed transaction is missing"
    elif "outcome" in intent:
        if "ended" in said and stored != (intent["outcome"] == "commit"):
            yield "a half message that ended otherwise"
        if stored and intent["outcome"] == "rollback":
            yield "a rolled back message"
    elif "table" in said:
        for row, places in zip(said["table"], found, strict=True):
            if isinstance(row, list):
                yield from _at_its_place(topic, row, places)
            elif places and row != "UNKNOWN_ERROR":
                yield f"a row that was refused with {row} is stored"
    elif "places" in said:
        if topic == LATER:
            if not stored:
                yield "a delayed message was not delivered"
        else:
            yield from _at_its_place(topic, said["places"][0], found[0])
    elif "refused" in said and stored:
        yield "a refused message is stored"
    if "delay" in intent and any(place.store_timestamp < intent["t"] + intent["delay"] for place in found[0]):
        yield "delivered early"


def _at_its_place(topic: str, said: list[int], places: list[Stored]) -> Iterator[str]:
    found = [[one.queue_id, one.queue_offset, one.physical_offset] for one in places]
    if found != [said]:
        yield f"acknowledged at {topic} {said} and found at {found}"


def _unknown(messages: Messages) -> Iterator[str]:
    messages.pop("first", None)
    if messages:
        yield f"messages without an intent: {dict(list(messages.items())[:5])}"


def positions_ahead(base: Base) -> Iterator[str]:
    """No group is after a message that none of its consumers has handled, at any time."""
    # The positions first: what is handled now was handled before its position moved.
    positions = _positions(base)
    handled = _handled(base)
    for (group, topic, queue), position in positions.items():
        done = handled[topic, queue]
        if missing := [offset for offset in range(position) if offset not in done]:
            yield f"{group} is at {position} of {topic} {queue} and has not handled {missing[:10]}"


def _positions(base: Base) -> dict[tuple[str, str, int], int]:
    with StoreReader.open(str(base.store)) as reader:
        return {
            (group, *place): offset
            for group in (GROUP, REMOTING_GROUP)
            for place, offset in reader.group_offsets(group).items()
        }


def _handled(base: Base) -> dict[tuple[str, int], dict[int, Line]]:
    """What all consumers have handled, by queue and offset."""
    handled: dict[tuple[str, int], dict[int, Line]] = defaultdict(dict)
    for name in CONSUMERS:
        for line in lines_of(base.journal(name)):
            handled[line["topic"], line["queue"]].setdefault(line["offset"], line)
    return handled


def _consumed(base: Base, order: dict[tuple[str, int], list[str]]) -> Iterator[str]:
    """Each message was handled, and what was put back came again."""
    handled = _handled(base)
    lines = [line for done in handled.values() for line in done.values()]
    retried = {line["id"] for line in lines if line["topic"].startswith("%RETRY%")}
    if missing := {line["id"] for line in lines if "again" in line} - retried:
        yield f"put back and not consumed again: {sorted(missing)[:10]}"
    for (group, topic, queue), position in _positions(base).items():
        ids = order.get((topic, queue), [])
        done = handled[topic, queue]
        if wrong := [offset for offset, line in done.items() if ids and ids[offset : offset + 1] != [line["id"]]]:
            yield f"{group} got other messages at {wrong[:10]} of {topic} {queue}"
        if ids and position < len(ids):
            yield f"{group} is at {position} of {topic} {queue}, which ends at {len(ids)}"


def _found_by_key(base: Base) -> Iterator[str]:
    """Messages are found by their keys, in the directory or in the archive."""
    journal = base.journal("puts")
    places = {line["n"]: line["places"][0] for line in lines_of(journal) if "places" in line}
    numbers = sorted(places)[:: max(len(places) // _KEYS, 1)]
    with StoreReader.open(str(base.store), archive=base.archive_to_read) as reader:
        for number in numbers:
            found = [one.physical_offset for one in reader.query(PLAIN, f"puts-{number}", limit=4)]
            if found != [places[number][2]]:
                yield f"the key of puts {number}, which is at {places[number]}, leads to {found}"


def _known(base: Base) -> Iterator[str]:
    """The ledger has the newest transaction, and no half message that has ended is pending."""
    lines = list(lines_of(base.journal("transactions")))
    committed = max((line["n"] for line in lines if "committed" in line), default=0)
    begun = max((line["n"] for line in lines), default=0)
    with StoreReader.open(str(base.store)) as reader:
        versions = [one.batch.version for one in reader.batches() if one.batch.app_id == "transactions"]
        pending = {identity(one.message.body) for one in reader.pending_half_messages()}
    if (versions and not committed <= versions[0] <= begun) or (committed and not versions):
        yield f"the ledger has version {versions}; {committed} is committed, and {begun} begun"
    for name in ("halves", "remoting"):
        ended = {f"{name}/{line['n']}/" for line in lines_of(base.journal(name)) if "ended" in line}
        if wrong := ended & pending:
            yield f"pending half messages that have ended: {sorted(wrong)[:10]}"


def _same_order(
    copy: str, order: dict[tuple[str, int], list[str]], copied: dict[tuple[str, int], list[str]]
) -> Iterator[str]:
    for place, ids in order.items():
        found = copied.get(place, [])
        if found != ids:
            twice = [one for one, count in Counter(found).items() if count > 1]
            missing = sorted(set(ids) - set(found))
            yield f"{copy} {place}: {len(found)} of {len(ids)} rows, twice {twice[:5]}, missing {missing[:5]}"


def _healthy(path: Path) -> Iterator[str]:
    found = assess_store(path, deep=True)
    if found.lost or found.errors or found.verdict.value != "OK":
        yield f"doctor of {path.name}: {found.verdict} {found.lost} lost, {found.findings}"
    yield from (f"verify of {path.name}: {one}" for one in verify_store(path) if one.severity == "error")


def _archived(base: Base) -> Iterator[str]:
    """The archive is what it says, and has the log's bytes."""
    found = check_archive(base.archive_url, deep=True)
    if found.problems or found.gaps or found.start:
        yield f"the archive: {found}"
    restored = base.path("restored")
    restore_store(base.archive_url, restored)
    names = sorted(file.name for file in (base.store / "commitlog").iterdir() if file.name.isdigit())
    for name in names:
        copy = restored / "commitlog" / name
        if int(name) < found.stop and copy.read_bytes() != (base.store / "commitlog" / name).read_bytes():
            yield f"the archive has other bytes of {name}"
    if names and int(names[0]) > found.stop:
        yield f"the archive ends at {found.stop}, the log begins at {names[0]}"
    if names and int(names[0]) == 0:
        yield "retention has deleted nothing"


def _looked(base: Base) -> Iterator[str]:
    for line in lines_of(base.journal("watcher")):
        if "fault" in line:
            yield f"{line['look']}: {line['fault']}"


def _logged(base: Base) -> Iterator[str]:
    """No log has a traceback, or says that something failed in a way that is not expected."""
    for log in sorted(base.path("logs").glob("*.log")):
        text = log.read_text(errors="replace")
        for found in re.finditer(r"^.*(?:Traceback|panicked|Fatal Python error).*$", text, re.MULTILINE):
            shown = text[found.start() : found.end() + 1_500]
            if not (log.name == "spark.log" and "pyspark/daemon.py" in shown):  # a worker of a killed driver
                yield f"{log.name}: {shown}"
                break
