"""The long runs of ``make stress``: their order, a log of their progress, and at the end what each has counted.

The log is the file that ``STRESS_LOG`` names, which all of pytest's workers append to: a line for each new count, such
as the kills of a test so far, and one for the end of each test. Without ``STRESS_LOG`` nothing is logged.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import pytest

_T = TypeVar("_T")

# Of its campaigns, which differ by a seed or by where something happens, a run does this part, in some 90 minutes.
# ``make stress PART=1`` does all, in many hours. Seeds, and where a file system fails, are others each day in turn; a
# sweep over all operations of a call takes every fifth one from its first on.
PART = float(os.environ.get("STRESS_PART", "0.2"))
ONE_IN = max(round(1 / PART), 1)
TURN = int(os.environ.setdefault("STRESS_TURN", str(datetime.now(UTC).toordinal()))) % ONE_IN
_CAMPAIGNS = ("seed", "chunk", "run")
# A limit that only a run that hangs should meet.
LONG_RUN_S = 7200
# A test that took less is not in the log unless it failed.
_LOGGED_S = 5.0

# Two workers get what uses Spark, about as much each, as in ``sharing_out``.
_DEATHS = tuple(
    f"tests/connector/sink_failures/test_{name}" for name in ("driver", "disk", "several_writers", "served")
)
_KILLS = (
    *(f"tests/connector/sink_failures/test_{name}" for name in ("kill", "racing_drivers", "tasks")),
    "tests/connector/cluster/",
    "tests/cluster/",
    "tests/connector/sink/",
    "tests/connector/source/test_spark_crash",
    "tests/connector/test_both_formats",
    "tests/damage_table/test_spark",
    "tests/examples/",
)
# The longest of the others.
_LONG = (
    "tests/store/damage/",
    "tests/crash_kill/test_replication",
    "tests/store/follower/",
    "tests/store/columnar/test_scan",
    "tests/crash/test_cleaning",
    "tests/model/",
    "tests/interop/",
)


def share_of(nodeid: str) -> str:
    """What a test is run together with, by one worker: most are alone."""
    if nodeid.startswith(_DEATHS):
        return "Spark: deaths in a commit"
    return "Spark: killed drivers, and programs" if nodeid.startswith(_KILLS) else nodeid


def place_of(nodeid: str) -> int:
    """What the tests are sorted by: the longest first, the others as they were collected."""
    order = (*_DEATHS, *_KILLS, *_LONG)
    return next((place for place, prefix in enumerate(order) if nodeid.startswith(prefix)), len(order))


def part_of(count: int, *, least: int = 1) -> int:
    """How many of a campaign's ``count`` a run does."""
    return min(count, max(round(count * PART), least))


def some_of(all_of_them: Sequence[_T]) -> Sequence[_T]:
    """Those that a run takes of a campaign's cases: one in ``ONE_IN``, today's."""
    return all_of_them[TURN % len(all_of_them) :: ONE_IN]


def todays(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests of today, and the campaigns of ``make stress`` that are for other days."""
    sizes: dict[str, int] = {}
    for item in items:
        name, number = _campaign(item)
        sizes[name] = max(sizes.get(name, 0), number + 1)
    chosen: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        name, number = _campaign(item)
        step = min(ONE_IN, sizes[name])
        is_chosen = not name or number % step == TURN % step
        (chosen if is_chosen else others).append(item)
    return chosen, others


def _campaign(item: pytest.Item) -> tuple[str, int]:
    """The test function, and which of its campaigns the test is; an empty name for what is not one of several."""
    indices = getattr(getattr(item, "callspec", None), "indices", {})
    if item.get_closest_marker("stress"):
        for name in _CAMPAIGNS:
            if name in indices:
                return item.nodeid.partition("[")[0], indices[name]
    return "", 0


class Progress:
    """Counts of a test: they go to the log as they grow, and with the test's report to the summary."""

    def __init__(self, test: pytest.Item) -> None:
        self._test = test

    def count(self, what: str, so_far: int) -> None:
        """``so_far`` of them by now, such as ``count("driver kills", 12)``."""
        properties = self._test.user_properties
        properties[:] = [*((name, value) for name, value in properties if name != what), (what, so_far)]
        _log(f"{so_far} {what}", self._test.nodeid)


def log_end(report: pytest.TestReport) -> None:
    """A line for the end of a test, by the process that ran it, and why it failed: pytest says so hours later."""
    over = report.when == "call" or not report.passed
    if over and not hasattr(report, "node") and (report.failed or report.duration >= _LOGGED_S):
        _log(f"{report.outcome} after {report.duration:.0f} s{_counted(report)}", report.nodeid, report.longreprtext)


def write_summary(reporter: pytest.TerminalReporter) -> None:
    """What each test has counted, and the sums."""
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in reporter.getreports(outcome)
        if report.when == "call" and report.user_properties
    ]
    if not reports:
        return
    reporter.write_sep("=", "what long runs did")
    sums: Counter[str] = Counter()
    for report in reports:
        reporter.write_line(f"{report.duration:7.0f} s  {report.nodeid}{_counted(report)}")
        sums.update(dict(_counts(report)))
    reporter.write_line(f"in all: {', '.join(f'{number} {what}' for what, number in sorted(sums.items()))}")


def _counts(report: pytest.TestReport) -> Iterable[tuple[str, int]]:
    return ((name, value) for name, value in report.user_properties if isinstance(value, int))


def _counted(report: pytest.TestReport) -> str:
    return "".join(f", {number} {what}" for what, number in _counts(report))


def _log(what: str, test: str, why: str = "") -> None:
    path = os.environ.get("STRESS_LOG")
    if path:
        with open(path, "a") as stream:
            stream.write(f"{time.strftime('%H:%M:%S')} {what}: {test}\n{why and why + chr(10)}")
