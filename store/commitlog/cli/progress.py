"""Progress bar on stderr, for work that may take long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

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

__all__ = ["count_bar", "progress_bar"]


@contextmanager
def progress_bar(label: str, *, counts: Literal["bytes", "messages"] = "bytes") -> Iterator[Callable[[int, int], None]]:
    """A callback for bytes (or messages) done and in all. The bar shows with its first call, on a terminal only."""
    console = Console(stderr=True)
    done = (DownloadColumn(), TransferSpeedColumn()) if counts == "bytes" else (MofNCompleteColumn(),)
    columns = (TextColumn(label), BarColumn(), *done, TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
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
    console = Console(stderr=True)
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    other_use = sys.stdin is not None and sys.stdin.isatty() if total is None else sys.stdout.isatty()
    shown = console.is_terminal and not other_use
    with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)
