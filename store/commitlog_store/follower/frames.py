"""Frames of a master, taken apart into one stretch of the log. Bytes in, bytes out: no sockets.

A frame's offset must be that of the byte after the frame before it; see ``format/ha_transfer``.
"""

from __future__ import annotations

from commitlog_store.errors import PeerRefused
from commitlog_store.format.ha_transfer import TRANSFER_HEADER_SIZE, decode_transfer_header

# A broker's frames have 32 KiB (haTransferBatchSize). A longer size is not a frame's.
_LARGEST_FRAME = 64 << 20


class FrameReader:
    """Takes what a socket gives, in any pieces. ``log`` are the bytes of the log from ``start`` on, not yet taken."""

    def __init__(self, start: int | None, log: bytes = b"") -> None:
        """``start`` None lets the master choose where to begin. ``log`` is known without being sent."""
        self.start = start
        self.log = bytearray(log)
        # The next byte that the master sends, by a frame without a body; None before the first one.
        self.heartbeat_at: int | None = None
        # The end of the master's log, when that lies before ``start``: by the offset of a first frame without a body.
        self.master_end: int | None = None
        self._has_begun = False
        self._rest = bytearray()
        # What is left to come of the body of the frame that was begun.
        self._body_left = 0
        # Why what came after ``log`` is not a frame; nothing more is taken then.
        self.fault: PeerRefused | None = None

    @property
    def end(self) -> int:
        """The physical offset after the received bytes."""
        return (self.start or 0) + len(self.log)

    def feed(self, data: memoryview) -> None:
        """Take the next bytes, up to what no master sends."""
        at = 0
        while at < len(data) and self.fault is None:
            if self._body_left:
                taken = min(self._body_left, len(data) - at)
                self.log += data[at : at + taken]
                self._body_left -= taken
                at += taken
                continue
            missing = TRANSFER_HEADER_SIZE - len(self._rest)
            self._rest += data[at : at + missing]
            at += missing
            if len(self._rest) == TRANSFER_HEADER_SIZE:
                self.fault = self._begin(*decode_transfer_header(self._rest))
                self._rest.clear()

    def take(self, size: int) -> None:
        """Forget the first ``size`` bytes of ``log``: they are stored."""
        assert self.start is not None
        del self.log[:size]
        self.start += size

    def _begin(self, offset: int, size: int) -> PeerRefused | None:
        """Begin a frame; the error for one that cannot be."""
        if not 0 <= size <= _LARGEST_FRAME:
            return PeerRefused(f"The master sent a frame of {size} bytes; expected 0 to {_LARGEST_FRAME}.")
        if self.start is None:
            if offset < 0:
                return PeerRefused(f"The master sent a frame for physical offset {offset}; expected 0 or more.")
            self.start = offset
        elif not size and 0 <= offset < self.end and not self._has_begun:
            self.master_end = offset
        elif offset != self.end:
            return PeerRefused(
                f"The master sent a frame for physical offset {offset}; expected {self.end}, the end of the frame "
                "before it."
            )
        self._has_begun = True
        if not size:
            self.heartbeat_at = offset
        self._body_left = size
        return None
