"""Output of messages on stdout: lines for people, JSON and CSV for programs, bodies, and format strings."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import pyarrow as pa
import typer
from rich.cells import cell_len, set_cell_size

from commitlog_store.cli.message_format import MessageFormat
from commitlog_store.cli.options import OutputFormat
from commitlog_store.cli.render import body_text, terminal_width
from commitlog_store.cli.times import Clock
from commitlog_store.decoders.decoded_lines import with_decoded
from commitlog_store.decoders.topic_decoders import TopicDecoders
from commitlog_store.export.csv_columns import csv_batch, csv_schema
from commitlog_store.export.json_lines import json_lines
from commitlog_store.queries.scan import ROW_COLUMNS, column_values
from commitlog_store.queries.texts import printable_text

_TIMES = ("storeTimestamp", "bornTimestamp")
_LINE_COLUMNS = ("storeTimestamp", "topic", "queueId", "queueOffset", "tags", "keys", "body")
Columns = dict[str, list[Any]]


class MessageOutput(Protocol):
    """Writes messages to stdout. ``columns`` are those that it needs."""

    columns: Sequence[str]

    def write(self, table: pa.Table) -> None:
        """Write the messages of a table. An empty one writes what stands before the first message."""


def message_output(
    output: OutputFormat,
    *,
    clock: Clock,
    columns: Sequence[str] | None = None,
    body: bool = False,
    line_format: str | None = None,
    full: bool = False,
    decoders: TopicDecoders | None = None,
) -> MessageOutput:
    """The output that options ask for. ``BadParameter`` for decoders, which nothing would stand between, and ``body``.

    Lines of JSON have what ``decoders`` give beside the body, the others in its place.
    """
    if body and decoders:
        raise typer.BadParameter("--body gives the bytes of bodies; leave --decode out.", param_hint="--body")
    out: MessageOutput
    if body:
        return BodyOutput()
    if line_format is not None:
        out = FormatOutput(MessageFormat(line_format, clock))
    elif output is OutputFormat.JSON:
        return JsonOutput(columns or ROW_COLUMNS, clock, decoders)
    elif output is OutputFormat.CSV:
        out = CsvOutput(columns or ROW_COLUMNS, clock)
    else:
        out = TextOutput(columns, clock, full=full)
    return DecodedOutput(out, decoders) if decoders and "body" in out.columns else out


def _columns(table: pa.Table, names: Iterable[str], clock: Clock) -> Columns:
    """Columns of a table as lists, times as ISO 8601."""
    values = {name: column_values(table.column(name)) for name in names}
    return {name: [clock.iso(one) for one in column] if name in _TIMES else column for name, column in values.items()}


def _rows(values: Columns) -> Iterable[tuple[Any, ...]]:
    return zip(*values.values(), strict=True)


class JsonOutput:
    """One JSON object a line. A body that is not UTF-8 text is base64, in ``bodyBase64``."""

    def __init__(self, columns: Sequence[str], clock: Clock, decoders: TopicDecoders | None = None) -> None:
        self._shown = columns
        self._decoders = decoders if decoders and "body" in columns else None
        self.columns = list(dict.fromkeys((*columns, "topic"))) if self._decoders else columns
        self._clock = clock
        self._utf8 = (sys.stdout.encoding or "").lower() == "utf-8"

    def write(self, table: pa.Table) -> None:
        lines = json_lines(table, self._shown, self._clock.texts)
        if self._decoders is not None:
            lines = with_decoded(lines, table, self._decoders)
        if not self._utf8 and not lines.isascii():
            lines = b"".join(json.dumps(json.loads(line)).encode() + b"\n" for line in lines.splitlines())
        sys.stdout.flush()
        sys.stdout.buffer.write(lines)


class DecodedOutput:
    """Another output, with the JSON of decoded bodies in their place. Those that are not decoded stay as they are."""

    def __init__(self, out: MessageOutput, decoders: TopicDecoders) -> None:
        self._out = out
        self._decoders = decoders
        self.columns: Sequence[str] = list(dict.fromkeys((*out.columns, "topic")))

    def write(self, table: pa.Table) -> None:
        bodies = []
        for topic, body in zip(table.column("topic").to_pylist(), table.column("body").to_pylist(), strict=True):
            found = None if body is None else self._decoders.decode(topic, body)
            bodies.append(body if found is None or found.json is None else found.json.encode(errors="replace"))
        place = table.column_names.index("body")
        self._out.write(table.set_column(place, "body", pa.array(bodies, table.column("body").type)))


class CsvOutput:
    """Comma-separated values, with a line of names. Bodies that are not UTF-8 text are base64, in a column after it."""

    def __init__(self, columns: Sequence[str], clock: Clock) -> None:
        self.columns = columns
        self._clock = clock
        self._writer = csv.writer(sys.stdout, lineterminator="\n")
        self._begun = False

    def write(self, table: pa.Table) -> None:
        if not self._begun:
            self._begun = True
            self._writer.writerow(csv_schema(self.columns).names)
        for batch in table.select(list(self.columns)).to_batches():
            texts = csv_batch(batch, self._clock.texts)
            self._writer.writerows(zip(*(column.to_pylist() for column in texts.columns), strict=True))


class TextOutput:
    """A line a message for people, with tabs between; on a terminal it is cut to the width unless ``full``."""

    def __init__(self, columns: Sequence[str] | None, clock: Clock, *, full: bool) -> None:
        self.columns = columns or _LINE_COLUMNS
        self._chosen = columns
        self._clock = clock
        self._width = None if full else terminal_width()

    def write(self, table: pa.Table) -> None:
        columns = _columns(table, self.columns, self._clock)
        line = _plain_line if self._chosen is None else _column_line
        lines = (self._cut(line(row)) for row in _rows(columns))
        sys.stdout.write("".join(lines))

    def _cut(self, parts: Sequence[str]) -> str:
        if self._width is None:
            return "\t".join(parts) + "\n"
        text = "  ".join(parts)
        if cell_len(text) > self._width:
            text = set_cell_size(text, self._width - 1).rstrip() + "…"
        return text + "\n"


def _plain_line(row: tuple[Any, ...]) -> Sequence[str]:
    when, topic, queue_id, offset, tags, keys, body = row
    labels = [printable_text(one) if one else "-" for one in (tags, keys)]
    return when or "-", f"{printable_text(topic)}/{queue_id}@{offset}", *labels, body_text(body)


def _column_line(row: tuple[Any, ...]) -> Sequence[str]:
    return [shown(value) for value in row]


def shown(value: Any) -> str:
    """A value of any column as printable text."""
    if value is None:
        return "-"
    if isinstance(value, bytes):
        return body_text(value)
    if isinstance(value, dict):
        return printable_text(",".join(f"{name}={text}" for name, text in value.items()))
    return printable_text(str(value))


class _ByteOutput:
    """Bytes on stdout, one function for each message."""

    columns: Sequence[str]

    def _write_bytes(self, pieces: Iterable[bytes]) -> None:
        sys.stdout.flush()
        sys.stdout.buffer.write(b"".join(pieces))


class BodyOutput(_ByteOutput):
    """The bodies as they are, with nothing between them."""

    columns: Sequence[str] = ("body",)

    def write(self, table: pa.Table) -> None:
        self._write_bytes(body for body in table.column("body").to_pylist() if body is not None)


class FormatOutput(_ByteOutput):
    """Each message in the form of a format string. On a terminal, characters that could drive it are escaped."""

    def __init__(self, form: MessageFormat) -> None:
        self.columns = list(dict.fromkeys(form.columns)) or ["physicalOffset"]
        self._form = form
        self._clean: Callable[[bytes], bytes] = _harmless if sys.stdout.isatty() else bytes

    def write(self, table: pa.Table) -> None:
        names = list(self.columns)
        values = {name: column_values(table.column(name)) for name in names}
        rows = (dict(zip(names, row, strict=True)) for row in _rows(values))
        self._write_bytes(self._clean(self._form.bytes_of(row)) for row in rows)


def _harmless(line: bytes) -> bytes:
    text = line.decode(errors="backslashreplace")
    return "".join(one if one in "\n\t" else printable_text(one) for one in text).encode()
