"""Connection: one client of ``commitlog serve``, with deadlines, a token, and another attempt while it may help."""

from __future__ import annotations

import ctypes
import functools
import os
import random
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from commitlog_store.errors import (
    CommitLogError,
    InvalidValue,
    ReaderClosed,
    RemoteAccessRefused,
    RemoteFailed,
    ServerBusy,
    StoreForked,
)
from commitlog_store.files import disk
from commitlog_store.files.memory import keep_freed_memory
from commitlog_store.half_message import PendingHalfMessage
from commitlog_store.message import MessageExt
from commitlog_store.paths import REMOTE_SCHEMES
from commitlog_store.queue.skipped import SkippedRange
from commitlog_store.reader import OnDamage
from commitlog_store.remote.call_stream import SESSION_HEADER, STREAM_SECONDS, CallStream
from commitlog_store.remote.read_calls import READ_CALLS
from commitlog_store.remote.wire import (
    WIRE_HEADER,
    WIRE_VERSION,
    Answer,
    Call,
    Question,
    decode_error,
    decode_other,
    encode,
)
from commitlog_store.timestamps import checked_seconds

_T = TypeVar("_T")

DEFAULT_PORT = 8815
_TOKEN_VARIABLE = "COMMITLOG_TOKEN"
_CERTIFICATES_VARIABLE = "COMMITLOG_TLS_ROOT_CERTIFICATES"
_LARGEST_PEM = 1 << 20
# gRPC takes headers of 16 KiB.
_LONGEST_TOKEN = 4096
_LONGEST_PAUSE_SECONDS = 2.0
# After a failure, calls do without a stream for so long: the server may have as many as it takes.
_WITHOUT_STREAMS_SECONDS = 1.0
# More than any message that a server sends: an answer is bounded there.
_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]

# How gRPC begins to say that it reached no server, so that the call cannot have been done.
NOT_SENT = "failed to connect to all addresses"

# The process that used Arrow Flight first. In its forked children Flight hangs beyond every deadline
# (github.com/apache/arrow/issues/38617).
_users: list[int] = []
# Every connection of this process, for its forked children.
_ALL: weakref.WeakSet[Connection] = weakref.WeakSet()


@dataclass(frozen=True, kw_only=True)
class RemoteAddress:
    """``grpc://HOST:PORT[/STORE]`` or ``grpc+tls://…``, and what a client needs to speak with it.

    ``store`` names one of the server's stores; empty for its only one. ``timeout_s`` is how long a question may take,
    with all its attempts. ``token`` is not shown.
    """

    url: str
    store: str = ""
    token: str | None = field(default=None, repr=False)
    tls_root_certificates: bytes | None = field(default=None, repr=False)
    timeout_s: float = 30.0

    @classmethod
    def parse(
        cls, text: str, *, token: str | None = None, tls_root_certificates: bytes | None = None, timeout_s: float = 30.0
    ) -> RemoteAddress:
        """``InvalidValue``."""
        if "@" in text:  # before any error that shows the address
            raise InvalidValue("A token is given by the option token, not within the address: addresses are shown.")
        wrong = f"A served store is grpc://HOST:PORT, grpc+tls://HOST:PORT, or one of these with /STORE, not {text!r}"
        try:
            parts = urlsplit(text)
            port = DEFAULT_PORT if parts.port is None else parts.port
        except ValueError as error:
            raise InvalidValue(f"{wrong}: {error}.") from None
        if not parts.hostname or not port or not text.startswith(REMOTE_SCHEMES) or parts.query or parts.fragment:
            raise InvalidValue(f"{wrong}.")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        url = f"{parts.scheme}://{host}:{port}"
        try:
            flight.Location(url)
        except pa.ArrowInvalid:  # such as [fe80::1%eth0], or a host with a space
            raise InvalidValue(f"{wrong}.") from None
        return cls(
            url=url,
            store=parts.path.strip("/"),
            token=None if token is None else _checked_token(token),
            tls_root_certificates=tls_root_certificates,
            timeout_s=timeout_s,
        )

    @classmethod
    def given(
        cls, text: str, *, token: str | None, tls_root_certificates: bytes | None, rpc_timeout_s: float
    ) -> RemoteAddress:
        """``parse``, with what is not given from the environment: ``COMMITLOG_TOKEN``, and the file that
        ``COMMITLOG_TLS_ROOT_CERTIFICATES`` names. ``ReadFailed``."""
        certificates = os.environ.get(_CERTIFICATES_VARIABLE)
        if tls_root_certificates is None and certificates:
            tls_root_certificates = disk.read_file(certificates, _LARGEST_PEM)
        return cls.parse(
            text,
            token=token or os.environ.get(_TOKEN_VARIABLE) or None,
            tls_root_certificates=tls_root_certificates,
            timeout_s=checked_seconds("rpc_timeout_s", rpc_timeout_s),
        )

    def __str__(self) -> str:
        return f"{self.url}/{self.store}" if self.store else self.url


