"""TopScreen: the screen of ``commitlog top``, a textual application of two tables, a summary and a filter."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import DataTable, Footer, Input, Static

from commitlog_store.errors import StoreClosed
from commitlog_store.paths import is_system_topic
from commitlog_store.queries.group_summary import GroupSummary
from commitlog_store.queries.store_overview import StoreOverview, TopicLook
from commitlog_store.queries.texts import duration_text, printable_text
from commitlog_store.sizes import size_text
from commitlog_store.threads.wakeup import Wakeup

_PAUSE_S = 1.0
# Of each table: the first ones by its order.
_MOST_ROWS = 200
_UNKNOWN = "–"

_T = TypeVar("_T")


@dataclass(frozen=True)
class _Column(Generic[_T]):
    """``order`` is what rows are sorted by; texts rise at first, numbers fall."""

    label: str
    order: Callable[[_T], str | float]
    shown: Callable[[_T], str]
    is_name: bool = False


def _count(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


TOPIC_COLUMNS: tuple[_Column[TopicLook], ...] = (
    _Column("Messages/s", lambda one: one.rate or 0, lambda one: _count(one.rate)),
    _Column("Messages", lambda one: one.messages, lambda one: _count(one.messages)),
    _Column("Queues", lambda one: one.queues, lambda one: _count(one.queues)),
    _Column("Topic", lambda one: one.topic, lambda one: one.topic, is_name=True),
)
GROUP_COLUMNS: tuple[_Column[GroupSummary], ...] = (
    _Column("Lag", lambda one: one.lag or 0, lambda one: _count(one.lag)),
    _Column(
        "Behind",
        lambda one: one.lag_ms or 0,
        lambda one: _UNKNOWN if one.lag_ms is None else duration_text(one.lag_ms),
    ),
    _Column("Retries", lambda one: one.retry_messages, lambda one: _count(one.retry_messages)),
    _Column("Dead letters", lambda one: one.dead_letters, lambda one: _count(one.dead_letters)),
    _Column("Group", lambda one: one.group, lambda one: one.group, is_name=True),
)


class _Ordered(DataTable[Text], Generic[_T]):
    """A table of rows with names, the first ones by one of its columns. It is filled again at each look."""

    def __init__(self, columns: Sequence[_Column[_T]], name_of: Callable[[_T], str], *, id: str) -> None:  # noqa: A002
        super().__init__(id=id, cursor_type="row", zebra_stripes=True)
        self._columns, self._name_of = columns, name_of
        self._rows: Sequence[_T] = ()
        self._wanted = ""
        self._by, self._is_turned = 0, False

    def on_mount(self) -> None:
        self.border_title = self.id
        self._label()

    def sort_by_next(self) -> None:
        self._by, self._is_turned = (self._by + 1) % len(self._columns), False
        self._label()

    def turn_round(self) -> None:
        self._is_turned = not self._is_turned
        self._label()

    def show_rows(self, rows: Sequence[_T], wanted: str) -> None:
        self._rows, self._wanted = rows, wanted
        self._fill()

    def _label(self) -> None:
        """The columns again: the one that the rows are sorted by has a mark."""
        self.clear(columns=True)
        for place, column in enumerate(self._columns):
            mark = (" ▲" if column.is_name != self._is_turned else " ▼") if place == self._by else ""
            self.add_column(column.label + mark, key=column.label)
        self._fill()

    def _fill(self) -> None:
        column = self._columns[self._by]
        found = [one for one in self._rows if self._wanted in self._name_of(one).lower()]
        found.sort(key=self._name_of)
        found.sort(key=column.order, reverse=column.is_name == self._is_turned)
        at, scrolled = self.cursor_row, self.scroll_y
        self.clear()
        for one in found[:_MOST_ROWS]:
            self.add_row(
                *(
                    Text(printable_text(each.shown(one)), justify="left" if each.is_name else "right")
                    for each in self._columns
                )
            )
        self.border_subtitle = f"{min(len(found), _MOST_ROWS)} of {len(self._rows)}"
        self.move_cursor(row=at, scroll=False)
        self.scroll_to(y=scrolled, animate=False)


class TopScreen(App[None]):
    """Shows what ``look`` gives, once a second, until the user quits."""

    CSS = """
    #summary { height: auto; padding: 0 1; }
    #problems { height: auto; padding: 0 1; color: $error; display: none; }
    #filter { display: none; }
    DataTable { height: 1fr; border: round $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("s", "sort", "Sort by the next column"),
        Binding("r", "turn", "Turn round"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "clear", "No filter"),
        Binding("tab", "app.focus_next", "Other table"),
    ]
    ENABLE_COMMAND_PALETTE = False

    class Looked(Message):
        """A look at the store, made in another thread."""

        def __init__(self, found: StoreOverview) -> None:
            super().__init__()
            self.found = found

    def __init__(
        self,
        look: Callable[[], StoreOverview],
        path: str,
        *,
        shows_system: bool = False,
        interrupt: Callable[[Callable[[], None]], None] = lambda _: None,
        pause_s: float = _PAUSE_S,
    ) -> None:
        """``interrupt`` takes what ``look`` calls between its steps, and raises when the screen closes."""
        super().__init__()
        self._look, self._path, self._shows_system, self._pause_s = look, path, shows_system, pause_s
        self._stopping, self._wakeup = False, Wakeup()
        interrupt(self._refuse_stopped)
        self._found = StoreOverview()
        self._summary = Static(printable_text(path), id="summary", markup=False)
        self._problems = Static(id="problems", markup=False)
        self._filter = Input(placeholder="A part of the name", id="filter")
        self.topics = _Ordered(TOPIC_COLUMNS, lambda one: one.topic, id="Topics")
        self.groups = _Ordered(GROUP_COLUMNS, lambda one: one.group, id="Groups")

    def compose(self) -> ComposeResult:
        yield self._summary
        yield self._problems
        yield self.topics
        yield self.groups
        yield self._filter
        yield Footer()

    def on_mount(self) -> None:
        # Without it the terminal would keep the screen's modes.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit)
        self.topics.focus()
        self._follow()

    def on_unmount(self) -> None:
        self._stopping = True
        self._wakeup.set()

    @work(thread=True)
    def _follow(self) -> None:
        """Look until the screen closes."""
        while not self._stopping:
            self.post_message(self.Looked(self._look()))
            self._wakeup.wait(self._pause_s)

    def _refuse_stopped(self) -> None:
        if self._stopping:
            raise StoreClosed("The screen closes.")

    def on_top_screen_looked(self, message: Looked) -> None:
        self._found = message.found
        self._show()

    def _show(self) -> None:
        if not self._summary.is_attached:  # the screen closes
            return
        found = self._found
        wanted = self._filter.value.strip().lower()
        self._summary.update(summary_of(found, self._path, time.time()))
        self._problems.update("\n".join(map(printable_text, found.problems)))
        self._problems.display = bool(found.problems)
        shows_all = self._shows_system
        self.topics.show_rows([one for one in found.topics if shows_all or not is_system_topic(one.topic)], wanted)
        self.groups.show_rows([one for one in found.groups if shows_all or not one.is_system], wanted)

    def _table(self) -> _Ordered[TopicLook] | _Ordered[GroupSummary]:
        return self.groups if self.groups.has_focus else self.topics

    def action_sort(self) -> None:
        self._table().sort_by_next()

    def action_turn(self) -> None:
        self._table().turn_round()

    def action_filter(self) -> None:
        self._filter.display = True
        self._filter.focus()

    def action_clear(self) -> None:
        self._filter.value = ""
        self._filter.display = False
        self.topics.focus()
        self._show()

    def on_input_changed(self, _: Input.Changed) -> None:
        self._show()

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """The filter stays; keys go to the tables again."""
        self.topics.focus()


def summary_of(found: StoreOverview, path: str, now_s: float) -> str:
    """The lines above the tables."""
    clock = time.strftime("%H:%M:%S", time.gmtime(now_s))
    used = _UNKNOWN if found.disk_used is None else f"{100 * found.disk_used:.0f} %"
    waiting = sum(one.lag or 0 for one in found.groups)
    return "\n".join(
        [
            f"{printable_text(path)}  {clock} UTC",
            f"Messages/s {_count(found.rate)}   Bytes/s {_size(found.bytes_rate)}   Lag {_count(waiting)}",
            f"Log {_count(found.log_start)} to {_count(found.log_end)}",
            f"Disk used {used}   free {_size(found.disk_free)}   Store's files {_size(found.files_size)}",
        ]
    )


def _size(value: float | None) -> str:
    return _UNKNOWN if value is None else size_text(int(value))
