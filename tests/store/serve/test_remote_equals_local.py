"""For generated stores, damage, ranges, columns and filters, a remote read equals the local read.

Wherever the filter is evaluated: at the reader, or at the server.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog_store import MessageFilter, OnDamage, StoreReader
from commitlog_store.columnar.columns import ALL_COLUMNS
from commitlog_store.errors import CommitLogError
from tests.store.serve.servers import served
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder

TOPICS = ("orders", "audit")
TAGS = ("a", "b", "c")
FILTERS: list[dict[str, Any]] = [
    {},
    {"tags": "a"},
    {"tags": "a || c", "filter": "amount > 5"},
    {"filter": "amount BETWEEN 3 AND 4 OR TAGS = 'b'"},
    {"filter": "amount IS NULL"},
    {"keys": ["k1", "k4"]},
    {"keys": ["k2"], "filter": "amount < 7"},
]
COLUMNS = st.one_of(
    st.just(tuple(ALL_COLUMNS)),
    st.lists(st.sampled_from(sorted(ALL_COLUMNS)), unique=True, max_size=4).map(tuple),
    st.just(("queueOffset", "body")),
)


@dataclass(frozen=True)
class Damage:
    """What is done to one of a store's files, which ``place`` chooses together with the place in it."""

    kind: str
    place: float

    def do(self, store: Path) -> None:
        part = "consumequeue" if self.kind.endswith("unit") or self.kind == "lose queue file" else "commitlog"
        files = sorted(one for one in (store / part).rglob("*") if one.is_file())
        if not files:
            return
        file = files[int(self.place * len(files))]
        used = len(file.read_bytes().rstrip(b"\0"))
        at = int(self.place * 997 % 1 * max(used, 1))
        if self.kind.startswith("lose"):
            file.unlink()
        elif self.kind == "cut log file":
            with file.open("r+b") as stream:
                stream.truncate(at)
        else:
            size = {"flip byte": 1, "zero log": 200, "zero unit": 20, "wild unit": 8}[self.kind]
            at -= at % 20 if self.kind.endswith("unit") else 0
            with file.open("r+b") as stream:
                stream.seek(at)
                before = stream.read(size)
                stream.seek(at)
                changed = {"flip byte": bytes(255 - one for one in before), "wild unit": b"\x7f" * len(before)}
                stream.write(changed.get(self.kind, bytes(len(before))))


DAMAGE = st.lists(
    st.builds(
        Damage,
        st.sampled_from(
            ["flip byte", "zero log", "zero unit", "wild unit", "cut log file", "lose log file", "lose queue file"]
        ),
        st.floats(0, 1, exclude_max=True),
    ),
    max_size=2,
)


@dataclass(frozen=True)
class Look:
    """A part of every queue, by fractions, read with these options."""

    begin: float
    end: float
    columns: tuple[str, ...]
    chosen: dict[str, Any]
    rows: int
    verify_crc: bool

    def range_of(self, low: int, high: int) -> tuple[int, int]:
        places = sorted((self.begin, self.end))
        return low + round(places[0] * (high - low)), low + round(places[1] * (high - low))


LOOKS = st.builds(
    Look,
    st.floats(0, 1),
    st.floats(0, 1),
    COLUMNS,
    st.sampled_from(FILTERS),
    st.sampled_from([3, 50, 10_000]),
    st.booleans(),
)
# Messages of each append: topic, queues, how many, bytes of a body.
APPENDS = st.lists(
    st.tuples(st.sampled_from(TOPICS), st.integers(1, 4), st.integers(1, 40), st.integers(0, 600)),
    min_size=1,
    max_size=5,
)


