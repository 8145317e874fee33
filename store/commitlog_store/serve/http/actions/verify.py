"""The actions that start a verification of a store, and cancel it. They change nothing, and need no owner."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from commitlog_store.queries.texts import counted
from commitlog_store.reader import StoreReader
from commitlog_store.serve.http.actions.action import Action, ActionAsked, Done, Plan, PlanChanged
from commitlog_store.serve.http.pages.templates import size, with_query
from commitlog_store.serve.http.served_stores import ServedStores
from commitlog_store.serve.verification import VerificationState
from commitlog_store.verify.store_facts import disk_use


def verify_actions(stores: ServedStores) -> Sequence[Action]:
    """Of the stores that are served; the field ``name`` chooses one."""
    one = _VerifyActions(stores)
    return (
        Action(
            name="verify", path="/verify/start", title="Verify the store", button="Verify it", fields=("name",),
            plan=one.plan_start, do=one.start, changes_store=False,
        ),
        Action(
            name="cancelVerify", path="/verify/cancel", title="Cancel the verification", button="Cancel it",
            fields=("name",), plan=one.plan_cancel, do=one.cancel, changes_store=False,
        ),
    )  # fmt: skip


class _VerifyActions:
    def __init__(self, stores: ServedStores) -> None:
        self._stores = stores

    def plan_start(self, _reader: StoreReader, asked: ActionAsked) -> Plan:
        state = self._state(asked)
        if state.is_running:
            return Plan(words=[f"{_under_way(state)} Only one at a time runs."], state=False, does_something=False)
        with self._stores.lent(asked.fields["name"]) as reader:
            files, taken = disk_use(reader.paths)
            what = f"It would verify {reader.path}: read {size(taken)}, of which the log has {counted(files, 'file')}."
        how = "A process of its own does it, with the lowest priority, and rests half of the time. It changes nothing."
        return Plan(words=[what, how], state=True)

    def start(self, _store: object, asked: ActionAsked, plan: Plan) -> Done:
        del plan
        name = asked.fields["name"]
        with self._stores.lent(name) as reader:
            paths = reader.paths
        if not self._stores.verification(name).start(paths, asked.by):
            raise PlanChanged
        return _done("The verification has begun.", name)

    def plan_cancel(self, _reader: StoreReader, asked: ActionAsked) -> Plan:
        state = self._state(asked)
        if not state.is_running:
            return Plan(words=["No verification is under way."], state=None, does_something=False)
        return Plan(
            words=[_under_way(state), "It would be ended without a report. The last report stays."],
            state=state.begun_at,
        )

    def cancel(self, _store: object, asked: ActionAsked, plan: Plan) -> Done:
        del plan
        name = asked.fields["name"]
        if not self._stores.verification(name).cancel(f"{asked.by} cancelled it."):
            raise PlanChanged
        return _done("The verification was cancelled.", name)

    def _state(self, asked: ActionAsked) -> VerificationState:
        return self._stores.verification(asked.fields["name"]).state


def _under_way(state: VerificationState) -> str:
    begun = datetime.fromtimestamp(state.begun_at / 1000, UTC)
    return f"A verification is under way, which {state.by} began at {begun:%Y-%m-%d %H:%M:%S}."


def _done(sentence: str, name: str) -> Done:
    return Done(sentence=sentence, link=with_query("/verify", {"store": name}), label="Verify")
