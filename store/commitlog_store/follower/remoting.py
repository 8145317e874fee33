"""RemotingClient: requests of a slave to its master's remoting port (10911).

A frame, TCP, big-endian::

    0            4                 8
    +------------+-----------------+-- - - --+-- - - --+
    | LENGTH     | HEADER LENGTH   | header  | body    |  LENGTH counts what follows it; the top byte of HEADER LENGTH
    +------------+-----------------+-- - - --+-- - - --+  is the header's kind: 0 for JSON

    header: {"code":21,"language":"PYTHON","version":0,"opaque":1,"flag":0,"serializeTypeCurrentRPC":"JSON"}

A broker with access control wants the keys of an account: the field ``extFields`` has them, see ``access_keys``.
Bit 0 of ``flag`` marks an answer, which repeats ``opaque``; its ``code`` is 0 for success, else ``remark`` says why.

Source: RocketMQ ``remoting/protocol/RemotingCommand.java``, ``RequestCode.java``, ``broker/out/BrokerOuterAPI.java``.
"""

from __future__ import annotations

import json
import struct
import time
from typing import Annotated

import msgspec

from commitlog_store.errors import AccessRefused, RemotingFailed
from commitlog_store.follower.access_keys import AccessKeys
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.replication.handshake import receive_exactly
from commitlog_store.replication.peer import Hangup, MasterAddress

GET_ALL_TOPIC_CONFIG = 21
GET_BROKER_CONFIG = 26
GET_BROKER_RUNTIME_INFO = 28
GET_ALL_CONSUMER_OFFSET = 43
GET_ALL_DELAY_OFFSET = 45
GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201

# The largest frame that brokers send (com.rocketmq.remoting.frameMaxLength).
LARGEST_REMOTING_FRAME = 16 << 20
_TIMEOUT_S = 3.0
_WORD = struct.Struct(">i")
_KIND_SHIFT, _LENGTH_MASK = 24, 0xFFFFFF
_RESPONSE = 1
# SYSTEM_ERROR, SYSTEM_BUSY, SERVICE_NOT_AVAILABLE: a broker of 5.x that is starting fails at some requests.
_MAY_PASS = (1, 2, 14)
_NO_PERMISSION = 16
# Brokers of 4.x refuse an account by SYSTEM_ERROR, whose remark names the exception.
_ACL_EXCEPTION = "AclException"


class _Header(msgspec.Struct):
    code: int
    opaque: int
    flag: int = 0
    remark: str | None = None


class _RuntimeInfo(msgspec.Struct):
    table: dict[str, str]


class _Bounds(msgspec.Struct):
    # -1: the log has no file yet.
    commitLogMinOffset: Annotated[int, msgspec.Meta(ge=-1, le=MAX_LONG)]
    commitLogMaxOffset: Annotated[int, msgspec.Meta(ge=0, le=MAX_LONG)]


class RemotingClient:
    """One connection, one request after the other. Use as a context manager. ``RemotingFailed`` from every call."""

    def __init__(
        self,
        broker: MasterAddress,
        *,
        keys: AccessKeys | None = None,
        timeout_s: float = _TIMEOUT_S,
        hangup: Hangup | None = None,
    ) -> None:
        """``keys`` are for a broker with access control. ``hangup`` ends a request from another thread."""
        self.broker = broker
        self._keys = keys
        self._timeout_s = timeout_s
        self._hangup = hangup or Hangup()
        self._opaque = 0
        try:
            self._socket = self._hangup.connect(broker, timeout_s)
        except OSError as error:
            raise self._failed(f"cannot be reached: {error}", may_pass=True) from error

    def request(self, code: int) -> bytes:
        """The body of the broker's answer."""
        self._opaque += 1
        header: dict[str, object] = {
            "code": code,
            "language": "PYTHON",
            "version": 0,
            "opaque": self._opaque,
            "flag": 0,
        }
        if self._keys is not None:
            header["extFields"] = self._keys.signed_fields()
        data = json.dumps({**header, "serializeTypeCurrentRPC": "JSON"}).encode()
        try:
            self._socket.sendall(_WORD.pack(_WORD.size + len(data)) + _WORD.pack(len(data)) + data)
            return self._answer(code)
        except OSError as error:
            raise self._failed(f"did not answer request {code}: {error}", may_pass=True) from error

    def log_bounds(self) -> tuple[int, int]:
        """Where the broker's log begins and ends (GET_BROKER_RUNTIME_INFO); at 0 if it is empty."""
        try:
            table = msgspec.json.decode(self.request(GET_BROKER_RUNTIME_INFO), type=_RuntimeInfo).table
            bounds = msgspec.convert(table, _Bounds, strict=False)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise self._failed(f"answered with something else than its runtime info: {error}") from error
        return max(bounds.commitLogMinOffset, 0), bounds.commitLogMaxOffset

    def _answer(self, code: int) -> bytes:
        deadline = time.monotonic() + self._timeout_s
        (length,) = _WORD.unpack(receive_exactly(self._socket, _WORD.size, deadline))
        if not _WORD.size <= length <= LARGEST_REMOTING_FRAME:
            raise self._failed(
                f"answered request {code} with a frame of {length} bytes: expected {_WORD.size} to "
                f"{LARGEST_REMOTING_FRAME}, from the remoting port of a broker (listenPort, 10911)"
            )
        frame = receive_exactly(self._socket, length, deadline)
        (word,) = _WORD.unpack_from(frame)
        kind, size = word >> _KIND_SHIFT, word & _LENGTH_MASK
        if kind != 0 or size > length - _WORD.size:
            raise self._failed(f"answered request {code} with a header of kind {kind} and {size} bytes")
        try:
            header = msgspec.json.decode(frame[_WORD.size : _WORD.size + size], type=_Header)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise self._failed(f"answered request {code} with a header that is not one: {error}") from error
        if header.opaque != self._opaque or not header.flag & _RESPONSE:
            raise self._failed(f"answered another request than {code}")
        if header.code:
            raise self._refused(code, header)
        return frame[_WORD.size + size :]

    def _refused(self, code: int, header: _Header) -> RemotingFailed:
        what = f"refused request {code} with code {header.code}: {header.remark}"
        if header.code != _NO_PERMISSION and _ACL_EXCEPTION not in (header.remark or ""):
            return self._failed(what, may_pass=header.code in _MAY_PASS)
        whose = "no access keys" if self._keys is None else f"the access key {self._keys.access_key!r}"
        advice = "Give those of an account that may ask for it: --access-keys FILE, or access_keys in Python."
        return AccessRefused(f"The broker at {self.broker} {what}. It was asked with {whose}. {advice}")

    def _failed(self, what: str, *, may_pass: bool = False) -> RemotingFailed:
        return RemotingFailed(f"The broker at {self.broker} {what}.", may_pass=may_pass)

    def close(self) -> None:
        self._hangup.close()

    def __enter__(self) -> RemotingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