def _build(path: Path, appends: Sequence[tuple[str, int, int, int]], damage: Sequence[Damage]) -> None:
    if path.exists():
        shutil.rmtree(path)
    builder = StoreBuilder(path, log_file_size=8 << 10, queue_file_units=25)
    number = 0
    for topic, queues, count, size in appends:
        numbers = range(number, number + count)
        builder.append(
            topic,
            list(range(queues)),
            [b"%d" % one * (size // 4) for one in numbers],
            tags=[TAGS[one % 3] for one in numbers],
            keys=[f"k{one % 6}" for one in numbers],
            more=[f"amount\x01{one % 9}\x02" if one % 5 else "" for one in numbers],
        )
        number += count
    for one in damage:
        one.do(path)


def _plain(value: Any, path: Path, url: str) -> Any:
    """Without the address: errors of both name the same files."""
    return re.sub(re.escape(url), str(path), value) if isinstance(value, str) else value


def _said(ask: Any, path: Path, url: str) -> Any:
    """The answer, or the error: its class, text and fields."""
    try:
        return ask()
    except CommitLogError as error:
        fields = {name: _plain(str(value), path, url) for name, value in vars(error).items()}
        return type(error).__name__, _plain(str(error), path, url), fields


def _rows(batches: Any, path: Path, url: str) -> list[Any]:
    """The rows, then how the read ended, and its position."""
    found: list[Any] = []

    def read() -> str:
        for batch in batches:
            found.extend(batch.to_pylist() if batch.num_columns else [batch.num_rows])
        return "end"

    found.append(_said(read, path, url))
    return [*found, getattr(batches, "position", None), getattr(batches, "positions", None)]


def _answers(reader: StoreReader, look: Look, path: Path, url: str) -> Iterator[tuple[str, Any]]:
    """What a reader gives for a look, each answer with its name."""
    wanted = MessageFilter.parse(**look.chosen)
    infos = []
    for topic in reader.topics():
        for queue_id in reader.queue_ids(topic):
            info = _said(lambda place=(topic, queue_id): reader.queue_info(*place), path, url)
            yield f"bounds of {topic} {queue_id}", info
            if not isinstance(info, tuple):
                infos.append(info)
    ranges = [(one.topic, one.queue_id, *look.range_of(one.min_offset, one.max_offset)) for one in infos]
    options: dict[str, Any] = {"columns": look.columns, "filter": wanted, "verify_crc": look.verify_crc}
    for one in ranges:
        batches = reader.read(*one, max_batch_rows=look.rows, **options)
        yield f"read of {one}", _rows(batches, path, url)
        yield (
            f"units of {one}",
            _said(lambda one=one: b"".join(part.tobytes() for part in reader.units(*one)), path, url),
        )
    yield "read together", _said(lambda: _together(reader, ranges, options), path, url)
    for topic in sorted({one[0] for one in ranges}):
        its = [one for one in ranges if one[0] == topic]
        yield f"side by side of {topic}", _rows(reader.read_side_by_side(its, **options), path, url)
    yield "skipped", reader.skipped
    yield from _plural_answers(reader, infos, ranges, path, url)


def _together(reader: StoreReader, ranges: list[tuple[str, int, int, int]], options: dict[str, Any]) -> Any:
    batches = reader.read_together(ranges, **options)
    return None if batches is None else [batch.to_pylist() or batch.num_rows for batch in batches]


def _plural_answers(
    reader: StoreReader, infos: list[Any], ranges: list[tuple[str, int, int, int]], path: Path, url: str
) -> Iterator[tuple[str, Any]]:
    """What is asked about all queues at once."""

    def each(answers: Sequence[Any]) -> list[Any]:
        return [
            (type(one).__name__, _plain(str(one), path, url)) if isinstance(one, CommitLogError) else one
            for one in answers
        ]

    starts = [one[:3] for one in ranges]
    middle = FIRST_STORE_TIME + 20
    yield "fences", _said(lambda: reader.fences(starts), path, url)
    yield "times", each(reader.store_timestamps(starts))
    yield "offsets by time", each(reader.offsets_by_time([(one, middle) for one in infos]))
    yield "ids", each(reader.queue_ids_of([*TOPICS, "nowhere"]))
    places = [(topic, queue_id, 1000, start, stop) for topic, queue_id, start, stop in ranges]
    yield "places", _said(lambda: reader.first_offsets_from(places), path, url)
    units = _said(lambda: [(number, part.tobytes()) for number, part in reader.units_of(ranges)], path, url)
    if isinstance(units, list):  # arrays may be cut at other places
        units = {number: b"".join(part for one, part in units if one == number) for number, _ in units}
    yield "units of all", units


# A server for each example: a third of a second.
@settings(max_examples=max(settings().max_examples // 5, 1))
@pytest.mark.parametrize("on_damage", ["raise", "skip", "skip-records"])
@given(appends=APPENDS, damage=DAMAGE, look=LOOKS)
def test_a_remote_read_equals_the_local_read(
    tmp_path: Path, on_damage: OnDamage, appends: Any, damage: list[Damage], look: Look
) -> None:
    path = tmp_path / "store"
    _build(path, appends, damage)
    with served(path) as url:
        answers: list[Any] = []
        for place, filter_at in ((str(path), "reader"), (url, "reader"), (url, "server")):
            opened = _said(
                lambda place=place, at=filter_at: StoreReader.open(place, on_damage=on_damage, filter_at=at), path, url
            )
            if isinstance(opened, tuple):
                answers.append(opened)
                continue
            with opened as reader:
                answers.append(dict(_answers(reader, look, path, url)))
        if isinstance(answers[0], dict):
            for name, expected in answers[0].items():
                assert answers[1][name] == expected, name
                assert answers[2][name] == expected, name
        assert answers[0] == answers[1] == answers[2]
