"""Calls that follow each other closely share a stream; what the network and the server do to it changes no outcome."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from commitlog_store import MessageStore, RemoteStore, StoreReader, connect
from commitlog_store.engine.put_table import PutTableResult
from commitlog_store.errors import InvalidValue, RemoteAccessRefused, ServerBusy, SessionLost, StoreForked
from commitlog_store.message import Message
from commitlog_store.remote import call_stream, session
from commitlog_store.remote.call_stream import SESSION_HEADER, CallStream
from commitlog_store.remote.connection import Connection
from commitlog_store.remote.put_wire import MessageFields
from commitlog_store.remote.wire import decode_error, encode
from commitlog_store.serve import flight_server
from commitlog_store.serve.call_limits import LONGEST_STREAM_SECONDS, CallLimits
from commitlog_store.serve.flight_server import StoreServer
from commitlog_store.serve.listen import ListenSettings, TlsFiles
from commitlog_store.serve.tokens import Role, new_token
from tests.store.follower.certificates import make_certificate
from tests.store.serve.servers import SPOKEN_HEADERS, served
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import wait_for


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store") as store:
        yield store


@pytest.fixture(autouse=True)
def streams(monkeypatch: pytest.MonkeyPatch) -> list[CallStream]:
    """Every stream that a client asks for: a server's refusal comes while it is opened, or with its first call.

    The calls of a test follow each other closely, however slow the machine is.
    """
    opened: list[CallStream] = []

    class Noted(CallStream):
        def __init__(self, client: flight.FlightClient, options: flight.FlightCallOptions, seconds: float) -> None:
            opened.append(self)
            super().__init__(client, options, seconds)

    monkeypatch.setattr(session, "_RUN_SECONDS", 600.0)
    monkeypatch.setattr("commitlog_store.remote.connection.CallStream", Noted)
    monkeypatch.setattr("commitlog_store.remote.connection.STREAM_SECONDS", 20.0)
    monkeypatch.setattr(session, "_FIRST_ATTEMPT_SECONDS", 20.0)
    return opened


@contextmanager
def _server(store: MessageStore, port: int = 0, *, access_log: bool = False) -> Iterator[StoreServer]:
    listen = ListenSettings.parse(f"127.0.0.1:{port}")
    server = StoreServer({"": lambda _: StoreReader.open(store.path)}, listen, owned=store, access_log=access_log)
    try:
        yield server
    finally:
        server.shutdown()
        server.close()


def _put(remote: RemoteStore, *numbers: int) -> None:
    for number in numbers:
        remote.put("orders", b"%d" % number, queue_id=0)


def _bodies(store: MessageStore) -> Counter[bytes]:
    store.dispatch()
    with StoreReader.open(store.path) as reader:
        return Counter(reader.scan("orders", columns=["body"]).read_all()["body"].to_pylist())


def _each_once(count: int) -> dict[bytes, int]:
    return {b"%d" % number: 1 for number in range(count)}


def test_the_first_call_goes_alone_and_the_others_share_a_stream(
    store: MessageStore, streams: list[CallStream]
) -> None:
    with served(owned=store) as url, connect(url) as remote:
        _put(remote, 0)
        assert not streams
        _put(remote, *range(1, 10))
        assert remote.put_messages([{"topic": "orders", "body": b"10"}]).ok
        assert len(streams) == 1
    assert _bodies(store) == _each_once(11)


def test_a_call_after_a_pause_goes_alone(
    store: MessageStore, streams: list[CallStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has happened to a stream in the pause, its client does not see."""
    monkeypatch.setattr(session, "_RUN_SECONDS", 0.0)
    with served(owned=store) as url, connect(url) as remote:
        _put(remote, *range(5))
    assert not streams


