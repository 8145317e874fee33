"""Waiting for a pipe or a socket."""

from __future__ import annotations

import selectors
import socket
from typing import IO, Any


def readable(stream: IO[Any] | socket.socket | int | None, timeout: float) -> bool:
    """Whether input, or its end, arrives within so many seconds. Any descriptor will do: ``select`` takes
    none above 1,023, which a long run of tests may reach."""
    assert stream is not None
    with selectors.PollSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return bool(selector.select(timeout))
