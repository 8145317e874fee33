"""Actions: how an action from the pages is asked for, shown, confirmed, done and noted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from commitlog_store.errors import CommitLogError, InvalidValue, ServerBusy
from commitlog_store.paths import AUDIT_LOG
from commitlog_store.serve.http.access import HttpAccess
from commitlog_store.serve.http.actions.action import Action, ActionAsked, Done, Plan, PlanChanged
from commitlog_store.serve.http.actions.audit_log import AuditLog, event_of
from commitlog_store.serve.http.actions.confirmations import Confirmations
from commitlog_store.serve.http.app import HttpRoute
from commitlog_store.serve.http.forms import read_form
from commitlog_store.serve.http.pages.templates import render
from commitlog_store.serve.http.pages.views import Values
from commitlog_store.serve.http.served_stores import ServedStores
from commitlog_store.store import MessageStore

_LOG = logging.getLogger(__name__)
# How long an action may take; those of many parts end after the one under way.
_ACTION_S = 60.0
_MOST_WAITING = 8
_CHANGED = "The store has changed since this was shown. Nothing was done; what would be done now:"
_USED = (
    "This confirmation was used, is more than ten minutes old, or was of another form: nothing was done now. Begin "
    "again at the page, which shows whether it was done before."
)


class Actions:
    """Answers requests for actions on the owned store. For one event loop.

    ``frame`` gives what each page has around it.
    """

    def __init__(
        self,
        stores: ServedStores,
        access: HttpAccess,
        frame: Callable[[Request], Values],
        actions: Sequence[Action],
    ) -> None:
        self._stores = stores
        self._access = access
        self._frame = frame
        self._actions = actions
        self._shown = Confirmations()
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._audit = None if stores.owned is None else AuditLog(os.path.join(stores.owned.path, AUDIT_LOG))

    def routes(self) -> Iterable[HttpRoute]:
        for action in self._actions:
            if action.form is not None:
                yield HttpRoute(path=action.path, answer=partial(self._empty_form, action))
            yield HttpRoute(path=action.path, answer=partial(self._answer, action), methods=("POST",))

    async def _empty_form(self, action: Action, request: Request) -> Response:
        self._refuse_others(request, action)
        return await self._form(request, action, {name: request.query_params.get(name, "") for name in action.fields})

    async def _answer(self, action: Action, request: Request) -> Response:
        self._refuse_others(request, action)
        form = await read_form(request, largest=action.largest_form, most_fields=len(action.fields) + 4)
        if not self._access.is_own_form(request, form.get("form_token", "")):
            raise HTTPException(403, "The form is none of this session's: load its page again.")
        fields = {name: form.get(name, "").replace("\r\n", "\n") for name in action.fields}
        if "confirmation" in form:
            return await self._confirmed(request, action, fields, form["confirmation"])
        try:
            plan = await self._stores.in_thread(lambda: self._plan(action, self._asked(request, fields)))
        except InvalidValue as error:
            if action.form is None:
                raise
            return await self._form(request, action, fields, str(error))
        return self._ask(request, action, fields, plan)

    def _refuse_others(self, request: Request, action: Action) -> MessageStore | None:
        """``HTTPException`` 403 for who may not act, and where none may."""
        store, visitor = self._stores.owned, request.state.visitor
        if store is None and action.changes_store:
            raise HTTPException(403, "This server shows the store read only: actions are done by the store's owner.")
        if not self._access.wants_token:
            raise HTTPException(
                403,
                "Actions need a token of the role admin, and this server has no token file: start it with --tokens. "
                "`commitlog token new` makes tokens.",
            )
        if not visitor.may_act:
            _LOG.warning("%r is refused to %r", request.scope["path"], visitor.name)
            raise HTTPException(403, "Actions need a browser that has signed in with a token of the role admin.")
        return store

    def _asked(self, request: Request, fields: Mapping[str, str]) -> ActionAsked:
        return ActionAsked(
            names=request.path_params,
            fields=fields,
            ends=time.monotonic() + _ACTION_S,
            by=request.state.visitor.name,
        )

    def _plan(self, action: Action, asked: ActionAsked) -> Plan:
        with self._stores.lent(on_damage=action.on_damage) as reader:
            return action.plan(reader, asked)

    async def _form(self, request: Request, action: Action, fields: Mapping[str, str], problem: str = "") -> Response:
        look = action.form
        assert look is not None

        def work() -> Values:
            with self._stores.lent(on_damage=action.on_damage) as reader:
                return look(reader, request.path_params)

        values = {**self._frame(request), **await self._stores.in_thread(work), "given": fields, "problem": problem}
        page = render(f"{action.name}_form.html", {**values, "action": action})
        return HTMLResponse(page, 400 if problem else 200)

    def _ask(self, request: Request, action: Action, fields: Mapping[str, str], plan: Plan, note: str = "") -> Response:
        session = self._access.session_of(request)
        path = request.scope["path"]
        confirmation = self._shown.add(session, path, fields, plan.state) if plan.does_something else ""
        values = {"action": action, "fields": fields, "plan": plan, "note": note, "confirmation": confirmation}
        page = render("confirm.html", {**self._frame(request), **values, "names": request.path_params})
        return HTMLResponse(page, 409 if note else 200)

    async def _confirmed(
        self, request: Request, action: Action, fields: Mapping[str, str], confirmation: str
    ) -> Response:
        if self._waiting > _MOST_WAITING:  # before the confirmation is used
            raise ServerBusy(f"{_MOST_WAITING} actions wait for their turn, as many as the server lets wait.")
        state = self._shown.take(confirmation, self._access.session_of(request), request.scope["path"], fields)
        if state is None:
            raise HTTPException(409, _USED)
        by, peer = request.state.visitor.name, "" if request.client is None else "{}:{}".format(*request.client)
        self._waiting += 1
        try:
            async with self._turn:
                request.state.visitor = self._access.visitor(request)  # its token may have ended since
                store = self._refuse_others(request, action)
                asked = self._asked(request, fields)
                found = await self._stores.in_thread(
                    lambda: self._do(store, action, asked, state, by=by, peer=peer), seconds=_ACTION_S
                )
        finally:
            self._waiting -= 1
        if isinstance(found, Plan):
            return self._ask(request, action, fields, found, _CHANGED)
        return HTMLResponse(render("done.html", {**self._frame(request), "action": action, "done": found}))

    def _do(
        self, store: MessageStore | None, action: Action, asked: ActionAsked, state: object, *, by: str, peer: str
    ) -> Done | Plan:
        """What was done; the plan where it is another one than was shown. In a thread."""
        plan = self._plan(action, asked)
        if plan.state != state:
            return plan
        entry = self._note_begin(action, asked, by=by, peer=peer)
        try:
            done = action.do(store, asked, plan)
        except PlanChanged:
            self._note_end(entry, "refused", _CHANGED)
            return self._plan(action, asked)
        except Exception as error:
            text = str(error) if isinstance(error, CommitLogError) else f"{type(error).__name__}: {error}"
            self._note_end(entry, event_of(error, is_atomic=action.is_atomic), text)
            raise
        event = "done" if done.error is None else event_of(done.error, is_atomic=False)
        problem = self._note_end(entry, event, done.sentence)
        if store is not None:
            with contextlib.suppress(CommitLogError):  # the action is done; the pages say what is wrong with the store
                store.dispatch()  # so that the next page shows it
        return replace(done, sentence=f"{done.sentence} {problem}".rstrip())

    def _note_begin(self, action: Action, asked: ActionAsked, *, by: str, peer: str) -> str:
        """The entry of the audit log; beside the store's owner, which writes there, a line of the server's log."""
        if self._audit is None:
            _LOG.warning("%s of %r from %s: %s", action.name, by, peer, dict(action.logged(asked)))
            return ""
        return self._audit.begin(action=action.name, by=by, peer=peer, names=asked.names, fields=action.logged(asked))

    def _note_end(self, entry: str, event: Any, result: str) -> str:
        """What is wrong with the audit log, which cannot undo what was done."""
        if self._audit is None:
            return ""
        try:
            self._audit.end(entry, event, result)
        except CommitLogError as error:
            _LOG.error("The outcome of the action %s (%s: %s) is not in the audit log: %s", entry, event, result, error)
            return f"Its outcome could not be written to the audit log: {error}"
        return ""
