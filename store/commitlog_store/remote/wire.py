"""What a client and ``commitlog serve`` say to each other: questions, answers, and errors.

A question is an Arrow Flight action whose body is ``[store, on_damage, arguments]`` in MessagePack; the answer is one
result, ``[log's first physical offset before, the answer, the same after, what was skipped]``. ``CALLS`` (``calls.py``)
has the types of each question's arguments and answer, and both sides check them. An error travels as the name of its
class, its text and its fields, and is raised again by the client as what it was; nothing is unpickled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import Enum
from operator import index
from typing import Annotated, Any, Literal, NamedTuple, SupportsIndex

import msgspec
import pyarrow as pa

from commitlog_store import errors
from commitlog_store.errors import CommitLogError, InvalidValue, RemoteFailed
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.put_status import PutMessageStatus
from commitlog_store.queue.skipped import SkippedRange
from commitlog_store.reader import OnDamage

# What client and server say to each other is of one version; a change of ``CALLS`` or of blocks makes the next one.
WIRE_VERSION = 8
# The header of each call that says it.
WIRE_HEADER = "commitlog-wire"

# Units in one answer: 5 MiB.
MOST_UNITS = 262_144
# The most timer messages of an answer, of 16 bytes each.
MOST_TIMERS = 1_000_000

# Of a message: topic, queue id, and queue offset.
Place = tuple[str, int, int]
# The position that a group has in a queue: topic, queue id, and queue offset, if it has one.
FormerPlace = tuple[str, int, int | None]
RedriveTo = Literal["retry", "topic"]
# The end marker of an upload: rows, size in bytes and checksum of its staged file.
UploadEnd = tuple[int, int, int]


# The name that a client chooses for its verification, so that it can ask for it again and cancel it.
VerificationId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class FilterTexts(msgspec.Struct, frozen=True, array_like=True):
    """A ``MessageFilter`` as texts. ``tags`` are those of ``A || B``, None for ``*`` and without a subscription."""

    tags: str | None
    expression: str | None
    keys: list[str] | None

    @classmethod
    def of(cls, wanted: MessageFilter) -> FilterTexts:
        return cls(
            None if wanted.tags is None else " || ".join(wanted.tags.tags),
            wanted.text,
            None if wanted.keys is None else list(wanted.keys.keys),
        )

    def parsed(self) -> MessageFilter:
        """``FilterError``, ``InvalidValue``."""
        return MessageFilter.parse_quietly(self.tags, self.expression, self.keys)


class Call(NamedTuple):
    """A question: the type of its arguments, in order, and that of its answer; ``writes`` if it changes the store,
    ``administers`` if it takes a token of the role admin.

    A client may repeat any call whose answer was lost. One that writes says in its arguments what it stands for, so
    that the server knows it again, or does no more the second time. With ``once`` its first argument is a ``CallId``.
    With ``attaches`` the next one is rows, which may be attached to the call instead. With ``waits``, too, the call may
    wait for messages, a second at most.
    """

    arguments: Any
    answer: Any
    writes: bool = False
    once: bool = False
    administers: bool = False
    attaches: bool = False
    waits: bool = False


class Verifying(NamedTuple):
    """A verification at the server: bytes of the log that were read, and at most all; at its end the assessment.

    ``assessment`` is an encoded ``Assessment``, ``error`` the encoded error with which it ended, or did not begin.
    """

    done: int = 0
    total: int = 0
    assessment: bytes | None = None
    error: bytes | None = None


class ListedBounds(NamedTuple):
    """The bounds of queues that were listed before, or how the list has changed since: then without bounds.

    ``state`` is one of the store in which no queue changes, empty if it is not known. ``same``: it is the one that the
    client named, and all else is as in the answer that had it. ``topics`` are all of them, and ``queue_ids`` those of
    topics by their places in the question, where they are others than the client assumed.
    """

    state: bytes
    same: bool = False
    topics: list[str] | None = None
    queue_ids: list[tuple[int, list[int] | None]] = []  # noqa: RUF012  # a default of a tuple's field
    bounds: list[tuple[int, int]] = []  # noqa: RUF012


class Question(NamedTuple):
    """Of which of the server's stores (empty for its only one), read how, and the arguments of the call."""

    store: str
    on_damage: OnDamage
    arguments: Any


