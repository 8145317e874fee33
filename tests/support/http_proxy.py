"""An HTTP proxy before an object store that fails as object stores do: 500, 503, slow answers, answers that break off.

It counts the requests that it passes on, by method, and the bytes of the answers' bodies.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter, deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "upgrade"}
# Of a client of S3: a server that checks none wants to see one.
_SIGNED_FOR_S3 = "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=b"
_REFUSALS = {"500": (500, "InternalError"), "503": (503, "SlowDown"), "403": (403, "AccessDenied")}


class HttpProxy:
    """Passes requests on to ``target``. A context manager; ``url`` is what clients take for the store.

    Each fault in ``faults`` is done to one GET, in turn: "500", "503", "slow", "cut" (half of the body comes, then the
    connection ends), "empty" (the connection ends before the answer), "" for none. ``slow_s`` is how long "slow" takes.
    Requests of the methods in ``forbidden`` get 403.
    """

    def __init__(self, target: str, *, slow_s: float = 0.3) -> None:
        self.faults: deque[str] = deque()
        self.forbidden: set[str] = set()
        self.done: Counter[str] = Counter()
        self.passed: Counter[str] = Counter()
        self.body_bytes = 0
        self._lock = threading.Lock()
        host = urlsplit(target).netloc
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:  # the client has gone
                    self.close_connection = True

            def _pass(self) -> None:
                proxy._answer(self, host, slow_s)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="HttpProxy")

    def before_passing(self) -> None:
        """Called for each request before the store gets it."""

    def after_passing(self) -> None:
        """Called for each request when the store has answered it, and the client has nothing of that yet."""

    def shown(self, path: str, data: bytes) -> bytes:
        """The body of an answer as clients get it."""
        del path
        return data

    def onward(self, headers: dict[str, str]) -> dict[str, str]:
        """The headers of a request as the store gets them."""
        return headers

    def _fault(self, method: str) -> str:
        with self._lock:
            self.passed[method] += 1
            fault = self.faults.popleft() if method == "GET" and self.faults else ""
            fault = "403" if method in self.forbidden else fault
            self.done[fault] += 1
            return fault

    def _answer(self, request: BaseHTTPRequestHandler, host: str, slow_s: float) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        fault = self._fault(request.command)
        if fault in _REFUSALS:
            self._refuse(request, *_REFUSALS[fault])
            return
        if fault == "empty":
            request.close_connection = True
            return
        if fault == "slow":
            time.sleep(slow_s)
        self.before_passing()
        store = http.client.HTTPConnection(host, timeout=60)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        store.request(request.command, request.path, body or None, self.onward(headers))
        answer = store.getresponse()
        data = self.shown(request.path, answer.read())
        store.close()
        self.after_passing()
        request.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {*_HOP_BY_HOP, "content-length", "date", "server"}:
                request.send_header(name, value)
        length = answer.getheader("Content-Length") if request.command == "HEAD" else str(len(data))
        request.send_header("Content-Length", length or "0")
        request.end_headers()
        if fault == "cut":
            data = data[: len(data) // 2]
            request.close_connection = True
        with self._lock:
            self.body_bytes += len(data)
        request.wfile.write(data)

    def _refuse(self, request: BaseHTTPRequestHandler, status: int, code: str) -> None:
        data = f"<Error><Code>{code}</Code><Message>Please reduce your request rate.</Message></Error>".encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class GoogleProxy(HttpProxy):
    """A store of Google's XML protocol, made of one of S3's: what differs of the requests are credentials, which are
    not checked here but seen in ``credentials``, and the condition of a put."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.credentials: set[str] = set()

    def onward(self, headers: dict[str, str]) -> dict[str, str]:
        lower = {name.lower(): value for name, value in headers.items()}
        self.credentials.add(lower.get("authorization", ""))
        lower["authorization"] = _SIGNED_FOR_S3
        if lower.pop("x-goog-if-generation-match", "") == "0":
            lower["if-none-match"] = "*"
        return lower


class OldListings(HttpProxy):
    """An object store whose listings stay as each was when it was asked for last, once ``are_old`` is set."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.are_old = False
        self._before: dict[str, bytes] = {}

    def shown(self, path: str, data: bytes) -> bytes:
        if "list-type=2" not in path:
            return data
        if not self.are_old:
            self._before[path] = data
        return self._before.get(path, data)
