"""AccessControl: asks each request of RocketMQ's clients for its signature, and its account for permission.

A signature (``remoting_command.signature``) says who sent a request, not when: a program that reads the network can
send it again. TLS is what helps against that.

Source: RocketMQ 4.9.8 ``acl/plain/PlainPermissionManager.java`` (``validate``), ``PlainAccessValidator.java``,
``acl/common/SessionCredentials.java``.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Mapping

from commitlog_store.errors import CommitLogError, InvalidValue
from commitlog_store.files import disk
from commitlog_store.files.error_paths import failed_reads
from commitlog_store.format.message_id import decode_message_id
from commitlog_store.format.properties import REAL_TOPIC, decode_properties
from commitlog_store.format.record import Record, decode_record
from commitlog_store.format.remoting_command import (
    ACCESS_KEY,
    SECURITY_TOKEN,
    SIGNATURE,
    RemotingCommand,
    signature,
)
from commitlog_store.serve.rocketmq.access.plain_acl import AccessDenied, Account, Permission, PlainAcl
from commitlog_store.serve.rocketmq.access.request_needs import ADMIN_CODES, NEEDS, TRACE_TOPIC
from commitlog_store.serve.rocketmq.answering import InThread, RequestFault, shown
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.processor import Answered, Connection, Handler, Processor

_LOG = logging.getLogger(__name__)
# Bytes of a file: some ten thousand accounts.
_LARGEST = 4 << 20
# How often the file is looked at, and refusals are logged.
_LOOK_S = 1.0
_LOG_S = 1.0
# Clients up to 4.9.3 do not sign this field of QUERY_MESSAGE, which says by which key to look.
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
# Their fields go on to a consumer, for which another client's signature is not meant.
_FORWARDED = (RequestCode.CONSUME_MESSAGE_DIRECTLY, RequestCode.GET_CONSUMER_RUNNING_INFO)


class AccessControl:
    """The rules of a file, which are read again when it changes."""

    def __init__(self, path: str) -> None:
        """``InvalidValue`` for content that is not a list of accounts; ``ReadFailed``."""
        self._path = path
        with failed_reads(path):
            self._seen: tuple[int, ...] | None = disk.file_signature(path)
            self._acl = _read(path)
        self._logged_at = -_LOG_S
        # The handler of VIEW_MESSAGE_BY_ID, which shows the message that another request names.
        self._view: Handler | None = None

    def refresh(self) -> None:
        """Read the file if it has changed. One that cannot be used is logged once, and the rules of before stay.

        For one thread at a time; requests are checked by another.
        """
        try:
            seen = disk.file_signature(self._path)
        except OSError:
            seen = None
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._acl = _read(self._path)
        except (CommitLogError, OSError) as error:
            _LOG.error("Accounts of RocketMQ's clients stay as they were before %s changed: %s", self._path, error)
        else:
            _LOG.info("Accounts of RocketMQ's clients were read again from %s", self._path)

    async def watch(self, in_thread: InThread) -> None:
        """``refresh`` every second, in another thread than the loop's."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await in_thread(self.refresh)

    def check(self, request: RemotingCommand, host: str) -> Account | None:
        """The account that has signed; None for an address whose clients need no permission.

        ``AccessDenied``, and ``RequestFault`` for a body that cannot be read.
        """
        acl = self._acl
        if host in acl.white_addresses:
            return None
        access_key = request.fields.get(ACCESS_KEY)
        if access_key is None:
            raise AccessDenied("No accessKey is configured")
        account = acl.accounts.get(access_key)
        if account is None:
            raise AccessDenied(f"No acl config for {access_key[:100]}")
        if host in account.white_addresses:
            return None
        if not _is_signed(request, account.secret_key):
            raise AccessDenied(f"Check signature failed for accessKey={access_key}")
        needs = NEEDS.get(request.code)
        needed = {} if needs is None else needs(request)
        if needed.get(TRACE_TOPIC) == Permission.PUB:
            return account
        if request.code in ADMIN_CODES and not account.is_admin:
            raise AccessDenied(
                f"Need admin permission for request code={request.code}, but accessKey={access_key} is not"
            )
        account.check(needed)
        return account

    def guarded(self, processor: Processor) -> Processor:
        """The processor, asked only what is allowed."""
        self._view = processor.handlers().get(RequestCode.VIEW_MESSAGE_BY_ID, self._view)
        return _Guarded(self, processor)

    async def if_readable(
        self,
        request: RemotingCommand,
        connection: Connection,
        account: Account,
        place: str,
        answer: Callable[[], Answered],
    ) -> RemotingCommand:
        """``answer`` if the account may consume the message at a physical offset, which the consumer would get."""
        assert self._view is not None
        fields = {"offset": place}
        view = RemotingCommand(
            code=RequestCode.VIEW_MESSAGE_BY_ID, opaque=request.opaque, fields=fields, kind=request.kind
        )
        found = await _viewed(self._view(view, connection), account, lambda why: self.denied(request, connection, why))
        if found.code:
            return found
        outcome = answer()
        return outcome if isinstance(outcome, RemotingCommand) else await outcome

    def denied(self, request: RemotingCommand, connection: Connection, why: AccessDenied) -> RemotingCommand:
        """The answer to a request that is refused. Refusals are logged, not more often than once a second."""
        if (now := time.monotonic()) - self._logged_at >= _LOG_S:
            self._logged_at = now
            _LOG.warning("%s:%d is refused a request of code %d: %r", *connection.address, request.code, str(why))
        return request.answer(ResponseCode.NO_PERMISSION, shown(str(why)))


