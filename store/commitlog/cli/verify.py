"""Output of ``commitlog verify``."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from commitlog.cli.render import json_text, printable_text, uncut_console
from commitlog.cli.summary import camel_members
from commitlog.verify.store import VerificationReport

__all__ = ["print_report"]

_STYLES = {"error": "red", "note": "yellow"}


def print_report(report: VerificationReport, *, as_json: bool) -> None:
    """Print the findings: a table and one line for people, one object for programs."""
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
        _print_findings(console, report)
    console.print(_summary(report))


def _print_findings(console: Console, report: VerificationReport) -> None:
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
    console.print(table)


def _summary(report: VerificationReport) -> Text:
    looked_at = (
        f"{report.records} records, {decimal(report.bytes)}, {report.queues} queues and {report.index_files} index "
        f"files verified in {report.seconds:.1f} s: "
    )
    errors, notes = report.errors, len(report.findings) - report.errors
    if not report.findings:
        return Text(looked_at + "all is well")
    return Text(f"{looked_at}{_count(errors, 'error')}, {_count(notes, 'note')}", style="red" if errors else "")


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
        "findings": findings,
    }