class Answer(NamedTuple):
    """An answer, and the log's first physical offset before and after the look: equal, unless retention came between.

    ``skipped`` is what was skipped because of damage.
    """

    log_start: int
    value: Any
    log_start_after: int
    skipped: list[SkippedRange]


def names_digest(names: Iterable[str]) -> bytes:
    """Distinguishes one list of topics from another."""
    return hashlib.blake2b("\0".join(names).encode(errors="surrogatepass"), digest_size=16).digest()


def encode(value: object) -> bytes:
    """A question's body, or an answer's. ``InvalidValue`` for what cannot travel: numbers of more than 64 bits, texts
    that UTF-8 does not have, other types."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError as error:
        raise InvalidValue(f"A text has characters that UTF-8 does not have: {error.object!r}.") from error
    except (OverflowError, TypeError) as error:
        raise InvalidValue(f"An argument is nothing that a server takes: {error}.") from error


def with_attached(question: Question, attached: pa.RecordBatch) -> Question:
    """The question, with the rows that a stream has beside it (``call_stream.py``) in their place."""
    call_id, _, *others = question.arguments
    return question._replace(arguments=(call_id, attached, *others))


class _Error(msgspec.Struct, array_like=True):
    kind: str
    text: str
    fields: dict[str, Any]


def encode_error(error: CommitLogError) -> bytes:
    """An error of this package, with texts as ``utf8_text``. Fields that are not numbers travel as texts."""
    fields = {name: _plain(value) for name, value in vars(error).items() if not name.startswith("_")}
    return _ENCODER.encode(_Error(type(error).__name__, utf8_text(str(error)), fields))


def decode_error(body: bytes) -> CommitLogError:
    """The error as it was at the server; ``RemoteFailed`` with its text if this version does not know its class."""
    try:
        found = msgspec.msgpack.decode(body, type=_Error)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return RemoteFailed("The server failed, and did not say how in a way that this client knows.")
    kind = getattr(errors, found.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, CommitLogError) and kind.__module__ == errors.__name__):
        return RemoteFailed(f"{found.kind} at the server: {found.text}")
    error: CommitLogError = kind.__new__(kind, found.text)
    error.args = (found.text,)
    error.__dict__.update(found.fields)
    if "status" in found.fields:
        error.__dict__["status"] = PutMessageStatus[found.fields["status"]]
    return error


def encode_printable(value: object) -> bytes:
    """``encode``, with all texts as ``utf8_text``, the keys of maps too."""
    try:
        return encode(value)
    except InvalidValue:
        return encode(printable(value))


def printable(value: object) -> Any:
    """The value in built-in types, with all texts as ``utf8_text``, the keys of maps too."""
    return _printable(msgspec.to_builtins(value, enc_hook=_encode_other, builtin_types=(bytes,), str_keys=True))


def utf8_text(text: str) -> str:
    """A text in which what UTF-8 does not have is escaped: names of files may be any bytes."""
    return text.encode(errors="backslashreplace").decode()


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return utf8_text(value)
    if isinstance(value, dict):
        return {_printable(name): _printable(one) for name, one in value.items()}
    return [_printable(one) for one in value] if isinstance(value, list | tuple) else value


def _encode_other(value: object) -> bytes | int:
    """Errors within an answer, such as why a store would not open, and integers of numpy."""
    if isinstance(value, CommitLogError):
        return encode_error(value)
    if isinstance(value, SupportsIndex):
        return index(value)
    raise TypeError(f"{value!r} is of type {type(value).__name__}")


def decode_other(kind: type, value: Any) -> CommitLogError:
    if issubclass(kind, CommitLogError) and isinstance(value, bytes):
        return decode_error(value)
    raise NotImplementedError(kind)


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.name
    return value if value is None or isinstance(value, int | float | bool | bytes) else utf8_text(str(value))


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encode_other)
