"""Output of ``commitlog verify``."""

from __future__ import annotations

from typing import Any

from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from commitlog.cli.console import print_table, uncut_console
from commitlog.cli.render import json_text, printable_text
from commitlog.cli.summary import camel_members
from commitlog.cli.topic_table import topic_table
from commitlog.verify.store import VerificationReport

__all__ = ["TOPIC_COLUMNS", "lost_messages", "print_report", "topic_rows"]

# Lost offsets, any number of ranges, are not a column of CSV.
TOPIC_COLUMNS = ("topic", "found", "lost", "prepared", "rolledBack")
_NUMBERS = ("found", "lost", "prepared", "rolled_back")
_OFFSET_FIELDS = ("queueId", "start", "stop")
_STYLES = {"error": "red", "note": "yellow"}


def print_report(report: VerificationReport, *, as_json: bool, with_topics: bool = False) -> None:
    """Print the findings: tables and one line for people, one object for programs.

    The table of topics is for a store that has lost something, or for ``with_topics``. Programs always get it.
    """
    if as_json:
        print(json_text(_to_json(report)))
        return
    console = uncut_console()
    console.print(Text(printable_text(report.path), style="bold"))
    if report.aborted:
        console.print(
            Text("abort file present: an owner runs, or it stopped without closing the store", style="yellow")
        )
    if report.findings:
        _print_findings(report)
    if with_topics or lost_messages(report):
        print_table(topic_table(report.topics, _NUMBERS))
    console.print(_summary(report))


def _print_findings(report: VerificationReport) -> None:
    table = Table("severity", "check", "file", "byte", "finding", box=None, pad_edge=False)
    for finding in report.findings:
        path = finding.path.removeprefix(report.path + "/")
        table.add_row(
            Text(finding.severity, style=_STYLES[finding.severity]),
            finding.check,
            Text(printable_text(path)),
            "-" if finding.offset is None else str(finding.offset),
            Text(printable_text(finding.message)),
        )
    print_table(table)


def lost_messages(report: VerificationReport) -> int:
    """The number of messages that are lost, or that opening the store would cut off."""
    return sum(topic.lost for topic in report.topics)


def topic_rows(report: VerificationReport) -> list[dict[str, Any]]:
    """A row for each topic, for programs; ``lostOffsets`` are the ranges ``[start, stop)`` of each queue."""
    return [
        camel_members(topic)
        | {"lostOffsets": [dict(zip(_OFFSET_FIELDS, lost, strict=True)) for lost in topic.lost_offsets]}
        for topic in report.topics
    ]


def _summary(report: VerificationReport) -> Text:
    looked_at = (
        f"{report.records} records, {decimal(report.bytes)}, {report.queues} queues and {report.index_files} index "
        f"files verified in {report.seconds:.1f} s: "
    )
    errors, notes, lost = report.errors, len(report.findings) - report.errors, lost_messages(report)
    if not report.findings and not lost:
        return Text(looked_at + "all is well")
    counts = [_count(errors, "error")] if errors or not lost else []
    counts += [_count(notes, "note"), *([f"{_count(lost, 'message')} lost"] if lost else [])]
    return Text(looked_at + ", ".join(counts), style="red" if errors or lost else "")


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _to_json(report: VerificationReport) -> dict[str, Any]:
    findings = [camel_members(one) for one in report.findings]
    return {
        "path": report.path,
        "aborted": report.aborted,
        "records": report.records,
        "bytes": report.bytes,
        "queues": report.queues,
        "indexFiles": report.index_files,
        "seconds": round(report.seconds, 3),
        "lost": lost_messages(report),
        "topics": topic_rows(report),
        "findings": findings,
    }
