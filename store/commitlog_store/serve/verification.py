"""Verification: a store verified by a process beside the server, one at a time; its progress and its last report.

``verify_for_client``: a client begins one, and asks for it until its end.
"""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec

from commitlog_store.errors import RemoteFailed, ServerBusy
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.remote.wire import Verifying, encode_error
from commitlog_store.serve.verify_child import Line, Progressed, Verified, VerifyFailed, WholeAssessment
from commitlog_store.threads.wakeup import Waiters, Wakeup

# How long the verification of a client that asks no more continues.
LEASE_S = 60.0
# For so long after its end, a client that lost the answer gets the outcome of its verification.
KEPT_S = 300.0
# So often a waiting call asks whether it is wanted still.
_ASK_S = 0.5


@dataclass(frozen=True, kw_only=True)
class VerificationState:
    """Times are milliseconds. ``process`` is the id of the one that verifies, None while none does.

    ``progress`` is None before the first block. ``report`` is the last one, which ended at ``reported_at``.
    ``problem`` says why the last verification has none, which ended at ``ended_at``; ``error`` is that as an error of
    the store, encoded.
    ``verification_id`` is the name that a client gave to the one under way, or to the last one until ``KEPT_S`` after
    its end; None for one that was begun at the page. Only that of a client has its ``assessment``, encoded.
    """

    process: int | None = None
    by: str = ""
    verification_id: str | None = None
    begun_at: int = 0
    progress: Progressed | None = None
    report: Verified | None = None
    reported_at: int = 0
    assessment: bytes | None = None
    problem: str = ""
    error: bytes | None = None
    ended_at: int = 0

    @property
    def is_running(self) -> bool:
        return self.process is not None


class Verification:
    """Of one store. Any number of threads. ``close`` ends the one under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        # That of the one under way, or of the last one.
        self._last_process: subprocess.Popen[bytes] | None = None
        self._state = VerificationState()
        self._problem = ""
        self._reading: threading.Thread | None = None
        self._waiters = Waiters()
        # When the client of the one under way is taken to be gone, unless it asks before.
        self._lease_ends = math.inf
        self._closed = False

    @property
    def state(self) -> VerificationState:
        return self._state

    def start(self, paths: StorePaths, by: str, *, verification_id: str | None = None) -> bool:
        """Start one for ``by``. False when one is under way, or the server stops.

        With ``verification_id``, the name that a client gave it, it ends when that client does not call ``renew`` any
        more.
        """
        is_of_client = verification_id is not None
        with self._lock:
            if self._process is not None or self._closed:
                return False
            self._problem = ""
            self._lease_ends = time.monotonic() + LEASE_S if is_of_client else math.inf
            program = [sys.executable, "-P", "-m", "commitlog_store.serve.verify_child"]
            self._process = self._last_process = subprocess.Popen(
                [*program, paths.root, paths.elsewhere or "", *(["whole"] if is_of_client else [])],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the server, which ends it
            )
            self._state = replace(
                self._state,
                process=self._process.pid,
                by=by,
                verification_id=verification_id,
                begun_at=_now_ms(),
                progress=None,
                assessment=None,
                problem="",
                error=None,
            )
            self._reading = threading.Thread(target=self._read, args=(self._process,), name="verification", daemon=True)
            self._reading.start()
            self._waiters.wake_all()
            if is_of_client:
                threading.Thread(target=self._watch, args=(self._process,), name="verification", daemon=True).start()
            return True

    def cancel(self, reason: str, *, verification_id: str | None = None) -> bool:
        """End the one under way, or only the client's of this name; ``reason`` is its problem then.

        False when none is.
        """
        with self._lock:
            process, reading = self._process, self._reading
            if process is None or reading is None or verification_id not in (None, self._state.verification_id):
                return False
            self._problem = reason
            process.kill()  # it changes nothing
        reading.join()
        return True

    def renew(self) -> None:
        """The client of the one under way is there still."""
        if self._state.verification_id is not None:
            self._lease_ends = time.monotonic() + LEASE_S

    def wait(self, seconds: float, is_wanted: Callable[[], bool]) -> None:
        """Return when none is under way any more, after ``seconds``, or when the answer is not wanted any more."""
        ends = time.monotonic() + seconds
        with self._waiters.waiting(Wakeup()) as wakeup:
            while self._state.is_running and is_wanted() and (left := ends - time.monotonic()) > 0:
                wakeup.wait(min(left, _ASK_S))

    def close(self) -> None:
        self._closed = True
        self.cancel("The server stopped.")
        self._waiters.wake_all()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        end: Verified | VerifyFailed | None = None
        assessment: bytes | None = None
        with process.stdout:
            for text in process.stdout:
                if not text.endswith(b"\n"):  # the process was ended within the line
                    break
                line = msgspec.json.decode(text, type=Line)
                if isinstance(line, Progressed):
                    self._state = replace(self._state, progress=line)
                elif isinstance(line, WholeAssessment):
                    assessment = line.encoded
                else:
                    end = line
        code = process.wait()
        with self._lock:
            problem = self._problem or _end_of(code)
            ended = replace(self._state, process=None, progress=None, ended_at=_now_ms())
            if isinstance(end, Verified):
                ended = replace(ended, report=end, reported_at=ended.ended_at, assessment=assessment)
            else:
                ended = replace(ended, problem=problem)
                if end is not None:
                    ended = replace(ended, problem=end.problem, error=end.error)
            self._state, self._process, self._reading = ended, None, None
        self._waiters.wake_all()

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """End the verification of a client that is gone, and forget one ``KEPT_S`` after its end."""
        with self._waiters.waiting(Wakeup()) as wakeup:
            while self._goes_on(process):
                wakeup.wait(_ASK_S)
            ends = time.monotonic() + KEPT_S
            while not self._closed and self._last_process is process and (left := ends - time.monotonic()) > 0:
                wakeup.wait(left)
        with self._lock:
            if self._last_process is process and not self._closed:
                self._state = replace(self._state, verification_id=None, assessment=None)

    def _goes_on(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether this is the one under way, whose client asks for it still; it is ended if not."""
        with self._lock:
            if self._process is not process:
                return False
            if time.monotonic() > self._lease_ends:
                self._problem = "Its client asked no more."
                process.kill()
            return True


def _end_of(code: int) -> str:
    if code < 0:
        return f"Signal {-code} ended the process that verified; the system does that when memory is short, too."
    return f"The process that verified ended with code {code}; the server's log says more."


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


_LONGEST_WAIT_S = 5.0


def verify_for_client(
    verification: Verification,
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
