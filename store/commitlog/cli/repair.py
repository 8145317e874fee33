"""``commitlog repair``: runs ``repair_store`` and prints its report."""

from __future__ import annotations

import shlex
from typing import Any

from rich.table import Table
from rich.text import Text

from commitlog.cli.owner_config import owner_config
from commitlog.cli.progress import progress_bar
from commitlog.cli.render import json_text, printable_text, uncut_console
from commitlog.repair import RepairReport, repair_store

__all__ = ["print_repair", "repair"]


def repair(path: str, cut_at: int | None, lock_timeout_s: float) -> RepairReport:
    """Look, or cut. Raises the errors of ``repair_store``."""
    with progress_bar("recovering") as progress:
        return repair_store(
            path, cut_at=cut_at, config=owner_config(path), lock_timeout_s=lock_timeout_s, progress=progress
        )


def print_repair(report: RepairReport, *, as_json: bool) -> None:
    """Print the damage, and the messages that a cut removes: text for people, one object for programs."""
    if as_json:
        print(json_text(_to_json(report)))
        return
    console = uncut_console()
    path = printable_text(report.path)
    if report.damage is None:
        console.print(Text(f"{path} opens: nothing to repair"))
        return
    count = sum(one.messages for one in report.lost)
    messages = f"{count} message{'' if count == 1 else 's'}"
    if report.kept_in is not None:
        console.print(Text(f"The log ends at physical offset {report.damage.cut_at} now, and the store opens."))
        console.print(Text(f"{messages} removed, kept in {printable_text(report.kept_in)}:"))
        _print_lost(report)
        return
    console.print(Text(f"{path} does not open:", style="bold"))
    console.print(Text(printable_text(str(report.damage))))
    console.print(Text(f"Besides the damage, a cut removes {messages} that begin there or after it and are whole:"))
    _print_lost(report)
    console.print(Text("Restore the file if a copy of it exists. To end the log there instead (a copy is kept):"))
    console.print(Text(f"  commitlog repair {shlex.quote(report.path)} --cut-at {report.damage.cut_at}"))


def _print_lost(report: RepairReport) -> None:
    table = Table("topic", "queue", "from offset", "to offset", "messages", box=None, pad_edge=False)
    for one in report.lost:
        table.add_row(
            Text(printable_text(one.topic)), str(one.queue_id), str(one.start), str(one.stop - 1), str(one.messages)
        )
    uncut_console().print(table)


def _to_json(report: RepairReport) -> dict[str, Any]:
    damage = report.damage
    return {
        "path": report.path,
        "opens": damage is None or report.kept_in is not None,
        "damage": None if damage is None else str(damage),
        "cutAt": None if damage is None else damage.cut_at,
        "keptIn": report.kept_in,
        "lost": [dict(zip(("topic", "queueId", "start", "stop", "messages"), one, strict=True)) for one in report.lost],
    }
