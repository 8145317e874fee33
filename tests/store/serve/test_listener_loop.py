"""The loop of a listener serves its clients while many others connect."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from commitlog_store.serve.listen import bound_socket
from commitlog_store.serve.listener_loop import accept
from tests.support.waiting import WAIT_LIMIT_S

_CLIENTS = 50


@pytest.mark.parametrize("room", [0, _CLIENTS])
def test_others_have_their_turn_between_two_connections_that_wait(room: int) -> None:
    async def turns_until_all_are_taken() -> int:
        taken, turns = 0, 0

        def has_room() -> bool:
            nonlocal taken
            taken += 1
            return taken <= room

        async def begin(connection: socket.socket) -> None:
            connection.close()

        accepting = asyncio.create_task(accept(bound, has_room, begin, set()))
        async with asyncio.timeout(WAIT_LIMIT_S):
            while taken < _CLIENTS:
                turns += 1
                await asyncio.sleep(0)
        accepting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await accepting
        return turns

    with contextlib.ExitStack() as stack:
        bound = stack.enter_context(bound_socket("127.0.0.1", 0, _CLIENTS))
        for _ in range(_CLIENTS):  # the system queues them
            stack.enter_context(socket.create_connection(bound.getsockname()))
        assert asyncio.run(turns_until_all_are_taken()) >= _CLIENTS
