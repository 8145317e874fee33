"""Output of ``commitlog verify``."""

from __future__ import annotations

from typing import Any

from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from commitlog_store.cli.console import print_table, uncut_console
from commitlog_store.cli.doctor import known_loss, opening_text, topic_members
from commitlog_store.cli.render import camel_members, json_text
from commitlog_store.cli.topic_table import topic_table
from commitlog_store.queries.texts import counted, printable_text
from commitlog_store.verify.assessment import Assessment, Verdict

# Lost offsets, any number of ranges, are not a column of CSV.
TOPIC_COLUMNS = ("topic", "found", "lost", "prepared", "rolledBack", "unreadable")
_FIRST_NUMBERS, _LAST_NUMBERS = ("found", "lost"), ("prepared", "rolled_back")
_STYLES = {"error": "red", "note": "yellow"}


def print_report(found: Assessment, *, as_json: bool, with_topics: bool = False) -> None:
    """Print the findings: tables and one line for people, one object for programs.

    The table of topics is for a store that has lost something, or for ``with_topics``. Programs always get it.
    """
    if as_json:
        print(json_text(_to_json(found)))
        return
    console = uncut_console()
    console.print(Text(printable_text(found.path), style="bold"))
    if found.verdict is not Verdict.OK:
        console.print(Text(f"verdict {found.verdict.value}: {known_loss(found, ' messages')}", style="red"))
        if found.opening.refusal is None:  # else it is a finding
            console.print(Text(f"opening {printable_text(opening_text(found))}"))
    if found.aborted:
        console.print(
            Text("abort file present: an owner runs, or it stopped without closing the store", style="yellow")
        )
    if found.findings:
        _print_findings(found)
    if with_topics or found.lost:
        unreadable = ("unreadable",) if found.unreadable else ()
        print_table(topic_table(found.topics, (*_FIRST_NUMBERS, *unreadable, *_LAST_NUMBERS)))
    for command in found.next_steps:
        console.print(Text(f"next: {printable_text(command)}"))
    console.print(_summary(found))


def _print_findings(found: Assessment) -> None:
    table = Table("severity", "check", "file", "byte", "finding", box=None, pad_edge=False)
    for finding in found.findings:
        path = finding.path.removeprefix(found.path + "/")
        table.add_row(
            Text(finding.severity, style=_STYLES[finding.severity]),
            finding.check,
            Text(printable_text(path)),
            "-" if finding.offset is None else str(finding.offset),
            Text(printable_text(finding.message)),
        )
    print_table(table)


def _summary(found: Assessment) -> Text:
    report = found.verification
    assert report is not None, "a deep assessment"
    looked_at = (
        f"{report.records} records, {decimal(report.bytes)}, {found.queues} queues and {found.index_files} index "
        f"files verified in {found.seconds:.1f} s: "
    )
    errors, notes, lost = found.errors, len(found.findings) - found.errors, found.lost
    if not found.findings and not lost:
        return Text(looked_at + "all is well")
    counts = [counted(errors, "error", none="no")] if errors or not lost else []
    counts += [counted(notes, "note", none="no"), *([f"{counted(lost, 'message')} lost"] if lost else [])]
    return Text(looked_at + ", ".join(counts), style="red" if errors or lost else "")


def _to_json(found: Assessment) -> dict[str, Any]:
    findings, report = [camel_members(one) for one in found.findings], found.verification
    assert report is not None, "a deep assessment"
    return {
        "path": found.path,
        "verdict": found.verdict.value,
        "aborted": found.aborted,
        "records": report.records,
        "bytes": report.bytes,
        "queues": found.queues,
        "indexFiles": found.index_files,
        "seconds": round(found.seconds, 3),
        "found": found.found,
        "lost": found.lost,
        "unreadable": found.unreadable,
        "topics": [topic_members(topic) for topic in found.topics],
        "findings": findings,
        "nextSteps": found.next_steps,
    }
