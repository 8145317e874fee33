"""The long runs of ``make stress``: their order, a log of their progress, and at the end what each has counted.

The log is the file that ``STRESS_LOG`` names, which all of pytest's workers append to: a line for each new count, such
as the kills of a test so far, and one for the end of each test. Without ``STRESS_LOG`` nothing is logged.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable

import pytest

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
