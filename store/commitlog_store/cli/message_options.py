"""Options of the commands that print messages: which ones, how they are read, and how they look."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from commitlog_store.cli.exit_codes import wrong_usage
from commitlog_store.cli.message_format import FORMAT_HELP
from commitlog_store.cli.message_output import MessageOutput, message_output
from commitlog_store.cli.open_reader import FromLogOption, NoVerifyCrcOption, OnDamage, OnDamageOption, open_reader
from commitlog_store.cli.options import (
    ColumnsOption,
    DecodeOption,
    FilterOption,
    FullOption,
    GrepOption,
    KeyOption,
    OutputFormat,
    TagOption,
    ZoneOption,
)
from commitlog_store.cli.render import say
from commitlog_store.cli.storage_options import Storage
from commitlog_store.cli.times import Clock, parse_zone
from commitlog_store.cli.values import parse_columns, parse_filter
from commitlog_store.decoders.topic_decoders import TopicDecoders
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.queries.body_pattern import BodyPattern
from commitlog_store.queries.texts import counted
from commitlog_store.reader import StoreReader

_FormatOption = Annotated[str | None, typer.Option("--format", metavar="FORMAT", help=f"As kcat's -f: {FORMAT_HELP}.")]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which messages are printed."""

    tag: TagOption = None
    key: KeyOption = None
    where: FilterOption = None
    grep: GrepOption = None

    def pattern(self) -> BodyPattern:
        """What their bodies match. ``BadParameter``."""
        with wrong_usage("--grep"):
            return BodyPattern.of(self.grep)

    def filter(self) -> MessageFilter:
        """The other conditions. ``BadParameter``."""
        return parse_filter(tag=self.tag, key=self.key, where=self.where)


ALL_MESSAGES = Selection()


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How messages are read."""

    from_log: FromLogOption = False
    on_damage: OnDamageOption = OnDamage.RAISE
    no_verify_crc: NoVerifyCrcOption = False

    @property
    def verify_crc(self) -> bool:
        return not self.no_verify_crc

    def open(self, path: str, commit_log: str | None, storage: Storage) -> AbstractContextManager[StoreReader]:
        """``open_reader`` with these options."""
        return open_reader(path, self.from_log, self.on_damage, commit_log, storage)


AS_STORED = Reading()


@dataclass(frozen=True, kw_only=True)
class MessageStyle:
    """How one message looks."""

    line_format: _FormatOption = None
    decode: DecodeOption = None
    columns: ColumnsOption = None
    tz: ZoneOption = "UTC"

    def clock(self) -> Clock:
        """``BadParameter`` for an unknown time zone."""
        return Clock(parse_zone(self.tz))

    def names(self) -> list[str] | None:
        """The names of columns, if they are given. ``BadParameter``."""
        return None if self.columns is None else parse_columns(self.columns)

    @contextmanager
    def decoding(self) -> Iterator[TopicDecoders]:
        """The decoders of bodies, which end with the block; it says how many bodies were not decoded.

        ``InvalidValue`` for a rule that is wrong.
        """
        with TopicDecoders.parse(self.decode or ()) as decoders:
            yield decoders
            if decoders.failed:
                failed = counted(decoders.failed, "message")
                say(f"The bodies of {failed} were not decoded. The first: {decoders.first_problem}.")

    def output(self, form: OutputFormat, *, body: bool = False) -> Callable[[TopicDecoders], MessageOutput]:
        """Returns a function that makes the output from the decoders.

        ``BadParameter``, by this method and by the function.
        """
        clock, names = self.clock(), self.names()

        def make(decoders: TopicDecoders) -> MessageOutput:
            return message_output(
                form,
                clock=clock,
                columns=names,
                body=body,
                line_format=self.line_format,
                full=self.is_full,
                decoders=decoders,
            )

        return make

    @property
    def is_full(self) -> bool:
        """Whether long lines are not cut."""
        return False


ONE_MESSAGE = MessageStyle()


@dataclass(frozen=True, kw_only=True)
class LineStyle(MessageStyle):
    """How messages look, each in its line or lines."""

    full: FullOption = False

    @property
    def is_full(self) -> bool:
        return self.full


LINES = LineStyle()
