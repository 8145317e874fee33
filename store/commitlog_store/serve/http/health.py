"""``/healthz`` and ``/readyz``: whether the process works, and whether its stores take work, for probes.

200 or 503, with a JSON body that names each check. Both answer without a token; reasons, which name paths, are only in
answers to requests that have one, or where there is no token file.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from commitlog_store.engine.running_state import RunningFlags
from commitlog_store.errors import CommitLogError
from commitlog_store.serve.http.app import HttpRoute
from commitlog_store.serve.http.served_stores import ServedStores
from commitlog_store.store import MessageStore, owned_by

# Dispatch of so many bytes takes about a second; messages that are older than that are late for readers.
MOST_BEHIND_BYTES = 256 << 20
_READ_S = 10.0


class Check(NamedTuple):
    """One thing that was looked at; ``reason`` is empty where it is as it should be."""

    name: str
    reason: str = ""

    @property
    def ok(self) -> bool:
        return not self.reason


class Health:
    """The probes of the served stores."""

    def __init__(self, stores: ServedStores, *, most_behind_bytes: int = MOST_BEHIND_BYTES) -> None:
        self._stores = stores
        self._most_behind = most_behind_bytes
        # Probes of a store that hangs wait for one look at it, and take no more of the threads.
        self._looking = threading.Lock()

    async def healthz(self, request: Request) -> Response:
        """Whether this process is to be left running. It touches no disk: a slow one is no reason to restart."""
        owned = self._stores.owned
        return _answer(request, {} if owned is None else {"store": [_not_halted(owned)]})

    async def readyz(self, request: Request) -> Response:
        """Whether clients are to be sent here."""
        owned = self._stores.owned
        if owned is not None:
            return _answer(request, {"store": self.owned_checks(owned)})
        found = {name or "store": await self._readable(name) for name in self._stores.names}
        return _answer(request, found)

    def owned_checks(self, store: MessageStore) -> list[Check]:
        """The checks of the store that this process owns. It reads memory only."""
        engine = owned_by(store).engine
        state = engine.state
        behind = engine.reput.undispatched_bytes
        late = f"{behind} bytes of the log are not dispatched, more than {self._most_behind}."
        full = RunningFlags.DISK_FULL in state.flags
        takes = "" if state.writable or full or state.is_replica else state.refusal or ""
        return [
            _not_halted(store),
            Check("open", "The store is closed." if state.closed else ""),
            Check("disk", (state.refusal or "The disk is full.") if full else ""),
            Check("accepts messages", takes),
            Check("dispatch", late if behind > self._most_behind else ""),
        ]

    async def _readable(self, name: str) -> list[Check]:
        """Whether a store that another process owns can be read."""

        def look() -> str:
            if not self._looking.acquire(timeout=_READ_S):
                return f"The store has not answered for {_READ_S:g} s."
            try:
                with self._stores.lent(name) as reader:
                    reader.log_start()
            except (CommitLogError, OSError) as error:
                return str(error)
            finally:
                self._looking.release()
            return ""

        return [Check("readable", await self._stores.in_thread(look, seconds=2 * _READ_S))]


def health_routes(stores: ServedStores) -> Sequence[HttpRoute]:
    health = Health(stores)
    return [
        HttpRoute(path="/healthz", answer=health.healthz, is_open=True),
        HttpRoute(path="/readyz", answer=health.readyz, is_open=True),
    ]


def _not_halted(store: MessageStore) -> Check:
    failure = owned_by(store).engine.state.failure
    return Check("not halted", "" if failure is None else str(failure) or type(failure).__name__)


def _answer(request: Request, stores: dict[str, list[Check]]) -> Response:
    ok = all(check.ok for checks in stores.values() for check in checks)
    shows_reasons = request.state.visitor is not None
    body = {
        "status": "ok" if ok else "failing",
        "stores": {name: [_shown(check, shows_reasons) for check in checks] for name, checks in stores.items()},
    }
    return JSONResponse(body, 200 if ok else 503, headers={"cache-control": "no-store"})


def _shown(check: Check, shows_reason: bool) -> dict[str, object]:
    reason = {"reason": check.reason} if check.reason and shows_reason else {}
    return {"check": check.name, "ok": check.ok, **reason}
