"""RemotingCommand: one request or answer of RocketMQ's protocol, its two kinds of header, and its signature.

A frame, TCP, big-endian::

    0            4                 8
    +------------+-----------------+-- - - --+-- - - --+
    | LENGTH     | HEADER LENGTH   | header  | body    |  LENGTH counts what follows it; the top byte of HEADER LENGTH
    +------------+-----------------+-- - - --+-- - - --+  is the header's kind: 0 for JSON, 1 for ROCKETMQ

Bit 0 of ``flag`` marks an answer, which repeats ``opaque``; its ``code`` is 0 for success, else ``remark`` says why.

With access control a request carries ``AccessKey``, ``SecurityToken`` (if the account has one) and ``Signature``: the
HMAC-SHA1, by the secret key, of the values of all its other fields in the order of their names, and of its body; in
base64.

Source: RocketMQ ``remoting/protocol/RemotingCommand.java``, ``RemotingSerializable.java``,
``RocketMQSerializable.java``; ``acl/common/AclUtils.java`` (``combineRequestContent``), ``AclSigner.java``.
"""

from __future__ import annotations

import base64
import hmac
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Any

import msgspec

from commitlog_store.errors import CommitLogError

# A frame's length is 4 bytes; RocketMQ's limit for what it counts (com.rocketmq.remoting.frameMaxLength).
LENGTH_SIZE = 4
MAX_FRAME = 16 * 1024 * 1024
# What answers say they are: that of a 5.3.3 broker (``MQVersion.Version.V5_3_3``).
VERSION = 479
_RESPONSE = 1
ONE_WAY = 2
ACCESS_KEY, SECURITY_TOKEN, SIGNATURE = "AccessKey", "SecurityToken", "Signature"
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


def signature(fields: Mapping[str, str], body: bytes, secret_key: bytes, *, without: str = "") -> str:
    """What a client of this secret key signs a request with. A field named ``without`` is left out."""
    values = [fields[name] for name in sorted(fields) if name not in (SIGNATURE, without)]
    return base64.b64encode(hmac.digest(secret_key, "".join(values).encode() + body, "sha1")).decode()


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
    return msgspec.json.encode(header)


class _JsonHeader(msgspec.Struct):
    """The members of a header that clients write. Those without a type here may have any."""

    code: _Int = 0
    opaque: _Int = 0
    flag: _Int = 0
    version: _Int = 0
    language: Any = "JAVA"
    remark: Any = None
    extFields: Any = None


_decode_json = msgspec.json.Decoder(_JsonHeader).decode


def _from_json(header: bytes, body: bytes) -> RemotingCommand:
    try:
        found = _decode_json(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemotingError(f"A JSON header cannot be read: {error}") from None
    fields = found.extFields or {}
    if not isinstance(fields, dict):
        raise RemotingError("extFields of a header is not a JSON object.")
    if not set(map(type, fields.values())) <= {str}:
        # fastjson writes numbers and booleans of some fields without quotes, and other clients write null.
        fields = {name: _text(value) for name, value in fields.items() if value is not None}
    return RemotingCommand(
        code=found.code,
        opaque=found.opaque,
        flag=found.flag,
        version=found.version,
        language=str(found.language),
        remark=None if found.remark is None else str(found.remark),
        fields=fields,
        body=body,
        kind=HeaderKind.JSON,
    )


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