def _checked_token(token: str) -> str:
    """The token, as a header can hold it. ``InvalidValue``, which does not show it."""
    word = token.strip()  # a file's last line ends with one
    if not word or not word.isascii() or not word.isprintable() or " " in word or len(word) > _LONGEST_TOKEN:
        raise InvalidValue("This is not a token, which is one word of ASCII letters: commitlog token new shows one.")
    return word


class Connection:
    """Asks the questions of one reader. One thread at a time."""

    def __init__(self, address: RemoteAddress) -> None:
        self.address = address
        self._client: flight.FlightClient | None = None
        self._closed = False
        # That of the last calls; None while a call uses it, which may be interrupted.
        self._stream: CallStream | None = None
        self._streams_from = 0.0
        # Whether an attempt of the last question got no answer, and may have been done.
        self.was_unanswered = False
        _ALL.add(self)

    def close(self) -> None:
        self._closed = True
        self._drop()

    def ask(
        self, call: str, on_damage: OnDamage, arguments: tuple[object, ...], *, timeout_s: float | None = None
    ) -> Answer:
        """The answer to one of ``CALLS``. The errors of the same question to a directory, and ``RemoteFailed``."""
        body = encode(Question(self.address.store, on_damage, arguments))

        def attempt(client: flight.FlightClient, options: flight.FlightCallOptions) -> Answer:
            results = client.do_action(flight.Action(call, body), options)
            return decode_answer(call, memoryview(next(results).body))

        return self._repeat(attempt, call, self.address.timeout_s if timeout_s is None else timeout_s)

    def attempt(self, call: str, body: bytes, timeout_s: float) -> Answer:
        """One attempt of a question, with the errors of Arrow Flight: see ``named``. After any, connect again."""
        try:
            results = self._connected().do_action(flight.Action(call, body), self._options(timeout_s))
            return decode_answer(call, memoryview(next(results).body))
        except BaseException:
            self._drop()
            raise

    def attempt_in_stream(
        self, session: str, call: str, body: bytes, timeout_s: float, attached: pa.RecordBatch | None = None
    ) -> Answer | None:
        """``attempt`` of a call of a session, over the stream of its last calls, or over a new one.

        One with rows ``attached`` has a stream to itself, since it may take long. None without a stream, if the
        server refuses one, or ends it by name: then it has not done the call.
        """
        if time.monotonic() < self._streams_from:
            return None
        stream, self._stream = self._stream, None
        try:
            client = self._connected()
            if stream is None or attached is not None or not stream.has_time(timeout_s):
                if stream is not None:
                    stream.close()
                seconds = timeout_s if attached is not None else min(STREAM_SECONDS, timeout_s)
                stream = CallStream(client, self._options(seconds, (SESSION_HEADER, session)), seconds)
            answer = decode_answer(call, stream.ask(call, body, attached))
        except BaseException as error:
            if stream is not None:
                stream.close()
            answered = _answered_error(error)
            if answered is None or isinstance(answered, ServerBusy):
                self._streams_from = time.monotonic() + _WITHOUT_STREAMS_SECONDS
            if isinstance(answered, ServerBusy):
                return None
            self._drop()
            raise
        if attached is not None:
            stream.close()
        else:
            self._stream = stream
        return answer

    def stream(self, ticket: bytes) -> flight.FlightStreamReader:
        """A stream of the server. One of its batches may still raise ``flight.FlightError``: see ``named``."""

        def attempt(client: flight.FlightClient, options: flight.FlightCallOptions) -> flight.FlightStreamReader:
            return client.do_get(flight.Ticket(ticket), options)

        return self._repeat(attempt, "read", self.address.timeout_s)

    def _repeat(
        self, attempt: Callable[[flight.FlightClient, flight.FlightCallOptions], _T], call: str, timeout_s: float
    ) -> _T:
        """Ask again until the time is over while no server answers, or it has too many calls under way."""
        deadline = time.monotonic() + timeout_s
        pause = 0.05
        self.was_unanswered = False
        while True:
            left = deadline - time.monotonic()
            try:
                return attempt(self._connected(), self._options(max(left, 0.001)))
            except flight.FlightUnavailableError as error:
                self._drop()
                self.was_unanswered |= NOT_SENT not in str(error)
                if time.monotonic() + pause >= deadline:
                    raise self.named(error, call, timeout_s) from error
            except (pa.ArrowException, OSError) as error:  # those of Flight, and others of gRPC
                failure = self.named(error, call, timeout_s)
                if not isinstance(failure, ServerBusy) or time.monotonic() + pause >= deadline:
                    raise failure from error
            time.sleep(pause * random.uniform(0.5, 1))  # clients that were refused together do not come together
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _options(self, timeout_s: float, *more: tuple[str, str]) -> flight.FlightCallOptions:
        headers = [(WIRE_HEADER.encode(), str(WIRE_VERSION).encode())]
        headers += [(name.encode(), value.encode()) for name, value in more]
        if self.address.token is not None:
            headers.append((b"authorization", f"Bearer {self.address.token}".encode()))
        return flight.FlightCallOptions(timeout=timeout_s, headers=headers)

    def named(self, error: Exception, call: str, timeout_s: float) -> Exception:
        """An error of Arrow Flight as one of this package."""
        answered = _answered_error(error)
        if answered is not None:
            return answered
        if isinstance(error, flight.FlightUnauthenticatedError | flight.FlightUnauthorizedError):
            return RemoteAccessRefused(f"The server at {self.address} refuses this client: {_reason(error)}")
        if isinstance(error, flight.FlightTimedOutError):
            return RemoteFailed(
                f"The server at {self.address} did not answer {call} within {timeout_s:g} s. A larger "
                "rpc_timeout_s (of Spark rpcTimeout) waits longer."
            )
        if isinstance(error, flight.FlightUnavailableError):
            return RemoteFailed(
                f"No server of commitlog serve answers at {self.address}, tried for {timeout_s:g} s: {_reason(error)} "
                f"{_advice(error)}"
            )
        return RemoteFailed(f"The server at {self.address} failed at {call}: {_reason(error)}")

    def _connected(self) -> flight.FlightClient:
        if self._closed:
            raise ReaderClosed(f"This client of {self.address} is closed; open the store again.")
        self.refuse_forked(self.address)
        if not _users:
            _users.append(os.getpid())
            keep_freed_memory()  # gRPC allocates each message again
        if self._client is None:
            self._client = flight.FlightClient(
                self.address.url, tls_root_certs=self.address.tls_root_certificates, generic_options=_OPTIONS
            )
        return self._client

    @staticmethod
    def is_forked() -> bool:
        """Whether this process was forked from one that had used a server."""
        return bool(_users) and _users[0] != os.getpid()

    @staticmethod
    def refuse_forked(address: RemoteAddress) -> None:
        """``StoreForked``."""
        if Connection.is_forked():
            raise StoreForked(
                f"This process was forked from one that had used {address}, and Arrow Flight does not work after "
                "a fork. Start it in another way, such as multiprocessing's 'spawn'."
            )

    def keep_client(self) -> None:
        """In a forked child: never free the parent's client, since Flight hangs there.

        A reference that no object holds outlives the interpreter, too.
        """
        if self._client is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._client))

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        client, self._client = self._client, None
        if stream is not None:
            stream.close()
        if client is not None and not self.is_forked():
            client.close()


