"""Asks processors as a connection does: handlers by request code, on an event loop, and clients that note requests."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, ParamSpec

import msgspec

from commitlog_store import MessageStore
from commitlog_store.consumers.lent_readers import LentReaders
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.serve.rocketmq.answering import InThread
from commitlog_store.serve.rocketmq.processor import Processor
from commitlog_store.store import owned_by
from tests.support.waiting import WAIT_LIMIT_S

_P = ParamSpec("_P")


def on_a_loop(test: Callable[_P, Coroutine[Any, Any, None]]) -> Callable[_P, None]:
    """A test that runs on an event loop of its own."""

    @functools.wraps(test)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class AClient:
    """A client's connection: ``received`` are the requests that the server sent to it."""

    def __init__(self, port: int = 50_000) -> None:
        self.address = "10.0.0.1", port
        self.received: list[RemotingCommand] = []

    def send(self, command: RemotingCommand) -> None:
        self.received.append(command)


async def ask(
    processor: Processor,
    code: int,
    fields: Mapping[str, object] | None = None,
    body: object = b"",
    *,
    client: AClient | None = None,
    **command: Any,
) -> RemotingCommand:
    """The answer to a request; ``body`` are bytes, or what is sent as JSON."""
    texts = {name: str(value) for name, value in (fields or {}).items()}
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    request = RemotingCommand(code=code, fields=texts, body=data, **command)
    answer = processor.handlers()[code](request, client or AClient())
    found = await answer if isinstance(answer, Awaitable) else answer
    assert found.opaque == request.opaque
    assert found.is_response
    return found


async def eventually(condition: Callable[[], object]) -> None:
    """Return as soon as the condition holds; the event loop runs in between."""
    deadline = time.monotonic() + WAIT_LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {WAIT_LIMIT_S} s"
        await asyncio.sleep(0.005)


def threads_of(_: str) -> InThread:
    """The threads for any kind of requests."""
    return asyncio.to_thread


def readers_of(store: MessageStore) -> LentReaders:
    return LentReaders(owned_by(store).engine, store.reader)
