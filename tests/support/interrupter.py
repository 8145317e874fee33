"""Ctrl-C, or another event, at a chosen line, or while the main thread waits."""

from __future__ import annotations

import linecache
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any


def _ctrl_c() -> None:
    raise KeyboardInterrupt


@contextmanager
def signal_handler(react: Callable[[], object]) -> Iterator[None]:
    """``react`` is called in the main thread at each SIGUSR1."""
    before = signal.signal(signal.SIGUSR1, lambda *_: react())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


class Interrupter:
    """Ctrl-C, or ``event``, at the ``turn``-th line that this thread runs in the modules whose paths end so."""

    def __init__(self, turn: int, modules: tuple[str, ...], event: Callable[[], object] = _ctrl_c) -> None:
        self._turn = turn
        self._modules = modules
        self._event = event
        self._lines = 0
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.endswith(self._modules):
            return None
        # No signal comes between a lock and its block, at a bare "try" or at a "pass"; tracing would stop there.
        source = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
        if event == "line" and not source.startswith(("with ", "try:", "pass")):
            self._lines += 1
            if self._lines == self._turn:
                self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                self._event()
        return self

    def run(self, call: Callable[[], object]) -> None:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            call()
        finally:
            sys.settrace(before)


@contextmanager
def interrupt_main_thread(when: Callable[[], object]) -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` once in the main thread, which runs the block, after ``when`` returns.

    A signal that comes right before the main thread blocks is handled only after the block, so it is sent until it is.
    """
    handled = threading.Event()

    def handle(*_: object) -> None:
        if not handled.is_set():
            handled.set()
            raise KeyboardInterrupt

    def send() -> None:
        when()
        while not handled.wait(0.01):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    try:
        yield
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