def _is_signed(request: RemotingCommand, secret_key: bytes) -> bool:
    given = request.fields.get(SIGNATURE, "").encode()
    if hmac.compare_digest(signature(request.fields, request.body, secret_key).encode(), given):
        return True
    if _UNIQUE_KEY_QUERY not in request.fields:
        return False
    old = signature(request.fields, request.body, secret_key, without=_UNIQUE_KEY_QUERY)
    return hmac.compare_digest(old.encode(), given)


def _read(path: str) -> PlainAcl:
    try:
        text = disk.read_file(path, _LARGEST).decode()
    except UnicodeDecodeError:
        raise InvalidValue(f"{path} is not UTF-8 text.") from None
    return PlainAcl.parse(text, path)


class _Guarded(Processor):
    """A processor whose handlers are called for allowed requests only."""

    def __init__(self, access: AccessControl, processor: Processor) -> None:
        self._access = access
        self._processor = processor

    def handlers(self) -> Mapping[int, Handler]:
        return {code: self._handler(code, handler) for code, handler in self._processor.handlers().items()}

    def connection_lost(self, connection: Connection) -> None:
        self._processor.connection_lost(connection)

    def _handler(self, code: int, handler: Handler) -> Handler:
        access = self._access
        is_forwarded, is_view = code in _FORWARDED, code == RequestCode.VIEW_MESSAGE_BY_ID

        def handle(request: RemotingCommand, connection: Connection) -> Answered:
            try:
                account = access.check(request, connection.address[0])
            except AccessDenied as why:
                return access.denied(request, connection, why)
            except RequestFault as fault:
                return request.answer(fault.code, shown(str(fault)))
            if is_forwarded:
                secret = (ACCESS_KEY, SIGNATURE, SECURITY_TOKEN)
                request.fields = {name: value for name, value in request.fields.items() if name not in secret}
            if account is not None and (place := _place_in(request)) is not None:
                return access.if_readable(request, connection, account, place, lambda: handler(request, connection))
            outcome = handler(request, connection)
            if not is_view or account is None:
                return outcome
            return _viewed(outcome, account, lambda why: access.denied(request, connection, why))

        return handle


def _place_in(request: RemotingCommand) -> str | None:
    """The physical offset of the message that a request has a consumer get; None for one without a message."""
    if request.code == RequestCode.CONSUMER_SEND_MSG_BACK:
        return request.fields.get("offset")
    if request.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
        try:
            return str(decode_message_id(request.fields.get("msgId", "")).physical_offset)
        except InvalidValue:
            return None  # the handler says what is wrong with it
    return None


async def _viewed(
    outcome: Answered,
    account: Account,
    denied: Callable[[AccessDenied], RemotingCommand],
) -> RemotingCommand:
    """A message by its place, if the account may consume its topic, which is known only now."""
    answer = outcome if isinstance(outcome, RemotingCommand) else await outcome
    if answer.code or not answer.body:
        return answer
    record = decode_record(answer.body)
    try:
        if not isinstance(record, Record):
            raise AccessDenied("No default permission for a message that is damaged")
        # A delayed message or a half one is a message of the topic that it waits for.
        topics = record.topic, decode_properties(record.properties).get(REAL_TOPIC, "").encode()
        account.check({topic.decode(): Permission.SUB for topic in topics if topic})
    except AccessDenied as why:
        return denied(why)
    return answer
