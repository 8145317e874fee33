"""RemotingClient: requests of a slave to its master's remoting port (10911).

A broker with access control wants the keys of an account: see ``access_keys``.

Source: RocketMQ ``remoting/protocol/RequestCode.java``, ``broker/out/BrokerOuterAPI.java``.
"""

from __future__ import annotations

import time
from typing import Annotated

import msgspec

from commitlog_store.errors import AccessRefused, RemotingFailed
from commitlog_store.follower.access_keys import AccessKeys
from commitlog_store.format.remoting_command import LENGTH_SIZE, MAX_FRAME, RemotingCommand, RemotingError, decode
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.replication.handshake import receive_exactly
from commitlog_store.replication.peer import Hangup, MasterAddress

GET_ALL_TOPIC_CONFIG = 21
GET_BROKER_CONFIG = 26
GET_BROKER_RUNTIME_INFO = 28
GET_ALL_CONSUMER_OFFSET = 43
GET_ALL_DELAY_OFFSET = 45
GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201

_TIMEOUT_S = 3.0
# SYSTEM_ERROR, SYSTEM_BUSY, SERVICE_NOT_AVAILABLE: a broker of 5.x that is starting fails at some requests.
_MAY_PASS = (1, 2, 14)
_NO_PERMISSION = 16
# Brokers of 4.x refuse an account by SYSTEM_ERROR, whose remark names the exception.
_ACL_EXCEPTION = "AclException"


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
        fields = {} if self._keys is None else self._keys.signed_fields()
        request = RemotingCommand(code=code, opaque=self._opaque, version=0, fields=fields)
        try:
            self._socket.sendall(request.encode())
            return self._answer(code)
        except OSError as error:
            raise self._failed(f"did not answer request {code}: {error}", may_pass=True) from error

    def log_bounds(self) -> tuple[int, int]:
        """Where the broker's log begins and ends (GET_BROKER_RUNTIME_INFO); at 0 if it is empty."""
        try:
            table = msgspec.json.decode(self.request(GET_BROKER_RUNTIME_INFO), type=_RuntimeInfo).table
            bounds = msgspec.convert(table, _Bounds, strict=False)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._failed(f"answered with something else than its runtime info: {error}") from error
        return max(bounds.commitLogMinOffset, 0), bounds.commitLogMaxOffset

    def _answer(self, code: int) -> bytes:
        deadline = time.monotonic() + self._timeout_s
        length = int.from_bytes(receive_exactly(self._socket, LENGTH_SIZE, deadline), "big")
        if length > MAX_FRAME:
            raise self._failed(
                f"answered request {code} with a frame of {length} bytes: expected {MAX_FRAME} at most, from the "
                "remoting port of a broker (listenPort, 10911)"
            )
        frame = receive_exactly(self._socket, length, deadline)
        try:
            answer = decode(frame)
        except RemotingError as error:
            raise self._failed(f"answered request {code} with another frame than its protocol's: {error}") from error
        if answer.opaque != self._opaque or not answer.is_response:
            raise self._failed(f"answered another request than {code}")
        if answer.code:
            raise self._refused(code, answer)
        return answer.body

    def _refused(self, code: int, answer: RemotingCommand) -> RemotingFailed:
        what = f"refused request {code} with code {answer.code}: {answer.remark}"
        if answer.code != _NO_PERMISSION and _ACL_EXCEPTION not in (answer.remark or ""):
            return self._failed(what, may_pass=answer.code in _MAY_PASS)
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
