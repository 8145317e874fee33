"""Connections of RocketMQ's clients: frames in and out, and what they may take of the server."""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from commitlog_store.format.remoting_command import HeaderKind, RemotingCommand
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.connection import ConnectionLimits
from commitlog_store.serve.rocketmq.listener import RemotingServer, bind
from tests.store.serve.rocketmq.brokers import Served, broker
from tests.store.serve.rocketmq.remoting_client import RemotingClient, pull_fields, send_fields
from tests.support.waiting import WAIT_LIMIT_S, wait_for


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(20)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def _is_closed_now(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def _send_for_ever(connection: socket.socket, data: bytes) -> None:
    for _ in range(10_000):
        connection.sendall(data)


def _raw(served: Served) -> socket.socket:
    host, port = served.address.split(":")
    return socket.create_connection((host, int(port)), timeout=20)


@pytest.mark.parametrize("kind", list(HeaderKind))
def test_an_answer_has_the_header_kind_of_its_request(tmp_path: Path, kind: HeaderKind) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address, kind=kind) as client:
        answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
        assert (answer.kind, answer.code, answer.is_response) == (kind, 0, True)


def test_an_unknown_code_is_refused_in_rocketmqs_words(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        answer = client.ask(200_050)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == " request type 200050 not supported"


def test_requests_of_one_connection_are_in_flight_at_once(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        client.send("orders", b"first")
        served.store.dispatch()
        held = client.start_pull("orders", 0, 1, hold_ms=20_000)
        sent = [client.start(RequestCode.SEND_MESSAGE_V2, send_fields("orders", 1), b"x") for _ in range(200)]
        assert {client.answer(one).code for one in sent} == {0}
        client.send("orders", b"second")
        assert client.answer(held).code == 0


def test_a_one_way_request_is_done_and_not_answered(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        client.send("orders", b"first")
        client.start(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"second", one_way=True)
        client.start(200_050, one_way=True)
        asked = client.start(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
        assert client.receive().opaque == asked
        wait_for(lambda: client.pull("orders", 0, 1).code == 0)


def test_frames_may_come_in_any_pieces(tmp_path: Path) -> None:
    request = RemotingCommand(code=RequestCode.SEND_MESSAGE_V2, opaque=7, body=b"body" * 50)
    request.fields = {name: str(value) for name, value in send_fields("orders").items()}
    frames = b"".join(request.encode() for _ in range(20))
    chosen = random.Random(7)
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        at = 0
        while at < len(frames):
            size = chosen.choice([1, 3, 100, 1000])
            client.socket.sendall(frames[at : at + size])
            at += size
        offsets = [client.receive().fields["queueOffset"] for _ in range(20)]
        assert sorted(map(int, offsets)) == list(range(20))


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 16 * 1024 * 1024 + 1) + b"x",
        struct.pack(">i", -5) + b"x" * 10,
        struct.pack(">i", 0),
        struct.pack(">iI", 8, 0x02000004) + b"abcd",
        struct.pack(">iI", 8, 0x00FFFFFF) + b"abcd",
        struct.pack(">iI", 8, 0x00000004) + b"abcd",
        struct.pack(">iI", 100_009, 100_005) + b'{"a":' + b"[" * 100_000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_what_is_no_frame_ends_its_connection_alone(tmp_path: Path, data: bytes) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as other, _raw(served) as bad:
        bad.sendall(data)
        assert _is_closed(bad)
        assert other.route("TBW102")


def test_random_frames_crash_nothing(tmp_path: Path) -> None:
    chosen = random.Random(11)
    good = RemotingCommand(code=RequestCode.SEND_MESSAGE_V2, body=b"b")
    good.fields = {name: str(value) for name, value in send_fields("orders").items()}
    frame = good.encode()
    with broker(tmp_path / "s") as served:
        for _ in range(300):
            damaged = bytearray(frame)
            for _ in range(chosen.randrange(1, 4)):
                damaged[chosen.randrange(len(damaged))] = chosen.randrange(256)
            with _raw(served) as bad:
                bad.sendall(damaged)
        with RemotingClient(served.address) as client:
            assert client.send("orders", b"good").code == 0


@pytest.mark.parametrize("half", [b"", b"\x00\x00", struct.pack(">i", 1000) + b"\x00\x00"])
def test_a_silent_connection_and_half_a_frame_are_closed(tmp_path: Path, half: bytes) -> None:
    limits = ConnectionLimits(idle_s=0.5)
    with broker(tmp_path / "s", limits=limits) as served, _raw(served) as silent:
        silent.sendall(half)
        assert _is_closed(silent)


def test_a_held_pull_keeps_its_connection_from_being_idle(tmp_path: Path) -> None:
    limits = ConnectionLimits(idle_s=0.3)
    with broker(tmp_path / "s", limits=limits) as served, RemotingClient(served.address) as client:
        client.send("orders", b"x")
        served.store.dispatch()
        assert client.pull("orders", 0, 1, hold_ms=1500).code == ResponseCode.PULL_NOT_FOUND


def test_a_client_that_reads_no_answers_is_closed(tmp_path: Path) -> None:
    limits = ConnectionLimits(unsent_bytes=256 << 10, idle_s=1.0)
    with broker(tmp_path / "s", limits=limits) as served, RemotingClient(served.address) as client:
        for _ in range(32):
            client.send("orders", b"x" * 8000)
        wait_for(lambda: client.pull("orders", 0, 0).code == 0)
        pull = RemotingCommand(code=RequestCode.PULL_MESSAGE)
        pull.fields = {name: str(value) for name, value in pull_fields("orders", 0, 0).items()}
        frames = pull.encode() * 100
        client.socket.settimeout(20)
        with pytest.raises(ConnectionError):
            _send_for_ever(client.socket, frames)
        with RemotingClient(served.address) as other:
            assert other.route("TBW102")


def test_clients_that_read_no_answers_take_no_more_memory_than_the_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    limits = ConnectionLimits(all_unsent_bytes=8 << 20)
    with broker(tmp_path / "s", limits=limits) as served, contextlib.ExitStack() as opened:
        with RemotingClient(served.address) as client:
            for _ in range(8):
                client.send("orders", bytes(1 << 20))
            wait_for(lambda: client.pull("orders", 0, 7).code == 0)
        pull = RemotingCommand(code=RequestCode.PULL_MESSAGE)
        pull.fields = {name: str(value) for name, value in pull_fields("orders", 0, 0).items()}
        clients = [opened.enter_context(_raw(served)) for _ in range(8)]
        for raw in clients:
            with contextlib.suppress(ConnectionError):
                raw.sendall(pull.encode() * 20)  # their answers are less than one client may leave
        # The system's own buffers hold some of the 20 MiB of a client.
        wait_for(lambda: caplog.text.count("is closed: answers that it does not read") >= 7, 20)
        with RemotingClient(served.address) as other:
            assert other.route("TBW102")


def test_more_bytes_in_flight_than_the_limit_wait(tmp_path: Path) -> None:
    limits = ConnectionLimits(bytes_in_flight=50_000, all_bytes_in_flight=100_000)
    with broker(tmp_path / "s", limits=limits) as served:

        def send_many(sent: list[int]) -> None:
            with RemotingClient(served.address) as client:
                fields = send_fields("orders")
                started = [client.start(RequestCode.SEND_MESSAGE_V2, fields, b"x" * 10_000) for _ in range(100)]
                sent.extend(client.answer(one).code for one in started)

        sent: list[int] = []
        threads = [threading.Thread(target=send_many, args=(sent,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_LIMIT_S)
        assert sent == [0] * 400


def test_half_frames_take_no_more_memory_than_the_limit(tmp_path: Path) -> None:
    limits = ConnectionLimits(all_bytes_in_flight=4 << 20)
    half = struct.pack(">i", 1 << 20) + bytes(900 << 10)
    with broker(tmp_path / "s", limits=limits) as served, contextlib.ExitStack() as opened:
        clients = [opened.enter_context(_raw(served)) for _ in range(12)]
        for client in clients:
            with contextlib.suppress(ConnectionError):  # closed while it sends
                client.sendall(half)
        # Three of them are more than a half of the limit.
        wait_for(lambda: sum(map(_is_closed_now, clients)) >= 9)
        assert not all(map(_is_closed_now, clients))
        with RemotingClient(served.address) as other:
            assert other.send("orders", bytes(100_000)).code == 0


def test_connections_above_the_limit_are_refused(tmp_path: Path) -> None:
    with (
        broker(tmp_path / "s", limits=ConnectionLimits(max_connections=1)) as served,
        RemotingClient(served.address) as first,
    ):
        assert first.route("TBW102")
        with _raw(served) as second:
            assert _is_closed(second)
        assert first.route("TBW102")


def test_stopping_answers_what_is_under_way(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served:
        client = RemotingClient(served.address)
        client.send("orders", b"x")
        served.store.dispatch()
        held = client.start_pull("orders", 0, 1, hold_ms=60_000)
        # The pull is held when the next request of the connection is answered.
        client.route("TBW102")
        started = time.monotonic()
    assert time.monotonic() - started < 30
    assert client.answer(held).code == ResponseCode.PULL_NOT_FOUND
    with pytest.raises(ConnectionError):
        client.receive()
    client.close()


def test_an_error_that_ends_work_on_the_loop_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that registers no more, or reads its accounts no more, would otherwise say nothing."""

    async def register() -> None:
        raise ValueError("no name server takes this")

    server = RemotingServer(bind("127.0.0.1", 0))
    server.start([])
    with caplog.at_level(logging.ERROR):
        server.run_on_loop(register())
        wait_for(lambda: "no name server takes this" in caplog.text)
    assert "register of the listener" in caplog.text
    server.stop(0.0)


def test_a_store_that_is_closed_below_its_broker_acknowledges_nothing(tmp_path: Path) -> None:
    place = {"consumerGroup": "consumers", "topic": "orders", "queueId": 0}
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        client.send("orders", b"x")
        wait_for(lambda: client.pull("orders", 0, 0).code == 0)
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": 0}).code == 0
        served.store.close()
        answers = [
            client.send("orders", b"lost"),
            client.pull("orders", 0, 0),
            client.pull("orders", 0, 0, commitOffset=1, sysFlag=5),
            client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": 1}),
            client.ask(RequestCode.GET_MAX_OFFSET, place),
        ]
        assert {answer.code for answer in answers} == {ResponseCode.SERVICE_NOT_AVAILABLE}


def test_a_failing_field_is_an_answer_that_names_it(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        answer = client.ask(RequestCode.PULL_MESSAGE, {**pull_fields("orders", 0, 0), "queueId": "many"})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "queueId" in str(answer.remark)
        missing = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        assert (missing.code, missing.remark) == (ResponseCode.SYSTEM_ERROR, "the custom field <topic> is null")
