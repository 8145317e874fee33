"""StoreServer: answers the questions of clients about stores of this machine, by Arrow Flight."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.flight as flight

from commitlog_store.errors import (
    CommitLogError,
    InvalidValue,
    ListenFailed,
    NotServed,
    RemoteAccessRefused,
    RemoteFailed,
    ServerBusy,
    SessionLost,
)
from commitlog_store.files import disk
from commitlog_store.files.memory import keep_freed_memory
from commitlog_store.files.own_sockets import cut_connections
from commitlog_store.reader import OnDamage, StoreReader
from commitlog_store.reader_pool import IdleReaders, ReaderPool
from commitlog_store.remote.block_wire import BLOCK_SCHEMA, BlocksWanted, decode_wanted
from commitlog_store.remote.call_stream import SESSION_HEADER, StreamedCall, decode_call
from commitlog_store.remote.calls import CALLS, decode_question
from commitlog_store.remote.put_wire import size_of
from commitlog_store.remote.wire import (
    WIRE_HEADER,
    WIRE_VERSION,
    Answer,
    Question,
    Verifying,
    encode,
    encode_error,
    encode_printable,
    with_attached,
)
from commitlog_store.serve.blocks import blocks_of
from commitlog_store.serve.call_limits import LONGEST_STREAM_SECONDS, CallLimits, CallSlot, answering, refuse_unwanted
from commitlog_store.serve.connection_counts import ConnectionCount
from commitlog_store.serve.connection_guard import ConnectionGuard
from commitlog_store.serve.listen import ListenSettings, TlsFiles, bound_socket, tls_context
from commitlog_store.serve.sessions import UNKNOWN_SESSION, AnswerNotWaitedFor
from commitlog_store.serve.store_calls import ANSWERS, VERIFICATION_CALLS
from commitlog_store.serve.store_writer import StoreWriter
from commitlog_store.serve.store_writes import answer_write
from commitlog_store.serve.tokens import Role, TokenFile
from commitlog_store.serve.verification import Verification, verify_for_client
from commitlog_store.serve.waits import WaitingRoom
from commitlog_store.store import MessageStore
from commitlog_store.threads.worker import Worker

_LOG = logging.getLogger(__name__)
_ACCESS = logging.getLogger(f"{__name__}.access")
_BEARER = "Bearer "
_LARGEST_PEM = 1 << 20
# A client asks again.
_LONGEST_WAIT_SECONDS = 30.0

# The methods of Arrow Flight that the server answers, beside DoExchange for clients with a session.
_ANSWERED = frozenset({flight.FlightMethod.DO_ACTION, flight.FlightMethod.DO_GET, flight.FlightMethod.LIST_ACTIONS})
# More than any question needs; what is larger is refused before it is parsed here.
_LARGEST_QUESTION = 16 << 20
# A client takes no larger message by default; bodies of messages are at most 4 MiB each.
_LARGEST_ANSWER = 256 << 20


class Readers(ReaderPool):
    """Readers of one store that no call uses now, and the calls that wait for messages."""

    def __init__(self, open_reader: Callable[[OnDamage], StoreReader]) -> None:
        super().__init__(open_reader, before_call=refuse_unwanted)
        self.waits = WaitingRoom(lambda: open_reader("raise"))

    def close(self) -> None:
        self.waits.close()
        super().close()


class _Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """Who makes a call, what it may do, and its slot among the calls under way."""

    def __init__(self, name: str, role: Role, slot: CallSlot, method: str, *, version: str, logs: bool) -> None:
        self.name, self.role, self.slot, self.version = name, role, slot, version
        self._method, self._logs = method, logs
        self._is_stream = method == flight.FlightMethod.DO_EXCHANGE.name
        # When its call began, of a stream the last one.
        self.begun = time.monotonic()

    def call_completed(self, exception: BaseException | None) -> None:
        """However it ended: its client may have left."""
        self.slot.leave()
        if exception is not None or not self._is_stream:  # the calls of a stream have their own lines
            self.log_call("ok" if exception is None else type(exception).__name__)

    def log_call(self, how: str) -> None:
        if self._logs:
            _ACCESS.info("%s %s %s %.1f ms", self.name, self._method, how, (time.monotonic() - self.begun) * 1000)


class _Access(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses calls without a right token. Without a token file, everyone who reaches the server may do everything."""

    def __init__(
        self, tokens: TokenFile | None, limits: CallLimits, has_session: Callable[[str], bool], *, logs: bool
    ) -> None:
        self._tokens, self._limits, self._has_session, self._logs = tokens, limits, has_session, logs

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, list[str]]) -> _Caller:
        sessions = headers.get(SESSION_HEADER, [])
        streams = info.method == flight.FlightMethod.DO_EXCHANGE and bool(sessions)
        if not streams and info.method not in _ANSWERED:  # these would hold a thread until their first message comes
            raise flight.FlightServerError(f"This server has no answer to {info.method.name}.")
        name, role = ("", Role.ADMIN) if self._tokens is None else self._token_of(self._tokens, headers)
        with _named_errors():
            if streams and not any(map(self._has_session, sessions)):
                raise SessionLost(UNKNOWN_SESSION)
            slot = self._limits.enter_stream(name) if streams else self._limits.enter(name)
        version = next(iter(headers.get(WIRE_HEADER, [])), "none")
        return _Caller(name or "-", role, slot, info.method.name, version=version, logs=self._logs)

    def _token_of(self, tokens: TokenFile, headers: Mapping[str, list[str]]) -> tuple[str, Role]:
        given = next(iter(headers.get("authorization", [])), "")
        if not given.startswith(_BEARER):
            raise flight.FlightUnauthenticatedError("it wants a token: the option token, or tokenFile.")
        try:
            return tokens.role_of(given[len(_BEARER) :])
        except RemoteAccessRefused as error:
            raise flight.FlightUnauthenticatedError(str(error)) from None
        except CommitLogError as error:
            _LOG.error("Cannot read the tokens: %s", error)
            raise flight.FlightUnauthenticatedError("its token file cannot be read; its log says why.") from None


class StoreServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves stores until ``shutdown``. ``stores`` has a function for each name that opens a reader of that store.

    ``owned`` is the store that takes writes: the only one, which this process owns. It stays the caller's to close.
    ``most_staged``: see ``StagingSpace``. ``verifications`` are those of the stores, which pages may show too.
    """

    def __init__(
        self,
        stores: Mapping[str, Callable[[OnDamage], StoreReader]],
        listen: ListenSettings,
        *,
        owned: MessageStore | None = None,
        limits: CallLimits | None = None,
        access_log: bool = False,
        most_staged: int | None = None,
        verifications: Mapping[str, Verification] | None = None,
    ) -> None:
        """``ListenFailed``, and ``InvalidValue`` for settings that ``ListenSettings.refuse_open`` refuses."""
        self._stores = {name: Readers(open_reader) for name, open_reader in stores.items()}
        self._verifications = verifications or {name: Verification() for name in stores}
        self._writer = None if owned is None else StoreWriter(owned, most_staged=most_staged)
        self._limits = limits or CallLimits()
        keep_freed_memory()  # the numbers of each block are allocated again
        # TLS reads what is sent within this process, which a mapped page that a truncated file has lost would end.
        # Without it only the system does, for which that is an error of one connection.
        self._encrypts = listen.tls is not None
        listen.refuse_open()
        tokens = None if listen.tokens is None else TokenFile(listen.tokens)
        certificates, client_ca = _certificates(listen.tls)
        try:
            super().__init__(
                listen.location,
                tls_certificates=certificates,
                verify_client=client_ca is not None,
                root_certificates=client_ca,
                middleware={"access": _Access(tokens, self._limits, self._has_session, logs=access_log)},
            )
        except (OSError, flight.FlightError, pa.ArrowException) as error:
            raise ListenFailed("listen on", path=str(listen), cause=_reason(listen, error)) from error
        guard = ConnectionGuard(self.port, self._limits)
        self.connections: Callable[[], ConnectionCount] = lambda: guard.count
        self._guard = Worker("commitlog-serve-guard", guard, lambda _: None)
        self._guard.start()
        self._idle = Worker("commitlog-serve-idle-readers", IdleReaders(self._stores.values()), lambda _: None)
        self._idle.start()
        for readers in self._stores.values():
            readers.waits.start()

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[flight.Result]:
        caller = context.get_middleware("access")
        with _named_errors():
            _refuse_other_version(context)
            body = memoryview(action.body)
            return iter([flight.Result(self._answered(context, caller, caller.slot, action.type, body))])

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        _descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        """Calls that are done once, one after the other: see ``remote/call_stream.py``.

        What ends it is an error with a name, so that its client knows that the call was not done.
        """
        caller = context.get_middleware("access")
        caller.slot.peer = _peer(context)
        ends_at = time.monotonic() + LONGEST_STREAM_SECONDS
        with _named_errors():
            _refuse_other_version(context)
            for call, body, attached in _calls_of(reader):
                caller.begun = time.monotonic()
                if caller.begun > ends_at or self._limits.is_stopping():
                    raise ServerBusy("The server ends this stream of calls; ask again.")
                if call not in CALLS or not CALLS[call].once or CALLS[call].waits:
                    raise InvalidValue(f"A stream of calls has those that are done once, and not {call!r}.")
                if attached is not None and not CALLS[call].attaches:
                    raise InvalidValue(f"A call of {call} has no rows attached.")
                slot = self._limits.enter(caller.slot.client)
                try:
                    answer = self._answered(context, caller, slot, call, body, attached)
                    with suppress(flight.FlightError, pa.ArrowException):  # its client has left
                        writer.write_metadata(answer)
                finally:
                    slot.leave()
                caller.log_call("ok")

    def _answered(
        self,
        context: flight.ServerCallContext,
        caller: _Caller,
        slot: CallSlot,
        call: str,
        body: memoryview,
        attached: pa.RecordBatch | None = None,
    ) -> bytes:
        peer = _peer(context)
        is_wanted = slot.begin(peer, context.is_cancelled)
        size = body.nbytes + (0 if attached is None else size_of(attached))
        with answering(is_wanted, self._limits.is_stopping):
            if size > _LARGEST_QUESTION:
                raise InvalidValue(f"A question has at most {_LARGEST_QUESTION} bytes, not {size}. Ask in parts.")
            _refuse_role(call, caller)
            question = decode_question(call, body)
            if attached is not None:
                question = with_attached(question, attached)
            if call in VERIFICATION_CALLS:
                return encode(Answer(0, self._verified(call, question, caller, is_wanted), 0, []))
            if call == "wait_for_any":
                question = self._waited(question, slot, is_wanted)
            elif CALLS[call].waits:
                slot.begin_wait()
            else:
                slot.hold(size)
            writes = CALLS[call].writes
            answer = self._write(call, question, caller, peer) if writes else self._answer(call, question)
            # What is done is not refused any more: a client takes a refusal for a call that was not done.
            slot.hold(len(answer), may_refuse=not writes)
            return answer

    def _has_session(self, name: str) -> bool:
        return self._writer is not None and name in self._writer.sessions

    def _write(self, call: str, question: Question, caller: _Caller, peer: str) -> bytes:
        self._readers(question.store)  # refuses a name that this server does not have
        if self._writer is None:
            raise NotServed("This server shows its stores read only. One without --read-only takes writes.")
        token = "" if caller.name == "-" else caller.name
        return answer_write(
            *(self._writer, call, question.arguments, lambda value: encode(Answer(0, value, 0, []))),
            token=token,
            address=peer,
        )

    def _verified(
        self, call: str, question: Question, caller: _Caller, is_wanted: Callable[[], bool]
    ) -> Verifying | None:
        store = self._name(question.store)
        verification = self._verifications[store]
        if call == "cancel_verification":
            (verification_id,) = question.arguments
            verification.cancel("Its client cancelled it.", verification_id=verification_id)
            return None
        caller.slot.begin_wait()
        with self._stores[store].lent(question.on_damage) as reader:
            paths = reader.paths
        by = "a client" if caller.name == "-" else caller.name
        verification_id, begins, seconds = question.arguments
        return verify_for_client(verification, paths, by, verification_id, begins, seconds, is_wanted)

    def _waited(self, question: Question, slot: CallSlot, is_wanted: Callable[[], bool]) -> Question:
        """The question, after the wait that it asks for: its answer waits no more."""
        slot.begin_wait()
        wanted, seconds = question.arguments
        positions = {(topic, queue_id): offset for topic, queue_id, offset in wanted}
        readers = self._readers(question.store)
        with readers.waits.joined(positions) as waiter:
            with readers.lent(question.on_damage) as reader:
                found = reader.wait_for_any(positions, 0)
            if not found:
                waiter.wait(min(seconds, _LONGEST_WAIT_SECONDS), is_wanted)
        return question._replace(arguments=(wanted, 0.0))

    def _answer(self, call: str, question: Question) -> bytes:
        with self._readers(question.store).lent(question.on_damage) as reader:
            known = len(reader.skipped)
            before = reader.log_start()
            value = ANSWERS[call](reader, *question.arguments)
            answer = encode_printable(Answer(before, value, reader.log_start(), reader.skipped[known:]))
        if len(answer) > _LARGEST_ANSWER:
            raise InvalidValue(f"The answer to {call} has {len(answer)} bytes, more than {_LARGEST_ANSWER}.")
        return answer

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.GeneratorStream:
        with _named_errors():
            _refuse_other_version(context)
            wanted = decode_wanted(ticket.ticket)
            slot: CallSlot = context.get_middleware("access").slot
            # One block that is being sent, one that is being found. Mapped ones, which may be larger, take no memory.
            slot.hold(2 * wanted.size)
            # Sending a block to a client that has left ends the stream; asking gRPC wakes threads.
            is_wanted = slot.begin(_peer(context), lambda: False)
            return flight.GeneratorStream(BLOCK_SCHEMA, self._blocks(wanted, is_wanted))

    def _blocks(self, wanted: BlocksWanted, is_wanted: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
        how: OnDamage = "skip" if wanted.tolerant else "raise"
        with _named_errors(), self._readers(wanted.store).lent(how) as reader:
            yield from blocks_of(reader, wanted, is_wanted, for_sending=not self._encrypts)

    def list_actions(self, _context: flight.ServerCallContext) -> list[tuple[str, str]]:
        return [(name, "") for name in CALLS]

    def _readers(self, store: str) -> Readers:
        return self._stores[self._name(store)]

    def _name(self, store: str) -> str:
        """That of a store which clients name so. ``NotServed``."""
        if store in self._stores:
            return store
        if not store and len(self._stores) == 1:
            return next(iter(self._stores))
        names = ", ".join(sorted(self._stores))
        known = (
            f"Its stores are {names}: grpc://HOST:PORT/NAME" if names else "Its only one has no name: grpc://HOST:PORT"
        )
        raise NotServed(f"This server has no store {store!r}. {known}.")

    def end_waits(self) -> None:
        """Before ``shutdown``, which waits for calls: those that only wait end now."""
        self._limits.stop()
        for readers in self._stores.values():
            readers.waits.wake_all()

    def cut_off(self) -> None:
        """Cut all connections, so that calls end whose clients do not read on."""
        cut_connections(self.port, lambda _: True)

    def close(self) -> None:
        """After ``shutdown``, and before the owned store is closed."""
        self._guard.stop()
        self._idle.stop()
        if self._writer is not None:
            self._writer.sessions.close_all()
        for verification in self._verifications.values():
            verification.close()
        for readers in self._stores.values():
            readers.close()


def _calls_of(reader: flight.MetadataRecordBatchReader) -> Iterator[StreamedCall]:
    """The calls of a client, until it leaves in whatever way. ``InvalidValue``."""
    with suppress(StopIteration, flight.FlightError):
        while True:
            try:
                message = reader.read_chunk()
            except pa.ArrowException as error:
                raise InvalidValue(f"A message of this stream is no call: {error}.") from error
            yield decode_call(message)


def _refuse_other_version(context: flight.ServerCallContext) -> None:
    """``RemoteFailed`` for a client that speaks another version of the protocol, or none: each call says it."""
    version = context.get_middleware("access").version
    if version != str(WIRE_VERSION):
        raise RemoteFailed(
            f"The client speaks version {version} of the protocol of commitlog serve, and this server version "
            f"{WIRE_VERSION}: install the same version of pyspark-commitlog on both."
        )


def _refuse_role(call: str, caller: _Caller) -> None:
    """``RemoteAccessRefused`` for a call that a token of this role may not make: before its arguments are read."""
    known = CALLS.get(call)
    if known is None or not known.writes:
        return
    needed = Role.ADMIN if known.administers else Role.WRITE
    if caller.role < needed:
        may, does = ("read only", "writes") if caller.role == Role.READ else ("read and write", "administers the store")
        raise RemoteAccessRefused(
            f"The token {caller.name!r} may {may}, and {call} {does}. "
            f"`commitlog token new --role {needed.name.lower()}` makes one that may."
        )


def _certificates(tls: TlsFiles | None) -> tuple[list[tuple[bytes, bytes]] | None, bytes | None]:
    """The server's certificate with its key, and the certificates that clients must have. ``InvalidValue``."""
    if tls is None:
        return None, None
    tls_context(tls)  # whose errors say what is wrong with the files; gRPC's do not
    pair = disk.read_file(tls.certificate, _LARGEST_PEM), disk.read_file(tls.key, _LARGEST_PEM)
    return [pair], None if tls.client_ca is None else disk.read_file(tls.client_ca, _LARGEST_PEM)


def _reason(listen: ListenSettings, error: Exception) -> OSError:
    """Why a server did not begin to listen: gRPC's error does not say it, but a socket does."""
    try:
        bound_socket(listen.host, listen.port, 1).close()
    except OSError as found:
        return found
    return OSError(str(error))


def _peer(context: flight.ServerCallContext) -> str:
    """``HOST:PORT`` of a call's connection. gRPC has it as ``ipv6:%5B::1%5D:1234``."""
    peer = unquote(context.peer().partition(":")[2])
    return peer.replace("[::ffff:", "").replace("]", "") if peer.startswith("[::ffff:") else peer


@contextmanager
def _named_errors() -> Iterator[None]:
    """Errors of this package travel as what they are; others are logged here, and named there."""
    try:
        yield
    except CommitLogError as error:
        raise flight.FlightServerError(type(error).__name__, extra_info=encode_error(error)) from error
    except AnswerNotWaitedFor as error:
        raise flight.FlightTimedOutError("The same call is under way since an earlier attempt.") from error
    except Exception as error:
        _LOG.exception("A call failed")
        raise flight.FlightInternalError(f"{type(error).__name__} at the server; its log says more.") from error
