"""DecoderProcess: a process that decodes bodies, started again when one of them has ended it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from typing import NamedTuple

from commitlog_store.decoders.child import LENGTH_BYTES, PROCESSOR_S, REAL_S
from commitlog_store.errors import InvalidValue

LARGEST_BODY = 4 << 20


class Decoded(NamedTuple):
    """``json`` is one line, or None; ``problem`` says then why the body could not be decoded."""

    json: str | None
    problem: str = ""


class DecoderProcess:
    """Any number of threads; they take turns. ``close`` ends it."""

    def __init__(self, kind: str, argument: str) -> None:
        self.kind = kind
        self._argument = argument
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
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
            answer = self._exchange(len(body).to_bytes(LENGTH_BYTES, "big") + body)
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
        # -P: no file of the current directory is a module. Ctrl-C in the terminal is for the command, which ends this.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "commitlog_store.decoders.child", self.kind, self._argument],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        answer = self._exchange(b"")
        if answer is not None and answer[:1] == b"d":
            return ""
        problem = self._ended()
        return problem if answer is None else answer[1:].decode()

    def _exchange(self, request: bytes) -> bytes | None:
        """The next answer; None of a process that has ended."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(request)
            process.stdin.flush()
        except BrokenPipeError:
            return None
        length = process.stdout.read(LENGTH_BYTES)
        size = int.from_bytes(length, "big")
        data = process.stdout.read(size) if len(length) == LENGTH_BYTES else b""
        return data if size and len(data) == size else None

    def _ended(self) -> str:
        """End the process, if it has not ended. How it did."""
        process, self._process = self._process, None
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()  # the process ends at its next answer, too
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            code = process.wait(1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code in (-signal.SIGPROF, -signal.SIGALRM):
            return f"it takes more than {PROCESSOR_S:g} s of processor time, or {REAL_S:g} s, to decode"
        return f"the decoder {self.kind} ended with {_name_of(code)}"


def _name_of(code: int) -> str:
    try:
        return signal.Signals(-code).name if code < 0 else f"code {code}"
    except ValueError:
        return f"signal {-code}"
