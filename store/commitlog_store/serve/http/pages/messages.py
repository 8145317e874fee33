"""Messages: the search, one message, and downloads of what was found."""

from __future__ import annotations

import io

import pyarrow as pa

from commitlog_store.columnar.columns import arrow_schema
from commitlog_store.decoders.decoded_lines import with_decoded
from commitlog_store.errors import CommitLogError, InvalidValue
from commitlog_store.export.json_lines import json_lines, utc_texts
from commitlog_store.format.properties import REAL_TOPIC, RETRY_TOPIC
from commitlog_store.message import MessageExt
from commitlog_store.queries import scan
from commitlog_store.queries.find_message import find_message
from commitlog_store.reader import StoreReader
from commitlog_store.serve.http.pages.body_forms import shown_body
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
