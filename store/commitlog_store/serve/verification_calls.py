"""A client's verification of a store: begun, asked for until its end, cancelled. One at a time for a store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from commitlog_store.errors import RemoteFailed, ServerBusy
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.remote.wire import Verifying, encode_error
from commitlog_store.serve.verification import Verification, VerificationState

_LONGEST_WAIT_S = 5.0


class VerificationCalls:
    """Answers the calls ``verify`` and ``cancel_verification`` about one store."""

    def __init__(self, verification: Verification) -> None:
        self._verification = verification

    def verify(
        self,
        paths: StorePaths,
        by: str,
        verification_id: str,
        begins: bool,
        seconds: float,
        is_wanted: Callable[[], bool],
    ) -> Verifying:
        """How far the verification of this name is, after a wait for its end; it is begun for ``by`` if need be.

        Errors are in the answer: a call that raises ``ServerBusy`` is asked again.
        """
        verification = self._verification
        if verification.state.verification_id != verification_id:
            if not begins:
                return _failed(
                    "The server does not know this verification any more: it was started again, another one has begun "
                    "since, or this one ended minutes ago. Ask for it again."
                )
            if not verification.start(paths, by, verification_id=verification_id):
                return Verifying(error=encode_error(ServerBusy(_busy(verification.state))))
        verification.renew()
        verification.wait(min(seconds, _LONGEST_WAIT_S), is_wanted)
        return _so_far(verification.state, verification_id)

    def cancel(self, verification_id: str) -> None:
        """End the verification of this name, if it is under way."""
        self._verification.cancel("Its client cancelled it.", verification_id=verification_id)


def _so_far(state: VerificationState, verification_id: str) -> Verifying:
    if state.verification_id != verification_id:
        return _failed("Another verification of the store has begun since this one ended. Ask for it again.")
    if state.is_running:
        now = state.progress
        return Verifying() if now is None else Verifying(now.done, now.total)
    if state.error is not None:
        return Verifying(error=state.error)
    if state.problem or state.report is None:
        return _failed(f"The verification of the store at the server ended without a report. {state.problem}")
    if state.assessment is None:
        return _failed("The report is too large to be sent: verify the store where its directory is.")
    return Verifying(assessment=state.assessment)


def _failed(reason: str) -> Verifying:
    return Verifying(error=encode_error(RemoteFailed(reason)))


def _busy(state: VerificationState) -> str:
    if not state.is_running:
        return "The server stops."
    begun = datetime.fromtimestamp(state.begun_at / 1000, UTC)
    now = state.progress
    far = f" {now.done * 100 // now.total} % of the log are read." if now is not None and now.total else ""
    return (
        f"A verification of the store is under way, which {state.by} began at {begun:%Y-%m-%d %H:%M:%S} UTC.{far} "
        "One at a time runs: ask again when it has ended."
    )
