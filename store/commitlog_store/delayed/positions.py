"""The position of each delay level: the queue offset of the next message to deliver.

Two places say it. The ledger of batches is a part of the log, and right for everything that this package delivered.
``config/delayOffset.json`` is a broker's own, and follows the ledger here. Both only ever grow, and what lies before
either was delivered, so the larger counts.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["start_position"]


def start_position(level: int, ledger: Mapping[int, int], file: Mapping[int, int], low: int, high: int) -> int:
    """Where a level continues whose queue has the offsets ``[low, high)``; 0, as in RocketMQ, for an unknown level.

    A position outside of the queue is moved to its nearer end, as in RocketMQ.
    """
    return min(max(ledger.get(level, 0), file.get(level, 0), low), high)
