"""Dead letters: the groups that have some, and those of one group, the newest first."""

from __future__ import annotations

from commitlog_store.errors import NotFoundError
from commitlog_store.format.properties import RETRY_TOPIC
from commitlog_store.paths import DLQ_TOPIC_PREFIX
from commitlog_store.queries import scan
from commitlog_store.reader import StoreReader
from commitlog_store.serve.http.pages.message_search import COLUMNS, Row, rows_of, with_previews
from commitlog_store.serve.http.pages.views import Asked, Paging, Values, View

_ROWS = 50
_COLUMNS = (*COLUMNS, "properties", "reconsumeTimes")


def _list(reader: StoreReader, asked: Asked) -> Values:
    wanted = asked.text("q").lower()
    found = [one for one in reader.dead_letters() if wanted in one.group.lower()]
    found.sort(key=lambda one: (-(one.waiting or 0), one.group))
    paging = Paging.of(asked, len(found), _ROWS)
    return {"rows": found[paging.start : paging.stop], "paging": paging, "q": asked.text("q")}


def _one(reader: StoreReader, asked: Asked) -> Values:
    group = asked.names["name"]
    summary = next(iter(reader.dead_letters(group)), None)
    if summary is None:
        raise NotFoundError(f"The store at {reader.path} has no dead letters of group {group!r}.")
    topic, positions = DLQ_TOPIC_PREFIX + group, reader.group_offsets(group)
    bounds = [(one.queue_id, one.min_offset, one.max_offset) for one in reader.queues(topic)]
    paging = Paging.of(asked, sum(stop - start for _, start, stop in bounds), _ROWS)
    rows = []
    for row in _newest(reader, topic, bounds, paging.start, paging.stop):
        is_redriven = row["queueOffset"] < positions.get((topic, row["queueId"]), 0)
        rows.append(row | {"sent_to": row["properties"].get(RETRY_TOPIC), "is_redriven": is_redriven})
    return {
        "group": group, "topic": topic, "summary": summary, "paging": paging,
        "rows": with_previews(reader, rows, asked.decoders),
    }  # fmt: skip


def _newest(reader: StoreReader, topic: str, bounds: list[tuple[int, int, int]], first: int, last: int) -> list[Row]:
    """The rows at these places of the list in which each queue has its newest message first, queue after queue."""
    rows: list[Row] = []
    passed = 0
    for queue_id, start, stop in bounds:
        high = stop - max(first - passed, 0)
        low = max(stop - max(last - passed, 0), start)
        passed += stop - start
        if low < high:
            table = scan.merged(reader, [(topic, queue_id, low, high)], _COLUMNS, verify_crc=False)
            found = [row for part in table for row in rows_of(part, _COLUMNS)]
            rows += reversed(found)
    return rows


LIST = View(name="dead_letters", path="/dead-letters", look=_list)
ONE = View(name="dead_letters_of", path="/dead-letters/{name}", look=_one, is_live=False)
