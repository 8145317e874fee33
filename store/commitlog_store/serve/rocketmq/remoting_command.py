"""RemotingCommand: one request or answer of RocketMQ's protocol, and its two kinds of header.

A frame is: length 4 (of all that follows) · kind 1 and header length 3 · header · body, all big-endian.

Source: RocketMQ ``remoting/protocol/RemotingCommand.java``, ``RemotingSerializable.java`` and
``RocketMQSerializable.java``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated

import msgspec
import orjson

from commitlog_store.errors import CommitLogError

# A frame's length is 4 bytes; RocketMQ's limit for what it counts (com.rocketmq.remoting.frameMaxLength).
LENGTH_SIZE = 4
MAX_FRAME = 16 * 1024 * 1024
# What answers say they are: that of a 5.3.3 broker (``MQVersion.Version.V5_3_3``).
VERSION = 479
_RESPONSE = 1
ONE_WAY = 2
_LANGUAGES = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER"),
    *("HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS"),
)
_FIXED = struct.Struct(">HBHii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">H")
_Int = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]


class RemotingError(CommitLogError):
    """The bytes of a connection are not a command of RocketMQ's protocol."""


class HeaderKind(IntEnum):
    """How a header is written; an answer's is that of its request."""

    JSON = 0
    ROCKETMQ = 1


