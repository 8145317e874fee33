"""Action: something that an admin may do from the pages: its fields, what it would do, and how it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from commitlog_store.errors import CommitLogError
from commitlog_store.reader import OnDamage, StoreReader
from commitlog_store.serve.call_limits import is_wanted_still
from commitlog_store.serve.http.pages.views import Values

# Bytes of a form, as it is sent.
_LARGEST_FORM = 16 << 10


class PlanChanged(Exception):
    """The store is not as it was when the plan was made, as it says itself: nothing was done."""


@dataclass(frozen=True, kw_only=True)
class ActionAsked:
    """``names`` are those of the path, ``fields`` the action's own, each present. ``ends`` is monotonic, in seconds.

    ``by`` is the name of the token.
    """

    names: Mapping[str, str]
    fields: Mapping[str, str]
    ends: float
    by: str = ""

    def text(self, name: str) -> str:
        return self.fields[name].strip()

    @property
    def is_over(self) -> bool:
        """Whether what has many parts is to end before the next one."""
        return time.monotonic() >= self.ends or not is_wanted_still()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What would be done: sentences, perhaps a table, and ``state``, which another plan must have to be the same.

    ``details`` are what ``do`` needs of the plan that is made at that moment, and may differ from what was shown.
    ``does_something`` is False for a plan that there is no use to confirm.
    """

    words: Sequence[str]
    state: object
    details: object = None
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    does_something: bool = True


@dataclass(frozen=True, kw_only=True)
class Done:
    """What was done, in a sentence, and the page that shows it. ``error`` ended it when a part had been done."""

    sentence: str
    link: str
    label: str
    error: CommitLogError | None = None


def _all_fields(asked: ActionAsked) -> Mapping[str, object]:
    return {name: value for name, value in asked.fields.items() if value}


@dataclass(frozen=True, kw_only=True)
class Action:
    """``plan`` and ``do`` run in a thread. ``do`` is given the open ``MessageStore``, and the plan that was confirmed,
    as it was made again. It may raise ``PlanChanged``. ``changes_store`` is False for an action that needs no open
    store: it may be done beside the store's owner, too.

    ``form`` gives the values of the template ``NAME_form.html``, shown at the action's path; without it, the form is a
    part of a page. ``logged`` is what the audit log says of the fields. ``title`` and ``button`` name it on the page
    that asks. ``is_atomic``: a part of it is never done, so that an error which refuses it says that nothing was.
    """

    name: str
    path: str
    title: str
    button: str
    fields: Sequence[str]
    plan: Callable[[StoreReader, ActionAsked], Plan]
    do: Callable[[Any, ActionAsked, Plan], Done]
    form: Callable[[StoreReader, Mapping[str, str]], Values] | None = None
    logged: Callable[[ActionAsked], Mapping[str, object]] = field(default=_all_fields)
    largest_form: int = _LARGEST_FORM
    on_damage: OnDamage = "raise"
    is_atomic: bool = True
    changes_store: bool = True