def test_a_stream_is_used_for_half_of_its_time(
    store: MessageStore, streams: list[CallStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr(call_stream, "time", SimpleNamespace(monotonic=lambda: now))
    with served(owned=store) as url, connect(url) as remote:
        _put(remote, 0, 1)
        now += 9.0
        _put(remote, 2)
        assert len(streams) == 1
        now += 1.0
        _put(remote, 3)
        assert len(streams) == 2
    assert _bodies(store) == _each_once(4)


def test_a_refused_message_does_not_end_the_stream(store: MessageStore, streams: list[CallStream]) -> None:
    with served(owned=store) as url, connect(url) as remote:
        _put(remote, 0, 1)
        assert not remote.put_message(Message(topic="orders", body=b"x", properties={"a": "b" * 40_000})).ok
        _put(remote, 2)
        assert len(streams) == 1
    assert _bodies(store) == _each_once(3)


def test_an_error_ends_the_stream_and_is_the_calls_own(store: MessageStore, streams: list[CallStream]) -> None:
    with served(owned=store) as url, connect(url) as remote:
        _put(remote, 0, 1)
        with remote._sessions.session() as one, pytest.raises(InvalidValue, match="not an Arrow IPC stream"):
            one.once("put_messages", b"nonsense", None, 0, False)
        _put(remote, 2, 3)
        assert len(streams) == 2
    assert _bodies(store) == _each_once(4)


def test_an_answer_that_is_lost_in_a_stream_is_asked_for_again(store: MessageStore, streams: list[CallStream]) -> None:
    with served(owned=store) as url, TcpProxy(int(url.rpartition(":")[2])) as proxy, connect(proxy.url) as remote:
        _put(remote, 0, 1)
        assert len(streams) == 1
        before = store.physical_bounds()[1]
        proxy.lose_answers = True
        thread = threading.Thread(target=_put, args=(remote, 2))
        thread.start()
        wait_for(lambda: store.physical_bounds()[1] > before)
        proxy.lose_answers = False
        proxy.cut()
        thread.join()
        _put(remote, 3)
    assert _bodies(store) == _each_once(4)


def _table(count: int, *, body_size: int = 100) -> pa.Table:
    return pa.table(
        {
            "topic": ["orders"] * count,
            "body": [bytes([number % 256]) * body_size for number in range(count)],
            "queueId": pa.array([number % 4 for number in range(count)], pa.int32()),
            "tags": [None if number % 3 else f"tag {number}" for number in range(count)],
            "properties": pa.array(
                [[("a", str(number))] * (number % 2) for number in range(count)], pa.map_(pa.string(), pa.string())
            ),
        }
    )


def _rows(store: MessageStore) -> list[dict[str, object]]:
    store.dispatch()
    columns = ["queueId", "queueOffset", "body", "tags", "properties"]
    with StoreReader.open(store.path) as reader:
        rows: list[dict[str, object]] = reader.scan("orders", columns=columns).read_all().to_pylist()
        return rows


def test_the_rows_of_a_large_table_are_attached_to_their_call(
    store: MessageStore, streams: list[CallStream], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_LARGEST_IN_RUN", 10_000)
    monkeypatch.setattr("commitlog_store.remote.put_wire.PART_SIZE", 100_000)
    table = _table(3_000)
    with served(owned=store) as url, connect(url) as remote, MessageStore.open(tmp_path / "near") as near:
        assert near.put_messages(table[10:]).ok
        assert remote.put_messages(table[10:]).ok
        assert len(streams) > 2
        count = len(streams)
        with_dictionary = table.set_column(3, "tags", table["tags"].dictionary_encode())
        assert near.put_messages(with_dictionary).ok
        assert remote.put_messages(with_dictionary).ok
        assert len(streams) == count, "rows with dictionaries are encoded"
        for one in (near, remote):
            with one.transaction("loader", 1) as batch:
                batch.put_messages(table)
        assert len(streams) > count + 2
        assert _rows(store) == _rows(near)


def test_rows_whose_answer_is_lost_are_asked_for_again(store: MessageStore, streams: list[CallStream]) -> None:
    table = _table(3_000)
    with served(owned=store) as url, TcpProxy(int(url.rpartition(":")[2])) as proxy, connect(proxy.url) as remote:
        before = store.physical_bounds()[1]
        proxy.lose_answers = True
        results: list[PutTableResult] = []
        thread = threading.Thread(target=lambda: results.append(remote.put_messages(table)))
        thread.start()
        wait_for(lambda: store.physical_bounds()[1] > before)
        proxy.lose_answers = False
        proxy.cut()
        thread.join()
        assert results[0].ok
        assert results[0].message_num == len(table)
    assert len(streams) == 1
    assert len(_rows(store)) == len(table)


def test_attached_rows_are_checked(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_LARGEST_IN_RUN", -1)
    ends = pa.py_buffer(np.array([0, 2], np.int32))
    wrong = pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(b"\xff\xfe")])
    rows = pa.record_batch({"topic": ["orders"], "body": pa.array([b"x"]), "tags": wrong})
    with served(owned=store) as url, connect(url) as remote:
        with pytest.raises(InvalidValue, match="not an Arrow IPC stream"):
            remote.put_messages(rows)
        with remote._sessions.session() as one, pytest.raises(InvalidValue, match="no rows attached"):
            one.once("put_message", rows)


def test_an_interrupted_call_leaves_its_answer_to_no_other(
    store: MessageStore, streams: list[CallStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_FIRST_ATTEMPT_SECONDS", 0.5)
    with served(owned=store) as url, TcpProxy(int(url.rpartition(":")[2])) as proxy, connect(proxy.url) as remote:
        _put(remote, 0, 1)
        proxy.lose_answers = True
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            _put(remote, 2)
        timer.join()
        proxy.lose_answers = False
        proxy.cut()
        found = [remote.put("orders", b"%d" % number, queue_id=0).queue_offset for number in (3, 4, 5)]
        assert found == [found[0], found[0] + 1, found[0] + 2]
    assert _bodies(store) == _each_once(6)


def test_clients_beyond_the_limit_of_streams_put_without(store: MessageStore, streams: list[CallStream]) -> None:
    limits = CallLimits(2)  # one stream
    with served(owned=store, limits=limits) as url, connect(url) as first, connect(url) as second:
        _put(first, 0, 1)
        _put(second, 2, 3, 4)
        _put(first, 5)
        wait_for(lambda: not any(limits.calls_of_peers().values()))
    assert _bodies(store) == _each_once(6)


def test_a_stream_that_is_over_for_the_server_costs_no_call(
    store: MessageStore, streams: list[CallStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight_server, "LONGEST_STREAM_SECONDS", -1.0)
    with served(owned=store) as url, connect(url) as remote:
        _put(remote, 0, 1, 2)
        assert len(streams) == 1, "the next one is opened a second later"
    assert _bodies(store) == _each_once(3)


def test_a_stream_that_does_not_end_is_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("commitlog_store.serve.call_limits.time", SimpleNamespace(monotonic=lambda: now))
    limits = CallLimits(4, call_timeout_s=5.0)
    limits.enter_stream("").peer = "127.0.0.1:1"
    now += 5.0 + LONGEST_STREAM_SECONDS
    assert not limits.overdue()
    now += 0.1
    assert limits.overdue() == {"127.0.0.1:1"}


def test_a_forked_child_leaves_the_stream_alone(store: MessageStore, streams: list[CallStream]) -> None:
    with served(owned=store) as url, connect(url) as remote:
        _put(remote, 0, 1)
        pid = os.fork()
        if pid == 0:
            try:
                _put(remote, 2)
            except StoreForked:
                remote.close()
                streams.clear()
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        _put(remote, 2)
        assert len(streams) == 1
    assert _bodies(store) == _each_once(3)


@pytest.mark.parametrize(
    ("message", "match"),
    [(encode(("topics", b"")), "done once"), (encode(("poll", b"")), "done once"), (b"nonsense", "no call")],
    ids=["question", "poll", "nonsense"],
)
def test_a_stream_takes_only_calls_that_are_done_once(store: MessageStore, message: bytes, match: str) -> None:
    with served(owned=store) as url, connect(url) as remote, flight.FlightClient(url) as client:
        with remote._sessions.session() as one:
            header = (SESSION_HEADER.encode(), one.opened.session.encode())
        options = flight.FlightCallOptions(headers=[*SPOKEN_HEADERS, header], timeout=30)
        stream = CallStream(client, options, 30)
        stream._writer.write_metadata(message)
        with pytest.raises(flight.FlightServerError) as raised:
            stream._reader.read_chunk()
        stream.close()
        error = decode_error(raised.value.extra_info)
        assert isinstance(error, InvalidValue)
        assert match in str(error)


def test_streams_take_tls_and_tokens(store: MessageStore, streams: list[CallStream], tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = TlsFiles(certificate=str(certificate), key=str(key))
    tokens = str(tmp_path / "tokens")
    reads, writes = (new_token(tokens, role.name, role) for role in (Role.READ, Role.WRITE))
    with (
        served(owned=store, tls=tls, tokens=tokens) as url,
        connect(url, token=writes, tls_root_certificates=certificate.read_bytes()) as remote,
    ):
        _put(remote, *range(5))
        assert remote.put_messages(_table(3_000)).ok
        assert len(streams) == 2
        connection = Connection(replace(remote.address, token=reads))
        with remote._sessions.session() as one:
            name = one.opened.session
        with pytest.raises(flight.FlightServerError) as raised:
            connection.attempt_in_stream(name, "put_message", b"", 30.0)
        connection.close()
        assert isinstance(decode_error(raised.value.extra_info), RemoteAccessRefused)


def test_a_client_without_a_session_gets_no_stream(store: MessageStore) -> None:
    with served(owned=store) as url, flight.FlightClient(url) as client:
        options = flight.FlightCallOptions(headers=SPOKEN_HEADERS, timeout=30)
        with pytest.raises(flight.FlightServerError, match="no answer to DO_EXCHANGE"):
            CallStream(client, options, 30).ask("put_message", b"")


def test_a_client_of_an_unknown_session_learns_that_its_call_was_not_done(store: MessageStore) -> None:
    with served(owned=store) as url, flight.FlightClient(url) as client:
        options = flight.FlightCallOptions(headers=[*SPOKEN_HEADERS, (SESSION_HEADER.encode(), b"none")], timeout=30)
        with pytest.raises(flight.FlightServerError) as raised:
            CallStream(client, options, 30).ask("put_message", b"")
        assert isinstance(decode_error(raised.value.extra_info), SessionLost)


def test_a_large_table_is_put_once_by_a_client_whose_session_is_gone(
    store: MessageStore, streams: list[CallStream]
) -> None:
    table = _table(3_000, body_size=1_000)
    with _server(store) as server, connect(f"grpc://127.0.0.1:{server.port}") as remote:
        assert remote.put_messages(table[:1_000]).ok
        writer = server._writer
        assert writer is not None
        writer.sessions.close_all()
        assert remote.put_messages(table[1_000:]).ok
    assert len(streams) == 3, "one refused"
    assert len(_rows(store)) == len(table)


def test_a_large_table_is_put_once_after_a_restart_of_the_server(store: MessageStore) -> None:
    table = _table(3_000, body_size=1_000)
    with _server(store) as server:
        remote = connect(f"grpc://127.0.0.1:{server.port}")
        assert remote.put_messages(table[:1_000]).ok
    with _server(store, server.port), remote:
        assert remote.put_messages(table[1_000:]).ok
    assert len(_rows(store)) == len(table)


def test_a_consumer_that_polls_and_commits_now_and_then_opens_no_stream(
    store: MessageStore, streams: list[CallStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_RUN_SECONDS", 0.1)
    now = 1_000.0
    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=lambda: now, sleep=time.sleep))
    with served(owned=store) as url, connect(url) as remote:
        for number in range(4):
            store.put("orders", b"%d" % number, queue_id=0)
        store.dispatch()
        with remote.consumer("billing", ["orders"]) as consumer:
            for _ in range(4):
                now += 1.0
                assert len(consumer.poll(1, 5)) == 1
                consumer.commit()
    assert not streams


def test_one_token_has_three_quarters_of_the_streams() -> None:
    limits = CallLimits(8)  # four streams
    slots = [limits.enter_stream("spark") for _ in range(3)]
    with pytest.raises(ServerBusy, match="'spark' has 3 streams"):
        limits.enter_stream("spark")
    limits.enter_stream("other")
    slots[0].leave()
    limits.enter_stream("spark")
    with pytest.raises(ServerBusy, match="4 streams"):
        limits.enter_stream("")


def test_a_failed_call_of_a_stream_is_logged_with_its_own_time(
    store: MessageStore,
    streams: list[CallStream],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(flight_server, "time", SimpleNamespace(monotonic=lambda: now))
    with caplog.at_level(logging.INFO, "commitlog_store.serve"), _server(store, access_log=True) as server:
        url = f"grpc://127.0.0.1:{server.port}"
        with connect(url) as remote, remote._sessions.session() as one:
            for number in range(2):
                one.once("put_message", MessageFields.of(Message(topic="orders", body=b"%d" % number)))
            now += 9.0
            with pytest.raises(InvalidValue, match="not an Arrow IPC stream"):
                one.once("put_messages", b"nonsense", None, 0, False)
        assert len(streams) == 1
    (failed,) = re.findall(r"DO_EXCHANGE Flight\w+ ([0-9.]+) ms", caplog.text)
    assert float(failed) == 0


def test_a_server_that_stops_has_a_stream_ask_elsewhere(store: MessageStore, streams: list[CallStream]) -> None:
    """The call is not done, and its client knows that."""
    limits = CallLimits()
    attempts: list[str] = []

    with served(owned=store, limits=limits) as url, connect(url) as remote:
        _put(remote, 0, 1)
        limits.stop()
        plain = Connection.attempt

        def attempt(self: Connection, call: str, body: bytes, timeout_s: float) -> object:
            attempts.append(call)
            return plain(self, call, body, timeout_s)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Connection, "attempt", attempt)
            _put(remote, 2)
        assert attempts == ["put_message"]
    assert _bodies(store) == _each_once(3)
