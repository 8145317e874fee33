"""A scripted broker's remoting port: answers requests with what a test gives it, over a real socket."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from types import TracebackType
from typing import Any


def remoting_frame(header: dict[str, Any], body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body


class ScriptedBroker:
    """``answers``: by request code, the body of a successful answer, or (code, remark) of another one.

    ``port`` is a free one unless it is given. ``raw`` is sent instead of
    any answer, if it is set; if ``closes`` is, the connection ends there. ``asked`` has the headers of the requests.
    """

    def __init__(self, answers: dict[int, bytes | tuple[int, str]], port: int = 0) -> None:
        self.answers = answers
        self.raw: bytes | None = None
        self.closes = False
        self.asked: list[dict[str, Any]] = []
        self._listening = socket.create_server(("127.0.0.1", port))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listening.accept()
            except OSError:
                return
            with contextlib.suppress(OSError, struct.error), peer:
                self._serve(peer)

    def _serve(self, peer: socket.socket) -> None:
        while True:
            length, size = struct.unpack(">ii", peer.recv(8, socket.MSG_WAITALL))
            header = json.loads(peer.recv(length - 4, socket.MSG_WAITALL)[:size])
            self.asked.append(header)
            if self.closes:
                return
            if self.raw is not None:
                peer.sendall(self.raw)
                continue
            answer = self.answers.get(header["code"], (3, "request type not supported"))
            code, remark, body = (*answer, b"") if isinstance(answer, tuple) else (0, None, answer)
            head = {"code": code, "flag": 1, "opaque": header["opaque"], "remark": remark, "version": 1}
            peer.sendall(remoting_frame(head, body))

    def __enter__(self) -> ScriptedBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