def _answered_error(error: BaseException) -> CommitLogError | None:
    """What a server has answered in place of an answer; None if it was silent."""
    extra = getattr(error, "extra_info", b"")
    return decode_error(extra) if extra else None


def is_unanswered(error: CommitLogError) -> bool:
    """Whether an error of ``Connection`` or ``Session`` says that no server answered, rather than what one answered."""
    cause = error.__cause__
    is_silent = isinstance(cause, flight.FlightTimedOutError | flight.FlightUnavailableError)
    return is_silent and not getattr(cause, "extra_info", b"")


def _keep_all() -> None:
    for one in _ALL:
        one.keep_client()


os.register_at_fork(after_in_child=_keep_all)


# What gRPC says when no connection was made, and what it means for the user.
_ADVICE = {
    "certificate verify failed": "The server's certificate is not signed by one of those that were given "
    "(tls_root_certificates, tlsRootCertificates, COMMITLOG_TLS_ROOT_CERTIFICATES).",
    "is not in peer certificate": "The server's certificate has other names than that of the address.",
    "wrong version number": "The server does not use TLS: its address begins with grpc://.",
    "Socket closed": "If the server uses TLS, its address begins with grpc+tls://.",
}


def _advice(error: Exception) -> str:
    found = (said for mark, said in _ADVICE.items() if mark in str(error))
    return next(found, "Is it running there, and is its port open to this host?")


