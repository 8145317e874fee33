"""DecoderProcess: a process that decodes bodies, started again when one of them has ended it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from typing import NamedTuple

from commitlog_store.decoders.child import LENGTH_BYTES, PROCESSOR_S, REAL_S, START_S
from commitlog_store.errors import InvalidValue

LARGEST_BODY = 4 << 20
# The process ends itself at its limits. One that was stopped, or has a decoder that sets the timers again, does not.
_GRACE_S = 3.0


class Decoded(NamedTuple):
    """``json`` is one line, or None; ``problem`` says then why the body could not be decoded."""

    json: str | None
    problem: str = ""


class DecoderProcess:
    """Any number of threads; they take turns. ``close`` ends it."""

    def __init__(self, kind: str, argument: str, *, patience_s: float = REAL_S + _GRACE_S) -> None:
        """A process that gives no answer for so many seconds is ended."""
        self.kind = kind
        self._argument = argument
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._closed = False

    def start(self) -> None:
        """``InvalidValue`` for a decoder that cannot be made."""
        with self._lock:
            if self._process is None and (problem := self._start()):
                raise InvalidValue(problem)

    def decode(self, body: bytes) -> Decoded:
        """The body as JSON, or why not: also when it ended the process."""
        if len(body) > LARGEST_BODY:
            return Decoded(None, f"bodies of more than {LARGEST_BODY >> 20} MiB are not decoded")
        with self._lock:
            if self._closed:
                return Decoded(None, "the server stops")
            if self._process is None and (problem := self._start()):
                return Decoded(None, problem)
            answer = self._exchange(len(body).to_bytes(LENGTH_BYTES, "big") + body, self._patience_s)
            if answer is None:
                return Decoded(None, self._ended())
        text = answer[1:].decode()
        return Decoded(text) if answer[:1] == b"d" else Decoded(None, text)

    def close(self) -> None:
        """A second call does nothing. A body that is being decoded is waited for: its time is limited."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._ended()

    def _start(self) -> str:
        """Start the process. What is wrong with the decoder, or nothing."""
        self._socket, theirs = socket.socketpair()
        # -P: no file of the current directory is a module. Ctrl-C in the terminal is for the command, which ends this.
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "commitlog_store.decoders.child", self.kind, self._argument],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                start_new_session=True,
            )
        answer = self._exchange(b"", START_S + _GRACE_S)
        if answer is not None and answer[:1] == b"d":
            return ""
        problem = self._ended(f"{START_S:g} s to start")
        return problem if answer is None else answer[1:].decode()

    def _exchange(self, request: bytes, seconds: float) -> bytes | None:
        """The next answer; None of a process that has ended, or gives none within so many seconds."""
        assert self._socket is not None
        ends = time.monotonic() + seconds
        try:
            self._socket.settimeout(seconds)
            self._socket.sendall(request)
            size = int.from_bytes(self._received(LENGTH_BYTES, ends), "big")
            return self._received(size, ends) or None
        except (TimeoutError, ConnectionError, EOFError):
            return None

    def _received(self, size: int, ends: float) -> bytes:
        """So many bytes. ``EOFError``, ``ConnectionError``, ``TimeoutError``."""
        assert self._socket is not None
        data = bytearray(size)
        view = memoryview(data)
        while view:
            self._socket.settimeout(max(ends - time.monotonic(), 0.001))
            count = self._socket.recv_into(view)
            if not count:
                raise EOFError
            view = view[count:]
        return bytes(data)

    def _ended(self, limit: str = f"{PROCESSOR_S:g} s of processor time, or {REAL_S:g} s, to decode") -> str:
        """End the process, if it has not ended. How it did; ``limit`` is what one has taken that was ended for it."""
        process, self._process = self._process, None
        assert process is not None
        assert self._socket is not None
        self._socket.close()
        try:
            code = process.wait(1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"it takes more than {limit}"
        if code in (-signal.SIGPROF, -signal.SIGALRM):
            return f"it takes more than {limit}"
        return f"the decoder {self.kind} ended with {_name_of(code)}"


def _name_of(code: int) -> str:
    try:
        return signal.Signals(-code).name if code < 0 else f"code {code}"
    except ValueError:
        return f"signal {-code}"
