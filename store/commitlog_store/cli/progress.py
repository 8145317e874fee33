"""Progress bar on stderr, for work that may take long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal


@contextmanager
def progress_bar(label: str, *, counts: Literal["bytes", "messages"] = "bytes") -> Iterator[Callable[[int, int], None]]:
    """A callback for bytes (or messages) done and in all. The bar shows with its first call, on a terminal only."""
    if not _stderr_is_terminal():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    done = (DownloadColumn(), TransferSpeedColumn()) if counts == "bytes" else (MofNCompleteColumn(),)
    columns = (TextColumn(label), BarColumn(), *done, TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(label)

    def show(done: int, total: int) -> None:
        bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        bar.stop()


@contextmanager
def count_bar(label: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A callback for the number of messages done since the last call.

    The bar shows on stderr when that is a terminal and stdout is not, nor stdin: messages are not printed or typed
    between. Without a total, which is not known before the end of an input, it shows the number alone.
    """
    other_use = sys.stdin is not None and sys.stdin.isatty() if total is None else sys.stdout.isatty()
    if other_use or not _stderr_is_terminal():
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)


def _stderr_is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
