"""The actions that commit a half message, or roll it back."""

from __future__ import annotations

from functools import partial

from commitlog_store.errors import NotFoundError
from commitlog_store.half_message import HalfMessageHandle, PendingHalfMessage
from commitlog_store.queries.half_message_plan import HalfMessageEnd, half_message_words
from commitlog_store.reader import StoreReader, pending_half_part
from commitlog_store.serve.http.actions.action import Action, ActionAsked, Done, Plan
from commitlog_store.store import MessageStore

_PAST = {"commit": "Committed", "roll back": "Rolled back"}


def _pending(reader: StoreReader, handle: HalfMessageHandle) -> PendingHalfMessage | None:
    at_its_place = pending_half_part(reader, lambda one: one.physical_offset == handle.physical_offset, slice)
    return next((one for one in at_its_place if one.handle == handle), None)


def _plan(end: HalfMessageEnd, reader: StoreReader, asked: ActionAsked) -> Plan:
    handle = HalfMessageHandle.parse(asked.text("handle"))
    pending = _pending(reader, handle)
    if pending is None and not reader.skipped:
        raise NotFoundError(
            f"No half message {handle} is pending in {reader.path}: it was committed, rolled back or given up, or the "
            "handle is another store's."
        )
    return Plan(words=half_message_words(end, handle, pending), state=handle)


def _do(end: HalfMessageEnd, store: MessageStore, asked: ActionAsked, plan: Plan) -> Done:
    del asked
    handle = plan.state
    assert isinstance(handle, HalfMessageHandle)
    if end == "commit":
        store.half_messages.commit(handle)
    else:
        store.half_messages.rollback(handle)
    return Done(sentence=f"{_PAST[end]} the half message {handle}.", link="/half", label="Half messages")


def _action(end: HalfMessageEnd, name: str, title: str, button: str) -> Action:
    return Action(
        name=name,
        path=f"/half/{name}",
        title=title,
        button=button,
        fields=("handle",),
        plan=partial(_plan, end),
        do=partial(_do, end),
        on_damage="skip",
    )


COMMIT_HALF = _action("commit", "commit", "Commit a half message", "Commit it")
ROLL_BACK_HALF = _action("roll back", "roll-back", "Roll back a half message", "Roll it back")
