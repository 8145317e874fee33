"""View: a page, and the part of it that changes while it is looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from commitlog_store.decoders.topic_decoders import TopicDecoders
from commitlog_store.groups.positions import GroupPosition, group_positions
from commitlog_store.metadata import AllBounds, all_bounds
from commitlog_store.reader import OnDamage, StoreReader
from commitlog_store.retention.survey import LogFiles, log_files
from commitlog_store.serve.connection_counts import GroupClients
from commitlog_store.serve.http.pages.known_numbers import KnownSizes, KnownTimes
from commitlog_store.serve.http.pages.latest_answer import LatestAnswer
from commitlog_store.serve.verification import Verification
from commitlog_store.store import MessageStore
from commitlog_store.verify.assessment import Assessment

Values = dict[str, Any]


class SharedAnswers:
    """The long questions about one store."""

    def __init__(self) -> None:
        self.times = KnownTimes()
        self.sizes = KnownSizes()
        self.bounds: LatestAnswer[AllBounds] = LatestAnswer(all_bounds, changes_with_queues_only=True)
        self.topic_sizes: LatestAnswer[dict[str, int]] = LatestAnswer(self._topic_sizes)
        # The first record of each file is read for its time.
        self.log_files: LatestAnswer[LogFiles] = LatestAnswer(lambda reader: log_files(reader.paths))
        self.groups: LatestAnswer[list[GroupPosition]] = LatestAnswer(self._groups)
        # The quick one. It asks for the ends of all queues, and nothing but damage changes it.
        self.assessment: LatestAnswer[Assessment | None] = LatestAnswer(
            lambda reader: reader.facts().assessment, least_age_s=60.0
        )

    def _topic_sizes(self, reader: StoreReader) -> dict[str, int]:
        """About how many bytes the messages of each topic have, as ``KnownSizes`` has them."""
        bounds = self.bounds.of(reader)
        found = dict.fromkeys(bounds.queues, 0)
        unknown = {topic for topic, _ in bounds.queue_errors}
        infos = [info for info in bounds.infos.values() if info.min_offset < info.max_offset]
        for info, size in zip(infos, self.sizes.of(reader, infos), strict=True):
            if size is None:
                unknown.add(info.topic)
            else:
                found[info.topic] = found.get(info.topic, 0) + size
        return {topic: size for topic, size in found.items() if topic not in unknown}

    def _groups(self, reader: StoreReader) -> list[GroupPosition]:
        """``StoreReader.groups``."""
        now_ms, times = time.time_ns() // 1_000_000, partial(self.times.of, reader)
        return reader.consistently(lambda: group_positions(reader, now_ms, times=times))


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a visitor asks for: parameters of the path and of the query, each once.

    ``before`` is what the last look of the same stream gave, None for the first one; ``now`` is monotonic, in seconds.
    """

    names: Mapping[str, str]
    query: Mapping[str, str]
    shared: SharedAnswers
    owned: MessageStore | None
    group_clients: GroupClients
    decoders: TopicDecoders
    verification: Verification
    now: float
    before: Values | None = None

    def text(self, name: str) -> str:
        return self.query.get(name, "").strip()

    def number(self, name: str, default: int, *, least: int, most: int) -> int:
        """A parameter as a number in these bounds; ``default`` for what is none."""
        given = self.text(name)
        found = int(given) if given.isascii() and given.isdigit() and len(given) < 10 else default
        return min(max(found, least), most)


@dataclass(frozen=True, kw_only=True)
class View:
    """``look`` gives the values for the templates ``NAME.html`` and, of a page that changes, ``parts/NAME.html``.

    It runs in a thread. ``is_live``: the part is sent again while a visitor looks at the page.
    ``on_damage`` is that of the reader.
    """

    name: str
    path: str
    look: Callable[[StoreReader, Asked], Values]
    is_live: bool = True
    on_damage: OnDamage = "raise"


@dataclass(frozen=True)
class Paging:
    """One of the pages of a long list."""

    page: int
    pages: int
    total: int
    start: int
    stop: int
    query: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, asked: Asked, total: int, rows: int) -> Paging:
        pages = max((total + rows - 1) // rows, 1)
        page = asked.number("page", 1, least=1, most=pages)
        return cls(page, pages, total, (page - 1) * rows, min(page * rows, total), dict(asked.query))