@dataclass(slots=True, kw_only=True)
class RemotingCommand:
    """``code`` says what is asked, or how it went; ``fields`` are the header's own, ``extFields`` in JSON.

    ``received_at`` is the loop's time at which a request came, ``is_suspended`` whether it has waited for messages.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    language: str = "PYTHON"
    version: int = VERSION
    kind: HeaderKind = HeaderKind.JSON
    received_at: float = field(default=0.0, compare=False)
    is_suspended: bool = field(default=False, compare=False)

    @property
    def is_response(self) -> bool:
        """Whether it answers a request."""
        return bool(self.flag & _RESPONSE)

    @property
    def is_one_way(self) -> bool:
        """Whether its sender wants no answer."""
        return bool(self.flag & ONE_WAY)

    def answer(
        self, code: int, remark: str | None = None, *, fields: Mapping[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """The answer to this request, of the same kind."""
        return RemotingCommand(
            code=code, opaque=self.opaque, flag=_RESPONSE, remark=remark, fields=fields or {}, body=body, kind=self.kind
        )

    def encode(self) -> bytes:
        """The whole frame."""
        header = _json_header(self) if self.kind is HeaderKind.JSON else _rocketmq_header(self)
        size = 4 + len(header) + len(self.body)
        return b"".join((struct.pack(">iI", size, self.kind << 24 | len(header)), header, self.body))


def decode(data: bytes, start: int = 0, stop: int | None = None) -> RemotingCommand:
    """What a frame holds, its length not among the bytes from ``start`` to ``stop``. ``RemotingError``."""
    stop = len(data) if stop is None else stop
    if stop - start < 4:
        raise RemotingError(f"A frame has at least 4 bytes, this one {stop - start}.")
    kind, size = data[start], int.from_bytes(data[start + 1 : start + 4], "big")
    body_at = start + 4 + size
    if body_at > stop:
        raise RemotingError(f"A frame of {stop - start} bytes says that its header has {size}.")
    header, body = data[start + 4 : body_at], data[body_at:stop]
    if kind == HeaderKind.JSON:
        return _from_json(header, body)
    if kind == HeaderKind.ROCKETMQ:
        return _from_rocketmq(header, body)
    raise RemotingError(f"A header is JSON (0) or ROCKETMQ (1), not of kind {kind}.")


def _json_header(command: RemotingCommand) -> bytes:
    header: dict[str, object] = {
        "code": command.code,
        "flag": command.flag,
        "language": command.language,
        "opaque": command.opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version,
    }
    if command.fields:
        header["extFields"] = command.fields
    if command.remark is not None:
        header["remark"] = command.remark
    return orjson.dumps(header)


class _JsonHeader(msgspec.Struct):
    """The members of a header that clients write, with their types: it is decoded in a third of the time."""

    code: _Int = 0
    opaque: _Int = 0
    flag: _Int = 0
    version: _Int = 0
    language: str = "JAVA"
    remark: str | None = None
    extFields: dict[str, str] | None = None


_usual_header = msgspec.json.Decoder(_JsonHeader).decode


def _from_json(header: bytes, body: bytes) -> RemotingCommand:
    try:
        found = _usual_header(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _from_unusual_json(header, body)
    return RemotingCommand(
        code=found.code,
        opaque=found.opaque,
        flag=found.flag,
        version=found.version,
        language=found.language,
        remark=found.remark,
        fields=found.extFields or {},
        body=body,
        kind=HeaderKind.JSON,
    )


def _from_unusual_json(header: bytes, body: bytes) -> RemotingCommand:
    """A header whose members have other types, or that is none."""
    try:
        found = orjson.loads(header)
    except orjson.JSONDecodeError as error:
        raise RemotingError(f"A header is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise RemotingError("A header is not a JSON object.")
    fields = found.get("extFields") or {}
    remark = found.get("remark")
    if not isinstance(fields, dict):
        raise RemotingError("extFields of a header is not a JSON object.")
    return RemotingCommand(
        code=_number(found, "code"),
        opaque=_number(found, "opaque"),
        flag=_number(found, "flag"),
        version=_number(found, "version"),
        language=str(found.get("language", "JAVA")),
        remark=None if remark is None else str(remark),
        # fastjson writes numbers and booleans of some fields without quotes.
        fields={name: _text(value) for name, value in fields.items() if value is not None},
        body=body,
        kind=HeaderKind.JSON,
    )


def _number(header: dict[str, object], name: str) -> int:
    value = header.get(name, 0)
    if type(value) is not int or not -(1 << 31) <= value < 1 << 31:
        raise RemotingError(f"{name} of a header is a number of 32 bits, not {value!r}.")
    return value


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _rocketmq_header(command: RemotingCommand) -> bytes:
    language = _LANGUAGES.index(command.language) if command.language in _LANGUAGES else _LANGUAGES.index("OTHER")
    remark = b"" if command.remark is None else command.remark.encode()
    pairs = bytearray()
    for name, value in command.fields.items():
        name_bytes, value_bytes = name.encode(), value.encode()
        pairs += _SHORT.pack(len(name_bytes)) + name_bytes + _INT.pack(len(value_bytes)) + value_bytes
    return b"".join(
        (
            _FIXED.pack(command.code & 0xFFFF, language, command.version, command.opaque, command.flag),
            _INT.pack(len(remark)),
            remark,
            _INT.pack(len(pairs)),
            pairs,
        )
    )


def _from_rocketmq(header: bytes, body: bytes) -> RemotingCommand:
    try:
        code, language, version, opaque, flag = _FIXED.unpack_from(header)
        remark, at = _counted(header, _FIXED.size)
        pairs, _ = _counted(header, at)
        fields = _pairs(pairs)
        return RemotingCommand(
            code=code,
            opaque=opaque,
            flag=flag,
            version=version,
            language=_LANGUAGES[language] if language < len(_LANGUAGES) else "OTHER",
            remark=remark.decode() or None,
            fields=fields,
            body=body,
            kind=HeaderKind.ROCKETMQ,
        )
    except (struct.error, UnicodeDecodeError) as error:
        raise RemotingError(f"A header of kind ROCKETMQ is damaged: {error}") from None


def _counted(data: bytes, at: int) -> tuple[bytes, int]:
    """The bytes after their length of 4 bytes at a place, and where they end."""
    (size,) = _INT.unpack_from(data, at)
    end = at + _INT.size + size
    if size < 0 or end > len(data):
        raise RemotingError(f"A header of {len(data)} bytes says that {size} follow at {at}.")
    return data[at + _INT.size : end], end


def _pairs(data: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(data):
        (size,) = _SHORT.unpack_from(data, at)
        end = at + _SHORT.size + size
        if end > len(data):
            raise RemotingError(f"Fields of {len(data)} bytes say that a name of {size} begins at {at}.")
        name = data[at + _SHORT.size : end].decode()
        value, at = _counted(data, end)
        found[name] = value.decode()
    return found
