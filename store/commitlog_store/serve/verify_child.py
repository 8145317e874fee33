"""The program of a process that verifies a store: ``python -m commitlog_store.serve.verify_child PATH LOG [whole]``.

It has the lowest priority, and pauses for as long as it works. ``LOG`` is the directory of the log, empty where that is
in the store's. Lines of JSON with printable texts go to stdout: ``Progressed`` each half second, then one ``Verified``
or ``VerifyFailed``; with ``whole``, for a client, ``WholeAssessment`` comes before ``Verified``.
"""

from __future__ import annotations

import os
import sys
import time

import msgspec

from commitlog_store.errors import CommitLogError
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.progress import Progress
from commitlog_store.remote.wire import encode_error, encode_printable, printable
from commitlog_store.verify.assessment import Assessment, assessment_of
from commitlog_store.verify.findings import Finding, Findings
from commitlog_store.verify.store import verification_report
from commitlog_store.verify.store_facts import shown_settings

MOST_FINDINGS = 500
# Bytes of an assessment that a server keeps for its client.
MOST_SENT = 64 << 20
_REPORT_S = 0.5
_LONGEST_PAUSE_S = 1.0
_LOWEST_PRIORITY = 19


class Count(msgspec.Struct):
    """How many findings a check has."""

    check: str
    severity: str
    count: int


class Progressed(msgspec.Struct, tag="progress"):
    """Bytes of the log, those that were verified and at most all, and the findings so far."""

    done: int
    total: int
    counts: list[Count]


class WholeAssessment(msgspec.Struct, tag="whole"):
    """All of it, as a client gets it (``wire.encode_printable``). There is none of more than ``MOST_SENT`` bytes."""

    encoded: bytes


class Verified(msgspec.Struct, tag="verified"):
    """The assessment, with the first ``MOST_FINDINGS`` findings; ``counts`` has all. ``seconds`` include the pauses."""

    verdict: str
    opening: str
    log_start: int
    log_end: int
    records: int
    queues: int
    index_files: int
    seconds: float
    lost: int
    unreadable: int
    counts: list[Count]
    findings: list[Finding]
    next_steps: list[str]


class VerifyFailed(msgspec.Struct, tag="failed"):
    """Why the store could not be verified: in words, and as the error itself (``wire.encode_error``)."""

    problem: str
    error: bytes


Line = Progressed | WholeAssessment | Verified | VerifyFailed


def main() -> None:
    path, commit_log, *wanted = sys.argv[1:]
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.nice(_LOWEST_PRIORITY)
    findings = Findings()

    def send(line: Line) -> None:
        target.write(msgspec.json.encode(printable(line)) + b"\n")
        target.flush()

    try:
        report = verification_report(
            path,
            config=shown_settings(StorePaths.of(path, commit_log or None)),
            progress=_pausing(lambda done, total: send(Progressed(done, total, _counts(findings)))),
            findings=findings,
        )
        found = assessment_of(report)
        if "whole" in wanted and len(whole := encode_printable(found)) <= MOST_SENT:
            send(WholeAssessment(whole))
        send(_verified(found, findings))
    except CommitLogError as error:
        send(VerifyFailed(str(error), encode_error(error)))
    except BrokenPipeError:  # the server has ended
        os._exit(1)


def _pausing(report: Progress) -> Progress:
    """A progress that reports now and then, and pauses for as long as the work since the last pause took."""
    worked_since = reported = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal worked_since, reported
        now = time.monotonic()
        if now - reported >= _REPORT_S:
            report(done, total)
            reported = now
        time.sleep(min(now - worked_since, _LONGEST_PAUSE_S))
        worked_since = time.monotonic()

    return progress


def _verified(found: Assessment, findings: Findings) -> Verified:
    assert found.verification is not None, "a deep assessment"
    return Verified(
        verdict=found.verdict.value,
        opening=found.opening.reason,
        log_start=found.log_start,
        log_end=found.log_end,
        records=found.verification.records,
        queues=found.queues,
        index_files=found.index_files,
        seconds=found.seconds,
        lost=found.lost,
        unreadable=found.unreadable,
        counts=_counts(findings),
        findings=list(found.findings[:MOST_FINDINGS]),
        next_steps=found.next_steps,
    )


def _counts(findings: Findings) -> list[Count]:
    return [Count(*one) for one in findings.counts()]


if __name__ == "__main__":
    main()
