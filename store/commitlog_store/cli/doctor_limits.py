"""Limits of ``commitlog doctor``: lag of consumer groups, full disks, overdue delayed messages."""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import typer

from commitlog_store.cli.values import parse_seconds
from commitlog_store.columnar.columns import nearest_name
from commitlog_store.errors import CommitLogError, InvalidValue
from commitlog_store.files.limits import fullest_disk
from commitlog_store.files.store_paths import StorePaths

if TYPE_CHECKING:
    from commitlog_store.reader import StoreReader

# The greatest value that is not too much, by name.
Limits = dict[str, float]


@dataclass(frozen=True)
class Measured:
    """A value that has a limit. ``value`` is None where it cannot be found, and ``what`` says why, or what it is.

    ``at_least``: only a part of it is known, so the value may be above a limit that it does not exceed here.
    """

    name: str
    value: float | None
    what: str
    at_least: bool = False
    warn: float | None = None
    critical: float | None = None

    @property
    def is_critical(self) -> bool:
        """Whether the value is above its critical limit."""
        return self.value is not None and self.critical is not None and self.value > self.critical

    @property
    def is_above(self) -> bool:
        """Whether the value, as far as it is known, is above one of its limits."""
        limits = [one for one in (self.warn, self.critical) if one is not None]
        return self.value is not None and any(self.value > one for one in limits)

    @property
    def is_exceeded(self) -> bool:
        """Whether the value is above one of its limits, or not wholly known."""
        return (
            self.value is None
            or self.at_least
            or self.is_critical
            or (self.warn is not None and self.value > self.warn)
        )


@dataclass(frozen=True)
class StoreToMeasure:
    """What limits ask of a store: a reader of it, which is lent, and its fullest disk."""

    reader: Callable[[], AbstractContextManager[StoreReader]]
    fullest_disk: Callable[[], tuple[str, float]]

    @classmethod
    def of_directory(cls, paths: StorePaths) -> StoreToMeasure:
        """Opened when a limit needs it: a store that does not open has a disk."""

        def opened() -> StoreReader:
            from commitlog_store.reader import StoreReader

            return StoreReader.open(paths.root, store_path_commit_log=paths.elsewhere)

        return cls(opened, lambda: fullest_disk(paths.disks))

    @classmethod
    def of_reader(cls, reader: StoreReader) -> StoreToMeasure:
        """Of a store at a server."""
        return cls(lambda: contextlib.nullcontext(reader), lambda: reader.facts(assessed=False).fullest_disk)


def _lag(store: StoreToMeasure) -> Measured:
    """The lag of the group that is furthest behind, in messages, as far as the lags of groups are known."""
    with store.reader() as reader:
        rows = reader.groups()
    unknown = sorted({one.group for one in rows if one.lag is None})
    lags: Counter[str] = Counter()
    for one in rows:
        if one.lag is not None:
            lags[one.group] += one.lag
    not_known = f"lag is not known for {', '.join(unknown)}: 'groups lag' says why"
    if not lags:
        return Measured("lag", None, not_known) if unknown else Measured("lag", 0, "no consumer group has a position")
    group, lag = lags.most_common(1)[0]
    known = f"group {group} is {'at least ' if group in unknown else ''}{lag} messages behind"
    return Measured("lag", lag, f"{known}; {not_known}", at_least=True) if unknown else Measured("lag", lag, known)


def _disk(store: StoreToMeasure) -> Measured:
    """The used share of the fullest of the store's disks, 0 to 1."""
    path, used = store.fullest_disk()
    return Measured("disk", used, f"{used:.0%} of the disk of {path} is used")


def _overdue(store: StoreToMeasure) -> Measured:
    """For how many seconds the oldest overdue delayed message has been due."""
    now_ms = int(time.time() * 1000)
    with store.reader() as reader:
        late_ms, level = max(((one.overdue_ms(now_ms), one.level) for one in reader.delay_levels()), default=(0, 0))
    if not late_ms:
        return Measured("overdue", 0, "no delayed message is overdue")
    late_s = late_ms / 1000
    what = f"a message of delay level {level}" if level else "a timer message"
    return Measured("overdue", late_s, f"{what} has been due for {late_s:.0f} s")


LIMITS: dict[str, Callable[[StoreToMeasure], Measured]] = {"lag": _lag, "disk": _disk, "overdue": _overdue}


def complete_limit(incomplete: str) -> Iterator[str]:
    """The names of limits, for the shell's completion."""
    done, comma, last = incomplete.rpartition(",")
    yield from (f"{done}{comma}{name}=" for name in LIMITS if name.startswith(last))


def parse_limits(texts: Iterable[str]) -> Limits:
    """Limits as ``lag=100000,disk=0.85,overdue=60s``. ``InvalidValue``."""
    found: Limits = {}
    for part in (part.strip() for text in texts for part in text.split(",") if part.strip()):
        name, equals, value = part.partition("=")
        if name not in LIMITS or not equals:
            near = nearest_name(name, LIMITS)
            hint = f" Did you mean {near!r}?" if near and near != name else ""
            raise InvalidValue(
                f"{part!r} is not a limit: give lag=MESSAGES, disk=SHARE (0.85 or 85%) or overdue=TIME (60s, 5m), with "
                f"commas between.{hint}"
            )
        found[name] = _value(name, value)
    return found


def _value(name: str, text: str) -> float:
    if name == "lag" and text.isascii() and text.isdigit():
        return int(text)
    if name == "overdue":
        with contextlib.suppress(typer.BadParameter):
            return parse_seconds(text)
    if name == "disk" and re.fullmatch(r"[0-9]+(\.[0-9]+)?%?", text):
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        if 0 <= share <= 1:
            return share
    wanted = {"lag": "a number of messages", "disk": "a share, 0.85 or 85%", "overdue": "a time such as 60s, 5m, 1h30m"}
    raise InvalidValue(f"{name}={text}: expected {wanted[name]}.")


def measure(store: StoreToMeasure, warn: Limits, critical: Limits) -> list[Measured]:
    """Find the values of all that have a limit, and no others: some take a look at every queue."""
    measured: list[Measured] = []
    for name, find in LIMITS.items():
        if name in warn or name in critical:
            try:
                found = find(store)
            except (CommitLogError, OSError) as error:
                found = Measured(name, None, f"{name} is not known: {error}")
            measured.append(replace(found, warn=warn.get(name), critical=critical.get(name)))
    return measured
