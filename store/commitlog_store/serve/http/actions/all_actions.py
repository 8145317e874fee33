"""All actions of the pages."""

from __future__ import annotations

from commitlog_store.serve.http.actions.end_half_message import COMMIT_HALF, ROLL_BACK_HALF
from commitlog_store.serve.http.actions.forget_batches import FORGET
from commitlog_store.serve.http.actions.produce import PRODUCE
from commitlog_store.serve.http.actions.redrive import REDRIVE
from commitlog_store.serve.http.actions.reset_group import RESET

ACTIONS = (PRODUCE, RESET, REDRIVE, COMMIT_HALF, ROLL_BACK_HALF, FORGET)
