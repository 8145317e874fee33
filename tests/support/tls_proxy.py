"""A proxy that ends TLS before an HTTP server, as nginx and Caddy do; and a client that finds it by another name."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from tests.support.waiting import WAIT_LIMIT_S


class TlsProxy:
    """A context manager. ``target`` is the port of the server on 127.0.0.1. One request a connection.

    Without ``keeps_host``, the server gets its own address as ``Host``, as nginx sends it by default. With
    ``appends``, it adds to what the client sent as ``X-Forwarded-...``, as Apache does; else it replaces that.
    """

    def __init__(
        self, target: int, certificate: Path, key: Path, *, keeps_host: bool = False, appends: bool = False
    ) -> None:
        self._target, self._keeps_host, self._appends = target, keeps_host, appends
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="TlsProxy")
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._pass, "127.0.0.1", 0, ssl=self._context)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(WAIT_LIMIT_S)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(WAIT_LIMIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _pass(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            head = (await client.readuntil(b"\r\n\r\n")).decode("latin-1")
            reader, writer = await asyncio.open_connection("127.0.0.1", self._target)
            writer.write(self._head(head, answer.get_extra_info("peername")[0]).encode("latin-1"))
            request = asyncio.create_task(_copy(client, writer))
            try:
                await _copy(reader, answer)
            finally:
                request.cancel()
                writer.close()
        answer.close()

    def _head(self, head: str, peer: str) -> str:
        line, *given = head.removesuffix("\r\n\r\n").split("\r\n")
        headers = [(name.lower(), value.strip()) for name, _, value in (one.partition(":") for one in given)]
        host = next(value for name, value in headers if name == "host")
        dropped = {"host", "connection"} | (
            set() if self._appends else {"x-forwarded-host", "x-forwarded-proto", "x-forwarded-for"}
        )
        kept = [(name, value) for name, value in headers if name not in dropped]
        kept.append(("host", host if self._keeps_host else f"127.0.0.1:{self._target}"))
        kept += [("x-forwarded-host", host), ("x-forwarded-proto", "https"), ("x-forwarded-for", peer)]
        kept.append(("connection", "close"))
        return "\r\n".join([line, *(f"{name}: {value}" for name, value in kept), "", ""])

    def client(self, name: str, certificate: Path, **headers: str) -> httpx.Client:
        """A client that asks for ``https://NAME:PORT``, whose address is the proxy's."""
        return client_by_name(f"https://{name}:{self.port}", certificate, **headers)


def client_by_name(url: str, certificate: Path, **headers: str) -> httpx.Client:
    """A client that asks for a URL with a name, which it finds at 127.0.0.1."""
    trusting = ssl.create_default_context(cafile=str(certificate))
    transport = _Found(httpx.HTTPTransport(verify=trusting, trust_env=False))
    return httpx.Client(base_url=url, transport=transport, headers=headers, timeout=WAIT_LIMIT_S)


class _Found(httpx.BaseTransport):
    """Connects to 127.0.0.1 for every name, as a resolver may lead there."""

    def __init__(self, transport: httpx.BaseTransport) -> None:
        self._transport = transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        extensions = {**request.extensions, "sni_hostname": request.url.host}
        url = request.url.copy_with(host="127.0.0.1")
        found = httpx.Request(
            request.method, url, headers=request.headers, stream=request.stream, extensions=extensions
        )
        return self._transport.handle_request(found)

    def close(self) -> None:
        self._transport.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        target.write(data)
        await target.drain()
