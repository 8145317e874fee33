"""The action that gives a consumer group its dead letters again."""

from __future__ import annotations

from urllib.parse import quote

from commitlog_store.errors import CommitLogError, InvalidValue, NotFoundError
from commitlog_store.paths import validate_group
from commitlog_store.queries.redrive_plan import Redrive, redrive_ranges, redrive_targets, redrive_words
from commitlog_store.queries.texts import counted
from commitlog_store.reader import StoreReader
from commitlog_store.serve.http.actions.action import Action, ActionAsked, Done, Plan
from commitlog_store.store import MessageStore

_MOST = 10_000
# So many at once, and then a look at the time.
_STEP = 1_000


def _wanted(asked: ActionAsked) -> Redrive:
    """``InvalidValue``."""
    group, to, count = asked.names["name"], asked.text("to"), asked.text("count")
    validate_group(group)
    if to not in ("retry", "topic"):
        raise InvalidValue(f"Dead letters go to 'retry' or to their 'topic', not to {to!r}.")
    if count and not (count.isascii() and count.isdigit() and 0 < int(count[:9]) <= _MOST and len(count) < 9):
        raise InvalidValue(f"The number of dead letters is from 1 to {_MOST:,}, not {count!r}.")
    most = int(count) if count else _MOST
    return Redrive(group=group, most=most, to_topic=to == "topic", on_damage="raise", verify_crc=True)


def _plan(reader: StoreReader, asked: ActionAsked) -> Plan:
    wanted = _wanted(asked)
    rows = reader.dead_letters(wanted.group)
    if not rows:
        raise NotFoundError(f"The store at {reader.path} has no dead letters of group {wanted.group!r}.")
    ranges, targets = redrive_ranges(reader, wanted), redrive_targets(reader, wanted)
    words = redrive_words(wanted, targets, other_way="by its retry topic")
    waiting = sum(one.waiting or 0 for one in rows)
    if (left := waiting - targets.total()) > 0:
        words.append(f"{counted(left, 'dead letter')} would be left for another time.")
    # Which ones: of two confirmations of the first ten, the second is not for the next ten.
    return Plan(words=words, state=(ranges, targets), does_something=bool(targets.total()), details=targets.total())


def _do(store: MessageStore, asked: ActionAsked, plan: Plan) -> Done:
    wanted, most = _wanted(asked), plan.details
    assert isinstance(most, int)
    done, note, failure = 0, "", None
    try:
        while done < most and not asked.is_over:
            step = store.redrive(
                wanted.group, to="topic" if wanted.to_topic else "retry", max_messages=min(_STEP, most - done)
            )
            if not step:
                break
            done += step
        else:
            note = " The time for an action is over; the others are left for another one." if done < most else ""
    except CommitLogError as error:
        if not done:
            raise
        note, failure = f" Then it failed: {error}", error
    link = f"/dead-letters/{quote(wanted.group, safe='')}"
    return Done(
        sentence=f"Redriven: {counted(done, 'dead letter')} of group {wanted.group}.{note}",
        link=link,
        label="Dead letters of the group",
        error=failure,
    )


REDRIVE = Action(
    name="redrive",
    path="/dead-letters/{name}/redrive",
    title="Redrive dead letters",
    button="Redrive them",
    fields=("to", "count"),
    plan=_plan,
    do=_do,
    is_atomic=False,
)
