"""Messages: the search, one message with its body, and downloads of what was found."""

from __future__ import annotations

import io
from typing import NamedTuple

import msgspec
import pyarrow as pa

from commitlog_store.columnar.columns import arrow_schema
from commitlog_store.decoders.decoded_lines import with_decoded
from commitlog_store.decoders.decoder_process import Decoded
from commitlog_store.errors import CommitLogError, InvalidValue
from commitlog_store.export.json_lines import json_lines, utc_texts
from commitlog_store.format.properties import REAL_TOPIC, RETRY_TOPIC
from commitlog_store.message import MessageExt
from commitlog_store.queries import scan
from commitlog_store.queries.find_message import find_message
from commitlog_store.reader import StoreReader
from commitlog_store.serve.http.pages.message_search import FIELDS, MOST_BODY_BYTES, MessageSearch, with_previews
from commitlog_store.serve.http.pages.views import Asked, Values, View

_ROWS = 50
_MOST_ROWS = 200
_DOWNLOAD_ROWS = 10_000
# All bodies of a download are decoded within this time.
_DECODE_S = 20.0
DOWNLOADS = {"ndjson": "application/x-ndjson", "parquet": "application/vnd.apache.parquet"}


def _search(reader: StoreReader, asked: Asked) -> Values:
    given = {name: asked.text(name) for name in FIELDS}
    values: Values = {"given": given, "rows": [], "note": "", "problem": "", "has_searched": False}
    try:
        search = MessageSearch.parse(given)
        if search.is_empty:
            return values
        found = search.find(reader, asked.number("count", _ROWS, least=1, most=_MOST_ROWS))
    except CommitLogError as error:
        return values | {"problem": str(error), "has_searched": True}
    return values | {
        "rows": with_previews(reader, found.rows, asked.decoders),
        "note": found.note,
        "has_searched": True,
    }


def _one(reader: StoreReader, asked: Asked) -> Values:
    message = _message(reader, asked)
    problem, topic = "", _topic_of_body(message)
    try:
        reader.message_at(message.physical_offset)
    except CommitLogError as error:
        problem = str(error)
    return {
        "message": message,
        "row": scan.as_row(message),
        "body": shown_body(message.body, asked.text("as"), asked.decoders.decode(topic, message.body)),
        "decoder": asked.decoders.kind_of(topic),
        "size": len(message.body),
        "problem": problem,
    }


def _message(reader: StoreReader, asked: Asked) -> MessageExt:
    """The message of an id, whether its body matches its checksum or not."""
    return find_message(reader, asked.names["id"], asked.text("topic") or None, verify_crc=False)


def _topic_of_body(message: MessageExt) -> str:
    """The topic that a message was sent to, also while a retry topic, dead letters, a delay or a half topic has it."""
    given = message.properties
    return given.get(RETRY_TOPIC) or given.get(REAL_TOPIC) or message.topic


def body_of(reader: StoreReader, asked: Asked) -> bytes:
    return _message(reader, asked).body


def download(reader: StoreReader, asked: Asked, form: str) -> bytes:
    """The messages of a search as NDJSON or Parquet: at most 10,000, and bodies of 64 MiB together.

    ``InvalidValue`` for another form, and for more than that.
    """
    if form not in DOWNLOADS:
        raise InvalidValue(f"A download is {' or '.join(DOWNLOADS)}, not {form!r}.")
    search = MessageSearch.parse({name: asked.text(name) for name in FIELDS})
    if search.is_empty:
        raise InvalidValue("A download is that of a search: give a topic, a key or an id.")
    found = search.find(reader, _DOWNLOAD_ROWS)
    rows, size = [], 0
    for row in found.rows:
        message = reader.message_at(row["physicalOffset"], verify_crc=False)
        size += len(message.body)
        if size > MOST_BODY_BYTES:
            raise InvalidValue(
                f"The bodies have more than {MOST_BODY_BYTES >> 20} MiB together: search for fewer messages, or use "
                "`commitlog export`."
            )
        rows.append(scan.arrow_row(message))
    table = pa.Table.from_pylist(rows, schema=arrow_schema(scan.ROW_COLUMNS))
    if form == "ndjson":
        return with_decoded(json_lines(table, scan.ROW_COLUMNS, utc_texts), table, asked.decoders, seconds=_DECODE_S)
    import pyarrow.parquet as pq  # it takes 20 ms to import

    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


SEARCH = View(name="messages", path="/messages", look=_search, is_live=False)
ONE = View(name="message", path="/messages/{id}", look=_one, is_live=False)


SHOWN_BYTES = 64 << 10
DECODED = "decoded"
_LINE = 16
# Deep JSON grows by what indents it: what grows to more than so many characters is shown as text.
_MOST_INDENTED = 16 * SHOWN_BYTES


class ShownBody(NamedTuple):
    """``form`` is how it is shown, ``forms`` are those that it has, ``left`` the bytes that are not shown.

    ``problem`` says why it is not shown as its decoder gives it.
    """

    form: str
    forms: list[str]
    text: str
    left: int
    problem: str = ""


def shown_body(body: bytes, wanted: str = "", decoded: Decoded | None = None) -> ShownBody:
    """The body in the wanted form; without one, or if it has none such, in the first of decoded, JSON, text, hex."""
    if decoded is None:
        return _plain_body(body, wanted)
    if decoded.json is None:
        return _plain_body(body, wanted)._replace(problem=decoded.problem)
    if wanted not in ("", DECODED):
        plain = _plain_body(body, wanted)
        return plain._replace(forms=[DECODED, *plain.forms])
    forms = [DECODED, *_plain_body(body, "hex").forms]
    return ShownBody(DECODED, forms, _indented(decoded.json) or decoded.json, 0)


def _plain_body(body: bytes, wanted: str) -> ShownBody:
    part = body[:SHOWN_BYTES]
    text = _text_of(body)
    indented = _json_of(text) if text is not None and len(body) <= SHOWN_BYTES else None
    forms = [name for name, known in (("json", indented), ("text", text)) if known is not None] + ["hex"]
    form = wanted if wanted in forms or wanted == "text" else forms[0]
    if form == "json":
        return ShownBody(form, forms, indented or "", 0)
    if form == "text":
        return ShownBody(form, forms, part.decode(errors="backslashreplace"), len(body) - len(part))
    part = part[: SHOWN_BYTES // 4]
    return ShownBody("hex", forms, hex_lines(part), len(body) - len(part))


def _text_of(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _json_of(text: str) -> str | None:
    """Of an object or a list only: any number is JSON, too. Numbers and names given twice stay as they are."""
    return _indented(text) if text.lstrip().startswith(("{", "[")) else None


def _indented(text: str) -> str | None:
    try:
        indented = msgspec.json.format(text, indent=2)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return indented if len(indented) <= _MOST_INDENTED else None


def hex_lines(part: bytes) -> str:
    """Lines of the place, sixteen bytes, and those that are plain ASCII."""
    lines = []
    for at in range(0, len(part), _LINE):
        piece = part[at : at + _LINE]
        plain = "".join(chr(one) if 0x20 <= one < 0x7F else "." for one in piece)
        lines.append(f"{at:08x}  {piece.hex(' '):<{3 * _LINE - 1}}  {plain}")
    return "\n".join(lines)
