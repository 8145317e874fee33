"""The program of a process that decodes bodies: ``python -m commitlog_store.decoders.child KIND ARGUMENT``.

Bodies come by stdin, answers go by stdout; each is a length of four bytes, big endian, and so many bytes. An answer
begins with ``d`` and is JSON then, or with ``e`` and says why there is none. The first answer is about the decoder. The
kernel ends a process that takes more than its limits.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import IO

from commitlog_store.decoders.body_decoder import decoder_maker
from commitlog_store.decoders.json_values import json_of
from commitlog_store.errors import CommitLogError

LENGTH_BYTES = 4
PROCESSOR_S = 2.0
REAL_S = 10.0
START_S = 60.0
_MOST_MEMORY = 1 << 30
_MOST_WORDS = 1000


def main() -> None:
    source = sys.stdin.buffer
    # What a decoder prints must not be taken for an answer.
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    kind, argument = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))
    signal.setitimer(signal.ITIMER_REAL, START_S)
    try:
        decoder = decoder_maker(kind)(argument)
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
        _answer(target, b"e", str(error) if isinstance(error, CommitLogError) else _words(error))
        return
    signal.setitimer(signal.ITIMER_REAL, 0)
    _answer(target, b"d", "")
    while len(length := source.read(LENGTH_BYTES)) == LENGTH_BYTES:
        body = source.read(int.from_bytes(length, "big"))
        # Their signals end the process, also within a call of C.
        signal.setitimer(signal.ITIMER_PROF, PROCESSOR_S)
        signal.setitimer(signal.ITIMER_REAL, REAL_S)
        try:
            kind_of_answer, text = b"d", json_of(decoder.decode(body))
        except Exception as error:  # noqa: BLE001 - as above
            kind_of_answer, text = b"e", _words(error)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _answer(target, kind_of_answer, text)


def _words(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return f"it takes more than {_MOST_MEMORY >> 20} MiB of memory"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = str(error)[:_MOST_WORDS]
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}".rstrip(": ")


def _answer(target: IO[bytes], kind: bytes, text: str) -> None:
    data = kind + text.encode(errors="backslashreplace")
    target.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
    target.flush()


if __name__ == "__main__":
    main()
