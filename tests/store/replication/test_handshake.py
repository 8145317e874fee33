"""The handshake over real sockets: equal tokens meet, everything else ends by name and in time."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pytest

from commitlog_store.errors import PeerRefused
from commitlog_store.format.ha_hello import ANSWER_SIZE, HELLO_SIZE, NONCE_SIZE, Hello, Purpose, encode_hello
from commitlog_store.replication.handshake import answer_hello, receive_exactly, say_hello

_T = TypeVar("_T")
_TIMEOUT_S = 5.0


def _together(
    slave: Callable[[socket.socket], _T], master: Callable[[socket.socket], object]
) -> tuple[Future[_T], Future[object]]:
    """Both sides at once, on the two ends of a connection, each closed by its side."""

    def run(side: Callable[[socket.socket], _T], end: socket.socket) -> _T:
        with end:
            return side(end)

    first, second = socket.socketpair()
    with ThreadPoolExecutor(2) as threads:
        return threads.submit(run, slave, first), threads.submit(run, master, second)  # type: ignore[arg-type]


def _says(token: str, epoch: int = 3, purpose: Purpose = Purpose.FOLLOW) -> Callable[[socket.socket], int]:
    return lambda end: say_hello(end, token=token, epoch=epoch, timeout_s=_TIMEOUT_S, purpose=purpose)


def _answers(token: str, epoch: int = 7) -> Callable[[socket.socket], Hello]:
    def answer(end: socket.socket) -> Hello:
        first = receive_exactly(end, 8, time.monotonic() + _TIMEOUT_S)
        return answer_hello(end, first, token=token, epoch=epoch, timeout_s=_TIMEOUT_S)

    return answer


@pytest.mark.parametrize("purpose", list(Purpose))
@pytest.mark.parametrize("token", ["", "secret"])
def test_both_sides_learn_the_others_epoch(token: str, purpose: Purpose) -> None:
    slave, master = _together(_says(token, 3, purpose), _answers(token, 7))
    assert slave.result() == 7
    found = master.result()
    assert isinstance(found, Hello)
    assert (found.epoch, found.purpose) == (3, purpose)


def test_a_slave_with_another_token_refuses_the_master_and_proves_nothing() -> None:
    slave, master = _together(_says("one"), _answers("two"))
    with pytest.raises(PeerRefused, match="another token"):
        slave.result()
    with pytest.raises(ConnectionResetError, match="0 of 32"):
        master.result()


def test_a_master_refuses_a_wrong_proof() -> None:
    def forge(end: socket.socket) -> bytes:
        end.sendall(encode_hello(Hello(9, bytes(NONCE_SIZE))))
        answer = receive_exactly(end, ANSWER_SIZE, time.monotonic() + _TIMEOUT_S)
        end.sendall(answer[HELLO_SIZE:])  # the master's own proof
        return answer

    slave, master = _together(forge, _answers("secret"))
    slave.result()
    with pytest.raises(PeerRefused, match="another token"):
        master.result()


def test_a_rocketmq_master_is_recognised() -> None:
    def rocketmq(end: socket.socket) -> None:
        receive_exactly(end, HELLO_SIZE, time.monotonic() + _TIMEOUT_S)
        end.sendall(bytes(ANSWER_SIZE))

    slave, _ = _together(_says(""), rocketmq)
    with pytest.raises(PeerRefused, match=r"another program.*without a token"):
        slave.result()


def test_a_peer_that_sends_bytes_one_by_one_gains_no_time() -> None:
    end, other = socket.socketpair()
    with end, other:
        other.sendall(b"x" * 10)
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            receive_exactly(end, 11, started + 0.1)
        assert time.monotonic() - started < _TIMEOUT_S
