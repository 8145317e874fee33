"""CallStream: calls of a session that follow each other closely, over one stream of Arrow Flight.

Most of the round trip of a small call is its beginning and its end, which a stream has once. Each message of the client
is a call, ``[name, question]`` in MessagePack, and each message of the server the answer. An error ends the stream, and
travels as that of any call.

The rows of a large call are *attached* to its message, as its record batch: Arrow Flight sends these from where they
are, while an action takes four copies.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
import weakref
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from commitlog_store.errors import InvalidValue

# The session that a stream is of: a server opens none for a client without one.
SESSION_HEADER = "x-commitlog-session"
# How long a client uses a stream, and its part that is left to the last call: a call has no deadline of its own.
STREAM_SECONDS = 2.0
_PART_OF_LAST_CALL = 0.5

# Every stream of this process, for its forked children.
_ALL: weakref.WeakSet[CallStream] = weakref.WeakSet()

_ENCODER = msgspec.msgpack.Encoder()
_CALLS = msgspec.msgpack.Decoder(tuple[str, memoryview])


class CallStream:
    """One thread at a time. After an exception within ``ask`` it is not to be used again."""

    def __init__(self, client: flight.FlightClient, options: flight.FlightCallOptions, seconds: float) -> None:
        """``options`` end the stream after so many ``seconds``. The errors of Arrow Flight."""
        self.ends_at = time.monotonic() + seconds
        self._fresh_until = self.ends_at - _PART_OF_LAST_CALL * seconds
        self._pid = os.getpid()
        self._writer, self._reader = client.do_exchange(flight.FlightDescriptor.for_command(b""), options)
        _ALL.add(self)

    def __del__(self) -> None:
        """Of one that an interrupted call has left."""
        self.close()

    def has_time(self, timeout_s: float) -> bool:
        """Whether it may be used for one more call, which is to wait no longer than ``timeout_s``."""
        now = time.monotonic()
        return now < self._fresh_until and self.ends_at <= now + timeout_s

    def ask(self, call: str, body: bytes, attached: pa.RecordBatch | None = None) -> memoryview:
        """The answer to a call. The errors of Arrow Flight; ``StopIteration`` without an answer.

        After a call with something attached, the stream is for no other one.
        """
        message = _ENCODER.encode((call, body))
        if attached is None:
            self._writer.write_metadata(message)
        else:
            self._writer.begin(attached.schema)
            self._writer.write_with_metadata(attached, message)
        return memoryview(self._reader.read_chunk().app_metadata)

    def close(self) -> None:
        """End it, whatever its state is. Arrow Flight would wait for the server, and print what failed."""
        if self._pid != os.getpid():
            return
        with contextlib.suppress(Exception):
            self._reader.cancel()
            self._writer.close()

    def keep(self) -> None:
        """In a forked child: never free it, since Flight hangs there. See ``Connection.keep_client``."""
        for one in (self._writer, self._reader):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


def _keep_all() -> None:
    for one in _ALL:
        one.keep()


os.register_at_fork(after_in_child=_keep_all)


class StreamedCall(NamedTuple):
    """A message of a client, whose bytes stay where they are."""

    call: str
    body: memoryview
    attached: pa.RecordBatch | None


def decode_call(message: flight.FlightStreamChunk) -> StreamedCall:
    """``InvalidValue``."""
    given = message.app_metadata
    try:
        call, body = _CALLS.decode(b"" if given is None else memoryview(given))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidValue(f"A message of this stream is no call: {error}.") from error
    return StreamedCall(call, body, message.data)
