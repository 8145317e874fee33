"""The action that forgets what an application has committed."""

from __future__ import annotations

from commitlog_store.errors import NotFoundError
from commitlog_store.queries.forgotten_batches import forgotten_words, last_batch_of, unknown_application
from commitlog_store.reader import StoreReader
from commitlog_store.serve.http.actions.action import Action, ActionAsked, Done, Plan, PlanChanged
from commitlog_store.store import MessageStore


def _plan(reader: StoreReader, asked: ActionAsked) -> Plan:
    batches, application = reader.batches(), asked.fields["application"]
    last = last_batch_of(batches, application)
    if last is None:
        raise NotFoundError(str(unknown_application(reader.path, application, batches)))
    return Plan(words=forgotten_words(last), state=last)


def _do(store: MessageStore, asked: ActionAsked, plan: Plan) -> Done:
    application = asked.fields["application"]
    if last_batch_of(store.batches(), application) != plan.state:
        raise PlanChanged
    last = store.forget_batches(application)
    known = "" if last is None else f" Its last batch was {last.batch.version}."
    return Done(sentence=f"Forgot {application!r}.{known}", link="/batches", label="Batches")


FORGET = Action(
    name="forget",
    path="/batches/forget",
    title="Forget an application",
    button="Forget it",
    fields=("application",),
    plan=_plan,
    do=_do,
)
