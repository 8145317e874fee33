"""Output of ``commitlog info``: the store, and a row for each topic or queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

from commitlog_store.cli.console import uncut_console
from commitlog_store.cli.doctor import archive_hold_text, known_loss
from commitlog_store.cli.fitted_table import LEAST_NAME, SHORTEST_NAME, shortened
from commitlog_store.cli.render import terminal_width
from commitlog_store.cli.summary import QueueSummary, StoreSummary
from commitlog_store.cli.text_columns import GAP, TextColumn, print_columns, widest
from commitlog_store.cli.times import Clock
from commitlog_store.paths import is_system_topic
from commitlog_store.queries.texts import counted, duration_text, printable_text
from commitlog_store.verify.assessment import Verdict


@dataclass(frozen=True)
class _Layout:
    """Which times are shown: down to seconds or minutes, and of the first message or not."""

    seconds: bool
    firsts: bool


# In the order in which they are tried; the first is that of files and pipes.
_LAYOUTS = (_Layout(True, True), _Layout(False, True), _Layout(False, False))


def print_summary(found: StoreSummary, clock: Clock, *, with_queues: bool, with_sizes: bool) -> None:
    """Print the store, a row for each topic or queue, and what cuts have kept."""
    console = uncut_console()
    console.print(Text(printable_text(found.path), style="bold"))
    verdict = found.verdict
    if found.assessment is not None and verdict is not None:
        style = "green" if verdict is Verdict.OK else "red"
        console.print(Text(f"verdict {verdict.value}: {known_loss(found.assessment, ' messages')}", style=style))
    console.print(
        f"log [{found.min_physical_offset}, {found.max_physical_offset}) in {counted(found.commit_log_files, 'file')}, "
        f"{decimal(found.disk_size)} on disk"
    )
    console.print(f"{counted(found.index_files, 'index file')} with {counted(found.indexed_keys, 'key')}")
    if found.checkpoint:
        flushed = found.checkpoint["physicMsgTimestamp"]
        console.print(
            f"checkpoint: messages flushed to {f'{clock.short(flushed)} {clock.name}' if flushed else 'never'}"
        )
    if found.aborted:
        console.print(
            Text("abort file present: an owner runs, or it stopped without closing the store", style="yellow")
        )
    _print_delayed(console, found)
    _print_archive_hold(console, found, clock)
    groups = [
        (topic, group)
        for topic, queues in found.by_topic().items()
        for group in ([[queue] for queue in queues] if with_queues else [queues])
    ]
    columns = _columns(groups, clock, with_queues=with_queues, with_sizes=with_sizes)
    print_columns(columns, ["dim" if is_system_topic(topic) else "cyan" for topic, _ in groups])
    for piece in found.kept:
        messages = counted(piece.messages, "message")
        text = f"kept from byte {piece.start} on: {messages}, {decimal(piece.size)}, in {printable_text(piece.path)}"
        console.print(Text(text))


def _print_delayed(console: Console, found: StoreSummary) -> None:
    """A line about delayed messages, where some wait, and one about a timer's."""
    if found.delayed_waiting:
        by = "by the owner" if found.delayed_left_to is None else f"by a broker, as shown by {found.delayed_left_to}"
        late = found.delayed_overdue_ms
        overdue = f", overdue by {duration_text(late)}" if late else ""
        text = f"{counted(found.delayed_waiting, 'delayed message')} waiting, to be delivered {by}{overdue}"
        console.print(Text(text, style="yellow" if late else ""))
    if found.timer_wheel:
        console.print(Text("timer wheel of RocketMQ 5 (timerwheel, timerlog): left to the broker"))


def _print_archive_hold(console: Console, found: StoreSummary, clock: Clock) -> None:
    """A line about the archive that retention waits for."""
    hold = found.archive_hold
    if hold is None:
        return
    text = archive_hold_text(hold, found.max_physical_offset, clock)
    console.print(Text(printable_text(text), style="yellow" if hold.failure else ""))


def _columns(
    groups: Sequence[tuple[str, list[QueueSummary]]], clock: Clock, *, with_queues: bool, with_sizes: bool
) -> list[TextColumn]:
    """The columns of the table of topics or queues, made to fit the terminal."""
    width = terminal_width()
    names = [printable_text(topic) for topic, _ in groups]
    longest = widest(["topic", *names])

    def laid_out(layout: _Layout) -> tuple[list[str], list[list[str]], int]:
        """Headings and rows of all columns but the first, and the width that they take."""
        headings = _headings(clock, layout, with_queues=with_queues, with_sizes=with_sizes)
        rows = [_cells(group, clock, layout, with_queues=with_queues, with_sizes=with_sizes) for _, group in groups]
        taken = sum(widest(column) + GAP for column in zip(headings, *rows, strict=True))
        return headings, rows, taken

    headings, rows, taken = laid_out(_LAYOUTS[0])
    for layout in _LAYOUTS[1:]:
        if width is not None and taken + min(longest, LEAST_NAME) > width:
            headings, rows, taken = laid_out(layout)
    room = longest if width is None else max(width - taken, SHORTEST_NAME)
    shown = TextColumn(heading="topic", cells=[shortened(name, room) for name in names], right=False)
    others = [
        TextColumn(heading=heading, cells=cells, right=heading[:5] not in ("first", "last "))
        for heading, *cells in zip(headings, *rows, strict=True)
    ]
    return [shown, *others]


def _headings(clock: Clock, layout: _Layout, *, with_queues: bool, with_sizes: bool) -> list[str]:
    numbers = ["queue" if with_queues else "queues", "min offset", "max offset", "messages"]
    times = [*(["first"] if layout.firsts else []), "last"]
    return [*numbers, *(["size"] if with_sizes else []), *(f"{which} ({clock.name})" for which in times)]


def _cells(
    queues: list[QueueSummary], clock: Clock, layout: _Layout, *, with_queues: bool, with_sizes: bool
) -> list[str]:
    firsts = [queue.first_store_timestamp for queue in queues if queue.first_store_timestamp is not None]
    lasts = [queue.last_store_timestamp for queue in queues if queue.last_store_timestamp is not None]
    times = [*([min(firsts, default=None)] if layout.firsts else []), max(lasts, default=None)]
    return [
        str(queues[0].queue_id if with_queues else len(queues)),
        str(min(queue.min_offset for queue in queues)),
        str(max(queue.max_offset for queue in queues)),
        str(sum(queue.messages for queue in queues)),
        *([_size(queues)] if with_sizes else []),
        *(clock.short(one) if layout.seconds else clock.short(one)[:16] for one in times),
    ]


def _size(queues: list[QueueSummary]) -> str:
    """The bytes of all the queues; unknown if one could not be read."""
    sizes = [queue.size for queue in queues if queue.size is not None]
    return decimal(sum(sizes)) if len(sizes) == len(queues) else "-"


QUEUE_COLUMNS = (
    "topic", "queueId", "minOffset", "maxOffset", "messages", "size", "firstStoreTimestamp", "lastStoreTimestamp",
)  # fmt: skip
