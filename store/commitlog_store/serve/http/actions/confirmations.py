"""Confirmations: what admins were shown and have not confirmed yet. Each is good once, for a while, for one session."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

_GOOD_FOR_S = 600.0
# Each keeps what it showed, perhaps the positions of thousands of queues.
_MOST = 64


@dataclass(frozen=True)
class _Shown:
    session: str
    digest: bytes
    state: object
    ends: float


class Confirmations:
    """For one event loop. The oldest ones are forgotten when there are many."""

    def __init__(self, *, good_for_s: float = _GOOD_FOR_S) -> None:
        self._good_for_s = good_for_s
        self._shown: OrderedDict[str, _Shown] = OrderedDict()

    def add(self, session: str, path: str, fields: Mapping[str, str], state: object) -> str:
        """What names it in the form that confirms it."""
        name = secrets.token_urlsafe(24)
        self._shown[name] = _Shown(session, _digest(path, fields), state, time.monotonic() + self._good_for_s)
        while len(self._shown) > _MOST:
            self._shown.popitem(last=False)
        return name

    def take(self, name: str, session: str, path: str, fields: Mapping[str, str]) -> object | None:
        """The state of the plan that was shown. None for one that was used, is too old, or is another's."""
        shown = self._shown.pop(name, None)
        if shown is None or shown.session != session or time.monotonic() >= shown.ends:
            return None
        return shown.state if shown.digest == _digest(path, fields) else None


def _digest(path: str, fields: Mapping[str, str]) -> bytes:
    return hashlib.sha256(json.dumps([path, sorted(fields.items())]).encode()).digest()