def _reason(error: Exception) -> str:
    """The first sentence of what gRPC says; the rest is its own debugging."""
    text = str(error).partition(", with message: ")[2] or str(error)
    for mark in ("; last error", "gRPC client debug context", ". Detail:", ". Client context:", " Client context"):
        text = text.split(mark, maxsplit=1)[0]
    return text.strip().rstrip(".") + "."


def decode_answer(call: str, body: bytes | memoryview) -> Answer:
    """``RemoteFailed`` for anything but an answer to this call."""
    try:
        answer = Answer(*_decoder(call).decode(body))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RemoteFailed(
            f"The server's answer to {call} is not one: {error}. Is it another version of commitlog serve?"
        ) from error
    _make_tuples(answer.value)
    return answer


@functools.cache
def _decoder(call: str) -> msgspec.msgpack.Decoder[Any]:
    """A decoder knows its type; ``msgspec.msgpack.decode`` takes some microseconds to look it up, for each message."""
    kind = tuple.__class_getitem__((int, _call_of(call).answer, int, list[SkippedRange]))
    return msgspec.msgpack.Decoder(kind, dec_hook=decode_other)


def _call_of(name: str) -> Call:
    if name in READ_CALLS:
        return READ_CALLS[name]
    from commitlog_store.remote.calls import CALLS  # readers load a sixth of what these need

    return CALLS[name]


def _make_tuples(value: Any) -> None:
    """Messages hold their keys in tuples, as those that a directory gives."""
    # A ``GetMessageResult``, or ``HalfMessagesAsked``.
    messages = value.messages if hasattr(value, "messages") else value
    for one in messages if isinstance(messages, list) else [messages]:
        message = one.message if isinstance(one, PendingHalfMessage) else one
        if isinstance(message, MessageExt):
            object.__setattr__(message, "keys", tuple(message.keys))
