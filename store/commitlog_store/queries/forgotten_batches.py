"""An application or query whose batches would be forgotten, in words."""

from __future__ import annotations

from collections.abc import Sequence

from commitlog_store.batch_id import CommittedBatch
from commitlog_store.columnar.columns import nearest_name
from commitlog_store.errors import InvalidValue
from commitlog_store.queries.texts import counted, utc_text

_LISTED = 20


def last_batch_of(batches: Sequence[CommittedBatch], application: str) -> CommittedBatch | None:
    return next((one for one in batches if one.batch.app_id == application), None)


def unknown_application(path: str, application: str, batches: Sequence[CommittedBatch]) -> InvalidValue:
    """The error for an application without batches: the nearest one, and those that the store has."""
    names = [one.batch.app_id for one in batches]
    if not names:
        return InvalidValue(f"The store at {path} has no batches of any application.")
    missing = f"The store at {path} has no batches of application {application!r}."
    near = nearest_name(application, names)
    hint = f" Did you mean {near!r}?" if near else ""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return InvalidValue(f"{missing}{hint} It has those of: {', '.join(map(repr, names[:_LISTED]))}{more}.")


def forgotten_words(last: CommittedBatch) -> list[str]:
    """What it is to forget the application of this batch, its last one."""
    shown = (
        f"It would forget {last.batch.app_id!r}, whose last batch was {last.batch.version}, of "
        f"{counted(last.rows, 'message')}, committed at {utc_text(last.store_timestamp)} UTC."
    )
    return [
        shown,
        "Its next batch is written whatever its number; messages that are in the store already are then there twice.",
    ]
