"""Requests that wait for a thread are counted until one begins with them, or their client is gone."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from commitlog_store.serve.rocketmq.waiting_requests import WaitingRequests
from tests.support.waiting import WAIT_LIMIT_S


def test_requests_wait_until_a_thread_begins_with_them_or_they_are_cancelled() -> None:
    began, done = threading.Event(), threading.Event()

    def hold() -> str:
        began.set()
        done.wait(WAIT_LIMIT_S)
        return "held"

    async def ask() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        waiting = WaitingRequests(loop)
        pull, send = waiting.in_thread("pull"), waiting.in_thread("send")
        assert waiting.counts() == {"pull": 0, "send": 0}
        first = asyncio.ensure_future(pull(hold))
        while not began.is_set():
            await asyncio.sleep(0)
        assert waiting.counts() == {"pull": 0, "send": 0}
        others = [asyncio.ensure_future(pull(lambda: "later")) for _ in range(2)]
        sent = asyncio.ensure_future(send(lambda: "sent"))
        assert waiting.counts() == {"pull": 2, "send": 1}
        others[0].cancel()
        await asyncio.wait(others[:1])
        await asyncio.sleep(0)
        assert waiting.counts() == {"pull": 1, "send": 1}
        done.set()
        assert tuple(await asyncio.gather(first, others[1], sent)) == ("held", "later", "sent")
        assert waiting.counts() == {"pull": 0, "send": 0}

    try:
        asyncio.run(ask())
    finally:
        done.set()
