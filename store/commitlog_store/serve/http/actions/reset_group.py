"""The action that moves a consumer group to another position."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from commitlog_store.errors import InvalidValue, NotFoundError
from commitlog_store.java_numbers import MAX_INT
from commitlog_store.paths import validate_group
from commitlog_store.queries.group_reset import Move, Target, group_moves, move_words
from commitlog_store.reader import StoreReader
from commitlog_store.serve.http.actions.action import Action, ActionAsked, Done, Plan, PlanChanged
from commitlog_store.serve.http.pages.views import Values
from commitlog_store.store import MessageStore

_ROWS = 500


def _moves(reader: StoreReader, asked: ActionAsked) -> list[Move]:
    """``InvalidValue``, and the errors of reading."""
    group, topic, queue, to = asked.names["name"], asked.text("topic"), asked.text("queue"), asked.text("to")
    validate_group(group)
    if not to:
        raise InvalidValue("Say where the group is to be moved: earliest, latest, a time, or a queue offset.")
    if queue and not (queue.isascii() and queue.isdigit() and len(queue) < 11 and int(queue) <= MAX_INT):
        raise InvalidValue(f"A queue is a number from 0 on, not {queue!r}.")
    target = Target.parse(to, topic or None)
    return group_moves(reader, group, topic or None, int(queue) if queue else None, target)


def _form(reader: StoreReader, names: Mapping[str, str]) -> Values:
    group = names["name"]
    topics = sorted({topic for topic, _ in reader.group_offsets(group)})
    if not topics:
        raise NotFoundError(f"The store at {reader.path} has no positions of a group {group!r}.")
    return {"group": group, "topics": topics}


def _plan(reader: StoreReader, asked: ActionAsked) -> Plan:
    moves = _moves(reader, asked)
    words = move_words(moves)
    if len(moves) > _ROWS:
        words.append(f"The first {_ROWS} of {len(moves)} queues are shown.")
    return Plan(
        words=words,
        # The end of a queue moves with each message: who chose it has seen "latest" and not a number.
        state=[one.positions[:3] if asked.text("to") == "latest" else one.positions for one in moves],
        details=[one.positions for one in moves],
        columns=("Topic", "Queue", "From", "To", "First", "End"),
        rows=[
            (one.topic, one.queue_id, one.before, one.after, one.min_offset, one.max_offset) for one in moves[:_ROWS]
        ],
    )


def _do(store: MessageStore, asked: ActionAsked, plan: Plan) -> Done:
    group, positions = asked.names["name"], plan.details
    assert isinstance(positions, list)
    after = {(topic, queue): to for topic, queue, _, to in positions}
    before = {(topic, queue): former for topic, queue, former, _ in positions}
    if not store.commit_group_offsets(group, after, expected=before):
        raise PlanChanged
    return Done(
        sentence=f"Group {group} has new positions in {len(after)} queues.",
        link=f"/groups/{quote(group, safe='')}",
        label="Positions of the group",
    )


RESET = Action(
    name="reset",
    path="/groups/{name}/reset",
    title="Move a consumer group",
    button="Set these positions",
    fields=("to", "topic", "queue"),
    plan=_plan,
    do=_do,
    form=_form,
)
